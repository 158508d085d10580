//! `stackhound.trace`: traces, contexts, transitions and ranges of contexts.

mod context;
mod range;
#[allow(clippy::module_inception)]
mod trace;
mod transition;

pub(crate) use context::Context;
pub(crate) use range::ContextRange;
pub(crate) use trace::Trace;
pub(crate) use transition::Transition;
