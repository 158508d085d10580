//! Ranges of contexts.

use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::context::Context;
use crate::convert::{Failure, Whole};
use crate::items::{Item, Items};
use crate::owner::Owner;

/// The contexts from one to another, both included. The range is empty if ``last`` is before
/// ``begin``.
///
/// Raises ``ValueError`` if the contexts are of different traces.
#[pyclass(frozen, eq, hash, module = "stackhound.trace")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContextRange {
    owner: Owner,
    begin: i64,
    last: i64,
}

impl ContextRange {
    pub(crate) fn of(owner: &Owner, range: model::ContextRange) -> Self {
        Self { owner: owner.clone(), begin: range.begin().0 as i64, last: range.last().0 as i64 }
    }
}

#[pymethods]
impl ContextRange {
    #[new]
    fn new(begin: PyRef<'_, Context>, last: PyRef<'_, Context>) -> PyResult<Self> {
        let owner = begin.owner();
        owner.check(last.owner(), "the last context is")?;
        let (begin, last) = (begin.position(), last.position());
        if begin <= last {
            Whole(begin).context(owner)?;
            Whole(last).context(owner)?;
        }
        Ok(Self { owner: owner.clone(), begin, last })
    }

    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("begin", "last")
    }

    /// Its first context. Of an empty range, the context at which it would begin.
    #[getter]
    fn begin(&self) -> Context {
        Context::at(&self.owner, self.begin)
    }

    /// Its last context. Of an empty range, a context before ``begin``.
    #[getter]
    fn last(&self) -> Context {
        Context::at(&self.owner, self.last)
    }

    fn __len__(&self) -> usize {
        (self.last - self.begin + 1).max(0) as usize
    }

    fn __contains__(&self, context: PyRef<'_, Context>) -> bool {
        self.owner == *context.owner() && (self.begin..=self.last).contains(&context.position())
    }

    fn __iter__(&self) -> Result<Items, Failure> {
        let numbers = self.begin..=self.last;
        Items::new(&self.owner, |_| {
            Ok(Box::new(numbers.map(|number| Item::Context(model::ContextId(number as u64)))))
        })
    }

    fn __str__(&self) -> String {
        format!("[{}, {}]", self.begin(), self.last())
    }

    fn __repr__(&self) -> String {
        format!("ContextRange(begin={}, last={})", self.begin(), self.last())
    }
}
