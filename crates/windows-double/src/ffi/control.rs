//! Starting, changing and stopping sessions, and what providers are asked for.

use stackhound_etl::Guid;

use windows_sys::Win32::System::Diagnostics::Etw::TraceSampledProfileIntervalInfo;

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

/// StartTraceW. The handle of the new session.
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

/// Fills in a block for a running session.
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
        properties.write(&session, &running.state())
    })();
    let answer = answer.err().unwrap_or(code::SUCCESS);
    log(format_args!("ControlTraceW {verb} handle={handle:#x} name={name:?} -> {answer}"));
    answer
}

/// EnableTraceEx2.
#[expect(clippy::too_many_arguments, reason = "as many as the function of Windows has")]
pub(super) fn enable(
    handle: u64,
    provider: Option<[u8; 16]>,
    control_code: u32,
    level: u8,
    any: u64,
    all: u64,
    timeout: u32,
    parameters: Option<String>,
) -> u32 {
    sessions::controlled();
    let guid = provider.map_or("none".to_owned(), |guid| format!("{{{}}}", Guid(guid)));
    let verb = match control_code {
        0 => "disable",
        1 => "enable",
        2 => "capture",
        _ => "?",
    };
    let answer = if provider.is_none() || verb == "?" {
        code::INVALID_PARAMETER
    } else if let Some(code) = Settings::of_environment().error("EnableTraceEx2", &guid) {
        code
    } else if handle == 0 || sessions::find(handle, "").is_none() {
        code::INVALID_HANDLE
    } else {
        code::SUCCESS
    };
    let parameters = parameters.unwrap_or("parameters=none".to_owned());
    log(format_args!(
        "EnableTraceEx2 {verb} {guid} level={level} any={any:#x} all={all:#x} timeout={timeout} {parameters} -> {answer}"
    ));
    answer
}

/// TraceSetInformation.
pub(super) fn set_information(handle: u64, class: i32, information: &[u8]) -> u32 {
    sessions::controlled();
    let answer = match sessions::find(handle, "") {
        _ if information.is_empty() => code::INVALID_PARAMETER,
        // Of the whole machine, and no session's.
        None if handle == 0 && class == TraceSampledProfileIntervalInfo => code::SUCCESS,
        None => code::INVALID_HANDLE,
        Some(_) if !describe::information_fits(class, information) => code::INVALID_PARAMETER,
        Some(_) => {
            let error = Settings::of_environment().error("TraceSetInformation", &class.to_string());
            error.unwrap_or(code::SUCCESS)
        }
    };
    let text = describe::information(class, information);
    log(format_args!("TraceSetInformation {text} -> {answer}"));
    answer
}
