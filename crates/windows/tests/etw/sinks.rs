//! The sinks of these tests.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

use stackhound_windows::etw::{EventView, Sink};

/// A copy of one event.
pub struct Observed {
    pub header: [u8; 80],
    pub processor: u16,
    pub items: Vec<(u16, Vec<u8>)>,
    pub payload: Vec<u8>,
}

/// All events and calls.
#[derive(Default)]
pub struct All {
    pub events: Vec<Observed>,
    pub buffers: u64,
    pub raw: Vec<Vec<u8>>,
    calls: u64,
    /// The sink was dropped.
    pub dropped: bool,
}

/// Access to the received events, and the call at which the sink fails.
#[derive(Default)]
pub struct Collector {
    all: Arc<Mutex<All>>,
    panic_at: Option<u64>,
    break_at: Option<u64>,
}

impl Collector {
    /// With a sink that panics at this call.
    pub fn panics_at(call: u64) -> Collector {
        Collector { panic_at: Some(call), ..Collector::default() }
    }

    /// With a sink that breaks at this call.
    pub fn breaks_at(call: u64) -> Collector {
        Collector { break_at: Some(call), ..Collector::default() }
    }

    pub fn sink(&self) -> Recorder {
        Recorder { all: self.all.clone(), panic_at: self.panic_at, break_at: self.break_at }
    }

    pub fn received(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The number of events and calls so far.
    pub fn counts(&self) -> (usize, u64) {
        let all = self.received();
        (all.events.len(), all.calls)
    }
}

/// Keeps all events and buffers.
pub struct Recorder {
    all: Arc<Mutex<All>>,
    panic_at: Option<u64>,
    break_at: Option<u64>,
}

impl Recorder {
    fn take(&self, take: impl FnOnce(&mut All)) -> ControlFlow<()> {
        let mut all = self.all.lock().unwrap();
        all.calls += 1;
        let number = all.calls;
        take(&mut all);
        drop(all);
        if Some(number) == self.panic_at {
            panic!("call {number}");
        }
        if Some(number) == self.break_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Sink for Recorder {
    fn event(&mut self, event: &EventView<'_>) -> ControlFlow<()> {
        let items = event.items.iter().map(|(kind, data)| (*kind, data.to_vec())).collect();
        let (header, payload) = (*event.header, event.payload.to_vec());
        let received = Observed { header, processor: event.processor, items, payload };
        self.take(|all| all.events.push(received))
    }

    fn buffer_done(&mut self) -> ControlFlow<()> {
        self.take(|all| all.buffers += 1)
    }

    fn raw_buffer(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.take(|all| all.raw.push(bytes.to_vec()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).dropped = true;
    }
}
