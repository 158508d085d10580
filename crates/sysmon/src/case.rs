//! Converts rows to cases in the normal form.
//!
//! An access has the stack of the thread that opened the handle, from the entry of the kernel on.
//! Sysmon walks the stack inside the system call, so the innermost user frame is the return address
//! of the system call. The modules are those of the list of loaded modules of the process at that
//! time. Code in no module is unbacked.

use stackhound_detect::{
    Case, Detector, Entry, Event, Gap, Part, Process, Services, Stack, Start, Tampering, TamperingKind,
    Target,
};
use stackhound_frames::{Code, Frame, Lists, ModuleIndex, Modules, Operation, Role};
use stackhound_symbols::folder::below_windows;
use stackhound_types::{Address, Mode};

use crate::call_trace::{self, FrameError, FrameLocation, Hex};
use crate::known::ModuleNumbers;
use crate::row::{Action, Aim, Row};

/// The limit of frames per stack. Sysmon writes at most 24.
const FRAMES_MAX: usize = 1024;

/// The offset of an address of which only the module is known. It is outside of any file, so that
/// nothing is looked up there.
pub const OFFSET_UNKNOWN: u64 = u64::MAX;

/// Converts rows to cases. Allocates only for new modules.
#[derive(Debug)]
pub struct Cases {
    /// The services that can open a process, and those that can create a thread.
    opens: Box<[Box<str>]>,
    starts: Box<[Box<str>]>,
    pub(crate) modules: ModuleNumbers,
}

/// The case of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowCase<'c> {
    /// The case.
    pub case: Case<'c>,
    /// The error of the first frame that cannot be read. Such a frame has unknown code, and its
    /// stack has losses.
    pub damage: Option<FrameError>,
    /// Whether the same row of another process of the machine can have other modules.
    pub(crate) is_by_process: bool,
}

impl Cases {
    /// Builds a converter for a detector with these lists.
    pub fn new(lists: &Lists) -> Cases {
        Cases {
            opens: lists.causes(Operation::ProcessOpen).into(),
            starts: lists.causes(Operation::ThreadCreate).into(),
            modules: ModuleNumbers::default(),
        }
    }

