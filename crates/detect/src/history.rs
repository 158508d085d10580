//! What recorded events show about changes of memory: who made it executable, writable, or wrote to
//! it. Only recorded changes are known; the absence of a change proves nothing.

use stackhound_frames::{Code, Frame, ModuleIndex, Modules, Role, Roles};
use stackhound_types::Mode;
use strum::IntoStaticStr;

use crate::stack::MemoryKind;

/// The code that changed memory. The order is that of suspicion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Author {
    /// The kernel, without a user-mode caller.
    Kernel,
    /// A process that Windows protects as part of itself or of a security product.
    #[strum(serialize = "protected-process")]
    Protected,
    /// The loader of Windows, directly after it mapped the image.
    Loader,
    /// A module that is known to install inline hooks.
    Hook,
    /// A runtime with a JIT compiler, or code that it reported.
    Runtime,
    /// The image whose pages were changed.
    OwnImage,
    /// The stack of the change is missing or uncertain.
    #[default]
    Unknown,
    /// Another image.
    Image,
    /// Code in no module.
    Unbacked,
}

impl Author {
    /// The author of a change, by the stack of its event: the innermost user frame that does not
    /// pass calls on. `changed` is the image whose pages were changed.
    pub fn of(frames: &[Frame], modules: &Modules, changed: Option<ModuleIndex>) -> Author {
        let mut author = Author::Unknown;
        for frame in frames.iter().filter(|frame| frame.mode == Mode::User) {
            let Code::Image(module, _) = frame.code else {
                return match frame.code {
                    Code::Jit(_) => Author::Runtime,
                    Code::Unbacked => Author::Unbacked,
                    _ => Author::Unknown,
                };
            };
            let roles = modules.roles(module);
            author = match roles {
                _ if roles.has(Role::Hook) => return Author::Hook,
                // A library of the native layer passes calls on, also those that change its own
                // pages.
                _ if roles.has_any(Roles::PASS_ON) => Author::Image,
                _ if changed == Some(module) => return Author::OwnImage,
                _ if roles.has(Role::Runtime) => return Author::Runtime,
                _ => return Author::Image,
            };
        }
        author
    }

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The image that other memory replaced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Replaced {
    /// The image of the process's program.
    Program,
    /// A library.
    Library,
}

/// What happened to the pages at an address, from all recorded changes up to an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct History {
    /// The kind of memory, if an event reports it or a module is loaded there.
    pub kind: Option<MemoryKind>,
    /// The last recorded protection, as Windows numbers it.
    pub protection: Option<u32>,
    /// Whether the pages were writable before they were made executable.
    pub made_executable: bool,
    /// Whether the pages were writable and executable at the same time.
    pub writable_code: bool,
    /// Whether code of an image was made writable, or executable after it was writable.
    pub image_changed: bool,
    /// Whether another process wrote to the pages.
    pub written_by_other: bool,
    /// Whether another process allocated or mapped the pages, or changed their protection.
    pub changed_by_other: bool,
    /// The most suspicious author of the changes.
    pub author: Author,
    /// How many times the pages became executable again after they had been executable before.
    pub cycles: u32,
    /// The mean time between these, in units of 100 ns.
    pub period: Option<u64>,
    /// The image that the memory replaced.
    pub replaced: Option<Replaced>,
}

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ChangeKind {
    /// Private memory was allocated.
    Allocate,
    /// The protection was changed.
    Protect,
    /// A section was mapped.
    Map,
    /// Memory was written with a system call.
    Write,
    /// An image was mapped.
    #[strum(serialize = "load-image")]
    Load,
}

impl ChangeKind {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A change of memory that an event reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Change {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The first address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The new protection, as Windows numbers it.
    pub protection: Option<u32>,
    /// The protection before the change.
    pub previous: Option<u32>,
    /// Whether the memory belongs to another process than the caller's.
    pub is_other: bool,
    /// The author of this change.
    pub author: Author,
    /// The code at the address, in the process that owns the memory.
    pub code: Code,
    /// The image that the memory replaced with this change.
    pub replaced: Option<Replaced>,
    /// Whether the allocation or mapping of the memory was recorded, so that the history contains
    /// no time from before the trace.
    pub is_whole: bool,
    /// What happened to the pages, including this change.
    pub history: History,
}

/// The evidence about changes of memory for one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryEvidence<'a> {
    /// The change that the event reports.
    pub change: Option<Change>,
    /// The history of the memory of each frame; empty if none is known.
    pub frames: &'a [Option<History>],
    /// The history of the memory at the start address of the new thread.
    pub start: Option<History>,
}

impl MemoryEvidence<'_> {
    /// No recorded changes.
    pub const NONE: MemoryEvidence<'static> = MemoryEvidence { change: None, frames: &[], start: None };
}

/// `PAGE_READWRITE`, `PAGE_WRITECOPY` and their executable forms.
pub fn is_writable(protection: u32) -> bool {
    protection & 0xcc != 0
}

/// `PAGE_EXECUTE` and its forms.
pub fn is_executable(protection: u32) -> bool {
    protection & 0xf0 != 0
}

/// Whether a change of protection allows to change code: code becomes writable, or pages that are
/// or were writable become executable. An unknown protection is 0.
pub fn is_patch(previous: u32, protection: u32) -> bool {
    is_executable(previous) && is_writable(protection)
        || is_executable(protection) && (is_writable(previous) || is_writable(protection))
}
