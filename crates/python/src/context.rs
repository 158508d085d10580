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
/// from each other. The results include the positions just before the first and just after the last
/// context, which end an empty range there. They have no state: all else of them raises
/// ``IndexError``.
#[pyclass(frozen, module = "stackhound.trace")]
#[derive(Clone)]
pub(crate) struct Context {
    owner: Owner,
    id: i64,
    /// `None` for the processor of the transition after it.
    cpu: Option<model::Cpu>,
}

impl Context {
    pub(crate) fn of(owner: &Owner, context: &model::Context<'_>) -> Self {
        Self { cpu: Some(context.cpu()), ..Self::numbered(owner, context.id()) }
    }

    /// The context, seen from the processor of the transition after it.
    pub(crate) fn numbered(owner: &Owner, id: model::ContextId) -> Self {
        Self::at(owner, id.0 as i64)
    }

    /// The position with this number, seen from the processor of the transition after it.
    pub(crate) fn at(owner: &Owner, id: i64) -> Self {
        Self { owner: owner.clone(), id, cpu: None }
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Its number, which is -1 for the position before the first context.
    pub(crate) fn position(&self) -> i64 {
        self.id
    }

    /// Its number. Raises `IndexError` for a position outside the trace.
    pub(crate) fn number(&self) -> PyResult<model::ContextId> {
        Whole(self.id).context(&self.owner)
    }

    fn view(&self) -> PyResult<model::Context<'_>> {
        let context = self.owner.context(self.number()?).map_err(Failure::from)?;
        Ok(self.cpu.map_or(context, |cpu| context.on(cpu)))
    }

    /// The context that is this number of transitions later, seen from the processor of the
    /// transition after it.
    fn moved(&self, by: i128) -> PyResult<Self> {
        let id = i128::from(self.id) + by;
        let id = i64::try_from(id).unwrap_or(if id < 0 { i64::MIN } else { i64::MAX });
        let after = self.owner.transition_count() as i64 + 1;
        if id != -1 && id != after {
            Whole(id).context(&self.owner)?;
        }
        Ok(Self::at(&self.owner, id))
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
                context.get().number()
            }
        }
    }
}

#[pymethods]
impl Context {
    /// Its number, equal to that of the transition after it.
    #[getter]
    fn id(&self) -> i64 {
        self.id
    }

    /// Its trace.
    #[getter]
    fn trace(&self) -> Trace {
        Trace::new(&self.owner)
    }

    /// The processor it is seen from: that of the transition after it; at the end of the trace,
    /// that of the last one.
    #[getter]
    fn cpu(&self) -> PyResult<u16> {
        Ok(self.view()?.cpu().0)
    }

    /// The same context, seen from another processor.
    fn on(&self, cpu: Whole) -> PyResult<Self> {
        Ok(Self { cpu: Some(cpu.cpu(&self.owner)?), ..self.clone() })
    }

    /// The UTC time of the transition after it, or of the last one at the end of the trace;
    /// ``None`` if the trace has no times. Truncated to microseconds, see ``filetime()``.
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.filetime()?.map(|ticks| datetime(py, ticks)).transpose()
    }

    /// Like ``time()``, in units of 100 ns since 1601.
    fn filetime(&self) -> PyResult<Option<u64>> {
        Ok(self.view()?.time())
    }

    /// The active stack of its processor; ``None`` if it is not known.
    #[getter]
    fn stack(&self) -> PyResult<Option<Stack>> {
        Ok(self.view()?.stack().map(|stack| Stack::of(&self.owner, &stack)))
    }

    /// The stacks of a thread at this context, in user mode and in the kernel.
    fn stacks_of(&self, thread_id: u32) -> PyResult<Items> {
        let id = self.number()?;
        Ok(Items::new(&self.owner, |owner| Ok(items(owner.context(id)?.stacks_of(thread_id))))?)
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
                (self.id - other.get().id).into_py_any(py)
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
        format!("Context(id={})", self.id)
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
        write!(f, "Context before #{}", self.id)
    }
}
