//! An evaluated event with the facts that outputs show: plain texts and numbers, whatever the source.

use stackhound_frames::{Answer, Backing, Region, RegionKind};
use stackhound_types::Mode;

use crate::catalogue::DetectionId;
use crate::verdict::Outcome;

/// Where an evaluated event stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceLocation {
    /// The file, as the user named it; the session's name of live events.
    pub file: String,
    /// Number of the line or event in it, from 1.
    pub record: u64,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessReport {
    /// Its id.
    pub pid: Option<u32>,
    /// The thread that acted.
    pub tid: Option<u32>,
    /// File name of its program; empty if not known.
    pub name: String,
    /// Path of its program; empty if not known.
    pub path: String,
    /// How it was started; empty if not known.
    pub command_line: String,
    /// The process that started it.
    pub parent_pid: Option<u32>,
    /// When it was started, in units of 100 ns since 1601, if known. With the id it tells processes apart.
    pub started: Option<u64>,
}

/// The name of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionReport {
    /// The name.
    pub text: String,
    /// Bytes from the beginning of the function to the address.
    pub offset: u64,
    /// Where the name comes from, as outputs spell it.
    pub origin: &'static str,
}

/// One frame, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameReport {
    /// The address as recorded.
    pub address: Option<u64>,
    /// Kernel or user.
    pub mode: Mode,
    /// Whether it is 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
    /// Path of its module; empty if there is none.
    pub module: String,
    /// Offset in the module.
    pub rva: Option<u64>,
    /// The function, if a file of the module or a runtime names it.
    pub function: Option<FunctionReport>,
    /// Whether its code comes from an image.
    pub backing: Backing,
    /// The memory that it is in, by the trace; where the trace does not state it, as it was read from the live process.
    pub region: Region,
    /// What its page allowed when the memory of the live process was read, as Windows numbers it.
    pub page_protection: Option<u32>,
    /// Bytes before the return address, from a file or from memory.
    pub leading_bytes: Vec<u8>,
    /// Bytes from the return address on.
    pub trailing_bytes: Vec<u8>,
}

impl Default for FrameReport {
    /// A user frame of which nothing is known.
    fn default() -> FrameReport {
        FrameReport {
            address: None,
            mode: Mode::User,
            is_wow64: false,
            module: String::new(),
            rva: None,
            function: None,
            backing: Backing::Unknown,
            region: Region::UNKNOWN,
            page_protection: None,
            leading_bytes: Vec::new(),
            trailing_bytes: Vec::new(),
        }
    }
}

impl FrameReport {
    /// File name of its module, or `jit:` and the runtime that compiled it.
    pub fn module_or_runtime(&self) -> Option<&str> {
        match (self.module.rsplit('\\').next(), self.region.kind) {
            (Some(name), _) if !name.is_empty() => Some(name),
            (_, kind @ RegionKind::Jit(_)) => Some(kind.name()),
            _ => None,
        }
    }

    /// The same, or whether its code comes from an image.
    pub fn module_name(&self) -> &str {
        self.module_or_runtime().unwrap_or(self.backing.name())
    }

    /// The function and the offset in it, such as `NtOpenProcess+0x14`.
    pub fn symbol(&self) -> Option<String> {
        self.function.as_ref().map(|FunctionReport { text, offset, .. }| format!("{text}+{offset:#x}"))
    }

    /// In a few words: `ntdll.dll!NtOpenProcess+0x14`, `ntdll.dll+0x9d4c4`, `unbacked 0x24f64b7b7a1`.
    pub fn label(&self) -> String {
        let name = self.module_name();
        match (self.symbol(), self.rva, self.address) {
            (Some(symbol), ..) => format!("{name}!{symbol}"),
            (None, Some(rva), _) => format!("{name}+{rva:#x}"),
            (None, None, Some(address)) => format!("{name} {address:#x}"),
            (None, None, None) => name.to_owned(),
        }
    }
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventReport {
    /// Its name, such as `PerfInfo/SysCallEnter` or `ProcessAccess`.
    pub name: String,
    /// Its provider, such as `Microsoft-Windows-Sysmon`.
    pub provider: String,
    /// The service that ran; empty if not known.
    pub service: String,
    /// Path or name of the process that it was done to; empty if to none.
    pub target: String,
    /// Its id.
    pub target_pid: Option<u32>,
    /// The rights that were asked for.
    pub access: Option<u32>,
    /// Where a thread was started.
    pub start_address: Option<u64>,
    /// The module or function there; empty if not known.
    pub start_name: String,
}

/// An evaluated event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventContext {
    /// Where it stands.
    pub location: SourceLocation,
    /// How many raw events are folded into it; at least 1.
    pub count: u64,
    /// When it happened, in units of 100 ns since 1601; `None` if not known.
    pub time: Option<u64>,
    /// The machine; empty if not known.
    pub host: String,
    /// Who acted.
    pub process: ProcessReport,
    /// What was done.
    pub event: EventReport,
    /// The stack, innermost first.
    pub stack: Vec<FrameReport>,
    /// The states of the stack that apply, the first one first; empty if the source does not state any.
    pub states: Vec<&'static str>,
    /// Names of the user frames' modules, as [`Summary::user`](stackhound_frames::Summary::user) gives them.
    pub summary: String,
    /// The same of the kernel frames: see [`Summary::kernel`](stackhound_frames::Summary::kernel).
    pub kernel_summary: String,
    /// The final user module, as [`Summary`](stackhound_frames::Summary::final_user_module) gives it.
    pub final_user_module: Option<String>,
    /// The module of the innermost frame, if it is a kernel frame.
    pub final_kernel_module: Option<String>,
    /// Whether a user frame is in no image.
    pub contains_unbacked: Answer,
    /// Whether the user part of the stack is known to be there, even if it has no frames.
    pub has_user_part: bool,
}

/// A detection's answer about an evaluated event, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The detection.
    pub id: DetectionId,
    /// Its answer.
    pub outcome: Outcome,
    /// The alert that it belongs to: see [`Alerts`](crate::alert::Alerts).
    pub alert: String,
}

impl Finding {
    /// Its reasons as sentences that name the frame they are about.
    pub fn sentences(&self, event_context: &EventContext) -> Vec<String> {
        let frame = self.outcome.frame.and_then(|frame| event_context.stack.get(usize::from(frame)));
        let label = frame.map_or_else(|| "the frame".to_owned(), FrameReport::label);
        self.outcome.reasons.iter().map(|reason| reason.sentence().replace("{frame}", &label)).collect()
    }
}
