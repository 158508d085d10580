//! The known facts about one subject.

use std::marker::PhantomData;

use stackhound_types::FileTime;

use crate::row::FactId;
use crate::value::FactValue;

/// The known facts about one subject: a value for each fact that is known. A set without any allocates nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FactSet<'a, F> {
    /// By index of the fact; empty if nothing is known.
    values: Vec<Option<FactValue<'a>>>,
    facts: PhantomData<F>,
}

impl<F> Default for FactSet<'_, F> {
    fn default() -> Self {
        FactSet { values: Vec::new(), facts: PhantomData }
    }
}

impl<'a, F: FactId> FactSet<'a, F> {
    /// Asks for all facts.
    pub fn new(mut get: impl FnMut(F) -> Option<FactValue<'a>>) -> FactSet<'a, F> {
        let mut values = Vec::with_capacity(F::ALL.len());
        let mut has_any = false;
        for fact in F::ALL {
            let value = get(*fact);
            has_any |= value.is_some();
            values.push(value);
        }
        if has_any { FactSet { values, facts: PhantomData } } else { FactSet::default() }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }

    /// The value of a fact; `None` if it is not known.
    pub fn get(&self, fact: F) -> Option<&FactValue<'a>> {
        self.values.get(fact.index())?.as_ref()
    }

    /// The known facts, in the order of the catalogue.
    pub fn known(&self) -> impl Iterator<Item = (F, &FactValue<'a>)> {
        F::ALL.iter().zip(&self.values).filter_map(|(fact, value)| Some((*fact, value.as_ref()?)))
    }

    /// All facts as texts, in the order of the catalogue; empty if they are not known.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        F::ALL.iter().map(|fact| self.get(*fact).map(ToString::to_string).unwrap_or_default())
    }

    /// The text of a fact; empty if it is not known, or not plain text.
    pub fn text(&self, fact: F) -> &str {
        match self.get(fact) {
            Some(FactValue::Text(text)) => text,
            _ => "",
        }
    }

    /// The number of a fact.
    pub fn number(&self, fact: F) -> Option<u32> {
        match self.get(fact) {
            Some(FactValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The time of a fact.
    pub fn time(&self, fact: F) -> Option<FileTime> {
        match self.get(fact) {
            Some(FactValue::Time(time)) => Some(*time),
            _ => None,
        }
    }

    /// Replaces the value of a fact. Empty text is not known.
    pub fn set(&mut self, fact: F, value: impl Into<FactValue<'a>>) {
        let value =
            Some(value.into()).filter(|value| !matches!(value, FactValue::Text(text) if text.is_empty()));
        if self.values.is_empty() {
            self.values.resize_with(F::ALL.len(), || None);
        }
        self.values[fact.index()] = value;
    }

    /// The set with another value of a fact, as [`set`](FactSet::set).
    #[must_use]
    pub fn with(mut self, fact: F, value: impl Into<FactValue<'a>>) -> FactSet<'a, F> {
        self.set(fact, value);
        self
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> FactSet<'static, F> {
        let values = self.values.into_iter().map(|value| value.map(FactValue::into_owned)).collect();
        FactSet { values, facts: PhantomData }
    }
}
