//! The output: new stacks, and changes of the stack model.

use stackhound_calltree::{
    Change, ContextId, Cpu, EndType, Evidence, LocationId, StackId, StackKind, StartType,
};
use stackhound_types::Tid;

/// One step of building the stack model. The steps of each stack are in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A new stack; stacks are numbered from 0.
    Stack {
        /// Its number.
        id: StackId,
        /// The kind of the stack.
        kind: StackKind,
        /// The thread that it belongs to.
        thread: Option<Tid>,
        /// The processor that it belongs to, for stacks of interrupts and of idle threads.
        cpu: Option<Cpu>,
        /// The time of the first evidence, in ticks of the trace's clock. Thread ids are reused.
        time: i64,
    },
    /// An exact change.
    Change(Change),
    /// A stack became active at some context from `lo` to `hi`, and was certainly active at `hi`.
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
    /// A frame is pushed on a stack. It began at some context from `lo` to `hi`, and certainly
    /// existed at `hi`.
    Open {
        /// The stack.
        stack: StackId,
        /// The frame did not exist before this context.
        lo: ContextId,
        /// The first context at which the frame certainly existed.
        hi: ContextId,
        /// How it started.
        start: StartType,
        /// The function.
        location: Option<LocationId>,
        /// The evidence for the frame.
        evidence: Evidence,
    },
    /// The top frame of a stack is popped. Its last context was from `lo` to `hi`; it certainly
    /// existed at `lo`.
    Close {
        /// The stack.
        stack: StackId,
        /// The last context at which the frame certainly existed.
        lo: ContextId,
        /// The frame did not exist after this context; [`NOT_KNOWN`] if that is not known.
        hi: ContextId,
        /// How it ended.
        end: EndType,
    },
}

/// The last context of a frame whose end is not known.
pub const NOT_KNOWN: ContextId = ContextId(u64::MAX >> 1);
