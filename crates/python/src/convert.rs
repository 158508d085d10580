//! Conversions of numbers, times, patterns, comparisons and errors between Python and the model.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyOSError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stackhound_calltree as model;

use crate::owner::Owner;

/// Converts an error of the model to a Python exception.
pub(crate) struct Failure(model::Error);

impl From<model::Error> for Failure {
    fn from(error: model::Error) -> Self {
        Self(error)
    }
}

impl From<Failure> for PyErr {
    fn from(Failure(error): Failure) -> Self {
        use model::Error;
        let message = error.to_string();
        match error {
            Error::ContextOutside { .. }
            | Error::TransitionOutside { .. }
            | Error::NoSuchFrame { .. }
            | Error::NoSuchStack { .. } => PyIndexError::new_err(message),
            Error::NoIndex { .. } | Error::IndexVersion { .. } | Error::IndexDamaged { .. } => {
                PyOSError::new_err(message)
            }
            _ => PyValueError::new_err(message),
        }
    }
}

/// An integer from Python. A value out of range is outside every trace and is clamped.
#[derive(Clone, Copy)]
pub(crate) struct Whole(pub(crate) i64);

impl<'a, 'py> FromPyObject<'a, 'py> for Whole {
    type Error = PyErr;

    fn extract(number: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match number.extract::<i64>() {
            Ok(number) => Ok(Self(number)),
            Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => {
                Ok(Self(if number.lt(0)? { i64::MIN } else { i64::MAX }))
            }
            Err(error) => Err(error),
        }
    }
}

impl Whole {
    /// The number of a context.
    pub(crate) fn context(self, owner: &Owner) -> PyResult<model::ContextId> {
        let last = owner.transition_count();
        match u64::try_from(self.0) {
            Ok(id) if id <= last => Ok(model::ContextId(id)),
            _ => Err(PyIndexError::new_err(format!(
                "context #{} is outside the trace, whose contexts are #0 to #{last}",
                self.0
            ))),
        }
    }

    /// The number of a transition.
    pub(crate) fn transition(self, owner: &Owner) -> PyResult<model::TransitionId> {
        let count = owner.transition_count();
        match u64::try_from(self.0) {
            Ok(id) if id < count => Ok(model::TransitionId(id)),
            _ => Err(PyIndexError::new_err(format!(
                "transition #{} is outside the trace, which has {count}",
                self.0
            ))),
        }
    }

    /// The number of a processor.
    pub(crate) fn cpu(self, owner: &Owner) -> PyResult<model::Cpu> {
        let count = owner.cpu_count();
        match u16::try_from(self.0) {
            Ok(cpu) if u32::from(cpu) < count => Ok(model::Cpu(cpu)),
            _ => {
                Err(PyIndexError::new_err(format!("there is no processor {}: the trace has {count}", self.0)))
            }
        }
    }
}

/// Compares two objects of one trace. Objects of different traces have no order.
pub(crate) fn compare<N: Ord>(left: (&Owner, N), right: (&Owner, N), op: CompareOp) -> PyResult<bool> {
    let same = left.0 == right.0;
    match op {
        CompareOp::Eq => Ok(same && left.1 == right.1),
        CompareOp::Ne => Ok(!same || left.1 != right.1),
        _ if same => Ok(op.matches(left.1.cmp(&right.1))),
        _ => Err(PyValueError::new_err("objects of different traces cannot be ordered")),
    }
}

/// A hash, for objects whose equality ignores some of their fields.
pub(crate) fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Converts a time in 100 ns since 1601 to a `datetime`, truncated to microseconds.
pub(crate) fn datetime(py: Python<'_>, ticks: u64) -> PyResult<Bound<'_, PyAny>> {
    static OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    OF.import(py, "stackhound._times", "of_ticks")?.call1((ticks,))
}

/// A time in 100 ns since 1601, from such a number or from a `datetime`.
pub(crate) fn ticks(time: &Bound<'_, PyAny>) -> PyResult<u64> {
    static OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Ok(Whole(ticks)) = time.extract() {
        return Ok(ticks.max(0) as u64);
    }
    let Whole(ticks) = OF.import(time.py(), "stackhound._times", "ticks")?.call1((time,))?.extract()?;
    Ok(ticks.max(0) as u64)
}

/// The axis along which the previous or next stack is searched.
pub(crate) fn axis(name: &str) -> PyResult<model::Axis> {
    match name {
        "cpu" => Ok(model::Axis::Cpu),
        "thread" => Ok(model::Axis::Thread),
        _ => Err(PyValueError::new_err(format!("the axis is \"cpu\" or \"thread\", not {name:?}"))),
    }
}

/// The `TypeError` for an object of the wrong type.
pub(crate) fn wrong_type(expected: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let name = found.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{expected} expected, not {name}"))
}
