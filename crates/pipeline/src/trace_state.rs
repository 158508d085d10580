//! What is known about a trace beside its events: the state of the machine, and what payloads mean.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use stackhound_etl::Selection;
use stackhound_etl::record::HeaderKind;
use stackhound_live::LiveMerger;
use stackhound_schema::{Identity, Plan, ProviderDescription, Schema, SchemaStore, kernel};
use stackhound_stacks::TriggerKind;
use stackhound_system::{Limits, Losses, System};
use stackhound_trace::{Event, OpenTrace, TraceTime};
use stackhound_types::{Guid, Pid, Tid};

use crate::pipeline::Passes;

/// Everything that is known.
#[derive(Debug)]
pub struct TraceState {
    system: System,
    /// Look-ups fill a cache.
    schemas: RefCell<SchemaStore>,
    /// Embedded descriptions that could not be read.
    unreadable: u64,
}

/// A schema out of a built-in table, or one that the recording carries.
#[derive(Clone, Debug)]
pub enum SchemaRef {
    /// Of the kernel's classes.
    Kernel(&'static Schema),
    /// Any other, compiled.
    Compiled(Arc<Plan>),
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
    /// Of recordings. With one pass, only those losses are known at the beginning that the session stated then.
    pub(crate) fn of(trace: &OpenTrace, passes: Passes, schemas: SchemaStore) -> TraceState {
        let system = match passes {
            Passes::Two => System::of(trace),
            Passes::One => System::of_sessions(trace.sessions()),
        };
        TraceState::new(system, schemas)
    }

    /// Of live sessions, at their beginning.
    pub(crate) fn live(arrivals: &LiveMerger, schemas: SchemaStore) -> TraceState {
        let system = System::of_sessions(arrivals.sessions());
        TraceState::new(system.limited(Limits::default()), schemas)
    }

    fn new(system: System, schemas: SchemaStore) -> TraceState {
        TraceState { system, schemas: RefCell::new(schemas), unreadable: 0 }
    }

    /// Records that something is learned from.
    pub(crate) fn selection() -> Selection {
        System::selection()
    }

    /// Takes in an event as it comes, and that buffers before it are missing or damaged.
    pub(crate) fn observe_now(&mut self, event: &Event<'_>) {
        if event.index() == 0 {
            let block = event.block();
            let buffers = u64::from(block.origin().after_loss) + u64::from(block.extent().is_cut);
            self.add_lost_buffers(buffers);
        }
        self.observe(event);
    }

    /// Takes in that buffers are missing, or cannot be read to their end.
    pub(crate) fn add_lost_buffers(&mut self, buffers: u64) {
        if buffers > 0 {
            self.system.add_losses(Losses { events: 0, buffers });
        }
    }

    pub(crate) fn observe(&mut self, event: &Event<'_>) {
        self.system.observe(event);
        if event.kind().has_hook_id() {
            return;
        }
        let record = event.record();
        let Some(identity) = Identity::of(&record) else { return };
        let (pid, tid) = (record.pid().unwrap_or(Pid::IDLE), record.tid().unwrap_or(Tid(0)));
        let learned = self.schemas.get_mut().learn(&identity, pid, tid, record.payload());
        self.unreadable += u64::from(learned.is_err());
    }

    /// Forgets what was over before a time: of a session that never ends.
    pub(crate) fn forget_before(&mut self, time: TraceTime) {
        self.system.forget_before(time);
    }

    /// Processes, threads, modules and names over time.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// How many schemas were looked for in vain.
    pub fn schema_misses(&self) -> u64 {
        self.schemas.borrow().misses()
    }

    /// How many descriptions that the recording carries could not be read or kept.
    pub fn unreadable_schemas(&self) -> u64 {
        self.unreadable + self.schemas.borrow().refused()
    }

    /// The providers of manifest events that the trace describes, and those that were described beside it, by name. Copies
    /// everything.
    pub fn described_providers(&self) -> Vec<ProviderDescription> {
        self.schemas.borrow().learned_providers()
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

    /// The class GUID of a kernel event, as consumers see it.
    pub(crate) fn class_of(&self, hook_id: u16) -> Option<Guid> {
        kernel::class_of_hook_id(hook_id)
    }

    /// The name of a provider, if the recording or a built-in table has it.
    pub fn provider_name(&self, provider: Guid) -> Option<String> {
        self.schemas.borrow().provider_name(provider).map(str::to_owned)
    }

    /// The name of a kind of event that owns stacks.
    pub fn owner_name(&self, owner: &TriggerKind) -> String {
        let named = |guid: &Guid| self.provider_name(*guid).unwrap_or_else(|| guid.to_string());
        match owner {
            TriggerKind::Hook(hook_id) => {
                kernel::name(*hook_id).map_or_else(|| format!("Hook({hook_id:#06x})"), str::to_owned)
            }
            TriggerKind::Classic(class, opcode) => format!("{}/Opcode({opcode})", named(class)),
            TriggerKind::Manifest(provider, id) => format!("{}/EventID({id})", named(provider)),
            TriggerKind::Other => "other".to_owned(),
        }
    }

    /// What to call an event without a schema.
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
