//! Writes the records of the trace, with ascending time stamps, and counts them.

use std::collections::BTreeMap;
use std::io::Write;

use stackhound_etl::LogFileMode;
use stackhound_etl::write::{
    EtlWriter, HeaderSpec, Issuer, Payload as PayloadSpec, RecordSpec, Session, WriteError,
};
use stackhound_types::{FileTime, PointerSize, RawTime};

use crate::event::{EventKind, HEADER, KernelEvent};
use crate::payload::Payload;
use crate::random::Random;
use crate::truth::{About, EventSubject, GroundTruth, Lost, SwitchTruth, TraceEvent};

/// Number of processors of the machine.
pub(crate) const PROCESSORS: u16 = 4;
/// Clock ticks per millisecond: the clock has 10 MHz.
pub(crate) const TICKS_PER_MS: i64 = 10_000;

const BUFFER_SIZE: u32 = 64 << 10;
/// Size at which the buffer to be lost is dropped, in bytes. It is less than the buffer size, so
/// that the buffer is not written earlier.
const LOST_BUFFER_FILL: usize = 8 << 10;

/// Logging modes: a system session that writes to a sequential file.
const SYSTEM_LOGGER: u32 = 0x0200_0000;
const SEQUENTIAL: u32 = 1;

/// All hook ids are less than this.
const HOOK_IDS: usize = 0x1900;

/// A record that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    pub time: RawTime,
    pub processor: u16,
    /// Whether it is in the file. Records in the lost buffer are not.
    pub kept: bool,
}

/// Writes records and counts them.
#[derive(Debug)]
pub(crate) struct Output<W> {
    writer: EtlWriter<W>,
    /// The payload of the next record. It is cleared when the record is written.
    pub payload: Payload,
    now: i64,
    /// Determines the time between records.
    pace: Random,
    /// Maximum number of ticks between two records.
    gap_max: u64,
    kept: u64,
    hook_ids: Box<[u64; HOOK_IDS]>,
    others: Vec<(EventKind, u64)>,
    lost: Lost,
    loss: Loss,
    /// Time of the latest record of each processor.
    latest: [i64; PROCESSORS as usize],
    pub notes: Notes,
    /// Whether entries and exits of system calls are recorded.
    pub has_system_calls: bool,
    /// The object that the next event is about.
    about: About,
}

/// Optional ground truth in addition to the [`Truth`](crate::Truth). `None` if it was not
/// requested.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Actions of threads and processors.
    pub trace_events: Option<Vec<TraceEvent>>,
    /// Context switches with the stacks of their threads.
    pub switches: Option<Vec<SwitchTruth>>,
    /// Events with the objects that they are about.
    pub subjects: Option<Vec<EventSubject>>,
}

/// The state of the lost buffer.
#[derive(Clone, Copy, Debug)]
enum Loss {
    NotYet,
    /// The buffer is being filled: its processor and its size in bytes.
    Now(u16, usize),
    /// The buffer is lost. Its processor has not logged a record since.
    Over(u16),
    /// Its processor has logged a record since, which makes the loss visible in the file.
    Visible,
}

impl<W: Write> Output<W> {
    /// Starts a trace with at most `gap_max` ticks between the records of one action.
    pub fn new(output: W, seed: u64, gap_max: u64) -> Result<Output<W>, WriteError> {
        let session = Session {
            processors: PROCESSORS,
            buffer_size: BUFFER_SIZE,
            windows_version: (10, 0),
            build: 19_041,
            mode: LogFileMode(SYSTEM_LOGGER | SEQUENTIAL),
            name: "NT Kernel Logger".to_owned(),
            file_name: r"C:\scenario.etl".to_owned(),
            ..Session::default()
        };
        let now = session.start.0;
        Ok(Output {
            writer: EtlWriter::new(session, output)?,
            payload: Payload::default(),
            now,
            pace: Random::new(seed),
            gap_max,
            kept: 0,
            hook_ids: Box::new([0; HOOK_IDS]),
            others: Vec::new(),
            lost: Lost::default(),
            loss: Loss::NotYet,
            latest: [now; PROCESSORS as usize],
            notes: Notes::default(),
            has_system_calls: true,
            about: About::Nothing,
        })
    }

    /// UTC time of a raw time. The clock has 10 MHz.
    pub fn utc(&self, time: RawTime) -> FileTime {
        let session = self.writer.session();
        FileTime(session.start_time.0 + time.0 - session.start.0)
    }

    /// Raw time of the latest record.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Advances the time to at least `time`.
    pub fn wait_until(&mut self, time: i64) {
        self.now = self.now.max(time);
    }

    /// Number of records in the file so far, without the logfile header.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Logs a kernel event with the prepared payload in the header buffer, at the start time of the
    /// session.
    pub fn kernel_in_header(&mut self, event: KernelEvent, issuer: Issuer) -> Result<(), WriteError> {
        self.payload.write_to_header(&mut self.writer, event, issuer)?;
        self.kept += 1;
        self.hook_ids[usize::from(event.hook_id)] += 1;
        Ok(())
    }

    /// Logs a kernel event with the prepared payload.
    pub fn kernel(&mut self, on: u16, event: KernelEvent, issuer: Issuer) -> Result<Logged, WriteError> {
        self.tick();
        self.kernel_now(on, event, issuer)
    }

    /// Like [`kernel`](Output::kernel), but at the time of the previous record, which must be of
    /// another processor.
    pub fn kernel_now(&mut self, on: u16, event: KernelEvent, issuer: Issuer) -> Result<Logged, WriteError> {
        self.payload_record(on, event.kind(), PointerSize::Eight, event.header(issuer), Some(issuer))
    }

