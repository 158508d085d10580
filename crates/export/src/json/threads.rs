//! The processes, threads and stacks of the stack model, as `threads` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_calltree::{ContextId, ContextRange, GroupBy, StackGroup, Trace};

use super::tree::{At, Durations, TreeFrame, time};
use super::value::Time;

/// A process, a thread or a stack: a line of `threads --format ndjson`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ThreadRow<'t> {
    pid: Option<u32>,
    /// Name of the process or the stack.
    name: Option<String>,
    /// The thread; null for processes and for stacks of a processor.
    tid: Option<u32>,
    /// The processor, for its interrupts and its idle thread.
    cpu: Option<u16>,
    /// Number of the stack; null for processes and threads.
    stack_id: Option<u64>,
    #[cfg_attr(test, schemars(extend("enum" = ["user", "kernel", "interrupt", "deferred", "alternate", "wow64", null])))]
    kind: Option<&'static str>,
    /// Number of threads.
    threads: u64,
    /// Number of stacks.
    stacks: u64,
    /// Number of observed frames; in sampled traces there may have been more.
    frames: u64,
    /// How often one of the stacks became active.
    periods: u64,
    /// Number of contexts at which one of the stacks was active.
    contexts: u64,
    /// The first context at which one of the stacks was active.
    first: Option<u64>,
    /// The last context at which one of the stacks was active.
    last: Option<u64>,
    /// Time of the first context.
    from: Option<Time>,
    /// Time of the last context.
    to: Option<Time>,
    /// Nanoseconds for which the stacks were active. Without context switches, a thread was observed
    /// only at moments: the shortest time is 0.
    active: Option<Durations>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    now: Option<Now<'t>>,
}

/// A thread or a stack at the position of `--at`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Now<'t> {
    /// The processor on which it is active; null if it is not.
    on: Option<u16>,
    /// The innermost known frame, if it is not active that of its last activity.
    frame: Option<TreeFrame<'t>>,
}

impl<'t> ThreadRow<'t> {
    /// A row of a list by `by`. `at` is the position at which the active processor and the innermost
    /// frame are shown.
    pub fn new(trace: &'t Trace, by: GroupBy, group: &StackGroup, at: Option<ContextId>) -> ThreadRow<'t> {
        let StackGroup { activity, .. } = group;
        let single = match group.stacks[..] {
            [id] if by == GroupBy::Stack => trace.stack(id, ContextId(0)).ok(),
            _ => None,
        };
        let now = at.filter(|_| by != GroupBy::Process).map(|at| {
            let (stack, on) = group.stack_at(trace, at).unzip();
            let frame = stack.and_then(|stack| stack.frame()).map(TreeFrame::from);
            Now { on: on.flatten().map(|cpu| cpu.0), frame }
        });
        let time = |at: fn(&ContextRange) -> ContextId| time(trace.context(at(&activity.range?)).ok()?);
        ThreadRow {
            pid: group.process,
            name: group.name.clone(),
            tid: group.thread,
            cpu: group.cpu.map(|cpu| cpu.0),
            stack_id: single.map(|stack| stack.id().0.into()),
            kind: single.map(|stack| stack.info().kind.name()),
            threads: group.threads,
            stacks: group.stacks.len() as u64,
            frames: activity.frames,
            periods: activity.periods,
            contexts: activity.contexts,
            first: activity.range.map(|range| range.begin().0),
            last: activity.range.map(|range| range.last().0),
            from: time(ContextRange::begin),
            to: time(ContextRange::last),
            active: activity.time.map(Durations::from),
            now,
        }
    }
}

/// `threads --format json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Threads<'t> {
    /// The position of `--at`.
    pub at: Option<At>,
    /// Number of processes, threads or stacks; more than are listed if `--limit` applies.
    pub found: u64,
    /// Processes, threads or stacks, as selected by `--by`; those with the most frames first.
    pub rows: Vec<ThreadRow<'t>>,
}
