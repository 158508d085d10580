//! What a source knows of an event, beside its stack.

use stackhound_frames::{Code, ModuleIndex, Operation};

use crate::stack::Stack;

/// How the kernel was entered for what the event tells.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    /// By a system call: the innermost user frame is where it returns to.
    SystemCall,
    /// By an interrupt or a fault: the innermost user frame can be any instruction.
    Interrupt,
    /// This kind of event has both.
    Unknown,
}

/// The system service that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Services<'a> {
    /// The one that was really entered, by the name of its routine in the kernel.
    Entered(&'a str),
    /// One of these: others do not cause such an event.
    OneOf(&'a [Box<str>]),
    /// Nothing tells.
    Unknown,
}

/// The process that something was done to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'a> {
    /// The path or name of its program; empty if not known.
    pub image: &'a str,
    /// Whether it is another process than the one that acts.
    pub is_other: bool,
    /// The rights that were asked for, if the source tells.
    pub access: Option<u32>,
}

/// Where a new thread starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start<'a> {
    /// The address. Sysmon's can be that of the kernel.
    pub address: u64,
    /// Whether it is in the kernel's half.
    pub is_kernel: bool,
    /// What is there, in the process of the new thread.
    pub code: Code,
    /// The function there, if the source names it.
    pub function: Option<&'a str>,
    /// Whether another process started it.
    pub is_remote: bool,
}

/// An image that was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// It.
    pub module: ModuleIndex,
    /// An image of the same file name and width that the process has mapped already, at another place.
    pub duplicate: Option<ModuleIndex>,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// How the kernel was entered.
    pub entry: Entry,
    /// What was done.
    pub operation: Operation,
    /// The service that ran.
    pub services: Services<'a>,
    /// Whom it was done to, if to a process.
    pub target: Option<Target<'a>>,
    /// Of the start of a thread: where it starts.
    pub start: Option<Start<'a>>,
    /// Of the mapping of an image: which.
    pub load: Option<Load>,
}

impl Event<'_> {
    /// An event that tells nothing.
    pub const OTHER: Event<'static> = Event {
        entry: Entry::Unknown,
        operation: Operation::Other,
        services: Services::Unknown,
        target: None,
        start: None,
        load: None,
    };
}

/// The process whose stack it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process<'a> {
    /// The path or name of its program; empty if not known.
    pub image: &'a str,
    /// Whether it is a 32-bit process on 64-bit Windows; `None` if not known.
    pub is_wow64: Option<bool>,
    /// Whether a runtime is loaded in it that compiles code without telling of it; `None` if not known. Where all compiled
    /// code is told of, this is `Some(false)`: what is then in no module and no method is neither.
    pub has_runtime: Option<bool>,
    /// Whether `win32u.dll` is loaded in it, so that no other library has the stubs of graphics; `None` if not known.
    pub has_win32u: Option<bool>,
    /// Where the thread of the stack started, as Win32 knows it, if that is known.
    pub thread_start: Option<Code>,
}

impl Process<'_> {
    /// A process of which nothing is known.
    pub const UNKNOWN: Process<'static> =
        Process { image: "", is_wow64: None, has_runtime: None, has_win32u: None, thread_start: None };
}

/// An event with its stack: what is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case<'a> {
    /// What happened.
    pub event: Event<'a>,
    /// To whom the stack belongs.
    pub process: Process<'a>,
    /// The stack of the thread that asked for it.
    pub stack: Stack<'a>,
}
