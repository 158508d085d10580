//! Writing stacks, and keeping the account of what a correct reader makes of them.
//!
//! A stack is logged in parts, as Windows does it: the kernel part right behind its event, the user part when the
//! thread leaves the kernel, which is then the user part of all events since it entered. Parts are written out or by
//! key; a key is a place in a cache, and what it stood for is written when the place is given to another stack.

use std::io::Write;

use stackhound_etl::write::WriteError;
use stackhound_etl::write::stack::{self, KeyDefinition, StackMode, Trigger};
use stackhound_schema::kernel::hook_id;
use stackhound_types::{Address, Pid, PointerSize, Tid};

use crate::event::EventKind;
use crate::frames::Frames;
use crate::output::{Logged, Output};
use crate::random::{Random, hash2};
use crate::truth::{Attack, AttackKind, EventStack, StackRecords, State, States};

/// Shorter stacks are never cached.
const CACHED_FRAMES_MIN: usize = 4;
/// One in so many others is not cached either.
const UNCACHED_IN: u64 = 40;

/// The process and thread that a stack is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub pid: Pid,
    pub tid: Tid,
}

/// An event whose kernel part was logged, but no user part yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub event: EventKind,
    pub logged: Logged,
    /// The kernel part, as much of it as is in the file.
    pub kernel: Frames,
    /// Whether something of the kernel part is in the file.
    pub kernel_kept: bool,
    /// Whether something of it is not.
    pub is_damaged: bool,
    /// Whether the kernel part stands inside the event.
    pub is_extended: bool,
    pub attack: Option<AttackKind>,
}

/// A user part that was logged for the events of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserPart<'f> {
    pub frames: &'f Frames,
    /// Whether a record that completes all events of the thread is in the file.
    pub kept: bool,
}

/// Writes stacks.
pub(crate) struct Stacks<'e> {
    kernel_keys: Vec<Option<Frames>>,
    user_keys: Vec<Option<Frames>>,
    random: Random,
    expect: &'e mut dyn FnMut(&EventStack<'_>),
    pub records: StackRecords,
    pub states: States,
    pub attacks: Vec<Attack>,
    /// The process whose stacks are not cached. Keys are confirmed only if they are defined before the loss of a buffer;
    /// what the attacker does is to be certain all the same.
    pub uncached: Option<Pid>,
    keys: u64,
}

