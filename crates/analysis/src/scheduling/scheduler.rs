//! What each thread did over time, from context switches and ready events: it ran, was ready to run,
//! or waited.
//!
//! A context switch states the thread that leaves the processor, and whether it waits. A thread that
//! leaves without waiting was preempted and is ready to run. The event that makes a thread ready ends
//! its wait; it can also come before the switch that begins the wait, on another processor.
//!
//! Where records are missing, or contradict each other, nothing is claimed: the time is unknown. The
//! thread that runs at the start of the trace, or after a gap, is known from the next switch of the
//! processor, which states the thread that leaves.

use rustc_hash::FxHashMap;
use stackhound_schema::kernel::view::{CSwitch, ReadyThread};
use stackhound_trace::TraceTime;

/// A processor of the machine. `None` if events state none.
pub type Processor = Option<u16>;

/// What a thread did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity<T> {
    /// It ran on the processor of the event.
    Ran,
    /// It was ready to run.
    Ready {
        /// Whether it was preempted while it ran. Otherwise a wait had ended, or the thread had been
        /// started.
        is_preempted: bool,
    },
    /// It waited.
    Waited {
        /// The reason (`KWAIT_REASON`).
        reason: u8,
        /// Who made it ready. `None` if the event is missing; then the wait contains the time in which
        /// it was ready.
        readied: Option<Readied<T>>,
    },
    /// Records are missing, or contradict each other.
    Unknown,
}

/// Who ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readied<T> {
    /// The thread that ran on the processor. `None` if it is not known.
    pub by: Option<T>,
    /// Whether a deferred procedure call did it, which interrupted that thread.
    pub in_dpc: bool,
    /// The time.
    pub time: TraceTime,
}

/// A part of the life of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice<T> {
    /// The thread; `None` if it is not known.
    pub thread: Option<T>,
    /// The processor, if it ran there.
    pub processor: Option<Processor>,
    /// What it did.
    pub activity: Activity<T>,
    /// Start.
    pub from: TraceTime,
    /// End.
    pub until: TraceTime,
}

/// A thread as the caller knows it. Idle threads are one for each processor.
pub trait Thread: Copy + Ord + std::hash::Hash {
    /// Whether it is an idle thread, which never waits.
    fn is_idle(self) -> bool;
}

/// The thread of a processor.
#[derive(Clone, Copy, Debug)]
struct Running<T> {
    /// `None` before the first switch, and after a gap.
    thread: Option<T>,
    since: TraceTime,
    /// The time of the last record of the processor, if records may be missing from the trace.
    checked: TraceTime,
    /// The last switch: its source and threads.
    last: Option<(u16, T, T)>,
}

/// A thread that is not running.
#[derive(Clone, Copy, Debug)]
struct Off<T> {
    since: TraceTime,
    /// The reason of its wait; `None` if it is ready to run.
    waits: Option<u8>,
    /// Whether it was preempted, if it is ready to run.
    is_preempted: bool,
    readied: Option<Readied<T>>,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug)]
enum ThreadState<T> {
    /// It runs. An event may have made it ready before the switch at which it begins to wait.
    Running(Option<Readied<T>>),
    NotRunning(Off<T>),
}

/// Counters of contradictions and of what could not be attributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SchedulerStats {
    /// Context switches.
    pub switches: u64,
    /// Switches from a thread that was not known to run on the processor.
    pub contradictions: u64,
    /// Ready events of threads that did not wait.
    pub spurious: u64,
}

impl SchedulerStats {
    /// Adds what was counted between two states.
    pub fn add(&mut self, before: SchedulerStats, after: SchedulerStats) {
        self.switches += after.switches - before.switches;
        self.contradictions += after.contradictions - before.contradictions;
        self.spurious += after.spurious - before.spurious;
    }
}

/// Follows the threads of all processors. Costs two look-ups for a switch.
#[derive(Debug)]
pub struct Scheduler<T> {
    running: FxHashMap<Processor, Running<T>>,
    threads: FxHashMap<T, ThreadState<T>>,
    /// The end of the last time in which no switches were recorded.
    recorded_since: TraceTime,
    stats: SchedulerStats,
}

impl<T> Default for Scheduler<T> {
    fn default() -> Scheduler<T> {
        Scheduler {
            running: FxHashMap::default(),
            threads: FxHashMap::default(),
            recorded_since: TraceTime(i64::MIN),
            stats: SchedulerStats::default(),
        }
    }
}

