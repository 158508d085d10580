//! Iterators that keep their position in a trace and create one Python object at a time.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::call_range::CallRange;
use crate::context::Context;
use crate::convert::Failure;
use crate::frame::StackFrame;
use crate::owner::Owner;
use crate::range::ContextRange;
use crate::stack::Stack;
use crate::transition::Transition;

/// The items of iterators, as their numbers.
pub(crate) enum Item {
    Context(model::ContextId),
    Transition(model::TransitionId),
    Range(model::ContextRange),
    Stack(model::StackId, model::ContextId),
    Frame(model::FrameId),
    CallRange { frame: model::FrameId, depth: u64, range: model::ContextRange },
}

impl From<model::Stack<'_>> for Item {
    fn from(stack: model::Stack<'_>) -> Self {
        Self::Stack(stack.id(), stack.context().id())
    }
}

impl From<model::Frame<'_>> for Item {
    fn from(frame: model::Frame<'_>) -> Self {
        Self::Frame(frame.id())
    }
}

impl From<model::ContextRange> for Item {
    fn from(range: model::ContextRange) -> Self {
        Self::Range(range)
    }
}

impl From<model::CallRange<'_>> for Item {
    fn from(found: model::CallRange<'_>) -> Self {
        Self::CallRange { frame: found.frame.id(), depth: found.depth, range: found.range }
    }
}

/// An iterator over items of the trace that it borrows.
pub(crate) type Found<'t> = Box<dyn Iterator<Item = Item> + Send + Sync + 't>;

/// The items of an iterator as their numbers.
pub(crate) fn items<'t, T: Into<Item> + 't>(things: impl Iterator<Item = T> + Send + Sync + 't) -> Found<'t> {
    Box::new(things.map(Into::into))
}

self_cell::self_cell! {
    struct Held {
        owner: Owner,
        #[not_covariant]
        dependent: Found,
    }
}

/// An iterator over items of a trace. Each item is looked up on demand.
#[pyclass(module = "stackhound")]
pub(crate) struct Items(Held);

impl Items {
    /// An iterator over the items that `find` returns for a trace.
    pub(crate) fn new(
        owner: &Owner,
        find: impl for<'t> FnOnce(&'t Owner) -> Result<Found<'t>, Failure>,
    ) -> Result<Self, Failure> {
        Held::try_new(owner.clone(), find).map(Self)
    }
}

#[pymethods]
impl Items {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // With a filter, the next one may be far away.
        let found = py.detach(|| self.0.with_dependent_mut(|_, found| found.next()));
        let owner = self.0.borrow_owner();
        let Some(found) = found else { return Ok(None) };
        match found {
            Item::Context(id) => Context::numbered(owner, id).into_py_any(py),
            Item::Transition(id) => Transition::numbered(owner, id).into_py_any(py),
            Item::Range(range) => ContextRange::of(owner, range).into_py_any(py),
            Item::Stack(id, at) => Stack::numbered(owner, id, at).into_py_any(py),
            Item::Frame(id) => StackFrame::numbered(owner, id).into_py_any(py),
            Item::CallRange { frame, depth, range } => {
                let frame = StackFrame::numbered(owner, frame);
                CallRange { frame, depth, range }.into_py_any(py)
            }
        }
        .map(Some)
    }
}
