//! What a hunt is asked for, apart from its input.

use stackhound_detect::baseline::Baseline;
use stackhound_detect::tuning::Tuning;
use stackhound_detect::{DetectionId, Severity};
use stackhound_frames::Lists;
use stackhound_images::ImageTable;

use crate::rules::Rules;

/// How events are evaluated, and which answers count. With the same policy, all hunts in the same
/// events have the same findings.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Modules, folders and programs that detections know.
    pub lists: Lists,
    /// Facts about image files.
    pub images: ImageTable,
    /// Other severities, and exceptions.
    pub tuning: Tuning,
    /// The usual findings.
    pub baseline: Option<Baseline>,
    /// Rules that are evaluated in addition to the detections.
    pub rules: Rules,
}

/// The detections and rules whose findings are passed on and counted.
#[derive(Clone, Debug, Default)]
pub enum Analytics {
    /// All of them.
    #[default]
    All,
    /// These detections.
    Detections(Vec<DetectionId>),
    /// All rules, which can use the answers of detections.
    Rules,
}

impl Analytics {
    pub(crate) fn has_rules(&self) -> bool {
        !matches!(self, Analytics::Detections(_))
    }

    pub(crate) fn has(&self, id: DetectionId) -> bool {
        match self {
            Analytics::All => true,
            Analytics::Detections(ids) => ids.contains(&id),
            Analytics::Rules => false,
        }
    }
}

/// Which findings a hunt passes on. Others are only counted.
#[derive(Clone, Debug)]
pub struct FindingSelection {
    /// The lowest severity, after severities were changed by the policy.
    pub min_severity: Severity,
    /// The detections and rules.
    pub analytics: Analytics,
    /// Whether undetermined answers are passed on too.
    pub undetermined: bool,
    /// Whether findings that the policy suppresses are passed on too, with the reason.
    pub suppressed: bool,
}

impl Default for FindingSelection {
    /// Those that programs read: from low severity on.
    fn default() -> FindingSelection {
        FindingSelection::from_severity(Severity::Low)
    }
}

impl FindingSelection {
    /// The findings of all detections and rules from a severity on.
    pub fn from_severity(min_severity: Severity) -> FindingSelection {
        FindingSelection { min_severity, analytics: Analytics::All, undetermined: false, suppressed: false }
    }
}
