//! What a whole stack comes down to.

use stackhound_etl::Address;
use stackhound_stacks::{StackState, StackStates};
use stackhound_system::{MethodId, ModuleId, System};

use crate::frame::{Backing, Frame, Mode};
use crate::native::is_native_layer;
use crate::region::RegionKind;

/// An answer that evidence can be missing for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// What would tell is missing.
    Undetermined,
}

impl Answer {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::Undetermined => "undetermined",
        }
    }
}

/// Who asked: the innermost user frame outside of the layer that every call goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinalUser {
    /// Code of a module.
    Module(ModuleId),
    /// Code that a runtime compiled.
    Method(MethodId),
    /// Code at an address that belongs to no image.
    Unbacked(Address),
    /// Code at an address of which nothing is known.
    Unknown(Address),
    /// All user frames are in the layer; this is the outermost one's module.
    Native(ModuleId),
    /// There are no user frames.
    None,
}

/// Summarizes one stack after the other; keeps its buffers.
#[derive(Debug, Default)]
pub struct Summary {
    user: String,
    kernel: String,
    contains_unbacked: Option<Answer>,
    final_user: Option<FinalUser>,
    final_kernel: Option<ModuleId>,
    /// By module: whether it belongs to the native layer.
    natives: Vec<Option<(ModuleId, bool)>>,
}

/// The word for code of no image.
const UNBACKED: &str = "unbacked";
/// The word for code of which nothing is known.
const UNKNOWN: &str = "unknown";
/// Between names.
const SEPARATOR: char = '|';

impl Summary {
    /// Summarizes a stack with these states. Frames come innermost first.
    pub fn of(&mut self, system: &System, states: StackStates, frames: impl IntoIterator<Item = Frame>) {
        self.user.clear();
        self.kernel.clear();
        self.final_kernel = None;
        let (mut unbacked, mut unknown, mut is_first) = (false, false, true);
        let (mut asked, mut outermost): (Option<FinalUser>, _) = (None, FinalUser::None);
        let mut user_was_seen = false;
        for frame in frames {
            let label = label(system, &frame);
            match frame.mode {
                Mode::Kernel => {
                    if is_first {
                        self.final_kernel = frame.module.map(|(module, _)| module);
                    }
                    if !user_was_seen {
                        add(&mut self.kernel, label);
                    }
                }
                Mode::User => {
                    user_was_seen = true;
                    add(&mut self.user, label);
                    unbacked |= frame.backing == Backing::Unbacked;
                    unknown |= frame.backing == Backing::Unknown;
                    let this = final_user(&frame);
                    let is_native =
                        matches!(this, FinalUser::Module(module) if self.is_native(system, module));
                    outermost = this;
                    if asked.is_none() && !is_native {
                        asked = Some(this);
                    }
                }
            }
            is_first = false;
        }
        let is_whole = matches!(states.first(), StackState::Complete | StackState::UserOnly);
        self.contains_unbacked = Some(match (unbacked, unknown || !is_whole) {
            (true, _) if states.has_certain_frames() => Answer::Yes,
            (false, false) => Answer::No,
            _ => Answer::Undetermined,
        });
        self.final_user = Some(asked.unwrap_or(match outermost {
            FinalUser::Module(module) => FinalUser::Native(module),
            none => none,
        }));
    }

    fn is_native(&mut self, system: &System, module: ModuleId) -> bool {
        if self.natives.len() <= module.index() {
            self.natives.resize(module.index() + 1, None);
        }
        match &mut self.natives[module.index()] {
            Some((known, is_native)) if *known == module => *is_native,
            other => {
                // Not asked before, or of a module that was forgotten and has left its index to this one.
                let is_native = is_native_layer(system, system.module(module));
                *other = Some((module, is_native));
                is_native
            }
        }
    }

    /// Names of the modules of user frames, innermost first, `|` between them; one that follows itself stands once.
    /// `jit:` and a runtime stands for compiled code, `unbacked` for code of no image, `unknown` for what is not known.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The same of the kernel frames before the first user frame.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Whether a user frame is in no image. Never "no" where frames or modules can be missing.
    pub fn contains_unbacked(&self) -> Answer {
        self.contains_unbacked.unwrap_or(Answer::Undetermined)
    }

    /// Who asked.
    pub fn final_user(&self) -> FinalUser {
        self.final_user.unwrap_or(FinalUser::None)
    }

    /// The module of the innermost frame, if it is a kernel frame in a known module.
    pub fn final_kernel_module(&self) -> Option<ModuleId> {
        self.final_kernel
    }
}

fn final_user(frame: &Frame) -> FinalUser {
    match (frame.module, frame.method, frame.backing) {
        (Some((module, _)), ..) => FinalUser::Module(module),
        (None, Some(method), _) => FinalUser::Method(method),
        (None, None, Backing::Unbacked) => FinalUser::Unbacked(frame.address),
        (None, None, _) => FinalUser::Unknown(frame.address),
    }
}

fn label<'s>(system: &'s System, frame: &Frame) -> &'s str {
    match (frame.module, frame.region.kind, frame.backing) {
        (Some((module, _)), ..) => system.module(module).file_name(),
        (None, kind @ RegionKind::Jit(_), _) => kind.name(),
        (None, _, Backing::Unbacked) => UNBACKED,
        _ => UNKNOWN,
    }
}

/// Adds a name unless it is the last one already.
fn add(names: &mut String, name: &str) {
    let last = names.rsplit(SEPARATOR).next().unwrap_or_default();
    if !names.is_empty() && last.eq_ignore_ascii_case(name) {
        return;
    }
    if !names.is_empty() {
        names.push(SEPARATOR);
    }
    names.push_str(name);
}
