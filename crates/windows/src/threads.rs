//! The threads of processes.
//!
//! Windows reuses the id of a thread after its end. An id and the creation time together identify a
//! thread.
//!
//! Sources: Microsoft's pages of `THREADENTRY32`, `OpenThread`, `GetThreadTimes` and
//! `GetProcessIdOfThread`.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::{ERROR_INVALID_PARAMETER, FILETIME};
use windows_sys::Win32::System::Threading::{
    GetProcessIdOfThread, GetThreadTimes, OpenThread, THREAD_QUERY_LIMITED_INFORMATION,
};

use crate::Error;
use crate::snapshot;
use crate::time::ticks;

/// A thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Thread {
    /// The thread id.
    pub id: u32,
    /// The creation time, in units of 100 ns since 1601-01-01 UTC. `None` if Windows does not
    /// report it to this process. With the [privilege](crate::memory::take_debug_privilege), it is
    /// reported for all threads except those of idle processors.
    pub created: Option<u64>,
}

/// The current threads of a process, ordered by id. Empty if there is no such process. Threads that
/// end during the call are omitted. Takes a few milliseconds, because Windows lists the threads of
/// all processes.
pub fn of_process(process_id: u32) -> Result<Vec<Thread>, Error> {
    let mut found = Vec::new();
    for entry in snapshot::threads()?.iter().filter(|entry| entry.th32OwnerProcessID == process_id) {
        let id = entry.th32ThreadID;
        match open(id) {
            Ok(thread) if process_of(&thread) == process_id => {
                found.push(Thread { id, created: Some(created(&thread)?) });
            }
            // The thread has ended, and its id belongs to a thread of another process, or to none.
            Ok(_) => {}
            Err(error)
                if error.code().is_some_and(|(_, code)| code == ERROR_INVALID_PARAMETER) && id != 0 => {}
            Err(_) => found.push(Thread { id, created: None }),
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn open(thread_id: u32) -> Result<OwnedHandle, Error> {
    // SAFETY: only numbers are passed.
    let handle = unsafe { OpenThread(THREAD_QUERY_LIMITED_INFORMATION, 0, thread_id) };
    if handle.is_null() {
        return Err(Error::last("OpenThread"));
    }
    // SAFETY: the handle was just opened and has no other owner.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn process_of(thread: &OwnedHandle) -> u32 {
    // SAFETY: the thread is open. The result is zero if the call fails, which is not the id of a
    // process whose threads can be opened.
    unsafe { GetProcessIdOfThread(thread.as_raw_handle()) }
}

fn created(thread: &OwnedHandle) -> Result<u64, Error> {
    let mut times = [FILETIME::default(); 4];
    let [created, exited, kernel, user] = &mut times;
    // SAFETY: the thread is open; four times are written.
    let done = unsafe { GetThreadTimes(thread.as_raw_handle(), created, exited, kernel, user) };
    if done == 0 {
        return Err(Error::last("GetThreadTimes"));
    }
    Ok(ticks(created))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use windows_sys::Win32::System::Threading::GetCurrentThreadId;

    fn own_id() -> u32 {
        // SAFETY: no arguments are passed, and the call cannot fail.
        unsafe { GetCurrentThreadId() }
    }

    #[test]
    fn a_thread_is_listed_while_it_lives() {
        let listed = |id| {
            let threads = of_process(std::process::id()).expect("the threads of this process");
            assert!(threads.is_sorted_by(|one, next| one.id < next.id), "{threads:?}");
            threads.into_iter().find(|thread| thread.id == id)
        };
        let own = listed(own_id()).expect("this thread");
        let (id_sender, id_receiver) = channel();
        let (end, ended) = channel::<()>();
        let other = std::thread::spawn(move || {
            id_sender.send(own_id()).expect("the test receives it");
            let _ = ended.recv();
        });
        let other_id = id_receiver.recv().expect("its id");
        let found = listed(other_id).expect("the other thread");
        // 100 ns units between 2020 and 2200.
        for created in [own.created, found.created] {
            assert!(
                (132_223_104_000_000_000..189_000_000_000_000_000).contains(&created.unwrap()),
                "{created:?}"
            );
        }
        assert!(found.created >= own.created);
        assert_eq!(listed(other_id), Some(found), "the same thread is listed again");
        drop(end);
        other.join().expect("it ends");
        // The id may have been reused for another thread of this process at once, which is not the
        // same thread.
        assert_ne!(listed(other_id), Some(found));
    }

    #[test]
    fn a_missing_process_has_no_threads() {
        assert_eq!(of_process(0xffff_fff0).expect("an answer"), []);
    }
}
