//! The trace itself.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::context::Context;
use crate::context::ContextLike;
use crate::convert::{Failure, Whole, ticks};
use crate::frame::StackFrame;
use crate::items::{Item, Items, items};
use crate::owner::Owner;
use crate::tail_call::TailCall;
use crate::transition::Transition;
use crate::transition::TransitionLike;

/// The history of the stacks of a process or a system, from its first context to its last.
#[pyclass(frozen, eq, hash, module = "stackhound.trace")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Trace {
    owner: Owner,
}

impl Trace {
    pub(crate) fn new(owner: &Owner) -> Self {
        Self { owner: owner.clone() }
    }
}

#[pymethods]
impl Trace {
    /// The first context.
    #[getter]
    fn first_context(&self) -> Context {
        Context::of(&self.owner, &self.owner.first_context())
    }

    /// The last context.
    #[getter]
    fn last_context(&self) -> Context {
        Context::of(&self.owner, &self.owner.last_context())
    }

    /// The first transition. Raises ``IndexError`` if there is none.
    #[getter]
    fn first_transition(&self) -> PyResult<Transition> {
        self.transition(Whole(0))
    }

    /// The last transition. Raises ``IndexError`` if there is none.
    #[getter]
    fn last_transition(&self) -> PyResult<Transition> {
        self.transition(Whole(self.owner.transition_count() as i64 - 1))
    }

    /// The number of transitions.
    #[getter]
    fn transition_count(&self) -> u64 {
        self.owner.transition_count()
    }

    /// The number of contexts: one more than transitions.
    #[getter]
    fn context_count(&self) -> u64 {
        self.owner.transition_count() + 1
    }

    /// The number of frames.
    #[getter]
    fn frame_count(&self) -> u64 {
        self.owner.frame_count()
    }

    /// The number of stacks.
    #[getter]
    fn stack_count(&self) -> u32 {
        self.owner.stack_count()
    }

    /// The number of processors.
    #[getter]
    fn cpu_count(&self) -> u32 {
        self.owner.cpu_count()
    }

    /// Whether the stacks were only sampled, so that all counts are lower bounds.
    #[getter]
    fn is_sampled(&self) -> bool {
        self.owner.is_sampled()
    }

    /// The context before a transition; for the number after that of the last transition, the last
    /// context. Raises ``IndexError`` outside the trace.
    fn context_before(&self, transition_id: Whole) -> PyResult<Context> {
        Ok(Context::numbered(&self.owner, transition_id.context(&self.owner)?))
    }

    /// The context after a transition. Raises ``IndexError`` outside the trace.
    fn context_after(&self, transition_id: Whole) -> PyResult<Context> {
        let transition =
            self.owner.transition(transition_id.transition(&self.owner)?).map_err(Failure::from)?;
        Ok(Context::of(&self.owner, &transition.context_after()))
    }

    /// The first context at or after a time, which is a ``datetime`` with a time zone or a number
    /// of 100 ns since 1601. ``None`` if the trace ends before that time, or has no times.
    fn context_at(&self, time: &Bound<'_, PyAny>) -> PyResult<Option<Context>> {
        let context = self.owner.context_at(ticks(time)?);
        Ok(context.map(|context| Context::of(&self.owner, &context)))
    }

    /// The transition with this number. Raises ``IndexError`` outside the trace.
    fn transition(&self, transition_id: Whole) -> PyResult<Transition> {
        Ok(Transition::numbered(&self.owner, transition_id.transition(&self.owner)?))
    }

    /// The contexts from ``start`` up to, but not including, ``stop``, every ``step``-th, each
    /// given as itself or by its number, like ``range``; by default, all contexts.
    #[pyo3(signature = (start=None, stop=None, step=1))]
    fn contexts(
        &self,
        start: Option<ContextLike<'_>>,
        stop: Option<ContextLike<'_>>,
        step: i64,
    ) -> PyResult<Items> {
        let id =
            |end: Option<ContextLike<'_>>| end.map(|end| Ok::<_, PyErr>(end.id(&self.owner)?.0)).transpose();
        let numbers = steps(id(start)?, id(stop)?, step, self.context_count())?;
        let found = numbers.map(|number| Item::Context(model::ContextId(number)));
        Ok(Items::new(&self.owner, |_| Ok(Box::new(found)))?)
    }

