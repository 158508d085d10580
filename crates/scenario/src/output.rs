//! The recording that is being written: one record after the other, at times that only go up.

use std::collections::BTreeMap;
use std::io::Write;

use stackhound_etl::LogFileMode;
use stackhound_etl::write::{
    EtlWriter, HeaderSpec, Issuer, Payload as PayloadSpec, RecordSpec, Session, WriteError,
};
use stackhound_types::{PointerSize, RawTime};

use crate::event::{EventKind, HEADER, KernelEvent};
use crate::payload::Payload;
use crate::random::Random;
use crate::truth::{GroundTruth, Lost, SwitchTruth, TraceEvent};

/// Processors of every scenario's machine.
pub(crate) const PROCESSORS: u16 = 4;
/// The clock: 10 MHz.
pub(crate) const TICKS_PER_MS: i64 = 10_000;

const BUFFER_SIZE: u32 = 64 << 10;
/// How full the buffer is that is lost; less than a buffer takes, so that it is not written before.
const LOST_BUFFER_FILL: usize = 8 << 10;

/// Logging modes: a system session, to a file without limit.
const SYSTEM_LOGGER: u32 = 0x0200_0000;
const SEQUENTIAL: u32 = 1;

/// Kernel hooks are below this.
const HOOK_IDS: usize = 0x1900;

/// A record that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    pub time: RawTime,
    pub processor: u16,
    /// Whether it is in the file: not in the buffer that is lost.
    pub kept: bool,
}

/// Writes records and counts them.
#[derive(Debug)]
pub(crate) struct Output<W> {
    writer: EtlWriter<W>,
    /// The payload of the next record; written and then emptied.
    pub payload: Payload,
    now: i64,
    /// Drives the time between records.
    pace: Random,
    /// The most ticks between two records.
    gap_max: u64,
    kept: u64,
    hook_ids: Box<[u64; HOOK_IDS]>,
    others: Vec<(EventKind, u64)>,
    lost: Lost,
    loss: Loss,
    /// When each processor has logged something last.
    latest: [i64; PROCESSORS as usize],
    /// What is noted down beside the records.
    pub notes: Notes,
}

/// What is told beside the truth, as far as somebody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// What was done.
    pub trace_events: Option<Vec<TraceEvent>>,
    /// Context switches with the stacks of their threads.
    pub switches: Option<Vec<SwitchTruth>>,
}

/// The buffer that is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    NotYet,
    /// It is being filled: its processor and its bytes.
    Now(u16, usize),
    /// It is lost; its processor has logged nothing since.
    Over(u16),
    /// Its processor has logged something since.
    SystemImage,
}

impl<W: Write> Output<W> {
    /// Starts a recording with at most so many ticks between the records of one action.
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
        })
    }

    /// Raw time of the latest record.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Lets time pass until at least `time`.
    pub fn wait_until(&mut self, time: i64) {
        self.now = self.now.max(time);
    }

    /// Records in the file up to here; the logfile header is not counted.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Logs a kernel event with the prepared payload in the header buffer, at the time of the session's start.
    pub fn kernel_in_header(&mut self, event: KernelEvent, issuer: Issuer) -> Result<(), WriteError> {
        let KernelEvent { hook_id, version, .. } = event;
        let record = RecordSpec {
            time: self.writer.session().start,
            pointer_size: PointerSize::Eight,
            header: HeaderSpec::System { hook_id, version, issuer },
            payload: PayloadSpec::Bytes(self.payload.as_bytes()),
        };
        self.writer.write_to_header(&record)?;
        self.payload.clear();
        self.kept += 1;
        self.hook_ids[usize::from(hook_id)] += 1;
        Ok(())
    }

    /// Logs a kernel event with the prepared payload.
    pub fn kernel(&mut self, on: u16, event: KernelEvent, issuer: Issuer) -> Result<Logged, WriteError> {
        self.tick();
        self.kernel_now(on, event, issuer)
    }

    /// The same, at the time of the record before, which must be another processor's.
    pub fn kernel_now(&mut self, on: u16, event: KernelEvent, issuer: Issuer) -> Result<Logged, WriteError> {
        let KernelEvent { hook_id, version, .. } = event;
        let header = if event.has_ids {
            HeaderSpec::System { hook_id, version, issuer }
        } else {
            HeaderSpec::PerfInfo { hook_id, version, pebs_index: None, counters: &[] }
        };
        self.payload_record(on, event.kind(), PointerSize::Eight, header)
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
        self.payload_record(on, kind, pointer_size, header)
    }

    /// Logs a stack record, which `make` makes for its time.
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
        Ok(self.note(on, kind))
    }

    /// When something started on a processor that started at `at` if nothing else was done there since.
    pub fn started(&self, on: u16, at: i64) -> i64 {
        at.max(self.latest[usize::from(on)])
    }

    /// Takes note of what an event was logged of.
    pub fn add_ground_truth(&mut self, logged: Logged, what: GroundTruth) {
        let Logged { time, processor, kept } = logged;
        self.notes
            .trace_events
            .iter_mut()
            .for_each(|trace_events| trace_events.push(TraceEvent { time, processor, kept, what }));
    }

    fn note(&mut self, on: u16, kind: EventKind) -> Logged {
        self.latest[usize::from(on)] = self.now;
        let kept = !matches!(self.loss, Loss::Now(processor, _) if processor == on);
        if matches!(self.loss, Loss::Over(processor) if processor == on) {
            self.loss = Loss::SystemImage;
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

    /// From here on the records of a processor go into a buffer that will be lost.
    pub fn start_losing(&mut self, processor: u16) -> Result<(), WriteError> {
        self.writer.flush(processor)?;
        self.loss = Loss::Now(processor, 0);
        Ok(())
    }

    /// Whether a buffer was lost and the file can show it.
    pub fn shows_loss(&self) -> bool {
        matches!(self.loss, Loss::SystemImage)
    }

    /// A processor whose records are kept: this one if possible.
    pub fn keeping(&self, processor: u16) -> u16 {
        match self.loss {
            Loss::Now(losing, _) if losing == processor => (processor + 1) % PROCESSORS,
            _ => processor,
        }
    }

    /// Loses the buffer that is to be lost when the record has no room in it.
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
    /// Ends the recording. Gives the records by kind, what was lost, and the bytes of the file.
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
