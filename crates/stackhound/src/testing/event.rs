//! Events with their own storage.

use std::sync::{Arc, LazyLock};

use stackhound_etl::write::{EtlWriter, RecordSpec, Session};
use stackhound_etl::{Block, BlockBuilder, ClockKind, EtlFile, LogfileHeader};
use stackhound_schema::{Identity, Parser, Plan, SchemaStore};
use stackhound_trace::{Event, TraceTime};
use stackhound_types::{FileTime, PointerSize, RawTime};

use super::Error;

/// The default time of events: 2024-01-01, 00:00 UTC.
pub(super) const START: FileTime = FileTime(133_485_408_000_000_000);

/// Size of a block for one event. Most records fit.
const CAPACITY: usize = 512;

/// Number of processors, the limit for processor numbers of events.
pub(super) const PROCESSORS: u16 = 64;

/// The session of all generated events. Its raw times are UTC.
pub(super) static SESSION: LazyLock<Arc<LogfileHeader>> = LazyLock::new(|| {
    let session = Session {
        processors: PROCESSORS,
        clock: ClockKind::SystemTime,
        start: RawTime(START.0),
        start_time: START,
        ..Session::default()
    };
    let written = EtlWriter::new(session, std::io::Cursor::new(Vec::new())).and_then(EtlWriter::finish);
    let (file, _) = written.expect("a session without records can be written");
    EtlFile::open(file.into_inner().into()).expect("it was written just now").session().clone()
});

/// An event with its own bytes, which are immutable. A clone costs a reference count.
#[derive(Clone, Debug)]
pub struct OwnedEvent {
    block: Arc<Block>,
    index: u32,
}

impl OwnedEvent {
    /// Keeps an event together with its block.
    pub fn of(event: &Event<'_>) -> OwnedEvent {
        OwnedEvent { block: event.block().clone(), index: event.index() }
    }

    /// A new event of [`SESSION`].
    pub(super) fn made(processor: u16, record: &RecordSpec<'_>) -> Result<OwnedEvent, Error> {
        let mut block = BlockBuilder::new(SESSION.clone(), 0, Some(processor), CAPACITY);
        block.push(record)?;
        Ok(OwnedEvent::alone(&mut block))
    }

    /// The only event of a block.
    fn alone(builder: &mut BlockBuilder) -> OwnedEvent {
        let (block, error) = builder.take().expect("a record was pushed");
        debug_assert_eq!(error, None);
        OwnedEvent { block: Arc::new(block), index: 0 }
    }

    /// The same event in a separate block, which contains nothing else. Useful to keep few out of
    /// many events for a long time.
    ///
    /// # Errors
    /// If the record cannot be written. This does not happen for records that were read.
    pub fn deep_copy(&self) -> Result<OwnedEvent, Error> {
        let event = self.event();
        let (session, origin) = (self.block.session().clone(), self.block.origin());
        let record = event.record();
        let mut builder = BlockBuilder::new(session, origin.etl_file, origin.processor, record.bytes().len());
        builder.copy(&record)?;
        Ok(OwnedEvent::alone(&mut builder))
    }

    /// The event.
    pub fn event(&self) -> Event<'_> {
        let time = self.block.entries()[self.index as usize].time;
        Event::new(&self.block, self.index, TraceTime(time.0))
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.event().record().payload()
    }

    /// The plan to decode the payload, if a schema is known.
    pub fn plan(&self, store: &mut SchemaStore) -> Option<Arc<Plan>> {
        let record = self.event().record();
        store.lookup(&Identity::of(&record)?, record.payload(), record.pointer_size()).cloned()
    }

    /// The properties of the event, decoded by the result of [`plan`](OwnedEvent::plan).
    pub fn parser<'e>(&'e self, plan: &'e Plan) -> Parser<'e> {
        plan.parser(self.payload(), self.pointer_size())
    }

    /// The pointer size of the payload.
    pub fn pointer_size(&self) -> PointerSize {
        self.event().record().pointer_size()
    }
}
