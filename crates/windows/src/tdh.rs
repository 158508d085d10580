//! Descriptions of event providers that Windows has: the Trace Data Helper, `tdh.dll`.
//!
//! Results are the bytes that Windows returns, in the layouts of the header `tdh.h`. This crate
//! does not interpret them. `None` means that Windows has no description or no such function:
//! `TdhGetManifestEventInformation` and `TdhEnumerateManifestProviderEvents` exist since Windows
//! 8.1. Wine exports the names of some of these functions, and ends programs that call them;
//! therefore they are not called under Wine.
//!
//! Source: the pages of these functions in Microsoft's documentation of ETW.

use std::ffi::{OsStr, c_void};
use std::ptr;
use std::sync::OnceLock;

use windows_sys::Win32::Foundation::{ERROR_INSUFFICIENT_BUFFER, ERROR_SUCCESS, HMODULE};
use windows_sys::Win32::System::LibraryLoader::{
    GetModuleHandleW, GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW,
};
use windows_sys::core::{PCSTR, s, w};

use crate::text::to_wide;

/// A GUID or an `EVENT_DESCRIPTOR`, with the alignment of Windows.
#[repr(C, align(8))]
struct Sixteen([u8; 16]);

type EnumerateProviders = unsafe extern "system" fn(*mut c_void, *mut u32) -> u32;
type EnumerateEvents = unsafe extern "system" fn(*const Sixteen, *mut c_void, *mut u32) -> u32;
type EnumerateFields = unsafe extern "system" fn(*const Sixteen, i32, *mut c_void, *mut u32) -> u32;
type EventInformation =
    unsafe extern "system" fn(*const Sixteen, *const Sixteen, *mut c_void, *mut u32) -> u32;
type MapInformation = unsafe extern "system" fn(*const EventRecord, *const u16, *mut c_void, *mut u32) -> u32;

/// An `EVENT_RECORD` with a provider and a descriptor only.
#[repr(C, align(8))]
struct EventRecord([u8; EVENT_RECORD_SIZE]);

/// On 64-bit systems.
const EVENT_RECORD_SIZE: usize = 112;
const PROVIDER_AT: usize = 24;
const DESCRIPTOR_AT: usize = 40;

/// The functions that this Windows has.
#[derive(Clone, Copy, Default)]
struct Library {
    enumerate_providers: Option<EnumerateProviders>,
    enumerate_events: Option<EnumerateEvents>,
    enumerate_fields: Option<EnumerateFields>,
    event_information: Option<EventInformation>,
    map_information: Option<MapInformation>,
}

/// The kinds of numbers that a provider names (`EVENT_FIELD_TYPE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// Keywords by mask.
    Keyword = 0,
    /// Levels.
    Level = 1,
    /// Channels.
    Channel = 2,
    /// Tasks.
    Task = 3,
    /// Opcodes. The upper 16 bits of the number contain the opcode, the lower 16 bits its task.
    Opcode = 4,
}

/// All registered providers: `PROVIDER_ENUMERATION_INFO`. Takes a few milliseconds.
pub fn providers() -> Option<Vec<u8>> {
    let enumerate = library().enumerate_providers?;
    // SAFETY: `answer` passes a buffer and its size in bytes.
    answer(|buffer, size| unsafe { enumerate(buffer, size) })
}

/// The descriptors of all events in the manifest of a provider: `PROVIDER_EVENT_INFO`.
pub fn manifest_events(provider: [u8; 16]) -> Option<Vec<u8>> {
    let enumerate = library().enumerate_events?;
    let provider = Sixteen(provider);
    // SAFETY: as in `providers`; the GUID outlives the call.
    answer(|buffer, size| unsafe { enumerate(&provider, buffer, size) })
}

/// The names that a provider gives to its numbers of one kind: `PROVIDER_FIELD_INFOARRAY`.
pub fn provider_fields(provider: [u8; 16], kind: FieldKind) -> Option<Vec<u8>> {
    let enumerate = library().enumerate_fields?;
    let provider = Sixteen(provider);
    // SAFETY: as in `manifest_events`; the kind is one of those that Windows defines.
    answer(|buffer, size| unsafe { enumerate(&provider, kind as i32, buffer, size) })
}

/// The description of an event in the manifest of a provider, by the `EVENT_DESCRIPTOR` of the
/// event: `TRACE_EVENT_INFO`.
pub fn manifest_event(provider: [u8; 16], descriptor: [u8; 16]) -> Option<Vec<u8>> {
    let information = library().event_information?;
    let (provider, descriptor) = (Sixteen(provider), Sixteen(descriptor));
    // SAFETY: as in `manifest_events`; the descriptor also outlives the call.
    answer(|buffer, size| unsafe { information(&provider, &descriptor, buffer, size) })
}

