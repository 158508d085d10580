//! Settings for the depth and the names of stacks.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use stackhound_frames::{Decisions, FrameResolver, KernelSymbols, Level, Policy, ServiceKind};
use stackhound_symbols::path::SymbolPath;
use stackhound_symbols::store::StoreOptions;
use stackhound_symbols::{Symbolizer, SymbolizerOptions};
use stackhound_system::System;
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Mode};

use crate::naming::Naming;
use crate::services::Services;

/// The depth to which a frame is resolved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Depth {
    /// The address.
    Address,
    /// The module and the offset in it.
    Module,
    /// The function too, if a symbolizer is available.
    Function,
}

/// The depth of stacks and the source of function names.
#[derive(Debug, Default)]
pub struct Enrichment {
    /// The policy for events and kernel stacks.
    pub policy: Policy,
    /// A depth that overrides the policy for all events to which the policy gives a stack.
    pub depth: Option<Depth>,
    /// The source of function names. Without it, the depth is limited to modules.
    pub symbolizer: Option<Symbolizer>,
}

impl Enrichment {
    /// Resolves functions for all stacks, with names from the files along a symbol path. Nothing is
    /// downloaded.
    ///
    /// # Errors
    /// If the threads of the symbolizer cannot be started.
    pub fn named(path: SymbolPath) -> io::Result<Enrichment> {
        let store = StoreOptions { path, ..StoreOptions::default() };
        let symbolizer = Symbolizer::new(SymbolizerOptions { store, ..SymbolizerOptions::default() });
        Ok(Enrichment {
            depth: Some(Depth::Function),
            symbolizer: Some(symbolizer?),
            ..Enrichment::default()
        })
    }
}

/// An [`Enrichment`] in use.
#[derive(Debug)]
pub(crate) struct Enricher {
    decisions: RefCell<Decisions>,
    pub depth: Option<Depth>,
    pub naming: Option<RefCell<Naming>>,
    pub frames: RefCell<FrameResolver>,
    services: RefCell<Services>,
}

impl Enricher {
    pub fn new(enrichment: Enrichment) -> Enricher {
        Enricher {
            decisions: RefCell::new(Decisions::new(enrichment.policy)),
            depth: enrichment.depth,
            naming: enrichment.symbolizer.map(|symbolizer| RefCell::new(Naming::new(symbolizer))),
            frames: RefCell::default(),
            services: RefCell::default(),
        }
    }

    pub fn decisions(&self) -> &RefCell<Decisions> {
        &self.decisions
    }

    /// Whether the service with this routine can end a callback.
    pub fn service_kind(&self, system: &System, routine: Address, time: TraceTime) -> ServiceKind {
        self.services.borrow_mut().kind((system, self.naming.as_ref()), routine, time)
    }

    /// The name of the service with this routine.
    pub fn service_name(&self, system: &System, routine: Address, time: TraceTime) -> Option<Arc<str>> {
        self.services.borrow_mut().name((system, self.naming.as_ref()), routine, time)
    }

    /// The depth to which a frame in a stack of this level is resolved.
    pub fn depth(&self, level: Level, mode: Mode) -> Depth {
        let depth = self.depth.unwrap_or(match level {
            Level::None => Depth::Address,
            Level::Modules => Depth::Module,
            Level::Full => Depth::Function,
        });
        let limit = match (mode, self.decisions.borrow().kernel_symbols()) {
            (Mode::User, _) | (Mode::Kernel, KernelSymbols::Full) => Depth::Function,
            (Mode::Kernel, KernelSymbols::Modules) => Depth::Module,
            (Mode::Kernel, KernelSymbols::Off) => Depth::Address,
        };
        depth.min(limit)
    }
}
