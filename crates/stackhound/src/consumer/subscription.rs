//! Events for other threads: kept whole, several at once, through a bounded queue.

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

/// An event that outlives its turn, with its stack and what its payload means. Costs a reference count of its block and one
/// allocation for the stack; no byte of the event is copied.
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

    /// The event itself.
    pub fn event(&self) -> Event<'_> {
        Event::new(&self.block, self.index, self.time)
    }

    /// The process that owns the event.
    pub fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// The thread that owns the event.
    pub fn tid(&self) -> Option<Tid> {
        self.tid
    }

    /// How much of the stack there is.
    pub fn state(&self) -> StackState {
        self.state
    }

    /// The stack's addresses, innermost first.
    pub fn frames(&self) -> &[Address] {
        &self.frames
    }

    /// The payload's properties as typed values.
    ///
    /// # Errors
    /// [`Error::NoSchema`] if nothing is known about the payload.
    pub fn parser(&self) -> Result<Parser<'_>, Error> {
        let plan = self.plan.as_deref().ok_or(Error::NoSchema)?;
        let event = self.event();
        Ok(plan.parser(event.payload(), event.record().pointer_size()))
    }

    /// What the payload's bytes mean, if that is known.
    pub fn schema(&self) -> Option<&Schema> {
        self.plan.as_ref().map(|plan| &**plan.schema())
    }
}

/// Puts events together and sends them.
#[derive(Debug)]
pub(crate) struct Publisher {
    sender: Sender<Vec<KeptEvent>>,
    batch: Vec<KeptEvent>,
}

/// The wanted events of a running trace, several at once.
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

    /// Sends what there is. Breaks if nobody reads any more.
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
    /// Events that come at once, at most; fewer where few happen.
    pub const BATCH: usize = 256;

    /// Waits for events; `None` when the trace has ended.
    pub fn next_batch(&mut self) -> Option<Vec<KeptEvent>> {
        self.receiver.wait()
    }

    /// Events that were sent up to now, and dropped because they were not taken soon enough.
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
