//! Changes of stacks between two contexts. The tracker reports them, journals store them and the
//! [`Builder`](crate::Builder) reads them.

use stackhound_types::Address;

use crate::id::{ContextId, Cpu, LocationId, ModuleId, StackId};
use crate::kind::{EndType, StackKind, StartType};

/// The definition of a module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModuleInfo {
    /// The name in `module!symbol`.
    pub name: String,
    /// The path of its file, if known.
    pub path: Option<String>,
    /// The address at which it was loaded, if known.
    pub base: Option<Address>,
}

/// The definition of a code location.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocationInfo {
    /// The address, if known.
    pub address: Option<Address>,
    /// The module that contains the address, if known.
    pub module: Option<ModuleId>,
    /// The offset from the module's base, if known.
    pub rva: Option<u64>,
    /// The symbol at or before the address, if known.
    pub symbol: Option<String>,
    /// The offset from the symbol; 0 at the start of a function.
    pub symbol_offset: u64,
}

/// The definition of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackInfo {
    /// The kind of the stack.
    pub kind: StackKind,
    /// The process that it belongs to, if known.
    pub process: Option<u32>,
    /// The thread that it belongs to, if known.
    pub thread: Option<u32>,
    /// The processor that it belongs to, for the stacks of interrupts.
    pub cpu: Option<Cpu>,
    /// The name of the process or the stack, if known.
    pub name: Option<String>,
    /// The memory of the stack: the lowest address, and the end address (exclusive), if known.
    pub region: Option<(Address, Address)>,
}

/// One change, with the exact context. The changes of one stack are in order; those of different
/// stacks need not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// From context `first` on, `stack` is the active stack of `cpu`, and of no other processor. At
    /// the same context, this change comes before the opened and closed frames of the stack.
    Enter {
        /// The processor on which the stack becomes active.
        cpu: Cpu,
        /// The stack.
        stack: StackId,
        /// The first context at which it is active: `context_after` of the transition that
        /// switched.
        first: ContextId,
    },
    /// After context `last`, `cpu` has no active stack, or its active stack is unknown.
    Leave {
        /// The processor.
        cpu: Cpu,
        /// The last context at which its previous stack was active.
        last: ContextId,
    },
    /// A frame is pushed onto `stack`.
    Open {
        /// The stack.
        stack: StackId,
        /// Its first context: `context_after` of the transition that created it.
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
    /// The top frame of `stack`, which began in a stub, has jumped to the function that it was called
    /// for. Its location becomes that of the function.
    Target {
        /// The stack.
        stack: StackId,
        /// The function, as it is entered through the stub.
        location: LocationId,
    },
    /// The top frame of `stack` continues in another function: a jump to it, which leaves nothing of the
    /// function before on the stack. The frame keeps its location.
    TailCall {
        /// The stack.
        stack: StackId,
        /// The first context in the other function: `context_after` of the jump.
        first: ContextId,
        /// The other function.
        location: LocationId,
    },
    /// A return led into a frame below all known frames of `stack`. It existed before anything was
    /// known of the stack.
    Below {
        /// The stack.
        stack: StackId,
        /// The target of the return.
        location: Option<LocationId>,
    },
}
