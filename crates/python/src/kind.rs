//! Bounds, counts, and the kinds that are enumerations in Python.

use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stackhound_calltree as model;

use crate::context::Context;
use crate::convert::wrong_type;
use crate::owner::Owner;

/// A member of one of the enumerations of `stackhound._kinds`; they are Python's own, so that they
/// behave like any.
pub(crate) struct Member {
    class: &'static str,
    found: &'static PyOnceLock<Py<PyAny>>,
    number: u8,
}

impl<'py> IntoPyObject<'py> for Member {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.found.import(py, "stackhound._kinds", self.class)?.call1((self.number,))
    }
}

pub(crate) fn start_type(start: model::StartType) -> Member {
    static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Member { class: "FrameStartType", found: &FOUND, number: start as u8 }
}

pub(crate) fn end_type(end: model::EndType) -> Member {
    static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Member { class: "FrameEndType", found: &FOUND, number: end as u8 }
}

pub(crate) fn evidence(evidence: model::Evidence) -> Member {
    static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Member { class: "Evidence", found: &FOUND, number: evidence as u8 }
}

pub(crate) fn continuity(continuity: model::Continuity) -> Member {
    static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let number = match continuity {
        model::Continuity::Observed => 0,
        model::Continuity::Assumed => 1,
    };
    Member { class: "Continuity", found: &FOUND, number }
}

static STACK_KIND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

pub(crate) fn stack_kind(kind: model::StackKind) -> Member {
    Member { class: "StackKind", found: &STACK_KIND, number: kind as u8 }
}

/// The kind of stack of a member of `StackKind`.
pub(crate) fn stack_kind_of(member: &Bound<'_, PyAny>) -> PyResult<model::StackKind> {
    use model::StackKind;
    let class = STACK_KIND.import(member.py(), "stackhound._kinds", "StackKind")?;
    if !member.is_instance(class)? {
        return Err(wrong_type("a StackKind", member));
    }
    Ok(match member.getattr("value")?.extract::<u8>()? {
        0 => StackKind::User,
        1 => StackKind::Kernel,
        2 => StackKind::Interrupt,
        3 => StackKind::Deferred,
        5 => StackKind::Wow64,
        _ => StackKind::Alternate,
    })
}

/// When something happened, as one of the three classes.
pub(crate) fn bound<'py>(py: Python<'py>, owner: &Owner, bound: model::Bound) -> PyResult<Bound<'py, PyAny>> {
    match bound {
        model::Bound::Observed(context) => {
            Observed { context: Context::numbered(owner, context) }.into_bound_py_any(py)
        }
        model::Bound::Inferred { lo, hi } => {
            // A frame that may have ended after the trace is still open.
            let hi = hi.min(owner.last_context().id());
            let (lo, hi) = (Context::numbered(owner, lo), Context::numbered(owner, hi));
            Inferred { lo, hi }.into_bound_py_any(py)
        }
        model::Bound::Open => Open.into_bound_py_any(py),
    }
}

/// A bound that was observed exactly at this context.
#[pyclass(frozen, eq, hash, get_all, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Observed {
    /// The context.
    context: Context,
}

#[pymethods]
impl Observed {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("context",)
    }

    fn __str__(&self) -> PyResult<String> {
        Ok(model::Bound::Observed(self.context.number()?).to_string())
    }

    fn __repr__(&self) -> String {
        format!("Observed({})", self.context)
    }
}

/// A bound that was not observed: it is between two contexts. For a start, ``hi`` is the first
/// context at which the frame was observed, and it did not exist before ``lo``. For an end, ``lo``
/// is the last context at which it was observed, and ``hi`` is the last one at which it can have
/// existed.
#[pyclass(frozen, eq, hash, get_all, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Inferred {
    /// The earliest context.
    lo: Context,
    /// The latest context.
    hi: Context,
}

#[pymethods]
impl Inferred {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("lo", "hi")
    }

    fn __str__(&self) -> PyResult<String> {
        Ok(model::Bound::Inferred { lo: self.lo.number()?, hi: self.hi.number()? }.to_string())
    }

    fn __repr__(&self) -> String {
        format!("Inferred({}, {})", self.lo, self.hi)
    }
}

/// A bound outside the trace, or before anything is known of the stack.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Open;

#[pymethods]
impl Open {
    fn __str__(&self) -> String {
        model::Bound::Open.to_string()
    }

    fn __repr__(&self) -> &'static str {
        "Open()"
    }
}

/// A number that may be only a lower bound: if stacks are sampled, there may have been more.
/// Equal to an ``int`` if it is exactly that.
#[pyclass(frozen, module = "stackhound.stack")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) model::Count);

#[pymethods]
impl Count {
    /// The number of observed frames.
    #[getter]
    fn value(&self) -> u64 {
        self.0.number()
    }

    /// The minimum number: some of the observed frames may be the same frame, observed again after
    /// a gap.
    #[getter]
    fn least(&self) -> u64 {
        self.0.least()
    }

    /// Whether there may have been more.
    #[getter]
    fn is_lower_bound(&self) -> bool {
        self.0.is_lower_bound()
    }

    fn __int__(&self) -> u64 {
        self.value()
    }

    fn __bool__(&self) -> bool {
        self.value() > 0
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let equal = match other.cast::<Self>() {
            Ok(other) => self == other.get(),
            Err(_) => {
                !self.is_lower_bound() && other.extract::<u64>().is_ok_and(|other| other == self.value())
            }
        };
        match op {
            CompareOp::Eq => equal.into_py_any(py),
            CompareOp::Ne => (!equal).into_py_any(py),
            // Which of two numbers is larger is not known of lower bounds.
            _ => Ok(py.NotImplemented()),
        }
    }

    fn __hash__(&self) -> u64 {
        // That of the equal int.
        self.value() % ((1 << 61) - 1)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Count({})", self.0)
    }
}
