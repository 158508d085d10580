//! The stack model, as `stack`, `backtrace`, `tree`, `ranges`, `events-of` and `calls` write it.
//!
//! Contexts, transitions and the ids of frames and stacks are integers. Counts of frames come with
//! `at_least`, which is true if there may be more frames, and `least`, which is smaller than the
//! count if several of the frames may be one frame that was observed again.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_calltree::{
    Bound as CallBound, CallRange as Call, Context, ContextRange as Range, Count as FrameCount,
    Frame as CallFrame, Name, Stack as CallStack, StackEvent, TailCall as CallTail,
};
use stackhound_types::FileTime;

use super::value::{Hex, Text, Time};
use crate::tree::{Row, Shown, Tree};

/// A call: one execution of a function.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TreeFrame<'t> {
    frame_id: u64,
    stack_id: u64,
    /// Module and function, or other known facts about the address.
    #[cfg_attr(test, schemars(with = "String"))]
    name: Text<Name<'t>>,
    /// Name of the module, without the extension of Windows modules.
    module: Option<&'t str>,
    /// Path of the module's file.
    path: Option<&'t str>,
    symbol: Option<&'t str>,
    /// Bytes from the start of the function.
    offset: Option<u64>,
    address: Option<Hex>,
    rva: Option<Hex>,
    /// The name of the stub, such as an entry of a procedure linkage table, at which the frame was
    /// called before it jumped to the function.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    stub: Option<Text<Name<'t>>>,
    /// The functions that the frame reached by tail calls, in order.
    tail_calls: Vec<TailCall<'t>>,
    /// The transition that created the frame; null if it was not observed.
    creation: Option<u64>,
    /// The first context in which the frame is known to exist.
    first: u64,
    /// The last context in which the frame is known to exist.
    last: u64,
    start: Bound,
    end: Bound,
    /// Time of the start; null if it is not known.
    started: Option<Times>,
    /// Nanoseconds from the start to the end; null if one of them is not known.
    duration: Option<Durations>,
    start_type: &'static str,
    end_type: &'static str,
    /// The evidence for the existence of the frame.
    evidence: &'static str,
    /// Whether the frame was observed continuously, or is assumed to be the same call between two
    /// observations.
    continuity: &'static str,
    /// Number of direct and indirect callers.
    depth: u64,
    /// Number of direct and indirect callees.
    descendants: u64,
    least: u64,
    at_least: bool,
}

/// A jump by which a frame continued in another function, which returns in place of the one before.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TailCall<'t> {
    /// The jump.
    transition: u64,
    /// The first context in the function.
    first: u64,
    /// The last context before the next tail call of the frame, or the frame's last one.
    last: u64,
    /// Module and function, or other known facts about the address.
    #[cfg_attr(test, schemars(with = "String"))]
    name: Text<Name<'t>>,
    symbol: Option<&'t str>,
    address: Option<Hex>,
}

impl<'t> From<CallTail<'t>> for TailCall<'t> {
    fn from(found: CallTail<'t>) -> TailCall<'t> {
        let location = found.location();
        TailCall {
            transition: found.transition().id().0,
            first: found.first_context().id().0,
            last: found.last_context().id().0,
            name: Text(found.name()),
            symbol: location.and_then(|location| location.symbol()),
            address: location.and_then(|location| location.address()).map(|address| Hex(address.0)),
        }
    }
}

/// The time of a start or an end.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Bound {
    /// `observed`: at this context. `inferred`: between `lo` and `hi`. `open`: outside of the known
    /// contexts or of the trace.
    #[cfg_attr(test, schemars(extend("enum" = ["observed", "inferred", "open"])))]
    kind: &'static str,
    /// The earliest context.
    lo: Option<u64>,
    /// The latest context.
    hi: Option<u64>,
}

/// The first and the last possible time.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Times {
    earliest: Time,
    latest: Time,
}

impl Times {
    fn of((earliest, latest): (u64, u64)) -> Option<Times> {
        Some(Times { earliest: Time::from_ticks(earliest)?, latest: Time::from_ticks(latest)? })
    }
}

/// The shortest and the longest possible duration, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Durations {
    shortest: u64,
    longest: u64,
}

/// From units of 100 ns.
impl From<(u64, u64)> for Durations {
    fn from((shortest, longest): (u64, u64)) -> Durations {
        Durations { shortest: shortest.saturating_mul(100), longest: longest.saturating_mul(100) }
    }
}

