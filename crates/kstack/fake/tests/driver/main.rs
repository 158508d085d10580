//! The unchanged driver in Wine with the fake kernel. `scripts/kstack-check.sh` prepares the
//! environment.
//!
//! usage: driver whole|old
//!
//! The cases run in a fixed order, because they share one driver, which cannot be reloaded. `whole`
//! runs them in a kernel with all functions; `old` runs cases in a kernel that cannot remove queued
//! APCs or report creation times.

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
    println!("skipped: scripts/kstack-check.sh runs the driver in Wine");
}

#[cfg(windows)]
const WHOLE: &[world::Case] = &[
    ("the device has its access list before it can be reached", access::access_list_is_set),
    ("a process without the enabled privilege cannot open the device", access::the_privilege_is_needed),
    ("an open file serves only the process that opened it", access::another_process_is_refused),
    ("a file that was not opened for reading and writing is refused", access::fewer_rights_are_refused),
    ("the driver reports its version", captures::version),
    ("the frames of a waiting thread are those of its functions, in order", captures::frames_in_order),
    ("frames of the capture itself are kept if requested", captures::machinery_is_kept),
    ("frames are skipped and cut as requested", captures::skipped_and_cut),
    ("each stack can be requested alone", captures::parts),
    ("a user stack continues through a callback from the kernel", captures::callback),
    ("a user stack that cannot be read has a reason", captures::user_faults),
    ("a user stack that must not be walked has a reason", captures::user_withheld),
    ("a thread in a critical region reads no pages of its stack", captures::critical_region),
    ("the kernel stack does not wait for a page of the user stack", captures::user_hangs),
    ("a terminating thread still answers", captures::ending),
    ("a thread gets its own stack", captures::own_stack),
    ("a thread with another creation time is not captured", captures::creation_time),
    ("a missing thread, or one of another process, is not found", captures::no_such_thread),
    ("an idle thread is not captured", captures::idle),
    ("a thread that does not answer in time can be captured again at once", endings::time_out_and_removal),
    ("a thread that ends with the APC in its queue is terminating", endings::run_down),
    ("a thread that takes no more APCs is terminating", endings::terminating),
    ("malformed requests are refused", malformed::refused),
    ("a thousand captures release all references", endings::balance),
    ("the program shows the stack that the driver returns", program::shows_the_stack),
    ("the program shows all threads of a process", program::shows_all_threads),
    ("the driver cannot be unloaded: a stop has no effect", endings::stop_has_no_effect),
];

#[cfg(windows)]
const OLD: &[world::Case] = &[
    ("the driver reports that APCs cannot be removed", captures::version_of_old),
    ("without creation times, a thread with a given one is not found", captures::no_creation_time),
    ("the frames of a waiting thread are those of its functions, in order", captures::frames_in_order),
    ("a thread that did not answer is busy until it does", endings::busy_until_answered),
    ("a thread that ends after the timeout frees its slot", endings::late_run_down),
    ("no more than 64 captures are in progress", endings::limit),
    ("the driver cannot be unloaded: a stop has no effect", endings::stop_has_no_effect),
];
