//! Transitions.

use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::context::Context;
use crate::convert::{Failure, Whole, compare, datetime, hash};
use crate::owner::Owner;
use crate::trace::Trace;

/// The step from one context to the next: mostly one executed instruction in exact traces, one
/// event in ETW traces.
///
/// A number may be added or subtracted, and transitions of one trace may be compared and subtracted
/// from each other.
#[pyclass(frozen, module = "stackhound.trace")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Transition {
    owner: Owner,
    pub(crate) id: model::TransitionId,
}

impl Transition {
    pub(crate) fn of(owner: &Owner, transition: &model::Transition<'_>) -> Self {
        Self::numbered(owner, transition.id())
    }

    pub(crate) fn numbered(owner: &Owner, id: model::TransitionId) -> Self {
        Self { owner: owner.clone(), id }
    }

    fn view(&self) -> Result<model::Transition<'_>, Failure> {
        Ok(self.owner.transition(self.id)?)
    }

    fn moved(&self, by: i128) -> PyResult<Self> {
        let id = i128::from(self.id.0) + by;
        let id = Whole(i64::try_from(id).unwrap_or(if id < 0 { i64::MIN } else { i64::MAX }));
        Ok(Self::numbered(&self.owner, id.transition(&self.owner)?))
    }
}

/// A transition, or its number.
#[derive(FromPyObject)]
pub(crate) enum TransitionLike<'py> {
    Transition(Bound<'py, Transition>),
    Number(Whole),
}

impl TransitionLike<'_> {
    /// The number of a transition of this trace.
    pub(crate) fn id(&self, owner: &Owner) -> PyResult<model::TransitionId> {
        match self {
            Self::Number(number) => number.transition(owner),
            Self::Transition(transition) => {
                owner.check(&transition.get().owner, "the transition is")?;
                Ok(transition.get().id)
            }
        }
    }
}

#[pymethods]
impl Transition {
    /// Its number.
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// Its trace.
    #[getter]
    fn trace(&self) -> Trace {
        Trace::new(&self.owner)
    }

    /// The name of its event, if it is one.
    #[getter]
    fn label(&self) -> Result<Option<&str>, Failure> {
        Ok(self.view()?.label())
    }

    /// Its time in UTC, ``None`` if the trace has no times. Truncated to microseconds, see
    /// ``filetime()``.
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.filetime()?.map(|ticks| datetime(py, ticks)).transpose()
    }

    /// Like ``time()``, in units of 100 ns since 1601.
    fn filetime(&self) -> Result<Option<u64>, Failure> {
        Ok(self.view()?.context_before().time())
    }

    /// The context just before it.
    fn context_before(&self) -> Result<Context, Failure> {
        Ok(Context::of(&self.owner, &self.view()?.context_before()))
    }

    /// The context just after it, seen from the same processor.
    fn context_after(&self) -> Result<Context, Failure> {
        Ok(Context::of(&self.owner, &self.view()?.context_after()))
    }

    /// The next transition of the same thread. For a call, a system call or an interrupt, the one
    /// after the return. If not forward, the previous one or, if that was a return, the call. Skips
    /// other threads and processors, and interrupts. ``None`` outside the trace.
    #[pyo3(signature = (forward=true))]
    fn step_over(&self, forward: bool) -> Result<Option<Self>, Failure> {
        let view = self.view()?;
        let found = if forward { view.step_over() } else { view.step_over_backward() };
        Ok(found.map(|found| Self::of(&self.owner, &found)))
    }

    /// The first transition of the same thread after the return of the function in which it
    /// happens. If not forward, the call of that function. For an interrupt routine, the interrupted
    /// code after or before it. ``None`` outside the trace.
    #[pyo3(signature = (forward=true))]
    fn step_out(&self, forward: bool) -> Result<Option<Self>, Failure> {
        let view = self.view()?;
        let found = if forward { view.step_out() } else { view.step_out_backward() };
        Ok(found.map(|found| Self::of(&self.owner, &found)))
    }

    fn __add__(&self, number: Whole) -> PyResult<Self> {
        self.moved(i128::from(number.0))
    }

    fn __radd__(&self, number: Whole) -> PyResult<Self> {
        self.moved(i128::from(number.0))
    }

    fn __sub__(&self, py: Python<'_>, other: TransitionLike<'_>) -> PyResult<Py<PyAny>> {
        match other {
            TransitionLike::Number(number) => self.moved(-i128::from(number.0))?.into_py_any(py),
            TransitionLike::Transition(other) => {
                self.owner.check(&other.get().owner, "the transition is")?;
                (i128::from(self.id.0) - i128::from(other.get().id.0)).into_py_any(py)
            }
        }
    }

    fn __richcmp__(&self, other: PyRef<'_, Self>, op: CompareOp) -> PyResult<bool> {
        compare((&self.owner, self.id), (&other.owner, other.id), op)
    }

    fn __hash__(&self) -> u64 {
        hash((&self.owner, self.id))
    }

    fn __str__(&self) -> Result<String, Failure> {
        Ok(self.view()?.to_string())
    }

    fn __repr__(&self) -> String {
        format!("Transition(id={})", self.id.0)
    }
}
