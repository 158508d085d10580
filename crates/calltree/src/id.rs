//! Numbers of things in a trace, each a type of its own.

use std::fmt;

/// A transition: what leads from context `n` to context `n + 1`. In exact traces mostly one executed instruction (all
/// iterations of a repeated one are one transition), an interrupt or a switch of threads; in recordings one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransitionId(pub u64);

/// A context: the state before the transition of the same number. A trace of `T` transitions has the contexts `0..=T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u64);

/// A processor, or whatever has one active stack at a time. Exact traces have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(pub u16);

/// A stack, in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// A frame: those of a stack are numbered one after another, outer before inner, earlier before later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u64);

/// A module, in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// A place where functions start, in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocationId(pub u32);

impl TransitionId {
    /// The context just before this transition.
    pub fn context_before(self) -> ContextId {
        ContextId(self.0)
    }

    /// The context just after this transition.
    pub fn context_after(self) -> ContextId {
        ContextId(self.0 + 1)
    }
}

impl fmt::Display for TransitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// As in `Context before #199863`.
impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context before #{}", self.0)
    }
}
