//! Stacks, and their frames relative to modules.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::BuildHasher;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;
use stackhound_frames::{Answer, Backing, Code, Frame, Level, ModuleIndex, Modules, Summary};
use stackhound_pipeline::EventView;
use stackhound_stacks::StackStates;
use stackhound_system::{MethodRef, System};
use stackhound_types::{AddressKind, Mode};

use super::state::module_id;
use super::symbols::Symbols;
use super::{Pending, TableId};
use crate::id::IdParts;
use crate::rows::Rows;

columns! {
    pub(super) StackColumns {
        /// Id of the stack: equal for equal frames relative to modules, on every machine.
        stack_id: number required UInt64 LookUp,
        /// Number of frames.
        frames: number required UInt16,
        /// Number of user frames.
        user_frames: number required UInt16,
        /// Number of user frames that are in no image.
        unbacked_frames: number required UInt16,
        /// Modules of the user frames, innermost first, such as `ntdll.dll|KERNELBASE.dll|unbacked`.
        user_modules: text required,
        /// Modules of the kernel frames before the first user frame.
        kernel_modules: text required,
        /// The innermost user module that does more than pass calls on, or `jit:clr`, `unbacked` or `unknown`; null
        /// without user frames.
        final_user_module: text optional,
        /// The module of the innermost frame, if it is a kernel frame.
        final_kernel_module: text optional,
    }
}

columns! {
    pub(super) FrameColumns {
        /// Id of the stack: equal for equal frames relative to modules, on every machine.
        stack_id: number required UInt64 LookUp,
        /// Position in the stack; 0 is innermost.
        depth: number required UInt16,
        /// `kernel` or `user`.
        mode: text required,
        /// Whether it is 32-bit code of a process on 64-bit Windows.
        wow64: number required Flag,
        /// The module, in `modules`.
        module_id: number optional UInt64,
        /// File name of the module, or `jit:` and the runtime of JIT-compiled code.
        module: text optional LookUp,
        /// Offset in the module in bytes.
        rva: number optional UInt64,
        /// Whether it is a return address, and not that of an instruction.
        is_return: number required Flag,
        /// Whether the code is in an image or from a known runtime: `backed`, `unbacked` or `unknown`.
        backing: text required,
        /// Kind of memory of a user frame outside of modules: `mapped`, `private`, `jit:clr`, `jit:script` or
        /// `unknown`.
        region: text optional,
        /// The JIT-compiled method with its namespace.
        method: text optional,
        /// Signature of the method.
        signature: text optional,
    }
}

/// A stack of an event.
#[derive(Clone, Debug)]
pub(crate) struct KnownStack {
    /// Its id: see [`frame_parts`].
    pub id: u64,
    /// Addresses of the frames outside of modules.
    pub other_addresses: Option<Box<str>>,
    has_unbacked: bool,
    has_unknown: bool,
    /// Keeps the address that identifies the frames.
    _frames: Arc<[Frame]>,
}

impl KnownStack {
    /// See [`Summary::contains_unbacked`].
    pub fn contains_unbacked(&self, states: StackStates) -> Answer {
        let of_states = (states.has_whole_user_part(), states.has_certain_frames());
        Summary::unbacked(of_states, (self.has_unbacked, self.has_unknown))
    }
}

/// Collects stacks.
#[derive(Debug)]
pub(crate) struct Stacks {
    stacks: Pending<StackColumns>,
    frames: Pending<FrameColumns>,
    /// By the address of the resolved frames, which the resolver shares between equal stacks of a
    /// process.
    known: HashMap<usize, KnownStack, FxBuildHasher>,
    /// The last stack whose frames are not shared.
    single: Option<KnownStack>,
    /// The ids of all stacks whose rows were made, by a hash of the parts of the id.
    ids: HashMap<u128, u64, FxBuildHasher>,
    /// The seed of that hash. It is random, so that traces with equal hashes cannot be made.
    seed: u64,
    /// The parts of the last id, for their memory.
    parts: IdParts,
    /// By index of the module.
    modules: Vec<Option<u64>>,
    summary: Summary,
    symbols: Symbols,
}

/// The limit of kept stacks.
const KNOWN_MAX: usize = 1 << 14;

impl Stacks {
    pub fn new(trace: u64) -> Stacks {
        Stacks {
            stacks: Pending::new(TableId::Stacks, StackColumns::of, trace),
            frames: Pending::new(TableId::Frames, FrameColumns::of, trace),
            known: HashMap::default(),
            single: None,
            ids: HashMap::default(),
            seed: RandomState::default().hash_one(trace),
            parts: IdParts::default(),
            modules: Vec::new(),
            summary: Summary::default(),
            symbols: Symbols::new(trace),
        }
    }

    pub fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// The rows of stacks and frames since the last call.
    pub fn take(&mut self) -> (Rows, Rows) {
        (self.stacks.take(), self.frames.take())
    }

    /// The frames that can be named.
    pub fn take_symbols(&mut self) -> Symbols {
        let trace = self.symbols.trace();
        std::mem::replace(&mut self.symbols, Symbols::new(trace))
    }

    /// The stack of an event, if it has frames and the policy gives it a stack.
    pub fn of(&mut self, view: &EventView<'_>) -> Option<&KnownStack> {
        if view.level() == Level::None {
            return None;
        }
        view.stack()?;
        let frames = view.resolved();
        let address = frames.as_ptr().addr();
        if frames.is_empty() {
            return None;
        }
        // Without a cache in the resolver, no other event has the same frames.
        if Arc::strong_count(&frames) == 1 {
            let stack = self.stack(view, frames);
            return Some(self.single.insert(stack));
        }
        if !self.known.contains_key(&address) {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            let stack = self.stack(view, frames);
            self.known.insert(address, stack);
        }
        self.known.get(&address)
    }

