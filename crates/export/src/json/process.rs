//! The processes and threads of stacks. Their ids are separate keys, `pid` and `tid`.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_threads::{ThreadStack, ThreadState};

use super::value::Time;

/// The process with the id `pid`, of which only the name is shown.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Process<'a> {
    /// File name of the program.
    name: Option<&'a str>,
}

impl<'a> Process<'a> {
    /// A process with a name. `None` if it is not known.
    pub fn named(name: Option<&'a str>) -> Option<Process<'a>> {
        name.map(|name| Process { name: Some(name) })
    }
}

/// The known facts about the thread with the id `tid`.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Thread<'a> {
    /// The name that a program assigned to the thread.
    name: Option<&'a str>,
    /// State of the thread at the requested time.
    #[cfg_attr(test, schemars(extend("enum" = ["unknown", "running", "ready", "waiting", "ended"])))]
    state: &'static str,
    /// Start time of this state.
    since: Option<Time>,
    /// Wait reason, as the system names it.
    wait_reason: Option<&'a str>,
}

impl<'a> Thread<'a> {
    /// The thread of a stack.
    pub fn new(stack: &'a ThreadStack) -> Thread<'a> {
        Thread {
            name: stack.name.as_deref(),
            state: stack.state.name(),
            since: stack.state.since().map(Time),
            wait_reason: match &stack.state {
                ThreadState::Waiting { reason, .. } => reason.as_deref(),
                _ => None,
            },
        }
    }
}
