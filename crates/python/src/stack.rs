//! Stacks.

use pyo3::prelude::*;
use stackhound_calltree as model;

use crate::context::Context;
use crate::convert::{Failure, axis};
use crate::frame::StackFrame;
use crate::html;
use crate::items::{Items, items};
use crate::kind::{Member, bound, stack_kind};
use crate::owner::Owner;

/// A stack as it is at one context: its known frames, from the top down.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    owner: Owner,
    id: model::StackId,
    at: model::ContextId,
}

impl Stack {
    pub(crate) fn of(owner: &Owner, stack: &model::Stack<'_>) -> Self {
        Self::numbered(owner, stack.id(), stack.context().id())
    }

    pub(crate) fn numbered(owner: &Owner, id: model::StackId, at: model::ContextId) -> Self {
        Self { owner: owner.clone(), id, at }
    }

    fn view(&self) -> Result<model::Stack<'_>, Failure> {
        Ok(self.owner.stack(self.id, self.at)?)
    }

    fn along(
        &self,
        name: &str,
        found: impl Fn(&model::Stack<'_>, model::Axis) -> Option<Self>,
    ) -> PyResult<Option<Self>> {
        Ok(found(&self.view()?, axis(name)?))
    }
}

#[pymethods]
impl Stack {
    /// Its number: the same at all contexts.
    #[getter]
    fn id(&self) -> u32 {
        self.id.0
    }

    /// The context of this view of the stack.
    #[getter]
    fn context(&self) -> Context {
        Context::numbered(&self.owner, self.at)
    }

    /// Its kind, a ``StackKind``.
    #[getter]
    fn kind(&self) -> Result<Member, Failure> {
        Ok(stack_kind(self.view()?.info().kind))
    }

    /// The process it belongs to, ``None`` if that is not known.
    #[getter]
    fn process_id(&self) -> Result<Option<u32>, Failure> {
        Ok(self.view()?.info().process)
    }

    /// The thread it belongs to, ``None`` if that is not known or if it does not belong to a
    /// thread.
    #[getter]
    fn thread_id(&self) -> Result<Option<u32>, Failure> {
        Ok(self.view()?.info().thread)
    }

    /// The processor it belongs to, for the stacks of interrupts.
    #[getter]
    fn cpu(&self) -> Result<Option<u16>, Failure> {
        Ok(self.view()?.info().cpu.map(|cpu| cpu.0))
    }

    /// The name of the process or the stack, ``None`` if that is not known.
    #[getter]
    fn name(&self) -> Result<Option<String>, Failure> {
        Ok(self.view()?.info().name)
    }

    /// Its memory, from the lowest address to the one after the highest; ``None`` if that is not
    /// known.
    #[getter]
    fn region(&self) -> Result<Option<(u64, u64)>, Failure> {
        Ok(self.view()?.info().region.map(|(lowest, end)| (lowest.0, end.0)))
    }

    /// Whether it is the active stack of some processor at its context. In a trace of events without
    /// context switches, a thread is assumed to be active until the next event of another thread of its
    /// processor.
    #[getter]
    fn is_active(&self) -> Result<bool, Failure> {
        Ok(self.view()?.is_active())
    }

    /// When its current or latest period of activity began: ``Observed`` or ``Inferred``. ``None``
    /// if it was not active before its context.
    #[getter]
    fn active_since<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.view()?.active_since().map(|since| bound(py, &self.owner, since)).transpose()
    }

    /// Its top frame; ``None`` if no frame of it is known here.
    fn frame(&self) -> Result<Option<StackFrame>, Failure> {
        Ok(self.view()?.frame().map(|frame| StackFrame::of(&self.owner, &frame)))
    }

    /// Its known frames, from the top down.
    fn frames(&self) -> Result<Items, Failure> {
        let (id, at) = (self.id, self.at);
        Items::new(&self.owner, |owner| Ok(items(owner.stack(id, at)?.frames())))
    }

    /// The stack that was active before this one's period of activity, as it was at the end of its
    /// own. ``None`` at the beginning of the trace, or where it is not known.
    ///
    /// With ``"cpu"``, it is the previous stack of the same processor; with ``"thread"``, it is the
    /// other stack of the same thread, for example the user stack that called into the kernel.
    #[pyo3(signature = (axis="cpu"))]
    fn prev_stack(&self, axis: &str) -> PyResult<Option<Self>> {
        self.along(axis, |stack, axis| stack.prev_stack(axis).map(|found| Self::of(&self.owner, &found)))
    }

    /// The stack that becomes active after this one's period of activity, as it is at the beginning
    /// of its own. ``None`` at the end of the trace, or where it is not known. See ``prev_stack``
    /// for the axis.
    #[pyo3(signature = (axis="cpu"))]
    fn next_stack(&self, axis: &str) -> PyResult<Option<Self>> {
        self.along(axis, |stack, axis| stack.next_stack(axis).map(|found| Self::of(&self.owner, &found)))
    }

    fn __str__(&self) -> Result<String, Failure> {
        Ok(self.view()?.to_string())
    }

    fn __repr__(&self) -> Result<String, Failure> {
        Ok(format!("<{:?}>", self.view()?))
    }

    /// Its frames as a list, for notebooks.
    fn _repr_html_(&self) -> Result<String, Failure> {
        Ok(html::stack(&self.view()?))
    }
}
