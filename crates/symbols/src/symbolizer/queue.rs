//! Pending requests by module.

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
    /// The number of requests so far.
    pub request_count: u64,
    /// Whether a thread works on it.
    pub busy: bool,
    /// Whether it was loaded before, so that its failures are already counted.
    pub was_loaded: bool,
}

/// The requests of all modules. There are few modules, so the next one is found by searching all
/// pending ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub modules: Vec<Waiting>,
    /// The modules that have requests.
    waiting: Vec<ModuleNumber>,
}

impl Queue {
    pub fn add_module(&mut self, identity: Arc<ModuleIdentity>) {
        let (requests, request_count, busy, was_loaded) = (Vec::new(), 0, false, false);
        self.modules.push(Waiting { identity, requests, request_count, busy, was_loaded });
    }

    pub fn add(&mut self, request: Request, request_count: u64) {
        let module = &mut self.modules[request.module.index()];
        if module.requests.is_empty() {
            self.waiting.push(request.module);
        }
        module.requests.push(request);
        module.request_count = request_count;
    }

    /// Returns the next module and all its requests: first modules whose table is cached, then the
    /// one with the most requests.
    pub fn take(&mut self, is_cached: impl Fn(ModuleNumber) -> bool) -> Option<(ModuleNumber, Vec<Request>)> {
        let modules = &self.modules;
        let free = self.waiting.iter().enumerate().filter(|(_, module)| !modules[module.index()].busy);
        let best = free.max_by_key(|&(_, &module)| {
            (is_cached(module), modules[module.index()].request_count, std::cmp::Reverse(module))
        });
        let (location, &module) = best?;
        self.waiting.swap_remove(location);
        let waiting = &mut self.modules[module.index()];
        waiting.busy = true;
        Some((module, std::mem::take(&mut waiting.requests)))
    }
}
