//! Opens sessions for consumers, and delivers their events.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stackhound_etl::{EtlFile, LogFileMode};
use stackhound_trace::TraceFiles;
use windows_sys::Win32::System::Diagnostics::Etw::{
    ETW_BUFFER_CALLBACK_INFORMATION, ETW_BUFFER_HEADER, ETW_OPEN_TRACE_OPTIONS, EVENT_TRACE_LOGFILEW,
    PROCESS_TRACE_MODE_EVENT_RECORD, PROCESS_TRACE_MODE_RAW_TIMESTAMP, PROCESS_TRACE_MODE_REAL_TIME,
    TRACE_LOGFILE_HEADER,
};

use crate::feed::{Counters, Feed, Limits, Next};
use crate::harness::ALL_DELIVERED;
use crate::properties::REAL_TIME;
use crate::raw;
use crate::replay::{Order, Replay, Slice};
use crate::settings::{SessionSettings, Settings};

use super::log::log;
use super::sessions::{self, Running, changed, lock};
use super::{buffers, code, pointers};

mod events;
mod header;
mod memory;

use events::Events;

/// The callbacks of a consumer.
#[derive(Clone)]
enum Callbacks {
    /// Events, and a call after each buffer, with a copy of the consumer's structure.
    Events(Box<EVENT_TRACE_LOGFILEW>),
    /// Whole buffers.
    Raw(ETW_OPEN_TRACE_OPTIONS, Box<TRACE_LOGFILE_HEADER>),
}

/// An opened session.
struct Trace {
    running: Arc<Running>,
    settings: SessionSettings,
    etl_file: Option<EtlFile>,
    callbacks: Callbacks,
    /// The consumer has called CloseTrace.
    closing: AtomicBool,
    processing: AtomicBool,
}

// SAFETY: the pointers inside are those of the consumer, and are passed only to its callbacks.
unsafe impl Send for Trace {}
// SAFETY: see above; mutable fields are atomic.
unsafe impl Sync for Trace {}

#[derive(Default)]
struct Traces {
    open: HashMap<u64, Arc<Trace>>,
    last_handle: u64,
}

/// Minimum time that a session runs after the last call that configured it, even if its trace has
/// ended.
const SET_UP: Duration = Duration::from_millis(500);

/// Interval at which the memory usage of the process is logged.
const MEMORY_EVERY: Duration = Duration::from_millis(500);

fn log_memory(begin: Instant) {
    let (now, peak) = memory::of_process();
    let milliseconds = begin.elapsed().as_millis();
    log(format_args!("memory ms={milliseconds} resident_kib={} peak_kib={}", now / 1024, peak / 1024));
}

static TRACES: Mutex<Option<Traces>> = Mutex::new(None);

fn with<T>(use_them: impl FnOnce(&mut Traces) -> T) -> T {
    use_them(lock(&TRACES).get_or_insert_default())
}

impl Traces {
    fn add(&mut self, trace: Trace) -> u64 {
        self.last_handle += 1;
        let handle = 0x7ace_0000 + self.last_handle;
        self.open.insert(handle, Arc::new(trace));
        handle
    }
}

const SHARED: LogFileMode = LogFileMode::NO_PER_PROCESSOR_BUFFERING;

/// The trace that a session delivers.
fn etl_file_of(settings: &SessionSettings) -> Option<EtlFile> {
    let path = settings.etl_file.as_ref()?;
    let opened = TraceFiles::file(path).open();
    let opened = opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(opened.sources()[0].etl_file.clone())
}

/// The session, unless the settings contain an error for the function. A session that is not
/// running can be opened: Microsoft documents an error for it in ProcessTrace, but not in
/// OpenTrace.
fn session(function: &str, name: &str) -> Result<(Arc<Running>, SessionSettings, Option<EtlFile>), u32> {
    let settings = Settings::of_environment();
    if let Some(code) = settings.error(function, name) {
        return Err(code);
    }
    let running = sessions::find(0, name).unwrap_or_else(|| sessions::not_running(name));
    let settings = settings.session(name);
    let etl_file = etl_file_of(&settings);
    // The trace determines whether each processor has its own buffers.
    if etl_file.as_ref().is_some_and(|etl_file| etl_file.session().mode.has(SHARED)) {
        lock(&running.session).mode |= SHARED.0;
    }
    Ok((running, settings, etl_file))
}

