//! Sessions: start, ask, flush, change, stop.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::ERROR_MORE_DATA;
use windows_sys::Win32::System::Diagnostics::Etw::{
    CONTROLTRACE_HANDLE, ControlTraceW, EVENT_TRACE_CONTROL, EVENT_TRACE_CONTROL_FLUSH,
    EVENT_TRACE_CONTROL_QUERY, EVENT_TRACE_CONTROL_STOP, EVENT_TRACE_CONTROL_UPDATE, EVENT_TRACE_PROPERTIES,
    QueryAllTracesW, StartTraceW, TRACE_PROFILE_INTERVAL, TRACE_QUERY_INFO_CLASS, TraceQueryInformation,
    TraceSampledProfileIntervalInfo, TraceSetInformation, TraceStackTracingInfo,
    TraceSystemTraceEnableFlagsInfo,
};
use windows_sys::core::GUID;

use super::properties::Properties;
use crate::Error;
use crate::error::check;
use crate::text::to_wide;

/// Sessions that a system usually has room for; asked again if there are more.
const SESSIONS: usize = 64;

/// What a session is started with; see Microsoft's page "EVENT_TRACE_PROPERTIES structure".
#[derive(Clone, Debug)]
pub struct StartSession<'a> {
    /// Its name.
    pub name: &'a str,
    /// The file it shall write, too.
    pub file: Option<&'a Path>,
    /// `Wnode.Guid` as in memory.
    pub guid: [u8; 16],
    /// `Wnode.ClientContext`: which clock.
    pub clock: u32,
    /// `LogFileMode`.
    pub mode: u32,
    /// `BufferSize` in KiB.
    pub buffer_size: u32,
    /// `MinimumBuffers`.
    pub minimum_buffers: u32,
    /// `MaximumBuffers`.
    pub maximum_buffers: u32,
    /// `FlushTimer`.
    pub flush_timer: u32,
    /// `EnableFlags`.
    pub enable_flags: u32,
}

/// What a session says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionState {
    /// Its name.
    pub name: String,
    /// The file it writes, if any.
    pub file: String,
    /// `Wnode.Guid` as in memory.
    pub guid: [u8; 16],
    /// `Wnode.ClientContext`.
    pub clock: u32,
    /// `LogFileMode`.
    pub mode: u32,
    /// `BufferSize` in KiB.
    pub buffer_size: u32,
    /// `MinimumBuffers`.
    pub minimum_buffers: u32,
    /// `MaximumBuffers`.
    pub maximum_buffers: u32,
    /// `FlushTimer`.
    pub flush_timer: u32,
    /// `EnableFlags`.
    pub enable_flags: u32,
    /// Buffers there are.
    pub buffers: u32,
    /// Of these, how many are unused.
    pub free_buffers: u32,
    /// Events for which there was no buffer.
    pub events_lost: u32,
    /// Buffers written to the file or handed over.
    pub buffers_written: u32,
    /// Buffers that could not be written to the file.
    pub log_buffers_lost: u32,
    /// Buffers that could not be handed over.
    pub real_time_buffers_lost: u32,
}

impl SessionState {
    fn of(properties: &Properties) -> SessionState {
        let fixed = &properties.fixed;
        SessionState {
            name: properties.session(),
            file: properties.file(),
            guid: guid_to_bytes(&fixed.Wnode.Guid),
            clock: fixed.Wnode.ClientContext,
            mode: fixed.LogFileMode,
            buffer_size: fixed.BufferSize,
            minimum_buffers: fixed.MinimumBuffers,
            maximum_buffers: fixed.MaximumBuffers,
            flush_timer: fixed.FlushTimer,
            enable_flags: fixed.EnableFlags,
            buffers: fixed.NumberOfBuffers,
            free_buffers: fixed.FreeBuffers,
            events_lost: fixed.EventsLost,
            buffers_written: fixed.BuffersWritten,
            log_buffers_lost: fixed.LogBuffersLost,
            real_time_buffers_lost: fixed.RealTimeBuffersLost,
        }
    }
}

/// A running session. Dropping the value does not stop it.
///
/// A handle is the number of a slot, which another session gets when this one has ended, and a name can be given again. So
/// sessions are controlled by name, and each call asks first whether the session of this name has the GUID of this one.
#[derive(Debug)]
pub struct Session {
    /// For functions that take nothing else.
    handle: u64,
    /// Ended by a zero.
    name: Vec<u16>,
    guid: [u8; 16],
}

