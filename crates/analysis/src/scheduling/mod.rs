//! What each thread did over time, from the context switches and ready events of a trace.

pub mod scheduler;

use rustc_hash::FxHashMap;
use stackhound_pipeline::{EventView, TraceState};
use stackhound_profile::{Full, ThreadId};
use stackhound_schema::kernel::{hook_id, view as payload};
use stackhound_trace::{LossMap, TraceTime};
use stackhound_types::Tid;

use self::scheduler::{Processor, Scheduler, SchedulerStats, Slice, Thread};
use crate::parts::Parts;

/// A thread, or the idle thread of a processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// The idle thread of this processor.
    Idle(Processor),
    /// A thread.
    Thread(ThreadId),
}

impl Thread for Key {
    fn is_idle(self) -> bool {
        matches!(self, Key::Idle(_))
    }
}

/// A source of events: a file, or a session appended to it.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// Times of its first event and of its last kernel event: other sessions can be in the same file.
    times: (TraceTime, TraceTime),
    has_switches: bool,
}

/// Follows the threads of all processors through the events of a trace.
#[derive(Debug, Default)]
pub struct Scheduling {
    scheduler: Scheduler<Key>,
    sources: Vec<Option<Source>>,
    /// What became known with the last event; kept for its memory.
    slices: Vec<Slice<Key>>,
    /// The threads as the scheduler knows them.
    threads: FxHashMap<Tid, ThreadId>,
    /// The thread that the last event made ready.
    readied: Option<Key>,
    compact: u64,
}

impl Scheduling {
    /// The counters so far.
    pub fn stats(&self) -> SchedulerStats {
        self.scheduler.stats()
    }

    /// The number of records with switches in the compact form, which is not read. With them, times
    /// are incomplete.
    pub fn compact(&self) -> u64 {
        self.compact
    }

    /// The thread whose wait the last event ended.
    pub fn readied(&self) -> Option<Key> {
        self.readied
    }

    /// Observes the next event, and returns what becomes known with it. Of the slices of a switch,
    /// those without a processor belong to the new thread, whose stack the event has. Every event
    /// of the trace must be passed.
    ///
    /// # Errors
    /// If there are too many threads, processes, stacks or frames.
    #[inline]
    pub fn observe(&mut self, view: &EventView<'_>, parts: &mut Parts) -> Result<&[Slice<Key>], Full> {
        self.slices.clear();
        self.readied = None;
        let (number, now) = (usize::from(view.event().source()), view.time());
        if self.sources.len() <= number {
            self.sources.resize(number + 1, None);
        }
        let source = self.sources[number].get_or_insert(Source { times: (now, now), has_switches: false });
        if view.kernel_id().is_some() {
            source.times.1 = source.times.1.max(now);
        }
        if source.has_switches {
            self.check_losses(view);
        }
        match view.kernel_id() {
            Some(hook_id::THREAD_C_SWITCH) => self.switch(view, parts)?,
            Some(hook_id::THREAD_READY_THREAD) => self.ready(view, parts)?,
            Some(hook_id::THREAD_START) => self.start(view, parts)?,
            Some(hook_id::THREAD_COMPACT_C_SWITCH) => self.compact += 1,
            _ => {}
        }
        Ok(&self.slices)
    }

    /// Ends the trace. `running` receives what ran until the end, `open` what threads did that have
    /// not run since.
    pub fn end(
        &mut self,
        known: &TraceState,
        running: &mut impl FnMut(Slice<Key>),
        open: &mut impl FnMut(Slice<Key>),
    ) {
        let Some(end) = self.with_switches().map(|(_, source)| source.times.1).max() else { return };
        let sources: Vec<u16> = self.with_switches().map(|(number, _)| number).collect();
        let losses = known.losses();
        let may_be_lost = |processor: Processor, from: TraceTime, until: TraceTime| {
            !losses.is_lossless()
                && sources.iter().any(|source| losses.on_processor(*source, processor, from.0, until.0))
        };
        self.scheduler.end(end, may_be_lost, running, open);
    }

    /// Whether records between a time and the end of the trace may be missing.
    pub fn may_be_lost_since(&self, known: &TraceState, since: TraceTime) -> bool {
        may_be_lost(known.losses(), (0..).zip(&self.sources), since, TraceTime(i64::MAX))
    }

    /// The sources with switches. Losses of others do not matter.
    fn with_switches(&self) -> impl Iterator<Item = (u16, &Source)> {
        let numbered = (0..).zip(&self.sources);
        numbered.filter_map(|(number, source)| {
            Some((number, source.as_ref().filter(|source| source.has_switches)?))
        })
    }

    /// Notes gaps in the records of the processor.
    #[inline]
    fn check_losses(&mut self, view: &EventView<'_>) {
        let losses = view.trace_state().losses();
        if losses.is_lossless() {
            return;
        }
        let processor = view.processor();
        let may_be_lost = |from: TraceTime, until: TraceTime| {
            losses.on_processor(view.event().source(), processor, from.0, until.0)
        };
        let slices = &mut self.slices;
        self.scheduler.record(processor, view.time(), may_be_lost, &mut |slice| slices.push(slice));
    }

