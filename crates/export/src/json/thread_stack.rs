//! Kernel stacks of threads: what `kstack` writes.

use schemars::JsonSchema;
use serde::Serialize;
use stackhound_threads::{Evidence, Part, SwitchEvidence, SwitchRelation, ThreadStack};
use stackhound_types::FileTime;

use super::frame::Frame;
use super::process::{Process, Thread};
use super::value::Time;

/// The stacks of threads at one time: `kstack --format json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct KernelStacks<'a> {
    /// The time in question; null if each stack is of another moment.
    time: Option<Time>,
    threads: Vec<KernelStack<'a>>,
}

impl<'a> KernelStacks<'a> {
    /// Stacks of one time, or each of a time of its own.
    pub fn new(time: Option<FileTime>, stacks: &'a [ThreadStack]) -> KernelStacks<'a> {
        KernelStacks { time: time.map(Time), threads: stacks.iter().map(KernelStack::new).collect() }
    }
}

/// A thread and its stack: a line of `kstack --format ndjson`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct KernelStack<'a> {
    pid: Option<u32>,
    tid: u32,
    process: Option<Process<'a>>,
    thread: Thread<'a>,
    /// How the stack was observed; null if none was.
    capture: Option<Capture>,
    /// The kernel part, innermost frame first.
    kernel: Option<Vec<Frame<'a>>>,
    /// Why it is missing.
    kernel_absent: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    user: Option<UserPart<'a>>,
}

/// The user part, if it was asked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct UserPart<'a> {
    /// The user part, innermost frame first.
    user: Option<Vec<Frame<'a>>>,
    /// Why it is missing.
    user_absent: Option<&'static str>,
}

/// How a stack was observed.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Capture {
    /// Whether the stack was seen at the time in question or follows from what was seen at another time.
    #[schemars(extend("enum" = ["observed", "inferred"]))]
    certainty: &'static str,
    #[serde(flatten)]
    kind: CaptureKind,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum CaptureKind {
    /// The thread walked its own stack for the driver.
    Captured {
        /// Nanoseconds that the request took.
        took_ns: u64,
        /// Whether the thread asked for its own stack.
        own: bool,
        /// Whether there were more kernel frames than room.
        kernel_cut: bool,
        /// Whether there were more user frames than room.
        user_cut: bool,
        /// Whether the user part was read from outside, right after the kernel part.
        user_later: bool,
    },
    /// Recorded at a context switch to the thread.
    Switch {
        /// What the switch is for the time in question.
        #[schemars(extend("enum" = ["last", "resumed", "earlier"]))]
        relation: &'static str,
        time: Time,
        /// Nanoseconds from the switch to the time in question; negative for a later switch.
        age_ns: i64,
        /// Later switches of the thread up to the time in question.
        later_switches: u64,
        /// Whether one of them lost its stack with a buffer.
        later_lost: bool,
        /// Whether events are missing between the switch and the time in question.
        lost_between: bool,
    },
    /// Linux stated it in `/proc`.
    Proc,
    /// A source that this version of the schema does not know.
    Other,
}

impl<'a> KernelStack<'a> {
    /// A thread and its stack.
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
