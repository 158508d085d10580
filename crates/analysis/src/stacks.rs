//! Converts the stacks of a trace to those of a profile.
//!
//! A stack of a trace consists of addresses, whose meaning depends on the process and on its loaded
//! modules and compiled methods. Therefore, a stack is named once for each process, and again when
//! these have changed.

use rustc_hash::FxHashMap;
use stackhound_frames::{self as frames, Code, StackOwner};
use stackhound_profile::{
    CodeKind, Frame, FrameId, FrameName, Full, InlineName, Module, ModuleId, ModuleOffset, Origin, ProcessId,
    ProfileBuilder, SourceLine, StackId,
};
use stackhound_stacks::StackState;
use stackhound_symbols::{self as symbols, FrameNumber, ResolvedLine};
use stackhound_system::{self as system, ModuleRef, ValidityId};
use stackhound_types::{Address, AddressKind, Mode};

use stackhound_pipeline::{Depth, EventView, FrameView, Label, NameOrigin, Naming, TraceState};

/// Of the stack's process, and of the kernel. `None` for the absence of a stack.
type Validity = Option<(ValidityId, ValidityId)>;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct StackKey {
    process: ProcessId,
    stack: Option<u32>,
    state: u8,
    used: StackUse,
}

/// What the stack of an event is used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StackUse {
    /// The stack of an event: all addresses except the first are return addresses.
    Event,
    /// The stack of a sample.
    Sample,
    /// The stack of a sample in an interrupt: only kernel frames belong to it.
    Interrupt,
}

/// The identity of a frame. Frames with equal keys are the same frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum FrameKey {
    InModule(ModuleId, u32, AddressKind),
    /// JIT-compiled code: other processes have other code at the same address.
    InMethod(system::MethodId, u64, AddressKind),
    /// Memory at one address can be different in another process, or at another time.
    At(u64, AddressKind, CodeKind),
}

/// The stacks and frames so far.
#[derive(Debug, Default)]
pub struct Stacks {
    /// With the period in which the addresses have the same meaning.
    stacks: FxHashMap<StackKey, (Validity, StackId)>,
    frames: FxHashMap<FrameKey, FrameId>,
    modules: FxHashMap<system::ModuleId, ModuleId>,
    remarks: FxHashMap<String, FrameId>,
    /// Frames of the current stack, innermost first.
    buffer: Vec<FrameId>,
    unnamed: Vec<Unnamed>,
}

/// A frame whose names are not yet known.
#[derive(Debug)]
struct Unnamed {
    id: FrameId,
    facts: frames::Frame,
    depth: Depth,
    number: Option<FrameNumber>,
}

impl Stacks {
    /// The stack of an event of a process. If it is incomplete, its outermost frame is a remark.
    pub fn of(
        &mut self,
        view: &EventView<'_>,
        process: ProcessId,
        used: StackUse,
        builder: &mut ProfileBuilder,
    ) -> Result<StackId, Full> {
        let key = StackKey {
            process,
            stack: view.stack().map(|stack| stack.index() as u32),
            state: view.state() as u8,
            used,
        };
        // Without addresses, nothing depends on the address space.
        let validity = view.stack().map(|_| {
            let (system, time) = (view.trace_state().system(), view.time());
            (system.validity_id(view.stack_owner().process, time), system.validity_id(None, time))
        });
        if let Some(&(known, stack)) = self.stacks.get(&key)
            && known == validity
        {
            return Ok(stack);
        }
        self.buffer.clear();
        let is_interrupt = used == StackUse::Interrupt;
        for frame in view.frames().filter(|frame| !is_interrupt || frame.mode == Mode::Kernel) {
            let frame = self.frame(view, &frame, builder)?;
            self.buffer.push(frame);
        }
        if (view.state() != StackState::Complete && !is_interrupt) || self.buffer.is_empty() {
            let remark = self.remark(missing(view.state()), builder)?;
            self.buffer.push(remark);
        }
        let mut stack = None;
        for frame in self.buffer.drain(..).rev() {
            stack = Some(builder.stack(stack, frame)?);
        }
        let stack = stack.unwrap_or_else(|| unreachable!("an empty stack has a remark"));
        self.stacks.insert(key, (validity, stack));
        Ok(stack)
    }

    /// The stack of a sample without one: the sampled instruction, called by a remark.
    pub fn at(
        &mut self,
        view: &EventView<'_>,
        instruction: Address,
        builder: &mut ProfileBuilder,
    ) -> Result<StackId, Full> {
        let remark = self.remark(missing(view.state()), builder)?;
        let frame = self.instruction(view, instruction, builder)?;
        let caller = builder.stack(None, remark)?;
        builder.stack(Some(caller), frame)
    }

    /// The frame of an instruction of the event's process or of the kernel.
    pub fn instruction(
        &mut self,
        view: &EventView<'_>,
        instruction: Address,
        builder: &mut ProfileBuilder,
    ) -> Result<FrameId, Full> {
        let (system, time) = (view.trace_state().system(), view.time());
        let process = view.pid().and_then(|pid| system.process_of_event(pid, time));
        let process = process.map(|process| process.id());
        let owner = StackOwner { pid: view.pid(), tid: view.tid(), process };
        let pointer_size = view.event().block().session().pointer_size;
        let facts = view
            .resolver()
            .at(system, owner, time, pointer_size)
            .frame(instruction, AddressKind::Instruction);
        self.frame(view, &FrameView::new(facts, system, Depth::Function), builder)
    }

