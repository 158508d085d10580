//! Evaluating call stacks: who entered the kernel, and in a way that legitimate programs do not?
//!
//! A source of events puts each stack into the normal form ([`Stack`]) and says what it knows of the event ([`Event`]).
//! The [`Detector`] answers 24 questions about it, the [detections](catalogue::DETECTIONS): `yes`, `no` or `undetermined`, each
//! with its reasons, what was looked at and what was missing. Where evidence is missing, no answer is "no".
//!
//! Knows modules, code and stacks. Must not know where stacks come from, or how findings are shown.
#![forbid(unsafe_code)]

pub mod alert;
pub mod binaries;
mod case;
pub mod catalogue;
mod check;
mod evaluate;
mod images;
pub mod report;
mod stack;
mod totals;
mod verdict;
mod view;

pub use binaries::{Binaries, BytesAround, CodeLocation, FunctionName, Lookup};
pub use case::{Case, Entry, Event, Load, Process, Services, Start, Target};
pub use catalogue::{Detection, DetectionId};
pub use evaluate::{Detector, evaluate};
pub use stack::{Gap, LiveFrame, Memory, MemoryKind, Part, SiteBytes, Stack};
pub use totals::{Tally, Totals};
pub use verdict::{Evaluation, Input, Inputs, Outcome, Reason, Reasons, Severity, Verdict};
pub use view::View;
