//! What comes out: stacks as they are met, and changes of the stack model.

use stackhound_calltree::{
    Change, ContextId, Cpu, EndType, Evidence, LocationId, StackId, StackKind, StartType,
};
use stackhound_types::Tid;

/// One step of building the stack model. Of each stack they come in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A stack that was not met before; they are numbered from 0.
    Stack {
        /// Its number.
        id: StackId,
        /// What it is for.
        kind: StackKind,
        /// The thread that it belongs to.
        thread: Option<Tid>,
        /// The processor that it belongs to: of interrupts and of idle threads.
        cpu: Option<Cpu>,
        /// When it was met, in ticks of the recording's clock. Numbers of threads are used again.
        time: i64,
    },
    /// An exact change.
    Change(Change),
    /// A stack became active at some context from `lo` to `hi`, and surely was at `hi`.
    Enter {
        /// The processor whose active stack it is.
        cpu: Cpu,
        /// The stack.
        stack: StackId,
        /// It was not active before this context.
        lo: ContextId,
        /// The first context at which it counts as active.
        hi: ContextId,
    },
    /// A frame is put on top of a stack. It was first there at some context from `lo` to `hi`, and surely at `hi`.
    Open {
        /// The stack.
        stack: StackId,
        /// It was not there before this context.
        lo: ContextId,
        /// The first context at which it was surely there.
        hi: ContextId,
        /// How it started.
        start: StartType,
        /// The function.
        location: Option<LocationId>,
        /// What is known of it.
        evidence: Evidence,
    },
    /// The top frame of a stack is gone. Its last context was some one from `lo` to `hi`, and `lo` surely was one.
    Close {
        /// The stack.
        stack: StackId,
        /// The last context at which it was surely there.
        lo: ContextId,
        /// It was not there after this context; [`NOT_KNOWN`] if that is not known.
        hi: ContextId,
        /// How it ended.
        end: EndType,
    },
}

/// Stands for the last context of a frame that may have lived on.
pub const NOT_KNOWN: ContextId = ContextId(u64::MAX >> 1);
