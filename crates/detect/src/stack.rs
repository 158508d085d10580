//! The normal form of a stack, which every detection looks at.
//!
//! Sources differ in what they can tell: a recording gives addresses and the modules around them, Sysmon gives modules with
//! offsets and no addresses, a live session can ask for memory. What a source does not tell is absent here, never guessed.

use stackhound_frames::{Frame, RegionKind};

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

/// What was read from the memory of a live process at a frame's address, after the event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LiveFrame {
    /// The memory there.
    pub memory: Memory,
    /// Bytes around it. Those of files are looked up in [`Binaries`](crate::Binaries).
    pub bytes: Option<SiteBytes>,
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
    /// What was read from live memory, frame by frame; empty where nothing was read.
    pub live: &'a [LiveFrame],
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

impl MemoryKind {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Image => "image",
            MemoryKind::Mapped => "mapped",
            MemoryKind::Private => "private",
        }
    }

    /// Of the memory that the source of a stack knows. JIT-compiled code is in private memory.
    pub fn of(kind: RegionKind) -> Option<MemoryKind> {
        match kind {
            RegionKind::Image => Some(MemoryKind::Image),
            RegionKind::Mapped => Some(MemoryKind::Mapped),
            RegionKind::Private | RegionKind::Jit(_) => Some(MemoryKind::Private),
            RegionKind::Unknown => None,
        }
    }
}

impl Stack<'_> {
    /// The memory of a frame: its kind by the source of the stack, else as it was read; the rest as it was read.
    pub fn memory(&self, index: usize) -> Memory {
        let live = self.live.get(index).map_or(Memory::UNKNOWN, |live| live.memory);
        Memory { kind: MemoryKind::of(self.frames[index].region.kind).or(live.kind), ..live }
    }

    /// Bytes around a frame that were read from memory.
    pub fn bytes(&self, index: usize) -> Option<SiteBytes> {
        self.live.get(index)?.bytes
    }

    /// Whether it is as long as stacks can be, so that outer frames may be missing.
    pub fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.frames.len() >= usize::from(limit))
    }
}
