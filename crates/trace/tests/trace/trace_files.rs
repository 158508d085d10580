//! Generated trace files with known events, and the events that are read from them.

use std::io::Cursor;

use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_etl::{EtlFile, Selection};
use stackhound_trace::{OpenTrace, Ordered, Source, Stats};
use stackhound_types::{Pid, PointerSize, RawTime, Tid};

/// Hook ids that events alternate between.
pub const HOOK_IDS: [u16; 3] = [0x0301, 0x0524, 0x0f33];

/// One event: where it was logged, when, and a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Logged {
    /// Raw time.
    pub time: i64,
    pub source: u16,
    pub processor: u16,
    /// Counts up within the source in the order of writing; 0 is the logfile header.
    pub number: u64,
}

impl Logged {
    pub fn hook_id(&self) -> u16 {
        if self.number == 0 { 0 } else { HOOK_IDS[self.number as usize % HOOK_IDS.len()] }
    }
}

/// A trace file under construction.
pub struct Making {
    source: u16,
    writer: EtlWriter<Cursor<Vec<u8>>>,
    logged: Vec<Logged>,
}

impl Making {
    pub fn new(source: u16, session: Session) -> Making {
        let header = Logged { time: session.start.0, source, processor: 0, number: 0 };
        let writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
        Making { source, writer, logged: vec![header] }
    }

    /// Logs an event at a time after the start of the session.
    pub fn log(&mut self, processor: u16, after_start: i64) -> Logged {
        let time = self.writer.session().start.0 + after_start;
        let number = self.logged.len() as u64;
        let logged = Logged { time, source: self.source, processor, number };
        let issuer = Issuer::new(Pid(1), Tid(2));
        let record = RecordSpec {
            time: RawTime(time),
            pointer_size: PointerSize::Eight,
            header: HeaderSpec::System { hook_id: logged.hook_id(), version: 2, issuer },
            payload: Payload::Bytes(&number.to_le_bytes()),
        };
        self.writer.write(processor, &record).unwrap();
        self.logged.push(logged);
        logged
    }

    pub fn flush(&mut self, processor: u16) {
        self.writer.flush(processor).unwrap();
    }

    /// The file, and all that was logged.
    pub fn finish(self) -> (Vec<u8>, Vec<Logged>) {
        (self.writer.finish().unwrap().0.into_inner(), self.logged)
    }

    /// Like [`Making::finish`], with the session still running and zeros after the end.
    pub fn leave_unfinished(self, zeros: u64) -> (Vec<u8>, Vec<Logged>) {
        (self.writer.leave_unfinished(zeros).unwrap().0.into_inner(), self.logged)
    }
}

/// A few events on two processors, for tests of containers.
pub fn small(source: u16) -> (Vec<u8>, Vec<Logged>) {
    let mut making = Making::new(source, Session { processors: 2, buffer_size: 1024, ..Session::default() });
    for tick in 0..60 {
        making.log((tick % 2) as u16, tick * 10 + i64::from(source));
    }
    making.finish()
}

pub fn open(files: &[Vec<u8>], threads: usize) -> OpenTrace {
    let sources = files.iter().enumerate().map(|(number, file)| {
        Source::new(
            format!("source {number}"),
            EtlFile::open(file.clone().into()).unwrap().numbered(number as u16),
        )
    });
    OpenTrace::new(sources.collect(), threads).unwrap()
}

/// The events of a merge.
pub fn events(mut ordered: Ordered) -> (Vec<Logged>, Stats) {
    let mut events = Vec::new();
    while let Some(event) = ordered.next() {
        let hook_id = event.hook_id().unwrap();
        let number = match event.payload().try_into() {
            Ok(bytes) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        };
        // A stream that processors share has no processor numbers.
        let processor = event.processor().unwrap_or(0);
        let logged = Logged { time: event.raw_time().0, source: event.source(), processor, number };
        assert_eq!(hook_id, logged.hook_id());
        events.push(logged);
    }
    (events, ordered.into_stats())
}

pub fn selection(hook_ids: &[u16]) -> Selection {
    Selection::none().hook_ids(hook_ids.iter().copied())
}
