//! Waiting for threads that may sleep in a system call.

use crate::control::{self, Stop, Tid};
use crate::error::Error;

/// The number of polls before the state of the thread is queried. Most system calls return sooner.
const POLLS: u32 = 16;
/// The maximum number of polls of a thread that does not sleep, before other threads may run.
const POLLS_MAX: u32 = 100_000;
/// Waits for the end of a step. Returns `None` if the thread sleeps in a system call.
pub(crate) fn wait_unless_asleep(process: Tid, tid: Tid) -> Result<Option<Stop>, Error> {
    let mut poll = 0;
    loop {
        // The state is queried first, so that a stop between the two is detected.
        let asleep = poll >= POLLS && (poll >= POLLS_MAX || is_asleep(process, tid));
        let found = control::wait(Some(tid), false).map_err(Error::control("wait"))?;
        if found.is_some() || asleep {
            return Ok(found.map(|(_, stop)| stop));
        }
        poll += 1;
        std::thread::yield_now();
    }
}

/// Whether a thread waits in the kernel, possibly for a long time.
fn is_asleep(process: Tid, tid: Tid) -> bool {
    let Ok(text) = std::fs::read(format!("/proc/{}/task/{}/stat", process.0, tid.0)) else { return true };
    // The name in parentheses may contain anything.
    let state = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    !matches!(state, Some(b'R' | b'D' | b't' | b'T'))
}
