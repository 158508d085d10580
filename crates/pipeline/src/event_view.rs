//! An event with its names, its process, its fields and the modules of its frames.

use std::borrow::Cow;
use std::cell::{OnceCell, Ref, RefMut};
use std::sync::Arc;

use stackhound_etl::record::HeaderKind;
use stackhound_frames::{
    CallOutcome, CreateOutcome, EventNames, Frame, FrameResolver, Level, Modules, StackOwner, Summary,
};
use stackhound_schema::{Decoder, Error, Field, Item, OutType, Parser, Plan, Value, kernel};
use stackhound_stacks::{Delivered, StackId, StackState, StackStates};
use stackhound_symbols::{FrameNumber, ResolvedFrame};
use stackhound_system::ProcessId;
use stackhound_trace::{Event, TraceTime};
use stackhound_types::{FileTime, Guid, Mode, Pid, RawTime, Tid};

use crate::enrichment::{Depth, Enricher};
use crate::facts::Missing;
use crate::frame::FrameView;
use crate::trace_state::{SchemaRef, TraceState};

/// What later events report about an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcomes<'c> {
    pub create: Option<&'c CreateOutcome>,
    pub call: Option<&'c CallOutcome>,
}

/// The ids of the process and thread that an event states. Together with the time of the event,
/// they determine its process and thread, and everything that is known about them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StatedIds {
    /// From the header, else from the stack, else from the payload.
    pub pid: Option<Pid>,
    /// See [`EventView::tid`].
    pub tid: Option<Tid>,
    /// Whether sources contradict each other about the process, so that it is not known.
    pub is_disputed: bool,
}

/// The process and thread of an event.
#[derive(Clone, Copy, Debug)]
struct Owner {
    pid: Option<Pid>,
    tid: Option<Tid>,
    /// Whether only the thread's process in the state of the trace states the process.
    is_pid_of_thread: bool,
}

/// An event with all known data about it. Everything is computed on request.
#[derive(Debug)]
pub struct EventView<'c> {
    delivered: &'c Delivered<'c>,
    known: &'c TraceState,
    enricher: &'c Enricher,
    outcomes: Outcomes<'c>,
    schema: OnceCell<Option<SchemaRef>>,
    provider_name: OnceCell<Option<Arc<str>>>,
    stated_ids: OnceCell<StatedIds>,
    owner: OnceCell<Owner>,
    level: OnceCell<Level>,
    process: OnceCell<Result<ProcessId, Missing>>,
}