impl<T: Thread> Scheduler<T> {
    /// The counters so far.
    pub fn stats(&self) -> SchedulerStats {
        self.stats
    }

    /// Observes that a processor has logged a record. `may_be_lost` states whether records of the
    /// processor between two times may be missing; without losses, this need not be called.
    pub fn record(
        &mut self,
        processor: Processor,
        now: TraceTime,
        may_be_lost: impl FnOnce(TraceTime, TraceTime) -> bool,
        out: &mut impl FnMut(Slice<T>),
    ) {
        let Some(running) = self.running.get_mut(&processor) else { return };
        // A loss after this record begins at its time.
        let until = TraceTime(now.0.saturating_sub(1)).max(running.checked);
        if may_be_lost(running.checked, until) {
            running.leave(processor, running.checked, out);
            running.since = now;
        }
        running.checked = now;
    }

    /// Between these times, no switches were recorded: a session ended, and another one started.
    pub fn gap(&mut self, from: TraceTime, until: TraceTime, out: &mut impl FnMut(Slice<T>)) {
        let mut processors: Vec<_> = self.running.iter_mut().collect();
        processors.sort_unstable_by_key(|(processor, _)| **processor);
        for (processor, running) in processors {
            running.leave(*processor, from, out);
            (running.since, running.checked) = (until, until);
        }
        self.recorded_since = self.recorded_since.max(until);
    }

    /// The thread that runs on a processor, if it is known.
    pub fn running(&self, processor: Processor) -> Option<T> {
        self.running.get(&processor)?.thread
    }

    /// A processor switches from one thread to another. `start` is the start of the switch's source,
    /// which matters for the first switch of a processor. `may_be_lost` states whether records of any
    /// processor since a time may be missing. `out` receives what the old thread did until now, and
    /// what the new one did since it left its processor.
    pub fn switch(
        &mut self,
        (processor, source): (Processor, u16),
        (start, now): (TraceTime, TraceTime),
        (old, new): (T, T),
        event: &CSwitch,
        may_be_lost: impl FnOnce(TraceTime) -> bool,
        out: &mut impl FnMut(Slice<T>),
    ) {
        let since = start.min(now);
        let running = self.running.entry(processor);
        let running = running.or_insert(Running { thread: None, since, checked: since, last: None });
        // Two sessions can record the same switch.
        if running.last.is_some_and(|(other, from, to)| other != source && (from, to) == (old, new)) {
            running.last = None;
            return;
        }
        self.stats.switches += 1;
        let is_known = running.thread.is_none_or(|thread| thread == old);
        self.stats.contradictions += u64::from(!is_known);
        let (thread, activity) =
            if is_known { (Some(old), Activity::Ran) } else { (running.thread, Activity::Unknown) };
        out(Slice { thread, processor: Some(processor), activity, from: running.since, until: now });
        *running = Running { thread: Some(new), since: now, checked: now, last: Some((source, old, new)) };
        self.leave(old, now, event);
        self.enter(new, now, may_be_lost, out);
    }

    fn leave(&mut self, old: T, now: TraceTime, event: &CSwitch) {
        if old.is_idle() {
            return;
        }
        if event.old_thread_ends() {
            self.threads.remove(&old);
            return;
        }
        let waits = event.old_thread_waits().then_some(event.old_thread_wait_reason);
        let readied = match self.threads.get(&old) {
            Some(ThreadState::Running(early)) if waits.is_some() => *early,
            _ => None,
        };
        let off = Off { since: now, waits, is_preempted: waits.is_none(), readied };
        self.threads.insert(old, ThreadState::NotRunning(off));
    }

    fn enter(
        &mut self,
        new: T,
        now: TraceTime,
        may_be_lost: impl FnOnce(TraceTime) -> bool,
        out: &mut impl FnMut(Slice<T>),
    ) {
        if new.is_idle() {
            return;
        }
        if let Some(ThreadState::NotRunning(off)) = self.threads.insert(new, ThreadState::Running(None)) {
            let is_unknown = off.since < self.recorded_since || may_be_lost(off.since);
            off.slices(new, now, is_unknown, out);
        }
    }

    /// A thread is started: it is ready to run.
    pub fn start(&mut self, now: TraceTime, thread: T) {
        let off = Off { since: now, waits: None, is_preempted: false, readied: None };
        self.threads.entry(thread).or_insert(ThreadState::NotRunning(off));
    }

