//! The state of a thread.

use stackhound_calltree::{Cpu, StackKind};
use stackhound_types::Tid;

use crate::side::ThreadStack;
use crate::stack_event::{SampledFrame, Snapshot};

/// The stack that a thread uses in user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UserMode {
    /// The stack that all threads have.
    Plain,
    /// The 64-bit stack of a 32-bit program.
    Wow64,
}

impl UserMode {
    pub const ALL: [UserMode; 2] = [UserMode::Plain, UserMode::Wow64];
}

/// The mode in which a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    User(UserMode),
    Kernel,
}

impl Mode {
    pub fn is_user(self) -> bool {
        self != Mode::Kernel
    }

    /// The kind of the stack for this mode.
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
    /// The processor, if it is an idle thread.
    pub idle_on: Option<Cpu>,
    /// By [`UserMode`].
    pub user: [Option<ThreadStack>; 2],
    pub kernel: Option<ThreadStack>,
    /// By the latest evidence.
    pub mode: Option<Mode>,
    /// The user-mode stack in use, by the latest evidence.
    pub user_mode: UserMode,
    /// The processor that it runs on.
    pub on: Option<usize>,
    /// Since this context, it does not run and its stacks do not change.
    pub frozen: Option<u64>,
    /// Since this context, it is in a system call and its user stacks do not change.
    pub entered: Option<u64>,
    /// Whether its user stacks were recorded since then, by [`UserMode`].
    pub user_is_seen: [bool; 2],
    /// The latest context at which its current stay in the kernel is certain.
    pub alive: u64,
    /// The context before which it did not exist.
    pub born: u64,
    /// Whether its start is in the trace.
    pub is_started: bool,
    /// Whether its events are complete since its start. For other threads, the kernel may have
    /// called back into user mode before their first event, so that they have kernel frames even in
    /// user mode.
    pub is_clean: bool,
    /// Whether it ends when it is switched out.
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

    /// Marks the system call as left.
    pub fn is_out_of_call(&mut self) {
        (self.entered, self.user_is_seen) = (None, [false; 2]);
    }

    /// The user stacks with known frames, each with the matching part of a recorded stack.
    pub fn shown<'s>(
        &self,
        stack: &'s Snapshot,
    ) -> impl Iterator<Item = (UserMode, &ThreadStack, &'s [SampledFrame])> {
        UserMode::ALL.into_iter().filter_map(|mode| {
            let side = self.user[mode as usize].as_ref().filter(|side| side.has_seen())?;
            Some((mode, side, stack.in_user_mode(mode)?))
        })
    }

    /// Like [`shown`](Thread::shown), restricted to stacks that were recorded in the current system
    /// call.
    pub fn shown_in_call<'s>(
        &self,
        stack: &'s Snapshot,
    ) -> impl Iterator<Item = (&ThreadStack, &'s [SampledFrame])> {
        let is_seen = self.user_is_seen;
        self.shown(stack)
            .filter(move |(mode, ..)| is_seen[*mode as usize])
            .map(|(_, side, frames)| (side, frames))
    }

    /// The number of open system calls.
    pub fn calls(&self) -> usize {
        self.kernel.as_ref().map_or(0, ThreadStack::exact)
    }
}
