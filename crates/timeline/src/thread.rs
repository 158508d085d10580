//! What is known of a thread.

use stackhound_calltree::{Cpu, StackKind};
use stackhound_types::Tid;

use crate::side::ThreadStack;
use crate::stack_event::{SampledFrame, Snapshot};

/// Which of its stacks a thread uses in user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UserMode {
    /// The one that all threads have.
    Plain,
    /// The 64-bit one of a 32-bit program.
    Wow64,
}

impl UserMode {
    pub const ALL: [UserMode; 2] = [UserMode::Plain, UserMode::Wow64];
}

/// Where a thread runs when it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    User(UserMode),
    Kernel,
}

impl Mode {
    pub fn is_user(self) -> bool {
        self != Mode::Kernel
    }

    /// What the stack is for.
    pub fn stack(self) -> StackKind {
        match self {
            Mode::User(UserMode::Plain) => StackKind::User,
            Mode::User(UserMode::Wow64) => StackKind::Wow64,
            Mode::Kernel => StackKind::Kernel,
        }
    }
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub tid: Tid,
    /// Of idle threads, their processor.
    pub idle_on: Option<Cpu>,
    /// By [`UserMode`].
    pub user: [Option<ThreadStack>; 2],
    pub kernel: Option<ThreadStack>,
    /// By the latest evidence.
    pub mode: Option<Mode>,
    /// Where it is in user mode, by the latest evidence.
    pub user_mode: UserMode,
    /// The processor that it runs on.
    pub on: Option<usize>,
    /// Since this context it does not run, and nothing on its stacks changes.
    pub frozen: Option<u64>,
    /// Since this context it is in a system call, and its user stacks do not change.
    pub entered: Option<u64>,
    /// Which of its user stacks were seen since then, by [`UserMode`].
    pub user_is_seen: [bool; 2],
    /// The latest context at which it surely was where it is in the kernel.
    pub alive: u64,
    /// The context before which it did not exist.
    pub born: u64,
    /// Whether its start is in the recording.
    pub is_started: bool,
    /// Whether nothing of it is missing since its start. Of others, the kernel may have called back into user mode before
    /// anything was known of them, so that they have kernel frames even when they are in user mode.
    pub is_clean: bool,
    /// Whether it ends when it is switched away from.
    pub is_ending: bool,
}

impl Thread {
    pub fn new(tid: Tid, born: Option<u64>) -> Thread {
        Thread {
            tid,
            idle_on: None,
            user: [None, None],
            kernel: None,
            mode: None,
            user_mode: UserMode::Plain,
            on: None,
            frozen: None,
            entered: None,
            user_is_seen: [false; 2],
            alive: born.unwrap_or(0),
            born: born.unwrap_or(0),
            is_started: born.is_some(),
            is_clean: born.is_some(),
            is_ending: false,
        }
    }

    pub fn side(&mut self, mode: Mode) -> &mut Option<ThreadStack> {
        match mode {
            Mode::User(mode) => &mut self.user[mode as usize],
            Mode::Kernel => &mut self.kernel,
        }
    }

    /// All its stacks.
    pub fn sides(&mut self) -> impl Iterator<Item = &mut ThreadStack> {
        self.user.iter_mut().chain([&mut self.kernel]).flatten()
    }

    /// It is no longer in the system call it was in.
    pub fn is_out_of_call(&mut self) {
        (self.entered, self.user_is_seen) = (None, [false; 2]);
    }

    /// The user stacks of which frames are known, with what a recorded stack shows of them.
    pub fn shown<'s>(
        &self,
        stack: &'s Snapshot,
    ) -> impl Iterator<Item = (UserMode, &ThreadStack, &'s [SampledFrame])> {
        UserMode::ALL.into_iter().filter_map(|mode| {
            let side = self.user[mode as usize].as_ref().filter(|side| side.has_seen())?;
            Some((mode, side, stack.in_user_mode(mode)?))
        })
    }

    /// As [`shown`](Thread::shown), of those that were seen in the system call that the thread is in.
    pub fn shown_in_call<'s>(
        &self,
        stack: &'s Snapshot,
    ) -> impl Iterator<Item = (&ThreadStack, &'s [SampledFrame])> {
        let is_seen = self.user_is_seen;
        self.shown(stack)
            .filter(move |(mode, ..)| is_seen[*mode as usize])
            .map(|(_, side, frames)| (side, frames))
    }

    /// How many system calls are open.
    pub fn calls(&self) -> usize {
        self.kernel.as_ref().map_or(0, ThreadStack::exact)
    }
}
