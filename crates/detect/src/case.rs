//! The facts about an event that a source provides in addition to its stack.

use stackhound_frames::{Code, ModuleIndex, Operation};

use crate::history::MemoryEvidence;
use crate::stack::Stack;

/// How the kernel was entered for the event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    /// By a system call: the innermost user frame is the address that the call returns to.
    SystemCall,
    /// By an interrupt or a fault: the innermost user frame can be any instruction.
    Interrupt,
    /// Events of this kind have both causes.
    Unknown,
}

/// The system service that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Services<'a> {
    /// This service ran, given by the name of its routine in the kernel.
    Entered(&'a str),
    /// One of these services ran; others do not cause such an event.
    OneOf(&'a [Box<str>]),
    /// The source does not report it.
    Unknown,
}

/// The target process of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target<'a> {
    /// The path or file name of its program; empty if not known.
    pub image: &'a str,
    /// Whether it is another process than the acting one.
    pub is_other: bool,
    /// The requested access rights, if the source reports them.
    pub access: Option<u32>,
}

/// The start address of a new thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start<'a> {
    /// The address. Sysmon can report a kernel address.
    pub address: u64,
    /// Whether it is a kernel address.
    pub is_kernel: bool,
    /// The code at the address, in the process of the new thread.
    pub code: Code,
    /// The function at the address, if the source names it.
    pub function: Option<&'a str>,
    /// Whether another process started it.
    pub is_remote: bool,
}

/// An image that was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The image.
    pub module: ModuleIndex,
    /// An image with the same file name and bitness that the process has already mapped at another
    /// address.
    pub duplicate: Option<ModuleIndex>,
}

/// How the image of a process was tampered with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TamperingKind {
    /// The mapped image is not the file of the process, as after process hollowing.
    Replaced,
    /// The file cannot be opened for comparison, as after process herpaderping.
    Locked,
    /// The source does not report it.
    Unknown,
}

/// A report that the image of a process was tampered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tampering {
    /// The kind.
    pub kind: TamperingKind,
    /// The program of the process, if its path is known.
    pub module: Option<ModuleIndex>,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// How the kernel was entered.
    pub entry: Entry,
    /// The operation.
    pub operation: Operation,
    /// The system service that ran.
    pub services: Services<'a>,
    /// The target process, if the operation has one.
    pub target: Option<Target<'a>>,
    /// The start address, if a thread was started.
    pub start: Option<Start<'a>>,
    /// The image, if one was mapped.
    pub load: Option<Load>,
    /// The recorded changes of memory.
    pub memory: MemoryEvidence<'a>,
    /// The tampering with the image of the process, if the event reports it.
    pub tampering: Option<Tampering>,
}

impl Event<'_> {
    /// An event without any facts.
    pub const OTHER: Event<'static> = Event {
        entry: Entry::Unknown,
        operation: Operation::Other,
        services: Services::Unknown,
        target: None,
        start: None,
        load: None,
        memory: MemoryEvidence::NONE,
        tampering: None,
    };
}

/// The process of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process<'a> {
    /// The path or file name of its program; empty if not known.
    pub image: &'a str,
    /// Whether it is a 32-bit process on 64-bit Windows; `None` if not known.
    pub is_wow64: Option<bool>,
    /// Whether a runtime is loaded that compiles code without reporting it; `None` if not known. If
    /// all JIT-compiled code is reported, this is `Some(false)`: code in no module and no method is
    /// then not JIT-compiled.
    pub has_runtime: Option<bool>,
    /// Whether `win32u.dll` is loaded, so that no other library contains the stubs of graphics
    /// services; `None` if not known.
    pub has_win32u: Option<bool>,
    /// The Win32 start address of the stack's thread, if known.
    pub thread_start: Option<Code>,
}

impl Process<'_> {
    /// A process of which nothing is known.
    pub const UNKNOWN: Process<'static> =
        Process { image: "", is_wow64: None, has_runtime: None, has_win32u: None, thread_start: None };
}

/// An event with its process and its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case<'a> {
    /// The event.
    pub event: Event<'a>,
    /// The process of the stack.
    pub process: Process<'a>,
    /// The stack of the thread that caused the event.
    pub stack: Stack<'a>,
}