    /// Returns the case of a row, `None` for rows that are not evaluated. Its frames are in
    /// `frames`, which is reused for many rows.
    ///
    /// All calls must use the same detector, which assigns the module indexes.
    pub fn case<'c>(
        &'c mut self,
        detector: &mut Detector,
        row: &Row<'c>,
        frames: &'c mut Vec<Frame>,
    ) -> Option<RowCase<'c>> {
        let process = (row.host, row.actor.guid);
        match row.action {
            Action::ProcessAccess { call_trace, .. } => {
                for frame in call_trace::frames(call_trace).take(FRAMES_MAX).flatten() {
                    if let FrameLocation::Module { path, .. } = frame.location {
                        self.modules.find(detector, process, path);
                    }
                }
            }
            Action::RemoteThread { module, .. } if !module.is_empty() => {
                self.modules.find(detector, process, module);
            }
            Action::ProcessTampering { .. } if !row.actor.image.is_empty() => {
                self.modules.find(detector, process, row.actor.image);
            }
            _ => {}
        }
        frames.clear();
        let (case, damage, is_by_process) = self.build(&detector.modules, row, frames)?;
        let stack = Stack { frames, ..case.stack };
        Some(RowCase { case: Case { stack, ..case }, damage, is_by_process })
    }

    /// Builds the case of a row whose modules are known, with its frames in `frames` instead of in
    /// the stack.
    pub(crate) fn build<'c>(
        &'c self,
        modules: &Modules,
        row: &Row<'c>,
        frames: &mut Vec<Frame>,
    ) -> Option<(Case<'c>, Option<FrameError>, bool)> {
        let image = row.actor.image;
        let process = (row.host, row.actor.guid);
        let target = |aim: &Aim<'c>, access| {
            let is_other = aim.pid.is_none() || aim.pid != row.actor.pid;
            Some(Target { image: aim.image, is_other, access })
        };
        match &row.action {
            Action::ProcessAccess { target: aim, access, call_trace } => {
                let (stack, traits, damage) = self.stack(modules, process, call_trace, frames);
                let event = Event {
                    entry: Entry::SystemCall,
                    operation: Operation::ProcessOpen,
                    services: services(&self.opens),
                    target: target(aim, *access),
                    ..Event::OTHER
                };
                let process = Process {
                    image,
                    is_wow64: traits.is_wow64(image),
                    has_runtime: traits.has_runtime.then_some(true),
                    has_win32u: traits.has_win32u.then_some(true),
                    thread_start: None,
                };
                Some((Case { event, process, stack }, damage, traits.is_by_process))
            }
            Action::RemoteThread { target: aim, address, module, function, .. } => {
                let (code, map_is_complete) = self.start(process, *address, module);
                let target = target(aim, None);
                let start = Start {
                    address: address.value(),
                    is_kernel: address.is_kernel_address(),
                    code,
                    function: Some(*function).filter(|function| !function.is_empty()),
                    is_remote: target.is_some_and(|target| target.is_other),
                };
                let event = Event {
                    entry: Entry::SystemCall,
                    operation: Operation::ThreadCreate,
                    services: services(&self.starts),
                    target,
                    start: Some(start),
                    ..Event::OTHER
                };
                let process = Process { image, ..Process::UNKNOWN };
                let stack = Stack { map_is_complete, ..NO_STACK };
                Some((Case { event, process, stack }, None, true))
            }
            Action::ProcessTampering { kind } => {
                let module = self.modules.get(process, image).map(|found| found.index);
                let tampering = Tampering { kind: tampering_kind(kind), module };
                let event = Event { tampering: Some(tampering), ..Event::OTHER };
                let process = Process { image, ..Process::UNKNOWN };
                Some((Case { event, process, stack: NO_STACK }, None, true))
            }
            _ => None,
        }
    }

    /// The code at the start address of a thread, and whether all modules are known.
    fn start(&self, process: (&str, &str), address: Hex, module: &str) -> (Code, bool) {
        if !module.is_empty() {
            let module = self.modules.get(process, module).map(|found| found.index);
            return module
                .map_or((Code::Unknown, false), |module| (Code::Image(module, OFFSET_UNKNOWN), true));
        }
        let is_null = address.value() == 0;
        (if is_null || address.is_kernel_address() { Code::Unknown } else { Code::Unbacked }, true)
    }

    /// Parses the frames of a call trace.
    fn stack(
        &self,
        modules: &Modules,
        process: (&str, &str),
        text: &str,
        frames: &mut Vec<Frame>,
    ) -> (Stack<'static>, Traits, Option<FrameError>) {
        let (mut stack, mut traits, mut damage) = (NO_STACK, Traits::default(), None);
        if !text.is_empty() {
            stack.user = Part::Whole;
        }
        for frame in call_trace::frames(text) {
            if frames.len() == FRAMES_MAX {
                stack.has_losses = true;
                break;
            }
            let unknown = Frame::user(Code::Unknown);
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    damage.get_or_insert(error);
                    stack.has_losses = true;
                    frames.push(unknown);
                    continue;
                }
            };
            let is_wow64 = frame.is_wow64;
            frames.push(match frame.location {
                FrameLocation::Module { path, offset } => match self.modules.get(process, path) {
                    Some(found) => {
                        traits.is_by_process |= found.is_by_process;
                        let code = Code::Image(found.index, offset.value());
                        if found.is_driver {
                            Frame { mode: Mode::Kernel, ..Frame::user(code) }
                        } else {
                            traits.add_module(modules, found.index, is_wow64);
                            Frame { is_wow64, ..Frame::user(code) }
                        }
                    }
                    None => {
                        stack.map_is_complete = false;
                        Frame { is_wow64, ..unknown }
                    }
                },
                FrameLocation::Unknown { address } => {
                    traits.has_32_bit_address |= address.width() <= 8 && !is_wow64;
                    let (is_kernel, is_null) = (frame.is_kernel(), address.value() == 0);
                    Frame {
                        address: Some(Address(address.value())).filter(|_| !is_null),
                        mode: if is_kernel { Mode::Kernel } else { Mode::User },
                        is_wow64,
                        code: if is_kernel || is_null { Code::Unknown } else { Code::Unbacked },
                        ..unknown
                    }
                }
            });
            traits.is_marked |= is_wow64;
        }
        if traits.is_native() {
            // 32-bit Windows has no such frames, but old versions of Sysmon mark some there.
            frames.iter_mut().for_each(|frame| frame.is_wow64 = false);
        }
        stack.limit = Some(if frames.len() == usize::from(OLD_LIMIT) { OLD_LIMIT } else { LIMIT });
        (stack, traits, damage)
    }
}

