//! A frame with its module.

use std::fmt;
use std::ops::Deref;

use stackhound_enrich as enrich;
use stackhound_system::{MethodRef, ModuleRef, System};

use crate::enrichment::Depth;

/// One frame of a stack: what is known of it, as far as it is to be told. Derefs to the facts.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'c> {
    facts: enrich::Frame,
    system: &'c System,
    depth: Depth,
}

impl<'c> Frame<'c> {
    /// Facts about a frame with the system that they are about.
    pub fn new(facts: enrich::Frame, system: &'c System, depth: Depth) -> Frame<'c> {
        Frame { facts, system, depth }
    }

    /// How much of it is told.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// The module that was loaded there at the time of the event, if it is to be told.
    pub fn module(&self) -> Option<ModuleRef<'c>> {
        let (module, _) = self.facts.module.filter(|_| self.depth > Depth::Address)?;
        Some(self.system.module(module))
    }

    /// Offset in the module, if it is to be told.
    pub fn rva(&self) -> Option<u64> {
        let (_, rva) = self.facts.module.filter(|_| self.depth > Depth::Address)?;
        Some(rva)
    }

    /// The method that a runtime compiled there, if it is to be told.
    pub fn method(&self) -> Option<MethodRef<'c>> {
        let method = self.facts.method.filter(|_| self.depth > Depth::Address)?;
        Some(self.system.method(method))
    }

    /// All that is known, to make a frame of it again.
    pub fn facts(&self) -> &enrich::Frame {
        &self.facts
    }
}

impl Deref for Frame<'_> {
    type Target = enrich::Frame;

    fn deref(&self) -> &enrich::Frame {
        &self.facts
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.module(), self.rva(), self.method()) {
            (Some(module), Some(rva), _) => write!(f, "{}+{rva:#x}", module.file_name()),
            (_, _, Some(method)) => {
                let offset = self.address.0.saturating_sub(method.start().0);
                write!(f, "{}+{offset:#x}", self.region.kind.name())
            }
            _ => write!(f, "{}", self.address),
        }
    }
}
