//! The critical path of a thread, as `top wait --chain` writes it.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::top::{Cut, Window};

/// `top wait --tid TID --chain --format json`: the critical path of a thread. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TopChain {
    /// How the trace was cut from a larger one, if it was; the first cut first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
    /// The process and the thread.
    pub name: String,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: u32,
    /// Number of other threads that had the id in the selected part of the trace before.
    pub earlier_threads: usize,
    /// The analyzed part of the life of the thread.
    pub window: Window,
    /// The time in each kind of segment. The sum is the duration of the window, apart from rounding.
    pub total: ChainTotal,
    /// Number of all segments of the path.
    pub segment_count: usize,
    /// Number of context switches.
    pub switches: u64,
    /// Number of context switches from a thread that was not known to run.
    pub contradictions: u64,
    /// Number of records of compact context switches, which are not read.
    pub compact_records: u64,
    /// The waits that are followed in the shown segments: the other thread's segments are shown
    /// instead.
    pub waits: Vec<ChainWait>,
    /// The longest segments, in the order of time.
    pub segments: Vec<ChainSegment>,
}

/// The time on a path, by what was done in it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ChainTotal {
    /// Threads ran.
    pub running: u64,
    /// Threads were ready to run.
    pub ready: u64,
    /// Threads waited for transfers of disks.
    pub disk: u64,
    /// Threads waited for timers.
    pub timer: u64,
    /// Threads waited until another deferred procedure call.
    pub interrupt: u64,
    /// Threads waited, and it is not known which thread worked in this time.
    pub other_wait: u64,
    /// What threads did is not known.
    pub unknown: u64,
}

/// A wait that another thread ended.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ChainWait {
    /// The process and the thread that waited.
    pub name: String,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// The index of the wait that it is part of.
    pub within: Option<usize>,
    /// Start, since the start of the window.
    pub from: u64,
    /// Length.
    pub duration: u64,
    /// The reason that the kernel states.
    pub reason: String,
    /// Where the thread waited: names of frames, innermost first. Null without a stack.
    pub stack: Option<Vec<String>>,
    /// The process and the thread that ended the wait.
    pub readied_by: String,
    /// Where that thread ended it: names of frames, innermost first. Null without a stack.
    pub ready_stack: Option<Vec<String>>,
}

/// A part of the path.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ChainSegment {
    /// Start, since the start of the window.
    pub from: u64,
    /// Length.
    pub duration: u64,
    /// The index of the innermost wait that the segment is part of. Null if it is of the thread itself.
    pub wait: Option<usize>,
    /// The process and the thread.
    pub name: String,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// The key of `total` in which the time counts.
    pub kind: &'static str,
    /// What the thread did, as a phrase.
    pub did: String,
    /// The reason of a wait, as the kernel states it. Null for others.
    pub reason: Option<String>,
    /// The file of a transfer, if it is known.
    pub file: Option<String>,
    /// Number of profile samples in it. Null if the thread did not run.
    pub samples: Option<usize>,
    /// Names of frames, innermost first: where the thread waited or was interrupted, or the most
    /// frequent stack of its samples. Null without a stack.
    pub stack: Option<Vec<String>>,
    /// Names of frames, innermost first: where the wait was ended. Null without a stack, and for others.
    pub ready_stack: Option<Vec<String>>,
}
