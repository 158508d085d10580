//! Receiving the events of a live session.
//!
//! A trace is opened, described and then run: the clock and sizes of the session are known before
//! the first event arrives, so that a [`Sink`] can be created for it. Windows calls back only on
//! the thread that processes the trace, which this module starts. The sink belongs to that thread,
//! which drops it when no call can follow.

use std::any::Any;
use std::ffi::c_void;
use std::mem;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::ERROR_CANCELLED;
use windows_sys::Win32::System::Diagnostics::Etw::{
    CloseTrace, ETW_BUFFER_CALLBACK_INFORMATION, ETW_BUFFER_HEADER, ETW_OPEN_TRACE_OPTIONS,
    ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP, EVENT_RECORD, EVENT_TRACE_LOGFILEW, OpenTraceW,
    PROCESS_TRACE_MODE_EVENT_RECORD, PROCESS_TRACE_MODE_RAW_TIMESTAMP, PROCESS_TRACE_MODE_REAL_TIME,
    PROCESSTRACE_HANDLE, ProcessTrace, TRACE_LOGFILE_HEADER,
};
use windows_sys::Win32::System::LibraryLoader::{
    GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW,
};
use windows_sys::core::{BOOL, PCWSTR, s, w};

use super::session::NO_SUCH_SESSION;
use super::view::{self, Sink};
use crate::Error;
use crate::error::check;
use crate::text::to_wide;

/// `INVALID_PROCESSTRACE_HANDLE`.
const INVALID: u64 = u64::MAX;

/// The time that a stopped session has to deliver its last buffers. After that, the trace is
/// closed, which ends the processing in any case.
const DRAIN_MAX: Duration = Duration::from_secs(30);

type OpenRealTime =
    unsafe extern "system" fn(PCWSTR, *const ETW_OPEN_TRACE_OPTIONS, *mut TRACE_LOGFILE_HEADER) -> u64;

/// How events are delivered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Delivery {
    /// Event by event.
    #[default]
    Events,
    /// Whole buffers if the system supports it (Windows 11, Windows Server 2022), otherwise events.
    /// Never run on Windows.
    WholeBuffers,
}

/// The description of the session when it is opened (`TRACE_LOGFILE_HEADER`), without fields that
/// are known to be wrong in such headers (a pointer size of 4 on 64-bit Windows), and without those
/// that the session itself reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogfileFacts {
    /// Windows version, major and minor; log layout version, major and minor.
    pub version: [u8; 4],
    /// Windows build.
    pub build: u32,
    /// Number of processors; 0 if it is not stated.
    pub processors: u32,
    /// Clock interrupt period in 100 ns.
    pub timer_resolution: u32,
    /// Buffers written so far.
    pub buffers_written: u32,
    /// Events lost so far.
    pub events_lost: u32,
    /// Processor speed in MHz.
    pub cpu_mhz: u32,
    /// Boot time of the machine: 100 ns since 1601.
    pub boot_time: i64,
    /// Ticks of the performance counter per second.
    pub perf_freq: i64,
    /// Start time of the session: 100 ns since 1601.
    pub start_time: i64,
    /// Clock of time stamps: 1 performance counter, 2 system time, 3 processor cycles.
    pub clock_type: u32,
    /// Buffers lost so far.
    pub buffers_lost: u32,
    /// Minutes to add to local time to get UTC.
    pub utc_bias: i32,
}

impl LogfileFacts {
    fn of(header: &TRACE_LOGFILE_HEADER) -> LogfileFacts {
        // SAFETY: all forms of the union are numbers.
        let version = unsafe { header.Anonymous1.Version };
        // SAFETY: all forms of the union are numbers, or a GUID.
        let of_file = unsafe { header.Anonymous2.Anonymous };
        LogfileFacts {
            version: version.to_le_bytes(),
            build: header.ProviderVersion,
            processors: header.NumberOfProcessors,
            timer_resolution: header.TimerResolution,
            buffers_written: header.BuffersWritten,
            events_lost: of_file.EventsLost,
            cpu_mhz: of_file.CpuSpeedInMHz,
            boot_time: header.BootTime,
            perf_freq: header.PerfFreq,
            start_time: header.StartTime,
            clock_type: header.ReservedFlags,
            buffers_lost: header.BuffersLost,
            utc_bias: header.TimeZone.Bias,
        }
    }
}

