//! The tables of ETW traces as Arrow streams, for data frames and query engines.
//!
//! Rows are made in a thread while a stream is read, and are passed on without copies through the
//! Arrow PyCapsule interface.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use stackhound::trace::{Error, TraceFiles, several_captures};
use stackhound::{EventView, Predicate};
use stackhound_columns::arrow::{Scan, TraceTables, schema};
use stackhound_columns::tables::TableId;

use crate::open::{io_error, symbol_path};

/// The tables of an ETW trace.
#[pyclass(frozen, module = "stackhound")]
pub(crate) struct Tables {
    tables: Arc<TraceTables>,
    /// The file.
    #[pyo3(get)]
    path: PathBuf,
}

/// Opens the tables of an ETW trace (``.etl``).
///
/// Function names are resolved with the symbols on ``symbol_path``, by default that of
/// ``_NT_SYMBOL_PATH``. Nothing is downloaded, and only the start of the file is read. Raises
/// ``OSError`` if the file cannot be read, has another format, or is a folder of traces of several
/// machines, boots or times; ``ValueError`` if the symbol path is not valid.
#[pyfunction]
#[pyo3(signature = (path, symbol_path=None))]
pub(crate) fn read(py: Python<'_>, path: PathBuf, symbol_path: Option<&str>) -> PyResult<Tables> {
    let symbols = self::symbol_path(symbol_path)?;
    let found =
        py.detach(|| TraceFiles::file(&path).threads(1).captures()).map_err(|error| raised(&error))?;
    if let Some(error) = found.skipped.first() {
        return Err(raised(error));
    }
    let mut captures = found.captures;
    if captures.len() != 1 {
        return Err(raised(&several_captures(&captures)));
    }
    Ok(Tables { tables: Arc::new(TraceTables::new(captures.remove(0), symbols)), path })
}

fn raised(error: &Error) -> PyErr {
    match error {
        Error::Io(path, reason) => io_error(path, reason),
        other => PyOSError::new_err(other.to_string()),
    }
}

