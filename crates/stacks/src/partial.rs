//! The parts of one event's stack that have arrived.

use stackhound_trace::TraceTime;
use stackhound_types::Pid;

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

/// The process and thread that stack records state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatedIds {
    pub pid: u32,
    pub tid: u32,
    /// Whether another record for the same event states another process.
    pub is_contradictory: bool,
}

impl StatedIds {
    pub fn new(pid: u32, tid: u32) -> StatedIds {
        StatedIds { pid, tid, is_contradictory: false }
    }

    /// Compares the ids with those that another record for the same event states.
    pub fn compare(&mut self, other: StatedIds) {
        let pids = Pid::known(self.pid).zip(Pid::known(other.pid));
        self.is_contradictory |= pids.is_some_and(|(pid, other)| pid != other);
    }
}

/// A [`Fragment`] in a [`Partial`], which keeps the times of resolved keys apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Frames(StackId),
    Awaiting(Key, TraceTime),
    Unresolved,
}

impl Part {
    fn frames(self) -> Option<StackId> {
        match self {
            Part::Frames(stack) => Some(stack),
            _ => None,
        }
    }
}

/// The parts that have arrived for one event.
///
/// It is read long after it was written, and mostly has at most one part of each mode: these are in
/// the first of its two cache lines, and need no memory of their own.
#[derive(Clone, Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Partial {
    /// The first kernel part.
    kernel: Option<Part>,
    /// The first user part.
    user: Option<Part>,
    pub ids: Option<StatedIds>,
    both: bool,
    /// Whether parts came as records of their own.
    pub from_records: bool,
    pub ambiguous: bool,
    /// Further parts in the order of arrival, and whether they are user parts. There are several
    /// kernel parts where user-mode callbacks cut the kernel's stack.
    more: Vec<(bool, Part)>,
    /// The time of the event that the user part names, if it came for the thread and not for this
    /// event.
    pub user_of: Option<TraceTime>,
    /// Of parts by key: the times of the reference and of the definition that it was resolved to.
    pub resolved: Vec<(TraceTime, TraceTime)>,
}

impl Partial {
    /// Makes a used one empty, keeping its memory.
    pub fn reset(&mut self) {
        let (mut more, mut resolved) = (std::mem::take(&mut self.more), std::mem::take(&mut self.resolved));
        more.clear();
        resolved.clear();
        *self = Partial { more, resolved, ..Partial::default() };
    }

    pub fn add(&mut self, fragment: Fragment, mode: PartMode) {
        let part = match fragment {
            Fragment::Frames(stack) => Part::Frames(stack),
            Fragment::Resolved(stack, referred, defined) => {
                self.resolved.push((referred, defined));
                Part::Frames(stack)
            }
            Fragment::Awaiting(key, referred) => Part::Awaiting(key, referred),
            Fragment::Unresolved => Part::Unresolved,
        };
        self.both |= mode == PartMode::Both;
        let is_user = mode == PartMode::User;
        let first = if is_user { &mut self.user } else { &mut self.kernel };
        match first {
            None => *first = Some(part),
            Some(_) => self.more.push((is_user, part)),
        }
    }

    pub fn has_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    pub fn has_user(&self) -> bool {
        self.both || self.user.is_some()
    }

    /// Whether a part of this mode has arrived.
    pub fn has(&self, mode: PartMode) -> bool {
        match mode {
            PartMode::Kernel => self.has_kernel(),
            PartMode::User => self.has_user(),
            PartMode::Both => self.has_kernel() || self.has_user(),
        }
    }

    /// The parts that are user parts, or that are not.
    fn parts_of(&self, user: bool) -> impl DoubleEndedIterator<Item = Part> {
        let first = if user { self.user } else { self.kernel };
        let more = self.more.iter().filter(move |&&(is_user, _)| is_user == user);
        first.into_iter().chain(more.map(|&(_, part)| part))
    }

    /// All parts, innermost first.
    fn parts(&self) -> impl DoubleEndedIterator<Item = Part> {
        self.parts_of(false).chain(self.parts_of(true))
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let more = self.more.iter_mut().map(|(_, part)| part);
        self.kernel.iter_mut().chain(&mut self.user).chain(more)
    }

    /// Gives the parts that wait for `key` their frames, which were defined at `time`.
    pub fn define(&mut self, key: Key, frames: StackId, time: TraceTime) {
        let mut resolved = std::mem::take(&mut self.resolved);
        for part in self.parts_mut() {
            if let Part::Awaiting(awaited, referred) = *part
                && awaited == key
            {
                *part = Part::Frames(frames);
                resolved.push((referred, time));
            }
        }
        self.resolved = resolved;
    }

    /// Renumbers the frames of all parts. A part without a new number counts as unresolved.
    pub fn renumber(&mut self, mut number: impl FnMut(StackId) -> Option<StackId>) {
        for part in self.parts_mut() {
            if let Part::Frames(stack) = *part {
                *part = number(stack).map_or(Part::Unresolved, Part::Frames);
            }
        }
    }

    /// How many parts there are.
    pub fn len(&self) -> usize {
        self.parts().count()
    }

    /// Keys that parts wait for.
    pub fn awaited_keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.parts().filter_map(|part| match part {
            Part::Awaiting(key, _) => Some(key),
            _ => None,
        })
    }

    /// Whether a part has no frames.
    pub fn is_unresolved(&self) -> bool {
        self.parts().any(|part| part.frames().is_none())
    }

    /// The part with the outermost frames, if these are in user mode.
    pub fn user_walk(&self) -> Option<StackId> {
        let both = || self.parts_of(false).next_back().filter(|_| self.both);
        self.parts_of(true).next_back().or_else(both)?.frames()
    }

    /// The whole stack: kernel parts in order, then the user parts; `None` if no part has frames.
    pub fn compose(&self, table: &mut StackTable, joined: &mut Joined) -> Option<StackId> {
        let parts = self.parts().filter_map(Part::frames);
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
