//! The stack model for Python: traces, contexts, stacks, frames and their events under the names of
//! the reven2 stack API, and the tables of traces, as `docs/python.md` describes them.
//!
//! Every Python object shares ownership of its trace, so it may outlive the object that returned
//! it, and stores only its numbers in the trace: attributes are looked up in the index on access.
//! Iterators keep a position in the index and create one object at a time. Long operations release
//! the interpreter for other Python threads.
//!
//! The crate exposes the model to Python. Only [`open`] and [`tables`] depend on the sources of traces.
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
mod tables;
mod tail_call;
mod trace;
mod transition;

/// The native module of the package `stackhound`, whose Python modules re-export its items.
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
    use crate::tables::{Table, Tables, read};
    #[pymodule_export]
    use crate::tail_call::TailCall;
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
