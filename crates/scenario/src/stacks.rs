//! Writes stacks, and determines the stacks that a correct reader must find.
//!
//! As on Windows, a stack is logged in two parts: the kernel stack directly after its event, and
//! the user stack when the thread leaves the kernel. The user stack belongs to all events since the
//! thread entered the kernel. Parts are written with their frames or as a key. A key is a slot of a
//! cache; its definition is written when the slot is reused for another stack.

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

/// Minimum number of frames of a cached stack.
const CACHED_FRAMES_MIN: usize = 4;
/// One in this many longer stacks is not cached.
const UNCACHED_IN: u64 = 40;

/// The process and thread of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub pid: Pid,
    pub tid: Tid,
}

/// An event whose kernel stack was logged, and whose user stack is still pending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub event: EventKind,
    pub logged: Logged,
    /// The frames of the kernel stack that are in the file.
    pub kernel: Frames,
    /// Whether any part of the kernel stack is in the file.
    pub kernel_kept: bool,
    /// Whether any part of the kernel stack is not in the file.
    pub is_damaged: bool,
    /// Whether the kernel stack is in an extended data item.
    pub is_extended: bool,
    pub attack: Option<AttackKind>,
}

/// A user stack that was logged for the events of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserPart<'f> {
    pub frames: &'f Frames,
    /// Whether a record that completes all events of the thread is in the file.
    pub kept: bool,
}

/// Writes stacks, and counts their records and states.
pub(crate) struct Stacks<'e> {
    kernel_keys: Vec<Option<Frames>>,
    user_keys: Vec<Option<Frames>>,
    random: Random,
    expect: &'e mut dyn FnMut(&EventStack<'_>),
    pub records: StackRecords,
    pub states: States,
    pub attacks: Vec<Attack>,
    /// The process whose stacks are not cached: the attacker. Its stacks must be certain, and a key
    /// is confirmed only if it is defined before a buffer is lost.
    pub uncached: Option<Pid>,
    /// Number of keys in use.
    keys: u64,
}

impl<'e> Stacks<'e> {
    /// With a cache of `cached` stacks for each mode. `expect` is called for every event with a
    /// stack.
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

    /// Number of keys in use.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Logs a part of the stack of `event`, on the processor `on`. Returns whether it is in the
    /// file.
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

    /// The key of a stack. If its slot is occupied by another stack, that stack is defined and
    /// evicted.
    fn key<W: Write>(
        &mut self,
        out: &mut Output<W>,
        on: u16,
        mode: StackMode,
        frames: &Frames,
    ) -> Result<u64, WriteError> {
        let keys = if mode == StackMode::Kernel { &mut self.kernel_keys } else { &mut self.user_keys };
        let hash = frames.as_slice().iter().fold(0, |hash, frame| hash2(hash, frame.0));
        let slot = (hash % keys.len() as u64) as usize;
        let key = stack_key(slot);
        let evicted = keys[slot].filter(|known| known != frames);
        if keys[slot].is_none() {
            self.keys += 1;
        }
        if evicted.is_some() || keys[slot].is_none() {
            keys[slot] = Some(*frames);
        }
        if let Some(evicted) = evicted {
            self.define(out, on, KeyDefinition::Delete, key, evicted.as_slice())?;
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
        // If a definition were lost, its uses would get the frames of the next definition of the
        // key.
        let on = out.keeping(on);
        out.stack(on, hook_id, |time| stack::definition(time, PointerSize::Eight, reason, key, frames))?;
        self.records.definitions += 1;
        Ok(())
    }

    /// Logs the definitions of all keys in use.
    pub fn run_down<W: Write>(&mut self, out: &mut Output<W>, on: u16) -> Result<(), WriteError> {
        let (kernel, user) = (std::mem::take(&mut self.kernel_keys), std::mem::take(&mut self.user_keys));
        for (slot, (kernel, user)) in kernel.iter().zip(&user).enumerate() {
            for frames in [kernel, user].into_iter().flatten() {
                self.define(out, on, KeyDefinition::Rundown, stack_key(slot), frames.as_slice())?;
            }
        }
        Ok(())
    }

    /// Logs the stack of an event in user mode, which has no kernel stack.
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

    /// Registers an event with its whole stack in an extended data item.
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

    /// Registers the final state of an event with a pending user stack. `named` means that the file
    /// contains a user stack record that refers to the event.
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

/// The key of a cache slot, for kernel and user stacks.
fn stack_key(slot: usize) -> u64 {
    0x100 + slot as u64 * 8
}
