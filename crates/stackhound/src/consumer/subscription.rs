//! Events for other threads: kept in full, in batches, through a bounded queue.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use stackhound_etl::Block;
use stackhound_live::{Overflow, Receiver, RingCounts, Sender, ring};
use stackhound_pipeline::EventView;
use stackhound_schema::{Error, Parser, Plan, Schema};
use stackhound_stacks::StackState;
use stackhound_trace::{Event, Flow, TraceTime};
use stackhound_types::{Address, Pid, Tid};

/// An event that outlives the handler, with its stack and the plan to decode its payload. Costs a
/// reference count of its block and one allocation for the stack; no byte of the event is copied.
#[derive(Clone)]
pub struct KeptEvent {
    block: Arc<Block>,
    index: u32,
    time: TraceTime,
    pid: Option<Pid>,
    tid: Option<Tid>,
    state: StackState,
    frames: Box<[Address]>,
    plan: Option<Arc<Plan>>,
}

impl fmt::Debug for KeptEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptEvent").field("event", &self.event()).field("state", &self.state).finish()
    }
}

impl KeptEvent {
    /// Keeps an event.
    pub fn of(view: &EventView<'_>) -> KeptEvent {
        let event = view.event();
        KeptEvent {
            block: event.block().clone(),
            index: event.index(),
            time: event.time(),
            pid: view.pid(),
            tid: view.tid(),
            state: view.state(),
            frames: view.addresses().collect(),
            plan: view.plan().cloned(),
        }
    }

    /// The event.
    pub fn event(&self) -> Event<'_> {
        Event::new(&self.block, self.index, self.time)
    }

    /// The process of the event.
    pub fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// The thread of the event.
    pub fn tid(&self) -> Option<Tid> {
        self.tid
    }

    /// The state of the stack.
    pub fn state(&self) -> StackState {
        self.state
    }

    /// The addresses of the stack, innermost first.
    pub fn frames(&self) -> &[Address] {
        &self.frames
    }

    /// The properties of the payload as typed values.
    ///
    /// # Errors
    /// [`Error::NoSchema`] if no schema is known for the event.
    pub fn parser(&self) -> Result<Parser<'_>, Error> {
        let plan = self.plan.as_deref().ok_or(Error::NoSchema)?;
        let event = self.event();
        Ok(plan.parser(event.payload(), event.record().pointer_size()))
    }

    /// The schema of the payload, if it is known.
    pub fn schema(&self) -> Option<&Schema> {
        self.plan.as_ref().map(|plan| &**plan.schema())
    }
}

/// Collects events into batches and sends them.
#[derive(Debug)]
pub(crate) struct Publisher {
    sender: Sender<Vec<KeptEvent>>,
    batch: Vec<KeptEvent>,
}

/// The selected events of a running trace, in batches.
#[derive(Debug)]
pub struct Subscription {
    receiver: Receiver<Vec<KeptEvent>>,
}

pub(crate) fn pair(batches: usize, overflow: Overflow) -> (Publisher, Subscription) {
    let (sender, receiver) = ring(batches, overflow);
    (Publisher { sender, batch: Vec::new() }, Subscription { receiver })
}

impl Publisher {
    pub fn publish(&mut self, view: &EventView<'_>) -> Flow {
        self.batch.push(KeptEvent::of(view));
        if self.batch.len() >= Subscription::BATCH { self.flush() } else { ControlFlow::Continue(()) }
    }

    /// Sends the current batch. Breaks if the receiver was dropped.
    pub fn flush(&mut self) -> Flow {
        if self.batch.is_empty() {
            return ControlFlow::Continue(());
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(Subscription::BATCH));
        let events = batch.len() as u64;
        if self.sender.send(batch, events) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    pub fn counts(&self) -> RingCounts {
        self.sender.counts()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

impl Subscription {
    /// Maximum number of events in a batch. Batches are smaller if events are rare.
    pub const BATCH: usize = 256;

    /// Waits for the next batch; `None` if the trace has ended.
    pub fn next_batch(&mut self) -> Option<Vec<KeptEvent>> {
        self.receiver.wait()
    }

    /// Number of events that were sent, and of those that were dropped because the queue was full.
    pub fn counts(&self) -> RingCounts {
        self.receiver.counts()
    }
}

impl Iterator for Subscription {
    type Item = Vec<KeptEvent>;

    fn next(&mut self) -> Option<Vec<KeptEvent>> {
        self.next_batch()
    }
}
