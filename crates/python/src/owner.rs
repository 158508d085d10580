//! The trace that objects share.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stackhound_calltree as model;

/// A share of a trace. Two are the same if they are of one opened file: the same file opened twice
/// gives two traces, since it may have changed in between.
#[derive(Clone)]
pub(crate) struct Owner(Arc<model::Trace>);

impl Owner {
    pub(crate) fn new(trace: model::Trace) -> Self {
        Self(Arc::new(trace))
    }

    /// Checks that `what` belongs to this trace.
    pub(crate) fn check(&self, other: &Self, what: &str) -> PyResult<()> {
        if self == other { Ok(()) } else { Err(PyValueError::new_err(format!("{what} of another trace"))) }
    }
}

impl Deref for Owner {
    type Target = model::Trace;

    fn deref(&self) -> &model::Trace {
        &self.0
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
