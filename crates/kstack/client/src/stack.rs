//! What the driver said, owned.

use std::time::Duration;

use stackhound_kstack_proto::{Answer, AnswerError, AnswerHeader, Capture, Flags, Missing, Outcome};

use crate::Error;

/// A thread to ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// When it was created, in units of 100 ns since 1601-01-01 UTC, if that is known. Then no other thread is asked that was given
    /// its number meanwhile.
    pub created: Option<u64>,
}

/// What came of asking a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Its stack.
    Captured(Stack),
    /// There is no such thread, or no more: it has ended.
    NoThread,
    /// It is ending.
    Terminating,
    /// It did not answer in time.
    TimedOut,
    /// It is an idle one, which cannot be asked.
    Idle,
}

impl Reply {
    /// The stack, if there is one.
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
    /// When the thread was created, in units of 100 ns since 1601-01-01 UTC, if the system tells.
    pub created: Option<u64>,
    /// The part in the kernel, if it was asked for.
    pub kernel: Option<Part>,
    /// The part in user mode, if it was asked for, with the kernel frames of callbacks to user mode, which lie between user frames.
    pub user: Option<Part>,
    /// [`stackhound_kstack_proto::hash`] of all frames, and of what stands in the place of missing ones.
    pub hash: u64,
    /// Whether the thread asked for its own stack.
    pub own: bool,
    /// Frames of the capture itself that were left out.
    pub machinery: u16,
    /// Frames left out as the request asks.
    pub skipped: u16,
    /// How long the driver waited for the thread.
    pub waited: Duration,
}

/// One part of a stack, or why it is not there.
pub type Part = Result<Frames, Missing>;

/// Frames of one part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frames {
    /// Addresses, the innermost first; at least one. But for the innermost of a thread that was interrupted, they are return addresses.
    pub addresses: Vec<u64>,
    /// There were more than room.
    pub cut: bool,
}

impl Reply {
    /// Reads what came back for a capture.
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

/// A part that was asked for has frames or a reason; one that was not has neither.
fn part(told: Result<Vec<u64>, Missing>, asked: bool, cut: bool) -> Result<Option<Part>, Error> {
    match told {
        Ok(addresses) if addresses.is_empty() != asked => Ok(asked.then_some(Ok(Frames { addresses, cut }))),
        Err(missing) if asked => Ok(Some(Err(missing))),
        _ => Err(Error::Damaged(AnswerError::Value)),
    }
}
