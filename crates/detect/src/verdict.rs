//! Answers: verdicts with reasons, and what they rest on. All of it is plain numbers, so that evaluating allocates nothing.

use crate::catalogue::{DETECTIONS, DetectionId};

/// An answer to a detection's question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// What would tell is missing, or does not decide.
    Undetermined,
}

impl Verdict {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Yes => "yes",
            Verdict::No => "no",
            Verdict::Undetermined => "undetermined",
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Worth knowing where something else was found.
    Info,
    /// Honest programs do so too.
    Low,
    /// Seldom honest.
    Medium,
    /// Hardly ever honest.
    High,
    /// Never honest.
    Critical,
}

impl Severity {
    /// All of them, the lowest first.
    pub const ALL: [Severity; 5] =
        [Severity::Info, Severity::Low, Severity::Medium, Severity::High, Severity::Critical];

    /// The spelling in output and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
            Severity::Critical => "critical",
        }
    }

    /// The one with this spelling.
    pub fn of(name: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// Something that an answer can rest on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Input {
    /// The stack.
    Stack,
    /// Which modules are where, all of them.
    Modules,
    /// What runtimes compiled.
    CompiledCode,
    /// The image file of a module in the stack.
    ImageBytes,
    /// Where functions are: unwind data of that file.
    UnwindData,
    /// Names of functions in Windows' own modules.
    Symbols,
    /// The service that ran.
    Service,
    /// What memory a frame lies in, and what that allows.
    Regions,
    /// Bytes of the process's memory.
    MemoryBytes,
    /// Where the thread started.
    ThreadStart,
    /// That a file is what its path says: a hash, signature or list.
    ImageIdentity,
    /// The process that something was done to.
    Target,
    /// The rights that were asked for.
    AccessMask,
    /// How the kernel was entered.
    KernelEntry,
    /// The kernel's part of the stack.
    KernelStack,
    /// The registers of the thread.
    ThreadContext,
}

impl Input {
    /// All of them.
    pub const ALL: [Input; 16] = [
        Input::Stack,
        Input::Modules,
        Input::CompiledCode,
        Input::ImageBytes,
        Input::UnwindData,
        Input::Symbols,
        Input::Service,
        Input::Regions,
        Input::MemoryBytes,
        Input::ThreadStart,
        Input::ImageIdentity,
        Input::Target,
        Input::AccessMask,
        Input::KernelEntry,
        Input::KernelStack,
        Input::ThreadContext,
    ];

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            Input::Stack => "stack",
            Input::Modules => "modules",
            Input::CompiledCode => "compiled_code",
            Input::ImageBytes => "image_bytes",
            Input::UnwindData => "unwind_data",
            Input::Symbols => "symbols",
            Input::Service => "service",
            Input::Regions => "regions",
            Input::MemoryBytes => "memory_bytes",
            Input::ThreadStart => "thread_start",
            Input::ImageIdentity => "image_identity",
            Input::Target => "target",
            Input::AccessMask => "access_mask",
            Input::KernelEntry => "kernel_entry",
            Input::KernelStack => "kernel_stack",
            Input::ThreadContext => "thread_context",
        }
    }
}

/// A set of [`Input`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Inputs(u16);

impl Inputs {
    /// None.
    pub const NONE: Inputs = Inputs(0);

    /// These.
    pub const fn of(inputs: &[Input]) -> Inputs {
        let (mut set, mut at) = (0, 0);
        while at < inputs.len() {
            set |= 1 << inputs[at] as u16;
            at += 1;
        }
        Inputs(set)
    }

    /// With one more.
    pub const fn with(self, input: Input) -> Inputs {
        Inputs(self.0 | 1 << input as u16)
    }

    /// With those of another set.
    pub const fn and(self, other: Inputs) -> Inputs {
        Inputs(self.0 | other.0)
    }

    /// Whether one is among them.
    pub fn has(self, input: Input) -> bool {
        self.0 & 1 << input as u16 != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in the set, in the order of [`Input::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Input> {
        Input::ALL.into_iter().filter(move |input| self.has(*input))
    }
}

pub use crate::catalogue::reason::Reason;

/// A set of [`Reason`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reasons(u128);

impl Reasons {
    /// None.
    pub const NONE: Reasons = Reasons(0);

    /// With one more.
    pub fn with(self, reason: Reason) -> Reasons {
        Reasons(self.0 | 1 << reason as u8)
    }

    /// Whether one is among them.
    pub fn has(self, reason: Reason) -> bool {
        self.0 & 1 << reason as u8 != 0
    }

    /// Those in the set, in the order of [`Reason::all`].
    pub fn iter(self) -> impl Iterator<Item = Reason> {
        Reason::all().filter(move |reason| self.has(*reason))
    }
}

/// The answer to one detection's question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// The answer.
    pub verdict: Verdict,
    /// How much it matters if the answer is yes; how much it would at most if undetermined.
    pub severity: Severity,
    /// Why.
    pub reasons: Reasons,
    /// What was looked at.
    pub used: Inputs,
    /// What would have been looked at too, if it had been there.
    pub missing: Inputs,
    /// The frame that it is about.
    pub frame: Option<u16>,
}

impl Outcome {
    /// A "no" for this reason, which rests on these inputs.
    pub fn no(reason: Reason, used: Inputs) -> Outcome {
        Outcome {
            verdict: Verdict::No,
            severity: Severity::Info,
            reasons: Reasons::default().with(reason),
            used,
            missing: Inputs::NONE,
            frame: None,
        }
    }

    /// A "yes" about a frame.
    pub fn yes(severity: Severity, frame: Option<usize>, reason: Reason, used: Inputs) -> Outcome {
        let frame = frame.and_then(|frame| u16::try_from(frame).ok());
        Outcome { verdict: Verdict::Yes, severity, frame, ..Outcome::no(reason, used) }
    }

    /// Undecided, since something is missing.
    pub fn undetermined(severity: Severity, reason: Reason, used: Inputs, missing: Inputs) -> Outcome {
        Outcome { verdict: Verdict::Undetermined, severity, missing, ..Outcome::no(reason, used) }
    }

    /// With one more reason.
    pub fn because(self, reason: Reason) -> Outcome {
        Outcome { reasons: self.reasons.with(reason), ..self }
    }

    /// About this frame.
    pub fn at(self, frame: usize) -> Outcome {
        Outcome { frame: u16::try_from(frame).ok(), ..self }
    }
}

/// The answers to all detections' questions about one case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Evaluation {
    /// In the order of [`DETECTIONS`].
    pub outcomes: [Outcome; DETECTIONS.len()],
}

impl Evaluation {
    /// The answer to one.
    pub fn outcome(&self, id: DetectionId) -> &Outcome {
        &self.outcomes[id.index()]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (DetectionId, &Outcome)> {
        DetectionId::all().zip(&self.outcomes)
    }

    /// Those that are so.
    pub fn findings(&self) -> impl Iterator<Item = (DetectionId, &Outcome)> {
        self.iter().filter(|(_, outcome)| outcome.verdict == Verdict::Yes)
    }
}
