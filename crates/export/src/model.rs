//! What a profile is made of. Everything has a number; numbers are dense and hold within one profile only.

use stackhound_types::{AddressKind, ImageIdentity, Mode, PdbIdentity, Rva};

/// Nanoseconds since the profile's start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Nanos(pub u64);

/// Number of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub(crate) u32);

impl ProcessId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub(crate) u32);

impl ThreadId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleId(pub(crate) u32);

impl ModuleId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameId(pub(crate) u32);

impl FrameId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a stack: of its innermost frame together with its callers. A caller's number is smaller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StackId(pub(crate) u32);

impl StackId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a kind of marker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MarkerKindId(pub(crate) u32);

impl MarkerKindId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a text that comes often.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TextId(pub(crate) u32);

impl TextId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A process. One that took over the id of another is another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// `None` for what belongs to no known process.
    pub pid: Option<u32>,
    /// Image name, or what to say instead.
    pub name: String,
    /// When it began, if that is within the profile.
    pub start: Option<Nanos>,
    /// When it ended, if that is within the profile.
    pub end: Option<Nanos>,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Whose it is.
    pub process: ProcessId,
    /// `None` for what belongs to no known thread.
    pub tid: Option<u32>,
    /// Its own name; may be empty.
    pub name: String,
    /// When it began, if that is within the profile.
    pub start: Option<Nanos>,
    /// When it ended, if that is within the profile.
    pub end: Option<Nanos>,
}

/// A module, wherever it is loaded.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Module {
    /// File name.
    pub name: String,
    /// Full path.
    pub path: String,
    /// Its PDB, if known.
    pub pdb: Option<PdbIdentity>,
    /// Its image, if known.
    pub image: Option<ImageIdentity>,
}

/// Where a frame's name comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// The module's PDB.
    Pdb,
    /// An exported function that starts there.
    Export,
    /// The exported function before it; the code may belong to another one.
    NearestExport,
    /// The runtime that compiled the method.
    Method,
    /// No symbol: module and offset.
    Module,
    /// Not even a module: an address.
    Address,
    /// Nobody but the profile's maker.
    Remark,
}

impl Origin {
    /// All, in the order of their declaration.
    pub const ALL: [Origin; 7] = [
        Origin::Pdb,
        Origin::Export,
        Origin::NearestExport,
        Origin::Method,
        Origin::Module,
        Origin::Address,
        Origin::Remark,
    ];

    /// How formats that can tell the origin say it.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Pdb => "named by PDB",
            Origin::Export => "named by export",
            Origin::NearestExport => "nearest export",
            Origin::Method => "named by runtime",
            Origin::Module => "module and offset",
            Origin::Address => "address",
            Origin::Remark => "remark",
        }
    }
}

/// A place in a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ModuleOffset {
    /// Which module.
    pub module: ModuleId,
    /// Bytes from its start to the address, not adjusted.
    pub rva: u32,
    /// What the address is.
    pub kind: AddressKind,
    /// Bytes from the start of the named function to the address; `None` if the name is of the address alone.
    pub offset: Option<u32>,
}

impl ModuleOffset {
    /// The rva of the instruction that runs: in front of a return address.
    pub fn instruction(&self) -> u32 {
        self.kind.looked_up(Rva(self.rva)).0
    }
}

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceLine {
    /// Path.
    pub file: String,
    /// From 1.
    pub line: u32,
}

/// A name that was found for a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameName {
    /// What people read.
    pub text: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Bytes from the start of the named function to the frame's address.
    pub offset: u32,
    /// Source code, if known.
    pub source: Option<SourceLine>,
}

/// A frame. A function that the compiler put into another is a frame of its own, without a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What people read. Frames with equal names are one function.
    pub name: String,
    /// Where the name comes from.
    pub origin: Origin,
    /// Where the code runs; `None` for a remark, such as that a part of the stack is missing.
    pub mode: Option<Mode>,
    /// Its address in a module, if it is in one.
    pub location: Option<ModuleOffset>,
    /// Its source code, if known.
    pub source: Option<SourceLine>,
}

/// A thread was seen with a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When.
    pub time: Nanos,
    /// Which thread.
    pub thread: ThreadId,
    /// Its stack.
    pub stack: StackId,
    /// How much it counts.
    pub weight: u32,
    /// On which processor.
    pub cpu: Option<u16>,
}

/// Why a thread left its processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwitchReason {
    /// It waits for something.
    Waits,
    /// It could run on.
    Ready,
    /// It ended.
    Ended,
    /// Not told.
    Unknown,
}

impl SwitchReason {
    /// How formats say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SwitchReason::Waits => "waits",
            SwitchReason::Ready => "ready to run",
            SwitchReason::Ended => "ended",
            SwitchReason::Unknown => "not told",
        }
    }
}

/// A processor went from one thread to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// When.
    pub time: Nanos,
    /// Which processor.
    pub cpu: u16,
    /// The thread that ran.
    pub from: ThreadId,
    /// The thread that runs.
    pub to: ThreadId,
    /// Why the old thread runs no longer.
    pub reason: SwitchReason,
    /// What it waits for, in more words.
    pub why: Option<TextId>,
    /// Where the new thread goes on: where it waited.
    pub stack: Option<StackId>,
}

/// When a marker is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// At a time.
    Instant(Nanos),
    /// From one time to another.
    Interval(Nanos, Nanos),
}

impl Timing {
    /// When it begins.
    pub fn start(self) -> Nanos {
        match self {
            Timing::Instant(time) | Timing::Interval(time, _) => time,
        }
    }
}

/// What markers of one kind share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkerKind {
    /// What people read.
    pub name: String,
    /// The names of its fields.
    pub keys: Vec<String>,
}

/// Something happened on a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// When.
    pub timing: Timing,
    /// On which thread.
    pub thread: ThreadId,
    /// What.
    pub kind: MarkerKindId,
    /// The stack that caused it.
    pub stack: Option<StackId>,
}