impl<'e> Stacks<'e> {
    /// A cache of so many stacks of each mode; `expect` is told of every event with a stack.
    pub fn new(cached: usize, seed: u64, expect: &'e mut dyn FnMut(&EventStack<'_>)) -> Stacks<'e> {
        Stacks {
            kernel_keys: vec![None; cached],
            user_keys: vec![None; cached],
            random: Random::new(seed),
            expect,
            records: StackRecords::default(),
            states: States::default(),
            attacks: Vec::new(),
            uncached: None,
            keys: 0,
        }
    }

    /// Keys that are in use.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Logs a part of the stack of `event`, on the processor `on`. Tells whether it is in the file.
    pub fn part<W: Write>(
        &mut self,
        out: &mut Output<W>,
        on: u16,
        event: Logged,
        owner: Owner,
        mode: StackMode,
        frames: &Frames,
    ) -> Result<bool, WriteError> {
        let trigger = Trigger { time: event.time, pid: owner.pid, tid: owner.tid };
        let addresses = frames.as_slice();
        let size = PointerSize::Eight;
        let is_inline = addresses.len() < CACHED_FRAMES_MIN
            || self.random.one_in(UNCACHED_IN)
            || self.uncached == Some(owner.pid);
        let logged = if is_inline {
            out.stack(on, hook_id::STACK_WALK_STACK, |time| stack::frames(time, size, trigger, addresses))?
        } else {
            let key = self.key(out, on, mode, frames)?;
            let hook_id = if mode == StackMode::Kernel {
                hook_id::STACK_WALK_KEY_KERNEL
            } else {
                hook_id::STACK_WALK_KEY_USER
            };
            out.stack(on, hook_id, |time| stack::key(time, size, trigger, mode, key))?
        };
        if logged.kept {
            let count = if is_inline { &mut self.records.inline } else { &mut self.records.keyed };
            *count += 1;
            self.records.orphaned += u64::from(!event.kept);
        }
        Ok(logged.kept)
    }

    /// The key of a stack. If its place in the cache is taken, the stack there is defined and leaves.
    fn key<W: Write>(
        &mut self,
        out: &mut Output<W>,
        on: u16,
        mode: StackMode,
        frames: &Frames,
    ) -> Result<u64, WriteError> {
        let keys = if mode == StackMode::Kernel { &mut self.kernel_keys } else { &mut self.user_keys };
        let hash = frames.as_slice().iter().fold(0, |hash, frame| hash2(hash, frame.0));
        let location = (hash % keys.len() as u64) as usize;
        let key = stack_key(location);
        let left = keys[location].filter(|known| known != frames);
        if keys[location].is_none() {
            self.keys += 1;
        }
        if left.is_some() || keys[location].is_none() {
            keys[location] = Some(*frames);
        }
        if let Some(left) = left {
            self.define(out, on, KeyDefinition::Delete, key, left.as_slice())?;
        }
        Ok(key)
    }

    fn define<W: Write>(
        &mut self,
        out: &mut Output<W>,
        on: u16,
        reason: KeyDefinition,
        key: u64,
        frames: &[Address],
    ) -> Result<(), WriteError> {
        let hook_id = if reason == KeyDefinition::Rundown {
            hook_id::STACK_WALK_KEY_RUNDOWN
        } else {
            hook_id::STACK_WALK_KEY_DELETE
        };
        // A definition that is lost would give the key's uses the frames of the next definition.
        let on = out.keeping(on);
        out.stack(on, hook_id, |time| stack::definition(time, PointerSize::Eight, reason, key, frames))?;
        self.records.definitions += 1;
        Ok(())
    }

    /// Defines all keys that are in use.
    pub fn run_down<W: Write>(&mut self, out: &mut Output<W>, on: u16) -> Result<(), WriteError> {
        let (kernel, user) = (std::mem::take(&mut self.kernel_keys), std::mem::take(&mut self.user_keys));
        for (location, (kernel, user)) in kernel.iter().zip(&user).enumerate() {
            for frames in [kernel, user].into_iter().flatten() {
                self.define(out, on, KeyDefinition::Rundown, stack_key(location), frames.as_slice())?;
            }
        }
        Ok(())
    }

    /// Logs the stack of something that happened in user mode: there is no other part.
    pub fn user_event<W: Write>(
        &mut self,
        out: &mut Output<W>,
        event: EventKind,
        logged: Logged,
        owner: Owner,
        frames: &Frames,
        attack: Option<AttackKind>,
    ) -> Result<(), WriteError> {
        let kept = self.part(out, logged.processor, logged, owner, StackMode::User, frames)?;
        let state = if kept { State::Complete } else { State::Lost };
        let frames = if kept { *frames } else { Frames::EMPTY };
        self.settle_as(event, logged, owner, state, &frames, attack);
        Ok(())
    }

    /// Takes note of an event that has its whole stack inside.
    pub fn extended_event(
        &mut self,
        event: EventKind,
        logged: Logged,
        owner: Owner,
        frames: &Frames,
        attack: Option<AttackKind>,
    ) {
        self.records.extended += u64::from(logged.kept);
        self.settle_as(event, logged, owner, State::Complete, frames, attack);
    }

    /// Takes note of what became of an event that had only its kernel part. `named` says that a user part in the file
    /// names it.
    pub fn settle(&mut self, pending: &Pending, owner: Owner, user: Option<UserPart<'_>>, named: bool) {
        let gets_user = named || user.is_some_and(|part| part.kept) && pending.kernel_kept;
        let state = match user {
            None if !pending.kernel_kept => State::Lost,
            _ if pending.is_damaged && pending.kernel_kept => State::Damaged,
            None if owner.pid.is_kernel_only() => State::Complete,
            None => State::KernelOnly,
            Some(_) if pending.kernel_kept && gets_user => State::Complete,
            Some(_) if pending.kernel_kept || gets_user => State::Damaged,
            Some(_) => State::Lost,
        };
        let mut frames = pending.kernel;
        if let (Some(part), true) = (user, gets_user) {
            frames.extend(part.frames.as_slice());
        }
        self.settle_as(pending.event, pending.logged, owner, state, &frames, pending.attack);
    }

    fn settle_as(
        &mut self,
        event: EventKind,
        logged: Logged,
        owner: Owner,
        state: State,
        frames: &Frames,
        attack: Option<AttackKind>,
    ) {
        if !logged.kept {
            return;
        }
        self.states.note(state);
        let Logged { time, processor, .. } = logged;
        let Owner { pid, tid } = owner;
        let frames = frames.as_slice();
        (self.expect)(&EventStack { event, time, processor, pid, tid, state, frames });
        if let (Some(kind), State::Complete) = (attack, state) {
            self.attacks.push(Attack { kind, event, time, pid, tid, frames: frames.to_vec() });
        }
    }
}

/// The key of a place in the cache, of a kernel and of a user stack alike.
fn stack_key(location: usize) -> u64 {
    0x100 + location as u64 * 8
}