    /// A thread that does not run is another one now. Whether that is the same one, under another
    /// name, is known to the caller; else it has ended.
    pub fn replace(&mut self, thread: T, other: T, is_same: bool) {
        if let Some(state) = self.threads.remove(&thread)
            && is_same
        {
            self.threads.insert(other, state);
        }
    }

    /// A thread is made ready, by the thread that runs on a processor. The first such event ends a
    /// wait. Returns whether this one does, as far as it is known so far.
    pub fn ready(&mut self, processor: Processor, now: TraceTime, thread: T, event: &ReadyThread) -> bool {
        let readied = Readied { by: self.running(processor), in_dpc: event.flags & 1 != 0, time: now };
        match self.threads.get_mut(&thread) {
            Some(ThreadState::Running(early)) => *early = Some(readied),
            Some(ThreadState::NotRunning(off)) if off.readied.is_none() && off.waits.is_some() => {
                off.readied = Some(readied);
            }
            Some(ThreadState::NotRunning(_)) => {
                self.stats.spurious += 1;
                return false;
            }
            None => return false,
        }
        true
    }

    /// Ends the trace. `may_be_lost` states whether records of a processor between two times may be
    /// missing. `running` receives what ran until now, `open` what threads did that have not run
    /// since.
    pub fn end(
        &mut self,
        now: TraceTime,
        may_be_lost: impl Fn(Processor, TraceTime, TraceTime) -> bool,
        running: &mut impl FnMut(Slice<T>),
        open: &mut impl FnMut(Slice<T>),
    ) {
        let mut processors: Vec<_> = self.running.drain().collect();
        processors.sort_unstable_by_key(|(processor, _)| *processor);
        for (processor, mut last) in processors {
            let until = if may_be_lost(processor, last.checked, now) { last.checked } else { now };
            last.leave(processor, until, running);
        }
        let mut threads: Vec<_> = self.threads.drain().collect();
        threads.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, state) in threads {
            if let ThreadState::NotRunning(off) = state {
                off.slices(thread, now, off.since < self.recorded_since, open);
            }
        }
    }
}

impl<T: Thread> Running<T> {
    /// Ends what the thread did at a time. Which one runs then is not known.
    fn leave(&mut self, processor: Processor, until: TraceTime, out: &mut impl FnMut(Slice<T>)) {
        let (thread, from) = (self.thread.take(), self.since);
        let activity = if thread.is_some() { Activity::Ran } else { Activity::Unknown };
        if from < until {
            out(Slice { thread, processor: Some(processor), activity, from, until });
        }
        (self.since, self.last) = (until.max(from), None);
    }
}

