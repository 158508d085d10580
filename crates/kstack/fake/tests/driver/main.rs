//! The driver, unchanged, in Wine with the fake of the kernel; `scripts/kstack-check.sh` prepares all of
//! it.
//!
//! usage: driver whole|old
//!
//! The cases are in a fixed order, since they share one driver, which cannot be loaded anew: `whole` runs
//! them in a kernel that has everything, `old` those in which it matters that queued APCs cannot be removed,
//! nor the ages of threads be told.

#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

#[cfg(windows)]
mod access;
#[cfg(windows)]
mod captures;
#[cfg(windows)]
mod device;
#[cfg(windows)]
mod endings;
#[cfg(windows)]
mod malformed;
#[cfg(windows)]
mod program;
#[cfg(windows)]
mod service;
#[cfg(windows)]
mod world;

#[cfg(windows)]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["whole"] => world::run("whole", &[], WHOLE),
        ["old"] => world::run("old", &["KeRemoveQueueApc", "PsGetThreadCreateTime"], OLD),
        [access::CHILD, handle] => access::child(handle),
        _ => panic!("usage: driver whole|old"),
    }
}

#[cfg(not(windows))]
fn main() {
    println!("the driver is run by scripts/kstack-check.sh: there is no Wine here");
}

#[cfg(windows)]
const WHOLE: &[world::Case] = &[
    ("the device has its access list before it can be reached", access::the_list_is_set),
    ("whoever has not switched the privilege on does not open it", access::the_privilege_is_needed),
    ("an open file serves the process that opened it only", access::another_process_is_refused),
    ("a file opened for less than reading and writing is refused", access::fewer_rights_are_refused),
    ("the driver says what it is", captures::version),
    ("frames of a waiting thread are those of its functions, in order", captures::frames_in_order),
    ("frames of the capture itself are kept where that is asked for", captures::machinery_is_kept),
    ("frames are skipped and cut as asked for", captures::skipped_and_cut),
    ("each part can be had alone", captures::parts),
    ("a user part goes on through a callback from the kernel", captures::callback),
    ("a user part that cannot be read is said to be so", captures::user_faults),
    ("a user part that must not be looked at is said to be so", captures::user_withheld),
    ("a thread in a critical region reads no pages of its stack", captures::critical_region),
    ("the kernel part does not wait for a page of the user stack", captures::user_hangs),
    ("a thread whose end was asked for still answers", captures::ending),
    ("a thread gets its own stack", captures::own_stack),
    ("the time of creation chooses the thread", captures::creation_time),
    ("a thread that is not there, or of another process, is not found", captures::no_such_thread),
    ("an idle thread is not asked", captures::idle),
    ("a thread that does not answer in time can be asked again at once", endings::time_out_and_removal),
    ("a thread that ends with the request in its queue is said to end", endings::run_down),
    ("a thread that takes no requests any more is said to end", endings::terminating),
    ("requests that are not as they must be are refused", malformed::refused),
    ("a thousand captures leave no references behind", endings::balance),
    ("the program shows the stack that the driver gives", program::shows_the_stack),
    ("the program shows all threads of a process", program::shows_all_threads),
    ("the driver cannot be unloaded: a stop changes nothing", endings::stop_has_no_effect),
];

#[cfg(windows)]
const OLD: &[world::Case] = &[
    ("the driver says that nothing can be removed", captures::version_of_old),
    ("where ages cannot be told, a thread of a given age is not found", captures::no_creation_time),
    ("frames of a waiting thread are those of its functions, in order", captures::frames_in_order),
    ("a thread that did not answer is busy until it does", endings::busy_until_answered),
    ("a thread that ends after the time-out frees what it had", endings::late_run_down),
    ("no more than 64 captures are under way", endings::limit),
    ("the driver cannot be unloaded: a stop changes nothing", endings::stop_has_no_effect),
];
