//! A frame with its module.

use std::fmt;
use std::ops::Deref;

use stackhound_frames::Frame;
use stackhound_system::{MethodRef, ModuleRef, System};
use stackhound_types::Address;

use crate::enrichment::Depth;

/// One frame of a stack: what is known of it, as far as it is to be told. Derefs to the facts.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'c> {
    facts: Frame,
    system: &'c System,
    depth: Depth,
}

impl<'c> FrameView<'c> {
    /// Facts about a frame with the system that they are about.
    pub fn new(facts: Frame, system: &'c System, depth: Depth) -> FrameView<'c> {
        FrameView { facts, system, depth }
    }

    /// The address. Every frame of a trace has one.
    pub fn address(&self) -> Address {
        self.facts.address.unwrap_or(Address(0))
    }

    /// How much of it is told.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// The module that was loaded there at the time of the event, if it is to be told.
    pub fn module(&self) -> Option<ModuleRef<'c>> {
        let module = self.facts.loaded.filter(|_| self.depth > Depth::Address)?;
        Some(self.system.module(module))
    }

    /// Offset in the module, if it is to be told.
    pub fn rva(&self) -> Option<u64> {
        let (_, rva) = self.facts.in_loaded().filter(|_| self.depth > Depth::Address)?;
        Some(rva)
    }

    /// The method that a runtime compiled there, if it is to be told.
    pub fn method(&self) -> Option<MethodRef<'c>> {
        let method = self.facts.method.filter(|_| self.depth > Depth::Address)?;
        Some(self.system.method(method))
    }

    /// All that is known, to make a frame of it again.
    pub fn facts(&self) -> &Frame {
        &self.facts
    }
}

impl Deref for FrameView<'_> {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.facts
    }
}

impl fmt::Display for FrameView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.module(), self.rva(), self.method()) {
            (Some(module), Some(rva), _) => write!(f, "{}+{rva:#x}", module.file_name()),
            (_, _, Some(method)) => {
                let offset = self.address().0.saturating_sub(method.start().0);
                write!(f, "{}+{offset:#x}", self.region.kind.name())
            }
            _ => write!(f, "{}", self.address()),
        }
    }
}
