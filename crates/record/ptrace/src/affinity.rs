//! Keeps the recorder and the traced program on one processor.
//!
//! Only one of them runs at a time. Switching between them costs about half as much if no other
//! processor has to be woken up. The program must not notice this. Its own set of processors is
//! restored around all system calls that query it, change it, or pass it on to a new thread or
//! process.

use std::mem::MaybeUninit;

use libc::cpu_set_t;
use rustc_hash::FxHashMap;

use crate::control::Tid;

/// The threads that are kept on one processor, and their original sets of processors. Dropping it
/// restores the set of the recorder.
#[derive(Debug)]
pub(crate) struct Affinity {
    /// The one processor; `None` if the system does not report it.
    one: Option<cpu_set_t>,
    /// The original set of the recorder.
    own: Option<cpu_set_t>,
    /// The original sets of the threads that are kept on the processor.
    threads: FxHashMap<Tid, cpu_set_t>,
}

/// The calling thread.
const SELF: Tid = Tid(0);

impl Affinity {
    /// Keeps the calling thread on its current processor.
    pub(crate) fn new() -> Affinity {
        // SAFETY: takes no arguments; returns a negative number on failure.
        let processor = unsafe { libc::sched_getcpu() };
        let own = get(SELF);
        let one = usize::try_from(processor).ok().filter(|&processor| processor < SIZE * 8).map(only);
        if let (Some(one), Some(_)) = (&one, &own) {
            set(SELF, one);
        }
        Affinity { one, own, threads: FxHashMap::default() }
    }

    /// Keeps a thread of the program on the processor.
    pub(crate) fn keep(&mut self, thread: Tid) {
        if let (Some(one), Some(own)) = (&self.one, get(thread)) {
            self.threads.entry(thread).or_insert(own);
            set(thread, one);
        }
    }

    /// Forgets a thread that has ended, because its id may be reused.
    pub(crate) fn forget(&mut self, thread: Tid) {
        self.threads.remove(&thread);
    }

    /// Restores the original sets of all threads of the program.
    pub(crate) fn release(&mut self) {
        for (thread, own) in self.threads.drain() {
            set(thread, &own);
        }
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            set(SELF, own);
        }
    }
}

/// Whether a system call queries sets of processors, changes them or passes them on.
pub(crate) fn is_about_affinity(call: u64) -> bool {
    matches!(
        call as i64,
        libc::SYS_sched_getaffinity
            | libc::SYS_sched_setaffinity
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_fork
            | libc::SYS_vfork
    )
}

const SIZE: usize = size_of::<cpu_set_t>();

/// The set of one processor, whose number must be below `SIZE * 8`.
fn only(processor: usize) -> cpu_set_t {
    // SAFETY: the set is an array of integers, for which zero is a valid value.
    let mut set: cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the number is below the number of bits.
    unsafe { libc::CPU_SET(processor, &mut set) };
    set
}

/// `None` if the thread has ended or the system has more processors than fit.
fn get(thread: Tid) -> Option<cpu_set_t> {
    let mut set = MaybeUninit::<cpu_set_t>::zeroed();
    // SAFETY: the call writes at most as many bytes as the set has.
    let result = unsafe { libc::sched_getaffinity(thread.0, SIZE, set.as_mut_ptr()) };
    // SAFETY: an array of integers that was zeroed and possibly written.
    (result == 0).then(|| unsafe { set.assume_init() })
}

/// Fails if the thread has ended or the processor is offline; then the set does not change.
fn set(thread: Tid, set: &cpu_set_t) {
    // SAFETY: the call reads as many bytes as the set has.
    let _ = unsafe { libc::sched_setaffinity(thread.0, SIZE, set) };
}
