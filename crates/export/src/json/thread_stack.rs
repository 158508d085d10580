//! Kernel stacks of threads, as `kstack` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_threads::{Evidence, Part, SwitchEvidence, SwitchRelation, ThreadStack};
use stackhound_types::FileTime;

use super::frame::Frame;
use super::process::{Process, Thread};
use super::value::Time;

/// Stacks of threads at one time: `kstack --format json`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct KernelStacks<'a> {
    /// The requested time; null if each stack has its own time.
    time: Option<Time>,
    threads: Vec<KernelStack<'a>>,
}

impl<'a> KernelStacks<'a> {
    /// Stacks at one time, or each at its own time.
    pub fn new(time: Option<FileTime>, stacks: &'a [ThreadStack]) -> KernelStacks<'a> {
        KernelStacks { time: time.map(Time), threads: stacks.iter().map(KernelStack::new).collect() }
    }
}

/// A thread with its stack: a line of `kstack --format ndjson`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct KernelStack<'a> {
    pid: Option<u32>,
    tid: u32,
    process: Option<Process<'a>>,
    thread: Thread<'a>,
    /// How the stack was obtained; null if there is none.
    capture: Option<Capture>,
    /// The kernel stack, innermost frame first.
    kernel: Option<Vec<Frame<'a>>>,
    /// Why the kernel stack is missing.
    kernel_absent: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    user: Option<UserPart<'a>>,
}

/// The user stack, if it was requested.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct UserPart<'a> {
    /// The user stack, innermost frame first.
    user: Option<Vec<Frame<'a>>>,
    /// Why the user stack is missing.
    user_absent: Option<&'static str>,
}

/// How a stack was obtained.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Capture {
    /// Whether the stack was observed at the requested time, or inferred from another time.
    #[cfg_attr(test, schemars(extend("enum" = ["observed", "inferred"])))]
    certainty: &'static str,
    #[serde(flatten)]
    kind: CaptureKind,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
enum CaptureKind {
    /// The thread walked its own stack for the driver.
    Captured {
        /// Duration of the request in nanoseconds.
        took_ns: u64,
        /// Whether the thread requested its own stack.
        own: bool,
        /// Whether there were more kernel frames than the capture can hold.
        kernel_cut: bool,
        /// Whether there were more user frames than the capture can hold.
        user_cut: bool,
        /// Whether the user stack was read by another thread, right after the kernel stack.
        user_later: bool,
    },
    /// The stack was recorded at a context switch to the thread.
    Switch {
        /// Relation of the switch to the requested time.
        #[cfg_attr(test, schemars(extend("enum" = ["last", "resumed", "earlier"])))]
        relation: &'static str,
        time: Time,
        /// Nanoseconds from the switch to the requested time; negative for a later switch.
        age_ns: i64,
        /// Number of later switches of the thread up to the requested time.
        later_switches: u64,
        /// Whether the stack of one of them was in a lost buffer.
        later_lost: bool,
        /// Whether events are missing between the switch and the requested time.
        lost_between: bool,
    },
    /// Linux reported the stack in `/proc`.
    Proc,
    /// A source that this version of the schema does not define.
    Other,
}

impl<'a> KernelStack<'a> {
    /// Converts a thread and its stack.
    pub fn new(stack: &'a ThreadStack) -> KernelStack<'a> {
        let (kernel, kernel_absent) = part(&stack.kernel);
        KernelStack {
            pid: stack.pid.map(|pid| pid.0),
            tid: stack.tid.0,
            process: Process::named(stack.process.as_deref()),
            thread: Thread::new(stack),
            capture: stack.evidence.as_ref().map(Capture::new),
            kernel,
            kernel_absent,
            user: stack.user.as_ref().map(|user| {
                let (user, user_absent) = part(user);
                UserPart { user, user_absent }
            }),
        }
    }
}

fn part(part: &Part) -> (Option<Vec<Frame<'_>>>, Option<&'static str>) {
    match part {
        Ok(frames) => (Some(frames.iter().map(Frame::of_thread).collect()), None),
        Err(absent) => (None, Some(absent.name())),
    }
}

impl Capture {
    fn new(evidence: &Evidence) -> Capture {
        let kind = match *evidence {
            Evidence::Captured { took, own, kernel_cut, user_cut, user_later } => CaptureKind::Captured {
                took_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
                own,
                kernel_cut,
                user_cut,
                user_later,
            },
            Evidence::Switch(SwitchEvidence { time, age, relation, lost_between }) => {
                let (later_switches, later_lost) = match relation {
                    SwitchRelation::Earlier { later, lost } => (later, lost),
                    SwitchRelation::Last | SwitchRelation::Resumed => (0, false),
                };
                CaptureKind::Switch {
                    relation: relation.name(),
                    time: Time(time),
                    age_ns: age.saturating_mul(100),
                    later_switches,
                    later_lost,
                    lost_between,
                }
            }
            Evidence::Proc => CaptureKind::Proc,
            _ => CaptureKind::Other,
        };
        Capture { certainty: evidence.certainty().name(), kind }
    }
}
