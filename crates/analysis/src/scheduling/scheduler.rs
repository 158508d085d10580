//! What each thread did over time, from context switches and ready events: it ran, was ready to run,
//! or waited.
//!
//! A context switch states the thread that leaves the processor, and the state that it leaves in.
//! Only state 5 (waiting) and 6 (its stack is paged in) are waits; a thread that leaves in another
//! state is ready to run. The event that makes a thread ready ends its wait; it can also come before
//! the switch that begins the wait, on another processor.
//!
//! Where records are missing, or contradict each other, nothing is claimed: the time is unknown. The
//! thread that runs at the start of the trace, or after a gap, is known from the next switch of the
//! processor, which states the thread that leaves.

use rustc_hash::FxHashMap;
use stackhound_schema::kernel::view::{CSwitch, ReadyThread};
use stackhound_trace::TraceTime;

/// A processor of a session.
pub type Processor = (u32, Option<u16>);

/// A state of threads, or an unknown one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity<T> {
    /// It ran on the processor of the event.
    Ran,
    /// It was ready to run.
    Ready {
        /// Whether it was interrupted while it ran, and did not wait.
        is_interrupted: bool,
    },
    /// It waited.
    Waited {
        /// The reason (`KWAIT_REASON`).
        reason: u8,
        /// Whether it waited in user mode.
        is_user: bool,
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
pub trait Thread: Copy + Eq + std::hash::Hash {
    /// Whether it is an idle thread, which never waits.
    fn is_idle(self) -> bool;
}

/// The thread of a processor.
#[derive(Clone, Copy, Debug)]
struct Running<T> {
    /// `None` before the first switch, and after a gap.
    thread: Option<T>,
    since: TraceTime,
    /// The time of the last record of the processor.
    checked: TraceTime,
}

/// A thread that is not running.
#[derive(Clone, Copy, Debug)]
struct Off<T> {
    since: TraceTime,
    state: u8,
    reason: u8,
    is_user: bool,
    readied: Option<Readied<T>>,
}

/// A thread.
#[derive(Clone, Copy, Debug)]
enum Place<T> {
    On(Option<Readied<T>>),
    Off(Off<T>),
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

/// `KTHREAD_STATE` of a thread that ended.
const TERMINATED: u8 = 4;
const WAITING: u8 = 5;
const TRANSITION: u8 = 6;

/// Follows the threads of all processors. Costs two look-ups for a switch.
#[derive(Debug)]
pub struct Scheduler<T> {
    start: Option<TraceTime>,
    running: FxHashMap<Processor, Running<T>>,
    places: FxHashMap<T, Place<T>>,
    stats: SchedulerStats,
}

impl<T> Default for Scheduler<T> {
    fn default() -> Scheduler<T> {
        Scheduler {
            start: None,
            running: FxHashMap::default(),
            places: FxHashMap::default(),
            stats: SchedulerStats::default(),
        }
    }
}

impl<T: Thread> Scheduler<T> {
    /// The counters so far.
    pub fn stats(&self) -> SchedulerStats {
        self.stats
    }

    /// Sets the start of the trace. The thread that leaves a processor first has run since then.
    pub fn begin(&mut self, start: TraceTime) {
        self.start.get_or_insert(start);
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
        let start = *self.start.get_or_insert(now);
        let running = self.running.entry(processor);
        let running = running.or_insert(Running { thread: None, since: start, checked: start });
        // A loss after this record begins at its time.
        let until = TraceTime(now.0.saturating_sub(1)).max(running.checked);
        if may_be_lost(running.checked, until) {
            let (activity, from) = (Activity::Unknown, running.since);
            out(Slice { thread: running.thread, processor: Some(processor), activity, from, until: now });
            (running.thread, running.since) = (None, now);
        }
        running.checked = now;
    }

    /// The thread that runs on a processor, if it is known.
    pub fn running(&self, processor: Processor) -> Option<T> {
        self.running.get(&processor)?.thread
    }

    /// A processor switches from one thread to another. `may_be_lost` states whether records of any
    /// processor since a time may be missing. `out` receives what the old thread did until now, and
    /// what the new one did since it left its processor.
    pub fn switch(
        &mut self,
        processor: Processor,
        now: TraceTime,
        (old, new): (T, T),
        event: &CSwitch,
        may_be_lost: impl FnOnce(TraceTime) -> bool,
        out: &mut impl FnMut(Slice<T>),
    ) {
        self.stats.switches += 1;
        let start = *self.start.get_or_insert(now);
        let before = self.running.insert(processor, Running { thread: Some(new), since: now, checked: now });
        let before = before.unwrap_or(Running { thread: None, since: start, checked: start });
        let is_known = before.thread.is_none_or(|thread| thread == old);
        self.stats.contradictions += u64::from(!is_known);
        let (thread, activity) =
            if is_known { (Some(old), Activity::Ran) } else { (before.thread, Activity::Unknown) };
        out(Slice { thread, processor: Some(processor), activity, from: before.since, until: now });
        self.leave(old, now, event);
        self.enter(new, now, may_be_lost, out);
    }

    fn leave(&mut self, old: T, now: TraceTime, event: &CSwitch) {
        if old.is_idle() {
            return;
        }
        if event.old_thread_state == TERMINATED {
            self.places.remove(&old);
            return;
        }
        let early = match self.places.get(&old) {
            Some(Place::On(early)) => *early,
            _ => None,
        };
        let is_wait = matches!(event.old_thread_state, WAITING | TRANSITION);
        let off = Off {
            since: now,
            state: event.old_thread_state,
            reason: event.old_thread_wait_reason,
            is_user: event.thread_flags & 1 != 0,
            readied: early.filter(|_| is_wait),
        };
        self.places.insert(old, Place::Off(off));
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
        let Some(Place::Off(off)) = self.places.insert(new, Place::On(None)) else { return };
        let mut slice = |activity, from, until| {
            if from < until {
                out(Slice { thread: Some(new), processor: None, activity, from, until });
            }
        };
        if may_be_lost(off.since) {
            return slice(Activity::Unknown, off.since, now);
        }
        if !matches!(off.state, WAITING | TRANSITION) {
            return slice(Activity::Ready { is_interrupted: true }, off.since, now);
        }
        let ready = off.readied.map_or(now, |readied| readied.time.max(off.since));
        let waited = Activity::Waited { reason: off.reason, is_user: off.is_user, readied: off.readied };
        slice(waited, off.since, ready);
        slice(Activity::Ready { is_interrupted: false }, ready, now);
    }

    /// A thread is made ready, by the thread that runs on a processor. The first such event ends a
    /// wait.
    pub fn ready(&mut self, processor: Processor, now: TraceTime, thread: T, event: &ReadyThread) {
        let readied = Readied { by: self.running(processor), in_dpc: event.flags & 1 != 0, time: now };
        match self.places.get_mut(&thread) {
            Some(Place::On(early)) => *early = Some(readied),
            Some(Place::Off(off)) if off.readied.is_none() && matches!(off.state, WAITING | TRANSITION) => {
                off.readied = Some(readied);
            }
            Some(Place::Off(_)) => self.stats.spurious += 1,
            None => {}
        }
    }

    /// Ends the trace. `out` receives what is running until now. Threads that still wait are not
    /// reported: their last state has no end. Returns the number of processors.
    pub fn end(&mut self, now: TraceTime, out: &mut impl FnMut(Slice<T>)) -> u32 {
        let mut running: Vec<_> = self.running.drain().collect();
        running.sort_unstable_by_key(|(processor, _)| *processor);
        let processors = running.len() as u32;
        for (processor, Running { thread, since: from, .. }) in running {
            let activity = if thread.is_some() { Activity::Ran } else { Activity::Unknown };
            out(Slice { thread, processor: Some(processor), activity, from, until: now });
        }
        processors
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
    }
    use Step::{Gap, Ready, Switch};

    const READY: u8 = 1;

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

    fn slices(start: i64, steps: &[Step], end: i64) -> (Vec<Slice<u32>>, SchedulerStats) {
        let (mut scheduler, mut slices) = (Scheduler::default(), Vec::new());
        let mut gaps: Vec<i64> = Vec::new();
        let out = &mut |slice| slices.push(slice);
        for processor in 0..2 {
            scheduler.record((0, Some(processor)), TraceTime(start), |_, _| false, out);
        }
        for step in steps {
            match *step {
                Switch(processor, time, old, state, new) => {
                    let lost = |since: TraceTime| gaps.iter().any(|&gap| gap > since.0);
                    let processor = (0, Some(processor));
                    scheduler.switch(processor, TraceTime(time), (old, new), &switch(state), lost, out);
                }
                Ready(processor, time, thread) => {
                    let event = ReadyThread {
                        thread_id: Tid(thread),
                        adjust_reason: 0,
                        adjust_increment: 0,
                        flags: 0,
                    };
                    scheduler.ready((0, Some(processor)), TraceTime(time), thread, &event);
                }
                Gap(processor, time) => {
                    scheduler.record((0, Some(processor)), TraceTime(time), |_, _| true, out);
                    gaps.push(time);
                }
            }
        }
        scheduler.end(TraceTime(end), out);
        (slices, scheduler.stats())
    }

    fn shown(start: i64, steps: &[Step], end: i64) -> Vec<String> {
        let show = |slice: Slice<u32>| {
            let thread = slice.thread.map_or("?".to_owned(), |thread| thread.to_string());
            let did = match slice.activity {
                Activity::Ran => "ran".to_owned(),
                Activity::Ready { is_interrupted } => {
                    if is_interrupted { "interrupted" } else { "ready" }.to_owned()
                }
                Activity::Waited { readied: None, .. } => "waited".to_owned(),
                Activity::Waited { readied: Some(readied), .. } => {
                    format!("waited for {}", readied.by.map_or("?".to_owned(), |by| by.to_string()))
                }
                Activity::Unknown => "unknown".to_owned(),
            };
            format!("{thread} {did} {}..{}", slice.from.0, slice.until.0)
        };
        slices(start, steps, end).0.into_iter().map(show).filter(|text| !text.starts_with('0')).collect()
    }

    #[test]
    fn states_follow_from_switches() {
        let rows: &[(&str, &[Step], &[&str])] = &[
            (
                "a wait, ended by another processor",
                &[Switch(0, 10, 1, WAITING, 0), Ready(1, 30, 1), Switch(0, 35, 0, READY, 1)],
                &[
                    "1 ran 0..10",
                    "1 waited for ? 10..30",
                    "1 ready 30..35",
                    "1 ran 35..100",
                    "? unknown 0..100",
                ],
            ),
            (
                "the end of the quantum is not a wait",
                &[Switch(0, 10, 1, READY, 2), Switch(0, 30, 2, WAITING, 1)],
                &["1 ran 0..10", "2 ran 10..30", "1 interrupted 10..30", "1 ran 30..100", "? unknown 0..100"],
            ),
            (
                "made ready before the switch that begins the wait",
                &[
                    Switch(1, 5, 2, WAITING, 3),
                    Ready(1, 9, 1),
                    Switch(0, 10, 1, WAITING, 0),
                    Switch(0, 12, 0, READY, 1),
                ],
                &["2 ran 0..5", "1 ran 0..10", "1 waited 10..12", "1 ran 12..100", "3 ran 5..100"],
            ),
            (
                "no ready event",
                &[Switch(0, 10, 1, WAITING, 2), Switch(0, 30, 2, TERMINATED, 1)],
                &["1 ran 0..10", "2 ran 10..30", "1 waited 10..30", "1 ran 30..100", "? unknown 0..100"],
            ),
            (
                "the wrong thread leaves",
                &[Switch(0, 10, 1, WAITING, 2), Switch(0, 30, 3, WAITING, 4)],
                &["1 ran 0..10", "2 unknown 10..30", "4 ran 30..100", "? unknown 0..100"],
            ),
            (
                "a gap: the thread before it is unknown, the one after it leaves later",
                &[Switch(0, 10, 1, WAITING, 2), Gap(0, 30), Switch(0, 40, 3, WAITING, 1)],
                &[
                    "1 ran 0..10",
                    "2 unknown 10..30",
                    "3 ran 30..40",
                    "1 unknown 10..40",
                    "1 ran 40..100",
                    "? unknown 0..100",
                ],
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
            let (slices, stats) = slices(100, &steps, end);
            for processor in 0..2 {
                let of: Vec<_> = slices.iter().filter(|slice| slice.processor == Some((0, Some(processor)))).collect();
                // The slices of a processor follow each other without a gap.
                prop_assert_eq!(of.first().map(|slice| slice.from.0), Some(100));
                prop_assert_eq!(of.last().map(|slice| slice.until.0), Some(end));
                prop_assert!(of.windows(2).all(|pair| pair[0].until == pair[1].from));
            }
            prop_assert!(slices.iter().all(|slice| slice.from <= slice.until));
            let contradicted = slices.iter().filter(|slice| slice.activity == Activity::Unknown && slice.processor.is_some());
            prop_assert!(contradicted.count() as u64 >= stats.contradictions);
            if stats.contradictions == 0 && !steps.iter().any(|step| matches!(step, Gap(..))) {
                // A thread is never in two places.
                for thread in 1..6 {
                    let mut of: Vec<_> = slices.iter().filter(|slice| slice.thread == Some(thread) && slice.activity != Activity::Ran).collect();
                    of.sort_by_key(|slice| slice.from);
                    prop_assert!(of.windows(2).all(|pair| pair[0].until <= pair[1].from));
                }
            }
        }
    }
}
