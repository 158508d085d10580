//! A system call.

use std::sync::Arc;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_pipeline::EventView;

use super::value::{Hex, Text};

/// A system call, as its entry and its exit report it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SystemCall {
    /// Name of the service; null if no file names it, or if the call of an exit is not known.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    service: Option<Text<Arc<str>>>,
    /// Address of the service's routine.
    routine: Option<Hex>,
    /// Whether entry and exit were found, otherwise why not.
    #[cfg_attr(test, schemars(extend("enum" = [
        "completed", "late", "thread-ended", "not-returned", "unfinished", "lost", "unknown-thread", "unconfirmed",
        "not-entered"
    ])))]
    completion: &'static str,
    /// The NTSTATUS; null unless completed.
    status: Option<Hex>,
    /// Time from entry to exit in nanoseconds; null unless completed.
    duration: Option<u64>,
}

impl SystemCall {
    /// The system call that an event enters or leaves.
    pub fn of_event(view: &EventView<'_>) -> Option<SystemCall> {
        let call = view.call()?;
        let completed = call.completed();
        Some(SystemCall {
            service: view.service().map(Text),
            routine: call.routine.map(|routine| Hex(routine.0)),
            completion: call.end.name(),
            status: completed.map(|(status, _)| Hex(status.into())),
            duration: completed.map(|(_, nanoseconds)| nanoseconds),
        })
    }
}
