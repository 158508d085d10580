//! Marks that the rules of the user and a baseline leave on a finding.

use std::sync::Arc;

use strum::IntoStaticStr;

/// The cause of a suppression.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SuppressedBy {
    /// An entry of `[[exceptions]]`.
    Exception,
    /// `[severity]`, with the value "off".
    Severity,
    /// The baseline, which contains the finding.
    Baseline,
}

impl SuppressedBy {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why a finding is not reported.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Suppression {
    /// The cause.
    pub by: SuppressedBy,
    /// Line of the rule in the file of lists; `None` for a baseline.
    pub line: Option<usize>,
    /// The reason, for people.
    pub reason: String,
    /// The last day on which the rule applies, such as `2027-01-31`; empty if it does not expire.
    pub expires: String,
}

impl Suppression {
    /// The suppression of findings that the baseline contains.
    pub fn by_baseline() -> Arc<Suppression> {
        Arc::new(Suppression {
            by: SuppressedBy::Baseline,
            line: None,
            reason: Novelty::Known.text().to_owned(),
            expires: String::new(),
        })
    }
}

/// How a finding compares with the baseline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Novelty {
    /// The program had this finding with this stack.
    Known,
    /// The stack is known for this detection, but not of this program.
    NewProcess,
    /// The program is known, but not with this stack.
    NewStack,
    /// Neither is known.
    New,
    /// Program and stack do not identify the activity: a script host, an incomplete path of the
    /// program, a target that holds credentials, or no stack.
    Excluded,
}

impl Novelty {
    /// All values.
    pub const ALL: [Novelty; 5] =
        [Novelty::Known, Novelty::NewProcess, Novelty::NewStack, Novelty::New, Novelty::Excluded];

    /// The spelling in documents.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The spelling for people.
    pub fn text(self) -> &'static str {
        match self {
            Novelty::Known => "known from the baseline",
            Novelty::NewProcess => "new process",
            Novelty::NewStack => "new stack",
            Novelty::New => "new process and stack",
            Novelty::Excluded => "not compared with the baseline",
        }
    }
}