impl From<CallBound> for Bound {
    fn from(bound: CallBound) -> Bound {
        match bound {
            CallBound::Observed(at) => Bound { kind: "observed", lo: Some(at.0), hi: Some(at.0) },
            CallBound::Inferred { lo, hi } => Bound { kind: "inferred", lo: Some(lo.0), hi: Some(hi.0) },
            CallBound::Open => Bound { kind: "open", lo: None, hi: None },
        }
    }
}

impl<'t> From<CallFrame<'t>> for TreeFrame<'t> {
    fn from(frame: CallFrame<'t>) -> TreeFrame<'t> {
        let location = frame.function_location();
        let (module, symbol) = (
            location.and_then(|location| location.module()),
            location.and_then(|location| location.symbol()),
        );
        let descendants = Count::from(frame.descendant_count());
        TreeFrame {
            frame_id: frame.id().0,
            stack_id: frame.stack().id().0.into(),
            name: Text(frame.name()),
            module: module.map(|module| module.name),
            path: module.and_then(|module| module.path),
            symbol,
            offset: location.filter(|_| symbol.is_some()).map(|location| location.symbol_offset()),
            address: location.and_then(|location| location.address()).map(|address| Hex(address.0)),
            rva: location.and_then(|location| location.rva()).map(Hex),
            stub: location.and_then(|location| location.stub()).map(|stub| Text(stub.name())),
            tail_calls: frame.tail_calls().map(TailCall::from).collect(),
            creation: frame.creation_transition().map(|transition| transition.id().0),
            first: frame.first_context().id().0,
            last: frame.last_context().id().0,
            start: frame.start().into(),
            end: frame.end().into(),
            started: frame.start_time().and_then(Times::of),
            duration: frame.duration().map(Durations::from),
            start_type: frame.start_type().name(),
            end_type: frame.end_type().name(),
            evidence: frame.evidence().name(),
            continuity: frame.continuity().name(),
            depth: frame.depth(),
            descendants: descendants.count,
            least: descendants.least,
            at_least: descendants.at_least,
        }
    }
}

/// A number of frames, or of items that belong to frames.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Count {
    count: u64,
    /// Smaller than the count if several of them may be one frame that was observed again.
    least: u64,
    /// Whether there may be more.
    at_least: bool,
}

impl From<FrameCount> for Count {
    fn from(count: FrameCount) -> Count {
        Count { count: count.number(), least: count.least(), at_least: count.is_lower_bound() }
    }
}

/// A context: a point of the trace.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct At {
    context: u64,
    /// The processor of the next transition.
    cpu: u16,
    time: Option<Time>,
}

impl From<Context<'_>> for At {
    fn from(context: Context<'_>) -> At {
        At { context: context.id().0, cpu: context.cpu().0, time: time(context) }
    }
}

/// The time of a context; `None` if the trace has no times.
pub fn time(context: Context<'_>) -> Option<Time> {
    Some(Time(FileTime(i64::try_from(context.time()?).ok()?)))
}

/// A range of consecutive contexts.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ContextRange {
    first: u64,
    last: u64,
    /// Number of contexts.
    contexts: u64,
}

impl From<Range> for ContextRange {
    fn from(range: Range) -> ContextRange {
        ContextRange { first: range.begin().0, last: range.last().0, contexts: range.len() }
    }
}

/// The contexts at which a frame was the innermost one.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CallRange<'t> {
    /// Number of frames between it and the frame of the ranges.
    depth: u64,
    frame_id: u64,
    #[cfg_attr(test, schemars(with = "String"))]
    name: Text<Name<'t>>,
    #[serde(flatten)]
    range: ContextRange,
}

impl<'t> From<Call<'t>> for CallRange<'t> {
    fn from(call: Call<'t>) -> CallRange<'t> {
        CallRange {
            depth: call.depth,
            frame_id: call.frame.id().0,
            name: Text(call.frame.name()),
            range: call.range.into(),
        }
    }
}

/// A stack at a context, without its frames.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TreeStack {
    stack_id: u64,
    #[cfg_attr(test, schemars(extend("enum" = ["user", "kernel", "interrupt", "deferred", "alternate", "wow64"])))]
    kind: &'static str,
    pid: Option<u32>,
    tid: Option<u32>,
    /// The processor of the stack.
    cpu: Option<u16>,
    name: Option<String>,
    context: u64,
    /// Whether the processor executes on the stack at the context.
    active: bool,
    /// Start of the current activity; null if the stack was never active before.
    active_since: Option<Bound>,
}

