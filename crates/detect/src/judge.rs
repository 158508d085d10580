//! The judge: asks all detections about one case, and limits their answers to what the evidence supports.

use stackhound_symbols::AddressKind;

use crate::binaries::Binaries;
use crate::case::Case;
use crate::catalogue::DETECTIONS;
use crate::lists::{Functions, Lists};
use crate::module::{ModuleFacts, ModuleIndex, Modules};
use crate::stack::{Code, Part, Stack};
use crate::verdict::{Input, Judgement, Outcome, Reason, Verdict};
use crate::view::View;

/// What a detection looks at.
pub(crate) struct Evidence<'a, 'j> {
    pub view: &'a View<'a>,
    pub lists: &'a Lists,
    pub binaries: &'j mut Binaries,
    /// The answers up to now, for detections that build on others; those behind are undetermined.
    pub outcomes: [Outcome; DETECTIONS.len()],
}

impl Evidence<'_, '_> {
    /// Whether a frame is in a function of a list; `None` if its function has no name.
    pub fn is_function(&mut self, index: usize, list: Functions) -> Option<bool> {
        let frame = self.view.frame(index);
        let Code::Image(module, offset) = frame.code else { return Some(false) };
        let kind = if frame.is_instruction { AddressKind::Instruction } else { AddressKind::Return };
        let name = self.view.modules.get(module).name();
        let function = self.binaries.function(self.view.modules, (module, offset), kind)?;
        Some(self.lists.has_function(list, name, &function.text))
    }
}

/// Judges stacks.
#[derive(Debug)]
pub struct Judge {
    lists: Lists,
    modules: Modules,
    binaries: Binaries,
}

impl Judge {
    /// A judge who believes in these lists and looks into these files.
    pub fn new(lists: Lists, binaries: Binaries) -> Judge {
        Judge { lists, modules: Modules::default(), binaries }
    }

    /// What it believes in.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// All modules that were met.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The files that it looks into, with the modules that these are looked up by.
    pub fn binaries(&mut self) -> (&mut Binaries, &Modules) {
        (&mut self.binaries, &self.modules)
    }

    /// Whether it looks into files at all.
    pub fn has_files(&self) -> bool {
        !self.binaries.is_none()
    }

    /// The number of a module: see [`Modules::add`].
    pub fn module(&mut self, facts: &ModuleFacts, windows: Option<&str>) -> ModuleIndex {
        self.modules.add(facts, windows, &self.lists)
    }

    /// Answers all questions about a case. Allocates nothing where no file is looked into for the first time.
    pub fn judge(&mut self, case: &Case<'_>) -> Judgement {
        let Judge { lists, modules, binaries } = self;
        let view = View::new(case, modules);
        let outcomes = [UNASKED; DETECTIONS.len()];
        let mut evidence = Evidence { view: &view, lists, binaries, outcomes };
        for (index, detection) in DETECTIONS.iter().enumerate() {
            let outcome = (detection.check)(&mut evidence);
            let needs_stack = detection.needs.has(Input::Stack) || detection.needs.has(Input::KernelStack);
            evidence.outcomes[index] = limited_to_evidence(case, needs_stack, outcome);
        }
        Judgement { outcomes: evidence.outcomes }
    }
}

const UNASKED: Outcome = Outcome {
    verdict: Verdict::Undetermined,
    severity: crate::verdict::Severity::Info,
    reasons: crate::verdict::Reasons::NONE,
    used: crate::verdict::Inputs::NONE,
    missing: crate::verdict::Inputs::NONE,
    frame: None,
};

/// Turns a "no" into "undetermined" where the stack, modules or events are missing that could show otherwise, and a "yes"
/// where the frames that it rests on are uncertain.
fn limited_to_evidence(case: &Case<'_>, needs_stack: bool, outcome: Outcome) -> Outcome {
    let Stack { user, map_is_complete, has_losses, is_certain, .. } = case.stack;
    if needs_stack && !is_certain && outcome.verdict == Verdict::Yes {
        let outcome = Outcome { verdict: Verdict::Undetermined, ..outcome.because(Reason::StackUncertain) };
        return Outcome { missing: outcome.missing.with(Input::Stack), ..outcome };
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
        limited.missing = limited.missing.with(Input::Stack).with(Input::Modules);
    }
    limited
}
