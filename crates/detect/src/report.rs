//! An evaluated event with the facts that outputs show, as plain text and numbers that are
//! independent of the source.

use std::sync::Arc;

use stackhound_facts::{ProcessFact, ProcessFacts, ThreadFacts};
use stackhound_frames::{Answer, Backing, Region, RegionKind};
use stackhound_images::ImageEvidence;
use stackhound_types::{Mode, file_name};

use crate::analytic::{Analytic, RuleInfo};
use crate::catalogue::DetectionId;
use crate::marks::{Novelty, Suppression};
use crate::verdict::{Inputs, Outcome, Reasons, Severity, Verdict};

/// The location of an event in its source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceLocation {
    /// The file, as the user named it; for live events, the name of the session.
    pub file: String,
    /// Number of the line or event in the file, starting at 1.
    pub record: u64,
}

/// A process and a thread of it: the acting ones, or those that an event acts on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessReport {
    /// The process id.
    pub pid: Option<u32>,
    /// The thread id.
    pub tid: Option<u32>,
    /// The known facts about the process.
    pub facts: ProcessFacts<'static>,
    /// The known facts about the thread.
    pub thread: ThreadFacts<'static>,
}

impl ProcessReport {
    /// File name of the program; empty if not known.
    pub fn name(&self) -> &str {
        match self.facts.text(ProcessFact::Name) {
            "" => file_name(self.path()),
            name => name,
        }
    }

    /// Path of the program; empty if not known.
    pub fn path(&self) -> &str {
        self.facts.text(ProcessFact::Path)
    }

    /// Path of the program, otherwise its file name; empty if neither is known.
    pub fn path_or_name(&self) -> &str {
        match self.path() {
            "" => self.name(),
            path => path,
        }
    }

    /// The command line; empty if not known.
    pub fn command_line(&self) -> &str {
        self.facts.text(ProcessFact::CommandLine)
    }

    /// Start time in units of 100 ns since 1601, if known. Together with the id it identifies a
    /// process.
    pub fn started(&self) -> Option<u64> {
        self.facts.time(ProcessFact::StartTime).and_then(|time| u64::try_from(time.0).ok())
    }
}

/// An executable file of a process or its stack, and the process that created it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreatedFile {
    /// Path of the file.
    pub path: String,
    /// Time of its last creation before the event, in units of 100 ns since 1601.
    pub time: u64,
    /// The creating process.
    pub pid: Option<u32>,
    /// Path of its program; empty if not known.
    pub process: String,
    /// SHA-256 of the file, if the source reports it.
    pub sha256: Option<[u8; 32]>,
}

/// A report that the image of a process was tampered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TamperingReport {
    /// Time in units of 100 ns since 1601; `None` if not known.
    pub time: Option<u64>,
    /// The kind, in the words of the source; empty if not known.
    pub kind: String,
}

/// The name of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionReport {
    /// The name.
    pub text: String,
    /// Bytes from the start of the function to the address.
    pub offset: u64,
    /// The source of the name, as spelled in output.
    pub origin: &'static str,
}

/// A frame, as shown in output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameReport {
    /// The address as recorded.
    pub address: Option<u64>,
    /// Kernel or user mode.
    pub mode: Mode,
    /// Whether it is 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
    /// Path of the module; empty if the code is in no module.
    pub module: String,
    /// What is known about the image file of the module.
    pub image: ImageEvidence,
    /// Offset in the module.
    pub rva: Option<u64>,
    /// The function, if a file of the module or a runtime names it.
    pub function: Option<FunctionReport>,
    /// Whether the code comes from an image.
    pub backing: Backing,
    /// The memory that the frame is in, as the trace reports it, otherwise as read from the live
    /// process.
    pub region: Region,
    /// Protection of the page when the memory of the live process was read, as Windows numbers it.
    pub page_protection: Option<u32>,
    /// Bytes before the return address, from a file or from memory.
    pub leading_bytes: Vec<u8>,
    /// Bytes from the return address on.
    pub trailing_bytes: Vec<u8>,
}

