//! The memory of live processes: regions, whether a page was copied on write, and bytes.
//!
//! All results describe the moment of the call. The process continues to run: two results need not
//! be consistent, and a process that has ended returns errors. Nothing here changes the process,
//! except that reading brings pages into its working set.
//!
//! Sources: Microsoft's pages of `VirtualQueryEx`, `MEMORY_BASIC_INFORMATION`, `ReadProcessMemory`,
//! `QueryWorkingSetEx` and `PSAPI_WORKING_SET_EX_BLOCK`; for the last one also the headers of the
//! native API, see [`Process::is_original`].

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_INVALID_PARAMETER, FILETIME};
use windows_sys::Win32::System::Diagnostics::Debug::ReadProcessMemory;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_IMAGE, MEM_MAPPED, MEM_PRIVATE, MEM_RESERVE, MEMORY_BASIC_INFORMATION, PAGE_GUARD,
    PAGE_NOACCESS, VirtualQueryEx,
};
use windows_sys::Win32::System::ProcessStatus::{K32QueryWorkingSetEx, PSAPI_WORKING_SET_EX_INFORMATION};
use windows_sys::Win32::System::Threading::{
    GetProcessTimes, OpenProcess, PROCESS_QUERY_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_VM_READ,
};

use crate::Error;
pub use crate::privilege::take_debug_privilege;
use crate::time::ticks;

/// The page size on all processors that Windows supports.
const PAGE_SIZE: usize = 4096;

/// An open process. Its id is not reused while this value exists, even if the process ends.
#[derive(Debug)]
pub struct Process {
    pub(crate) handle: OwnedHandle,
}

/// Pages of one allocation with the same state and protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The address of the first page.
    pub base: u64,
    /// The size in bytes.
    pub size: u64,
    /// The state of the pages.
    pub state: State,
}

/// The state of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The pages are free.
    Free,
    /// The pages are reserved but have no memory.
    Reserved,
    /// The pages have memory.
    Committed {
        /// The kind of the memory.
        kind: Kind,
        /// The current protection: one of Microsoft's memory protection constants, with their
        /// modifiers. `PAGE_EXECUTE_READ` is 0x20, `PAGE_GUARD` 0x100.
        protection: u32,
    },
}

/// The kind of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An image: a section of a program or library.
    Image,
    /// Another section.
    Mapped,
    /// Private memory of the process.
    Private,
    /// A kind that is not known here, by its number.
    Other(u32),
}

impl Kind {
    fn of(number: u32) -> Kind {
        match number {
            MEM_IMAGE => Kind::Image,
            MEM_MAPPED => Kind::Mapped,
            MEM_PRIVATE => Kind::Private,
            other => Kind::Other(other),
        }
    }
}

impl State {
    fn is_readable(self) -> bool {
        match self {
            State::Committed { protection, .. } => protection & (PAGE_NOACCESS | PAGE_GUARD) == 0,
            State::Free | State::Reserved => false,
        }
    }
}

impl Process {
    /// Opens a process to query its memory. Takes a few microseconds.
    ///
    /// # Errors
    /// There is no process with this id, or this process may not read it: processes of other users
    /// need the [privilege](take_debug_privilege), and protected ones cannot be read.
    pub fn open(process_id: u32) -> Result<Process, Error> {
        let rights = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_QUERY_INFORMATION | PROCESS_VM_READ;
        // SAFETY: only numbers are passed.
        let handle = unsafe { OpenProcess(rights, 0, process_id) };
        if handle.is_null() {
            return Err(Error::last("OpenProcess"));
        }
        // SAFETY: the handle was just opened and has no other owner.
        Ok(Process { handle: unsafe { OwnedHandle::from_raw_handle(handle) } })
    }

    /// The time at which the process was started, in units of 100 ns since 1601-01-01 UTC.
    pub fn created(&self) -> Result<u64, Error> {
        let mut times = [FILETIME::default(); 4];
        let [created, exited, kernel, user] = &mut times;
        // SAFETY: the process is open; four times are written.
        let done = unsafe { GetProcessTimes(self.handle.as_raw_handle(), created, exited, kernel, user) };
        if done == 0 {
            return Err(Error::last("GetProcessTimes"));
        }
        Ok(ticks(created))
    }

