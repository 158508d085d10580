//! Live sessions on Windows.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stackhound_etl::{LogFileMode, LogfileHeader};
use stackhound_trace::Flow;
use stackhound_types::{FileTime, Guid, PointerSize, RawTime};
use stackhound_windows as windows;
use stackhound_windows::etw::{
    self, Consumer, Enable, Ended, EventView, Filter, LogfileFacts, SessionState, Sink, StartSession,
};

use super::access::{Tried, meaning};
use super::{ProgramEnd, SessionCounters, SessionInfo};
use crate::settings::{REAL_TIME, fresh_guid, process_of};
use crate::{
    Capture, Delivery, EnableParameters, Error, EventRecord, FlushTimer, IfExists, Incoming,
    ProviderSettings, Queue, Session, SessionNumbers, channel,
};

/// Receives events from Windows.
struct CaptureSink(Capture);

impl Sink for CaptureSink {
    #[inline]
    fn event(&mut self, event: &EventView<'_>) -> Flow {
        let EventView { header, processor, items, payload } = *event;
        self.0.event(&EventRecord { header, processor, items, payload })
    }

    fn buffer_done(&mut self) -> Flow {
        self.0.buffer_done()
    }

    fn raw_buffer(&mut self, bytes: &[u8]) -> Flow {
        self.0.raw_buffer(bytes)
    }
}

/// A running session. Dropping the value stops the session if this program started it.
///
/// Its events are delivered to the [`Incoming`] that was returned with it. With
/// [`Overflow::Block`](crate::Overflow::Block), that value must be read or dropped while the
/// session is being stopped.
#[derive(Debug)]
pub struct LiveSession {
    name: String,
    kernel: bool,
    control: etw::Session,
    /// This program started the session and has to stop it.
    owned: bool,
    /// Stopping was requested.
    stop_requested: bool,
    flush_timer: FlushTimer,
    /// The kernel groups, which must be set again after an update.
    groups: Option<[u32; 8]>,
    /// The previous sampling interval of the machine, if it was changed.
    sample_interval_before: Option<u32>,
    consumer: Option<Consumer>,
    last: Mutex<SessionCounters>,
}

impl LiveSession {
    /// Starts a session, receives its events and enables providers. The settings of each provider
    /// are merged; each caller's own [`ProviderSettings::wants`] removes the events that only
    /// others requested.
    ///
    /// # Errors
    /// Settings that Windows would refuse; missing access, with the required access; a session of
    /// this name, unless it is to be replaced or attached to; no sessions left; a session that
    /// writes a file. If an error occurs after the session was started, the session is stopped
    /// again.
    pub fn start(
        session: &Session,
        providers: &[ProviderSettings],
        queue: Queue,
    ) -> Result<(LiveSession, Incoming), Error> {
        if session.file().is_some() {
            return Err(Error::NotInRealTime(session.name().into()));
        }
        let numbers = session.numbers()?;
        let mut live = match LiveSession::begin(session, &numbers) {
            Err(Error::SessionExists(name)) if session.existing() == IfExists::Attach => {
                LiveSession::attached(&name)?
            }
            begun => begun?,
        };
        // From here on the session is stopped when `live` is dropped.
        let incoming = live.listen(queue, session.delivered())?;
        live.set_up(&numbers, providers)?;
        Ok((live, incoming))
    }

    /// Starts a session that writes a file ([`Session::to_file`]), and enables providers. It
    /// delivers no events; [`LiveSession::counters`] reports its progress.
    ///
    /// # Errors
    /// As [`LiveSession::start`]; a session without a file.
    pub fn record(session: &Session, providers: &[ProviderSettings]) -> Result<LiveSession, Error> {
        let numbers = session.numbers()?;
        if session.file().is_none() {
            return Err(Error::NoFile);
        }
        let mut live = LiveSession::begin(session, &numbers)?;
        live.set_up(&numbers, providers)?;
        Ok(live)
    }

