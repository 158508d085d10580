//! Frames.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stackhound_calltree as model;
use stackhound_export::tree::Limits;

use crate::context::Context;
use crate::convert::Failure;
use crate::event::{FrameEnd, FrameStart, StackEventIterator};
use crate::html;
use crate::items::{Items, items};
use crate::kind::{Count, Member, bound, continuity, end_type, evidence, start_type};
use crate::location::Location;
use crate::owner::Owner;
use crate::range::ContextRange;
use crate::stack::Stack;
use crate::tail_call::TailCall;
use crate::transition::Transition;

/// A frame of a stack: one execution of one function, from its first context to its last.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct StackFrame {
    owner: Owner,
    id: model::FrameId,
}

impl StackFrame {
    pub(crate) fn of(owner: &Owner, frame: &model::Frame<'_>) -> Self {
        Self::numbered(owner, frame.id())
    }

    pub(crate) fn numbered(owner: &Owner, id: model::FrameId) -> Self {
        Self { owner: owner.clone(), id }
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn view(&self) -> Result<model::Frame<'_>, Failure> {
        Ok(self.owner.frame(self.id)?)
    }

    fn transition(&self, transition: Option<model::Transition<'_>>) -> Option<Transition> {
        transition.map(|transition| Transition::of(&self.owner, &transition))
    }
}

#[pymethods]
impl StackFrame {
    /// Its number in the trace: those of a stack come one after another, outer before inner,
    /// earlier before later.
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// The stack it is on, as it is at its first context.
    #[getter]
    fn stack(&self) -> Result<Stack, Failure> {
        Ok(Stack::of(&self.owner, &self.view()?.stack()))
    }