    fn switch(&mut self, view: &EventView<'_>, parts: &mut Parts) -> Result<(), Full> {
        let pointer_size = view.event().record().pointer_size();
        let parsed = payload::CSwitch::parse(view.payload(), view.version(), pointer_size);
        let Ok(parsed) = parsed else { return Ok(()) };
        let (number, now) = (view.event().source(), view.time());
        let start = self.begin_switches(number);
        let processor = (view.processor(), number);
        let old = self.switched_out(view, parts, parsed.old_thread_id)?;
        let new = self.switched_in(view, parts, parsed.new_thread_id)?;
        let losses = view.trace_state().losses();
        let sources = (0..).zip(&self.sources);
        let may_be_lost = |since: TraceTime| may_be_lost(losses, sources, since, now);
        let slices = &mut self.slices;
        let out = &mut |slice| slices.push(slice);
        self.scheduler.switch(processor, (start, now), (old, new), &parsed, may_be_lost, out);
        Ok(())
    }

    /// The thread that leaves the processor: the one that it was switched to, if that is known. What is
    /// known of its process can change in between.
    fn switched_out(&self, view: &EventView<'_>, parts: &mut Parts, tid: Tid) -> Result<Key, Full> {
        match self.scheduler.running(view.processor()) {
            Some(Key::Thread(thread)) if parts.builder.tid(thread) == Some(tid.0) => Ok(Key::Thread(thread)),
            _ => self.known(view, parts, tid),
        }
    }

    /// The thread that the processor is switched to. It is the one that left with this id, if events
    /// do not state another process for it since then.
    fn switched_in(&mut self, view: &EventView<'_>, parts: &mut Parts, tid: Tid) -> Result<Key, Full> {
        let new = key(view, parts, tid)?;
        let Key::Thread(thread) = new else { return Ok(new) };
        if let Some(last) = self.threads.insert(tid, thread).filter(|last| *last != thread) {
            self.scheduler.replace(Key::Thread(last), new, is_same(parts, last, thread));
        }
        Ok(new)
    }

    /// The thread with an id, as the scheduler knows it.
    fn known(&self, view: &EventView<'_>, parts: &mut Parts, tid: Tid) -> Result<Key, Full> {
        let now = key(view, parts, tid)?;
        Ok(match (now, self.threads.get(&tid)) {
            (Key::Thread(thread), Some(&last)) if is_same(parts, last, thread) => Key::Thread(last),
            _ => now,
        })
    }

    /// Notes that a source has switches. Returns its start.
    fn begin_switches(&mut self, number: u16) -> TraceTime {
        let Some(source) = self.sources.get(usize::from(number)).copied().flatten() else {
            return TraceTime(i64::MAX);
        };
        let start = source.times.0;
        if !source.has_switches {
            // An earlier session that recorded switches has ended before.
            let earlier = self.with_switches().map(|(_, source)| source.times.1).max();
            if let Some(end) = earlier.filter(|end| *end < start) {
                let slices = &mut self.slices;
                self.scheduler.gap(end, start, &mut |slice| slices.push(slice));
            }
            self.sources[usize::from(number)] = Some(Source { has_switches: true, ..source });
        }
        start
    }

    fn ready(&mut self, view: &EventView<'_>, parts: &mut Parts) -> Result<(), Full> {
        let pointer_size = view.event().record().pointer_size();
        let parsed = payload::ReadyThread::parse(view.payload(), view.version(), pointer_size);
        let Ok(parsed) = parsed else { return Ok(()) };
        let thread = self.known(view, parts, parsed.thread_id)?;
        let ends_wait = self.scheduler.ready(view.processor(), view.time(), thread, &parsed);
        self.readied = ends_wait.then_some(thread);
        Ok(())
    }

    fn start(&mut self, view: &EventView<'_>, parts: &mut Parts) -> Result<(), Full> {
        let pointer_size = view.event().record().pointer_size();
        let parsed = payload::Thread::parse(view.payload(), view.version(), pointer_size);
        let Ok(parsed) = parsed else { return Ok(()) };
        if let Key::Thread(thread) = key(view, parts, parsed.thread_id)? {
            self.threads.insert(parsed.thread_id, thread);
            self.scheduler.start(view.time(), Key::Thread(thread));
        }
        Ok(())
    }
}

/// Whether records of a source with switches may be missing since a time.
fn may_be_lost<'s>(
    losses: &LossMap,
    sources: impl IntoIterator<Item = (u16, &'s Option<Source>)>,
    since: TraceTime,
    now: TraceTime,
) -> bool {
    let until = now.0.saturating_sub(1);
    let has_switches = |source: &Option<Source>| source.is_some_and(|source| source.has_switches);
    !losses.is_lossless()
        && sources
            .into_iter()
            .any(|(number, source)| has_switches(source) && losses.between(number, since.0, until))
}

fn key(view: &EventView<'_>, parts: &mut Parts, tid: Tid) -> Result<Key, Full> {
    if tid == Tid(0) {
        return Ok(Key::Idle(view.processor()));
    }
    Ok(Key::Thread(parts.thread(view, tid)?.1))
}

/// Whether two threads that had an id one after the other can be one: nothing states different
/// processes.
fn is_same(parts: &Parts, first: ThreadId, second: ThreadId) -> bool {
    let [first, second] = [first, second].map(|thread| parts.builder.pid(parts.builder.process_of(thread)));
    first.zip(second).is_none_or(|(first, second)| first == second)
}