    fn begin(session: &Session, numbers: &SessionNumbers) -> Result<LiveSession, Error> {
        let tried = Tried::Session { name: session.name(), kernel: session.is_kernel() };
        if numbers.profile_privilege {
            etw::take_system_profile_privilege().map_err(|error| error_of(tried, error))?;
        }
        let control = begin(session, numbers).map_err(|error| error_of(tried, error))?;
        tracing::debug!(name = session.name(), kernel = session.is_kernel(), "session started");
        Ok(LiveSession {
            name: session.name().into(),
            kernel: session.is_kernel(),
            control,
            owned: true,
            stop_requested: false,
            flush_timer: FlushTimer::of_numbers(numbers.flush_timer, numbers.mode),
            groups: numbers.group_masks.last().copied(),
            sample_interval_before: None,
            consumer: None,
            last: Mutex::default(),
        })
    }

    /// Receives the events of a session that another program started. The session is left running
    /// at the end.
    ///
    /// # Errors
    /// No session of this name; missing access.
    pub fn attach(name: &str, queue: Queue) -> Result<(LiveSession, Incoming), Error> {
        let mut live = LiveSession::attached(name)?;
        let incoming = live.listen(queue, Delivery::default())?;
        Ok((live, incoming))
    }

    fn attached(name: &str) -> Result<LiveSession, Error> {
        let tried = Tried::Session { name, kernel: false };
        let (control, state) = etw::Session::attach(name).map_err(|error| error_of(tried, error))?;
        Ok(LiveSession {
            name: name.into(),
            kernel: false,
            control,
            owned: false,
            stop_requested: false,
            flush_timer: FlushTimer::of_numbers(state.flush_timer, state.mode),
            groups: None,
            sample_interval_before: None,
            consumer: None,
            last: Mutex::new(counters_of(&state)),
        })
    }

    fn listen(&mut self, queue: Queue, delivery: Delivery) -> Result<Incoming, Error> {
        let delivery = match delivery {
            Delivery::WholeBuffers => etw::Delivery::WholeBuffers,
            Delivery::Events => etw::Delivery::Events,
        };
        let opened = etw::open::<CaptureSink>(&self.name, delivery).map_err(|error| self.error(error))?;
        let state = self.control.query().map_err(|error| self.error(error))?;
        // Processing would end at once, as it does for a session that has ended.
        if state.mode & REAL_TIME == 0 {
            return Err(Error::NotInRealTime(self.name.clone()));
        }
        let header = header_of(opened.facts(), &state, &self.name)?;
        let (capture, incoming) = channel(Arc::new(header), queue.for_flush(self.flush_timer.duration()));
        let consumer = opened.run(CaptureSink(capture)).map_err(|error| self.error(error))?;
        self.consumer = Some(consumer);
        Ok(incoming)
    }

    fn set_up(&mut self, numbers: &SessionNumbers, providers: &[ProviderSettings]) -> Result<(), Error> {
        if self.owned {
            self.set_up_kernel(numbers)?;
        }
        for settings in &ProviderSettings::merged(providers) {
            self.enable(settings)?;
        }
        Ok(())
    }

    fn set_up_kernel(&mut self, numbers: &SessionNumbers) -> Result<(), Error> {
        if let Some(interval) = numbers.sample_interval {
            let before = etw::sample_interval().map_err(|error| self.error(error))?;
            etw::set_sample_interval(interval).map_err(|error| self.error(error))?;
            self.sample_interval_before = Some(before);
        }
        let of = |result: Result<(), windows::Error>| result.map_err(|error| self.error(error));
        let (last, others) = match numbers.group_masks.split_last() {
            Some((last, others)) => (Some(last), others),
            None => (None, &[][..]),
        };
        for words in others {
            of(self.control.set_groups(words))?;
        }
        // Before the groups are enabled, so that none of their events lacks its stack.
        if !numbers.stacks.is_empty() {
            of(self.control.set_stacks(&numbers.stacks))?;
        }
        last.map_or(Ok(()), |words| of(self.control.set_groups(words)))
    }