/// A map by its name, as used by events with this descriptor: `EVENT_MAP_INFO`.
pub fn event_map(provider: [u8; 16], descriptor: [u8; 16], name: &str) -> Option<Vec<u8>> {
    let information = library().map_information?;
    let name = to_wide(OsStr::new(name)).ok()?;
    let mut record = EventRecord([0; EVENT_RECORD_SIZE]);
    record.0[PROVIDER_AT..PROVIDER_AT + 16].copy_from_slice(&provider);
    record.0[DESCRIPTOR_AT..DESCRIPTOR_AT + 16].copy_from_slice(&descriptor);
    // SAFETY: as in `providers`; the record is complete and has no payload, the name is
    // zero-terminated, and both outlive the call.
    answer(|buffer, size| unsafe { information(&record, name.as_ptr(), buffer, size) })
}

/// Calls a function with a buffer, and again with a larger one as long as the function requests it.
fn answer(mut call: impl FnMut(*mut c_void, *mut u32) -> u32) -> Option<Vec<u8>> {
    /// The list of providers can grow between two calls, but not forever.
    const MAX_CALLS: usize = 8;
    let mut buffer: Vec<u64> = Vec::new();
    for _ in 0..MAX_CALLS {
        let mut size = u32::try_from(buffer.len() * size_of::<u64>()).ok()?;
        match call(buffer.as_mut_ptr().cast(), &mut size) {
            ERROR_SUCCESS => {
                let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_le_bytes()).collect();
                return Some(bytes[..bytes.len().min(size as usize)].to_vec());
            }
            ERROR_INSUFFICIENT_BUFFER => buffer = vec![0; (size as usize).div_ceil(size_of::<u64>())],
            _ => return None,
        }
    }
    None
}

fn library() -> Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    *LIBRARY.get_or_init(|| if is_wine() { Library::default() } else { load() })
}

fn is_wine() -> bool {
    // SAFETY: the name is a zero-terminated text.
    let ntdll = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    // SAFETY: this module is never unloaded, and the name is zero-terminated.
    !ntdll.is_null() && unsafe { GetProcAddress(ntdll, s!("wine_get_version")) }.is_some()
}

fn load() -> Library {
    // SAFETY: the name is zero-terminated, and no file handle is passed. The library stays loaded.
    let library = unsafe { LoadLibraryExW(w!("tdh.dll"), ptr::null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32) };
    if library.is_null() {
        return Library::default();
    }
    let function = |name| address(library, name);
    Library {
        // SAFETY: the type is that of the header `tdh.h`, with pointers to bytes instead of
        // pointers to structures; also below.
        enumerate_providers: function(s!("TdhEnumerateProviders"))
            .map(|found| unsafe { std::mem::transmute::<Address, EnumerateProviders>(found) }),
        // SAFETY: as above.
        enumerate_events: function(s!("TdhEnumerateManifestProviderEvents"))
            .map(|found| unsafe { std::mem::transmute::<Address, EnumerateEvents>(found) }),
        // SAFETY: as above.
        enumerate_fields: function(s!("TdhEnumerateProviderFieldInformation"))
            .map(|found| unsafe { std::mem::transmute::<Address, EnumerateFields>(found) }),
        // SAFETY: as above.
        event_information: function(s!("TdhGetManifestEventInformation"))
            .map(|found| unsafe { std::mem::transmute::<Address, EventInformation>(found) }),
        // SAFETY: as above.
        map_information: function(s!("TdhGetEventMapInformation"))
            .map(|found| unsafe { std::mem::transmute::<Address, MapInformation>(found) }),
    }
}

type Address = unsafe extern "system" fn() -> isize;

fn address(library: HMODULE, name: PCSTR) -> Option<Address> {
    // SAFETY: the library stays loaded; names are texts of `s!`, which are zero-terminated.
    unsafe { GetProcAddress(library, name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_until_the_answer_fits() {
        let mut sizes = Vec::new();
        let bytes = answer(|buffer, size| {
            // SAFETY: the pointer is to a number that outlives the call.
            let given = unsafe { *size };
            sizes.push(given);
            let wanted = [0, 9, 20].into_iter().find(|wanted| *wanted > given).unwrap_or(20);
            // SAFETY: as above.
            unsafe { *size = wanted };
            if given < 20 {
                return ERROR_INSUFFICIENT_BUFFER;
            }
            // SAFETY: the buffer has at least the 20 bytes that were requested.
            unsafe { buffer.cast::<u8>().write_bytes(7, 20) };
            ERROR_SUCCESS
        });
        assert_eq!((bytes, sizes), (Some(vec![7; 20]), vec![0, 16, 24]));
        assert_eq!(answer(|_, _| ERROR_INSUFFICIENT_BUFFER), None);
        assert_eq!(answer(|_, _| 1168), None);
    }

    /// Windows has descriptions of its kernel providers. Wine has none, and is not called.
    #[test]
    fn the_system_library_is_called() {
        let process = 0x22fb2cd6_0e7b_422b_a0c7_2fad1fd0e716_u128.to_be_bytes();
        let known = providers();
        assert_eq!(known.is_none(), is_wine());
        let guid = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].map(|at| process[at]);
        assert_eq!(manifest_events(guid).is_some(), !is_wine());
        assert_eq!(provider_fields(guid, FieldKind::Keyword).is_some(), !is_wine());
        assert_eq!(manifest_event([0; 16], [0; 16]), None);
        assert_eq!(event_map([0; 16], [0; 16], "none"), None);
    }
}