impl Session {
    /// Starts a session.
    ///
    /// # Errors
    /// That of `StartTraceW`: 5 access denied, 183 it exists, 1450 there are no more sessions, 87 a number is not allowed.
    pub fn start(settings: &StartSession<'_>) -> Result<Session, Error> {
        let name = to_wide(settings.name.as_ref())?;
        let file = settings.file.map(|file| to_wide(file.as_os_str())).transpose()?;
        let mut properties = Properties::new();
        properties.set_file(file.as_deref())?;
        let fixed = &mut properties.fixed;
        fixed.Wnode.Guid = guid_from_bytes(settings.guid);
        fixed.Wnode.ClientContext = settings.clock;
        fixed.LogFileMode = settings.mode;
        fixed.BufferSize = settings.buffer_size;
        fixed.MinimumBuffers = settings.minimum_buffers;
        fixed.MaximumBuffers = settings.maximum_buffers;
        fixed.FlushTimer = settings.flush_timer;
        fixed.EnableFlags = settings.enable_flags;
        let mut handle = CONTROLTRACE_HANDLE { Value: 0 };
        // SAFETY: the name ends with a zero, the block is as large as it says and has room for the name at the offset.
        let status = unsafe { StartTraceW(&mut handle, name.as_ptr(), properties.as_mut_ptr()) };
        check("StartTraceW", status)?;
        Ok(Session { handle: handle.Value, name, guid: settings.guid })
    }

    /// A session that somebody else has started.
    ///
    /// # Errors
    /// That of `ControlTraceW`: 4201 there is none of this name.
    pub fn attach(name: &str) -> Result<(Session, SessionState), Error> {
        let name = to_wide(name.as_ref())?;
        let mut properties = Properties::new();
        control(&name, EVENT_TRACE_CONTROL_QUERY, &mut properties)?;
        // SAFETY: a query leaves the session's handle in this union, which is a number in every form.
        let handle = unsafe { properties.fixed.Wnode.Anonymous1.HistoricalContext };
        let state = SessionState::of(&properties);
        Ok((Session { handle, name, guid: state.guid }, state))
    }

    /// Stops a session by its name, whosever it is. Gives what it said in the end.
    pub fn stop_by_name(name: &str) -> Result<SessionState, Error> {
        stop(&to_wide(name.as_ref())?)
    }

    /// Its handle, if it still runs.
    pub(super) fn handle(&self) -> Result<CONTROLTRACE_HANDLE, Error> {
        self.query()?;
        Ok(CONTROLTRACE_HANDLE { Value: self.handle })
    }

    /// What it says of itself.
    ///
    /// # Errors
    /// That of `ControlTraceW`: 4201 it has ended, also if another session has its name now.
    pub fn query(&self) -> Result<SessionState, Error> {
        let mut properties = Properties::new();
        control(&self.name, EVENT_TRACE_CONTROL_QUERY, &mut properties)?;
        let state = SessionState::of(&properties);
        if state.guid == self.guid {
            Ok(state)
        } else {
            check("ControlTraceW", NO_SUCH_SESSION).map(|()| state)
        }
    }

    /// Hands over all buffers that have something in them.
    pub fn flush(&self) -> Result<(), Error> {
        self.query()?;
        control(&self.name, EVENT_TRACE_CONTROL_FLUSH, &mut Properties::new())
    }

    /// Changes the most buffers there can be, and the flush timer in the unit the session was started with. The kernel's
    /// groups become those that have flags: they are to be set again.
    pub fn update(&self, maximum_buffers: u32, flush_timer: u32) -> Result<(), Error> {
        let SessionState { guid, mode, enable_flags, .. } = self.query()?;
        let mut properties = Properties::new();
        // The file stays what it is.
        properties.set_file(None)?;
        properties.fixed.Wnode.Guid = guid_from_bytes(guid);
        properties.fixed.LogFileMode = mode;
        properties.fixed.EnableFlags = enable_flags;
        properties.fixed.MaximumBuffers = maximum_buffers;
        properties.fixed.FlushTimer = flush_timer;
        control(&self.name, EVENT_TRACE_CONTROL_UPDATE, &mut properties)
    }

