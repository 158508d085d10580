//! The known state of a trace: the state of the system, and the schemas of payloads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use stackhound_etl::record::HeaderKind;
use stackhound_etl::{Block, Clock, Selection};
use stackhound_live::LiveMerger;
use stackhound_schema::{Identity, Plan, Schema, SchemaStore, kernel};
use stackhound_system::{Limits, System};
use stackhound_trace::{Event, LossMap, OpenTrace, TimeBase, TraceTime};
use stackhound_types::Guid;

/// The number of times a trace is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Passes {
    /// Once, as for a live session: information at the end of the trace is not available earlier.
    One,
    /// Twice: first for stack-key definitions, names and schemas, which traces often contain at
    /// their end.
    #[default]
    Two,
}

/// The known state of a trace.
#[derive(Debug)]
pub struct TraceState {
    system: System,
    /// In a cell because look-ups fill a cache.
    schemas: RefCell<SchemaStore>,
    /// The number of embedded schemas that could not be read.
    unreadable: u64,
    clock: Clock,
    bases: Vec<TimeBase>,
    is_final: bool,
}

/// A schema from a built-in table, or one that the trace contains.
#[derive(Clone, Debug)]
pub enum SchemaRef {
    /// A schema of a kernel class.
    Kernel(&'static Schema),
    /// Any other schema, compiled.
    Compiled(Arc<Plan>),
}

impl SchemaRef {
    /// The compiled plan to decode payloads.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            SchemaRef::Kernel(schema) => kernel::plan(schema),
            SchemaRef::Compiled(plan) => Some(plan),
        }
    }
}

impl Deref for SchemaRef {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            SchemaRef::Kernel(schema) => schema,
            SchemaRef::Compiled(plan) => plan.schema(),
        }
    }
}

impl TraceState {
    /// The state for a trace. With one pass, only the losses that the file's index shows are known at
    /// the beginning.
    pub(crate) fn of(trace: &OpenTrace, passes: Passes, schemas: SchemaStore) -> TraceState {
        let mut system = System::of(trace);
        // The first of two passes states where records are missing.
        if passes == Passes::One {
            system.set_losses(LossMap::of(trace));
        }
        let is_final = passes == Passes::Two;
        TraceState { is_final, ..TraceState::new(system, schemas, trace.clock(), trace.time_bases()) }
    }

    /// The state for live sessions, at their beginning.
    pub(crate) fn live(arrivals: &LiveMerger, schemas: SchemaStore) -> TraceState {
        let system = System::of_sessions(arrivals.sessions());
        let (clock, bases) = (arrivals.clock(), arrivals.time_bases());
        TraceState::new(system.limited(Limits::default()), schemas, clock, bases)
    }

    fn new(system: System, schemas: SchemaStore, clock: Clock, bases: Vec<TimeBase>) -> TraceState {
        TraceState { system, schemas: RefCell::new(schemas), unreadable: 0, clock, bases, is_final: false }
    }

    /// Sets the losses that the first pass found.
    pub(crate) fn set_losses(&mut self, losses: LossMap) {
        self.system.set_losses(losses);
    }

    /// Where records are missing. Complete with two passes; else as far as events were observed.
    pub fn losses(&self) -> &LossMap {
        self.system.losses()
    }

    /// Whether the state no longer changes, because a first pass over the trace collected it.
    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Selects the records that contain state or schemas.
    pub(crate) fn selection() -> Selection {
        SchemaStore::select(System::selection())
    }

    /// Whether an event contains state or schemas, as far as its header shows.
    pub(crate) fn uses(event: &Event<'_>) -> bool {
        System::uses(event) || SchemaStore::describes(event.entry().tag, &event.record())
    }

    /// Processes an event on arrival, and a loss or damage of the buffers before it.
    pub(crate) fn observe_now(&mut self, event: &Event<'_>) {
        if event.index() == 0
            && let Some(base) = self.bases.get(event.session_number() as usize)
        {
            self.system.enter_block(event, base);
        }
        self.observe(event);
    }

    /// Requests the memory that [`observe`](Self::observe) will need for the events of a block.
    pub(crate) fn expect(&self, block: &Block) {
        self.system.expect(block);
    }

    pub(crate) fn observe(&mut self, event: &Event<'_>) {
        self.system.observe(event);
        let learned = self.schemas.get_mut().learn_record(event.entry().tag, &event.record());
        self.unreadable += u64::from(learned.is_err());
    }

    /// Removes state that ended before a time, for live sessions, which have no end.
    pub(crate) fn forget_before(&mut self, time: TraceTime) {
        self.system.forget_before(time);
    }

    /// Processes, threads, modules and names over time.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The number of failed schema look-ups.
    pub fn schema_misses(&self) -> u64 {
        self.schemas.borrow().misses()
    }

    /// A number that changes whenever schemas are learned: until then, equal look-ups find the same.
    pub(crate) fn schema_generation(&self) -> u64 {
        self.schemas.borrow().generation()
    }

    /// The number of schemas in the trace that could not be read or stored.
    pub fn unreadable_schemas(&self) -> u64 {
        self.unreadable + self.schemas.borrow().refused()
    }

    /// The schema of an event.
    pub(crate) fn schema_of(&self, event: &Event<'_>) -> Option<SchemaRef> {
        let record = event.record();
        let (version, pointer) = (record.version(), record.pointer_size());
        if let Some(hook_id) = event.hook_id() {
            return kernel::lookup_for(hook_id, version, pointer, record.payload()).map(SchemaRef::Kernel);
        }
        let identity = Identity::of(&record)?;
        self.schemas
            .borrow_mut()
            .lookup(&identity, record.payload(), pointer)
            .cloned()
            .map(SchemaRef::Compiled)
    }

    /// The class GUID of a kernel event, as ETW consumers receive it.
    pub(crate) fn class_of(&self, hook_id: u16) -> Option<Guid> {
        kernel::class_of_hook_id(hook_id)
    }

    /// The name of a provider or class, if the trace or a built-in table contains it.
    pub fn provider_name(&self, provider: Guid) -> Option<Arc<str>> {
        self.schemas.borrow().provider_name(provider).cloned()
    }

    /// The name of an event without a schema.
    pub(crate) fn unknown_name(event: &Event<'_>) -> Cow<'static, str> {
        let entry = event.entry();
        Cow::Owned(match entry.kind() {
            HeaderKind::Message => format!("Message({})", entry.tag),
            HeaderKind::Error => return Cow::Borrowed("Error"),
            kind if kind.has_hook_id() => format!("Hook({:#06x})", entry.tag),
            kind if kind.is_classic() => format!("Opcode({})", entry.tag),
            _ => format!("EventID({})", entry.tag),
        })
    }
}
