//! How much of stacks is named, and with what.

use std::cell::RefCell;
use std::io;

use stackhound_frames::{Decisions, FrameResolver, KernelSymbols, Level, Policy};
use stackhound_symbols::path::SymbolPath;
use stackhound_symbols::store::StoreOptions;
use stackhound_symbols::{Symbolizer, SymbolizerOptions};
use stackhound_types::Mode;

use crate::naming::Naming;

/// How much of a frame is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Depth {
    /// Its address.
    Address,
    /// The module, and the offset in it.
    Module,
    /// The function too, where a symbolizer is at hand.
    Function,
}

/// How much of stacks is told, and who names functions.
#[derive(Debug, Default)]
pub struct Enrichment {
    /// What is told of which events, and of kernel parts.
    pub policy: Policy,
    /// What is told of all events that the policy gives a stack, whatever else it says of them.
    pub depth: Option<Depth>,
    /// Names functions. Without it, nothing is told beyond modules.
    pub symbolizer: Option<Symbolizer>,
}

impl Enrichment {
    /// Functions of everything that has a stack, named from the files along a symbol path. Nothing is downloaded.
    ///
    /// # Errors
    /// If the threads that look names up cannot be started.
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

/// The same, in use.
#[derive(Debug)]
pub(crate) struct Enricher {
    decisions: RefCell<Decisions>,
    depth: Option<Depth>,
    pub naming: Option<RefCell<Naming>>,
    pub frames: RefCell<FrameResolver>,
}

impl Enricher {
    pub fn new(enrichment: Enrichment) -> Enricher {
        Enricher {
            decisions: RefCell::new(Decisions::new(enrichment.policy)),
            depth: enrichment.depth,
            naming: enrichment.symbolizer.map(|symbolizer| RefCell::new(Naming::new(symbolizer))),
            frames: RefCell::default(),
        }
    }

    pub fn decisions(&self) -> &RefCell<Decisions> {
        &self.decisions
    }

    /// How much of a frame in a stack of this level is told.
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
