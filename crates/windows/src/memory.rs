//! The memory of live processes: what lies at an address, whether a page is still that of its file, and bytes.
//!
//! All of it is what is there when it is asked for. A process goes on running meanwhile: two answers need not belong
//! together, and one that has ended gives errors. Nothing here changes the process, but for pages that are brought into its
//! working set by being read.
//!
//! Sources: Microsoft's pages of `VirtualQueryEx`, `MEMORY_BASIC_INFORMATION`, `ReadProcessMemory`, `QueryWorkingSetEx`
//! and `PSAPI_WORKING_SET_EX_BLOCK`; of the last also the headers of the native API, see [`Process::is_original`].

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

/// Bytes of a page, on all processors that Windows runs on today.
const PAGE_SIZE: usize = 4096;

/// A process that may be asked. Its number is not given to another one while this lives, even if it ends.
#[derive(Debug)]
pub struct Process {
    pub(crate) handle: OwnedHandle,
}

/// Pages that belong together: allocated at once, and alike in state and protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Where its first page begins.
    pub base: u64,
    /// Bytes from there on.
    pub size: u64,
    /// What its pages are.
    pub state: State,
}

/// What pages are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing is there.
    Free,
    /// Kept for later use: nothing is there yet.
    Reserved,
    /// There is memory.
    Committed {
        /// What it was made for.
        kind: Kind,
        /// What it allows now: one of the constants that Microsoft calls memory protection constants, with their
        /// modifiers. `PAGE_EXECUTE_READ` is 0x20, `PAGE_GUARD` 0x100.
        protection: u32,
    },
}