/// Sysmon's limit of frames, and that of versions before about 10.4. Events do not state the
/// version, so a stack of either length may be truncated.
const LIMIT: u16 = 24;
const OLD_LIMIT: u16 = 16;

/// Sysmon never records the kernel stack.
pub(crate) const NO_STACK: Stack<'static> = Stack {
    frames: &[],
    live: &[],
    kernel: Part::Missing(Gap::NotRecorded),
    user: Part::Missing(Gap::NotRecorded),
    limit: None,
    map_is_complete: true,
    has_losses: false,
    is_certain: true,
    is_truncated: false,
};

/// The kind of tampering in Sysmon's texts.
fn tampering_kind(text: &str) -> TamperingKind {
    match text {
        "Image is replaced" => TamperingKind::Replaced,
        "Image is locked for access" => TamperingKind::Locked,
        _ => TamperingKind::Unknown,
    }
}

fn services(causes: &[Box<str>]) -> Services<'_> {
    if causes.is_empty() { Services::Unknown } else { Services::OneOf(causes) }
}

/// Properties of a process that its frames show.
#[derive(Clone, Copy, Default)]
struct Traits {
    /// A frame is marked as 32-bit code on 64-bit Windows.
    is_marked: bool,
    /// A module of the layer that runs 32-bit code.
    has_layer: bool,
    /// A library of Windows that only native code uses.
    has_base: bool,
    /// An address of 32-bit Windows.
    has_32_bit_address: bool,
    has_runtime: bool,
    has_win32u: bool,
    is_by_process: bool,
}

impl Traits {
    fn add_module(&mut self, modules: &Modules, module: ModuleIndex, is_wow64: bool) {
        let module = modules.get(module);
        let roles = module.roles;
        let is_base = roles.has(Role::NativeLayer) && !roles.has_any(Role::SystemCall | Role::Wow64);
        self.has_layer |= roles.has(Role::Wow64);
        self.has_base |= is_base && !is_wow64;
        self.has_runtime |= roles.has(Role::Runtime);
        self.has_win32u |= roles.has(Role::SystemCall) && module.name().eq_ignore_ascii_case("win32u.dll");
    }

    /// Whether the process runs only native code.
    fn is_native(self) -> bool {
        !self.has_layer && (self.has_base || self.has_32_bit_address)
    }

    /// Whether it is a 32-bit process on 64-bit Windows, if that is known.
    fn is_wow64(self, image: &str) -> Option<bool> {
        let is_32_bit_image = || {
            let rest = below_windows(image, None)?;
            rest.split_at_checked(r"\SysWOW64\".len())
                .filter(|(folder, _)| folder.eq_ignore_ascii_case(r"\SysWOW64\"))
        };
        match self {
            _ if self.is_native() => Some(false),
            _ if self.has_layer || self.is_marked || is_32_bit_image().is_some() => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