    fn stack(&mut self, view: &EventView<'_>, frames: Arc<[Frame]>) -> KnownStack {
        let (modules, system) = (view.modules(), view.trace_state().system());
        let mut parts = std::mem::take(&mut self.parts).reused("stack");
        for frame in &*frames {
            let module = frame.code.module().map(|index| self.module(&modules, index));
            parts = frame_parts(parts, frame, module, system);
        }
        let hash = parts.hash(self.seed);
        let known = self.ids.get(&hash).copied();
        let id = known.unwrap_or_else(|| parts.finish());
        self.parts = parts;
        let is_user = |frame: &&Frame| frame.mode == Mode::User;
        let has = |backing| frames.iter().filter(is_user).any(|frame| frame.backing() == backing);
        let (has_unbacked, has_unknown) = (has(Backing::Unbacked), has(Backing::Unknown));
        if known.is_none() {
            self.ids.insert(hash, id);
            self.rows(&modules, system, id, &frames);
        }
        let mut other = String::new();
        for frame in frames.iter().filter(|frame| frame.code.module().is_none()) {
            let separator = if other.is_empty() { "" } else { "|" };
            let address = frame.address.map_or(0, |address| address.0);
            // Writing to a text cannot fail.
            let _ = write!(other, "{separator}{address:#x}");
        }
        let other_addresses = (!other.is_empty()).then(|| other.into());
        KnownStack { id, other_addresses, has_unbacked, has_unknown, _frames: frames }
    }

    fn module(&mut self, modules: &Modules, index: ModuleIndex) -> u64 {
        if self.modules.len() <= index.index() {
            self.modules.resize(modules.len(), None);
        }
        *self.modules[index.index()].get_or_insert_with(|| module_id(&modules.get(index).identity))
    }

    /// Adds the rows of a stack.
    fn rows(&mut self, modules: &Modules, system: &System, id: u64, frames: &[Frame]) {
        for (depth, frame) in frames.iter().enumerate() {
            let module = frame.code.module().map(|index| self.module(modules, index));
            let Pending { rows, columns: c, .. } = &mut self.frames;
            rows.begin();
            rows.number(c.stack_id, id);
            rows.number(c.depth, depth as u64);
            rows.text(c.mode, frame.mode.name());
            rows.number(c.wow64, frame.is_wow64);
            rows.number(c.is_return, frame.kind == AddressKind::Return);
            rows.text(c.backing, frame.backing().name());
            if has_region(frame) {
                rows.text(c.region, frame.region.kind.name());
            }
            match (frame.code, module) {
                (Code::Image(index, rva), Some(module)) => {
                    rows.number(c.module_id, module);
                    rows.text(c.module, modules.get(index).name());
                    rows.number(c.rva, rva);
                    let identity = || modules.get(index).identity.clone();
                    self.symbols.add(module, rva, frame.kind, identity);
                }
                (Code::Jit(_), _) => rows.text(c.module, frame.code.module_name(modules)),
                _ => {}
            }
            if let Some(method) = frame.method.map(|method| system.method(method)) {
                rows.text(c.method, &method.to_string());
                rows.text(c.signature, method.signature());
            }
        }
        let Pending { rows, columns: c, .. } = &mut self.stacks;
        // The states matter only for the answer that is not a fact of the frames.
        self.summary.summarize(modules, (true, true), frames);
        let of_user = |frame: &&Frame| frame.mode == Mode::User;
        let user = frames.iter().filter(of_user);
        rows.begin();
        rows.number(c.stack_id, id);
        rows.number(c.frames, frames.len() as u64);
        rows.number(c.user_frames, user.clone().count() as u64);
        rows.number(
            c.unbacked_frames,
            user.filter(|frame| frame.backing() == Backing::Unbacked).count() as u64,
        );
        rows.text(c.user_modules, self.summary.user());
        rows.text(c.kernel_modules, self.summary.kernel());
        if let Some(name) = self.summary.final_user_module(modules) {
            rows.text(c.final_user_module, name);
        }
        if let Some(module) = self.summary.final_kernel_module() {
            rows.text(c.final_kernel_module, modules.get(module).name());
        }
    }
}

/// Whether the row of a frame states its memory. In modules, it adds nothing.
fn has_region(frame: &Frame) -> bool {
    frame.mode == Mode::User && frame.code.module().is_none()
}

/// Adds a frame to the id of its stack: everything that its row states. Code in a module is
/// identified by the module and the offset, JIT-compiled code by its method, and other code by the
/// kind of its memory, because its address is different in each process.
fn frame_parts(parts: IdParts, frame: &Frame, module: Option<u64>, system: &System) -> IdParts {
    let parts = parts
        .text(frame.mode.name())
        .number(frame.is_wow64.into())
        .number((frame.kind == AddressKind::Return).into())
        .text(frame.backing().name())
        .text(if has_region(frame) { frame.region.kind.name() } else { "" });
    let parts = match (frame.code, module) {
        (Code::Image(_, rva), Some(module)) => parts.number(2).number(module).number(rva),
        (Code::Jit(_), _) => parts.number(1),
        _ => parts.number(0),
    };
    match frame.method.map(|method| system.method(method)) {
        Some(method) => with_method(parts.number(1), method),
        None => parts.number(0),
    }
}

fn with_method(parts: IdParts, method: MethodRef<'_>) -> IdParts {
    parts.text(method.namespace()).text(method.name()).text(method.signature())
}
