//! The detector: runs all detections on one event, and limits their answers to what the evidence
//! supports.

use stackhound_frames::{Lists, ModuleFacts, ModuleIndex, Modules};
use stackhound_images::ImageTable;

use crate::binaries::Binaries;
use crate::case::Case;
use crate::catalogue::{DETECTIONS, DetectionId};
use crate::check::Evidence;
use crate::stack::{Part, Stack};
use crate::verdict::{Input, Outcome, Reason, Verdict};
use crate::view::View;

/// Evaluates stacks with its own table of modules. Traces have their own table: see [`evaluate`].
#[derive(Debug)]
pub struct Detector {
    /// All modules seen so far, with the lists that assign their roles.
    pub modules: Modules,
    /// The image files of these modules.
    pub binaries: Binaries,
}

impl Detector {
    /// Creates a detector with these lists and files.
    pub fn new(lists: Lists, binaries: Binaries) -> Detector {
        Detector { modules: Modules::new(lists), binaries }
    }

    /// Sets facts about image files, which apply to modules that are added later.
    #[must_use]
    pub fn with_images(self, images: ImageTable) -> Detector {
        Detector { modules: self.modules.with_images(images), ..self }
    }

    /// The lists that the detections use.
    pub fn lists(&self) -> &Lists {
        self.modules.lists()
    }

    /// The index of a module: see [`Modules::add`].
    pub fn module(&mut self, facts: &ModuleFacts, windows: Option<&str>) -> ModuleIndex {
        self.modules.add(facts, windows)
    }

    /// Evaluates one event: see [`evaluate`].
    pub fn evaluate(&mut self, case: &Case<'_>) -> Evaluation {
        evaluate(&self.modules, &mut self.binaries, case)
    }
}

/// The answers of all detections for one event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Evaluation {
    /// In the order of [`DETECTIONS`].
    outcomes: [Outcome; DETECTIONS.len()],
    /// Whether any verdict is "yes".
    has_findings: bool,
}

impl Evaluation {
    /// The answers of all detections, in the order of [`DETECTIONS`].
    pub fn new(outcomes: [Outcome; DETECTIONS.len()]) -> Evaluation {
        let has_findings = outcomes.iter().any(|outcome| outcome.verdict == Verdict::Yes);
        Evaluation { outcomes, has_findings }
    }

    /// The answer of one detection.
    pub fn outcome(&self, id: DetectionId) -> &Outcome {
        &self.outcomes[id.index()]
    }

    /// All answers with their detections.
    pub fn iter(&self) -> impl Iterator<Item = (DetectionId, &Outcome)> {
        DetectionId::all().zip(&self.outcomes)
    }

    /// The answers with the verdict "yes". Most evaluations have none.
    #[inline]
    pub fn findings(&self) -> impl Iterator<Item = (DetectionId, &Outcome)> {
        let all = self.has_findings.then(|| self.iter());
        all.into_iter().flatten().filter(|(_, outcome)| outcome.verdict == Verdict::Yes)
    }
}

/// Evaluates an event with all detections. `binaries` must belong to `modules`, because files are
/// found by the indexes of modules. Allocates only when a file is read for the first time.
pub fn evaluate(modules: &Modules, binaries: &mut Binaries, case: &Case<'_>) -> Evaluation {
    let (view, lists) = (View::new(case, modules), modules.lists());
    let mut outcomes = [NOT_EVALUATED; DETECTIONS.len()];
    let mut evidence = Evidence { view: &view, lists, binaries, outcomes: &mut outcomes };
    for (index, detection) in DETECTIONS.iter().enumerate() {
        let outcome = (detection.check)(&mut evidence);
        let needs_stack = detection.needs.has(Input::Stack) || detection.needs.has(Input::KernelStack);
        evidence.outcomes[index] = limited_to_evidence(case, needs_stack, outcome);
    }
    Evaluation::new(outcomes)
}

const NOT_EVALUATED: Outcome = Outcome {
    verdict: Verdict::Undetermined,
    severity: crate::verdict::Severity::Info,
    reasons: crate::verdict::Reasons::NONE,
    used: crate::verdict::Inputs::NONE,
    missing: crate::verdict::Inputs::NONE,
    frame: None,
};

/// Changes "no" to "undetermined" if the stack, modules or events are missing that could change the
/// answer, and "yes" if the frames that it is based on are uncertain.
fn limited_to_evidence(case: &Case<'_>, needs_stack: bool, outcome: Outcome) -> Outcome {
    let Stack { frames, user, map_is_complete, has_losses, is_certain, .. } = case.stack;
    if needs_stack && outcome.verdict == Verdict::Yes {
        let unsure = |reason, input| Outcome {
            verdict: Verdict::Undetermined,
            missing: outcome.missing.with(input),
            ..outcome.because(reason)
        };
        if !is_certain {
            return unsure(Reason::StackUncertain, Input::Stack);
        }
        if frames.iter().any(|frame| frame.is_uncertain) {
            return unsure(Reason::EventsLost, Input::Modules);
        }
    }
    let has_stack = !needs_stack || (user == Part::Whole && is_certain);
    if outcome.verdict != Verdict::No || (has_stack && map_is_complete && !has_losses) {
        return outcome;
    }
    let mut limited = Outcome { verdict: Verdict::Undetermined, ..outcome };
    if !has_stack {
        let reason = if is_certain { Reason::StackMissing } else { Reason::StackUncertain };
        limited = limited.because(reason);
        limited.missing = limited.missing.with(Input::Stack);
    }
    if !map_is_complete {
        limited = limited.because(Reason::ModulesIncomplete);
        limited.missing = limited.missing.with(Input::Modules);
    }
    if has_losses {
        limited = limited.because(Reason::EventsLost);
        limited.missing = limited.missing.with(Input::Modules);
    }
    limited
}