impl From<CallStack<'_>> for TreeStack {
    fn from(stack: CallStack<'_>) -> TreeStack {
        let info = stack.info();
        TreeStack {
            stack_id: stack.id().0.into(),
            kind: info.kind.name(),
            pid: info.process,
            tid: info.thread,
            cpu: info.cpu.map(|cpu| cpu.0),
            name: info.name,
            context: stack.context().id().0,
            active: stack.is_active(),
            active_since: stack.active_since().map(Bound::from),
        }
    }
}

/// A stack at a context with its frames.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FullStack<'t> {
    #[serde(flatten)]
    stack: TreeStack,
    /// The frames, innermost first.
    frames: Vec<TreeFrame<'t>>,
}

impl<'t> From<CallStack<'t>> for FullStack<'t> {
    fn from(stack: CallStack<'t>) -> FullStack<'t> {
        FullStack { stack: stack.into(), frames: stack.frames().map(TreeFrame::from).collect() }
    }
}

/// `stack --format json`: the stack at a point of the trace, and the stacks before and after it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StackDocument<'t> {
    /// The point of the trace.
    pub at: At,
    /// The stack at this point.
    pub stack: FullStack<'t>,
    /// The stacks that were active before it.
    pub before: Neighbors,
    /// The stacks that were active after it.
    pub after: Neighbors,
}

/// The stacks that were active before or after a period of activity.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Neighbors {
    /// On the same processor.
    pub on_cpu: Option<TreeStack>,
    /// Of the same thread.
    pub of_thread: Option<TreeStack>,
}

/// `backtrace --format json`: the stacks at a point of the trace. Each is followed by the stack
/// below it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Backtrace<'t> {
    /// The point of the trace.
    pub at: At,
    /// The stacks.
    pub stacks: Vec<FullStack<'t>>,
}

/// `tree --format json`: the calls around a frame.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TreeDocument<'t> {
    at: At,
    stack: TreeStack,
    /// The frame at the center of the tree.
    active_frame_id: u64,
    /// Number of omitted callers.
    above: u64,
    rows: Vec<TreeRow<'t>>,
}

impl<'t> TreeDocument<'t> {
    /// A tree at a context of a stack.
    pub fn new(at: Context<'t>, stack: CallStack<'t>, tree: &Tree<'t>) -> TreeDocument<'t> {
        TreeDocument {
            at: at.into(),
            stack: stack.into(),
            active_frame_id: tree.active().id().0,
            above: tree.above(),
            rows: tree.rows().iter().map(|row| TreeRow::from(*row)).collect(),
        }
    }
}

/// A row of a tree.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct TreeRow<'t> {
    /// Indentation level.
    level: u64,
    #[serde(flatten)]
    node: TreeNode<'t>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum TreeNode<'t> {
    /// A frame.
    Frame {
        /// Relation to the frame at the center of the tree.
        relation: &'static str,
        frame: Box<TreeFrame<'t>>,
    },
    /// Omitted frames.
    Cut {
        count: u64,
        /// Smaller than the count if several of them may be one frame that was observed again.
        least: u64,
        /// Whether there may be more.
        at_least: bool,
    },
    /// The processor left the stack and returned.
    Away {
        /// The last context before it left.
        left: u64,
        /// The first context after its return; null if it did not return.
        back: Option<u64>,
    },
    /// Further stack changes are omitted.
    MoreAway,
}

impl<'t> From<Row<'t>> for TreeRow<'t> {
    fn from(row: Row<'t>) -> TreeRow<'t> {
        let node = match row.shown {
            Shown::Frame(frame, relation) => {
                TreeNode::Frame { relation: relation.name(), frame: Box::new(frame.into()) }
            }
            Shown::Cut(count) => {
                let Count { count, least, at_least } = count.into();
                TreeNode::Cut { count, least, at_least }
            }
            Shown::Away { left, back } => TreeNode::Away { left: left.0, back: back.map(|back| back.0) },
            Shown::MoreAway => TreeNode::MoreAway,
        };
        TreeRow { level: row.level as u64, node }
    }
}

/// A change of a stack below a frame: a line of `events-of --format ndjson`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StackChange<'t> {
    /// Whether a frame starts or ends, or the processor leaves or enters the stack.
    #[cfg_attr(test, schemars(extend("enum" = ["start", "end", "leave", "enter"])))]
    change: &'static str,
    /// Number of frames between the changed frame and the requested frame.
    depth: u64,
    /// The transition, if it was observed.
    transition: Option<u64>,
    context: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    frame: Option<ChangedFrame<'t>>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct ChangedFrame<'t> {
    frame_id: u64,
    #[cfg_attr(test, schemars(with = "String"))]
    name: Text<Name<'t>>,
    /// Time of the start or end.
    bound: Bound,
    /// Type of the start or end.
    change_type: &'static str,
}

impl<'t> ChangedFrame<'t> {
    fn new(frame: CallFrame<'t>, bound: CallBound, change_type: &'static str) -> ChangedFrame<'t> {
        ChangedFrame { frame_id: frame.id().0, name: Text(frame.name()), bound: bound.into(), change_type }
    }
}

