//! Waiting for threads that may sleep in the system.

use crate::control::{self, Stop, Tid};
use crate::error::Error;

/// How often a thread is looked after before its state is asked for: most system calls come back sooner.
const LOOKS: u32 = 16;
/// How often a thread that does not sleep is looked after before others may run.
const LOOKS_MAX: u32 = 100_000;
/// Waits for the end of a step; `None` if the thread sleeps in the system.
pub(crate) fn wait_unless_asleep(process: Tid, tid: Tid) -> Result<Option<Stop>, Error> {
    let mut look = 0;
    loop {
        // The state is asked for first: if the thread stops between the two, this is seen.
        let asleep = look >= LOOKS && (look >= LOOKS_MAX || is_asleep(process, tid));
        let found = control::wait(Some(tid), false).map_err(Error::control("wait for it"))?;
        if found.is_some() || asleep {
            return Ok(found.map(|(_, stop)| stop));
        }
        look += 1;
        std::thread::yield_now();
    }
}

/// Whether a thread waits for something that may take any time.
fn is_asleep(process: Tid, tid: Tid) -> bool {
    let Ok(text) = std::fs::read(format!("/proc/{}/task/{}/stat", process.0, tid.0)) else { return true };
    // The name in parentheses may contain anything.
    let state = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    !matches!(state, Some(b'R' | b'D' | b't' | b'T'))
}