/// OpenTraceW.
///
/// # Safety
/// `logfile` is null or points to a valid block.
pub(super) unsafe fn open(logfile: *mut EVENT_TRACE_LOGFILEW) -> Result<u64, u32> {
    // SAFETY: guaranteed by the caller.
    let Some(mut opened) = (unsafe { pointers::copy(logfile) }) else { return Err(code::INVALID_PARAMETER) };
    // SAFETY: guaranteed by the caller.
    let name = unsafe { pointers::text(opened.LoggerName) };
    // SAFETY: both members of the union are plain numbers.
    let mode = unsafe { opened.Anonymous1.ProcessTraceMode };
    let result = (|| {
        if name.is_empty() {
            return Err(code::INVALID_PARAMETER);
        }
        // The fake does not support files and the older kind of callback.
        let required = PROCESS_TRACE_MODE_EVENT_RECORD | PROCESS_TRACE_MODE_REAL_TIME;
        if mode & required != required {
            return Err(code::NOT_SUPPORTED);
        }
        let (running, settings, etl_file) = session("OpenTraceW", &name)?;
        opened.LogfileHeader = header::of(lock(&running.session).clock, etl_file.as_ref());
        opened.IsKernelTrace = u32::from(lock(&running.session).flags != 0);
        let trace = Trace {
            running,
            settings,
            etl_file,
            callbacks: Callbacks::Events(Box::new(opened)),
            closing: AtomicBool::new(false),
            processing: AtomicBool::new(false),
        };
        Ok(with(|traces| traces.add(trace)))
    })();
    if result.is_ok() {
        // SAFETY: guaranteed by the caller; not null, because it was read above.
        unsafe { logfile.write_unaligned(opened) };
    }
    log(format_args!("OpenTraceW {name:?} mode={mode:#x} -> {}", result.err().unwrap_or(code::SUCCESS)));
    result
}

/// OpenTraceFromRealTimeLogger, for raw buffers only. `wants_header` is refused: according to
/// Microsoft, the name must be null then, so that the fake could not identify the session.
pub(super) fn open_real_time(
    name: &str,
    options: Option<ETW_OPEN_TRACE_OPTIONS>,
    wants_header: bool,
) -> Result<u64, u32> {
    let result = (|| {
        let options = options.ok_or(code::INVALID_PARAMETER)?;
        if name.is_empty() || wants_header || options.BufferCallback.is_none() {
            return Err(code::INVALID_PARAMETER);
        }
        if options.EventCallback.is_some() {
            return Err(code::NOT_SUPPORTED);
        }
        let (running, settings, etl_file) = session("OpenTraceFromRealTimeLogger", name)?;
        let header = header::of(lock(&running.session).clock, etl_file.as_ref());
        let trace = Trace {
            running,
            settings,
            etl_file,
            callbacks: Callbacks::Raw(options, Box::new(header)),
            closing: AtomicBool::new(false),
            processing: AtomicBool::new(false),
        };
        Ok(with(|traces| traces.add(trace)))
    })();
    let code = result.as_ref().err().copied().unwrap_or(code::SUCCESS);
    let modes = options.map(|options| options.ProcessTraceModes);
    log(format_args!("OpenTraceFromRealTimeLogger {name:?} modes={modes:?} -> {code}"));
    result
}

/// CloseTrace.
pub(super) fn close(handle: u64) -> u32 {
    let result = with(|traces| {
        let Some(trace) = traces.open.get(&handle) else { return code::INVALID_HANDLE };
        if trace.processing.load(Ordering::SeqCst) {
            trace.closing.store(true, Ordering::SeqCst);
            return code::CTX_CLOSE_PENDING;
        }
        traces.open.remove(&handle);
        code::SUCCESS
    });
    changed();
    log(format_args!("CloseTrace handle={handle:#x} -> {result}"));
    result
}

