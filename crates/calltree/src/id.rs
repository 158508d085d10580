//! Numbers of the objects in a trace, one type for each kind of object.

use std::fmt;

/// A transition: the step from context `n` to context `n + 1`. In an exact trace, it is usually one
/// executed instruction (all iterations of a repeated instruction are one transition), an interrupt
/// or a thread switch; in an event trace, one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransitionId(pub u64);

/// A context: the state before the transition of the same number. A trace of `T` transitions has
/// the contexts `0..=T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u64);

/// A processor, or another unit that has one active stack at a time. Exact traces have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(pub u16);

/// A stack, numbered in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// A frame. The frames of a stack have consecutive numbers, outer before inner, earlier before
/// later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u64);

/// A module, numbered in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// A code location, numbered in the order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocationId(pub u32);

impl TransitionId {
    /// Returns the context just before this transition.
    pub fn context_before(self) -> ContextId {
        ContextId(self.0)
    }

    /// Returns the context just after this transition.
    pub fn context_after(self) -> ContextId {
        ContextId(self.0 + 1)
    }
}

impl fmt::Display for TransitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// For example `Context before #199863`.
impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context before #{}", self.0)
    }
}
