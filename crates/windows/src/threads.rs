//! The threads of processes.
//!
//! Windows gives a thread's number to another one when it has ended. A number and the time of creation together name one thread.
//!
//! Sources: Microsoft's pages of `THREADENTRY32`, `OpenThread`, `GetThreadTimes` and `GetProcessIdOfThread`.

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
    /// Its number.
    pub id: u32,
    /// When it was created, in units of 100 ns since 1601-01-01 UTC. `None` if Windows does not tell this process; it does so of all
    /// threads but those of idle processors to who has the [privilege](crate::memory::take_debug_privilege).
    pub created: Option<u64>,
}

/// The threads that a process has now, by number. None if there is no such process. Those that end meanwhile are left out. Takes
/// milliseconds, since Windows lists the threads of all processes.
pub fn of_process(process_id: u32) -> Result<Vec<Thread>, Error> {
    let mut found = Vec::new();
    for entry in snapshot::threads()?.iter().filter(|entry| entry.th32OwnerProcessID == process_id) {
        let id = entry.th32ThreadID;
        match open(id) {
            Ok(thread) if process_of(&thread) == process_id => {
                found.push(Thread { id, created: Some(created(&thread)?) });
            }
            // It has ended, and its number is that of another process's thread, or of none.
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
    // SAFETY: takes numbers only.
    let handle = unsafe { OpenThread(THREAD_QUERY_LIMITED_INFORMATION, 0, thread_id) };
    if handle.is_null() {
        return Err(Error::last("OpenThread"));
    }
    // SAFETY: just opened, and nobody else has it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn process_of(thread: &OwnedHandle) -> u32 {
    // SAFETY: the thread is open. Gives zero if the call fails, which is no process that has threads that can be opened.
    unsafe { GetProcessIdOfThread(thread.as_raw_handle()) }
}

fn created(thread: &OwnedHandle) -> Result<u64, Error> {
    let mut times = [FILETIME::default(); 4];
    let [created, exited, kernel, user] = &mut times;
    // SAFETY: the thread is open; writes four times.
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
        // SAFETY: takes no arguments and cannot fail.
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
        let (tell, told) = channel();
        let (end, ended) = channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(own_id()).expect("somebody listens");
            let _ = ended.recv();
        });
        let other_id = told.recv().expect("its number");
        let found = listed(other_id).expect("the other thread");
        // 100 ns units between 2020 and 2200.
        for created in [own.created, found.created] {
            assert!(
                (132_223_104_000_000_000..189_000_000_000_000_000).contains(&created.unwrap()),
                "{created:?}"
            );
        }
        assert!(found.created >= own.created);
        assert_eq!(listed(other_id), Some(found), "asked twice, the same thread is told");
        drop(end);
        other.join().expect("it ends");
        // The number may have been given to another thread of this process at once, which is another thread.
        assert_ne!(listed(other_id), Some(found));
    }

    #[test]
    fn what_is_no_process_has_no_threads() {
        assert_eq!(of_process(0xffff_fff0).expect("an answer"), []);
    }
}
