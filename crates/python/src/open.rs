//! Opening files: the only module that depends on file formats.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyOSError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::StoreOptions;
use stackhound::symbols::{Symbolizer, SymbolizerOptions};
use stackhound::trace::Grouping;
use stackhound::{Depth, Enrichment, OpenStacksError, StacksFrom};

use crate::owner::Owner;
use crate::trace::Trace;

/// An opened file.
#[pyclass(frozen, get_all, module = "stackhound")]
pub(crate) struct TraceFile {
    /// The trace.
    trace: Trace,
    /// The file.
    path: PathBuf,
}

#[pymethods]
impl TraceFile {
    fn __repr__(&self) -> String {
        format!("<TraceFile {}>", self.path.display())
    }
}

/// Opens the stacks of a file: an index, the journal of an exact trace, or an ETW trace (``.etl``).
///
/// For a journal, the index next to it is used, or built and written there; for an ETW trace, the one
/// in the user's cache folder. Function names of an ETW trace are resolved with the symbols on
/// ``symbol_path``, by default that of ``_NT_SYMBOL_PATH``. Nothing is downloaded. Warns if a journal
/// is truncated, or if the index cannot be written. Raises ``OSError`` if the file cannot be read, has
/// another format, is damaged, is an index of another version, or is a folder of traces of several
/// machines, boots or times; ``ValueError`` if the symbol path is not valid.
#[pyfunction]
#[pyo3(signature = (path, symbol_path=None))]
pub(crate) fn open(py: Python<'_>, path: PathBuf, symbol_path: Option<&str>) -> PyResult<TraceFile> {
    let enrichment = enrichment(symbol_path)?;
    let (trace, from) = py
        .detach(|| stackhound::open_stacks(&path, enrichment, Grouping::default()))
        .map_err(|error| raised(&error))?;
    if let StacksFrom::Journal(replayed, _) = &from
        && !replayed.finished
    {
        let (path, lost) = (path.display(), replayed.lost_bytes);
        warn(py, format!("{path} is truncated; its last {lost} bytes cannot be read"))?;
    }
    if let StacksFrom::Journal(_, Some(reason)) | StacksFrom::EtlFile(_, Some(reason)) = from {
        warn(py, format!("the index cannot be written: {reason}"))?;
    }
    Ok(TraceFile { trace: Trace::new(&Owner::new(trace)), path })
}

/// The enrichment that resolves all names with local files.
fn enrichment(symbol_path: Option<&str>) -> PyResult<Enrichment> {
    let store = StoreOptions { path: self::symbol_path(symbol_path)?, ..StoreOptions::default() };
    let symbolizer = Symbolizer::new(SymbolizerOptions { store, ..SymbolizerOptions::default() })?;
    Ok(Enrichment { depth: Some(Depth::Function), symbolizer: Some(symbolizer), ..Enrichment::default() })
}

/// The symbol path: the stated one, that of the environment, or the user's store.
pub(crate) fn symbol_path(stated: Option<&str>) -> PyResult<SymbolPath> {
    SymbolPath::of_user(stated).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn warn(py: Python<'_>, message: String) -> PyResult<()> {
    // A path may hold anything; a zero would end the text.
    let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)
}

fn raised(error: &OpenStacksError) -> PyErr {
    use stackhound::trace::Error;
    let (OpenStacksError::Io(path, reason) | OpenStacksError::EtlFile(Error::Io(path, reason))) = error
    else {
        return PyOSError::new_err(error.to_string());
    };
    io_error(path, reason)
}

/// The exception for a file that cannot be read.
pub(crate) fn io_error(path: &Path, reason: &std::io::Error) -> PyErr {
    match reason.raw_os_error() {
        // With these three, Python chooses the subclass and shows the path.
        Some(number) => PyOSError::new_err((number, text(reason), path.as_os_str().to_owned())),
        None => PyOSError::new_err(format!("{}: {reason}", path.display())),
    }
}

/// The system's error message, without the error number at its end.
fn text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}
