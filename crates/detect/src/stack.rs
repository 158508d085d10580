//! The normal form of a stack, which every detection looks at.
//!
//! Sources differ in what they can tell: a recording gives addresses and the modules around them, Sysmon gives modules with
//! offsets and no addresses, a live session can ask for memory. What a source does not tell is absent here, never guessed.

use crate::module::ModuleIndex;

/// Whether a frame is in the kernel's half of the address space: by its address alone, never by whether a module is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// The upper half.
    Kernel,
    /// The lower half.
    User,
}

/// Where the code of a frame comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// A module that was loaded there at the time, and the offset of the frame's address in it. Damaged stacks have offsets
    /// far outside of the module.
    Image(ModuleIndex, u64),
    /// Compiled by a runtime that told of it, such as `clr`.
    Compiled(&'static str),
    /// No module was there, and all are known.
    Unbacked,
    /// No module is known there, but not all are.
    Unknown,
}

impl Code {
    /// The module, if it comes from one.
    pub fn module(self) -> Option<ModuleIndex> {
        match self {
            Code::Image(module, _) => Some(module),
            Code::Compiled(_) | Code::Unbacked | Code::Unknown => None,
        }
    }
}

/// What kind of memory a frame lies in, where the source tells.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// A loaded image.
    Image,
    /// A mapped section that is no loaded image.
    Mapped,
    /// Allocated for this process alone.
    Private,
}

/// The memory of a frame. `None` is what the source does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memory {
    /// What it is.
    pub kind: Option<MemoryKind>,
    /// What its page allows now, as Windows numbers it: `PAGE_EXECUTE_READ` is 0x20.
    pub protection: Option<u32>,
    /// Of an image: whether the page is still the file's, not a private copy that was written to (`SharedOriginal` of
    /// `QueryWorkingSetEx`).
    pub is_original: Option<bool>,
}

impl Memory {
    /// Nothing is told.
    pub const UNKNOWN: Memory = Memory { kind: None, protection: None, is_original: None };
}

/// Bytes of a process's memory around a return address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SiteBytes {
    /// The 16 bytes before it, in the order of addresses.
    pub before: [u8; 16],
    /// The 16 bytes from it on.
    pub after: [u8; 16],
}

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// The address as recorded. Sources that name a module and an offset do not tell it.
    pub address: Option<u64>,
    /// Kernel or user.
    pub mode: Mode,
    /// Whether it is 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
    /// Whether the address is that of an instruction that was interrupted, not one that a call returns to.
    pub is_instruction: bool,
    /// Where its code comes from.
    pub code: Code,
    /// The memory it lies in.
    pub memory: Memory,
    /// Bytes around it, read from memory. Those of files are looked up in [`Binaries`](crate::Binaries).
    pub bytes: Option<SiteBytes>,
}

impl Frame {
    /// A user frame of 64-bit code of which only this is known.
    pub fn user(code: Code) -> Frame {
        Frame {
            address: None,
            mode: Mode::User,
            is_wow64: false,
            is_instruction: false,
            code,
            memory: Memory::UNKNOWN,
            bytes: None,
        }
    }
}

/// Why a part of a stack is not there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gap {
    /// The source does not record it.
    NotRecorded,
    /// It was recorded, and lost.
    Lost,
    /// Its key was never explained, or several stacks may be meant.
    Unresolved,
}

/// A part of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// All of it is there, up to the limit of the capture. It may have no frames.
    Whole,
    /// It is not there, or not all of it.
    Missing(Gap),
}

/// A stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack<'a> {
    /// The frames, innermost first. Kernel frames between user frames are there where the source gives them.
    pub frames: &'a [Frame],
    /// The kernel frames before the first user frame.
    pub kernel: Part,
    /// The rest.
    pub user: Part,
    /// How many frames are captured at most; 24 or 16 by Sysmon, 192 by ETW. A stack as long may go on.
    pub limit: Option<u16>,
    /// Whether all modules of the process at the time are known.
    pub map_is_complete: bool,
    /// Whether events that could have told of this one, its stack or its modules are known to be missing.
    pub has_losses: bool,
    /// Whether the frames are certain: no loss, damage or ambiguity that is known could have changed them.
    pub is_certain: bool,
    /// Whether the walk is known not to have reached the outermost function of its thread.
    pub is_truncated: bool,
}

impl Stack<'_> {
    /// Whether it is as long as stacks can be, so that outer frames may be missing.
    pub fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.frames.len() >= usize::from(limit))
    }
}
