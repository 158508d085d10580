//! Formats arguments for the log.

use stackhound_types::{Guid, HexBytes};
use windows_sys::Win32::System::Diagnostics::Etw::{
    ENABLE_TRACE_PARAMETERS, EVENT_FILTER_DESCRIPTOR, EVENT_FILTER_TYPE_EVENT_ID,
    EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PACKAGE_APP_ID,
    EVENT_FILTER_TYPE_PACKAGE_ID, EVENT_FILTER_TYPE_PAYLOAD, EVENT_FILTER_TYPE_PID,
    EVENT_FILTER_TYPE_STACKWALK, EVENT_FILTER_TYPE_STACKWALK_NAME, TraceStackTracingInfo,
};

use super::{code, pointers};

/// The parameters of EnableTraceEx2; `None` for null.
///
/// # Safety
/// `parameters` is null or points to a valid structure, which points to its filters.
pub(super) unsafe fn parameters(
    parameters: *const ENABLE_TRACE_PARAMETERS,
) -> Option<(String, Result<(), u32>)> {
    // SAFETY: guaranteed by the caller.
    let parameters = unsafe { pointers::copy(parameters) }?;
    let mut text = format!("version={} property={:#x}", parameters.Version, parameters.EnableProperty);
    let mut kinds = Vec::new();
    let mut valid = if parameters.Version == 2 { Ok(()) } else { Err(code::INVALID_PARAMETER) };
    let count = if parameters.EnableFilterDesc.is_null() { 0 } else { parameters.FilterDescCount as usize };
    for at in 0..count {
        let filter = parameters.EnableFilterDesc.wrapping_add(at);
        // SAFETY: guaranteed by the caller: there are `count` filters.
        let filter = unsafe { filter.read_unaligned() };
        // SAFETY: guaranteed by the caller: a filter points to its bytes.
        let bytes = unsafe { pointers::bytes(filter.Ptr as *const u8, filter.Size as usize) };
        text += &describe_filter(&filter, bytes);
        if !fits(&filter) || kinds.contains(&filter.Type) {
            valid = Err(code::INVALID_PARAMETER);
        }
        kinds.push(filter.Type);
    }
    Some((text, valid))
}

/// Whether Microsoft's page EVENT_FILTER_DESCRIPTOR and `evntprov.h` allow the kind and size of a
/// filter.
fn fits(filter: &EVENT_FILTER_DESCRIPTOR) -> bool {
    let most = match filter.Type {
        EVENT_FILTER_TYPE_PID => 8 * 4,
        EVENT_FILTER_TYPE_EXECUTABLE_NAME
        | EVENT_FILTER_TYPE_PACKAGE_ID
        | EVENT_FILTER_TYPE_PACKAGE_APP_ID => 1024,
        EVENT_FILTER_TYPE_EVENT_ID | EVENT_FILTER_TYPE_STACKWALK => 4 + 64 * 2,
        EVENT_FILTER_TYPE_PAYLOAD | EVENT_FILTER_TYPE_EVENT_NAME | EVENT_FILTER_TYPE_STACKWALK_NAME => 4096,
        _ => 0,
    };
    (1..=most).contains(&filter.Size)
}

fn describe_filter(filter: &EVENT_FILTER_DESCRIPTOR, bytes: &[u8]) -> String {
    let numbers = |size: usize, from: usize| -> Vec<u64> {
        let number = |part: &[u8]| part.iter().rev().fold(0, |sum, &byte| (sum << 8) | u64::from(byte));
        bytes.get(from..).unwrap_or_default().chunks_exact(size).map(number).collect()
    };
    match filter.Type {
        EVENT_FILTER_TYPE_EVENT_ID | EVENT_FILTER_TYPE_STACKWALK => {
            let kind = if filter.Type == EVENT_FILTER_TYPE_EVENT_ID { "ids" } else { "stackwalk_ids" };
            let direction = if bytes.first() == Some(&0) { "out" } else { "in" };
            let (count, ids) = (numbers(2, 2).first().copied().unwrap_or(0), numbers(2, 4));
            format!(" filter({kind} {direction} count={count} {ids:?})")
        }
        EVENT_FILTER_TYPE_PID => format!(" filter(pids {:?})", numbers(4, 0)),
        EVENT_FILTER_TYPE_EXECUTABLE_NAME
        | EVENT_FILTER_TYPE_PACKAGE_ID
        | EVENT_FILTER_TYPE_PACKAGE_APP_ID => {
            let units: Vec<u16> = numbers(2, 0).into_iter().map(|unit| unit as u16).collect();
            let text = String::from_utf16_lossy(&units);
            format!(" filter({:#x} {:?})", filter.Type, text.trim_end_matches('\0'))
        }
        _ => format!(" filter({:#x} {})", filter.Type, HexBytes(bytes)),
    }
}

/// Size of a CLASSIC_EVENT_ID in bytes: GUID, type, seven reserved bytes.
const CLASSIC_EVENT_ID: usize = 24;

/// Maximum number of events with stacks in one session.
const STACKS_MAX: usize = 256;

/// Whether the size of the information is valid for its class.
pub(super) fn information_fits(class: i32, information: &[u8]) -> bool {
    let count = information.len() / CLASSIC_EVENT_ID;
    class != TraceStackTracingInfo
        || (information.len().is_multiple_of(CLASSIC_EVENT_ID) && count <= STACKS_MAX)
}

/// The argument of TraceSetInformation: stack ids as GUID and type, all other classes as bytes.
pub(super) fn information(class: i32, information: &[u8]) -> String {
    if class != TraceStackTracingInfo || !information_fits(class, information) {
        return format!("class={class} {}", HexBytes(information));
    }
    let id = |id: &[u8]| {
        let guid: [u8; 16] = id[..16].try_into().expect("sixteen bytes");
        format!("{{{}}}/{}", Guid(guid), id[16])
    };
    let ids: Vec<String> = information.chunks_exact(CLASSIC_EVENT_ID).map(id).collect();
    format!("stacks {}", ids.join(" "))
}
