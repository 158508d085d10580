//! The most frequent stacks by event, as `stacks` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::frame::Frame;
use super::process::Process;
use super::stack::Stack;

/// `stacks --format json`: the stacks of one capture.
///
/// `K` is the type that writes the kinds of events.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "Stacks"))]
pub struct Stacks<K> {
    /// Kinds of events with stacks, the most frequent first.
    pub kinds: Vec<K>,
}

/// The stacks of one kind of event.
///
/// `R` is the type that writes the rows.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "EventStacks"))]
pub struct EventStacks<'a, R> {
    /// Name of the event.
    pub event: &'a str,
    /// Number of events.
    pub events: u64,
    /// Number of events with a stack.
    pub with_stack: u64,
    /// Number of distinct stacks.
    pub distinct: u64,
    /// The most frequent stacks.
    pub stacks: Vec<R>,
}

/// `stacks --format json` for an exact trace: the paths of functions that executed most.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CallStacks<'a> {
    /// What the weights are: `transitions`, or `nanoseconds` if the trace has times.
    pub unit: &'static str,
    /// The weight of all stacks.
    pub total: u64,
    /// The part of `total` in which no function is known.
    pub not_known: u64,
    /// Number of different stacks.
    pub distinct: usize,
    /// The stacks with the highest weight.
    pub stacks: Vec<CallStack<'a>>,
}

/// A path of functions.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CallStack<'a> {
    /// How long its innermost function executed.
    pub weight: u64,
    /// The process.
    pub process: &'a str,
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// The functions, innermost first. If the stack is not that of a thread in user mode, its outermost
    /// frame is a remark in brackets.
    pub frames: Vec<&'a str>,
}

/// A stack of one process with its frequency.
///
/// `F` is the type that writes the frames.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "StackRow"))]
pub struct StackRow<'a, F = Vec<Frame<'a>>> {
    /// Number of events with the stack.
    pub count: u64,
    /// Process id of the events.
    pub pid: Option<u32>,
    /// The known facts about the process.
    pub process: Option<Process<'a>>,
    /// The stack.
    pub stack: Stack<'a, F>,
}
