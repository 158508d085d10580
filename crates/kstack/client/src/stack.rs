//! The replies of the driver, as owned values.

use std::time::Duration;

use stackhound_kstack_proto::{Answer, AnswerError, AnswerHeader, Capture, Flags, Missing, Outcome};

use crate::Error;

/// A thread whose stack is requested.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Thread {
    /// The thread id.
    pub id: u32,
    /// The creation time, in units of 100 ns since 1601-01-01 UTC, if it is known. Then another
    /// thread that has the same id by now is not captured.
    pub created: Option<u64>,
}

/// The result of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The stack of the thread.
    Captured(Stack),
    /// The thread does not exist, or has ended.
    NoThread,
    /// The thread is terminating.
    Terminating,
    /// The thread did not answer in time.
    TimedOut,
    /// The thread is an idle thread. Idle threads cannot be captured.
    Idle,
}

impl Reply {
    /// The stack, if it was captured.
    pub fn stack(&self) -> Option<&Stack> {
        match self {
            Reply::Captured(stack) => Some(stack),
            _ => None,
        }
    }
}

/// The stack of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    /// The creation time of the thread, in units of 100 ns since 1601-01-01 UTC, if the system
    /// reports it.
    pub created: Option<u64>,
    /// The kernel stack, if it was requested.
    pub kernel: Option<Part>,
    /// The user stack, if it was requested. The kernel frames of callbacks to user mode are between
    /// its user frames.
    pub user: Option<Part>,
    /// The [`stackhound_kstack_proto::hash`] of all entries: frames, and sentinels of missing
    /// stacks.
    pub hash: u64,
    /// Whether the thread requested its own stack.
    pub own: bool,
    /// The number of frames of the capture itself that were omitted.
    pub machinery: u16,
    /// The number of frames that were omitted because the request skips them.
    pub skipped: u16,
    /// The duration of the capture in the driver.
    pub waited: Duration,
}

/// The kernel stack or the user stack, or the reason why it is missing.
pub type Part = Result<Frames, Missing>;

/// The frames of a kernel stack or user stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frames {
    /// At least one address, innermost first. All are return addresses, except possibly the
    /// innermost one of a thread that was interrupted.
    pub addresses: Vec<u64>,
    /// Whether the stack was cut.
    pub cut: bool,
}

impl Reply {
    /// Parses the answer to a capture.
    pub(crate) fn read(bytes: &[u8], capture: &Capture) -> Result<Reply, Error> {
        let answer = Answer::parse(bytes, capture).map_err(Error::Damaged)?;
        let stack = match answer.outcome() {
            Outcome::Captured => Stack::read(&answer, capture)?,
            Outcome::NoThread => return Ok(Reply::NoThread),
            Outcome::Terminating => return Ok(Reply::Terminating),
            Outcome::TimedOut => return Ok(Reply::TimedOut),
            Outcome::Idle => return Ok(Reply::Idle),
        };
        Ok(Reply::Captured(stack))
    }
}

impl Stack {
    fn read(answer: &Answer<'_>, capture: &Capture) -> Result<Stack, Error> {
        let header = answer.header();
        let flags = header.flags.get();
        let kernel = answer.kernel().map(Vec::from_iter);
        let user = answer.user().map(Vec::from_iter);
        Ok(Stack {
            created: Some(header.created.get()).filter(|&created| created != 0),
            kernel: part(kernel, capture.flags.has(Flags::KERNEL), flags & AnswerHeader::KERNEL_CUT != 0)?,
            user: part(user, capture.flags.has(Flags::USER), flags & AnswerHeader::USER_CUT != 0)?,
            hash: header.hash.get(),
            own: flags & AnswerHeader::OWN != 0,
            machinery: header.machinery.get(),
            skipped: header.skipped.get(),
            waited: Duration::from_micros(header.waited.get() / 10),
        })
    }
}

/// A requested stack has frames or a reason; a stack that was not requested has neither.
fn part(entries: Result<Vec<u64>, Missing>, requested: bool, cut: bool) -> Result<Option<Part>, Error> {
    match entries {
        Ok(addresses) if addresses.is_empty() != requested => {
            Ok(requested.then_some(Ok(Frames { addresses, cut })))
        }
        Err(missing) if requested => Ok(Some(Err(missing))),
        _ => Err(Error::Damaged(AnswerError::Value)),
    }
}
