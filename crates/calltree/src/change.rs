//! What happens to stacks between two contexts: the alphabet that trackers speak, journals keep and the
//! [`Builder`](crate::Builder) understands.

use stackhound_types::Address;

use crate::id::{ContextId, Cpu, LocationId, ModuleId, StackId};
use crate::kind::{EndType, StackKind, StartType};

/// A module as it is defined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModuleInfo {
    /// What it is called in `module!symbol`.
    pub name: String,
    /// Where its file was, if known.
    pub path: Option<String>,
    /// Where it was loaded.
    pub base: Option<Address>,
}

/// A place in code as it is defined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocationInfo {
    /// The address itself.
    pub address: Option<Address>,
    /// The module it lies in.
    pub module: Option<ModuleId>,
    /// Its distance from the module's base.
    pub rva: Option<u64>,
    /// The symbol at or before it.
    pub symbol: Option<String>,
    /// Its distance from the symbol; 0 where a function starts.
    pub symbol_offset: u64,
}

/// A stack as it is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackInfo {
    /// What it is for.
    pub kind: StackKind,
    /// The process it belongs to.
    pub process: Option<u32>,
    /// The thread it belongs to.
    pub thread: Option<u32>,
    /// The processor it belongs to, for the stacks of interrupts.
    pub cpu: Option<Cpu>,
    /// What the process or the stack is called.
    pub name: Option<String>,
    /// Its memory, from the lowest address to the one behind the highest.
    pub region: Option<(Address, Address)>,
}

/// One change, with the exact context. Of one stack they come in order; those of different stacks need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// From context `first` on, `stack` is the active one of `cpu`, and no longer of another. At the same context, this comes before what is
    /// opened and closed on the stack.
    Enter {
        /// Whose active stack it becomes.
        cpu: Cpu,
        /// The stack.
        stack: StackId,
        /// The first context at which it is active: `context_after` of the transition that switched.
        first: ContextId,
    },
    /// After context `last`, it is not known which stack of `cpu` is active, or none is.
    Leave {
        /// The processor.
        cpu: Cpu,
        /// The last context at which the stack entered last was active.
        last: ContextId,
    },
    /// A frame is put on top of `stack`.
    Open {
        /// The stack.
        stack: StackId,
        /// Its first context: `context_after` of the transition that made it.
        first: ContextId,
        /// How it started.
        start: StartType,
        /// The function, at its start.
        location: Option<LocationId>,
    },
    /// The top frame of `stack` ends.
    Close {
        /// The stack.
        stack: StackId,
        /// Its last context: `context_before` of the transition that ended it.
        last: ContextId,
        /// How it ended.
        end: EndType,
    },
    /// There was a frame below all known ones of `stack`, since before anything was known of it: a return led into it.
    Below {
        /// The stack.
        stack: StackId,
        /// Where the return led.
        location: Option<LocationId>,
    },
}
