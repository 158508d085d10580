//! What waits to be resolved, by module.

use super::{FrameNumber, ModuleNumber};
use std::sync::Arc;

use stackhound_types::{AddressKind, ModuleIdentity, Rva};

/// An address to resolve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub module: ModuleNumber,
    pub frame: FrameNumber,
    pub rva: Rva,
    pub kind: AddressKind,
}

/// A module as the threads see it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub identity: Arc<ModuleIdentity>,
    pub requests: Vec<Request>,
    /// How often it was met so far.
    pub met: u64,
    /// A thread is at it.
    pub busy: bool,
    /// It was loaded before, so that its failures are counted.
    pub was_loaded: bool,
}

/// The requests of all modules. Modules are few, so the next is found by looking at all that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub modules: Vec<Waiting>,
    /// Those that have requests.
    waiting: Vec<ModuleNumber>,
}

impl Queue {
    pub fn add_module(&mut self, identity: Arc<ModuleIdentity>) {
        let (requests, met, busy, was_loaded) = (Vec::new(), 0, false, false);
        self.modules.push(Waiting { identity, requests, met, busy, was_loaded });
    }

    pub fn add(&mut self, request: Request, met: u64) {
        let module = &mut self.modules[request.module.index()];
        if module.requests.is_empty() {
            self.waiting.push(request.module);
        }
        module.requests.push(request);
        module.met = met;
    }

    /// The module to go on with, and all its requests: those whose table is at hand first, then the one met most.
    pub fn take(
        &mut self,
        is_at_hand: impl Fn(ModuleNumber) -> bool,
    ) -> Option<(ModuleNumber, Vec<Request>)> {
        let modules = &self.modules;
        let free = self.waiting.iter().enumerate().filter(|(_, module)| !modules[module.index()].busy);
        let best = free.max_by_key(|&(_, &module)| {
            (is_at_hand(module), modules[module.index()].met, std::cmp::Reverse(module))
        });
        let (location, &module) = best?;
        self.waiting.swap_remove(location);
        let waiting = &mut self.modules[module.index()];
        waiting.busy = true;
        Some((module, std::mem::take(&mut waiting.requests)))
    }
}
