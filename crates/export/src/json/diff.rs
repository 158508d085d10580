//! The differences of two traces, as `diff` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::info::Capture;
use super::top::Window;

/// `diff --format json`: the differences of two traces, A and B. Durations are nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Diff<'a> {
    /// The first trace.
    pub a: DiffSide<'a>,
    /// The second trace.
    pub b: DiffSide<'a>,
    /// What makes amounts comparable: `none`, `second` or `total`.
    pub normalization: &'static str,
    /// Amounts of B are multiplied by this number before they are compared with those of A.
    pub factor: f64,
    /// What amounts of processor time are measured by: `samples`, or `switches` without an estimate
    /// of noise. Null if the traces have neither.
    pub measure: Option<&'static str>,
    /// The smallest share of the total that is compared, from 0 to 1.
    pub share_min: f64,
    /// The comparisons of processor time.
    pub sections: Vec<DiffSection<'a>>,
    /// The comparison of findings. Null if they were not requested.
    pub findings: Option<DiffFindings<'a>>,
}

/// One of the traces.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DiffSide<'a> {
    /// The trace.
    pub capture: Capture<'a>,
    /// The analyzed part of the trace.
    pub window: Window,
    /// Number of processors.
    pub processor_count: u32,
    /// Number of samples that are not idle.
    pub samples: u64,
    /// The processor time that was used, by the measure of this document. Shares are of this time.
    pub busy: u64,
    /// Number of lost events.
    pub events_lost: u64,
    /// Number of lost buffers.
    pub buffers_lost: u64,
    /// Whether records may be missing.
    pub is_lossy: bool,
    /// The largest error of the time of a function or module because of losses. Null if it is not
    /// bounded.
    pub uncertain: Option<u64>,
    /// The same for the time of a stack, and of a function with what it calls.
    pub uncertain_stacks: Option<u64>,
}

/// The comparison of processor time by one kind of name.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DiffSection<'a> {
    /// What the rows are about: `process`, `function`, `total`, `module` or `stack`.
    pub by: &'static str,
    /// Number of compared names.
    pub compared: u64,
    /// Number of changes. All of them are in `rows`, unless their number was limited.
    pub changed: u64,
    /// A difference is significant from this number of standard deviations.
    pub threshold: f64,
    /// The rows: changes first, each with the largest difference first.
    pub rows: Vec<DiffRow<'a>>,
}

/// A row. Times are nanoseconds, those of B without the factor.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DiffRow<'a> {
    /// The process, function or module. Null for stacks.
    pub name: Option<&'a str>,
    /// The names of the frames of a stack, innermost first, and then its process. Null for others.
    pub stack: Option<&'a [String]>,
    /// The result: `new`, `gone`, `more` and `less` are changes. `lost` is a difference that losses
    /// may explain, `noise` is not significant, `unrated` has no estimate of noise.
    pub change: &'static str,
    /// Time in A.
    pub a: u64,
    /// Time in B.
    pub b: u64,
    /// Number of samples in A, or how often it ran by context switches.
    pub a_count: u64,
    /// Number of samples in B, or how often it ran by context switches.
    pub b_count: u64,
    /// The normalized time of B minus that of A.
    pub delta: f64,
    /// `delta` in standard deviations of the noise. Null if the noise is not known.
    pub z: Option<f64>,
}

/// The comparison of findings of at least medium severity.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DiffFindings<'a> {
    /// Number of pairs of detection or rule and program in either trace.
    pub compared: u64,
    /// Number of changes.
    pub changed: u64,
    /// A difference of counts is significant from this number of standard deviations.
    pub threshold: f64,
    /// The rows: changes first, each with the highest severity first.
    pub rows: Vec<DiffFinding<'a>>,
}

/// The findings of one detection or rule in one program.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DiffFinding<'a> {
    /// Id of the detection or rule.
    pub id: &'a str,
    /// Title of the detection or rule.
    pub title: &'a str,
    /// The highest severity.
    pub severity: &'static str,
    /// File name of the program; empty if not known.
    pub process: &'a str,
    /// The path of the program without the parts that differ between machines and versions.
    pub program: &'a str,
    /// The result, as in rows of sections. `only in b` is also a change: nothing like it was found
    /// in A, which lost records. `only in a` is none: B lost records.
    pub change: &'static str,
    /// Number of findings in A.
    pub a: u64,
    /// Number of findings in B.
    pub b: u64,
    /// Number of different stacks, by their modules, that were found in B only. Rare stacks differ
    /// by chance.
    pub new_stacks: u64,
    /// Number of different stacks, by their modules, that were found in A only.
    pub gone_stacks: u64,
}