/// ProcessTrace.
///
/// # Safety
/// The callbacks of the trace and their context are valid until this returns.
pub(super) unsafe fn process(handle: u64) -> u32 {
    let found = with(|traces| {
        let trace = traces.open.get(&handle)?.clone();
        (!trace.processing.swap(true, Ordering::SeqCst)).then_some(trace)
    });
    let Some(trace) = found else { return code::INVALID_HANDLE };
    let name = lock(&trace.running.session).name.clone();
    log(format_args!("ProcessTrace {name:?} begins"));
    // For a session without real-time delivery, Windows returns the same error as for an unknown
    // one.
    let is_real_time = lock(&trace.running.session).mode & REAL_TIME != 0;
    // SAFETY: guaranteed by the caller.
    let result = if is_real_time { unsafe { trace.run(handle) } } else { code::WMI_INSTANCE_NOT_FOUND };
    with(|traces| {
        trace.processing.store(false, Ordering::SeqCst);
        if trace.closing.load(Ordering::SeqCst) {
            traces.open.remove(&handle);
        }
    });
    let Counters { generated, delivered, events_lost, buffers_lost, buffers, notices } =
        *lock(&trace.running.counters);
    log(format_args!(
        "ProcessTrace {name:?} generated={generated} delivered={delivered} events_lost={events_lost} \
         buffers_lost={buffers_lost} buffers={buffers} notices={notices} -> {result}"
    ));
    result
}

impl Trace {
    fn feed(&self) -> Option<Feed> {
        let etl_file = self.etl_file.clone()?;
        let disorder_ms = self.settings.disorder_ms.unwrap_or(500);
        let disorder = etl_file.clock().span_to_raw(disorder_ms as i64 * 10_000);
        let rounds = match self.settings.rounds {
            Some(0) => None,
            rounds => rounds.or(Some(1)),
        };
        let replay = Replay::new(etl_file, Order { seed: self.settings.seed, disorder, rounds });
        let requested = lock(&self.running.session).maximum_buffers as usize;
        let limits = Limits {
            rate: self.settings.rate,
            buffers: if self.settings.buffers == 0 { requested } else { self.settings.buffers },
            lose_every: self.settings.lose_every,
            stop_after: self.settings.stop_after,
            raw: matches!(self.callbacks, Callbacks::Raw(..)),
        };
        Some(Feed::new(replay, limits))
    }

    /// Delivers the trace until the session is stopped or the consumer ends processing.
    ///
    /// # Safety
    /// As for [`process`].
    unsafe fn run(&self, handle: u64) -> u32 {
        let begin = Instant::now();
        let mut feed = self.feed();
        let mut delivery = Delivery::new(self, handle);
        let mut logged = begin;
        let mut all_delivered = false;
        loop {
            if logged.elapsed() >= MEMORY_EVERY {
                logged = Instant::now();
                log_memory(begin);
            }
            let ends = self.running.is_stopped() || self.closing.load(Ordering::SeqCst);
            let next = match &mut feed {
                Some(feed) => feed.next(begin.elapsed(), ends),
                None => Next::End,
            };
            if let Some(feed) = &feed {
                *lock(&self.running.counters) = feed.counters();
            }
            match next {
                Next::Slice(slice, _) => {
                    self.delay(delivery.buffers_read);
                    let slices = self.with_others(slice, feed.as_mut(), begin);
                    // SAFETY: guaranteed by the caller.
                    if !unsafe { delivery.slices(&slices) } {
                        self.settle(handle);
                        return code::CANCELLED;
                    }
                }
                Next::Wait(due) => sessions::wait(due.saturating_sub(begin.elapsed())),
                Next::End if ends => break,
                Next::End
                    if feed.is_none()
                        || self.settings.waits_at_end
                        || sessions::time_since_control() < SET_UP =>
                {
                    // Tests that end the session wait for this line.
                    if feed.is_some() && !std::mem::replace(&mut all_delivered, true) {
                        log(format_args!("{ALL_DELIVERED} {:?}", lock(&self.running.session).name));
                    }
                    sessions::wait(Duration::MAX);
                }
                Next::End => {
                    self.running.stop();
                }
            }
        }
        self.settle(handle);
        code::SUCCESS
    }