impl<'c> EventView<'c> {
    pub(crate) fn new(
        delivered: &'c Delivered<'c>,
        known: &'c TraceState,
        enricher: &'c Enricher,
        outcomes: Outcomes<'c>,
    ) -> EventView<'c> {
        EventView {
            delivered,
            known,
            enricher,
            outcomes,
            schema: OnceCell::new(),
            provider_name: OnceCell::new(),
            stated_ids: OnceCell::new(),
            owner: OnceCell::new(),
            level: OnceCell::new(),
            process: OnceCell::new(),
        }
    }

    /// The event itself.
    pub fn event(&self) -> &Event<'c> {
        &self.delivered.event
    }

    /// The event with its stack, as the correlator delivered it.
    pub fn delivered(&self) -> &Delivered<'c> {
        self.delivered
    }

    /// The known state of the trace.
    pub fn trace_state(&self) -> &'c TraceState {
        self.known
    }

    /// Time in the order of the trace.
    pub fn time(&self) -> TraceTime {
        self.delivered.event.time()
    }

    /// Time in the clock of the source.
    pub fn raw_time(&self) -> RawTime {
        self.delivered.event.raw_time()
    }

    /// UTC time.
    pub fn utc(&self) -> FileTime {
        self.delivered.event.utc()
    }

    /// Processor number.
    pub fn processor(&self) -> Option<u16> {
        self.delivered.event.processor()
    }

    /// The process of the event: from the header, else from the stack, else from the payload, else
    /// from the thread. `None` also if these contradict each other.
    pub fn pid(&self) -> Option<Pid> {
        self.owner().pid
    }

    /// The thread of the event: from the header, else from the stack, else from the payload; of
    /// system calls also from the context switches of their processor.
    pub fn tid(&self) -> Option<Tid> {
        self.owner().tid
    }

    /// The process of a thread that the event names: of its own thread as [`pid`](EventView::pid), of
    /// another one the process that the thread belongs to at this time.
    pub fn pid_of_thread(&self, tid: Tid) -> Option<Pid> {
        match self.tid() {
            Some(own) if own == tid => self.pid(),
            _ => Some(self.known.system().thread_of_event(tid, self.time())?.pid()),
        }
    }

    /// Whether the process of a thread that the event names is not known because events, or the parts
    /// of this one, contradict each other.
    pub fn is_pid_uncertain(&self, tid: Tid) -> bool {
        let is_own_disputed = self.tid() == Some(tid) && self.stated_ids().is_disputed;
        is_own_disputed || self.known.system().is_thread_uncertain(tid, self.time())
    }

    /// Whether the process of the event is known only as the one of its thread.
    pub(crate) fn is_pid_of_thread(&self) -> bool {
        self.owner().is_pid_of_thread
    }

    /// The process of the event, as [`process`](EventView::process) determines it. Once known, it is
    /// not determined again.
    pub(crate) fn process_id(
        &self,
        determine: impl FnOnce() -> Result<ProcessId, Missing>,
    ) -> Result<ProcessId, Missing> {
        *self.process.get_or_init(determine)
    }

    pub(crate) fn enricher(&self) -> &'c Enricher {
        self.enricher
    }

    /// The process and thread that the event states.
    pub fn stated_ids(&self) -> StatedIds {
        *self.stated_ids.get_or_init(|| {
            let of_call = self.outcomes.call.and_then(|call| call.tid);
            let tid = self.delivered.tid().or(of_call);
            let tid = tid.or_else(|| self.id_field(OutType::Tid).and_then(Tid::known));
            let pid = self.delivered.pid().or_else(|| self.id_field(OutType::Pid).and_then(Pid::known));
            let system = self.known.system();
            let is_disputed = self.delivered.is_pid_contradictory()
                || pid.zip(tid).is_some_and(|(pid, tid)| system.is_owner_disputed(pid, tid, self.time()));
            StatedIds { pid, tid, is_disputed }
        })
    }

    fn owner(&self) -> Owner {
        *self.owner.get_or_init(|| {
            let StatedIds { pid, tid, is_disputed } = self.stated_ids();
            let of_thread = || Some(self.known.system().thread_of_event(tid?, self.time())?.pid());
            let of_event = if is_disputed { None } else { pid.or_else(of_thread) };
            Owner { pid: of_event, tid, is_pid_of_thread: pid.is_none() }
        })
    }

    /// The first field of this type, for kernel events whose header has no IDs.
    fn id_field(&self, kind: OutType) -> Option<u32> {
        self.event().hook_id()?;
        let plan = self.plan()?;
        let fields = &plan.schema().fields;
        // Avoids the search for top-level fields if the schema has no such field.
        fields.iter().find(|field| field.out_type == kind)?;
        let index = plan.schema().top_level().find(|&index| fields[index].out_type == kind)?;
        let value = plan.value(self.payload(), self.event().record().pointer_size(), index).ok()?;
        value.as_u64()?.try_into().ok()
    }

    /// Image name of the process.
    pub fn process_name(&self) -> Option<&'c str> {
        self.process().ok()?.name().ok()
    }

    /// The schema of the payload, if it is known.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.get_or_init(|| self.known.schema_of(self.event())).as_ref()
    }

    /// `Class/Type` for kernel events, task and opcode or the event name for other events; a number
    /// if no name is known.
    pub fn name(&self) -> Cow<'_, str> {
        match self.schema() {
            Some(schema) => Cow::Borrowed(&*schema.event_name),
            None => TraceState::unknown_name(self.event()),
        }
    }

    /// The name of the provider or class. Whether the event has a schema does not matter.
    pub fn provider_name(&self) -> Option<&str> {
        let name = || self.known.provider_name(self.provider_guid()?);
        self.provider_name.get_or_init(name).as_deref()
    }

    /// The provider's name, or its GUID.
    pub fn provider(&self) -> Cow<'_, str> {
        match self.provider_name() {
            Some(name) => Cow::Borrowed(name),
            None => {
                self.provider_guid().map_or(Cow::Borrowed("unknown"), |guid| Cow::Owned(guid.to_string()))
            }
        }
    }

    /// GUID of the provider or class.
    pub fn provider_guid(&self) -> Option<Guid> {
        let event = self.event();
        event.guid().or_else(|| self.known.class_of(event.hook_id()?))
    }

    /// Event ID; 0 for kernel and classic events, the message number for WPP messages.
    pub fn id(&self) -> u16 {
        match self.event().kind() {
            HeaderKind::Event32 | HeaderKind::Event64 | HeaderKind::Message => self.event().entry().tag,
            _ => 0,
        }
    }

    /// The hook id of a kernel event. Of events with a classic header, the one of their class and
    /// opcode, if that is a known kernel event.
    pub fn kernel_id(&self) -> Option<u16> {
        let event = self.event();
        event.hook_id().or_else(|| {
            if !event.kind().is_classic() {
                return None;
            }
            kernel::hook_id_of(event.guid()?, self.opcode())
        })
    }

    /// Opcode; for kernel events, the event type.
    pub fn opcode(&self) -> u8 {
        self.event().record().opcode()
    }

    /// Version of the payload layout.
    pub fn version(&self) -> u8 {
        self.event().record().version()
    }

    /// The bytes of the payload.
    pub fn payload(&self) -> &'c [u8] {
        self.event().payload()
    }

    /// The fields of the payload; `None` if no schema is known.
    pub fn fields(&self) -> Option<Decoder<'_>> {
        let (payload, pointer) = (self.payload(), self.event().record().pointer_size());
        Some(self.plan()?.decode(payload, pointer))
    }

    /// The properties of the payload as typed values.
    ///
    /// # Errors
    /// [`Error::NoSchema`] if no schema is known for the event.
    pub fn parser(&self) -> Result<Parser<'_>, Error> {
        let plan = self.plan().ok_or(Error::NoSchema)?;
        Ok(plan.parser(self.payload(), self.event().record().pointer_size()))
    }

    /// The compiled plan to decode the payload.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.schema()?.plan()
    }

    /// A field of the payload by name, if it has a single value. Later fields are not decoded.
    pub fn field(&self, name: &str) -> Option<(&Field, Value<'_>)> {
        let (field, item) = self.item(name)?;
        Some((field, item.value()?))
    }

    /// A field of the payload by name: a value, an array or a structure. Later fields are not
    /// decoded.
    pub fn item(&self, name: &str) -> Option<(&Field, Item<'_>)> {
        let schema = self.schema()?;
        let index = schema.field_index(name)?;
        if let SchemaRef::Compiled(plan) = schema {
            let item = plan.item(self.payload(), self.event().record().pointer_size(), index).ok()?;
            return Some((&schema.fields[index], item));
        }
        let decoded = self.fields()?.map_while(Result::ok).find(|decoded| decoded.index == index)?;
        Some((decoded.field, decoded.item))
    }

    /// The completeness and certainty of the stack: the first state that applies.
    pub fn state(&self) -> StackState {
        self.delivered.state()
    }

    /// All states of the stack that apply.
    pub fn stack_states(&self) -> StackStates {
        self.delivered.states
    }

    /// The number of the stack in the stack table of the trace: equal stacks have equal numbers.
    pub fn stack(&self) -> Option<StackId> {
        self.delivered.stack
    }

    /// The addresses of the stack, innermost first.
    pub fn addresses(&self) -> impl Iterator<Item = stackhound_types::Address> + use<'c> {
        self.delivered.frames()
    }

    /// The detail level of the stack according to the policy.
    pub fn level(&self) -> Level {
        *self.level.get_or_init(|| {
            let names = || EventNames {
                provider: self.provider(),
                event: self.name(),
                are_known: self.schema().is_some(),
            };
            let is_open = self.outcomes.create.is_some_and(|create| create.is_open());
            self.enricher.decisions().borrow_mut().level(self.event(), is_open, names)
        })
    }

    /// The depth to which frames of the stack are resolved.
    pub fn depth(&self, mode: Mode) -> Depth {
        self.enricher.depth(self.level(), mode)
    }

    /// For a file creation: the requested disposition and the result.
    pub fn create(&self) -> Option<CreateOutcome> {
        self.outcomes.create.copied()
    }

    /// For the entry and the exit of a system call: its thread and service, and how it ended.
    pub fn call(&self) -> Option<CallOutcome> {
        self.outcomes.call.copied()
    }

    /// For system calls: the name of the service. `None` if no file names it.
    pub fn service(&self) -> Option<Arc<str>> {
        let routine = self.outcomes.call?.routine?;
        self.enricher.service_name(self.known.system(), routine, self.time())
    }

    /// Sets `summary` to the summary of the stack.
    pub fn summarize(&self, summary: &mut Summary) {
        let frames = self.resolved();
        summary.of(self.resolver().modules(), self.stack_states(), &frames);
    }

    /// The name of the final user module: see [`Summary::final_user_module`]. `None` without user
    /// frames.
    pub fn final_user_module(&self) -> Option<String> {
        let mut summary = Summary::default();
        self.summarize(&mut summary);
        summary.final_user_module(self.resolver().modules()).map(str::to_owned)
    }

    /// The modules of the frames of all stacks of the trace.
    pub fn modules(&self) -> Ref<'c, Modules> {
        Ref::map(self.enricher.frames.borrow(), FrameResolver::modules)
    }

    /// The frame resolver, which caches its results.
    pub fn resolver(&self) -> RefMut<'c, FrameResolver> {
        self.enricher.frames.borrow_mut()
    }

    /// The thread and process of the stack: for the creation of a process or thread, the creator
    /// and not the created one.
    pub fn stack_owner(&self) -> StackOwner {
        StackOwner::of(self.delivered, self.known.system())
    }

    /// The frames of the stack, innermost first, with the modules that were loaded at the time of
    /// the event in the process of the stack.
    pub fn frames(&self) -> impl Iterator<Item = FrameView<'c>> + use<'c> {
        let system = self.known.system();
        // Most events have no stack, and then no level is computed.
        let (user, kernel) = match self.stack() {
            Some(_) => (self.depth(Mode::User), self.depth(Mode::Kernel)),
            None => (Depth::Address, Depth::Address),
        };
        self.each_resolved().map(move |facts| {
            let depth = if facts.mode == Mode::User { user } else { kernel };
            FrameView::new(facts, system, depth)
        })
    }

    /// Same as [`frames`](EventView::frames), at full depth.
    pub fn frames_in_full(&self) -> impl Iterator<Item = FrameView<'c>> + use<'c> {
        let system = self.known.system();
        self.each_resolved().map(move |facts| FrameView::new(facts, system, Depth::Function))
    }

    /// The frames of the stack, innermost first, with all known facts.
    pub fn resolved(&self) -> Arc<[Frame]> {
        match self.stack() {
            None => Arc::default(),
            Some(_) => self.resolver().of(self.known.system(), self.delivered).all(self.delivered),
        }
    }

    fn each_resolved(&self) -> impl Iterator<Item = Frame> + use<> {
        let all = self.resolved();
        (0..all.len()).map(move |index| all[index])
    }

    /// Requests the names of a frame and returns its number. `None` if names are not requested or
    /// not available.
    pub fn number(&self, frame: &FrameView<'_>) -> Option<FrameNumber> {
        let naming = self.enricher.naming.as_ref()?;
        if frame.depth() != Depth::Function {
            return None;
        }
        naming.borrow_mut().request(frame.module()?, frame.rva()?, frame.kind)
    }

    /// The names of a frame. Waits for them if necessary.
    pub fn names(&self, frame: &FrameView<'_>) -> Option<Ref<'c, ResolvedFrame>> {
        let (naming, number) = (self.enricher.naming.as_ref()?, self.number(frame)?);
        naming.borrow_mut().wait(number);
        Ref::filter_map(naming.borrow(), |naming| naming.frame(number)).ok()
    }

    /// Requests the names of all frames, without waiting.
    pub(crate) fn request_names(&self) {
        // Of most stacks no functions are named. Their frames are resolved only if they are used.
        let is_named = |mode: Mode| self.depth(mode) == Depth::Function;
        if self.stack().is_none() || !(is_named(Mode::User) || is_named(Mode::Kernel)) {
            return;
        }
        // If all events have this depth, the names of a frame are requested when it is first resolved.
        let of_all = self.enricher.depth == Some(Depth::Function);
        let misses = || self.resolver().hits_and_misses().1;
        let (before, frames) = (misses(), self.frames());
        if of_all && misses() == before && before > 0 {
            return;
        }
        for frame in frames {
            self.number(&frame);
        }
    }
}
