//! The schemas that a trace contains, for commands that need nothing else of the pipeline.

use stackhound::etl::{ManifestEvents, Selection};
use stackhound::schema::{Identity, SchemaStore};
use stackhound::trace::Event;
use stackhound::types::{Pid, Tid};

/// The event ID of EventSource manifests.
const MANIFEST_EVENT: u16 = 0xfffe;

/// The records that can contain schemas.
pub fn selection() -> Selection {
    Selection::none().classic().manifest_events(ManifestEvents::Id(MANIFEST_EVENT))
}

/// Learns the schema that an event contains. A schema that cannot be read is ignored, so that its
/// events count as events without a schema.
pub fn learn(schemas: &mut SchemaStore, event: &Event<'_>) {
    if event.kind().has_hook_id() {
        return;
    }
    let record = event.record();
    let Some(identity) = Identity::of(&record) else { return };
    let (pid, tid) = (record.pid().unwrap_or(Pid::IDLE), record.tid().unwrap_or(Tid(0)));
    let _ = schemas.learn(&identity, pid, tid, record.payload());
}
