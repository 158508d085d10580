//! Contexts.

use std::fmt;
use std::hash::{Hash, Hasher};

use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::convert::{Failure, Whole, compare, datetime, hash};
use crate::items::{Items, items};
use crate::kind::stack_kind_of;
use crate::owner::Owner;
use crate::stack::Stack;
use crate::trace::Trace;
use crate::transition::Transition;

/// The state between two transitions, seen from one processor.
///
/// A number may be added or subtracted, and contexts of one trace may be compared and subtracted
/// from each other.
#[pyclass(frozen, module = "stackhound.trace")]
#[derive(Clone)]
pub(crate) struct Context {
    owner: Owner,
    id: model::ContextId,
    cpu: model::Cpu,
}

impl Context {
    pub(crate) fn of(owner: &Owner, context: &model::Context<'_>) -> Self {
        Self { owner: owner.clone(), id: context.id(), cpu: context.cpu() }
    }

    /// The context, seen from the processor of the transition after it.
    pub(crate) fn numbered(owner: &Owner, id: model::ContextId) -> Result<Self, Failure> {
        Ok(Self::of(owner, &owner.context(id)?))
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn number(&self) -> model::ContextId {
        self.id
    }

    fn view(&self) -> Result<model::Context<'_>, Failure> {
        Ok(self.owner.context(self.id)?.on(self.cpu))
    }

    /// The context that is this number of transitions later, seen from the processor of the
    /// transition after it.
    fn moved(&self, by: i128) -> PyResult<Self> {
        let id = i128::from(self.id.0) + by;
        let id = Whole(i64::try_from(id).unwrap_or(if id < 0 { i64::MIN } else { i64::MAX }));
        Ok(Self::numbered(&self.owner, id.context(&self.owner)?)?)
    }
}

/// A context, or its number.
#[derive(FromPyObject)]
pub(crate) enum ContextLike<'py> {
    Context(Bound<'py, Context>),
    Number(Whole),
}

impl ContextLike<'_> {
    /// The number of a context of this trace.
    pub(crate) fn id(&self, owner: &Owner) -> PyResult<model::ContextId> {
        match self {
            Self::Number(number) => number.context(owner),
            Self::Context(context) => {
                owner.check(&context.get().owner, "the context is")?;
                Ok(context.get().id)
            }
        }
    }
}

#[pymethods]
impl Context {
    /// Its number, equal to that of the transition after it.
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// Its trace.
    #[getter]
    fn trace(&self) -> Trace {
        Trace::new(&self.owner)
    }

    /// The processor it is seen from: that of the transition after it; at the end of the trace,
    /// that of the last one.
    #[getter]
    fn cpu(&self) -> u16 {
        self.cpu.0
    }

    /// The same context, seen from another processor.
    fn on(&self, cpu: Whole) -> PyResult<Self> {
        Ok(Self { cpu: cpu.cpu(&self.owner)?, ..self.clone() })
    }

    /// The UTC time of the transition after it, or of the last one at the end of the trace;
    /// ``None`` if the trace has no times. Truncated to microseconds, see ``filetime()``.
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.filetime()?.map(|ticks| datetime(py, ticks)).transpose()
    }

    /// Like ``time()``, in units of 100 ns since 1601.
    fn filetime(&self) -> Result<Option<u64>, Failure> {
        Ok(self.view()?.time())
    }

    /// The active stack of its processor; ``None`` if it is not known.
    #[getter]
    fn stack(&self) -> Result<Option<Stack>, Failure> {
        Ok(self.view()?.stack().map(|stack| Stack::of(&self.owner, &stack)))
    }

    /// The stacks of a thread at this context, in user mode and in the kernel.
    fn stacks_of(&self, thread_id: u32) -> Result<Items, Failure> {
        let id = self.id;
        Items::new(&self.owner, |owner| Ok(items(owner.context(id)?.stacks_of(thread_id))))
    }

    /// The stack of a thread of one kind, at this context; ``None`` if it has none.
    fn stack_of(&self, thread_id: u32, kind: &Bound<'_, PyAny>) -> PyResult<Option<Stack>> {
        let stack = self.view()?.stack_of(thread_id, stack_kind_of(kind)?);
        Ok(stack.map(|stack| Stack::of(&self.owner, &stack)))
    }

    /// The transition before it. Raises ``IndexError`` at the beginning of the trace.
    fn transition_before(&self) -> PyResult<Transition> {
        match self.view()?.transition_before() {
            Some(transition) => Ok(Transition::of(&self.owner, &transition)),
            None => Err(PyIndexError::new_err("there is no transition before the first context")),
        }
    }

    /// The transition after it. Raises ``IndexError`` at the end of the trace.
    fn transition_after(&self) -> PyResult<Transition> {
        match self.view()?.transition_after() {
            Some(transition) => Ok(Transition::of(&self.owner, &transition)),
            None => Err(PyIndexError::new_err("there is no transition after the last context")),
        }
    }

    fn __add__(&self, number: Whole) -> PyResult<Self> {
        self.moved(i128::from(number.0))
    }

    fn __radd__(&self, number: Whole) -> PyResult<Self> {
        self.moved(i128::from(number.0))
    }

    fn __sub__(&self, py: Python<'_>, other: ContextLike<'_>) -> PyResult<Py<PyAny>> {
        match other {
            ContextLike::Number(number) => self.moved(-i128::from(number.0))?.into_py_any(py),
            ContextLike::Context(other) => {
                self.owner.check(&other.get().owner, "the context is")?;
                (i128::from(self.id.0) - i128::from(other.get().id.0)).into_py_any(py)
            }
        }
    }

    fn __richcmp__(&self, other: PyRef<'_, Self>, op: CompareOp) -> PyResult<bool> {
        compare((&self.owner, self.id), (&other.owner, other.id), op)
    }

    fn __hash__(&self) -> u64 {
        hash(self)
    }

    fn __str__(&self) -> String {
        self.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Context(id={})", self.id.0)
    }
}

/// It is the same context, whichever processor it is seen from.
impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        self.owner == other.owner && self.id == other.id
    }
}

impl Eq for Context {}

impl Hash for Context {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.owner, self.id).hash(state);
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, f)
    }
}
