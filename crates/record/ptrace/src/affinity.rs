//! Keeps the recorder and the traced program on one processor.
//!
//! Only one of them runs at a time. Handing over costs about half where no other processor has to be woken up for it. The
//! program must not notice: it gets its own set of processors back around all system calls that ask for it, change it, or
//! hand it on to a new thread or process.

use std::mem::MaybeUninit;

use libc::cpu_set_t;
use rustc_hash::FxHashMap;

use crate::control::Tid;

/// Who is kept on the processor, and where they may run otherwise. Undone when dropped, as far as the recorder is
/// concerned.
#[derive(Debug)]
pub(crate) struct Affinity {
    /// The one processor; `None` if the system does not say which.
    one: Option<cpu_set_t>,
    /// Where the recorder may run.
    own: Option<cpu_set_t>,
    /// Where the threads that are kept may run.
    threads: FxHashMap<Tid, cpu_set_t>,
}

/// The calling thread.
const SELF: Tid = Tid(0);

impl Affinity {
    /// Keeps the calling thread on the processor where it is.
    pub(crate) fn new() -> Affinity {
        // SAFETY: takes nothing; gives a negative number if it fails.
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

    /// A thread is gone; another one may get its number.
    pub(crate) fn forget(&mut self, thread: Tid) {
        self.threads.remove(&thread);
    }

    /// Lets all threads of the program run where they may.
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

/// Whether a system call asks for sets of processors, changes them or hands them on.
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
    // SAFETY: the set is an array of integers, for which zero is a value.
    let mut set: cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the number is below the number of bits.
    unsafe { libc::CPU_SET(processor, &mut set) };
    set
}

/// `None` if the thread is gone or the system has more processors than fit in.
fn get(thread: Tid) -> Option<cpu_set_t> {
    let mut set = MaybeUninit::<cpu_set_t>::zeroed();
    // SAFETY: the call writes at most as many bytes as the set has.
    let result = unsafe { libc::sched_getaffinity(thread.0, SIZE, set.as_mut_ptr()) };
    // SAFETY: an array of integers that was zeroed and maybe written.
    (result == 0).then(|| unsafe { set.assume_init() })
}

/// Fails if the thread is gone, or the processor is: then it runs where it did.
fn set(thread: Tid, set: &cpu_set_t) {
    // SAFETY: the call reads as many bytes as the set has.
    let _ = unsafe { libc::sched_setaffinity(thread.0, SIZE, set) };
}