    /// The buffer, with those of other processors that are available at the same time, at most one
    /// for each processor. Raw buffers are delivered one by one.
    fn with_others(&self, first: Slice, feed: Option<&mut Feed>, begin: Instant) -> Vec<Slice> {
        let mut slices = vec![first];
        let Some(feed) = feed.filter(|_| matches!(self.callbacks, Callbacks::Events(_))) else {
            return slices;
        };
        let processors = self.etl_file.as_ref().map_or(1, |etl_file| etl_file.session().processors as usize);
        while slices.len() < processors {
            let ends = self.running.is_stopped() || self.closing.load(Ordering::SeqCst);
            let Next::Slice(slice, _) = feed.next(begin.elapsed(), ends) else { break };
            slices.push(slice);
        }
        *lock(&self.running.counters) = feed.counters();
        slices
    }

    fn delay(&self, buffers_read: u32) {
        let every = self.settings.delay_every.max(1);
        if self.settings.delay_ms != 0 && u64::from(buffers_read).is_multiple_of(every) {
            std::thread::sleep(Duration::from_millis(self.settings.delay_ms));
        }
    }

    /// Waits until all buffers are released, as ProcessTrace does before it returns.
    fn settle(&self, handle: u64) {
        while buffers::outstanding(handle) > 0 {
            sessions::wait(Duration::MAX);
        }
    }
}

/// Delivers buffers to the consumer.
struct Delivery<'a> {
    trace: &'a Trace,
    handle: u64,
    buffers_read: u32,
    events: Events,
}

impl<'a> Delivery<'a> {
    fn new(trace: &'a Trace, handle: u64) -> Delivery<'a> {
        let raw_times = match &trace.callbacks {
            // SAFETY: both members of the union are plain numbers.
            Callbacks::Events(logfile) => unsafe { logfile.Anonymous1.ProcessTraceMode },
            Callbacks::Raw(..) => PROCESS_TRACE_MODE_RAW_TIMESTAMP,
        } & PROCESS_TRACE_MODE_RAW_TIMESTAMP
            != 0;
        let clock = trace.etl_file.as_ref().map(EtlFile::clock).filter(|_| !raw_times);
        Delivery { trace, handle, buffers_read: 0, events: Events::new(clock, trace.settings.own_pid) }
    }

    /// Delivers buffers. Returns `false` if the consumer ends processing.
    ///
    /// # Safety
    /// As for [`process`].
    unsafe fn slices(&mut self, slices: &[Slice]) -> bool {
        match &self.trace.callbacks {
            Callbacks::Events(logfile) => {
                let mut logfile = logfile.clone();
                // SAFETY: guaranteed by the caller.
                unsafe { self.events.buffers(slices, &mut self.buffers_read, &mut logfile) }
            }
            // SAFETY: guaranteed by the caller.
            Callbacks::Raw(..) => slices.iter().all(|slice| unsafe { self.whole(slice) }),
        }
    }

    /// # Safety
    /// As for [`process`].
    unsafe fn whole(&mut self, slice: &Slice) -> bool {
        if self.buffers_read.is_multiple_of(8) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.lend(&raw::empty_marker()) };
        }
        self.buffers_read += 1;
        // SAFETY: guaranteed by the caller.
        unsafe { self.lend(&raw::buffer(slice, self.buffers_read.into())) }
    }

    /// # Safety
    /// As for [`process`].
    unsafe fn lend(&self, bytes: &[u8]) -> bool {
        match &self.trace.callbacks {
            Callbacks::Events(_) => false,
            Callbacks::Raw(options, header) => {
                let buffer = buffers::lend(self.handle, bytes);
                let information = ETW_BUFFER_CALLBACK_INFORMATION {
                    TraceHandle: self.handle,
                    LogfileHeader: &**header,
                    BuffersRead: self.buffers_read,
                };
                let callback = options.BufferCallback.expect("checked when the trace was opened");
                let context = options.BufferCallbackContext as *const c_void;
                let buffer_header = buffer as *const ETW_BUFFER_HEADER;
                // SAFETY: guaranteed by the caller; the buffer is valid until it is released.
                let continues = unsafe { callback(buffer_header, bytes.len() as u32, &information, context) };
                buffers::give_back(buffer);
                continues != 0
            }
        }
    }
}
