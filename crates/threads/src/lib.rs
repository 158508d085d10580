//! Kernel stacks of any thread: one interface, whoever looked.
//!
//! A [`KernelStackSource`] gives a [`ThreadStack`] for each thread that is asked for: recordings and live sessions have the
//! stacks of context switches ([`SwitchStacks`]), on Windows the driver has the thread walk its own stack, and Linux tells it
//! in `/proc`. Every record says how its stack was observed, and what is missing of it has a reason: an absent stack is never
//! an empty one.
//!
//! Knows threads, frames and how they were observed; must not know how they are shown.
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

/// Which threads, and what of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// The threads of this process; all that there are otherwise.
    pub pid: Option<Pid>,
    /// This thread; with `pid`, only if it is of that process.
    pub tid: Option<Tid>,
    /// Whether the user part is wanted too.
    pub user: bool,
}

impl Selection {
    /// Whether a thread is meant. One whose process is not known is of no certain process.
    pub fn chooses(&self, pid: Option<Pid>, tid: Tid) -> bool {
        self.pid.is_none_or(|wanted| pid == Some(wanted)) && self.tid.is_none_or(|wanted| tid == wanted)
    }
}

/// One part of a stack, innermost frame first, never empty; or why it is not there.
pub type Part = Result<Vec<StackFrame>, Absent>;

/// A thread and its stack. With names, about 200 bytes a frame.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadStack {
    /// Its process, if anything tells.
    pub pid: Option<Pid>,
    /// The thread.
    pub tid: Tid,
    /// The process's image name.
    pub process: Option<String>,
    /// The name that somebody gave the thread.
    pub name: Option<String>,
    /// What the thread does at the time in question.
    pub state: ThreadState,
    /// The part in the kernel.
    pub kernel: Part,
    /// The part in user mode, if it was asked for. While the kernel calls back into a program, the driver also finds the kernel frames that
    /// made the callback, between user frames.
    pub user: Option<Part>,
    /// How the stack was observed; `None` if nobody has seen any.
    pub evidence: Option<Evidence>,
}

/// Why no thread at all can be told of. What concerns one thread is an [`Absent`] of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelStackError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// There is no such thread.
    #[error("there is no thread {0}{of}", of = .1.map(|pid| format!(" in process {pid}")).unwrap_or_default())]
    NoThread(Tid, Option<Pid>),
    /// All processes were asked for, but this source tells of one at a time.
    #[error("this source tells of the threads of one process: say which")]
    NeedsProcess,
    /// The system refuses it; what would help.
    #[error("the system does not tell the kernel stacks of process {pid}: {hint}")]
    Refused {
        /// The process.
        pid: Pid,
        /// What it takes, as a sentence without its full stop.
        hint: &'static str,
    },
    /// The driver cannot be asked, and what to do about it.
    #[error(transparent)]
    Driver(#[from] stackhound_kstack_client::Error),
    /// The threads that look names up could not be started.
    #[error("cannot start the threads for symbols: {0}")]
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

/// Who knows kernel stacks.
pub trait KernelStackSource {
    /// The stacks of the chosen threads, by process and thread. Threads whose stack is missing are there too, with the
    /// reason.
    ///
    /// # Errors
    /// If nothing can be told of any of them.
    fn stacks(&mut self, of: &Selection) -> Result<Vec<ThreadStack>, KernelStackError>;
}
