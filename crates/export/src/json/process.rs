//! The known facts about processes and threads. Their ids are separate keys, `pid` and `tid`.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_detect::report::ProcessReport;
use stackhound_threads::{ThreadStack, ThreadState};

use super::value::Time;
use crate::findings::shown::known;

/// The known facts about the process with the id `pid`.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Process<'a> {
    /// File name of the program.
    name: Option<&'a str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin<'a>>,
}

/// The origin of a process, in findings and alerts.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Origin<'a> {
    /// Path of the program.
    path: Option<&'a str>,
    command_line: Option<&'a str>,
    /// Id of the parent process.
    parent_pid: Option<u32>,
    start_time: Option<Time>,
    /// Account of the process, such as `CONTOSO\\user`.
    user: Option<&'a str>,
    /// Integrity level, such as `High`.
    integrity_level: Option<&'a str>,
}

impl<'a> Process<'a> {
    /// A process of which only the name is shown. `None` if it is not known.
    pub fn named(name: Option<&'a str>) -> Option<Process<'a>> {
        name.map(|name| Process { name: Some(name), origin: None })
    }

    /// A process with all facts of a finding.
    pub fn of_finding(process: &'a ProcessReport) -> Process<'a> {
        Process {
            name: known(&process.name),
            origin: Some(Origin {
                path: known(&process.path),
                command_line: known(&process.command_line),
                parent_pid: process.parent_pid,
                start_time: process.started.and_then(Time::from_ticks),
                user: known(&process.user),
                integrity_level: known(&process.integrity_level),
            }),
        }
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
