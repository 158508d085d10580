//! A frame with its module.

use std::fmt;
use std::ops::Deref;

use stackhound_frames::Frame;
use stackhound_system::{MethodRef, ModuleRef, System};
use stackhound_types::Address;

use crate::enrichment::Depth;

/// A frame of a stack, resolved to a given depth. Derefs to the facts.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'c> {
    facts: Frame,
    system: &'c System,
    depth: Depth,
}

impl<'c> FrameView<'c> {
    /// Creates a view of the facts about a frame of this system.
    pub fn new(facts: Frame, system: &'c System, depth: Depth) -> FrameView<'c> {
        FrameView { facts, system, depth }
    }

    /// The address. Every frame of a trace has one.
    pub fn address(&self) -> Address {
        self.facts.address.unwrap_or(Address(0))
    }

    /// The depth to which the frame is resolved.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// The module that was loaded at the address at the time of the event, if the depth includes
    /// modules.
    pub fn module(&self) -> Option<ModuleRef<'c>> {
        let module = self.facts.loaded.filter(|_| self.depth > Depth::Address)?;
        Some(self.system.module(module))
    }

    /// Offset in the module in bytes, if the depth includes modules.
    pub fn rva(&self) -> Option<u64> {
        let (_, rva) = self.facts.in_loaded().filter(|_| self.depth > Depth::Address)?;
        Some(rva)
    }

    /// The JIT-compiled method at the address, if the depth includes modules.
    pub fn method(&self) -> Option<MethodRef<'c>> {
        let method = self.facts.method.filter(|_| self.depth > Depth::Address)?;
        Some(self.system.method(method))
    }

    /// All facts, from which the frame can be created again.
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
