//! Processes and threads, as far as they are known. Their ids are beside them, as `pid` and `tid`.

use schemars::JsonSchema;
use serde::Serialize;
use stackhound_detect::report::ProcessReport;
use stackhound_threads::{ThreadStack, ThreadState};

use super::value::Time;
use crate::findings::shown::known;

/// What is known of the process with the id `pid`.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Process<'a> {
    /// File name of its program.
    name: Option<&'a str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin<'a>>,
}

/// How a process came to be. In findings and alerts.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Origin<'a> {
    /// Path of its program.
    path: Option<&'a str>,
    command_line: Option<&'a str>,
    /// The process that started it.
    parent_pid: Option<u32>,
    start_time: Option<Time>,
}

impl<'a> Process<'a> {
    /// Of which only the name is shown. `None` if it is not known.
    pub fn named(name: Option<&'a str>) -> Option<Process<'a>> {
        name.map(|name| Process { name: Some(name), origin: None })
    }

    /// All that a finding knows of a process.
    pub fn of_finding(process: &'a ProcessReport) -> Process<'a> {
        Process {
            name: known(&process.name),
            origin: Some(Origin {
                path: known(&process.path),
                command_line: known(&process.command_line),
                parent_pid: process.parent_pid,
                start_time: process.started.and_then(Time::from_ticks),
            }),
        }
    }
}

/// What is known of the thread with the id `tid`.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Thread<'a> {
    /// The name that a program gave it.
    name: Option<&'a str>,
    /// What it does at the time in question.
    #[schemars(extend("enum" = ["unknown", "running", "ready", "waiting", "ended"]))]
    state: &'static str,
    /// Since when.
    since: Option<Time>,
    /// What it waits for, in the system's words.
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
