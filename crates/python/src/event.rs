//! Events below a frame.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::convert::Failure;
use crate::frame::StackFrame;
use crate::kind::{Member, end_type, start_type};
use crate::owner::Owner;
use crate::transition::Transition;

/// A frame begins.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct FrameStart {
    frame: StackFrame,
}

/// A frame ends. Its last context is that before the transition that ends it.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct FrameEnd {
    frame: StackFrame,
}

/// Another stack becomes the active one. The frames still have the context before this transition.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct StackLeave {
    owner: Owner,
    transition: model::TransitionId,
}

/// The stack becomes active again. The frames have the context after this transition.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct StackEnter {
    owner: Owner,
    transition: model::TransitionId,
}

impl FrameStart {
    pub(crate) fn new(frame: StackFrame) -> Self {
        Self { frame }
    }
}

impl FrameEnd {
    pub(crate) fn new(frame: StackFrame) -> Self {
        Self { frame }
    }
}

#[pymethods]
impl FrameStart {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("frame",)
    }

    /// The frame.
    #[getter]
    fn frame(&self) -> StackFrame {
        self.frame.clone()
    }

    /// How it starts, a ``FrameStartType``.
    #[getter]
    fn r#type(&self) -> Result<Member, Failure> {
        Ok(start_type(self.frame.view()?.start_type()))
    }

    /// The transition that creates it; ``None`` if it was not observed.
    #[getter]
    fn transition(&self) -> Result<Option<Transition>, Failure> {
        let frame = self.frame.view()?;
        Ok(frame.creation_transition().map(|found| Transition::of(self.frame.owner(), &found)))
    }

    fn __str__(&self) -> Result<String, Failure> {
        Ok(model::StackEvent::FrameStart(self.frame.view()?).to_string())
    }

    fn __repr__(&self) -> Result<String, Failure> {
        Ok(format!("<FrameStart {}>", self.frame.view()?))
    }
}

#[pymethods]
impl FrameEnd {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("frame",)
    }

    /// The frame.
    #[getter]
    fn frame(&self) -> StackFrame {
        self.frame.clone()
    }

    /// How it ends, a ``FrameEndType``.
    #[getter]
    fn r#type(&self) -> Result<Member, Failure> {
        Ok(end_type(self.frame.view()?.end_type()))
    }

    /// The transition that ends it; ``None`` if it was not observed, or if the frame is still open
    /// at the end of the trace.
    #[getter]
    fn transition(&self) -> Result<Option<Transition>, Failure> {
        let frame = self.frame.view()?;
        let found = match frame.end() {
            model::Bound::Observed(_) if frame.has_ended() => frame.last_context().transition_after(),
            _ => None,
        };
        Ok(found.map(|found| Transition::of(self.frame.owner(), &found)))
    }

    fn __str__(&self) -> Result<String, Failure> {
        Ok(model::StackEvent::FrameEnd(self.frame.view()?).to_string())
    }

    fn __repr__(&self) -> Result<String, Failure> {
        Ok(format!("<FrameEnd {}>", self.frame.view()?))
    }
}

#[pymethods]
impl StackLeave {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("transition",)
    }

    /// The transition that leads to another stack.
    #[getter]
    fn transition(&self) -> Transition {
        Transition::numbered(&self.owner, self.transition)
    }

    fn __str__(&self) -> String {
        format!("Leave {}", self.transition)
    }

    fn __repr__(&self) -> String {
        format!("<StackLeave {}>", self.transition)
    }
}

#[pymethods]
impl StackEnter {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("transition",)
    }

    /// The transition that leads back to the stack.
    #[getter]
    fn transition(&self) -> Transition {
        Transition::numbered(&self.owner, self.transition)
    }

    fn __str__(&self) -> String {
        format!("Enter {}", self.transition)
    }

    fn __repr__(&self) -> String {
        format!("<StackEnter {}>", self.transition)
    }
}

type Events<'t> = model::StackEvents<'t>;

self_cell::self_cell! {
    struct Held {
        owner: Owner,
        #[not_covariant]
        dependent: Events,
    }
}

/// The events below a frame, in order: ``FrameStart``, ``FrameEnd``, ``StackLeave``,
/// ``StackEnter``. The frame's own beginning and end are not included. One event is created at a
/// time.
#[pyclass(module = "stackhound.stack")]
pub(crate) struct StackEventIterator(Held);

impl StackEventIterator {
    pub(crate) fn new(owner: &Owner, frame: model::FrameId) -> Result<Self, Failure> {
        let held =
            Held::try_new(owner.clone(), |owner| owner.frame(frame).map(|found| found.descendant_events()))?;
        Ok(Self(held))
    }
}

#[pymethods]
impl StackEventIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.with_dependent_mut(|owner, events| match events.next() {
            None => Ok(None),
            Some(model::StackEvent::FrameStart(frame)) => {
                FrameStart::new(StackFrame::of(owner, &frame)).into_py_any(py).map(Some)
            }
            Some(model::StackEvent::FrameEnd(frame)) => {
                FrameEnd::new(StackFrame::of(owner, &frame)).into_py_any(py).map(Some)
            }
            Some(model::StackEvent::StackLeave(found)) => {
                StackLeave { owner: owner.clone(), transition: found.id() }.into_py_any(py).map(Some)
            }
            Some(model::StackEvent::StackEnter(found)) => {
                StackEnter { owner: owner.clone(), transition: found.id() }.into_py_any(py).map(Some)
            }
        })
    }

    /// Skips all events below the frame that has just begun: the next event is its ``FrameEnd``.
    /// Only has an effect directly after a ``FrameStart``. The cost does not depend on the number
    /// of skipped events.
    fn skip_children(&mut self) {
        self.0.with_dependent_mut(|_, events| events.skip_children());
    }
}
