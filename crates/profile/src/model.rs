//! The parts of a profile. Each has an index, which is valid only within one profile.

use stackhound_types::{AddressKind, ImageIdentity, Mode, PdbIdentity, Rva};
use strum::{IntoStaticStr, VariantArray};

/// Nanoseconds since the start of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Nanos(pub u64);

/// Index of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub(crate) u32);

impl ProcessId {
    /// The index, smaller than the number of such parts in the profile.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub(crate) u32);

impl ThreadId {
    /// The index, smaller than the number of such parts in the profile.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleId(pub(crate) u32);

impl ModuleId {
    /// The index, smaller than the number of such parts in the profile.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameId(pub(crate) u32);

impl FrameId {
    /// The index, smaller than the number of such parts in the profile.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a stack: its innermost frame with its callers. The index of the caller's stack is
/// smaller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StackId(pub(crate) u32);

impl StackId {
    /// The index, smaller than the number of such parts in the profile.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a kind of marker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MarkerKindId(pub(crate) u32);

impl MarkerKindId {
    /// The index, smaller than the number of such parts in the profile.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a text that is used often.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TextId(pub(crate) u32);

impl TextId {
    /// The index, smaller than the number of such parts in the profile.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A process. Another process that reuses its id is a separate one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// `None` for data that belongs to no known process.
    pub pid: Option<u32>,
    /// Image name or another display name.
    pub name: String,
    /// Full path of the program; empty if it is not known.
    pub path: String,
    /// Start time, if within the profile.
    pub start: Option<Nanos>,
    /// End time, if within the profile.
    pub end: Option<Nanos>,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// `None` for data that belongs to no known thread.
    pub tid: Option<u32>,
    /// Name of the thread; may be empty.
    pub name: String,
    /// Start time, if within the profile.
    pub start: Option<Nanos>,
    /// End time, if within the profile.
    pub end: Option<Nanos>,
}

/// A module, at any address.
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

/// The source of a frame's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, VariantArray)]
pub enum Origin {
    /// The module's PDB.
    Pdb,
    /// The module's PDB: the function was inlined, so that it has no frame of its own.
    Inlined,
    /// An exported function that starts there.
    Export,
    /// The nearest export before the address; the code may belong to another function.
    NearestExport,
    /// The runtime that compiled the method.
    Method,
    /// No symbol: the name is module and offset.
    Module,
    /// No module: the name is an address.
    Address,
    /// A remark of the producer of the profile.
    Remark,
    /// A group of frames, which has no location.
    Group,
}

impl Origin {
    /// All origins, in the order of their declaration.
    pub const ALL: &[Origin] = Origin::VARIANTS;

    /// The name in formats that show the origin.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Pdb => "named by PDB",
            Origin::Inlined => "inlined, named by PDB",
            Origin::Export => "named by export",
            Origin::NearestExport => "nearest export",
            Origin::Method => "named by runtime",
            Origin::Module => "module and offset",
            Origin::Address => "address",
            Origin::Remark => "remark",
            Origin::Group => "group",
        }
    }
}

/// A location in a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ModuleOffset {
    /// The module.
    pub module: ModuleId,
    /// Bytes from the start of the module to the address, not adjusted.
    pub rva: u32,
    /// The kind of the address.
    pub kind: AddressKind,
    /// Bytes from the start of the named function to the address; `None` if the name belongs to the
    /// address alone.
    pub offset: Option<u32>,
}

impl ModuleOffset {
    /// The offset of the executing instruction, which is before a return address.
    pub fn instruction(&self) -> u32 {
        self.kind.looked_up(Rva(self.rva)).0
    }
}

/// A location in source code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceLine {
    /// Path.
    pub file: String,
    /// Line number, starting at 1.
    pub line: u32,
}

/// A name that was resolved for a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameName {
    /// The displayed name.
    pub text: String,
    /// The source of the name.
    pub origin: Origin,
    /// Bytes from the start of the named function to the frame's address.
    pub offset: u32,
    /// The source location, if known. In inlined functions, that of the outermost call.
    pub source: Option<SourceLine>,
    /// The functions that were inlined at the address, innermost first.
    pub inlines: Vec<InlineName>,
}

/// The name of a function that was inlined at the address of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InlineName {
    /// The displayed name.
    pub text: String,
    /// The source location in the function, if known.
    pub source: Option<SourceLine>,
}

