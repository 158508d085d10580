//! The normal form of a stack, which every detection evaluates.
//!
//! Sources provide different facts: a trace has addresses and the modules around them, Sysmon has
//! modules with offsets but no addresses, and a live session can read memory. Facts that a source
//! does not provide are absent here and never guessed.

use stackhound_frames::{Frame, RegionKind};
use strum::IntoStaticStr;

/// The kind of memory that a frame is in, if the source reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum MemoryKind {
    /// A loaded image.
    Image,
    /// A mapped section that is not a loaded image.
    Mapped,
    /// Private memory of the process.
    Private,
}

/// The memory of a frame. `None` for facts that the source does not report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memory {
    /// The kind of memory.
    pub kind: Option<MemoryKind>,
    /// The current protection of the page, as Windows numbers it: `PAGE_EXECUTE_READ` is 0x20.
    pub protection: Option<u32>,
    /// For an image, whether the page is still shared with the file and not a private, modified
    /// copy (`SharedOriginal` of `QueryWorkingSetEx`).
    pub is_original: Option<bool>,
}

impl Memory {
    /// Memory about which nothing is known.
    pub const UNKNOWN: Memory = Memory { kind: None, protection: None, is_original: None };
}

/// Bytes of a process's memory around a return address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SiteBytes {
    /// The 16 bytes before it, in the order of addresses.
    pub before: [u8; 16],
    /// The 16 bytes from the address on.
    pub after: [u8; 16],
}

/// Facts that were read from the memory of a live process at a frame's address, after the event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LiveFrame {
    /// The memory at the address.
    pub memory: Memory,
    /// The bytes around the address. Those of files are in [`Binaries`](crate::Binaries).
    pub bytes: Option<SiteBytes>,
}

/// Why a part of a stack is missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gap {
    /// The source does not record it.
    NotRecorded,
    /// It was recorded and lost.
    Lost,
    /// Its stack key was never defined, or several stacks are possible.
    Unresolved,
}

/// A part of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// It is complete up to the limit of the capture. It may have no frames.
    Whole,
    /// It is missing or incomplete.
    Missing(Gap),
}

/// A stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack<'a> {
    /// The frames, innermost first. Kernel frames between user frames are included if the source
    /// provides them.
    pub frames: &'a [Frame],
    /// The facts that were read from live memory, one per frame; empty if nothing was read.
    pub live: &'a [LiveFrame],
    /// Whether the kernel frames before the first user frame are complete.
    pub kernel: Part,
    /// Whether all other frames are complete.
    pub user: Part,
    /// The maximum number of frames of a capture: 16 or 24 for Sysmon, 192 for ETW. A stack with
    /// this many frames may be incomplete.
    pub limit: Option<u16>,
    /// Whether all modules of the process at that time are known.
    pub map_is_complete: bool,
    /// Whether events about this event, its stack or its modules are known to be missing.
    pub has_losses: bool,
    /// Whether the frames are certain: no known loss, damage or ambiguity could have changed them.
    pub is_certain: bool,
    /// Whether the stack walk is known not to have reached the outermost function of its thread.
    pub is_truncated: bool,
}

impl MemoryKind {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Converts the memory kind that the source of a stack reports. JIT-compiled code is in private
    /// memory.
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
    /// The memory of a frame: its kind as the source of the stack reports it, otherwise as read
    /// from the live process; its other facts as read from the live process.
    pub fn memory(&self, index: usize) -> Memory {
        let live = self.live.get(index).map_or(Memory::UNKNOWN, |live| live.memory);
        Memory { kind: MemoryKind::of(self.frames[index].region.kind).or(live.kind), ..live }
    }

    /// The bytes around a frame, if they were read from memory.
    pub fn bytes(&self, index: usize) -> Option<SiteBytes> {
        self.live.get(index)?.bytes
    }

    /// Whether the stack has the maximum number of frames, so that outer frames may be missing.
    pub fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.frames.len() >= usize::from(limit))
    }
}