    /// Stops it. What is in its buffers is handed over. Gives what it said in the end.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn stop(&self) -> Result<SessionState, Error> {
        self.query()?;
        stop(&self.name)
    }

    /// The kernel events that get stacks: `CLASSIC_EVENT_ID`s.
    pub fn set_stacks(&self, events: &[[u8; 24]]) -> Result<(), Error> {
        set_information(self.handle()?, TraceStackTracingInfo, events)
    }

    /// The kernel's groups: eight words. Windows 8 and later.
    pub fn set_groups(&self, words: &[u32; 8]) -> Result<(), Error> {
        set_information(self.handle()?, TraceSystemTraceEnableFlagsInfo, words)
    }
}

/// `ERROR_WMI_INSTANCE_NOT_FOUND`.
pub(super) const NO_SUCH_SESSION: u32 = 4201;

/// Controls a session by its name, which ends with a zero.
fn control(name: &[u16], code: EVENT_TRACE_CONTROL, properties: &mut Properties) -> Result<(), Error> {
    let no_handle = CONTROLTRACE_HANDLE { Value: 0 };
    // SAFETY: the name ends with a zero, the block is as large as it says and has room for both names.
    let status = unsafe { ControlTraceW(no_handle, name.as_ptr(), properties.as_mut_ptr(), code) };
    check("ControlTraceW", status)
}

fn stop(name: &[u16]) -> Result<SessionState, Error> {
    let mut properties = Properties::new();
    control(name, EVENT_TRACE_CONTROL_STOP, &mut properties)?;
    Ok(SessionState::of(&properties))
}

/// The time between two samples in 100 ns, for the whole machine.
pub fn sample_interval() -> Result<u32, Error> {
    // The source is the timer.
    let mut settings = TRACE_PROFILE_INTERVAL { Source: 0, Interval: 0 };
    let (size, mut returned) = (size_of_val(&settings) as u32, 0);
    // SAFETY: so many bytes are there to be written.
    let status = unsafe {
        TraceQueryInformation(
            CONTROLTRACE_HANDLE { Value: 0 },
            TraceSampledProfileIntervalInfo,
            ptr::from_mut(&mut settings).cast(),
            size,
            &mut returned,
        )
    };
    check("TraceQueryInformation", status)?;
    Ok(settings.Interval)
}

/// Changes the time between two samples in 100 ns, for the whole machine and until it is changed again.
pub fn set_sample_interval(interval: u32) -> Result<(), Error> {
    // The source is the timer.
    let settings = [TRACE_PROFILE_INTERVAL { Source: 0, Interval: interval }];
    set_information(CONTROLTRACE_HANDLE { Value: 0 }, TraceSampledProfileIntervalInfo, &settings)
}

fn set_information<T>(
    handle: CONTROLTRACE_HANDLE,
    class: TRACE_QUERY_INFO_CLASS,
    values: &[T],
) -> Result<(), Error> {
    let (bytes, pointer) = (size_of_val(values) as u32, values.as_ptr().cast::<c_void>());
    // SAFETY: so many bytes are there and are only read.
    let status = unsafe { TraceSetInformation(handle, class, pointer, bytes) };
    check("TraceSetInformation", status)
}

/// All sessions that run.
pub fn list() -> Result<Vec<SessionState>, Error> {
    let mut room = SESSIONS;
    loop {
        let mut blocks: Vec<Box<Properties>> = (0..room).map(|_| Properties::new()).collect();
        let mut pointers: Vec<*mut EVENT_TRACE_PROPERTIES> =
            blocks.iter_mut().map(|block| block.as_mut_ptr()).collect();
        let mut found = 0;
        // SAFETY: so many pointers are there, each to a block as large as it says with room for both names.
        let status = unsafe { QueryAllTracesW(pointers.as_mut_ptr(), room as u32, &mut found) };
        if status == ERROR_MORE_DATA && found as usize > room {
            room = found as usize;
            continue;
        }
        check("QueryAllTracesW", status)?;
        return Ok(blocks.iter().take(found as usize).map(|block| SessionState::of(block)).collect());
    }
}

pub(super) fn guid_from_bytes(bytes: [u8; 16]) -> GUID {
    let [a, b, c, d, e, f, g, h, data4 @ ..] = bytes;
    GUID {
        data1: u32::from_le_bytes([a, b, c, d]),
        data2: u16::from_le_bytes([e, f]),
        data3: u16::from_le_bytes([g, h]),
        data4,
    }
}

fn guid_to_bytes(guid: &GUID) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&guid.data1.to_le_bytes());
    bytes[4..6].copy_from_slice(&guid.data2.to_le_bytes());
    bytes[6..8].copy_from_slice(&guid.data3.to_le_bytes());
    bytes[8..].copy_from_slice(&guid.data4);
    bytes
}
