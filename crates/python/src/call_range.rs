//! Ranges in which single frames were the top of the active stack.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stackhound_calltree as model;

use crate::convert::Failure;
use crate::frame::StackFrame;
use crate::range::ContextRange;

/// A range in which one frame was the top of the active stack, at or below the frame of the
/// request.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallRange {
    /// The frame.
    #[pyo3(get)]
    pub(crate) frame: StackFrame,
    /// The depth below the frame of the request: 0 for that frame itself.
    #[pyo3(get)]
    pub(crate) depth: u64,
    pub(crate) range: model::ContextRange,
}

#[pymethods]
impl CallRange {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("path", "range")
    }

    /// The contexts.
    #[getter]
    fn range(&self) -> ContextRange {
        ContextRange::of(self.frame.owner(), self.range)
    }

    /// The frames from the frame of the request to this one.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let frame = self.frame.view()?;
        let path = model::CallRange { frame, depth: self.depth, range: self.range }.path();
        let owner = self.frame.owner();
        PyTuple::new(py, path.iter().map(|frame| StackFrame::of(owner, frame)).collect::<Vec<_>>())
    }

    fn __str__(&self) -> Result<String, Failure> {
        let frame = self.frame.view()?;
        Ok(model::CallRange { frame, depth: self.depth, range: self.range }.to_string())
    }

    fn __repr__(&self) -> Result<String, Failure> {
        Ok(format!("<CallRange {}>", self.__str__()?))
    }
}
