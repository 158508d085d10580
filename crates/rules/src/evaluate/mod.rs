//! Evaluates rules: each event with the conditions about events of its name.
//!
//! There are three answers. A comparison with a field that is missing is undetermined, and so is a
//! condition that depends on it. If it depends on it only in exceptions (`not`, `!=`), the answer is
//! *possible*: the rule applies unless the exception does.

mod compile;
mod correlation;
pub(crate) mod functions;
mod look_up;
mod missing;
mod ruleset;
mod sequence;
mod template;
mod term;

use std::ops::ControlFlow;

use stackhound_expr::Visitor;

pub(crate) use compile::is_only_for_lists;
pub use functions::arguments;
pub use missing::{Missing, MissingInputs};
pub(crate) use ruleset::check;
pub use ruleset::{Answer, Counts, RuleAnswer, RuleSet, Verdict};
pub use sequence::Position;

use crate::fields::Part;
use crate::syntax::FieldUse;

/// How missing fields are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Comparisons with them are undetermined.
    #[default]
    Strict,
    /// As in Fibratus: they are empty, 0 or false. Lists are only compared with lists, and the
    /// longest time of a sequence applies to each step.
    Compatible,
}

/// A field that a rule reads.
#[derive(Clone, Copy, Debug)]
pub enum FieldRef<'f> {
    /// A field of conditions.
    Field(&'f FieldUse),
    /// A value of the event's data by its name there, for rules of Sigma; `*` is each value.
    Data(&'f str),
}

/// A field that a source of events has.
#[derive(Clone, Copy, Debug)]
pub struct ResolvedField<F> {
    /// The field.
    pub field: F,
    /// How expensive it is to read. Cheaper fields are read first.
    pub cost: u8,
}

/// An event with the fields that rules read.
pub trait RuleEvent {
    /// A field of the source.
    type Field;

    /// Passes all values that the event has for a field to `visit`: none if the field is missing,
    /// [`Value::Absent`](stackhound_expr::Value::Absent) if it is known to have none.
    fn visit(&self, field: &Self::Field, visit: &mut Visitor<'_>) -> ControlFlow<()>;

    /// The elements of a field that `foreach` visits.
    fn elements(&self, field: &Self::Field) -> Elements;

    /// The same as [`visit`](RuleEvent::visit) for a part of an element, by its index.
    fn visit_part(
        &self,
        field: &Self::Field,
        index: usize,
        part: &'static Part,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()>;
}

/// The elements of a field of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Elements {
    /// The number of known elements.
    pub known: usize,
    /// Whether there are no others.
    pub is_complete: bool,
}