#[pymethods]
impl Tables {
    /// The events, or those that a filter selects, such as ``"process = 'explorer.exe'"``.
    #[pyo3(signature = (r#where=None, columns=None))]
    fn events(&self, r#where: Option<String>, columns: Option<Vec<String>>) -> PyResult<Table> {
        self.of(TableId::Events, r#where, columns)
    }

    /// The findings of the detections, or those about the events that a filter selects.
    #[pyo3(signature = (r#where=None, columns=None))]
    fn findings(&self, r#where: Option<String>, columns: Option<Vec<String>>) -> PyResult<Table> {
        self.of(TableId::Findings, r#where, columns)
    }

    /// The distinct stacks, or those of the events that a filter selects.
    #[pyo3(signature = (r#where=None, columns=None))]
    fn stacks(&self, r#where: Option<String>, columns: Option<Vec<String>>) -> PyResult<Table> {
        self.of(TableId::Stacks, r#where, columns)
    }

    /// The frames of the distinct stacks, or of those of the events that a filter selects.
    #[pyo3(signature = (r#where=None, columns=None))]
    fn frames(&self, r#where: Option<String>, columns: Option<Vec<String>>) -> PyResult<Table> {
        self.of(TableId::Frames, r#where, columns)
    }

    /// Another table of ``docs/schema/tables/1.md``, such as ``"processes"``. Raises ``ValueError`` if
    /// there is none with this name.
    #[pyo3(signature = (name, columns=None))]
    fn table(&self, name: &str, columns: Option<Vec<String>>) -> PyResult<Table> {
        let table = TableId::ALL.into_iter().find(|table| table.name() == name);
        let table = table.ok_or_else(|| {
            let names = TableId::ALL.map(TableId::name).join(", ");
            PyValueError::new_err(format!("expected one of the tables {names}, found {name:?}"))
        })?;
        self.of(table, None, columns)
    }

    fn __repr__(&self) -> String {
        format!("<Tables of {}>", self.path.display())
    }
}

impl Tables {
    fn of(&self, table: TableId, filter: Option<String>, columns: Option<Vec<String>>) -> PyResult<Table> {
        if let Some(text) = &filter {
            parsed(text)?;
        }
        let all = schema(table);
        let columns = match columns {
            None => (0..all.fields().len()).collect(),
            Some(names) => positions(&all, &names)?,
        };
        let schema = all.project(&columns).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Table { tables: Arc::clone(&self.tables), table, filter, columns, schema: Arc::new(schema) })
    }
}

fn parsed(text: &str) -> PyResult<Predicate> {
    Predicate::parse(text).map_err(|error| PyValueError::new_err(error.render(text)))
}

/// The positions of columns, each of which is named once.
fn positions(schema: &SchemaRef, names: &[String]) -> PyResult<Vec<usize>> {
    let mut columns: Vec<usize> = Vec::with_capacity(names.len());
    for name in names {
        let column =
            schema.index_of(name).map_err(|_| PyValueError::new_err(format!("no column {name:?}")))?;
        if columns.contains(&column) {
            return Err(PyValueError::new_err(format!("expected each column once, found {name:?} again")));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The rows of a table, as an Arrow stream. Each reader reads the trace again.
#[pyclass(frozen, module = "stackhound")]
pub(crate) struct Table {
    tables: Arc<TraceTables>,
    table: TableId,
    filter: Option<String>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

#[pymethods]
impl Table {
    /// The name of the table.
    #[getter]
    fn name(&self) -> &'static str {
        self.table.name()
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// The Arrow PyCapsule interface: a stream of record batches. A requested schema is not used.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(self.batches()?));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// A ``polars.DataFrame``. Needs Polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.getattr("DataFrame")?.call1((slf,))
    }

    /// A ``pandas.DataFrame``. Needs pandas and PyArrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.getattr("table")?.call1((slf,))?.call_method0("to_pandas")
    }

    fn __repr__(&self) -> String {
        format!("<Table {} with {} columns>", self.table.name(), self.columns.len())
    }
}

/// The batches that wait for the reader.
const BATCHES: usize = 2;

type Sent = Result<RecordBatch, ArrowError>;

impl Table {
    /// Starts to read the trace.
    fn batches(&self) -> PyResult<Batches> {
        let (sender, receiver) = sync_channel(BATCHES);
        let (tables, table, columns) = (Arc::clone(&self.tables), self.table, self.columns.clone());
        let filter = self.filter.clone();
        let thread = thread::Builder::new().name("stackhound-table".to_owned());
        thread.spawn(move || {
            if let Err(error) = send(&tables, table, &columns, filter.as_deref(), &sender) {
                // The reader may have gone.
                _ = sender.send(Err(error));
            }
        })?;
        Ok(Batches { receiver, schema: Arc::clone(&self.schema) })
    }
}

fn send(
    tables: &TraceTables,
    table: TableId,
    columns: &[usize],
    filter: Option<&str>,
    sender: &SyncSender<Sent>,
) -> Result<(), ArrowError> {
    let external = |error: PyErr| ArrowError::ExternalError(error.into());
    let filter = filter.map(parsed).transpose().map_err(external)?;
    let selects_by_function = filter.as_ref().is_some_and(Predicate::names_functions);
    // As for the command line, events are selected of which it is certain.
    let choose = |view: &EventView<'_>| {
        ControlFlow::Continue(
            filter.as_ref().is_none_or(|filter| filter.decide(view).is_ok_and(|holds| holds)),
        )
    };
    let receive = |batch| match sender.send(Ok(batch)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let scanned = tables.scan(Scan { table, columns, selects_by_function }, choose, receive);
    scanned.map_err(|error| ArrowError::ExternalError(error.into()))
}

/// Batches as they arrive.
struct Batches {
    receiver: Receiver<Sent>,
    schema: SchemaRef,
}

impl Iterator for Batches {
    type Item = Sent;

    fn next(&mut self) -> Option<Sent> {
        self.receiver.recv().ok()
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
