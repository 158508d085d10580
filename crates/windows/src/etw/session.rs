//! Control of sessions: start, query, flush, update and stop.

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

/// The initial size of the list of sessions. The query is repeated if there are more.
const SESSIONS: usize = 64;

/// The settings of a new session; see Microsoft's page "EVENT_TRACE_PROPERTIES structure".
#[derive(Clone, Debug)]
pub struct StartSession<'a> {
    /// The name of the session.
    pub name: &'a str,
    /// The file that the session writes, if any.
    pub file: Option<&'a Path>,
    /// The bytes of `Wnode.Guid`.
    pub guid: [u8; 16],
    /// `Wnode.ClientContext`: the clock.
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

/// The state of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionState {
    /// The name of the session.
    pub name: String,
    /// The file that the session writes; empty if none.
    pub file: String,
    /// The bytes of `Wnode.Guid`.
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
    /// The number of buffers.
    pub buffers: u32,
    /// The number of unused buffers.
    pub free_buffers: u32,
    /// Events for which there was no buffer.
    pub events_lost: u32,
    /// Buffers that were written to the file or delivered.
    pub buffers_written: u32,
    /// Buffers that could not be written to the file.
    pub log_buffers_lost: u32,
    /// Buffers that could not be delivered.
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
/// A handle is the number of a slot, which another session gets when this one has ended, and a name
/// can be reused. Therefore sessions are controlled by name, and each call first checks whether the
/// session of this name has the GUID of this one.
#[derive(Debug)]
pub struct Session {
    /// For functions that accept only a handle.
    handle: u64,
    /// Zero-terminated.
    name: Vec<u16>,
    guid: [u8; 16],
}

impl Session {
    /// Starts a session.
    ///
    /// # Errors
    /// The error of `StartTraceW`: 5 access denied, 183 the session exists, 1450 no more sessions,
    /// 87 a number is not allowed.
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
        // SAFETY: the name is zero-terminated, the block has the stated size and space for the name
        // at the offset.
        let status = unsafe { StartTraceW(&mut handle, name.as_ptr(), properties.as_mut_ptr()) };
        check("StartTraceW", status)?;
        Ok(Session { handle: handle.Value, name, guid: settings.guid })
    }

    /// Attaches to a session that another program started.
    ///
    /// # Errors
    /// The error of `ControlTraceW`: 4201 no session of this name.
    pub fn attach(name: &str) -> Result<(Session, SessionState), Error> {
        let name = to_wide(name.as_ref())?;
        let mut properties = Properties::new();
        control(&name, EVENT_TRACE_CONTROL_QUERY, &mut properties)?;
        // SAFETY: a query writes the handle of the session to this union, which is a number in
        // every form.
        let handle = unsafe { properties.fixed.Wnode.Anonymous1.HistoricalContext };
        let state = SessionState::of(&properties);
        Ok((Session { handle, name, guid: state.guid }, state))
    }

    /// Stops a session by its name, even if another program started it. Returns its last state.
    pub fn stop_by_name(name: &str) -> Result<SessionState, Error> {
        stop(&to_wide(name.as_ref())?)
    }

    /// The handle of the session, if it is still running.
    pub(super) fn handle(&self) -> Result<CONTROLTRACE_HANDLE, Error> {
        self.query()?;
        Ok(CONTROLTRACE_HANDLE { Value: self.handle })
    }

    /// The state of the session.
    ///
    /// # Errors
    /// The error of `ControlTraceW`: 4201 the session has ended, even if another session has its
    /// name now.
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

    /// Requests delivery of all buffers that contain events.
    pub fn flush(&self) -> Result<(), Error> {
        self.query()?;
        control(&self.name, EVENT_TRACE_CONTROL_FLUSH, &mut Properties::new())
    }

    /// Changes the maximum number of buffers, and the flush timer in the unit that the session was
    /// started with. The kernel groups are reset to those that have flags, and must be set again.
    pub fn update(&self, maximum_buffers: u32, flush_timer: u32) -> Result<(), Error> {
        let SessionState { guid, mode, enable_flags, .. } = self.query()?;
        let mut properties = Properties::new();
        // The file is not changed.
        properties.set_file(None)?;
        properties.fixed.Wnode.Guid = guid_from_bytes(guid);
        properties.fixed.LogFileMode = mode;
        properties.fixed.EnableFlags = enable_flags;
        properties.fixed.MaximumBuffers = maximum_buffers;
        properties.fixed.FlushTimer = flush_timer;
        control(&self.name, EVENT_TRACE_CONTROL_UPDATE, &mut properties)
    }

    /// Stops the session. The content of its buffers is delivered. Returns its last state.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn stop(&self) -> Result<SessionState, Error> {
        self.query()?;
        stop(&self.name)
    }

    /// Sets the kernel events that get stacks: `CLASSIC_EVENT_ID`s.
    pub fn set_stacks(&self, events: &[[u8; 24]]) -> Result<(), Error> {
        set_information(self.handle()?, TraceStackTracingInfo, events)
    }

    /// Sets the kernel groups: eight words. Windows 8 and later.
    pub fn set_groups(&self, words: &[u32; 8]) -> Result<(), Error> {
        set_information(self.handle()?, TraceSystemTraceEnableFlagsInfo, words)
    }
}

/// `ERROR_WMI_INSTANCE_NOT_FOUND`.
pub(super) const NO_SUCH_SESSION: u32 = 4201;

/// Controls a session by its zero-terminated name.
fn control(name: &[u16], code: EVENT_TRACE_CONTROL, properties: &mut Properties) -> Result<(), Error> {
    let no_handle = CONTROLTRACE_HANDLE { Value: 0 };
    // SAFETY: the name is zero-terminated, the block has the stated size and space for both names.
    let status = unsafe { ControlTraceW(no_handle, name.as_ptr(), properties.as_mut_ptr(), code) };
    check("ControlTraceW", status)
}

fn stop(name: &[u16]) -> Result<SessionState, Error> {
    let mut properties = Properties::new();
    control(name, EVENT_TRACE_CONTROL_STOP, &mut properties)?;
    Ok(SessionState::of(&properties))
}

/// The sampling interval in 100 ns, for the whole machine.
pub fn sample_interval() -> Result<u32, Error> {
    // The source is the timer.
    let mut settings = TRACE_PROFILE_INTERVAL { Source: 0, Interval: 0 };
    let (size, mut returned) = (size_of_val(&settings) as u32, 0);
    // SAFETY: the structure has the given size.
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

/// Sets the sampling interval in 100 ns, for the whole machine, until it is changed again.
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
    // SAFETY: the slice has the given size and is only read.
    let status = unsafe { TraceSetInformation(handle, class, pointer, bytes) };
    check("TraceSetInformation", status)
}

/// All running sessions.
pub fn list() -> Result<Vec<SessionState>, Error> {
    let mut capacity = SESSIONS;
    loop {
        let mut blocks: Vec<Box<Properties>> = (0..capacity).map(|_| Properties::new()).collect();
        let mut pointers: Vec<*mut EVENT_TRACE_PROPERTIES> =
            blocks.iter_mut().map(|block| block.as_mut_ptr()).collect();
        let mut found = 0;
        // SAFETY: the array has the given number of pointers, each to a block of the stated size
        // with space for both names.
        let status = unsafe { QueryAllTracesW(pointers.as_mut_ptr(), capacity as u32, &mut found) };
        if status == ERROR_MORE_DATA && found as usize > capacity {
            capacity = found as usize;
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
