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
    /// The frame.
    #[pyo3(get)]
    pub(crate) frame: StackFrame,
}

/// A frame ends. Its last context is that before the transition that ends it.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct FrameEnd {
    /// The frame.
    #[pyo3(get)]
    pub(crate) frame: StackFrame,
}

/// Another stack becomes the active one. The frames still have the context before this transition.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct StackLeave {
    /// The transition that leads to another stack.
    #[pyo3(get)]
    transition: Transition,
}

/// The stack becomes active again. The frames have the context after this transition.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct StackEnter {
    /// The transition that leads back to the stack.
    #[pyo3(get)]
    transition: Transition,
}

#[pymethods]
impl FrameStart {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("frame",)
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

    fn __str__(&self) -> String {
        format!("Leave {}", self.transition.id)
    }

    fn __repr__(&self) -> String {
        format!("<StackLeave {}>", self.transition.id)
    }
}

#[pymethods]
impl StackEnter {
    #[classattr]
    fn __match_args__() -> (&'static str,) {
        ("transition",)
    }

    fn __str__(&self) -> String {
        format!("Enter {}", self.transition.id)
    }

    fn __repr__(&self) -> String {
        format!("<StackEnter {}>", self.transition.id)
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
        use model::StackEvent;
        self.0.with_dependent_mut(|owner, events| {
            let Some(event) = events.next() else { return Ok(None) };
            match event {
                StackEvent::FrameStart(found) => {
                    FrameStart { frame: StackFrame::of(owner, &found) }.into_py_any(py)
                }
                StackEvent::FrameEnd(found) => {
                    FrameEnd { frame: StackFrame::of(owner, &found) }.into_py_any(py)
                }
                StackEvent::StackLeave(found) => {
                    StackLeave { transition: Transition::of(owner, &found) }.into_py_any(py)
                }
                StackEvent::StackEnter(found) => {
                    StackEnter { transition: Transition::of(owner, &found) }.into_py_any(py)
                }
            }
            .map(Some)
        })
    }

    /// Skips all events below the frame that has just begun: the next event is its ``FrameEnd``.
    /// Only has an effect directly after a ``FrameStart``. The cost does not depend on the number
    /// of skipped events.
    fn skip_children(&mut self) {
        self.0.with_dependent_mut(|_, events| events.skip_children());
    }
}