/// What memory was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An image: a section that was made of a program or library.
    Image,
    /// Another section.
    Mapped,
    /// This process alone.
    Private,
    /// What this Windows has and we do not know, by its number.
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
    /// Opens a process to ask for its memory. Takes some microseconds.
    ///
    /// # Errors
    /// If there is none of this number, or this process may not read it: those of other users need the
    /// [privilege](take_debug_privilege), and protected ones cannot be read.
    pub fn open(process_id: u32) -> Result<Process, Error> {
        let rights = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_QUERY_INFORMATION | PROCESS_VM_READ;
        // SAFETY: takes numbers only.
        let handle = unsafe { OpenProcess(rights, 0, process_id) };
        if handle.is_null() {
            return Err(Error::last("OpenProcess"));
        }
        // SAFETY: just opened, and nobody else has it.
        Ok(Process { handle: unsafe { OwnedHandle::from_raw_handle(handle) } })
    }

    /// When it was started, in units of 100 ns since 1601-01-01 UTC.
    pub fn created(&self) -> Result<u64, Error> {
        let mut times = [FILETIME::default(); 4];
        let [created, exited, kernel, user] = &mut times;
        // SAFETY: the process is open; writes four times.
        let done = unsafe { GetProcessTimes(self.handle.as_raw_handle(), created, exited, kernel, user) };
        if done == 0 {
            return Err(Error::last("GetProcessTimes"));
        }
        Ok(ticks(created))
    }

    /// The region that an address lies in. Its base is that of the address's page, whatever lies before. About a microsecond.
    ///
    /// # Errors
    /// If the process has ended, or no program can use the address.
    pub fn region(&self, address: u64) -> Result<Region, Error> {
        const NAME: &str = "VirtualQueryEx";
        let location = to_location(NAME, address)?;
        let mut found = MEMORY_BASIC_INFORMATION::default();
        let size = size_of::<MEMORY_BASIC_INFORMATION>();
        // SAFETY: the process is open, and the address is a number to the function; writes one structure of this size.
        let written = unsafe { VirtualQueryEx(self.handle.as_raw_handle(), location, &mut found, size) };
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

    /// Whether the page at an address is still the one that all processes share which have the same file mapped there, not a
    /// copy that was made for this one because it was written to. About a microsecond.
    ///
    /// `None` if Windows does not tell: it does so of pages in the process's working set only, which a page is after it was
    /// [read](Process::read). Large pages are never shared and tell nothing. Windows 10 before version 1709 has no bit for
    /// pages that were not written to, so there only those can be told that were.
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

    /// Reads memory from an address on, as far as it can be read, and gives how many bytes that were. About two microseconds.
    ///
    /// Ends before a page with `PAGE_GUARD`: to read it would take the mark away, which the process waits for.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        let mut known_until = address;
        // Page by page: a call that comes upon what cannot be read need not say how far it got.
        while done < buffer.len() {
            let Some(from) = address.checked_add(done as u64) else { break };
            if from >= known_until {
                match self.region(from) {
                    Ok(region) if region.state.is_readable() => known_until = region.base + region.size,
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
        let Ok(location) = to_location(NAME, address) else { return 0 };
        let process = self.handle.as_raw_handle();
        let mut read = 0;
        // SAFETY: the process is open, and the address is a number to the function; the buffer is as long as is said.
        unsafe { ReadProcessMemory(process, location, buffer.as_mut_ptr().cast(), buffer.len(), &mut read) };
        // Says the same whether the call failed or not.
        read.min(buffer.len())
    }
}

fn to_location(function: &'static str, address: u64) -> Result<*const std::ffi::c_void, Error> {
    let location =
        usize::try_from(address).map_err(|_| Error::of_status(function, ERROR_INVALID_PARAMETER))?;
    Ok(location as *const _)
}

/// What the bits of a `PSAPI_WORKING_SET_EX_BLOCK` say of a page.
fn is_original(flags: usize) -> Option<bool> {
    const VALID: usize = 1 << 0;
    /// A section's page, as it is mapped by all.
    const SHARED: usize = 1 << 15;
    const LARGE_PAGE: usize = 1 << 23;
    /// Reserved on the page of the structure; `SharedOriginal` in the headers of the native API, since Windows 10, version
    /// 1709: not written to.
    const SHARED_ORIGINAL: usize = 1 << 30;
    match flags {
        _ if flags & VALID == 0 || flags & LARGE_PAGE != 0 => None,
        _ if flags & SHARED_ORIGINAL != 0 => Some(true),
        // Without the bit a page of a section can be of an older Windows. One that is no section's is a copy anywhere.
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
        /// With this protection of the second.
        fn new(protection: u32) -> Pages {
            // SAFETY: asks for new memory.
            let pages = unsafe {
                VirtualAlloc(ptr::null(), 2 * PAGE_SIZE, MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE)
            };
            assert!(!pages.is_null());
            let mut before = 0;
            let second = pages.cast::<u8>().wrapping_add(PAGE_SIZE).cast();
            // SAFETY: the second of the two pages, to which nobody refers.
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
            // SAFETY: allocated above, and nobody refers to it.
            unsafe { VirtualFree(self.0.cast(), 0, MEM_RELEASE) };
        }
    }

    #[test]
    fn memory_that_was_allocated_is_private_and_allows_what_it_was_allocated_for() {
        let (process, pages) = (own(), Pages::new(PAGE_NOACCESS));
        let committed = |protection| State::Committed { kind: Kind::Private, protection };
        let first = process.region(pages.address() + 77).expect("the first page");
        assert_eq!((first.base, first.size), (pages.address(), PAGE_SIZE as u64));
        assert_eq!(first.state, committed(0x40));
        let second = process.region(pages.address() + PAGE_SIZE as u64).expect("the second page");
        assert_eq!(second.state, committed(0x01));
    }

    #[test]
    fn memory_that_was_released_is_free() {
        let process = own();
        // Other threads may be given the same place at once, so one attempt of many must see it free.
        let free = (0..100).any(|_| {
            let gone = Pages::new(PAGE_NOACCESS).address();
            process.region(gone).expect("where it was").state == State::Free
        });
        assert!(free);
    }

    #[test]
    fn functions_of_windows_lie_in_an_image_that_can_be_run() {
        let region = own().region(OpenProcess as *const () as u64).expect("this place");
        let State::Committed { kind, protection } = region.state else { panic!("{region:?}") };
        assert_eq!(kind, Kind::Image);
        assert!(protection & 0xf0 != 0, "{protection:#x}");
    }

    #[test]
    fn what_is_read_is_what_is_there_up_to_what_cannot_be_read() {
        let (process, pages) = (own(), Pages::new(PAGE_NOACCESS));
        for (at, byte) in [(0, 1), (4094, 2), (4095, 3)] {
            let location = pages.0.wrapping_add(at);
            // SAFETY: in the first page, which can be written to and which nobody refers to.
            unsafe { location.write(byte) };
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

    /// On Windows, reading would succeed or fail once, and take the mark away.
    #[test]
    fn what_is_guarded_stays_so() {
        let (process, pages) = (own(), Pages::new(PAGE_GUARD | PAGE_EXECUTE_READWRITE));
        let second = pages.address() + PAGE_SIZE as u64;
        assert_eq!(process.read(second - 8, &mut [0; 16]), 8);
        let State::Committed { protection, .. } = process.region(second).expect("the second page").state
        else {
            panic!("nothing is there");
        };
        assert_eq!(protection, 0x140);
    }

    #[test]
    fn of_pages_that_are_not_known_nothing_is_claimed() {
        for (flags, expected) in [
            (0, None),
            // Not in the working set, whatever else is said of it.
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
