//! Where traces come from: the one place that knows what can be opened.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::owner::Owner;
use crate::trace::Trace;

/// An opened file.
#[pyclass(frozen, module = "stackhound")]
pub(crate) struct Recording {
    owner: Owner,
    path: PathBuf,
}

#[pymethods]
impl Recording {
    /// The trace.
    #[getter]
    fn trace(&self) -> Trace {
        Trace::new(&self.owner)
    }

    /// The file.
    #[getter]
    fn path(&self) -> &Path {
        &self.path
    }

    fn __repr__(&self) -> String {
        format!("<Recording {}>", self.path.display())
    }
}

/// Opens a file with an index of stacks. It is read once, as a whole; nothing of it is needed afterwards.
///
/// Raises ``OSError`` if it cannot be read, is no index, one of another version, or damaged.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, path: PathBuf) -> PyResult<Recording> {
    let trace = py.detach(|| read(&path))?;
    Ok(Recording { owner: Owner::new(trace), path })
}

fn read(path: &Path) -> PyResult<model::Trace> {
    let bytes = std::fs::read(path).map_err(|error| {
        // With these three, Python chooses the subclass and shows the path.
        match error.raw_os_error() {
            Some(number) => PyOSError::new_err((number, reason(&error), path.as_os_str().to_owned())),
            None => PyOSError::new_err(format!("{}: {error}", path.display())),
        }
    })?;
    model::Trace::open(Bytes::from(bytes))
        .map_err(|error| PyOSError::new_err(format!("{}: {error}", path.display())))
}

/// What the system says, without the number behind it.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}