    /// The transitions from ``start`` up to, but not including, ``stop``, every ``step``-th, each
    /// given as itself or by its number, like ``range``; by default, all transitions.
    #[pyo3(signature = (start=None, stop=None, step=1))]
    fn transitions(
        &self,
        start: Option<TransitionLike<'_>>,
        stop: Option<TransitionLike<'_>>,
        step: i64,
    ) -> PyResult<Items> {
        let count = self.owner.transition_count();
        let id = |end: Option<TransitionLike<'_>>| {
            end.map(|end| match end {
                // The end of all.
                TransitionLike::Number(Whole(number)) if number == count as i64 => Ok(count),
                end => Ok::<_, PyErr>(end.id(&self.owner)?.0),
            })
            .transpose()
        };
        let numbers = steps(id(start)?, id(stop)?, step, count)?;
        let found = numbers.map(|number| Item::Transition(model::TransitionId(number)));
        Ok(Items::new(&self.owner, |_| Ok(Box::new(found)))?)
    }

    /// The frame with this number, see ``StackFrame.id``. Raises ``IndexError`` if there is none.
    fn frame(&self, frame_id: Whole) -> Result<StackFrame, Failure> {
        let frame = self.owner.frame(model::FrameId(u64::try_from(frame_id.0).unwrap_or(u64::MAX)))?;
        Ok(StackFrame::of(&self.owner, &frame))
    }

    /// All stacks at a context.
    fn stacks(&self, context: ContextLike<'_>) -> PyResult<Items> {
        let id = context.id(&self.owner)?;
        Ok(Items::new(&self.owner, |owner| Ok(items(owner.stacks(id)?)))?)
    }

    /// The frames of functions whose names match a pattern, in the order of their first contexts,
    /// outer ones first.
    ///
    /// A pattern is ``module!symbol`` with ``*``, ``?``, ``[…]`` and ``{…,…}`` in either part; case
    /// does not matter. Without a ``!`` it matches symbols of any module. The functions are found
    /// by name; no other frames are read. Raises ``ValueError`` if the pattern is not valid.
    fn calls(&self, py: Python<'_>, pattern: &str) -> Result<Items, Failure> {
        let pattern = model::Pattern::new(pattern)?;
        py.detach(|| Items::new(&self.owner, |owner| Ok(items(owner.calls(&pattern).into_iter()))))
    }

    /// The tail calls of functions whose names match a pattern, in order: frames continued in them by a jump.
    fn tail_calls(&self, py: Python<'_>, pattern: &str) -> Result<Vec<TailCall>, Failure> {
        let pattern = model::Pattern::new(pattern)?;
        let found = py.detach(|| self.owner.tail_calls(&pattern));
        Ok(found.iter().map(|found| TailCall::of(&self.owner, found)).collect())
    }

    fn __repr__(&self) -> String {
        let trace = &self.owner;
        format!("<Trace of {} transitions and {} frames>", trace.transition_count(), trace.frame_count())
    }
}

/// The numbers that `range` gives, among those below `count`.
fn steps(
    start: Option<u64>,
    stop: Option<u64>,
    step: i64,
    count: u64,
) -> PyResult<impl Iterator<Item = u64> + Send + Sync + 'static> {
    if step == 0 {
        return Err(PyValueError::new_err("the step must not be 0"));
    }
    let (count, step) = (i128::from(count), i128::from(step));
    let (first, end) = if step > 0 { (0, count) } else { (count - 1, -1) };
    let mut next = start.map_or(first, i128::from);
    let stop = stop.map_or(end, i128::from);
    Ok(std::iter::from_fn(move || {
        let inside = if step > 0 { next < stop } else { next > stop };
        let number = u64::try_from(next).ok().filter(|_| inside)?;
        next += step;
        Some(number)
    }))
}