    fn tried(&self) -> Tried<'_> {
        Tried::Session { name: &self.name, kernel: self.kernel }
    }

    fn error(&self, error: windows::Error) -> Error {
        error_of(self.tried(), error)
    }

    fn provider_error(&self, provider: Guid, error: windows::Error) -> Error {
        let of_session = matches!(error.code(), Some(("ControlTraceW", _)));
        error_of(if of_session { self.tried() } else { Tried::Provider(provider) }, error)
    }

    /// All running sessions.
    pub fn list() -> Result<Vec<SessionInfo>, Error> {
        let tried = Tried::Session { name: "", kernel: false };
        let states = etw::list().map_err(|error| error_of(tried, error))?;
        let info = |state: SessionState| SessionInfo {
            counters: counters_of(&state),
            name: state.name,
            file: (!state.file.is_empty()).then_some(state.file),
            mode: state.mode,
            enable_flags: state.enable_flags,
            buffer_size_kib: state.buffer_size,
        };
        Ok(states.into_iter().map(info).collect())
    }

    /// Stops sessions with generated names whose process has ended without stopping them, and
    /// returns their names. Windows keeps such sessions. It has few, so they would block other
    /// programs.
    ///
    /// # Errors
    /// Sessions or processes cannot be listed, or a session cannot be stopped.
    pub fn stop_orphans() -> Result<Vec<String>, Error> {
        let tried = Tried::Session { name: "", kernel: false };
        let processes = windows::process::list().map_err(|error| error_of(tried, error))?;
        let is_orphan =
            |name: &str| process_of(name).is_some_and(|id| processes.iter().all(|process| process.id != id));
        let mut stopped = Vec::new();
        for session in LiveSession::list()?.into_iter().filter(|session| is_orphan(&session.name)) {
            LiveSession::stop_by_name(&session.name)?;
            stopped.push(session.name);
        }
        Ok(stopped)
    }

    /// Stops a session, even if another program started it.
    ///
    /// # Errors
    /// No session of this name; missing access.
    pub fn stop_by_name(name: &str) -> Result<SessionCounters, Error> {
        let tried = Tried::Session { name, kernel: false };
        let state = etw::Session::stop_by_name(name).map_err(|error| error_of(tried, error))?;
        Ok(SessionCounters { ended: true, ..counters_of(&state) })
    }

    /// The name of the session.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Enables a provider or changes its settings. These settings replace earlier ones.
    ///
    /// # Errors
    /// No provider of this GUID; missing access, with the required access; a session that has
    /// ended.
    pub fn enable(&self, settings: &ProviderSettings) -> Result<(), Error> {
        let EnableParameters { provider, level, any, all, properties, filters, rundown } =
            settings.parameters();
        let filters: Vec<Filter<'_>> =
            filters.iter().map(|filter| Filter { kind: filter.kind, bytes: &filter.bytes }).collect();
        let of =
            |result: Result<(), windows::Error>| result.map_err(|error| self.provider_error(provider, error));
        of(self.control.enable(&Enable { provider: provider.0, level, any, all, properties, filters }))?;
        if rundown {
            of(self.control.capture_state(provider.0, level, any))?;
        }
        Ok(())
    }

    /// Disables a provider.
    pub fn disable(&self, provider: Guid) -> Result<(), Error> {
        self.control.disable(provider.0).map_err(|error| self.provider_error(provider, error))
    }

    /// Requests delivery of all buffers.
    pub fn flush(&self) -> Result<(), Error> {
        self.control.flush().map_err(|error| self.error(error))
    }

    /// Changes the maximum number of buffers and the flush time: in whole milliseconds if the
    /// session was started with less than a second, otherwise in whole seconds.
    pub fn update(&self, maximum_buffers: u32, flush: Duration) -> Result<(), Error> {
        let timer = match self.flush_timer {
            FlushTimer::Milliseconds(_) => flush.as_millis(),
            FlushTimer::Seconds(_) => flush.as_secs().into(),
        };
        let timer = u32::try_from(timer).unwrap_or(u32::MAX).max(1);
        let updated = self.control.update(maximum_buffers, timer).and_then(|()| match &self.groups {
            Some(words) => self.control.set_groups(words),
            None => Ok(()),
        });
        updated.map_err(|error| self.error(error))
    }

    /// The counters of the session. This calls Windows, and is meant for about one call per second.
    /// Once the session has ended, the last counters are returned.
    ///
    /// # Errors
    /// The query of Windows failed.
    pub fn counters(&self) -> Result<SessionCounters, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.stop_requested {
            match self.control.query() {
                Ok(state) => *last = counters_of(&state),
                Err(error) if matches!(error.code(), Some((_, 4201))) => last.ended = true,
                Err(error) => return Err(self.error(error)),
            }
        }
        let ended = last.ended || self.has_ended();
        Ok(SessionCounters { ended, ..last.clone() })
    }

    /// Whether another program started the session. It is then left running.
    pub fn is_attached(&self) -> bool {
        !self.owned
    }

    /// Whether no more events will arrive. For a session that writes a file, use
    /// [`LiveSession::counters`].
    pub fn has_ended(&self) -> bool {
        self.stop_requested || self.consumer.as_ref().is_some_and(Consumer::has_ended)
    }

    /// Stops the session, or stops receiving events if another program started it, without waiting:
    /// the content of its buffers still arrives, and then [`Incoming`] ends. Use this if the same
    /// thread reads and stops.
    pub fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.stop_requested, true) {
            return Ok(());
        }
        if !self.owned {
            // The session continues, so its final counters are not available later.
            if let Ok(state) = self.control.query() {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = counters_of(&state);
            }
            // Not every caller may flush; without it, the content of the last buffers is not
            // received.
            let _ = self.control.flush();
            if let Some(consumer) = &mut self.consumer {
                consumer.close();
            }
            return Ok(());
        }
        match self.control.stop() {
            Ok(state) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = counters_of(&state);
                Ok(())
            }
            // Another program stopped it first.
            Err(error) if matches!(error.code(), Some((_, 4201))) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Stops the session, or stops receiving events if another program started it; waits until the
    /// last event was received, and frees all resources. No event is received afterwards.
    ///
    /// # Errors
    /// The error with which processing ended.
    pub fn stop(mut self) -> Result<SessionCounters, Error> {
        self.finish()?;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(SessionCounters { ended: true, ..last.clone() })
    }

    fn finish(&mut self) -> Result<(), Error> {
        let stopped = self.end();
        if let Some(interval) = self.sample_interval_before.take() {
            etw::set_sample_interval(interval).map_err(|error| self.error(error))?;
        }
        let Some(consumer) = self.consumer.take() else { return stopped };
        // The consumer of a session that could not be stopped would wait forever.
        let ended = if self.owned && stopped.is_ok() { Ended::Stopped } else { Ended::GoesOn };
        let finished = consumer.finish(ended).map_err(|error| self.error(error));
        stopped.and(finished)
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        // Errors cannot be reported here.
        let _ = self.finish();
    }
}

