//! The processes, threads and stacks of a trace, and when they were active.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{ContextId, Cpu, StackId};
use crate::succinct::EliasFano;
use crate::trace::ContextRange;
use crate::{Stack, Trace};

/// The periods in which a stack, or any of several stacks, was the active stack of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The number of frames.
    pub frames: u64,
    /// The number of periods.
    pub periods: u64,
    /// The number of contexts in all periods.
    pub contexts: u64,
    /// From the first context at which a stack was active to the last one.
    pub range: Option<ContextRange>,
    /// The shortest and the longest possible time of all periods, in 100 ns. They are equal if the
    /// bounds of all periods were observed. Without the switches of threads, the shortest time is 0,
    /// because only the moments of transitions were observed; the longest one is from the first
    /// transition of each period to the next one of the processor. `None` if the trace has no times.
    pub time: Option<(u64, u64)>,
}

impl Activity {
    /// The activity of two sets of stacks.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let range = match (self.range, other.range) {
            (Some(one), Some(other)) => {
                let (begin, last) = (one.begin().min(other.begin()), one.last().max(other.last()));
                ContextRange::new(begin, last).ok()
            }
            (one, other) => one.or(other),
        };
        let time = match (self.time, other.time) {
            (Some(one), Some(other)) => Some((one.0.saturating_add(other.0), one.1.saturating_add(other.1))),
            (one, other) => one.or(other),
        };
        Self {
            frames: self.frames + other.frames,
            periods: self.periods + other.periods,
            contexts: self.contexts.saturating_add(other.contexts),
            range,
            time,
        }
    }
}

/// The items of a list of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Processes, by id and name. All stacks of processors together are one item.
    Process,
    /// Threads, by process and id. The stacks of each processor together are one item, and so is its
    /// idle thread: all idle threads have the same id.
    Thread,
    /// Single stacks.
    Stack,
}

/// A process, a thread or a stack: some stacks with their activity.
///
/// A trace does not state when ids were used again: two threads of one process that had the same id
/// one after the other are one thread with several stacks of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackGroup {
    /// The process, if known.
    pub process: Option<u32>,
    /// The name of the process, if known.
    pub name: Option<String>,
    /// The thread; `None` for processes, and for stacks of a processor.
    pub thread: Option<u32>,
    /// The processor, for its stacks and its idle thread.
    pub cpu: Option<Cpu>,
    /// The number of threads.
    pub threads: u64,
    /// The stacks, by number; at least one.
    pub stacks: Vec<StackId>,
    /// The activity of all stacks together.
    pub activity: Activity,
}

impl StackGroup {
    /// Its stack at a context: of several, the active one, else the one that was active last, with the
    /// processor on which it is active. `None` if none of them was active so far.
    pub fn stack_at<'t>(&self, trace: &'t Trace, at: ContextId) -> Option<(Stack<'t>, Option<Cpu>)> {
        Stack::latest(self.stacks.iter().filter_map(|id| trace.stack(*id, at).ok()))
    }
}

impl Stack<'_> {
    /// Of some stacks at one context, the active one, else the one that was active last, and the
    /// processor on which it is active. `None` if none of them was active so far.
    pub fn latest(stacks: impl Iterator<Item = Self>) -> Option<(Self, Option<Cpu>)> {
        let known = stacks.filter_map(|stack| {
            let period = stack.period()?;
            let is_active = period.last >= stack.context().id().0;
            Some(((is_active, period.first), (stack, is_active.then_some(period.cpu))))
        });
        known.max_by_key(|(key, _)| *key).map(|(_, found)| found)
    }
}