impl<'t> StackChange<'t> {
    /// Converts a change that is `depth` frames below the requested frame.
    pub fn new(depth: usize, event: StackEvent<'t>) -> StackChange<'t> {
        let (change, transition, context, frame) = match event {
            StackEvent::FrameStart(frame) => {
                let by = frame.creation_transition().map(|by| by.id());
                let changed = ChangedFrame::new(frame, frame.start(), frame.start_type().name());
                ("start", by, frame.first_context(), Some(changed))
            }
            StackEvent::FrameEnd(frame) => {
                let is_seen = frame.has_ended() && matches!(frame.end(), CallBound::Observed(_));
                let last = frame.last_context();
                let by = last.transition_after().filter(|_| is_seen).map(|transition| transition.id());
                ("end", by, last, Some(ChangedFrame::new(frame, frame.end(), frame.end_type().name())))
            }
            StackEvent::StackLeave(by) => ("leave", Some(by.id()), by.context_before(), None),
            StackEvent::StackEnter(by) => ("enter", Some(by.id()), by.context_after(), None),
        };
        StackChange {
            change,
            depth: depth as u64,
            transition: transition.map(|transition| transition.0),
            context: context.id().0,
            frame,
        }
    }
}

/// A call of a function: a line of `calls --format ndjson`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CallLine<'t> {
    /// Time of the call.
    time: Option<Time>,
    pid: Option<u32>,
    tid: Option<u32>,
    /// The tail call by which the frame reached the function that was looked for; null if that was called.
    tail_call: Option<TailCall<'t>>,
    #[serde(flatten)]
    frame: TreeFrame<'t>,
}

impl<'t> From<CallFrame<'t>> for CallLine<'t> {
    fn from(frame: CallFrame<'t>) -> CallLine<'t> {
        let info = frame.stack().info();
        let start = frame.creation_transition().map_or(frame.first_context(), |by| by.context_before());
        CallLine {
            time: time(start),
            pid: info.process,
            tid: info.thread,
            tail_call: None,
            frame: frame.into(),
        }
    }
}

impl<'t> From<CallTail<'t>> for CallLine<'t> {
    fn from(found: CallTail<'t>) -> CallLine<'t> {
        let time = time(found.transition().context_before());
        CallLine { time, tail_call: Some(found.into()), ..CallLine::from(found.frame()) }
    }
}

/// `calls --format json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Calls<'t> {
    /// Number of calls that were found; more than are listed if `--limit` applies.
    found: u64,
    calls: Vec<CallLine<'t>>,
    #[serde(flatten)]
    count: Count,
}

/// `events-of --format json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StackChanges<'t> {
    /// The frame below which the changes occur.
    frame: TreeFrame<'t>,
    events: Vec<StackChange<'t>>,
    #[serde(flatten)]
    count: Count,
}

/// `ranges --format json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Ranges<'t> {
    /// The frame that executes in the ranges.
    frame: TreeFrame<'t>,
    ranges: Vec<RangeLine<'t>>,
    #[serde(flatten)]
    count: Count,
}

/// A line of `ranges --format ndjson`.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub enum RangeLine<'t> {
    /// With `--by-call`.
    OfCall(CallRange<'t>),
    /// Without.
    Of(ContextRange),
}