/// Calls `handler`, on a thread of Windows, when the console ends this program. Only the first call
/// in a program has an effect.
///
/// # Errors
/// The error that Windows reports.
pub fn on_program_end(handler: impl Fn(ProgramEnd) + Send + Sync + 'static) -> Result<(), Error> {
    let registered = windows::console::on_end(move |end| {
        handler(match end {
            windows::console::End::Interrupt => ProgramEnd::Interrupt,
            windows::console::End::Close => ProgramEnd::Close,
        });
    });
    registered.map_err(|error| error_of(Tried::Session { name: "", kernel: false }, error))
}

/// How long the name of a stopped session may remain in use.
const NAME_HELD_MAX: Duration = Duration::from_secs(1);

/// Starts a session, and replaces an existing one if that is allowed.
fn begin(session: &Session, numbers: &SessionNumbers) -> Result<etw::Session, windows::Error> {
    let guid = if numbers.guid == Guid::ZERO { fresh_guid() } else { numbers.guid };
    let settings = StartSession {
        name: session.name(),
        file: session.file(),
        guid: guid.0,
        clock: numbers.clock,
        mode: numbers.mode,
        buffer_size: numbers.buffer_size,
        minimum_buffers: numbers.minimum_buffers,
        maximum_buffers: session.buffered().maximum_on(etw::active_processors()),
        flush_timer: numbers.flush_timer,
        enable_flags: numbers.enable_flags,
    };
    let exists = |error: &windows::Error| matches!(error.code(), Some((_, 183)));
    let mut started = etw::Session::start(&settings);
    if session.existing() == IfExists::Replace && started.as_ref().is_err_and(exists) {
        etw::Session::stop_by_name(session.name())?;
        let stopped = Instant::now();
        started = etw::Session::start(&settings);
        while started.as_ref().is_err_and(exists) && stopped.elapsed() < NAME_HELD_MAX {
            thread::sleep(Duration::from_millis(50));
            started = etw::Session::start(&settings);
        }
    }
    started
}

