//! Starts, changes and stops sessions, and enables providers.

use std::sync::atomic::{AtomicU32, Ordering};

use stackhound_types::Guid;
use windows_sys::Win32::System::Diagnostics::Etw::{
    TraceSampledProfileIntervalInfo, TraceStackTracingInfo, TraceSystemTraceEnableFlagsInfo,
};

use crate::properties::Properties;
use crate::settings::Settings;

use super::describe;
use super::log::log;
use super::sessions::{self, Running, lock};
use super::{INVALID_TRACE, code};

/// EVENT_TRACE_CONTROL_QUERY
pub(super) const QUERY: u32 = 0;
/// EVENT_TRACE_CONTROL_STOP
pub(super) const STOP: u32 = 1;
/// EVENT_TRACE_CONTROL_UPDATE
pub(super) const UPDATE: u32 = 2;
/// EVENT_TRACE_CONTROL_FLUSH
pub(super) const FLUSH: u32 = 3;

/// StartTraceW. Returns the handle of the new session.
pub(super) fn start(name: &str, block: Option<&mut [u8]>) -> Result<u64, u32> {
    sessions::controlled();
    let settings = Settings::of_environment();
    let started = (|| {
        let mut properties = Properties::new(block.ok_or(code::INVALID_PARAMETER)?)?;
        let session = properties.read(name)?;
        log(format_args!("StartTraceW {}", session.line()));
        if let Some(code) = settings.error("StartTraceW", name) {
            return Err(code);
        }
        let running = sessions::start(session)?;
        let session = lock(&running.session).clone();
        properties.write(&session, &running.state())?;
        Ok(running.handle)
    })();
    log(format_args!("StartTraceW {name:?} -> {}", started.err().unwrap_or(code::SUCCESS)));
    started
}

/// Fills in the properties of a running session.
pub(super) fn describe(running: &Running, block: &mut [u8]) -> Result<(), u32> {
    let session = lock(&running.session).clone();
    Properties::new(block)?.write(&session, &running.state())
}

/// ControlTraceW.
pub(super) fn control(handle: u64, name: &str, block: Option<&mut [u8]>, control_code: u32) -> u32 {
    let verb = match control_code {
        QUERY => "query",
        STOP => "stop",
        UPDATE => "update",
        FLUSH => "flush",
        _ => "?",
    };
    let answer = (|| {
        if verb == "?" || handle == INVALID_TRACE || (handle == 0 && name.is_empty()) {
            return Err(code::INVALID_PARAMETER);
        }
        let block = block.ok_or(code::INVALID_PARAMETER)?;
        let mut properties = Properties::new(block)?;
        if let Some(code) = Settings::of_environment().error("ControlTraceW", verb) {
            return Err(code);
        }
        let running = sessions::find(handle, name).ok_or(code::WMI_INSTANCE_NOT_FOUND)?;
        if control_code == UPDATE {
            properties.update(&mut lock(&running.session));
        }
        if control_code == STOP {
            running.stop();
        }
        let session = lock(&running.session).clone();
        properties.write(&session, &running.state())?;
        Ok(session.groups)
    })();
    let (answer, groups) = match answer {
        Ok(groups) => (code::SUCCESS, groups),
        Err(code) => (code, [0; 8]),
    };
    log(format_args!("ControlTraceW {verb} handle={handle:#x} name={name:?} -> {answer} groups={groups:x?}"));
    answer
}

/// EnableTraceEx2.
#[expect(clippy::too_many_arguments, reason = "the function of Windows has as many")]
pub(super) fn enable(
    handle: u64,
    provider: Option<[u8; 16]>,
    control_code: u32,
    level: u8,
    any: u64,
    all: u64,
    timeout: u32,
    parameters: Option<(String, Result<(), u32>)>,
) -> u32 {
    sessions::controlled();
    let guid = provider.map_or("none".to_owned(), |guid| format!("{{{}}}", Guid(guid)));
    let verb = match control_code {
        0 => "disable",
        1 => "enable",
        2 => "capture",
        _ => "?",
    };
    let (parameters, valid) = parameters.unwrap_or(("parameters=none".to_owned(), Ok(())));
    let answer = if provider.is_none() || verb == "?" || valid.is_err() {
        code::INVALID_PARAMETER
    } else if let Some(code) = Settings::of_environment().error("EnableTraceEx2", &guid) {
        code
    } else if handle == 0 || sessions::find(handle, "").is_none() {
        code::INVALID_HANDLE
    } else {
        code::SUCCESS
    };
    log(format_args!(
        "EnableTraceEx2 {verb} {guid} level={level} any={any:#x} all={all:#x} timeout={timeout} {parameters} -> {answer}"
    ));
    answer
}

/// The sampling interval of a processor, in 100 ns. It applies to the whole machine, and so to all
/// sessions.
static SAMPLE_INTERVAL: AtomicU32 = AtomicU32::new(10_000);

/// TraceSetInformation.
pub(super) fn set_information(handle: u64, class: i32, information: &[u8]) -> u32 {
    sessions::controlled();
    let found = sessions::find(handle, "");
    let answer = (|| {
        if information.is_empty() {
            return Err(code::INVALID_PARAMETER);
        }
        let number = |at: usize| {
            let bytes = information.get(at..at + 4).ok_or(code::BAD_LENGTH)?;
            Ok::<_, u32>(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
        };
        if handle == 0 && class == TraceSampledProfileIntervalInfo {
            SAMPLE_INTERVAL.store(number(4)?, Ordering::SeqCst);
            return Ok(());
        }
        let running = found.as_ref().ok_or(code::INVALID_HANDLE)?;
        if !describe::information_fits(class, information) {
            return Err(code::INVALID_PARAMETER);
        }
        if let Some(code) = Settings::of_environment().error("TraceSetInformation", &class.to_string()) {
            return Err(code);
        }
        if class == TraceSystemTraceEnableFlagsInfo {
            let mut session = lock(&running.session);
            for (at, word) in session.groups.iter_mut().enumerate() {
                *word = number(4 * at)?;
            }
            session.flags = session.groups[0];
        }
        Ok(())
    })();
    let answer = answer.err().unwrap_or(code::SUCCESS);
    let text = describe::information(class, information);
    // If groups are enabled before stacks are requested, their first events have no stacks.
    let groups = match found.filter(|_| class == TraceStackTracingInfo) {
        Some(running) => format!(" groups={:x?}", lock(&running.session).groups),
        None => String::new(),
    };
    log(format_args!("TraceSetInformation {text} -> {answer}{groups}"));
    answer
}

/// TraceQueryInformation, for the sampling interval.
pub(super) fn query_information(handle: u64, class: i32, information: &mut [u8]) -> u32 {
    if handle != 0 || class != TraceSampledProfileIntervalInfo {
        return code::NOT_SUPPORTED;
    }
    let Some(interval) = information.get_mut(4..8) else { return code::BAD_LENGTH };
    interval.copy_from_slice(&SAMPLE_INTERVAL.load(Ordering::SeqCst).to_le_bytes());
    code::SUCCESS
}
