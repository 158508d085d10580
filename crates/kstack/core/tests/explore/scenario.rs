//! The scenario of an exploration: threads, requests, and the possible actions of the system.

use stackhound_kstack_proto::{Capture, Flags, Missing};

use crate::defects::Defect;

/// The maximum number of entries of each request.
pub const MAX_FRAMES: u16 = 3;

/// A thread of the model.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Takes APCs at any moment, or never, and may end at any moment.
    Mortal,
    /// Like [`Self::Mortal`], but never ends.
    Lasting,
    /// An idle thread.
    Idle,
}

/// One request of a thread for the stack of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The requesting thread.
    pub by: usize,
    /// The thread whose stack is requested.
    pub of: usize,
    /// The requested stacks.
    pub parts: Flags,
}

/// The results of walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walks {
    /// Always frames.
    Succeed,
    /// Frames, no frames, or an error.
    MayFail,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub slots: usize,
    pub threads: Vec<Kind>,
    /// The requests of one thread follow one another.
    pub asks: Vec<Ask>,
    /// Whether APCs can be removed from their queue.
    pub removal: bool,
    pub walks: Walks,
    /// Whether the threads have a user stack.
    pub user: Result<(), Missing>,
    /// Whether a thread may be in a critical region when it takes an APC.
    pub regions: bool,
    /// Whether the read of a page of a user stack may never complete.
    pub hangs: bool,
    pub defect: Option<Defect>,
}

impl Scenario {
    pub fn new(name: &'static str, slots: usize, threads: &[Kind], asks: &[(usize, usize)]) -> Self {
        let asks = asks.iter().map(|&(by, of)| Ask { by, of, parts: Flags::KERNEL });
        Self {
            name,
            slots,
            threads: threads.to_vec(),
            asks: asks.collect(),
            removal: true,
            walks: Walks::Succeed,
            user: Ok(()),
            regions: false,
            hangs: false,
            defect: None,
        }
    }

    pub fn without_removal(self) -> Self {
        Self { removal: false, ..self }
    }

    pub fn with_parts(mut self, parts: Flags) -> Self {
        for ask in &mut self.asks {
            ask.parts = parts;
        }
        self
    }

    pub fn with(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }

    /// The id of a thread, a multiple of four as on Windows.
    pub fn tid(&self, thread: usize) -> u32 {
        match self.threads[thread] {
            Kind::Idle => 0,
            Kind::Mortal | Kind::Lasting => (thread as u32 + 1) * 4,
        }
    }

    /// A request as it is passed to the state machine under test.
    pub fn capture(&self, ask: usize) -> Capture {
        let Ask { of, parts, .. } = self.asks[ask];
        // An invalid id, which the system rounds down to that of the thread.
        let odd = if self.defect == Some(Defect::NumbersRounded) { ask as u32 } else { 0 };
        Capture {
            pid: 4,
            tid: self.tid(of) + odd,
            created: None,
            max_frames: MAX_FRAMES,
            flags: parts,
            timeout_ms: 1,
            id: ask as u64,
            frames_to_skip: 0,
        }
    }
}
