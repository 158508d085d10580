//! Reduces a stack to a summary: its modules, the final user module, and the presence of unbacked
//! code.

use stackhound_stacks::StackStates;
use stackhound_types::Mode;

use crate::frame::{Backing, Code, Frame};
use crate::module::{ModuleIndex, Modules, Roles};

/// An answer, which is undetermined if the evidence is missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Answer {
    /// True.
    Yes,
    /// False.
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

/// Index of the final user frame: the innermost user frame outside of modules that only pass calls
/// on ([`Roles::PASS_ON`]). If all user frames are in such modules, it is the outermost user frame.
/// `None` without user frames.
pub fn final_user_frame(modules: &Modules, frames: &[Frame]) -> Option<usize> {
    let is_final = |frame: &Frame| {
        frame.mode == Mode::User
            && !frame.code.module().is_some_and(|module| modules.roles(module).has_any(Roles::PASS_ON))
    };
    frames.iter().position(is_final).or_else(|| frames.iter().rposition(|frame| frame.mode == Mode::User))
}

/// The summary of one stack. It can be reused for other stacks, and keeps its buffers.
#[derive(Debug, Default)]
pub struct Summary {
    user: String,
    kernel: String,
    contains_unbacked: Answer,
    final_user: Option<Code>,
    final_kernel: Option<ModuleIndex>,
}

/// Separates module names.
const SEPARATOR: char = '|';

impl Summary {
    /// Summarizes a stack with these states. The innermost frame is the first.
    pub fn of(&mut self, modules: &Modules, states: StackStates, frames: &[Frame]) {
        self.summarize(modules, (states.has_whole_user_part(), states.has_certain_frames()), frames);
    }

    /// Like [`of`](Summary::of), with the facts from the states: whether the user stack is
    /// complete, and whether the frames are certain.
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
        self.contains_unbacked = Summary::unbacked((is_whole, is_certain), (unbacked, unknown));
        self.final_user = final_user_frame(modules, frames).map(|index| frames[index].code);
        let innermost = frames.first().filter(|frame| frame.mode == Mode::Kernel);
        self.final_kernel = innermost.and_then(|frame| frame.code.module());
    }

    /// The answer of [`contains_unbacked`](Summary::contains_unbacked): whether the user stack is
    /// complete and the frames are certain, and whether a user frame is unbacked, and one is of
    /// unknown origin.
    pub fn unbacked((is_whole, is_certain): (bool, bool), (unbacked, unknown): (bool, bool)) -> Answer {
        match (unbacked, unknown || !is_whole) {
            (true, _) if is_certain => Answer::Yes,
            (false, false) => Answer::No,
            _ => Answer::Undetermined,
        }
    }

    /// Module names of the user frames, innermost first, separated by `|`. Adjacent frames of one
    /// module have one name. Other code has the names of [`Code::module_name`].
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Module names of the kernel frames that precede the first user frame, as in
    /// [`user`](Summary::user).
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Whether a user frame is unbacked. Never [`Answer::No`] if frames or modules may be missing.
    pub fn contains_unbacked(&self) -> Answer {
        self.contains_unbacked
    }

    /// The code of the [final user frame](final_user_frame).
    pub fn final_user(&self) -> Option<Code> {
        self.final_user
    }

    /// The name of the final user module, as in [`user`](Summary::user). `None` without user
    /// frames.
    pub fn final_user_module<'m>(&self, modules: &'m Modules) -> Option<&'m str> {
        Some(self.final_user?.module_name(modules))
    }

    /// The module of the innermost frame, if it is a kernel frame in a known module.
    pub fn final_kernel_module(&self) -> Option<ModuleIndex> {
        self.final_kernel
    }
}

/// Appends a name unless it equals the last one.
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
