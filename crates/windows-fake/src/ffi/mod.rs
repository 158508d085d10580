//! The functions of Windows, in the 64-bit calling convention.
//!
//! Their symbols have a prefix (`fake_StartTraceW`), because a test program that is linked with
//! this crate must still import the real functions. The list of exports gives them their real
//! names. The functions for raw buffers are exports of sechost.dll
//! (`sechost_OpenTraceFromRealTimeLogger`): advapi32.dll neither contains nor forwards them
//! (microsoft/windows-rs, issue 4706).

mod buffers;
mod console;
mod consume;
mod control;
mod describe;
mod hide;
mod log;
mod pointers;
mod sessions;

use std::ffi::c_void;

use windows_sys::Win32::System::Diagnostics::Etw::{
    ENABLE_TRACE_PARAMETERS, ETW_BUFFER_HEADER, ETW_OPEN_TRACE_OPTIONS, EVENT_TRACE_LOGFILEW,
    TRACE_LOGFILE_HEADER,
};
use windows_sys::Win32::System::SystemServices::DLL_PROCESS_ATTACH;

use log::log;

/// Win32 error codes of these functions.
pub(crate) mod code {
    pub use crate::properties::code::{BAD_LENGTH, INVALID_PARAMETER};
    pub const SUCCESS: u32 = 0;
    pub const INVALID_HANDLE: u32 = 6;
    pub const NOT_SUPPORTED: u32 = 50;
    pub const ALREADY_EXISTS: u32 = 183;
    pub const MORE_DATA: u32 = 234;
    pub const CANCELLED: u32 = 1223;
    pub const NO_SYSTEM_RESOURCES: u32 = 1450;
    pub const WMI_INSTANCE_NOT_FOUND: u32 = 4201;
    pub const CTX_CLOSE_PENDING: u32 = 7007;
}

/// The result of OpenTrace if it fails.
pub(crate) const INVALID_TRACE: u64 = u64::MAX;

/// Called by Windows when the library is loaded.
#[unsafe(no_mangle)]
extern "system" fn DllMain(library: *mut c_void, reason: u32, _reserved: *mut c_void) -> i32 {
    if reason == DLL_PROCESS_ATTACH && crate::settings::Settings::of_environment().no_raw {
        // SAFETY: the loader passes the base of the library.
        unsafe { hide::raw_interface(library.cast()) };
    }
    1
}

/// # Safety
/// As for StartTraceW: pointers are null or valid for that function.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_StartTraceW(handle: *mut u64, name: *const u16, properties: *mut u8) -> u32 {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { pointers::text(name) };
    // SAFETY: guaranteed by the caller.
    let properties = unsafe { pointers::properties(properties) };
    let answer = control::start(&name, properties);
    if let (Ok(started), false) = (&answer, handle.is_null()) {
        // SAFETY: guaranteed by the caller; not null.
        unsafe { handle.write_unaligned(*started) };
    }
    answer.err().unwrap_or(code::SUCCESS)
}

/// # Safety
/// As for ControlTraceW.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_ControlTraceW(
    handle: u64,
    name: *const u16,
    properties: *mut u8,
    control_code: u32,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { pointers::text(name) };
    // SAFETY: guaranteed by the caller.
    let properties = unsafe { pointers::properties(properties) };
    control::control(handle, &name, properties, control_code)
}

/// # Safety
/// As for QueryTraceW.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_QueryTraceW(handle: u64, name: *const u16, properties: *mut u8) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { fake_ControlTraceW(handle, name, properties, control::QUERY) }
}

/// # Safety
/// As for StopTraceW.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_StopTraceW(handle: u64, name: *const u16, properties: *mut u8) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { fake_ControlTraceW(handle, name, properties, control::STOP) }
}

/// # Safety
/// As for UpdateTraceW.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_UpdateTraceW(handle: u64, name: *const u16, properties: *mut u8) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { fake_ControlTraceW(handle, name, properties, control::UPDATE) }
}

/// # Safety
/// As for FlushTraceW.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_FlushTraceW(handle: u64, name: *const u16, properties: *mut u8) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { fake_ControlTraceW(handle, name, properties, control::FLUSH) }
}

