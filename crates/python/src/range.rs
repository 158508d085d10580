//! Ranges of contexts.

use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::context::Context;
use crate::convert::Failure;
use crate::items::{Item, Items};
use crate::owner::Owner;

/// The contexts from one to another, both included.
///
/// Raises ``ValueError`` if ``last`` is before ``begin``, or if they are of different traces.
#[pyclass(frozen, eq, hash, module = "stackhound.trace")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContextRange {
    owner: Owner,
    range: model::ContextRange,
}

impl ContextRange {
    pub(crate) fn of(owner: &Owner, range: model::ContextRange) -> Self {
        Self { owner: owner.clone(), range }
    }
}

#[pymethods]
impl ContextRange {
    #[new]
    fn new(begin: PyRef<'_, Context>, last: PyRef<'_, Context>) -> PyResult<Self> {
        begin.owner().check(last.owner(), "the last context is")?;
        let range = model::ContextRange::new(begin.number(), last.number()).map_err(Failure::from)?;
        Ok(Self::of(begin.owner(), range))
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("begin", "last")
    }

    /// Its first context.
    #[getter]
    fn begin(&self) -> Result<Context, Failure> {
        Context::numbered(&self.owner, self.range.begin())
    }

    /// Its last context.
    #[getter]
    fn last(&self) -> Result<Context, Failure> {
        Context::numbered(&self.owner, self.range.last())
    }

    fn __len__(&self) -> usize {
        self.range.len() as usize
    }

    fn __contains__(&self, context: PyRef<'_, Context>) -> bool {
        self.owner == *context.owner() && self.range.contains(context.number())
    }

    fn __iter__(&self) -> Result<Items, Failure> {
        let range = self.range;
        Items::new(&self.owner, |_| {
            let numbers = range.begin().0..=range.last().0;
            Ok(Box::new(numbers.map(|number| Item::Context(model::ContextId(number)))))
        })
    }

    fn __str__(&self) -> String {
        self.range.to_string()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.range)
    }
}
