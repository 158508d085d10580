//! The most frequent stacks by event: what `stacks` writes.

use schemars::JsonSchema;
use serde::Serialize;

use super::frame::Frame;
use super::info::Capture;
use super::process::Process;
use super::stack::Stack;

/// `stacks --format json`: the stacks of one capture.
///
/// `K` is what writes the kinds of events.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Stacks")]
pub struct Stacks<K> {
    /// Events with stacks, the most frequent first.
    pub kinds: Vec<K>,
}

/// The same where the input is several captures.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "StacksOfCaptures")]
pub struct StacksOfCaptures<C> {
    captures: Vec<C>,
}

/// The stacks of one of several captures.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "CaptureStacks")]
pub struct CaptureStacks<'a, K> {
    /// The capture.
    #[serde(flatten)]
    pub capture: Capture<'a>,
    /// Its stacks.
    #[serde(flatten)]
    pub stacks: Stacks<K>,
}

/// The stacks of one kind of event.
///
/// `R` is what writes the rows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "EventStacks")]
pub struct EventStacks<'a, R> {
    /// The event's name.
    pub event: &'a str,
    /// Events of this name.
    pub events: u64,
    /// Those with a stack.
    pub with_stack: u64,
    /// Different stacks.
    pub distinct: u64,
    /// The most frequent stacks.
    pub stacks: Vec<R>,
}

/// A stack of one process, and how often it occurs.
///
/// `F` is what writes the frames.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "StackRow")]
pub struct StackRow<'a, F = Vec<Frame<'a>>> {
    /// Events with it.
    pub count: u64,
    /// The process that the events belong to.
    pub pid: Option<u32>,
    /// What is known of it.
    pub process: Option<Process<'a>>,
    /// The stack.
    pub stack: Stack<'a, F>,
}
