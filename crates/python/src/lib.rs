//! The stack model for Python: traces, contexts, stacks, frames and their events under the names of the reven2 stack
//! API, as `docs/python.md` describes them.
//!
//! Every Python object shares the trace it is of, so that it may outlive whatever it was got from, and keeps the numbers
//! that name it there: what is asked of it is looked up in the index when it is asked. Iterators keep a place in the
//! index and make one object at a time. Whatever may take long lets other Python threads run.
//!
//! Knows the model and how it is shown to Python, nothing of where traces come from: that is behind [`open`].
#![forbid(unsafe_code)]

mod call_range;
mod context;
mod convert;
mod event;
mod frame;
mod html;
mod items;
mod kind;
mod location;
mod open;
mod owner;
mod range;
mod stack;
mod trace;
mod transition;

/// What the package `stackhound` is made of; its modules show this under the names people use.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::call_range::CallRange;
    #[pymodule_export]
    use crate::context::Context;
    #[pymodule_export]
    use crate::event::{FrameEnd, FrameStart, StackEnter, StackEventIterator, StackLeave};
    #[pymodule_export]
    use crate::frame::StackFrame;
    #[pymodule_export]
    use crate::kind::{Count, Inferred, Observed, Open};
    #[pymodule_export]
    use crate::location::{Binary, Location};
    #[pymodule_export]
    use crate::open::{TraceFile, open};
    #[pymodule_export]
    use crate::range::ContextRange;
    #[pymodule_export]
    use crate::stack::Stack;
    #[pymodule_export]
    use crate::trace::Trace;
    #[pymodule_export]
    use crate::transition::Transition;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