fn error_of(tried: Tried<'_>, error: windows::Error) -> Error {
    match error.code() {
        Some((function, code)) => {
            let text = std::io::Error::from_raw_os_error(code as i32).to_string();
            meaning(tried, function, code, text)
        }
        None => match error {
            windows::Error::NoPrivilege(privilege) => Error::NoPrivilege(privilege),
            windows::Error::Panicked(message) => Error::Panicked(message),
            other => Error::Other(other.to_string()),
        },
    }
}

fn counters_of(state: &SessionState) -> SessionCounters {
    SessionCounters {
        events_lost: state.events_lost.into(),
        buffers_lost: state.log_buffers_lost.into(),
        real_time_buffers_lost: state.real_time_buffers_lost.into(),
        buffers_written: state.buffers_written.into(),
        bytes_written: u64::from(state.buffers_written) * u64::from(state.buffer_size) * 1024,
        buffers: state.buffers,
        free_buffers: state.free_buffers,
        ended: false,
    }
}

/// The header that a trace file of the session would have. Its reference point is the current time:
/// raw time and UTC are read together.
///
/// Headers of real-time sessions state a pointer size of 4 on 64-bit Windows (microsoft/perfview,
/// issue 332), and it is not known whether their other fields are reliable. Therefore the system
/// and the session itself are queried.
fn header_of(facts: &LogfileFacts, state: &SessionState, name: &str) -> Result<LogfileHeader, Error> {
    let clock = match facts.clock_type {
        2 => etw::Clock::SystemTime,
        3 => etw::Clock::CpuCycles,
        _ => etw::Clock::PerformanceCounter,
    };
    let now = clock.now().ok_or(Error::Unsupported(
        "a session that uses the processor cycle counter can be read live on x86-64 only; use the performance counter",
    ))?;
    let perf_freq = u64::try_from(facts.perf_freq).unwrap_or_default();
    let [major, minor, layout_major, layout_minor] = facts.version;
    Ok(LogfileHeader {
        buffer_size: state.buffer_size.saturating_mul(1024),
        windows_version: (major, minor),
        layout_version: (layout_major, layout_minor),
        build: facts.build,
        processors: facts.processors.max(etw::active_processors()),
        end_time: None,
        timer_resolution: facts.timer_resolution,
        maximum_file_size: 0,
        mode: LogFileMode(state.mode),
        buffers_written: facts.buffers_written,
        // This program is a 64-bit program, and so the system is 64-bit.
        pointer_size: PointerSize::Eight,
        events_lost: facts.events_lost,
        cpu_mhz: facts.cpu_mhz,
        boot_time: FileTime(facts.boot_time),
        perf_freq: match perf_freq {
            0 => etw::Clock::performance_frequency().unwrap_or_default(),
            known => known,
        },
        start_time: FileTime(now.system_time),
        reference: RawTime(now.raw),
        clock_type: facts.clock_type.clamp(1, 3),
        buffers_lost: facts.buffers_lost,
        utc_bias: facts.utc_bias,
        session_name: name.into(),
        file_name: String::new(),
    })
}
