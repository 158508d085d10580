//! Windows, asked by the driver: each thread walks its own stack, and what it found gets modules and names here.
//!
//! Frames are placed in the modules that the kernel and the process have right after the stacks were captured: Windows does not tell
//! of modules and stacks at one moment. What is none of a process's modules is evaluated by the memory that lies there. Names come from files with
//! the identity of what is loaded, along the symbol path and in the folders that the modules were loaded from; of those, shares of other
//! machines are left out. Nothing is downloaded unless that is allowed.
//!
//! Knows the client of the driver and what Windows says of modules; must not know how frames are shown. All but [`system`] is the same
//! everywhere, and tested everywhere.

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

/// What one thread answered: its stack, or why there is none.
type Answer = Result<client::Stack, Absent>;

/// What a thread answered.
struct Answered {
    tid: Tid,
    answer: Answer,
    /// The user part was read from outside.
    user_later: bool,
}

/// What a reply of the client is for its thread.
///
/// # Errors
/// What no other thread would be answered with either.
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

/// A thread whose frames wait for their names.
struct Unnamed {
    tid: Tid,
    kernel: Result<Vec<ResolvedFrame>, Absent>,
    user: Option<Result<Vec<ResolvedFrame>, Absent>>,
    evidence: Option<Evidence>,
}

impl Unnamed {
    /// Places the frames, and asks for their names. `user` says whether the user part was asked for.
    fn of(
        Answered { tid, answer, user_later }: Answered,
        user: bool,
        surroundings: &ProcessMap<'_>,
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
            Ok(frames) => Ok(surroundings.resolve_all(&frames.addresses, naming.as_deref_mut())),
            Err(missing) => Err(absent(missing)),
        };
        // A part that was asked for has frames or a reason, which the client sees to.
        let kernel = stack.kernel.map_or(Err(Absent::NothingWalked), &mut resolve);
        Unnamed { tid, kernel, user: stack.user.map(&mut resolve), evidence: Some(evidence) }
    }

    /// With the names, which were waited for. The dispatcher of APCs is left out unless it is to be kept.
    fn named(self, pid: Pid, process: &str, keep: bool, naming: Option<&Symbolizer>) -> ThreadStack {
        let named =
            |placed: Vec<ResolvedFrame>| Vec::from_iter(placed.into_iter().map(|frame| frame.named(naming)));
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

/// A thread that has nothing but the dispatcher in the kernel ran in user mode when the APC interrupted it.
fn without_dispatcher(frames: Vec<super::StackFrame>) -> Part {
    let frames = dispatcher::trim(frames);
    if frames.is_empty() { Err(Absent::Running) } else { Ok(frames) }
}
