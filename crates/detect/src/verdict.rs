//! Answers: verdicts with their reasons and evidence. All types are plain numbers, so that
//! evaluation does not allocate.

use strum::{IntoStaticStr, VariantArray};

/// The answer of a detection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// The detection applies to the event.
    Yes,
    /// The detection does not apply to the event.
    No,
    /// Evidence is missing or not conclusive.
    Undetermined,
}

impl Verdict {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Severity {
    /// Useful in addition to other findings.
    Info,
    /// Benign programs do this too.
    Low,
    /// Rarely benign.
    Medium,
    /// Almost never benign.
    High,
    /// Never benign.
    Critical,
}

impl Severity {
    /// All severities, the lowest first.
    pub const ALL: [Severity; 5] =
        [Severity::Info, Severity::Low, Severity::Medium, Severity::High, Severity::Critical];

    /// The spelling in output and arguments.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the severity with this spelling.
    pub fn of(name: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// A kind of evidence that an answer can be based on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Input {
    /// The stack.
    Stack,
    /// All modules of the process, with their addresses.
    Modules,
    /// The JIT-compiled code that runtimes report.
    CompiledCode,
    /// The image file of a module in the stack.
    ImageBytes,
    /// The bounds of functions, from the unwind data of that file.
    UnwindData,
    /// Names of functions in modules of Windows.
    Symbols,
    /// The system service that ran.
    Service,
    /// The kind and protection of a frame's memory.
    Regions,
    /// Bytes of the process's memory.
    MemoryBytes,
    /// The start address of the thread.
    ThreadStart,
    /// The identity of a file: a hash, signature or list.
    ImageIdentity,
    /// The target process of the operation.
    Target,
    /// The requested access rights.
    AccessMask,
    /// How the kernel was entered.
    KernelEntry,
    /// The kernel stack.
    KernelStack,
    /// The registers of the thread.
    ThreadContext,
    /// Recorded changes of memory and its protection.
    MemoryChanges,
}

impl Input {
    /// All inputs.
    pub const ALL: &[Input] = Input::VARIANTS;

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A set of [`Input`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Inputs(u32);

impl Inputs {
    /// The empty set.
    pub const NONE: Inputs = Inputs(0);

    /// The set of these inputs.
    pub const fn of(inputs: &[Input]) -> Inputs {
        let (mut set, mut at) = (0, 0);
        while at < inputs.len() {
            set |= 1 << inputs[at] as u32;
            at += 1;
        }
        Inputs(set)
    }

    /// Adds an input.
    pub const fn with(self, input: Input) -> Inputs {
        Inputs(self.0 | 1 << input as u32)
    }

    /// Adds the inputs of another set.
    pub const fn and(self, other: Inputs) -> Inputs {
        Inputs(self.0 | other.0)
    }

    /// Whether the set contains an input.
    pub fn has(self, input: Input) -> bool {
        self.0 & 1 << input as u32 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The inputs in the set, in the order of [`Input::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Input> {
        Input::ALL.iter().copied().filter(move |input| self.has(*input))
    }
}

pub use crate::catalogue::reason::Reason;

/// A set of [`Reason`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reasons([u32; Reasons::WORDS]);

const _: () = assert!(Reason::ALL.len() <= Reasons::CAPACITY);

impl Reasons {
    /// One bit per reason.
    const WORDS: usize = 6;

    /// The number of reasons that a set has room for.
    const CAPACITY: usize = 32 * Reasons::WORDS;

    /// The empty set.
    pub const NONE: Reasons = Reasons([0; Reasons::WORDS]);

    /// Adds a reason.
    pub fn with(mut self, reason: Reason) -> Reasons {
        self.0[reason as usize / 32] |= 1 << (reason as usize % 32);
        self
    }

    /// Whether the set contains a reason.
    pub fn has(self, reason: Reason) -> bool {
        self.0[reason as usize / 32] & 1 << (reason as usize % 32) != 0
    }

    /// The reasons in the set, in the order of [`Reason::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Reason> {
        Reason::ALL.iter().copied().filter(move |reason| self.has(*reason))
    }
}

/// The answer of one detection for one event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The severity of a finding; for undetermined, the highest possible severity.
    pub severity: Severity,
    /// The reasons for the verdict.
    pub reasons: Reasons,
    /// The evidence that was used.
    pub used: Inputs,
    /// The missing evidence that would have been used too.
    pub missing: Inputs,
    /// The index of the frame that the answer concerns.
    pub frame: Option<u16>,
}

impl Outcome {
    /// The verdict "no" with its reason and evidence.
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

    /// The verdict "yes" about a frame.
    pub fn yes(severity: Severity, frame: Option<usize>, reason: Reason, used: Inputs) -> Outcome {
        let frame = frame.and_then(|frame| u16::try_from(frame).ok());
        Outcome { verdict: Verdict::Yes, severity, frame, ..Outcome::no(reason, used) }
    }

    /// The verdict "undetermined" because evidence is missing.
    pub fn undetermined(severity: Severity, reason: Reason, used: Inputs, missing: Inputs) -> Outcome {
        Outcome { verdict: Verdict::Undetermined, severity, missing, ..Outcome::no(reason, used) }
    }

    /// Adds a reason.
    pub fn because(self, reason: Reason) -> Outcome {
        Outcome { reasons: self.reasons.with(reason), ..self }
    }

    /// Sets the frame that the answer concerns.
    pub fn at(self, frame: usize) -> Outcome {
        Outcome { frame: u16::try_from(frame).ok(), ..self }
    }
}
