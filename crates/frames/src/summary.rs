//! What a whole stack comes down to.

use stackhound_stacks::{StackState, StackStates};
use stackhound_types::Mode;

use crate::frame::{Backing, Code, Frame};
use crate::module::{ModuleIndex, Modules, Roles};

/// An answer that evidence can be missing for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Answer {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// The evidence is missing.
    #[default]
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

/// Index of the final user frame: the innermost user frame outside of modules that only pass calls on. Where all user frames are
/// in such modules, it is the outermost one. `None` without user frames.
pub fn final_user_frame(modules: &Modules, frames: &[Frame]) -> Option<usize> {
    let is_final = |frame: &Frame| {
        frame.mode == Mode::User
            && !frame.code.module().is_some_and(|module| modules.roles(module).has_any(Roles::PASS_ON))
    };
    frames.iter().position(is_final).or_else(|| frames.iter().rposition(|frame| frame.mode == Mode::User))
}

/// Summarizes one stack after the other; keeps its buffers.
#[derive(Debug, Default)]
pub struct Summary {
    user: String,
    kernel: String,
    contains_unbacked: Answer,
    final_user: Option<Code>,
    final_kernel: Option<ModuleIndex>,
}

/// Between names.
const SEPARATOR: char = '|';

impl Summary {
    /// Summarizes a stack with these states. Frames come innermost first.
    pub fn of(&mut self, modules: &Modules, states: StackStates, frames: &[Frame]) {
        let is_whole = matches!(states.first(), StackState::Complete | StackState::UserOnly);
        self.summarize(modules, (is_whole, states.has_certain_frames()), frames);
    }

    /// The same of a stack whose user part is whole, or of which frames may be missing, and whose frames are certain, or not.
    pub fn summarize(&mut self, modules: &Modules, (is_whole, is_certain): (bool, bool), frames: &[Frame]) {
        self.user.clear();
        self.kernel.clear();
        let (mut unbacked, mut unknown, mut user_was_seen) = (false, false, false);
        for frame in frames {
            let name = frame.code.module_name(modules);
            match frame.mode {
                Mode::Kernel if user_was_seen => {}
                Mode::Kernel => add(&mut self.kernel, name),
                Mode::User => {
                    user_was_seen = true;
                    add(&mut self.user, name);
                    unbacked |= frame.backing() == Backing::Unbacked;
                    unknown |= frame.backing() == Backing::Unknown;
                }
            }
        }
        self.contains_unbacked = match (unbacked, unknown || !is_whole) {
            (true, _) if is_certain => Answer::Yes,
            (false, false) => Answer::No,
            _ => Answer::Undetermined,
        };
        self.final_user = final_user_frame(modules, frames).map(|index| frames[index].code);
        let innermost = frames.first().filter(|frame| frame.mode == Mode::Kernel);
        self.final_kernel = innermost.and_then(|frame| frame.code.module());
    }

    /// Names of the modules of user frames, innermost first, `|` between them; one that follows itself is written once.
    /// `jit:` and a runtime is written for JIT-compiled code, `unbacked` for code of no image, `unknown` for what is not known.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The same of the kernel frames before the first user frame.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Whether a user frame is in no image. Never "no" where frames or modules can be missing.
    pub fn contains_unbacked(&self) -> Answer {
        self.contains_unbacked
    }

    /// The code of the [final user frame](final_user_frame).
    pub fn final_user(&self) -> Option<Code> {
        self.final_user
    }

    /// The name of the final user module, as in [`user`](Summary::user). `None` without user frames.
    pub fn final_user_module<'m>(&self, modules: &'m Modules) -> Option<&'m str> {
        Some(self.final_user?.module_name(modules))
    }

    /// The module of the innermost frame, if it is a kernel frame in a known module.
    pub fn final_kernel_module(&self) -> Option<ModuleIndex> {
        self.final_kernel
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
