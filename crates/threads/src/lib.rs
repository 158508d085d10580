//! Kernel stacks of threads, with one interface for all sources.
//!
//! A [`KernelStackSource`] returns a [`ThreadStack`] for each selected thread. Traces and live
//! sessions provide the stacks of context switches ([`SwitchStacks`]). On Windows, the driver makes
//! each thread walk its own stack. On Linux, the stacks are read from `/proc`. Each record states
//! how its stack was observed and gives a reason for each missing part.
//!
//! This crate does not format or display stacks.
#![forbid(unsafe_code)]

mod absent;
#[cfg(any(all(windows, feature = "windows"), test))]
mod driver;
mod evidence;
mod frames;
mod from_trace;
#[cfg(target_os = "linux")]
mod proc;
mod switches;

pub use absent::Absent;
#[cfg(all(windows, feature = "windows"))]
pub use driver::{DriverOptions, DriverSource};
pub use evidence::{Certainty, Evidence, SwitchEvidence, SwitchRelation, ThreadState};
pub use frames::{FrameLocation, StackFrame, StatedName};
pub use from_trace::SwitchStacks;
#[cfg(target_os = "linux")]
pub use proc::ProcStacks;

use stackhound_types::{Pid, Tid};

/// Selects threads, and the parts of their stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Select the threads of this process; `None` selects all processes.
    pub pid: Option<Pid>,
    /// Select this thread; if `pid` is set too, only if the thread belongs to that process.
    pub tid: Option<Tid>,
    /// Whether the user stack is requested too.
    pub user: bool,
}

impl Selection {
    /// Whether a thread is selected. A thread whose process is unknown matches no `pid`.
    pub fn chooses(&self, pid: Option<Pid>, tid: Tid) -> bool {
        self.pid.is_none_or(|wanted| pid == Some(wanted)) && self.tid.is_none_or(|wanted| tid == wanted)
    }
}

/// The frames of a kernel or user stack, innermost first, never empty; or the reason why it is
/// missing.
pub type Part = Result<Vec<StackFrame>, Absent>;

/// A thread and its stack. Takes about 200 bytes per frame, with names.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadStack {
    /// The process, if it is known.
    pub pid: Option<Pid>,
    /// The thread.
    pub tid: Tid,
    /// The process's image name.
    pub process: Option<String>,
    /// The name that was set for the thread.
    pub name: Option<String>,
    /// The state of the thread at the requested time.
    pub state: ThreadState,
    /// The kernel stack.
    pub kernel: Part,
    /// The user stack, if it was requested. While the kernel calls back into a program, the driver
    /// also finds the kernel frames of the callback, between user frames.
    pub user: Option<Part>,
    /// How the stack was observed; `None` if no stack was observed.
    pub evidence: Option<Evidence>,
}

/// The error if no thread can be read at all. A stack that is missing for one thread is an
/// [`Absent`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelStackError {
    /// The process does not exist.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// The thread does not exist.
    #[error("there is no thread {0}{of}", of = .1.map(|pid| format!(" in process {pid}")).unwrap_or_default())]
    NoThread(Tid, Option<Pid>),
    /// All processes were selected, but this source reads one process at a time.
    #[error("this source reads the threads of one process; specify a process ID")]
    NeedsProcess,
    /// The system denies access to the stacks.
    #[error("cannot read the kernel stacks of process {pid}: {hint}")]
    Refused {
        /// The process.
        pid: Pid,
        /// The requirement, as a sentence without its full stop.
        hint: &'static str,
    },
    /// The driver cannot be used; the message contains advice.
    #[error(transparent)]
    Driver(#[from] stackhound_kstack_client::Error),
    /// The threads of the symbolizer could not be started.
    #[error("cannot start the symbolizer threads: {0}")]
    Symbols(std::io::Error),
    /// Reading failed.
    #[error("cannot read {what}: {error}")]
    Read {
        /// What was read.
        what: String,
        /// Why it failed.
        error: std::io::Error,
    },
}

/// A source of kernel stacks.
pub trait KernelStackSource {
    /// The stacks of the selected threads, ordered by process and thread. Threads whose stack is
    /// missing are included, with the reason.
    ///
    /// # Errors
    /// If no thread can be read.
    fn stacks(&mut self, of: &Selection) -> Result<Vec<ThreadStack>, KernelStackError>;
}
