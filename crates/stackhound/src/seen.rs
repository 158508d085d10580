//! An event as people want to see it: named, with its process, its fields and the modules of its frames.

use std::borrow::Cow;
use std::cell::{OnceCell, Ref, RefCell};
use std::fmt;

use stackhound_etl::record::HeaderKind;
use stackhound_etl::{Address, FileTime, Guid, Pid, RawTime, Tid};
use stackhound_schema::{Decoder, Field, OutType, Value};
use stackhound_stacks::{Delivered, StackId, StackState};
use stackhound_symbols::{AddressKind, FrameNumber, ResolvedFrame};
use stackhound_system::ModuleRef;
use stackhound_trace::{Event, TraceTime};

use crate::knowledge::{Knowledge, SchemaRef};
use crate::naming::Naming;

/// A sample's innermost frame is where the processor was; all other frames are return addresses.
const SAMPLE: u16 = 0x0f2e;

/// An event with everything that is known about it. Nothing is computed before it is asked for.
#[derive(Debug)]
pub struct Seen<'c> {
    delivered: Delivered<'c>,
    known: &'c Knowledge,
    naming: Option<&'c RefCell<Naming>>,
    schema: OnceCell<Option<SchemaRef>>,
    owner: OnceCell<(Option<Pid>, Option<Tid>)>,
}

/// Whether a frame is in the kernel's half of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The upper half.
    Kernel,
    /// The lower half.
    User,
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'c> {
    /// The return address; the sampled address for the innermost frame of a sample.
    pub address: Address,
    /// Kernel or user.
    pub mode: Mode,
    /// The module that was loaded there at the time of the event.
    pub module: Option<ModuleRef<'c>>,
    /// Offset in the module.
    pub rva: Option<u64>,
    /// Whether it is a return address.
    pub kind: AddressKind,
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.module, self.rva) {
            (Some(module), Some(rva)) => write!(f, "{}+{rva:#x}", module.file_name()),
            _ => write!(f, "{}", self.address),
        }
    }
}