/// A frame. An [inlined](Origin::Inlined) function has the location of the frame that contains its
/// code, and no inlined functions of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The displayed name. Frames with equal names are one function.
    pub name: String,
    /// The source of the name.
    pub origin: Origin,
    /// The mode of the code; `None` for a remark, such as that a part of the stack is missing.
    pub mode: Option<Mode>,
    /// The kind of the code.
    pub code: CodeKind,
    /// The location in a module, if it is in one.
    pub location: Option<ModuleOffset>,
    /// The source location, if known. In inlined functions, that of the outermost call.
    pub source: Option<SourceLine>,
    /// The functions that were inlined at the address, innermost first. Each is a frame of the same
    /// profile, which calls the one before it.
    pub inlines: Box<[FrameId]>,
}

/// The kind of a frame's code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum CodeKind {
    /// A module of the kernel.
    Kernel,
    /// A module in user mode.
    User,
    /// JIT-compiled code that its runtime reported.
    #[strum(serialize = "JIT")]
    Jit,
    /// Code in memory that certainly belongs to no image.
    Unbacked,
    /// Code whose origin is not known, because the trace does not state all modules.
    Unknown,
    /// No code, but a remark of the producer of the profile.
    Remark,
}

impl CodeKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: &[CodeKind] = CodeKind::VARIANTS;

    /// The name in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Frame {
    /// A frame that is no code, but a remark of the producer of the profile: `[text]`.
    pub fn remark(text: &str) -> Frame {
        Frame {
            name: format!("[{text}]"),
            origin: Origin::Remark,
            mode: None,
            code: CodeKind::Remark,
            location: None,
            source: None,
            inlines: Box::default(),
        }
    }

    /// Whether it is code without the name of a function. The name of the nearest export may belong
    /// to another function.
    pub fn is_unnamed(&self) -> bool {
        matches!(self.origin, Origin::NearestExport | Origin::Module | Origin::Address)
    }
}

/// What the weights of samples are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Numbers of samples or other events.
    #[default]
    Samples,
    /// Numbers of transitions of an exact trace, which are usually instructions. The profile has no
    /// times.
    Transitions,
    /// Nanoseconds. The profile has no other times.
    Nanoseconds,
}

/// A sample: a thread was observed with a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The time.
    pub time: Nanos,
    /// The thread.
    pub thread: ThreadId,
    /// The stack.
    pub stack: StackId,
    /// The weight.
    pub weight: u32,
    /// The processor.
    pub cpu: Option<u16>,
}

/// Why a thread left its processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SwitchReason {
    /// It waits.
    Waits,
    /// It is ready to run.
    #[strum(serialize = "ready to run")]
    Ready,
    /// It ended.
    Ended,
    /// The trace does not report the reason.
    Unknown,
}

impl SwitchReason {
    /// The name in all formats.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A context switch: a processor switched from one thread to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// The time.
    pub time: Nanos,
    /// The processor.
    pub cpu: u16,
    /// The thread that ran before.
    pub from: ThreadId,
    /// The thread that runs now.
    pub to: ThreadId,
    /// Why the previous thread stopped running.
    pub reason: SwitchReason,
    /// The wait reason, as the system names it.
    pub why: Option<TextId>,
    /// The stack of the new thread, where it waited.
    pub stack: Option<StackId>,
}

/// The time of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// A point in time.
    Instant(Nanos),
    /// The start and end of an interval.
    Interval(Nanos, Nanos),
}

impl Timing {
    /// The start time.
    pub fn start(self) -> Nanos {
        match self {
            Timing::Instant(time) | Timing::Interval(time, _) => time,
        }
    }
}

/// The common properties of markers of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkerKind {
    /// The displayed name.
    pub name: String,
    /// The names of its fields.
    pub keys: Vec<String>,
}

/// A marker: an event on a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The time.
    pub timing: Timing,
    /// The thread.
    pub thread: ThreadId,
    /// The kind.
    pub kind: MarkerKindId,
    /// The stack that caused the event.
    pub stack: Option<StackId>,
}