    /// The region that contains an address. Its base is the page of the address, even if the region
    /// begins before it. Takes about a microsecond.
    ///
    /// # Errors
    /// The process has ended, or the address is outside of the user address space.
    pub fn region(&self, address: u64) -> Result<Region, Error> {
        const NAME: &str = "VirtualQueryEx";
        let pointer = to_pointer(NAME, address)?;
        let mut found = MEMORY_BASIC_INFORMATION::default();
        let size = size_of::<MEMORY_BASIC_INFORMATION>();
        // SAFETY: the process is open, and the address is only a number for the function; one
        // structure of this size is written.
        let written = unsafe { VirtualQueryEx(self.handle.as_raw_handle(), pointer, &mut found, size) };
        if written == 0 {
            return Err(Error::last(NAME));
        }
        let state = match found.State {
            MEM_COMMIT => State::Committed { kind: Kind::of(found.Type), protection: found.Protect },
            MEM_RESERVE => State::Reserved,
            _ => State::Free,
        };
        Ok(Region { base: found.BaseAddress as u64, size: found.RegionSize as u64, state })
    }

    /// Whether the page at an address is still shared by all processes that have mapped the same
    /// file, and not a copy that was made for this process because it was written to. Takes about a
    /// microsecond.
    ///
    /// `None` if Windows does not report it. It reports only pages in the working set of the
    /// process, which contains a page after it was [read](Process::read). Large pages are never
    /// shared and are not reported. Windows 10 before version 1709 has no bit for pages that were
    /// not written to, so only written pages can be recognized there.
    pub fn is_original(&self, address: u64) -> Option<bool> {
        let mut page = PSAPI_WORKING_SET_EX_INFORMATION {
            VirtualAddress: usize::try_from(address).ok()? as *mut _,
            ..Default::default()
        };
        let size = size_of::<PSAPI_WORKING_SET_EX_INFORMATION>() as u32;
        // SAFETY: the process is open; reads and writes one structure of this size.
        let done = unsafe {
            K32QueryWorkingSetEx(self.handle.as_raw_handle(), ptr::from_mut(&mut page).cast(), size)
        };
        if done == 0 {
            return None;
        }
        // SAFETY: all forms of the union are the same bits, and all of them were written.
        let flags = unsafe { page.VirtualAttributes.Flags };
        is_original(flags)
    }

    /// Reads memory from an address on, as far as it is readable. Returns the number of bytes that
    /// were read. Takes about two microseconds.
    ///
    /// Stops before a page with `PAGE_GUARD`: reading it would clear the guard, which the process
    /// waits for.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        let mut readable_until = address;
        // Memory is read page by page, because a call that fails at an unreadable page need not
        // report how many bytes it has read.
        while done < buffer.len() {
            let Some(from) = address.checked_add(done as u64) else { break };
            if from >= readable_until {
                match self.region(from) {
                    Ok(region) if region.state.is_readable() => readable_until = region.base + region.size,
                    _ => break,
                }
            }
            let to_end = PAGE_SIZE - from as usize % PAGE_SIZE;
            let rest = &mut buffer[done..];
            let wanted = rest.len().min(to_end);
            let read = self.read_page(from, &mut rest[..wanted]);
            done += read;
            if read < wanted {
                break;
            }
        }
        done
    }

    fn read_page(&self, address: u64, buffer: &mut [u8]) -> usize {
        const NAME: &str = "ReadProcessMemory";
        let Ok(pointer) = to_pointer(NAME, address) else { return 0 };
        let process = self.handle.as_raw_handle();
        let mut read = 0;
        // SAFETY: the process is open, and the address is only a number for the function; the
        // buffer has the given length.
        unsafe { ReadProcessMemory(process, pointer, buffer.as_mut_ptr().cast(), buffer.len(), &mut read) };
        // The number of bytes is valid whether the call failed or not.
        read.min(buffer.len())
    }
}

fn to_pointer(function: &'static str, address: u64) -> Result<*const std::ffi::c_void, Error> {
    let pointer =
        usize::try_from(address).map_err(|_| Error::of_status(function, ERROR_INVALID_PARAMETER))?;
    Ok(pointer as *const _)
}

