//! The parts of one event's stack that have arrived.

use stackhound_trace::TraceTime;

use crate::keys::Key;
use crate::table::{StackId, StackTable};

/// One part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// Its frames.
    Frames(StackId),
    /// A key that was referred to at a time, and whose definition may still come.
    Awaiting(Key, TraceTime),
    /// The frames of a key, with the times of the reference and of the definition.
    Resolved(StackId, TraceTime, TraceTime),
    /// A key without definition.
    Unresolved,
}

/// The part of a stack: kernel, user, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartMode {
    Kernel,
    User,
    /// One walk from kernel to user mode.
    Both,
}

/// The process and thread that a stack record states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatedIds {
    pub pid: u32,
    pub tid: u32,
}

/// The parts that have arrived for one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partial {
    /// Kernel parts in the order of arrival; several where user-mode callbacks cut the kernel's
    /// stack.
    kernel: Vec<Fragment>,
    user: Vec<Fragment>,
    both: bool,
    pub ids: Option<StatedIds>,
    /// Whether parts came as records of their own.
    pub from_records: bool,
    pub ambiguous: bool,
    /// The time of the event that the user part names, if it came for the thread and not for this
    /// event.
    pub user_of: Option<TraceTime>,
    /// Of parts by key: the times of the reference and of the definition that it was resolved to.
    pub resolved: Vec<(TraceTime, TraceTime)>,
}

impl Partial {
    /// Makes a used one empty, keeping its memory.
    pub fn reset(&mut self) {
        let (mut kernel, mut user) = (std::mem::take(&mut self.kernel), std::mem::take(&mut self.user));
        let mut resolved = std::mem::take(&mut self.resolved);
        kernel.clear();
        user.clear();
        resolved.clear();
        *self = Partial { kernel, user, resolved, ..Partial::default() };
    }

    pub fn add(&mut self, fragment: Fragment, mode: PartMode) {
        let fragment = match fragment {
            Fragment::Resolved(stack, referred, defined) => {
                self.resolved.push((referred, defined));
                Fragment::Frames(stack)
            }
            other => other,
        };
        match mode {
            PartMode::Kernel => self.kernel.push(fragment),
            PartMode::User => self.user.push(fragment),
            PartMode::Both => {
                self.kernel.push(fragment);
                self.both = true;
            }
        }
    }

    pub fn has_kernel(&self) -> bool {
        !self.kernel.is_empty()
    }

    pub fn has_user(&self) -> bool {
        self.both || !self.user.is_empty()
    }

    /// Whether a part of this mode has arrived.
    pub fn has(&self, mode: PartMode) -> bool {
        match mode {
            PartMode::Kernel => self.has_kernel(),
            PartMode::User => self.has_user(),
            PartMode::Both => self.has_kernel() || self.has_user(),
        }
    }

    /// Gives the parts that wait for `key` their frames, which were defined at `time`.
    pub fn define(&mut self, key: Key, frames: StackId, time: TraceTime) {
        for fragment in self.kernel.iter_mut().chain(&mut self.user) {
            if let Fragment::Awaiting(awaited, referred) = *fragment
                && awaited == key
            {
                *fragment = Fragment::Frames(frames);
                self.resolved.push((referred, time));
            }
        }
    }

    /// Renumbers the frames of all parts. A part without a new number counts as unresolved.
    pub fn renumber(&mut self, mut number: impl FnMut(StackId) -> Option<StackId>) {
        for fragment in self.kernel.iter_mut().chain(&mut self.user) {
            if let Fragment::Frames(stack) = *fragment {
                *fragment = number(stack).map_or(Fragment::Unresolved, Fragment::Frames);
            }
        }
    }

    /// How many parts there are.
    pub fn len(&self) -> usize {
        self.kernel.len() + self.user.len()
    }

    /// Keys that parts wait for.
    pub fn awaited_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.kernel.iter().chain(&self.user).filter_map(|fragment| match fragment {
            Fragment::Awaiting(key, _) => Some(*key),
            _ => None,
        })
    }

    /// How many parts have no frames.
    pub fn unresolved(&self) -> usize {
        let unresolved = |fragment: &&Fragment| !matches!(fragment, Fragment::Frames(_));
        self.kernel.iter().chain(&self.user).filter(unresolved).count()
    }

    /// The part with the outermost frames, if these are in user mode.
    pub fn user_walk(&self) -> Option<StackId> {
        let outermost = self.user.last().or_else(|| self.kernel.last().filter(|_| self.both));
        match outermost? {
            Fragment::Frames(stack) => Some(*stack),
            _ => None,
        }
    }

    /// The whole stack: kernel parts in order, then the user parts; `None` if no part has frames.
    pub fn compose(&self, table: &mut StackTable, joined: &mut Joined) -> Option<StackId> {
        let frames = |fragment: &Fragment| match fragment {
            Fragment::Frames(stack) => Some(*stack),
            _ => None,
        };
        let parts = self.kernel.iter().chain(&self.user).filter_map(frames);
        let mut whole = None;
        for part in parts.rev() {
            whole = Some(match whole {
                None => part,
                Some(caller) => joined.on_top(table, part, caller)?,
            });
        }
        whole
    }
}

/// A cache of joined stacks, because the same pairs recur.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    known: hashbrown::HashMap<(StackId, StackId), StackId, foldhash::fast::RandomState>,
    scratch: Vec<stackhound_types::Address>,
}

/// Maximum number of cached pairs; beyond that, the cache is cleared.
const JOINED_MAX: usize = 1 << 20;

impl Joined {
    /// Forgets all pairs, as when their numbers lose their meaning.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    fn on_top(&mut self, table: &mut StackTable, inner: StackId, caller: StackId) -> Option<StackId> {
        if let Some(&known) = self.known.get(&(inner, caller)) {
            return Some(known);
        }
        self.scratch.clear();
        self.scratch.extend(table.frames(inner));
        let joined = table.extend(Some(caller), self.scratch.iter().copied())?;
        if self.known.len() >= JOINED_MAX {
            self.known.clear();
        }
        self.known.insert((inner, caller), joined);
        Some(joined)
    }
}