/// The state of the callbacks. Created when a trace is opened; then only the processing thread uses
/// it.
struct Context<S> {
    sink: Option<S>,
    /// No more events are wanted.
    stopped: bool,
    panicked: Option<Box<dyn Any + Send>>,
    shared: Arc<Shared>,
}

/// State that both threads use.
#[derive(Debug, Default)]
struct Shared {
    events: AtomicU64,
    buffers: AtomicU64,
    /// The sink wants no more events.
    broke: AtomicBool,
}

/// A context that Windows accesses by its address, as long as callbacks can occur.
struct Owned<S>(*mut Context<S>);

// SAFETY: it owns the context, whose parts are `Send`; only callbacks use it, on the thread that
// owns it.
unsafe impl<S: Sink> Send for Owned<S> {}

impl<S> Owned<S> {
    fn new() -> Owned<S> {
        let context =
            Context { sink: None, stopped: false, panicked: None, shared: Arc::new(Shared::default()) };
        Owned(Box::into_raw(Box::new(context)))
    }

    /// Must not be called while callbacks can occur, because the value would be borrowed twice.
    fn get(&mut self) -> &mut Context<S> {
        // SAFETY: created by a box, freed when `self` is dropped, and borrowed as long as `self`
        // is.
        unsafe { &mut *self.0 }
    }
}

impl<S> Drop for Owned<S> {
    fn drop(&mut self) {
        // SAFETY: created by a box, and freed only here.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<S: Sink> Context<S> {
    /// Calls the sink, catches panics, and returns whether to continue.
    fn give(&mut self, take: impl FnOnce(&mut S) -> ControlFlow<()>) -> bool {
        if self.stopped {
            return false;
        }
        let Some(sink) = &mut self.sink else { return false };
        // After a panic the sink is only dropped.
        match catch_unwind(AssertUnwindSafe(|| take(sink))) {
            Ok(ControlFlow::Continue(())) => return true,
            Ok(ControlFlow::Break(())) => {}
            Err(panic) => self.panicked = Some(panic),
        }
        self.stopped = true;
        self.shared.broke.store(true, Ordering::Release);
        false
    }
}

unsafe extern "system" fn on_event<S: Sink>(record: *mut EVENT_RECORD) {
    // SAFETY: ETW passes a record that is not used otherwise until this function returns.
    let record = unsafe { &*record };
    // SAFETY: the context that was passed when the trace was opened. It exists until processing has
    // ended, and callbacks occur one after the other on one thread.
    let context = unsafe { &mut *record.UserContext.cast::<Context<S>>() };
    context.shared.events.fetch_add(1, Ordering::Relaxed);
    context.give(|sink| {
        // SAFETY: the record comes from ETW, see above.
        unsafe { view::with_view(record, |event| sink.event(event)) }
    });
}

unsafe extern "system" fn on_buffer_done<S: Sink>(logfile: *mut EVENT_TRACE_LOGFILEW) -> u32 {
    // SAFETY: ETW passes a structure that is not used otherwise until this function returns.
    let context = unsafe { (*logfile).Context };
    // SAFETY: as in `on_event`.
    let context = unsafe { &mut *context.cast::<Context<S>>() };
    context.shared.buffers.fetch_add(1, Ordering::Relaxed);
    context.give(Sink::buffer_done).into()
}

unsafe extern "system" fn on_raw_buffer<S: Sink>(
    buffer: *const ETW_BUFFER_HEADER,
    size: u32,
    _: *const ETW_BUFFER_CALLBACK_INFORMATION,
    context: *const c_void,
) -> BOOL {
    // SAFETY: as in `on_event`.
    let context = unsafe { &mut *context.cast_mut().cast::<Context<S>>() };
    context.shared.buffers.fetch_add(1, Ordering::Relaxed);
    // The sink copies the bytes. A reference to ETW's buffer
    // (`ProcessTraceBufferIncrementReference`) would have to be released before the trace is
    // closed, while readers keep blocks for any time.
    // SAFETY: ETW passes a buffer of this size that does not change until this function returns.
    let bytes = unsafe { view::slice_of(buffer.cast::<u8>(), size as usize) };
    context.give(|sink| sink.raw_buffer(bytes)).into()
}

/// An open trace that is not processed yet. Dropping the value closes it.
pub struct Opened<S: Sink> {
    // Closed before the context is dropped.
    trace: Trace,
    context: Owned<S>,
    facts: LogfileFacts,
    raw: bool,
}

impl<S: Sink> std::fmt::Debug for Opened<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("facts", &self.facts).field("raw", &self.raw).finish_non_exhaustive()
    }
}

