//! Stacks as separate records, which identify their triggering event by its timestamp.
//!
//! A stack of fewer than four frames, or of a session without a stack cache, is written with its
//! frames. Otherwise, a stack key is written. The definition of the key follows in a later record:
//! when the cache drops the key, or when the session ends.

use stackhound_types::{Address, Pid, PointerSize, RawTime, Tid};

use super::layout::Cursor;
use super::record::{HeaderSpec, Payload, RecordSpec};
use crate::hook_id;

const VERSION: u8 = 2;

/// The triggering event of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Timestamp of the event, exactly.
    pub time: RawTime,
    /// Process id of the event.
    pub pid: Pid,
    /// Thread id of the event.
    pub tid: Tid,
}

/// One of the two stacks of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackMode {
    /// The kernel stack.
    Kernel,
    /// The user stack.
    User,
}

/// The reason for a stack-key definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyDefinition {
    /// The key was created. Not observed in traces.
    Create,
    /// The cache dropped the key, which may then be reused.
    Delete,
    /// The session ends.
    Rundown,
}

/// The payload of a stack record.
#[derive(Clone, Copy, Debug)]
pub enum StackPayload<'a> {
    /// A kernel stack or user stack with its frames.
    Frames(Trigger, &'a [Address]),
    /// A kernel stack or user stack by its key.
    Key(Trigger, u64),
    /// The definition of a stack key.
    Definition(u64, &'a [Address]),
}

/// A kernel stack or user stack of `trigger` with its frames: return addresses, innermost first.
pub fn frames<'a>(
    time: RawTime,
    pointer_size: PointerSize,
    trigger: Trigger,
    frames: &'a [Address],
) -> RecordSpec<'a> {
    record(time, pointer_size, hook_id::STACK_WALK_STACK, StackPayload::Frames(trigger, frames))
}

/// A kernel stack or user stack of `trigger` by its key. The same number may be a kernel key and a
/// user key.
pub fn key(
    time: RawTime,
    pointer_size: PointerSize,
    trigger: Trigger,
    mode: StackMode,
    key: u64,
) -> RecordSpec<'static> {
    let hook_id = match mode {
        StackMode::Kernel => hook_id::STACK_WALK_KEY_KERNEL,
        StackMode::User => hook_id::STACK_WALK_KEY_USER,
    };
    record(time, pointer_size, hook_id, StackPayload::Key(trigger, key))
}

/// The definition of `key`, which applies to the uses before this record.
pub fn definition<'a>(
    time: RawTime,
    pointer_size: PointerSize,
    reason: KeyDefinition,
    key: u64,
    frames: &'a [Address],
) -> RecordSpec<'a> {
    let hook_id = match reason {
        KeyDefinition::Create => hook_id::STACK_WALK_KEY_CREATE,
        KeyDefinition::Delete => hook_id::STACK_WALK_KEY_DELETE,
        KeyDefinition::Rundown => hook_id::STACK_WALK_KEY_RUNDOWN,
    };
    record(time, pointer_size, hook_id, StackPayload::Definition(key, frames))
}

fn record(
    time: RawTime,
    pointer_size: PointerSize,
    hook_id: u16,
    payload: StackPayload<'_>,
) -> RecordSpec<'_> {
    let header = HeaderSpec::PerfInfo { hook_id, version: VERSION, pebs_index: None, counters: &[] };
    RecordSpec { time, pointer_size, header, payload: Payload::Stack(payload) }
}

impl StackPayload<'_> {
    pub(super) fn size(&self, pointer_size: PointerSize) -> usize {
        match self {
            StackPayload::Frames(_, frames) => 16 + frames.len() * pointer_size.bytes(),
            StackPayload::Key(..) => 16 + pointer_size.bytes(),
            StackPayload::Definition(_, frames) => (1 + frames.len()) * pointer_size.bytes(),
        }
    }

    pub(super) fn encode(&self, pointer_size: PointerSize, out: &mut Cursor<'_>) {
        let frames = match *self {
            StackPayload::Frames(trigger, frames) => {
                trigger.encode(out);
                frames
            }
            StackPayload::Key(trigger, key) => {
                trigger.encode(out);
                out.put_pointer(key, pointer_size);
                &[]
            }
            StackPayload::Definition(key, frames) => {
                out.put_pointer(key, pointer_size);
                frames
            }
        };
        for frame in frames {
            out.put_pointer(frame.0, pointer_size);
        }
    }
}

impl Trigger {
    fn encode(&self, out: &mut Cursor<'_>) {
        out.put(&self.time.0.to_le_bytes());
        out.put(&self.pid.0.to_le_bytes());
        out.put(&self.tid.0.to_le_bytes());
    }
}