impl Default for FrameReport {
    /// A user frame without any facts.
    fn default() -> FrameReport {
        FrameReport {
            address: None,
            mode: Mode::User,
            is_wow64: false,
            module: String::new(),
            image: ImageEvidence::default(),
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
    /// The signer of the module's file, if a source found the signature valid; empty if not known.
    pub fn signer(&self) -> &str {
        self.image.valid_signer().unwrap_or_default()
    }

    /// File name of the module, or `jit:` followed by the runtime that compiled the code.
    pub fn module_or_runtime(&self) -> Option<&str> {
        match (file_name(&self.module), self.region.kind) {
            (name, _) if !name.is_empty() => Some(name),
            (_, kind @ RegionKind::Jit(_)) => Some(kind.name()),
            _ => None,
        }
    }

    /// The module or runtime, otherwise the backing of the code.
    pub fn module_name(&self) -> &str {
        self.module_or_runtime().unwrap_or(self.backing.name())
    }

    /// The function and the offset in it, such as `NtOpenProcess+0x14`.
    pub fn symbol(&self) -> Option<String> {
        self.function.as_ref().map(|FunctionReport { text, offset, .. }| format!("{text}+{offset:#x}"))
    }

    /// A short label: `ntdll.dll!NtOpenProcess+0x14`, `ntdll.dll+0x9d4c4`, `unbacked
    /// 0x24f64b7b7a1`.
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

/// A change of memory that an event reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryReport {
    /// The kind of the change, as spelled in output.
    pub kind: &'static str,
    /// The first address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The new protection, as Windows numbers it.
    pub protection: Option<u32>,
    /// The protection before the change.
    pub previous_protection: Option<u32>,
    /// Path of the module at the address; empty if there is none.
    pub module: String,
    /// Offset in the module.
    pub rva: Option<u64>,
    /// The exported function that the change covers, if the file of the module is available. The
    /// first one on the list of sensitive exports, otherwise the first one.
    pub export: Option<String>,
    /// The code that made the change, as spelled in output.
    pub author: &'static str,
    /// How many times the pages became executable again after they had been executable before.
    pub cycles: u32,
    /// The mean time between these, in units of 100 ns.
    pub period: Option<u64>,
}

impl MemoryReport {
    /// A short label: `amsi.dll!AmsiScanBuffer`, `amsi.dll+0x3000`, `0x24f64b70000`.
    pub fn label(&self) -> String {
        let name = file_name(&self.module);
        match (&self.export, self.rva) {
            (Some(export), Some(_)) => format!("{name}!{export}"),
            (None, Some(rva)) => format!("{name}+{rva:#x}"),
            _ => format!("{:#x}", self.address),
        }
    }
}

/// The event, as shown in output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventReport {
    /// Name of the event, such as `PerfInfo/SysCallEnter` or `ProcessAccess`.
    pub name: String,
    /// The provider, such as `Microsoft-Windows-Sysmon`.
    pub provider: String,
    /// The system service that ran; empty if not known.
    pub service: String,
    /// The process and thread that the event acts on, if they are not the acting ones.
    pub target: Option<ProcessReport>,
    /// The memory that the operation concerns.
    pub region: Option<RegionReport>,
    /// The requested access rights.
    pub access: Option<u32>,
    /// Start address of the thread that was started.
    pub start_address: Option<u64>,
    /// The module or function at the start address; empty if not known.
    pub start_name: String,
    /// The change of memory that the event reports.
    pub memory: Option<MemoryReport>,
}

impl EventReport {
    /// Id of the target process.
    pub fn target_pid(&self) -> Option<u32> {
        self.target.as_ref()?.pid
    }

    /// Path or file name of the target process; empty if there is none, or if it is not known.
    pub fn target_path(&self) -> &str {
        self.target.as_ref().map_or("", ProcessReport::path_or_name)
    }
}

/// The memory that an operation concerns, as the event states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionReport {
    /// The first address; the routine of an asynchronous procedure call; the instruction pointer of
    /// a changed context.
    pub address: u64,
    /// The size in bytes.
    pub size: Option<u64>,
    /// The protection after the operation, as a constant `PAGE_*`.
    pub protection: Option<u32>,
    /// The protection before it was changed.
    pub old_protection: Option<u32>,
}

/// An evaluated event with its process and stack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventContext {
    /// The location of the event in its source.
    pub location: SourceLocation,
    /// Number of raw events that are folded into this one; at least 1.
    pub count: u64,
    /// Time in units of 100 ns since 1601; `None` if not known.
    pub time: Option<u64>,
    /// The host name; empty if not known.
    pub host: String,
    /// The acting process.
    pub process: ProcessReport,
    /// The event itself.
    pub event: EventReport,
    /// The frames, innermost first.
    pub stack: Vec<FrameReport>,
    /// The states of the stack, the first applicable one first; empty if the source does not report
    /// any.
    pub states: Vec<&'static str>,
    /// Names of the modules of the user frames, as in
    /// [`Summary::user`](stackhound_frames::Summary::user).
    pub summary: String,
    /// Names of the modules of the kernel frames, as in
    /// [`Summary::kernel`](stackhound_frames::Summary::kernel).
    pub kernel_summary: String,
    /// The final user module, as in [`Summary`](stackhound_frames::Summary::final_user_module).
    pub final_user_module: Option<String>,
    /// The module of the innermost frame, if it is a kernel frame.
    pub final_kernel_module: Option<String>,
    /// Whether a user frame is in no image.
    pub contains_unbacked: Answer,
    /// Whether the user stack is known to be recorded, even if it has no frames.
    pub has_user_part: bool,
    /// The files of the process and its stack that were created before the event, as far as the
    /// source reports it.
    pub created_files: Vec<CreatedFile>,
    /// Other reports that the image of the process was tampered with, in the order of time.
    pub tampering: Vec<TamperingReport>,
    /// The loss that makes the modules of the stack's process uncertain, if one does.
    pub lost: Option<LossReport>,
}

