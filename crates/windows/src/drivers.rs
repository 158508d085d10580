//! The modules of the kernel: the addresses of the kernel and its drivers.
//!
//! Since Windows 11, version 24H2, a process that has not
//! [enabled](crate::memory::take_debug_privilege) `SeDebugPrivilege` gets the list without
//! addresses. Before, all processes of at least medium integrity got the addresses.
//!
//! Sources: Microsoft's page of `EnumDeviceDrivers` for the required access. The list comes from
//! `NtQuerySystemInformation`, because `EnumDeviceDrivers` returns neither sizes nor time stamps.
//! The layout of the class `SystemModuleInformationEx` is that of the headers of the native API,
//! which has not changed since Windows Vista.

use std::mem::offset_of;

use windows_sys::Wdk::System::SystemInformation::NtQuerySystemInformation;
use windows_sys::Win32::Foundation::{RtlNtStatusToDosError, STATUS_INFO_LENGTH_MISMATCH, STATUS_SUCCESS};

use crate::Error;

/// `SystemModuleInformationEx`
const MODULES: i32 = 77;
/// The maximum size of a list in bytes. A list of hundreds of modules takes a hundredth of it.
const SIZE_MAX: usize = 16 << 20;

/// A module of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Driver {
    /// The base address; 0 if this process has no access to it.
    pub base: u64,
    /// The size in bytes.
    pub size: u32,
    /// `TimeDateStamp` of the image; 0 if Windows does not report it.
    pub time_date_stamp: u32,
    /// The file, as a kernel path: `\SystemRoot\system32\ntoskrnl.exe`, `\??\C:\…`.
    pub path: String,
}

/// An entry of the list in memory: `RTL_PROCESS_MODULE_INFORMATION_EX`.
#[repr(C)]
struct Entry {
    /// The offset of the next entry in bytes; 0 in the terminator after the last entry.
    next: u16,
    section: usize,
    mapped_base: usize,
    base: usize,
    size: u32,
    flags: u32,
    indices: [u16; 3],
    file_name_at: u16,
    path: [u8; 256],
    checksum: u32,
    time_date_stamp: u32,
    default_base: usize,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Entry>() == 320);

/// The kernel and its drivers, in load order. Takes about a millisecond.
pub fn list() -> Result<Vec<Driver>, Error> {
    // Windows requires this alignment.
    let mut buffer: Vec<u64> = vec![0; 1 << 14];
    loop {
        let mut needed = 0;
        let size = size_of_val(buffer.as_slice());
        // SAFETY: at most the given number of bytes is written, and their number is returned.
        let status = unsafe {
            NtQuerySystemInformation(MODULES, buffer.as_mut_ptr().cast(), size as u32, &mut needed)
        };
        match status {
            STATUS_SUCCESS => {
                let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
                return Ok(parse(&bytes[..size.min(needed as usize)]));
            }
            // There may be more modules at the next call.
            STATUS_INFO_LENGTH_MISMATCH if size < SIZE_MAX => {
                let wanted = (needed as usize).max(size) * 2;
                buffer.resize(wanted.min(SIZE_MAX) / size_of::<u64>(), 0);
            }
            _ => {
                // SAFETY: only a number is passed.
                let code = unsafe { RtlNtStatusToDosError(status) };
                return Err(Error::of_status("NtQuerySystemInformation", code));
            }
        }
    }
}

/// The entries of a list, up to the terminator or the end of the bytes.
fn parse(bytes: &[u8]) -> Vec<Driver> {
    let mut drivers = Vec::new();
    let mut rest = bytes;
    while let Some(next) = at(rest, offset_of!(Entry, next)).map(u16::from_ne_bytes)
        && next != 0
        && let Some(driver) = driver(rest)
    {
        drivers.push(driver);
        rest = rest.get(usize::from(next)..).unwrap_or_default();
    }
    drivers
}

fn driver(entry: &[u8]) -> Option<Driver> {
    let path = at::<256>(entry, offset_of!(Entry, path))?;
    let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
    Some(Driver {
        base: usize::from_ne_bytes(at(entry, offset_of!(Entry, base))?) as u64,
        size: u32::from_ne_bytes(at(entry, offset_of!(Entry, size))?),
        time_date_stamp: u32::from_ne_bytes(at(entry, offset_of!(Entry, time_date_stamp))?),
        path: String::from_utf8_lossy(&path[..end]).into_owned(),
    })
}

fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    /// Uses the offsets of the native API's headers instead of the structure above.
    fn entry(next: u16, base: u64, size: u32, stamp: u32, path: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xcc; 320];
        bytes[..2].copy_from_slice(&next.to_le_bytes());
        bytes[24..32].copy_from_slice(&base.to_le_bytes());
        bytes[32..36].copy_from_slice(&size.to_le_bytes());
        bytes[48..48 + path.len()].copy_from_slice(path);
        bytes[308..312].copy_from_slice(&stamp.to_le_bytes());
        bytes
    }

    #[test]
    fn entries_are_read_up_to_the_end_that_the_list_states() {
        let kernel = Driver {
            base: 0xffff_f800_1234_0000,
            size: 0x104_6000,
            time_date_stamp: 0xdead_beef,
            path: r"\SystemRoot\system32\ntoskrnl.exe".to_owned(),
        };
        let mut bytes = entry(
            320,
            kernel.base,
            kernel.size,
            kernel.time_date_stamp,
            b"\\SystemRoot\\system32\\ntoskrnl.exe\0",
        );
        let hidden = Driver { base: 0, size: 0x1000, time_date_stamp: 1, path: "x".repeat(256) };
        // Future entries may be longer.
        bytes.extend(entry(328, 0, 0x1000, 1, &[b'x'; 256]));
        bytes.extend([0; 8]);
        bytes.extend([0; 2]);
        bytes.extend([0xff; 400]);
        let expected = [kernel, hidden];
        assert_eq!(parse(&bytes), expected);
        for end in 0..bytes.len() {
            let found = parse(&bytes[..end]);
            assert_eq!(found, expected[..found.len()], "{end}");
            assert_eq!(found.len(), usize::from(end >= 312) + usize::from(end >= 320 + 312), "{end}");
        }
    }

    /// The list of Wine is simulated and has no time stamps.
    #[test]
    fn the_kernel_is_in_the_list() {
        let _ = crate::memory::take_debug_privilege();
        let drivers = list().expect("the drivers");
        let kernel = drivers.iter().find(|driver| driver.path.to_lowercase().ends_with(r"\ntoskrnl.exe"));
        let kernel = kernel.unwrap_or_else(|| panic!("{drivers:?}"));
        assert!(kernel.base != 0 && kernel.size != 0, "{kernel:?}");
    }
}