    /// How it started, a ``FrameStartType``; the same as ``start_type``.
    #[getter]
    fn r#type(&self) -> Result<Member, Failure> {
        self.start_type()
    }

    /// How it started, a ``FrameStartType``.
    #[getter]
    fn start_type(&self) -> Result<Member, Failure> {
        Ok(start_type(self.view()?.start_type()))
    }

    /// How it ended, a ``FrameEndType``.
    #[getter]
    fn end_type(&self) -> Result<Member, Failure> {
        Ok(end_type(self.view()?.end_type()))
    }

    /// The event that starts it.
    #[getter]
    fn start_event(&self) -> FrameStart {
        FrameStart { frame: self.clone() }
    }

    /// The event that ends it; ``None`` if it is still open at the end of the trace.
    #[getter]
    fn end_event(&self) -> Result<Option<FrameEnd>, Failure> {
        Ok(self.view()?.has_ended().then(|| FrameEnd { frame: self.clone() }))
    }

    /// When it started, and how exactly that is known: ``Observed``, ``Inferred`` or ``Open``.
    #[getter]
    fn start_bound<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        bound(py, &self.owner, self.view()?.start())
    }

    /// When it ended, and how exactly that is known: ``Observed``, ``Inferred`` or ``Open``.
    #[getter]
    fn end_bound<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        bound(py, &self.owner, self.view()?.end())
    }

    /// Whether it is known to be the same one all the time, a ``Continuity``.
    #[getter]
    fn continuity(&self) -> Result<Member, Failure> {
        Ok(continuity(self.view()?.continuity()))
    }

    /// The evidence for its existence, an ``Evidence``.
    #[getter]
    fn evidence(&self) -> Result<Member, Failure> {
        Ok(evidence(self.view()?.evidence()))
    }

    /// The first context at which it, or a frame it called, is executed. For a frame that was
    /// called before anything is known of its stack: the first context at which the stack is
    /// active.
    #[getter]
    fn first_context(&self) -> Result<Context, Failure> {
        Ok(Context::of(&self.owner, &self.view()?.first_context()))
    }

    /// The first context at which it is itself the top of the active stack, not a frame it called.
    /// ``None`` if it never is.
    #[getter]
    fn first_executed_context(&self, py: Python<'_>) -> Result<Option<Context>, Failure> {
        py.detach(|| Ok(self.view()?.first_executed_context().map(|found| Context::of(&self.owner, &found))))
    }

    /// The last context at which it exists: that before the transition that ends it, or the last
    /// one of the trace.
    #[getter]
    fn last_context(&self) -> Result<Context, Failure> {
        Ok(Context::of(&self.owner, &self.view()?.last_context()))
    }

    /// From its first context to its last, whether its stack is active or not.
    #[getter]
    fn range(&self) -> Result<ContextRange, Failure> {
        Ok(ContextRange::of(&self.owner, self.view()?.range()))
    }

    /// The functions that it reached by tail calls, in order: each returns in place of the one before.
    #[getter]
    fn tail_calls(&self) -> Result<Vec<TailCall>, Failure> {
        Ok(self.view()?.tail_calls().map(|found| TailCall::of(&self.owner, &found)).collect())
    }

    /// The transition that created it; ``None`` if it was not observed.
    #[getter]
    fn creation_transition(&self) -> Result<Option<Transition>, Failure> {
        Ok(self.transition(self.view()?.creation_transition()))
    }

    /// The transition at which its function starts: the call or the interrupt. ``None`` if it was
    /// not observed, or if the frame was set up from another stack.
    fn function_start(&self) -> Result<Option<Transition>, Failure> {
        Ok(self.transition(self.view()?.function_start()))
    }

    /// The start of its function, or its location when it was first observed; see
    /// ``symbol_offset``. ``None`` if neither is known.
    fn function_location(&self) -> Result<Option<Location>, Failure> {
        Ok(self.view()?.function_location().as_ref().map(Location::of))
    }

    /// The name of its function, as far as it is known: ``ntoskrnl!KeWaitForSingleObject``, ``???``
    /// if nothing is known.
    #[getter]
    fn name(&self) -> Result<String, Failure> {
        Ok(self.view()?.name().to_string())
    }

    /// The frame that it returns to, on the same stack; ``None`` for the first known one.
    #[getter]
    fn parent(&self) -> Result<Option<Self>, Failure> {
        Ok(self.view()?.parent().map(|parent| Self::of(&self.owner, &parent)))
    }

    /// The number of its ancestors.
    #[getter]
    fn depth(&self) -> Result<u64, Failure> {
        Ok(self.view()?.depth())
    }

    /// Its parent, the parent's parent, and so on.
    fn ancestors(&self) -> Result<Items, Failure> {
        let id = self.id;
        Items::new(&self.owner, |owner| Ok(items(owner.frame(id)?.ancestors())))
    }

    /// The frames it called, in order.
    fn children(&self) -> Result<Items, Failure> {
        let id = self.id;
        Items::new(&self.owner, |owner| Ok(items(owner.frame(id)?.children())))
    }

    /// The frames it called, the last one first.
    fn reversed_children(&self) -> Result<Items, Failure> {
        let id = self.id;
        Items::new(&self.owner, |owner| Ok(items(owner.frame(id)?.reversed_children())))
    }

    /// The number of frames it called. Costs as much as iterating over them.
    fn child_count(&self, py: Python<'_>) -> Result<Count, Failure> {
        py.detach(|| Ok(Count(self.view()?.child_count())))
    }

    /// The number of all frames below it.
    fn descendant_count(&self) -> Result<Count, Failure> {
        Ok(Count(self.view()?.descendant_count()))
    }

    /// The beginnings and ends of all frames below it, and the changes from its stack to others and
    /// back, in order.
    fn descendant_events(&self) -> Result<StackEventIterator, Failure> {
        StackEventIterator::new(&self.owner, self.id)
    }

    /// The parts of its range in which its stack was active, as ``ContextRange`` objects.
    ///
    /// With ``by="call"``, the ranges are also split where frames below it begin and end, as
    /// ``CallRange`` objects; frames whose names match the pattern ``exclude`` are omitted with all
    /// frames below them. See ``Trace.calls`` for patterns.
    #[pyo3(signature = (by=None, exclude=None))]
    fn execution_ranges(&self, by: Option<&str>, exclude: Option<&str>) -> PyResult<Items> {
        let id = self.id;
        let pattern = exclude.map(model::Pattern::new).transpose().map_err(Failure::from)?;
        Ok(match (by, pattern) {
            (None, None) => Items::new(&self.owner, |owner| Ok(items(owner.frame(id)?.execution_ranges()))),
            (None, Some(_)) => {
                return Err(PyValueError::new_err("to exclude calls, ask for the ranges by=\"call\""));
            }
            (Some("call"), None) => {
                Items::new(&self.owner, |owner| Ok(items(owner.frame(id)?.execution_ranges_by_call())))
            }
            (Some("call"), Some(pattern)) => Items::new(&self.owner, |owner| {
                let excluded = move |frame: &model::Frame<'_>| frame.fits(&pattern);
                Ok(items(owner.frame(id)?.execution_ranges_by_call().without(excluded)))
            }),
            (Some(other), _) => {
                return Err(PyValueError::new_err(format!(
                    "ranges are by=None or by=\"call\", not {other:?}"
                )));
            }
        }?)
    }

    /// Its printed form as HTML.
    fn format_as_html(&self) -> Result<String, Failure> {
        Ok(html::frame(self.view()?))
    }

    /// The calls around it as HTML: its ancestors, the frame itself in ``<strong>``, its
    /// descendants and its siblings.
    ///
    /// ``max_ancestors`` and ``max_depth`` limit the levels up and down; of each frame,
    /// ``max_children`` children are shown, and ``|- ...`` replaces the rest. The HTML contains its
    /// styles and can be embedded in any page.
    #[pyo3(signature = (max_ancestors=2, max_depth=2, max_children=5))]
    fn tree_html(
        &self,
        py: Python<'_>,
        max_ancestors: usize,
        max_depth: usize,
        max_children: usize,
    ) -> Result<String, Failure> {
        let limits = Limits { ancestors: max_ancestors, depth: max_depth, children: max_children };
        py.detach(|| Ok(html::tree(self.view()?, limits)))
    }

    /// Its tree, for notebooks.
    fn _repr_html_(&self, py: Python<'_>) -> Result<String, Failure> {
        self.tree_html(py, 2, 2, 5)
    }

    fn __str__(&self) -> Result<String, Failure> {
        Ok(self.view()?.to_string())
    }

    fn __repr__(&self) -> Result<String, Failure> {
        Ok(format!("<StackFrame {}>", self.view()?))
    }
}
