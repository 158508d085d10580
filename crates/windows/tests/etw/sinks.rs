//! What takes events in these tests.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

use stackhound_windows::etw::{EventView, Sink};

/// One event, kept.
pub struct Observed {
    pub header: [u8; 80],
    pub processor: u16,
    pub items: Vec<(u16, Vec<u8>)>,
    pub payload: Vec<u8>,
}

/// All that came.
#[derive(Default)]
pub struct All {
    pub events: Vec<Observed>,
    pub buffers: u64,
    pub raw: Vec<Vec<u8>>,
    calls: u64,
    /// The sink is gone.
    pub dropped: bool,
}

/// Where a test looks at what came, and when its sink shall fail.
#[derive(Default)]
pub struct Taken {
    all: Arc<Mutex<All>>,
    panic_at: Option<u64>,
    break_at: Option<u64>,
}

impl Taken {
    /// With a sink that panics at this call.
    pub fn panics_at(call: u64) -> Taken {
        Taken { panic_at: Some(call), ..Taken::default() }
    }

    /// With a sink that breaks at this call.
    pub fn breaks_at(call: u64) -> Taken {
        Taken { break_at: Some(call), ..Taken::default() }
    }

    pub fn sink(&self) -> Recorder {
        Recorder { all: self.all.clone(), panic_at: self.panic_at, break_at: self.break_at }
    }

    pub fn seen(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Events and calls up to now.
    pub fn counts(&self) -> (usize, u64) {
        let all = self.seen();
        (all.events.len(), all.calls)
    }
}

/// Keeps everything.
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
        let seen = Observed { header, processor: event.processor, items, payload };
        self.take(|all| all.events.push(seen))
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