/// A loss that makes the modules of the stack's process at the time of the event uncertain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LossReport {
    /// The process id.
    pub pid: u32,
    /// File name of the program; empty if not known.
    pub process: String,
    /// The begin of the loss interval in units of 100 ns since 1601; `None` if it is not known.
    pub from: Option<u64>,
    /// The end of the loss interval; `None` if it is not known.
    pub until: Option<u64>,
}

/// The match of a rule, in addition to its answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleMatch {
    /// The text that the rule has for people, with the values of the event; empty if it has none.
    pub text: String,
    /// Whether the rule applies unless one of its exceptions does, for which evidence is missing.
    pub is_possible: bool,
    /// The fields that are missing, by their names in conditions; `events` if events were lost.
    pub missing: Vec<String>,
    /// The earlier events of a sequence, in their order.
    pub earlier: Vec<EarlierEvent>,
}

/// An earlier event of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlierEvent {
    /// The number of the line or event in the order of the input, starting at 1.
    pub record: u64,
    /// Time in units of 100 ns since 1601; `None` if not known.
    pub time: Option<u64>,
}

/// The answer of a detection or a rule for an evaluated event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The detection or the rule.
    pub analytic: Analytic,
    /// The answer.
    pub outcome: Outcome,
    /// The match; `None` for detections.
    pub rule_match: Option<Arc<RuleMatch>>,
    /// The key of the alert that contains it: see [`Alerts`](crate::alert::Alerts).
    pub alert: String,
    /// Why it is not reported; `None` if it is.
    pub suppressed: Option<Arc<Suppression>>,
    /// How it compares with the baseline; `None` without one, and for answers other than yes.
    pub novelty: Option<Novelty>,
}

impl Finding {
    /// The answer of a detection that is in no alert yet.
    pub fn new(id: DetectionId, outcome: Outcome) -> Finding {
        let (analytic, rule_match) = (Analytic::Detection(id), None);
        Finding { analytic, outcome, rule_match, alert: String::new(), suppressed: None, novelty: None }
    }

    /// The answer of a rule that is in no alert yet.
    pub fn of_rule(
        rule: Arc<RuleInfo>,
        severity: Severity,
        verdict: Verdict,
        rule_match: RuleMatch,
    ) -> Finding {
        let outcome = Outcome {
            verdict,
            severity,
            reasons: Reasons::NONE,
            used: Inputs::NONE,
            missing: Inputs::NONE,
            frame: None,
        };
        let (analytic, rule_match) = (Analytic::Rule(rule), Some(Arc::new(rule_match)));
        Finding { analytic, outcome, rule_match, alert: String::new(), suppressed: None, novelty: None }
    }

    /// The frame that it concerns.
    pub fn frame<'c>(&self, event_context: &'c EventContext) -> Option<&'c FrameReport> {
        event_context.stack.get(usize::from(self.outcome.frame?))
    }

    /// Whether the detection applies to the event, and the finding is not suppressed.
    pub fn is_reported(&self) -> bool {
        self.outcome.verdict == Verdict::Yes && self.suppressed.is_none()
    }

    /// The reasons as sentences that name the frame they are about.
    pub fn sentences(&self, event_context: &EventContext) -> Vec<String> {
        let label = self.frame(event_context).map_or_else(|| "the frame".to_owned(), FrameReport::label);
        let memory = event_context.event.memory.as_ref();
        let with_facts = |sentence: &str| {
            let sentence = sentence.replace("{frame}", &label);
            let Some(memory) = memory else { return sentence };
            // 100 ns are too fine for people.
            let period = memory.period.map_or_else(
                || "unknown period".to_owned(),
                |period| format!("{}.{:03} s", period / 10_000_000, period / 10_000 % 1000),
            );
            let export = memory.export.as_deref().unwrap_or("a function");
            let facts = [
                ("{memory}", memory.label()),
                ("{export}", export.to_owned()),
                ("{cycles}", memory.cycles.to_string()),
                ("{period}", period),
            ];
            facts.iter().fold(sentence, |sentence, (name, value)| sentence.replace(name, value))
        };
        self.outcome.reasons.iter().map(|reason| with_facts(reason.sentence())).collect()
    }
}