impl<T: Thread> Off<T> {
    /// What the thread did until it runs.
    fn slices(self, thread: T, now: TraceTime, is_unknown: bool, out: &mut impl FnMut(Slice<T>)) {
        let mut slice = |activity, from, until| {
            if from < until {
                out(Slice { thread: Some(thread), processor: None, activity, from, until });
            }
        };
        let is_preempted = self.is_preempted;
        match self.waits {
            _ if is_unknown => slice(Activity::Unknown, self.since, now),
            None => slice(Activity::Ready { is_preempted }, self.since, now),
            Some(reason) => {
                let ready = self.readied.map_or(now, |readied| readied.time.max(self.since)).min(now);
                slice(Activity::Waited { reason, readied: self.readied }, self.since, ready);
                slice(Activity::Ready { is_preempted }, ready, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stackhound_types::Tid;

    use super::*;

    impl Thread for u32 {
        fn is_idle(self) -> bool {
            self == 0
        }
    }

    /// A record of a trace.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Processor, time, thread that leaves, its state, thread that enters.
        Switch(u16, i64, u32, u8, u32),
        /// Processor, time, thread.
        Ready(u16, i64, u32),
        /// Processor and time of the first record after a gap.
        Gap(u16, i64),
        /// Time, thread.
        Start(i64, u32),
        /// The same switch, recorded by another session.
        Again(u16, i64, u32, u8, u32),
        /// No session records switches between these times.
        Pause(i64, i64),
    }
    use Step::{Again, Gap, Pause, Ready, Start, Switch};

    const READY: u8 = 1;
    const TERMINATED: u8 = 4;
    const WAITING: u8 = 5;

    fn switch(state: u8) -> CSwitch {
        CSwitch {
            new_thread_id: Tid(0),
            old_thread_id: Tid(0),
            new_thread_priority: 0,
            old_thread_priority: 0,
            previous_c_state: 0,
            spare_byte: 0,
            old_thread_wait_reason: 6,
            thread_flags: 1,
            old_thread_state: state,
            old_thread_wait_ideal_processor: 0,
            new_thread_wait_time: 0,
            reserved: 0,
        }
    }

    /// The slices, those that are open at the end, and the counters.
    fn slices(start: i64, steps: &[Step], end: i64) -> (Vec<Slice<u32>>, Vec<Slice<u32>>, SchedulerStats) {
        let (mut scheduler, mut slices) = (Scheduler::default(), Vec::new());
        let mut gaps: Vec<i64> = Vec::new();
        let out = &mut |slice| slices.push(slice);
        for step in steps {
            match *step {
                Switch(processor, time, old, state, new) | Again(processor, time, old, state, new) => {
                    let source = u16::from(matches!(step, Again(..)));
                    let lost = |since: TraceTime| gaps.iter().any(|&gap| gap > since.0);
                    let times = (TraceTime(start), TraceTime(time));
                    scheduler.switch((Some(processor), source), times, (old, new), &switch(state), lost, out);
                }
                Ready(processor, time, thread) => {
                    let event = ReadyThread {
                        thread_id: Tid(thread),
                        adjust_reason: 0,
                        adjust_increment: 0,
                        flags: 0,
                    };
                    scheduler.ready(Some(processor), TraceTime(time), thread, &event);
                }
                Pause(from, until) => scheduler.gap(TraceTime(from), TraceTime(until), out),
                Start(time, thread) => scheduler.start(TraceTime(time), thread),
                Gap(processor, time) => {
                    scheduler.record(Some(processor), TraceTime(time), |_, _| true, out);
                    gaps.push(time);
                }
            }
        }
        let mut open = Vec::new();
        scheduler.end(TraceTime(end), |_, _, _| false, out, &mut |slice| open.push(slice));
        (slices, open, scheduler.stats())
    }

    fn shown(start: i64, steps: &[Step], end: i64) -> Vec<String> {
        let show = |slice: Slice<u32>| {
            let thread = slice.thread.map_or("?".to_owned(), |thread| thread.to_string());
            let did = match slice.activity {
                Activity::Ran => "ran".to_owned(),
                Activity::Ready { is_preempted } => {
                    if is_preempted { "preempted" } else { "ready" }.to_owned()
                }
                Activity::Waited { readied: None, .. } => "waited".to_owned(),
                Activity::Waited { readied: Some(readied), .. } => {
                    format!("waited for {}", readied.by.map_or("?".to_owned(), |by| by.to_string()))
                }
                Activity::Unknown => "unknown".to_owned(),
            };
            format!("{thread} {did} {}..{}", slice.from.0, slice.until.0)
        };
        let (slices, open, _) = slices(start, steps, end);
        let slices = slices.into_iter().map(show).filter(|text| !text.starts_with('0'));
        slices.chain(open.into_iter().map(|slice| format!("open: {}", show(slice)))).collect()
    }

    #[test]
    fn states_follow_from_switches() {
        let rows: &[(&str, &[Step], &[&str])] = &[
            (
                "a wait, ended by another processor",
                &[Switch(0, 10, 1, WAITING, 0), Ready(1, 30, 1), Switch(0, 35, 0, READY, 1)],
                &["1 ran 0..10", "1 waited for ? 10..30", "1 ready 30..35", "1 ran 35..100"],
            ),
            (
                "the end of the quantum is not a wait",
                &[Switch(0, 10, 1, READY, 2), Switch(0, 30, 2, WAITING, 1)],
                &[
                    "1 ran 0..10",
                    "2 ran 10..30",
                    "1 preempted 10..30",
                    "1 ran 30..100",
                    "open: 2 waited 30..100",
                ],
            ),
            (
                "made ready before the switch that begins the wait",
                &[
                    Switch(0, 2, 0, READY, 1),
                    Switch(1, 5, 2, WAITING, 3),
                    Ready(1, 9, 1),
                    Switch(0, 10, 1, WAITING, 0),
                    Switch(0, 12, 0, READY, 1),
                ],
                &[
                    "2 ran 0..5",
                    "1 ran 2..10",
                    "1 ready 10..12",
                    "1 ran 12..100",
                    "3 ran 5..100",
                    "open: 2 waited 5..100",
                ],
            ),
            (
                "no ready event",
                &[Switch(0, 10, 1, WAITING, 2), Switch(0, 30, 2, TERMINATED, 1)],
                &["1 ran 0..10", "2 ran 10..30", "1 waited 10..30", "1 ran 30..100"],
            ),
            (
                "the wrong thread leaves",
                &[Switch(0, 10, 1, READY, 2), Switch(0, 30, 3, TERMINATED, 4)],
                &["1 ran 0..10", "2 unknown 10..30", "4 ran 30..100", "open: 1 preempted 10..100"],
            ),
            (
                "a gap: what ran in it is not known, and what runs after it leaves later",
                &[Switch(0, 10, 1, WAITING, 2), Gap(0, 30), Switch(0, 40, 3, TERMINATED, 1)],
                &["1 ran 0..10", "3 ran 30..40", "1 unknown 10..40", "1 ran 40..100"],
            ),
            (
                "two sessions record the same switches",
                &[
                    Switch(0, 10, 1, WAITING, 2),
                    Again(0, 10, 1, WAITING, 2),
                    Switch(0, 30, 2, TERMINATED, 1),
                    Again(0, 30, 2, TERMINATED, 1),
                ],
                &["1 ran 0..10", "2 ran 10..30", "1 waited 10..30", "1 ran 30..100"],
            ),
            (
                "between two sessions, nothing is known",
                &[Switch(0, 10, 1, WAITING, 2), Pause(20, 40), Switch(0, 50, 2, TERMINATED, 1)],
                &["1 ran 0..10", "2 ran 10..20", "2 ran 40..50", "1 unknown 10..50", "1 ran 50..100"],
            ),
            (
                "a thread is ready from its start on",
                &[Switch(0, 10, 1, TERMINATED, 0), Start(20, 2), Switch(0, 25, 0, READY, 2)],
                &["1 ran 0..10", "2 ready 20..25", "2 ran 25..100"],
            ),
        ];
        for (name, steps, expected) in rows {
            assert_eq!(shown(0, steps, 100), *expected, "{name}");
        }
    }

    proptest! {
        /// Random switches of two processors and five threads, of which some contradict each other.
        #[test]
        fn times_are_conserved(
            steps in prop::collection::vec((0..2_u16, 0..6_u32, 0..8_u8, 0..6_u32, 0..9_u8), 0..60)
        ) {
            let mut time = 100;
            let steps: Vec<Step> = steps.into_iter().map(|(processor, old, state, new, kind)| {
                time += 7;
                match kind {
                    0 => Gap(processor, time),
                    1 | 2 => Ready(processor, time, new),
                    _ => Switch(processor, time, old, state, new),
                }
            }).collect();
            let end = time + 50;
            let (slices, open, stats) = slices(100, &steps, end);
            let has_gaps = steps.iter().any(|step| matches!(step, Gap(..)));
            for processor in 0..2 {
                let of: Vec<_> = slices.iter().filter(|slice| slice.processor == Some(Some(processor))).collect();
                let (Some(first), Some(last)) = (of.first(), of.last()) else { continue };
                // The slices of a processor follow each other, without a gap if there is none.
                prop_assert!(first.from.0 == 100 && last.until.0 <= end);
                prop_assert!(of.windows(2).all(|pair| pair[0].until <= pair[1].from));
                if !has_gaps {
                    prop_assert!(last.until.0 == end && of.windows(2).all(|pair| pair[0].until == pair[1].from));
                }
            }
            prop_assert!(slices.iter().all(|slice| slice.from <= slice.until));
            let contradicted = slices.iter().filter(|slice| slice.activity == Activity::Unknown && slice.processor.is_some());
            prop_assert!(contradicted.count() as u64 >= stats.contradictions);
            if stats.contradictions == 0 && !has_gaps {
                // A thread is never in two states.
                for thread in 1..6 {
                    let mut of: Vec<_> = slices.iter().chain(&open).filter(|slice| slice.thread == Some(thread) && slice.activity != Activity::Ran).collect();
                    of.sort_by_key(|slice| slice.from);
                    prop_assert!(of.windows(2).all(|pair| pair[0].until <= pair[1].from));
                }
            }
        }
    }
}
