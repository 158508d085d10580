//! Detections for call stacks: code that enters the kernel in ways that legitimate programs do not.
//!
//! A source of events converts each stack to the normal form ([`Stack`]) and describes the event
//! ([`Event`]). The [`Detector`] evaluates them with [detections](catalogue::DETECTIONS). Each
//! answers `yes`, `no` or `undetermined`, with its reasons, the evidence that was used and the
//! evidence that was missing. Missing evidence never leads to the answer `no`.
//!
//! This crate knows modules, code and stacks. It does not know where stacks come from or how
//! findings are shown.
#![forbid(unsafe_code)]

pub mod alert;
mod analytic;
pub mod baseline;
pub mod binaries;
mod case;
pub mod catalogue;
mod check;
mod evaluate;
mod history;
mod images;
mod marks;
pub mod report;
mod stack;
mod totals;
pub mod tuning;
mod verdict;
mod view;

pub use analytic::{Analytic, RuleInfo};
pub use binaries::{Binaries, BytesAround, CodeLocation, ExportInRange, FunctionName, Lookup};
pub use case::{Case, Entry, Event, Load, Process, Services, Start, Tampering, TamperingKind, Target};
pub use catalogue::{Detection, DetectionId};
pub use evaluate::{Detector, Evaluation, evaluate};
pub use history::{
    Author, Change, ChangeKind, History, MemoryEvidence, Replaced, is_executable, is_patch, is_writable,
};
pub use stack::{Gap, LiveFrame, Memory, MemoryKind, Part, SiteBytes, Stack};
pub use totals::{RuleTally, Tally, Totals, add_count};
pub use verdict::{Input, Inputs, Outcome, Reason, Reasons, Severity, Verdict};
pub use view::View;
