//! What each thread did over time, from the context switches and ready events of a trace.

pub mod scheduler;

use stackhound_pipeline::EventView;
use stackhound_profile::{Full, ThreadId};
use stackhound_schema::kernel::{hook_id, view as payload};
use stackhound_trace::TraceTime;
use stackhound_types::Tid;

use self::scheduler::{Processor, Scheduler, SchedulerStats, Slice, Thread};
use crate::parts::Parts;

/// A thread, or the idle thread of a processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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

/// The processor that logged an event.
pub fn processor_of(view: &EventView<'_>) -> Processor {
    let event = view.event();
    (event.session_number(), event.processor())
}

/// Follows the threads of all processors through the events of a trace.
#[derive(Debug, Default)]
pub struct Scheduling {
    scheduler: Scheduler<Key>,
    /// What became known with the last event; kept for its memory.
    slices: Vec<Slice<Key>>,
    has_begun: bool,
    /// Records with switches in the compact form, which is not read. With them, times are
    /// incomplete.
    pub compact: u64,
}

impl Scheduling {
    /// The counters so far.
    pub fn stats(&self) -> SchedulerStats {
        self.scheduler.stats()
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
        if !self.has_begun {
            self.has_begun = true;
            self.scheduler.begin(view.time());
        }
        let Some(hook_id) = view.event().hook_id() else { return Ok(&[]) };
        self.check_losses(view);
        match hook_id {
            hook_id::THREAD_C_SWITCH => self.switch(view, parts)?,
            hook_id::THREAD_READY_THREAD => self.ready(view, parts)?,
            hook_id::THREAD_COMPACT_C_SWITCH => self.compact += 1,
            _ => {}
        }
        Ok(&self.slices)
    }

    /// Ends the trace. Returns what was running until now, and the number of processors with
    /// switches.
    pub fn end(&mut self, now: TraceTime) -> (&[Slice<Key>], u32) {
        self.slices.clear();
        let slices = &mut self.slices;
        let processors = self.scheduler.end(now, &mut |slice| slices.push(slice));
        (&self.slices, processors)
    }

    /// Notes gaps in the records of the processor.
    #[inline]
    fn check_losses(&mut self, view: &EventView<'_>) {
        let Some(losses) = view.delivered().losses().filter(|losses| !losses.is_lossless()) else { return };
        let processor = processor_of(view);
        let may_be_lost = |from: TraceTime, until: TraceTime| {
            losses.on_processor(view.event().source(), processor.1, from.0, until.0)
        };
        let slices = &mut self.slices;
        self.scheduler.record(processor, view.time(), may_be_lost, &mut |slice| slices.push(slice));
    }

    fn switch(&mut self, view: &EventView<'_>, parts: &mut Parts) -> Result<(), Full> {
        let pointer_size = view.event().record().pointer_size();
        let parsed = payload::CSwitch::parse(view.payload(), view.version(), pointer_size);
        let Ok(parsed) = parsed else { return Ok(()) };
        let processor = processor_of(view);
        let old = key(view, parts, parsed.old_thread_id)?;
        let new = key(view, parts, parsed.new_thread_id)?;
        let losses = view.delivered().losses().filter(|losses| !losses.is_lossless());
        let now = view.time();
        let may_be_lost = |since: TraceTime| {
            losses.is_some_and(|losses| losses.anywhere_between(since.0, now.0.saturating_sub(1)))
        };
        let slices = &mut self.slices;
        let out = &mut |slice| slices.push(slice);
        self.scheduler.switch(processor, now, (old, new), &parsed, may_be_lost, out);
        Ok(())
    }

    fn ready(&mut self, view: &EventView<'_>, parts: &mut Parts) -> Result<(), Full> {
        let pointer_size = view.event().record().pointer_size();
        let parsed = payload::ReadyThread::parse(view.payload(), view.version(), pointer_size);
        let Ok(parsed) = parsed else { return Ok(()) };
        let thread = key(view, parts, parsed.thread_id)?;
        self.scheduler.ready(processor_of(view), view.time(), thread, &parsed);
        Ok(())
    }
}

fn key(view: &EventView<'_>, parts: &mut Parts, tid: Tid) -> Result<Key, Full> {
    if tid == Tid(0) {
        return Ok(Key::Idle(processor_of(view)));
    }
    Ok(Key::Thread(parts.thread(view, None, Some(tid))?.1))
}
