//! Tail calls.

use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::frame::StackFrame;
use crate::location::Location;
use crate::owner::Owner;
use crate::transition::Transition;

/// A jump by which a frame continued in another function, which returns in place of the one before.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct TailCall {
    /// The frame. Its name is that of the function that was called.
    #[pyo3(get)]
    frame: StackFrame,
    /// The jump.
    #[pyo3(get)]
    transition: Transition,
    /// The start of the other function, ``None`` if that is not known.
    #[pyo3(get)]
    location: Option<Location>,
    printed: String,
}

impl TailCall {
    pub(crate) fn of(owner: &Owner, found: &model::TailCall<'_>) -> Self {
        Self {
            frame: StackFrame::of(owner, &found.frame()),
            transition: Transition::of(owner, &found.transition()),
            location: found.location().as_ref().map(Location::of),
            printed: found.to_string(),
        }
    }
}

#[pymethods]
impl TailCall {
    fn __str__(&self) -> &str {
        &self.printed
    }

    fn __repr__(&self) -> &str {
        &self.printed
    }
}
