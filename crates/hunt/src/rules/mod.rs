//! Evaluates rules on the events of a trace.

mod definitions;
mod event_name;
mod field;
mod look_up;

mod sigma;

use stackhound_detect::Evaluation;
use stackhound_pipeline::EventView;
pub use stackhound_rules::evaluate::RuleAnswer;
use stackhound_rules::evaluate::{Answer, Counts, Mode, Position, RuleSet};
use stackhound_rules::{EventName, Library};
use stackhound_trace::TraceTime;

pub use definitions::Rules;
use event_name::event_name;
use field::TraceField;
use look_up::TraceEvent;

/// The rules of a library, for the events of one trace.
#[derive(Debug)]
pub struct RuleSession {
    rules: RuleSet<TraceField>,
    /// The time of the last evaluated event: losses since then concern sequences.
    checked: Option<TraceTime>,
}

impl RuleSession {
    /// Compiles the rules of a library.
    pub fn new(library: &Library, mode: Mode) -> RuleSession {
        RuleSession { rules: RuleSet::new(library, mode, TraceField::resolve), checked: None }
    }

    /// The numbers of answers of a rule, by its index in the library.
    pub fn counts(&self, rule: usize) -> Counts {
        self.rules.counts(rule)
    }

    /// Whether rules are about events like this one.
    #[inline]
    pub fn is_about(&self, view: &EventView<'_>) -> bool {
        // Names are looked up by ids and payloads, which costs more than an evaluation without rules.
        !self.rules.is_empty() && names(view).any(|name| self.rules.is_about(name))
    }

    /// Evaluates the rules about an event, and adds their answers. `evaluation` are the answers of
    /// detections for the same event, if there are any. Events must be passed in the order of the
    /// trace; `record` is the number of the event in it.
    pub fn evaluate(
        &mut self,
        view: &EventView<'_>,
        record: u64,
        evaluation: Option<&Evaluation>,
        answers: &mut Vec<RuleAnswer>,
    ) {
        if !self.is_about(view) {
            return;
        }
        let at = Position { time: view.utc().0, record };
        let checked = self.checked.replace(view.time());
        if let Some(checked) = checked
            && !view.trace_state().system().is_gapless(checked, view.time())
        {
            self.rules.lose(at.time);
        }
        let event = TraceEvent::new(view, evaluation);
        let mut add = |answer: &Answer<'_, TraceEvent<'_, '_>>| {
            answers.push(answer.into());
        };
        for name in names(view) {
            self.rules.evaluate(name, at, &event, &mut add);
        }
    }
}

/// The names that rules have for an event.
fn names(view: &EventView<'_>) -> impl Iterator<Item = EventName> {
    let name = event_name(view);
    let categories = name.map_or(&[][..], |name| sigma::categories(name, view));
    name.into_iter().chain(categories.iter().copied())
}
