//! Kernel stacks on Windows, through the driver: each thread walks its own stack, and this module
//! resolves modules and names.
//!
//! Frames are resolved with the modules of the kernel and of the process as listed right after the
//! capture: Windows does not report modules and stacks atomically. Addresses outside all modules of
//! a process are classified by the memory region at that address. Names come from files with the
//! identity of the loaded modules, searched along the symbol path and in the folders from which the
//! modules were loaded, except folders on network shares. Nothing is downloaded unless that is
//! allowed.
//!
//! Uses the driver client and the module lists of Windows; does not display frames. Everything
//! except [`system`] is platform-independent and tested on all platforms.

mod dispatcher;
mod modules;
mod resolve;
#[cfg(all(windows, feature = "windows"))]
mod system;
#[cfg(test)]
mod tests;

use std::time::Duration;

use stackhound_kstack_client as client;
use stackhound_kstack_proto::Missing;
use stackhound_symbols::Symbolizer;
use stackhound_types::{Pid, Tid};

use super::{Absent, Evidence, KernelStackError, Part, ThreadStack, ThreadState};
use resolve::{ProcessMap, ResolvedFrame};

#[cfg(all(windows, feature = "windows"))]
pub use system::{DriverOptions, DriverSource};

/// The stack of one thread, or the reason why there is none.
type Answer = Result<client::Stack, Absent>;

/// The answer for one thread.
struct Answered {
    tid: Tid,
    answer: Answer,
    /// The user stack was read by another thread.
    user_later: bool,
}

/// Converts a reply of the client to the answer of its thread.
///
/// # Errors
/// Errors that would affect all other threads too.
fn answer(reply: Result<client::Reply, client::Error>) -> Result<Answer, KernelStackError> {
    Ok(match reply {
        Ok(client::Reply::Captured(stack)) => Ok(stack),
        Ok(client::Reply::NoThread) => Err(Absent::Gone),
        Ok(client::Reply::Terminating) => Err(Absent::Terminating),
        Ok(client::Reply::TimedOut) => Err(Absent::TimedOut),
        Ok(client::Reply::Idle) => Err(Absent::Idle),
        Err(client::Error::Busy { .. }) => Err(Absent::Busy),
        Err(error) => return Err(KernelStackError::Driver(error)),
    })
}

fn absent(missing: Missing) -> Absent {
    match missing {
        Missing::Nothing => Absent::NothingWalked,
        Missing::System => Absent::SystemThread,
        Missing::Faulted => Absent::Faulted,
        Missing::Attached => Absent::Attached,
        Missing::Protected => Absent::Protected,
        Missing::NoRoom => Absent::NoRoom,
        Missing::NotNow => Absent::NotNow,
        Missing::CriticalRegion => Absent::CriticalRegion,
        Missing::Unfinished => Absent::Unfinished,
    }
}

/// A thread whose frames have no names yet.
struct Unnamed {
    tid: Tid,
    kernel: Result<Vec<ResolvedFrame>, Absent>,
    user: Option<Result<Vec<ResolvedFrame>, Absent>>,
    evidence: Option<Evidence>,
}

impl Unnamed {
    /// Resolves the modules of the frames and requests their names. `user` states whether the user
    /// stack was requested.
    fn of(
        Answered { tid, answer, user_later }: Answered,
        user: bool,
        process_map: &ProcessMap<'_>,
        mut naming: Option<&mut Symbolizer>,
    ) -> Unnamed {
        let stack = match answer {
            Ok(stack) => stack,
            Err(absent) => {
                return Unnamed {
                    tid,
                    kernel: Err(absent),
                    user: user.then_some(Err(absent)),
                    evidence: None,
                };
            }
        };
        let is_cut = |part: &Option<client::Part>| matches!(part, Some(Ok(frames)) if frames.cut);
        let evidence = Evidence::Captured {
            took: Duration::from_nanos(u64::try_from(stack.waited.as_nanos()).unwrap_or(u64::MAX)),
            own: stack.own,
            kernel_cut: is_cut(&stack.kernel),
            user_cut: is_cut(&stack.user),
            user_later,
        };
        let mut resolve = |part: client::Part| match part {
            Ok(frames) => Ok(process_map.resolve_all(&frames.addresses, naming.as_deref_mut())),
            Err(missing) => Err(absent(missing)),
        };
        // The client ensures that a requested stack has frames or a reason.
        let kernel = stack.kernel.map_or(Err(Absent::NothingWalked), &mut resolve);
        Unnamed { tid, kernel, user: stack.user.map(&mut resolve), evidence: Some(evidence) }
    }

    /// The stack with the names; the caller must wait for them first. The frames of the APC
    /// dispatcher are removed unless `keep` is set.
    fn named(self, pid: Pid, process: &str, keep: bool, naming: Option<&Symbolizer>) -> ThreadStack {
        let named = |resolved: Vec<ResolvedFrame>| {
            Vec::from_iter(resolved.into_iter().map(|frame| frame.named(naming)))
        };
        let kernel = self.kernel.map(named);
        ThreadStack {
            pid: Some(pid),
            tid: self.tid,
            process: Some(process.to_owned()),
            name: None,
            state: ThreadState::Unknown,
            kernel: if keep { kernel } else { kernel.and_then(without_dispatcher) },
            user: self.user.map(|part| part.map(named)),
            evidence: self.evidence,
        }
    }
}

/// If only the dispatcher has kernel frames, the thread ran in user mode when the APC interrupted
/// it.
fn without_dispatcher(frames: Vec<super::StackFrame>) -> Part {
    let frames = dispatcher::trim(frames);
    if frames.is_empty() { Err(Absent::Running) } else { Ok(frames) }
}