    /// Sets the object that the next event is about, if the notes ask for it.
    pub fn about(&mut self, about: impl FnOnce() -> About) {
        if self.notes.subjects.is_some() {
            self.about = about();
        }
    }

    /// Logs an event of any other kind with the prepared payload.
    pub fn event(
        &mut self,
        on: u16,
        kind: EventKind,
        pointer_size: PointerSize,
        header: HeaderSpec<'_>,
    ) -> Result<Logged, WriteError> {
        self.tick();
        let issuer = match header {
            HeaderSpec::Event { issuer, .. } | HeaderSpec::Full { issuer, .. } => Some(issuer),
            _ => None,
        };
        self.payload_record(on, kind, pointer_size, header, issuer)
    }

    /// Logs a stack record, which `make` builds for its time.
    pub fn stack<'s>(
        &mut self,
        on: u16,
        hook_id: u16,
        make: impl FnOnce(RawTime) -> RecordSpec<'s>,
    ) -> Result<Logged, WriteError> {
        self.tick();
        let record = make(RawTime(self.now));
        self.make_room(on, &record)?;
        self.writer.write(on, &record)?;
        Ok(self.note(on, EventKind::Kernel(hook_id)))
    }

    fn tick(&mut self) {
        self.now += 3 + self.pace.below(self.gap_max) as i64;
    }

    fn payload_record(
        &mut self,
        on: u16,
        kind: EventKind,
        pointer_size: PointerSize,
        header: HeaderSpec<'_>,
        issuer: Option<Issuer>,
    ) -> Result<Logged, WriteError> {
        let payload = std::mem::take(&mut self.payload);
        let time = RawTime(self.now);
        let record =
            RecordSpec { time, pointer_size, header, payload: PayloadSpec::Bytes(payload.as_bytes()) };
        let made_room = self.make_room(on, &record);
        let written = made_room.and_then(|()| self.writer.write(on, &record));
        self.payload = payload;
        self.payload.clear();
        written?;
        let logged = self.note(on, kind);
        if let Some(subjects) = &mut self.notes.subjects {
            let actor = issuer.and_then(|issuer| issuer.pid.zip(issuer.tid));
            let (Logged { time, processor, kept }, about) = (logged, std::mem::take(&mut self.about));
            subjects.push(EventSubject { time, processor, kept, actor, about });
        }
        Ok(logged)
    }

    /// Start time of an activity on a processor that was due at `at`: `at`, or the time of the
    /// processor's latest record if that is later.
    pub fn started(&self, on: u16, at: i64) -> i64 {
        at.max(self.latest[usize::from(on)])
    }

    /// Adds the action that an event was logged for to the notes, if they are requested.
    pub fn add_ground_truth(&mut self, logged: Logged, action: GroundTruth) {
        let Logged { time, processor, kept } = logged;
        self.notes
            .trace_events
            .iter_mut()
            .for_each(|trace_events| trace_events.push(TraceEvent { time, processor, kept, action }));
    }

    fn note(&mut self, on: u16, kind: EventKind) -> Logged {
        self.latest[usize::from(on)] = self.now;
        let kept = !matches!(self.loss, Loss::Now(processor, _) if processor == on);
        if matches!(self.loss, Loss::Over(processor) if processor == on) {
            self.loss = Loss::Visible;
        }
        if kept {
            self.kept += 1;
            match kind {
                EventKind::Kernel(hook_id) => self.hook_ids[usize::from(hook_id)] += 1,
                _ => match self.others.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, count)) => *count += 1,
                    None => self.others.push((kind, 1)),
                },
            }
        } else {
            self.lost.records += 1;
        }
        Logged { time: RawTime(self.now), processor: on, kept }
    }

    /// Starts to write the records of a processor to a buffer that will be lost.
    pub fn start_losing(&mut self, processor: u16) -> Result<(), WriteError> {
        self.writer.flush(processor)?;
        self.loss = Loss::Now(processor, 0);
        Ok(())
    }

    /// Whether a buffer was lost and this is visible in the file.
    pub fn shows_loss(&self) -> bool {
        matches!(self.loss, Loss::Visible)
    }

    /// A processor whose records are kept: the given one if possible.
    pub fn keeping(&self, processor: u16) -> u16 {
        match self.loss {
            Loss::Now(losing, _) if losing == processor => (processor + 1) % PROCESSORS,
            _ => processor,
        }
    }

    /// Drops the buffer that is to be lost if the record exceeds its size.
    fn make_room(&mut self, on: u16, record: &RecordSpec<'_>) -> Result<(), WriteError> {
        let Loss::Now(processor, fill) = &mut self.loss else { return Ok(()) };
        if *processor != on {
            return Ok(());
        }
        *fill += record.size()?.next_multiple_of(8);
        if *fill > LOST_BUFFER_FILL {
            self.writer.lose_buffer(on)?;
            self.lost.buffers += 1;
            self.loss = Loss::Over(on);
        }
        Ok(())
    }
}

impl<W: Write + std::io::Seek> Output<W> {
    /// Finishes the trace. Returns the number of records by kind, the losses, and the size of the
    /// file in bytes.
    pub fn finish(self) -> Result<(BTreeMap<EventKind, u64>, Lost, u64), WriteError> {
        let (_, totals) = self.writer.finish()?;
        let by_hook_id = self.hook_ids.iter().enumerate().filter(|(_, count)| **count > 0);
        let mut events: BTreeMap<EventKind, u64> =
            by_hook_id.map(|(hook_id, &count)| (EventKind::Kernel(hook_id as u16), count)).collect();
        events.extend(self.others);
        events.insert(HEADER.kind(), 1);
        Ok((events, self.lost, totals.bytes))
    }
}