/// A handle that is closed once.
#[derive(Debug)]
struct Trace {
    handle: u64,
    open: bool,
}

impl Trace {
    fn close(&mut self) {
        if mem::take(&mut self.open) {
            // A pending close, and a session that ended before, count as closed.
            // SAFETY: the handle was opened, and is closed only here.
            unsafe { CloseTrace(PROCESSTRACE_HANDLE { Value: self.handle }) };
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the running session of this name, with raw timestamps.
///
/// # Errors
/// The error of `OpenTraceW`: 5 access denied, 4201 no session of this name.
pub fn open<S: Sink>(name: &str, delivery: Delivery) -> Result<Opened<S>, Error> {
    let name = to_wide(name.as_ref())?;
    let context = Owned::<S>::new();
    let whole_buffers =
        if delivery == Delivery::WholeBuffers { open_for_buffers(&name, &context) } else { None };
    let (handle, facts) = open_for_events(name, &context)?;
    let events = Trace { handle, open: true };
    // The function for whole buffers accepts either a name or an output for these facts, so the
    // other function is used to get them.
    let (trace, raw) = match whole_buffers {
        Some(trace) => (trace, true),
        None => (events, false),
    };
    Ok(Opened { trace, context, facts, raw })
}

/// `None` if the system does not have the function or refuses it. Events are then delivered one by
/// one.
///
/// The function is an export of sechost.dll. Import libraries reference advapi32.dll, which neither
/// has nor forwards it (microsoft/windows-rs, issue 4706).
fn open_for_buffers<S: Sink>(name: &[u16], context: &Owned<S>) -> Option<Trace> {
    // SAFETY: the name is zero-terminated. The library stays loaded: nothing unloads it.
    let library = unsafe { LoadLibraryExW(w!("sechost.dll"), ptr::null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the name is zero-terminated, the library is loaded.
    let found = unsafe { GetProcAddress(library, s!("OpenTraceFromRealTimeLogger")) }?;
    // SAFETY: the function of this name has this signature (evntrace.h).
    let open = unsafe { mem::transmute::<*const c_void, OpenRealTime>(found as *const c_void) };
    let options = ETW_OPEN_TRACE_OPTIONS {
        ProcessTraceModes: ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP,
        EventCallback: None,
        EventCallbackContext: ptr::null_mut(),
        BufferCallback: Some(on_raw_buffer::<S>),
        BufferCallbackContext: context.0.cast(),
    };
    // SAFETY: the name is zero-terminated; the options are only read. The context outlives the
    // processing, and no callback occurs before it begins.
    let handle = unsafe { open(name.as_ptr(), &options, ptr::null_mut()) };
    (handle != INVALID).then_some(Trace { handle, open: true })
}

fn open_for_events<S: Sink>(mut name: Vec<u16>, context: &Owned<S>) -> Result<(u64, LogfileFacts), Error> {
    let mut logfile = EVENT_TRACE_LOGFILEW {
        LoggerName: name.as_mut_ptr(),
        BufferCallback: Some(on_buffer_done::<S>),
        Context: context.0.cast(),
        ..EVENT_TRACE_LOGFILEW::default()
    };
    logfile.Anonymous1.ProcessTraceMode =
        PROCESS_TRACE_MODE_REAL_TIME | PROCESS_TRACE_MODE_EVENT_RECORD | PROCESS_TRACE_MODE_RAW_TIMESTAMP;
    logfile.Anonymous2.EventRecordCallback = Some(on_event::<S>);
    // SAFETY: the name is zero-terminated and outlives the call. The context outlives the
    // processing, and no callback occurs before it begins.
    let handle = unsafe { OpenTraceW(&mut logfile) };
    if handle.Value == INVALID {
        return Err(Error::last("OpenTraceW"));
    }
    Ok((handle.Value, LogfileFacts::of(&logfile.LogfileHeader)))
}

impl<S: Sink> Opened<S> {
    /// The description of the session.
    pub fn facts(&self) -> &LogfileFacts {
        &self.facts
    }

    /// Whether whole buffers are delivered instead of events.
    pub fn by_buffers(&self) -> bool {
        self.raw
    }

    /// Starts the thread that receives events.
    pub fn run(self, sink: S) -> Result<Consumer, Error> {
        let Opened { trace, mut context, raw, .. } = self;
        context.get().sink = Some(sink);
        let shared = context.get().shared.clone();
        let handle = trace.handle;
        let thread = thread::Builder::new()
            .name("etw".into())
            .spawn(move || process(handle, context))
            .map_err(Error::Thread)?;
        Ok(Consumer { trace, thread: Some(thread), shared, raw })
    }
}

/// Runs until the session has ended, the trace is closed, or the sink breaks.
fn process<S: Sink>(handle: u64, mut context: Owned<S>) -> Result<(), Error> {
    let handle = PROCESSTRACE_HANDLE { Value: handle };
    // SAFETY: one open handle and no times are passed. The context exists until the end of this
    // function, and no callback occurs after this call has returned.
    let status = unsafe { ProcessTrace(&handle, 1, ptr::null(), ptr::null()) };
    let context = context.get();
    context.give(Sink::buffer_done);
    let panicked = context.panicked.take();
    // The sink is dropped here, on its thread. Its destructor may panic as well.
    let sink = context.sink.take();
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(sink)));
    match panicked.or(dropped.err()) {
        Some(panic) => Err(Error::Panicked(message(panic.as_ref()))),
        // The sink broke, which Windows reports as cancelled.
        None if context.stopped && status == ERROR_CANCELLED => Ok(()),
        None => check("ProcessTrace", status),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// How the session ends for its consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The session was stopped. Processing ends by itself after the last event.
    Stopped,
    /// The session continues, but its events are no longer received. Events that were delivered
    /// before still arrive.
    GoesOn,
}

/// A thread that receives events. Dropping the value stops receiving, waits for the last event and
/// ends the thread.
#[derive(Debug)]
pub struct Consumer {
    trace: Trace,
    thread: Option<JoinHandle<Result<(), Error>>>,
    shared: Arc<Shared>,
    raw: bool,
}

impl Consumer {
    /// The number of events that were delivered one by one.
    pub fn events(&self) -> u64 {
        self.shared.events.load(Ordering::Relaxed)
    }

    /// The number of buffers that were delivered.
    pub fn buffers(&self) -> u64 {
        self.shared.buffers.load(Ordering::Relaxed)
    }

    /// Whether whole buffers are delivered instead of events.
    pub fn by_buffers(&self) -> bool {
        self.raw
    }

    /// Whether the sink broke, or no more events will arrive for another reason.
    pub fn has_ended(&self) -> bool {
        self.shared.broke.load(Ordering::Acquire) || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops receiving, without waiting. Events that were delivered before still arrive.
    pub fn close(&mut self) {
        self.trace.close();
    }

    /// Waits until the last event was received. No call follows, and the sink is dropped.
    ///
    /// # Errors
    /// The error with which processing ended; [`Error::Panicked`] if the sink panicked.
    pub fn finish(mut self, ended: Ended) -> Result<(), Error> {
        self.end(ended)
    }

    fn end(&mut self, ended: Ended) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        if ended == Ended::Stopped && !self.shared.broke.load(Ordering::Acquire) {
            let begin = Instant::now();
            while !thread.is_finished() && begin.elapsed() < DRAIN_MAX {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let by_us = !self.trace.open || !thread.is_finished();
        self.trace.close();
        let outcome = thread.join().unwrap_or_else(|panic| Err(Error::Panicked(message(panic.as_ref()))));
        match outcome {
            // The session ended before its consumer.
            Err(Error::Call { source, .. }) if source.raw_os_error() == Some(NO_SUCH_SESSION as i32) => {
                Ok(())
            }
            // The trace was closed before processing had begun.
            Err(Error::Call { source, .. }) if by_us && source.raw_os_error() == Some(INVALID_HANDLE) => {
                Ok(())
            }
            other => other,
        }
    }
}

/// `ERROR_INVALID_HANDLE`.
const INVALID_HANDLE: i32 = 6;

impl Drop for Consumer {
    fn drop(&mut self) {
        // Errors cannot be reported here.
        let _ = self.end(Ended::GoesOn);
    }
}