    /// A frame with a remark: `[text]`.
    pub fn remark(&mut self, text: &str, builder: &mut ProfileBuilder) -> Result<FrameId, Full> {
        if let Some(&id) = self.remarks.get(text) {
            return Ok(id);
        }
        let id = builder.frame(Frame::remark(text))?;
        self.remarks.insert(text.to_owned(), id);
        Ok(id)
    }

    fn frame(
        &mut self,
        view: &EventView<'_>,
        frame: &FrameView<'_>,
        builder: &mut ProfileBuilder,
    ) -> Result<FrameId, Full> {
        let kind = frame.kind;
        let rva = frame.rva().and_then(|rva| u32::try_from(rva).ok());
        let location = match (frame.module(), rva) {
            (Some(module), Some(rva)) => Some((self.module(module, builder)?, rva)),
            _ => None,
        };
        let code = code_kind(frame);
        let key = match (location, frame.method()) {
            (Some((module, rva)), _) => FrameKey::InModule(module, rva, kind),
            (None, Some(method)) => FrameKey::InMethod(method.id(), frame.address().0, kind),
            (None, None) => FrameKey::At(frame.address().0, kind, code),
        };
        if let Some(&id) = self.frames.get(&key) {
            return Ok(id);
        }
        let id = builder.frame(Frame {
            name: frame.to_string(),
            origin: if location.is_some() { Origin::Module } else { Origin::Address },
            mode: Some(frame.mode),
            code,
            location: location.map(|(module, rva)| ModuleOffset { module, rva, kind, offset: None }),
            source: None,
            inlines: Box::default(),
        })?;
        self.frames.insert(key, id);
        let (number, depth) = (view.number(frame), frame.depth());
        if number.is_some() || frame.method().is_some() {
            self.unnamed.push(Unnamed { id, facts: *frame.facts(), depth, number });
        }
        Ok(id)
    }

    /// Assigns the names that were found to frames.
    pub fn name(
        &mut self,
        known: &TraceState,
        mut naming: Option<&mut Naming>,
        builder: &mut ProfileBuilder,
    ) {
        for Unnamed { id, facts, depth, number } in self.unnamed.drain(..) {
            if let (Some(naming), Some(number)) = (&mut naming, number) {
                naming.wait(number);
            }
            let names = naming.as_ref().and_then(|naming| naming.frame(number?));
            let frame = FrameView::new(facts, known.system(), depth);
            let label = Label { frame: &frame, names };
            let Some(name) = label.name() else { continue };
            let origin = match name.origin {
                NameOrigin::Symbols(symbols::Origin::Pdb) => Origin::Pdb,
                NameOrigin::Symbols(symbols::Origin::Export) => Origin::Export,
                NameOrigin::Symbols(symbols::Origin::NearestExport) => Origin::NearestExport,
                NameOrigin::Method => Origin::Method,
            };
            let inlines = label.inlines();
            let inlines = inlines
                .map(|inline| InlineName { text: inline.to_string(), source: source(inline.source()) });
            let name = FrameName {
                text: label.function(),
                origin,
                offset: u32::try_from(name.offset).unwrap_or(u32::MAX),
                source: source(label.source()),
                inlines: inlines.collect(),
            };
            builder.name_frame(id, name);
        }
    }

    fn module(&mut self, module: ModuleRef<'_>, builder: &mut ProfileBuilder) -> Result<ModuleId, Full> {
        if let Some(&id) = self.modules.get(&module.id()) {
            return Ok(id);
        }
        let identity = frames::identity(module);
        let id = builder.module(Module {
            name: identity.name,
            path: module.path().to_owned(),
            pdb: identity.pdb,
            image: identity.image,
        })?;
        self.modules.insert(module.id(), id);
        Ok(id)
    }
}

/// The kind of a frame's code. Without modules, it is not known.
fn code_kind(frame: &FrameView<'_>) -> CodeKind {
    match (frame.facts().code, frame.mode) {
        _ if frame.depth() == Depth::Address => CodeKind::Unknown,
        (Code::Image(..), Mode::Kernel) => CodeKind::Kernel,
        (Code::Image(..), Mode::User) => CodeKind::User,
        (Code::Jit(_), _) => CodeKind::Jit,
        (Code::Unbacked, _) => CodeKind::Unbacked,
        (Code::Unknown, _) => CodeKind::Unknown,
    }
}

fn source(line: Option<&ResolvedLine>) -> Option<SourceLine> {
    line.map(|line| SourceLine { file: line.file.to_string(), line: line.line })
}

/// The remark for an incomplete stack.
fn missing(state: StackState) -> &'static str {
    match state {
        StackState::Complete | StackState::None => "no stack",
        StackState::Lost => "stack lost",
        other => other.name(),
    }
}