/// Interprets the bits of a `PSAPI_WORKING_SET_EX_BLOCK`.
fn is_original(flags: usize) -> Option<bool> {
    const VALID: usize = 1 << 0;
    /// A page of a section that is shared by all processes.
    const SHARED: usize = 1 << 15;
    const LARGE_PAGE: usize = 1 << 23;
    /// Reserved in the documentation of the structure; `SharedOriginal` in the headers of the
    /// native API, since Windows 10, version 1709: not written to.
    const SHARED_ORIGINAL: usize = 1 << 30;
    match flags {
        _ if flags & VALID == 0 || flags & LARGE_PAGE != 0 => None,
        _ if flags & SHARED_ORIGINAL != 0 => Some(true),
        // Without that bit, a page of a section can be a shared page of an older Windows. A page
        // that belongs to no section is a copy on any version.
        _ if flags & SHARED != 0 => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windows_sys::Win32::System::Memory::{
        MEM_RELEASE, PAGE_EXECUTE_READWRITE, VirtualAlloc, VirtualFree, VirtualProtect,
    };

    fn own() -> Process {
        Process::open(std::process::id()).expect("this process")
    }

    /// Two pages.
    struct Pages(*mut u8);

    impl Pages {
        /// Allocates them, with this protection for the second.
        fn new(protection: u32) -> Pages {
            // SAFETY: new memory is requested.
            let pages = unsafe {
                VirtualAlloc(ptr::null(), 2 * PAGE_SIZE, MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE)
            };
            assert!(!pages.is_null());
            let mut before = 0;
            let second = pages.cast::<u8>().wrapping_add(PAGE_SIZE).cast();
            // SAFETY: the second of the two pages, which is not referenced.
            let done = unsafe { VirtualProtect(second, PAGE_SIZE, protection, &mut before) };
            assert_ne!(done, 0);
            Pages(pages.cast())
        }

        fn address(&self) -> u64 {
            self.0 as u64
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: allocated above, and not referenced.
            unsafe { VirtualFree(self.0.cast(), 0, MEM_RELEASE) };
        }
    }

    #[test]
    fn allocated_memory_is_private_and_has_its_protection() {
        let (process, pages) = (own(), Pages::new(PAGE_NOACCESS));
        let committed = |protection| State::Committed { kind: Kind::Private, protection };
        let first = process.region(pages.address() + 77).expect("the first page");
        assert_eq!((first.base, first.size), (pages.address(), PAGE_SIZE as u64));
        assert_eq!(first.state, committed(0x40));
        let second = process.region(pages.address() + PAGE_SIZE as u64).expect("the second page");
        assert_eq!(second.state, committed(0x01));
    }

    #[test]
    fn released_memory_is_free() {
        let process = own();
        // Other threads may get the same address at once, so one of many attempts must find it
        // free.
        let free = (0..100).any(|_| {
            let gone = Pages::new(PAGE_NOACCESS).address();
            process.region(gone).expect("the old address").state == State::Free
        });
        assert!(free);
    }

    #[test]
    fn windows_functions_are_in_an_executable_image() {
        let region = own().region(OpenProcess as *const () as u64).expect("this address");
        let State::Committed { kind, protection } = region.state else { panic!("{region:?}") };
        assert_eq!(kind, Kind::Image);
        assert!(protection & 0xf0 != 0, "{protection:#x}");
    }

    #[test]
    fn memory_is_read_up_to_the_first_unreadable_page() {
        let (process, pages) = (own(), Pages::new(PAGE_NOACCESS));
        for (at, byte) in [(0, 1), (4094, 2), (4095, 3)] {
            let pointer = pages.0.wrapping_add(at);
            // SAFETY: in the first page, which is writable and not referenced.
            unsafe { pointer.write(byte) };
        }
        let mut buffer = [9; 8];
        assert_eq!(process.read(pages.address(), &mut buffer), 8);
        assert_eq!(buffer, [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(process.read(pages.address() + 4094, &mut buffer), 2);
        assert_eq!(buffer[..2], [2, 3]);
        assert_eq!(process.read(pages.address() + 4096, &mut buffer), 0);
        assert_eq!(process.read(u64::MAX - 1, &mut buffer), 0);
        assert_eq!(process.read(pages.address(), &mut []), 0);
    }

    /// On Windows, reading would succeed or fail once, and would clear the guard.
    #[test]
    fn guarded_pages_stay_guarded() {
        let (process, pages) = (own(), Pages::new(PAGE_GUARD | PAGE_EXECUTE_READWRITE));
        let second = pages.address() + PAGE_SIZE as u64;
        assert_eq!(process.read(second - 8, &mut [0; 16]), 8);
        let State::Committed { protection, .. } = process.region(second).expect("the second page").state
        else {
            panic!("the page is not committed");
        };
        assert_eq!(protection, 0x140);
    }

    #[test]
    fn unknown_pages_are_not_classified() {
        for (flags, expected) in [
            (0, None),
            // Not in the working set; other bits are ignored.
            (1 << 15 | 1 << 30, None),
            (1 << 0, Some(false)),
            (1 << 0 | 1 << 15, None),
            (1 << 0 | 1 << 15 | 1 << 30, Some(true)),
            (1 << 0 | 7 << 1 | 0x20 << 4 | 5 << 24 | 1 << 15 | 1 << 30, Some(true)),
            (1 << 0 | 1 << 23, None),
        ] {
            assert_eq!(is_original(flags), expected, "{flags:#x}");
        }
    }
}