impl<'c> Seen<'c> {
    pub(crate) fn new(
        delivered: Delivered<'c>,
        known: &'c Knowledge,
        naming: Option<&'c RefCell<Naming>>,
    ) -> Seen<'c> {
        Seen { delivered, known, naming, schema: OnceCell::new(), owner: OnceCell::new() }
    }

    /// The event itself.
    pub fn event(&self) -> &Event<'c> {
        &self.delivered.event
    }

    /// What is known about the trace.
    pub fn knowledge(&self) -> &'c Knowledge {
        self.known
    }

    /// Time in the trace's order.
    pub fn time(&self) -> TraceTime {
        self.delivered.event.time()
    }

    /// Time in its source's clock.
    pub fn raw_time(&self) -> RawTime {
        self.delivered.event.raw_time()
    }

    /// UTC time.
    pub fn utc(&self) -> FileTime {
        self.delivered.event.utc()
    }

    /// Processor.
    pub fn processor(&self) -> Option<u16> {
        self.delivered.event.processor()
    }

    /// The process that owns the event: of the header, else of the stack, else of the payload, else of its thread.
    pub fn pid(&self) -> Option<Pid> {
        self.owner().0
    }

    /// The thread that owns the event: of the header, else of the stack, else of the payload.
    pub fn tid(&self) -> Option<Tid> {
        self.owner().1
    }

    fn owner(&self) -> (Option<Pid>, Option<Tid>) {
        *self.owner.get_or_init(|| {
            let tid = self.delivered.tid().or_else(|| self.id_field(OutType::Tid).and_then(Tid::known));
            let pid = self.delivered.pid().or_else(|| self.id_field(OutType::Pid).and_then(Pid::known));
            (pid.or_else(|| Some(self.known.system().thread_at(tid?, self.time())?.pid())), tid)
        })
    }

    /// The first field of this kind, for kernel events whose header has no ids.
    fn id_field(&self, kind: OutType) -> Option<u32> {
        self.event().hook()?;
        // Saves decoding where there is nothing to find.
        self.schema()?.fields.iter().find(|field| field.out_type == kind)?;
        let mut fields = self.fields()?.filter_map(Result::ok);
        fields.find(|decoded| decoded.field.out_type == kind)?.item.value()?.as_u64()?.try_into().ok()
    }

    /// Image name of the process.
    pub fn process_name(&self) -> Option<&'c str> {
        let name = self.known.system().process_at(self.pid()?, self.time())?.image_name();
        (!name.is_empty()).then_some(name)
    }

    /// What the payload's bytes mean, if that is known.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.get_or_init(|| self.known.schema_of(self.event())).as_ref()
    }

    /// `Class/Type` of kernel events, task and opcode or the event's own name of others; a number where no name is known.
    pub fn name(&self) -> Cow<'_, str> {
        match self.schema() {
            Some(schema) => Cow::Borrowed(&*schema.event_name),
            None => Knowledge::unknown_name(self.event()),
        }
    }

    /// The provider's name, or its GUID.
    pub fn provider(&self) -> Cow<'_, str> {
        if let Some(schema) = self.schema()
            && !schema.provider_name.is_empty()
        {
            return Cow::Borrowed(&*schema.provider_name);
        }
        self.provider_guid().map_or(Cow::Borrowed("unknown"), |guid| Cow::Owned(guid.to_string()))
    }

    /// GUID of the provider or class.
    pub fn provider_guid(&self) -> Option<Guid> {
        let event = self.event();
        event.guid().or_else(|| self.known.class_of(event.hook()?))
    }

    /// Event id; 0 for kernel and classic events, the number of WPP messages.
    pub fn id(&self) -> u16 {
        match self.event().kind() {
            HeaderKind::Event32 | HeaderKind::Event64 | HeaderKind::Message => self.event().entry().tag,
            _ => 0,
        }
    }

    /// Opcode; the type of kernel events.
    pub fn opcode(&self) -> u8 {
        self.event().record().opcode()
    }

    /// Version of the payload's layout.
    pub fn version(&self) -> u8 {
        self.event().record().version()
    }

    /// The payload's bytes.
    pub fn payload(&self) -> &'c [u8] {
        self.event().payload()
    }

    /// The payload's fields; `None` if nothing is known about them.
    pub fn fields(&self) -> Option<Decoder<'_>> {
        let (payload, pointer) = (self.payload(), self.event().record().pointer_size());
        Some(match self.schema()? {
            SchemaRef::Kernel(schema) => schema.decode(payload, pointer),
            SchemaRef::Compiled(plan) => plan.decode(payload, pointer),
        })
    }

    /// A field of the payload by its name, if it has a single value.
    pub fn field(&self, name: &str) -> Option<(&Field, Value<'_>)> {
        let decoded = self.fields()?.filter_map(Result::ok).find(|decoded| *decoded.field.name == *name)?;
        Some((decoded.field, decoded.item.value()?))
    }

    /// How much of the stack there is.
    pub fn state(&self) -> StackState {
        self.delivered.state
    }

    /// The stack's number in the trace's table: equal stacks have equal numbers.
    pub fn stack(&self) -> Option<StackId> {
        self.delivered.stack
    }

    /// The stack's frames, innermost first, with the modules that were loaded at the time of the event.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'c>> + use<'c> {
        let (known, pid, time) = (self.known, self.pid(), self.time());
        let session = self.event().block().session().pointer_size;
        let innermost =
            if self.event().hook() == Some(SAMPLE) { AddressKind::Instruction } else { AddressKind::Return };
        self.delivered.frames().enumerate().map(move |(index, address)| {
            let mode = if address.is_kernel(session) { Mode::Kernel } else { Mode::User };
            let found = known.system().module_at(pid.unwrap_or(Pid::SYSTEM), address, time);
            let kind = if index == 0 { innermost } else { AddressKind::Return };
            let (module, rva) = (found.map(|(module, _)| module), found.map(|(_, rva)| rva));
            Frame { address, mode, module, rva, kind }
        })
    }

    /// The number of a frame's names, which will come. `None` where names are not looked for, or can not be.
    pub fn number(&self, frame: &Frame<'_>) -> Option<FrameNumber> {
        let naming = self.naming?;
        naming.borrow_mut().request(frame.module?, frame.rva?, frame.kind)
    }

    /// The names of a frame. Waits for them if need be.
    pub fn names(&self, frame: &Frame<'_>) -> Option<Ref<'c, ResolvedFrame>> {
        let (naming, number) = (self.naming?, self.number(frame)?);
        naming.borrow_mut().wait(number);
        Ref::filter_map(naming.borrow(), |naming| naming.frame(number)).ok()
    }

    /// Has all frames named, without waiting.
    pub(crate) fn request_names(&self) {
        for frame in self.frames() {
            self.number(&frame);
        }
    }
}