/// # Safety
/// As for EnableTraceEx2.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_EnableTraceEx2(
    handle: u64,
    provider: *const [u8; 16],
    control_code: u32,
    level: u8,
    any: u64,
    all: u64,
    timeout: u32,
    parameters: *const ENABLE_TRACE_PARAMETERS,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    let provider = unsafe { pointers::copy(provider) };
    // SAFETY: guaranteed by the caller.
    let parameters = unsafe { describe::parameters(parameters) };
    control::enable(handle, provider, control_code, level, any, all, timeout, parameters)
}

/// # Safety
/// As for TraceSetInformation.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_TraceSetInformation(
    handle: u64,
    class: i32,
    information: *const u8,
    size: u32,
) -> u32 {
    // SAFETY: guaranteed by the caller.
    let information = unsafe { pointers::bytes(information, size as usize) };
    control::set_information(handle, class, information)
}

/// # Safety
/// As for TraceQueryInformation.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_TraceQueryInformation(
    handle: u64,
    class: i32,
    information: *mut u8,
    size: u32,
    _returned: *mut u32,
) -> u32 {
    if information.is_null() {
        return code::INVALID_PARAMETER;
    }
    // SAFETY: guaranteed by the caller; not null.
    let information = unsafe { std::slice::from_raw_parts_mut(information, size as usize) };
    control::query_information(handle, class, information)
}

/// # Safety
/// As for QueryAllTracesW.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_QueryAllTracesW(blocks: *const *mut u8, count: u32, found: *mut u32) -> u32 {
    if blocks.is_null() || found.is_null() || count == 0 || count as usize > sessions::SESSIONS_MAX {
        return code::INVALID_PARAMETER;
    }
    // SAFETY: guaranteed by the caller; not null.
    let blocks = unsafe { std::slice::from_raw_parts(blocks, count as usize) };
    let running = sessions::all();
    log(format_args!("QueryAllTracesW count={count} -> {} sessions", running.len()));
    for (&block, session) in blocks.iter().zip(&running) {
        // SAFETY: guaranteed by the caller.
        let Some(block) = (unsafe { pointers::properties(block) }) else { return code::INVALID_PARAMETER };
        if let Err(refused) = control::describe(session, block) {
            return refused;
        }
    }
    // SAFETY: guaranteed by the caller; not null.
    unsafe { found.write_unaligned(running.len() as u32) };
    if running.len() > blocks.len() { code::MORE_DATA } else { code::SUCCESS }
}

/// # Safety
/// As for OpenTraceW.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_OpenTraceW(logfile: *mut EVENT_TRACE_LOGFILEW) -> u64 {
    // SAFETY: guaranteed by the caller.
    let answer = unsafe { consume::open(logfile) };
    pointers::or_last_error(answer)
}

/// # Safety
/// As for OpenTraceFromRealTimeLogger.
#[unsafe(no_mangle)]
unsafe extern "system" fn sechost_OpenTraceFromRealTimeLogger(
    name: *const u16,
    options: *const ETW_OPEN_TRACE_OPTIONS,
    header: *mut TRACE_LOGFILE_HEADER,
) -> u64 {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { pointers::text(name) };
    // SAFETY: guaranteed by the caller.
    let options = unsafe { pointers::copy(options) };
    pointers::or_last_error(consume::open_real_time(&name, options, !header.is_null()))
}

/// # Safety
/// As for ProcessTrace. In addition, the callbacks and their context that were passed to OpenTrace
/// must be valid until this returns.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_ProcessTrace(
    handles: *const u64,
    count: u32,
    start: *const c_void,
    end: *const c_void,
) -> u32 {
    if handles.is_null() || !start.is_null() || !end.is_null() {
        return code::INVALID_PARAMETER;
    }
    // Only one real-time session can be processed at a time.
    if count != 1 {
        return code::BAD_LENGTH;
    }
    // SAFETY: guaranteed by the caller; not null.
    let handle = unsafe { handles.read_unaligned() };
    // SAFETY: guaranteed by the caller.
    unsafe { consume::process(handle) }
}

#[unsafe(no_mangle)]
extern "system" fn fake_CloseTrace(handle: u64) -> u32 {
    consume::close(handle)
}

#[unsafe(no_mangle)]
extern "system" fn sechost_ProcessTraceBufferIncrementReference(
    handle: u64,
    buffer: *const ETW_BUFFER_HEADER,
) -> u32 {
    buffers::keep(handle, buffer as usize)
}

#[unsafe(no_mangle)]
extern "system" fn sechost_ProcessTraceBufferDecrementReference(buffer: *const ETW_BUFFER_HEADER) -> u32 {
    buffers::give_back(buffer as usize)
}