impl Trace {
    /// The processes, threads or stacks with a stack that `fits`, those with the most frames first.
    /// Costs as much as [`activities`](Trace::activities).
    pub fn groups(&self, by: GroupBy, fits: impl Fn(StackId) -> bool) -> Vec<StackGroup> {
        let mut groups: BTreeMap<_, (StackGroup, BTreeSet<u32>)> = BTreeMap::new();
        for (number, activity) in (0..).zip(self.activities()) {
            if !fits(StackId(number)) {
                continue;
            }
            let info = self.index.tables.stack_info(number);
            let (thread, cpu, stack) = match by {
                GroupBy::Process => (None, None, None),
                GroupBy::Thread => (info.thread, info.cpu, None),
                GroupBy::Stack => (info.thread, info.cpu, Some(number)),
            };
            let key = (info.process, info.name.clone(), thread, cpu.map(|cpu| cpu.0), stack);
            let (group, threads) = groups.entry(key).or_insert_with(|| {
                let (process, name, activity) = (info.process, info.name, Activity::default());
                let (threads, stacks) = (0, Vec::new());
                (StackGroup { process, name, thread, cpu, threads, stacks, activity }, BTreeSet::new())
            });
            group.stacks.push(StackId(number));
            group.activity = group.activity.and(activity);
            threads.extend(info.thread);
        }
        let groups = groups
            .into_values()
            .map(|(group, threads)| StackGroup { threads: threads.len() as u64, ..group });
        let mut groups: Vec<_> = groups.collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.activity.frames));
        groups
    }

    /// The activity of every stack, by its number. Reads all periods of the trace, and the times at
    /// their bounds.
    pub fn activities(&self) -> Vec<Activity> {
        let index = &self.index;
        let mut all: Vec<Activity> =
            (0..self.stack_count()).map(|id| self.without_periods(StackId(id))).collect();
        let mut times = index.times.as_ref().map(EliasFano::cursor);
        let last = self.transition_count().saturating_sub(1);
        let mut time_of = |transition: u64| times.as_mut().map(|times| times.get(transition.min(last)));
        // The earliest and the latest time at which a period began: of the transition before its first
        // context. An inferred one was observed only at the transition of that context.
        let mut begin = |context: u64, slack: u64| {
            let latest = if slack > 0 { context } else { context.saturating_sub(1) };
            Some((time_of(context.saturating_sub(slack + 1))?, time_of(latest)?))
        };
        let is_bounded: Vec<bool> = (0..self.stack_count())
            .map(|id| self.has_switches() || index.tables.stack_info(id).kind.is_of_processor())
            .collect();
        let mut starts = index.periods.cursor();
        let (mut inferred, mut nth) = (index.inferred_periods.cursor(), 0);
        // The number of contexts by which a period may have begun earlier.
        let mut slack_of = |number| {
            while nth < index.inferred_periods.len() && inferred.get(nth) < number {
                nth += 1;
            }
            let is_inferred = nth < index.inferred_periods.len() && inferred.get(nth) == number;
            if is_inferred { index.period_slack.get(nth) } else { 0 }
        };
        let mut next = self.period_with(0, |number| starts.get(number));
        let mut slack = slack_of(0);
        while let Some(period) = next {
            let earlier = slack;
            next = self.period_with(period.number + 1, |number| starts.get(number));
            slack = slack_of(period.number + 1);
            let Some(activity) = period.stack.and_then(|stack| all.get_mut(stack.0 as usize)) else {
                continue;
            };
            let is_followed = next.is_some_and(|next| next.cpu == period.cpu);
            let (end, end_earlier) = (period.last + 1, if is_followed { slack } else { 0 });
            let is_bounded = period.stack.is_some_and(|stack| is_bounded[stack.0 as usize]);
            let mut time = || {
                if !is_bounded {
                    // The moments of the first transition and of the one that ends the period.
                    let ((_, first), (_, last)) = (begin(period.first, 1)?, begin(end, 1)?);
                    return Some((0, last.saturating_sub(first)));
                }
                let (first, last) = (begin(period.first, earlier)?, begin(end, end_earlier)?);
                Some((last.0.saturating_sub(first.1), last.1.saturating_sub(first.0)))
            };
            let range = ContextRange::new(ContextId(period.first), ContextId(period.last.max(period.first)));
            *activity = activity.and(Activity {
                frames: 0,
                periods: 1,
                contexts: end.saturating_sub(period.first),
                range: range.ok(),
                time: time(),
            });
        }
        all
    }

    fn without_periods(&self, stack: StackId) -> Activity {
        let (row, end) = self.row(stack);
        let frames = &self.index.frames;
        let count = frames.rank(end).saturating_sub(frames.rank(row.bounds));
        Activity { frames: count, ..Activity::default() }
    }
}
