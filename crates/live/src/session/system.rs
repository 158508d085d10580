//! Sessions of this Windows.

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

/// Takes events where Windows hands them over.
struct Taking(Capture);

impl Sink for Taking {
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

/// A running session that is listened to. Dropped, it is stopped if this program started it.
///
/// Its events go into the [`Incoming`] that it came with. Somebody must read that, or have dropped it, while the session
/// is stopped, if what has no room is to wait ([`Overflow::Block`](crate::Overflow::Block)).
#[derive(Debug)]
pub struct LiveSession {
    name: String,
    kernel: bool,
    control: etw::Session,
    /// Started by us, and to be stopped by us.
    owned: bool,
    /// Told to stop.
    told: bool,
    flush_timer: FlushTimer,
    /// The kernel's groups, which an update has to set again.
    groups: Option<[u32; 8]>,
    /// The time between samples that this machine had before, if it was changed.
    sample_interval_before: Option<u32>,
    consumer: Option<Consumer>,
    last: Mutex<SessionCounters>,
}

impl LiveSession {
    /// Starts a session, listens to it and enables providers. Settings of one provider are merged; each caller's own
    /// [`ProviderSettings::wants`] takes away what others asked for.
    ///
    /// # Errors
    /// Settings that Windows would refuse; missing access, with what is needed; a session of this name, unless it is to be
    /// replaced or attached to; no sessions left; a session that writes a file. A session that was begun is stopped again.
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
        // From here on the session is stopped when `live` goes.
        let incoming = live.listen(queue, session.delivered())?;
        live.set_up(&numbers, providers)?;
        Ok((live, incoming))
    }

    /// Starts a session that writes a file ([`Session::to_file`]), and enables providers. No events come from it;
    /// [`LiveSession::counters`] says how it goes.
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
        Ok(LiveSession {
            name: session.name().into(),
            kernel: session.is_kernel(),
            control,
            owned: true,
            told: false,
            flush_timer: FlushTimer::of_numbers(numbers.flush_timer, numbers.mode),
            groups: numbers.group_masks.last().copied(),
            sample_interval_before: None,
            consumer: None,
            last: Mutex::default(),
        })
    }

    /// Listens to a session that somebody else has started, and leaves it running in the end.
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
            told: false,
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
        let opened = etw::open::<Taking>(&self.name, delivery).map_err(|error| self.error(error))?;
        let state = self.control.query().map_err(|error| self.error(error))?;
        // Processing would end at once, as it does for a session that has ended.
        if state.mode & REAL_TIME == 0 {
            return Err(Error::NotInRealTime(self.name.clone()));
        }
        let header = header_of(opened.facts(), &state, &self.name)?;
        let (capture, incoming) = channel(Arc::new(header), queue.for_flush(self.flush_timer.duration()));
        let consumer = opened.run(Taking(capture)).map_err(|error| self.error(error))?;
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
        // Before the groups are on, so that no event of theirs comes without its stack.
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

    /// All sessions that run.
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

    /// Stops sessions with generated names whose process has ended without stopping them, and gives their names. Windows keeps
    /// such sessions: it has few, and whoever starts them takes places that others need.
    ///
    /// # Errors
    /// If sessions or processes cannot be listed, or a session cannot be stopped.
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

    /// Stops a session, whosever it is.
    ///
    /// # Errors
    /// No session of this name; missing access.
    pub fn stop_by_name(name: &str) -> Result<SessionCounters, Error> {
        let tried = Tried::Session { name, kernel: false };
        let state = etw::Session::stop_by_name(name).map_err(|error| error_of(tried, error))?;
        Ok(SessionCounters { ended: true, ..counters_of(&state) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Enables a provider or changes what was asked of it: these settings take the place of earlier ones.
    ///
    /// # Errors
    /// No provider of this GUID; missing access, with what is needed; a session that has ended.
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

    /// The provider's events no longer come.
    pub fn disable(&self, provider: Guid) -> Result<(), Error> {
        self.control.disable(provider.0).map_err(|error| self.provider_error(provider, error))
    }

    /// Has all buffers handed over.
    pub fn flush(&self) -> Result<(), Error> {
        self.control.flush().map_err(|error| self.error(error))
    }

    /// Changes the most buffers there can be, and how often they are handed over: in whole milliseconds if the session was
    /// started with less than a second, else in whole seconds.
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

    /// What the session says of itself: a call of Windows, for once a second or so. Once it has ended, that is what it said
    /// last.
    ///
    /// # Errors
    /// If Windows does not tell.
    pub fn counters(&self) -> Result<SessionCounters, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.told {
            match self.control.query() {
                Ok(state) => *last = counters_of(&state),
                Err(error) if matches!(error.code(), Some((_, 4201))) => last.ended = true,
                Err(error) => return Err(self.error(error)),
            }
        }
        let ended = last.ended || self.has_ended();
        Ok(SessionCounters { ended, ..last.clone() })
    }

    /// Whether somebody else has started it: then it is left running.
    pub fn is_attached(&self) -> bool {
        !self.owned
    }

    /// Whether nothing comes any more. Of a session that writes a file, [`LiveSession::counters`] knows.
    pub fn has_ended(&self) -> bool {
        self.told || self.consumer.as_ref().is_some_and(Consumer::has_ended)
    }

    /// Stops the session, or stops listening if it is somebody else's, without waiting: what is in its buffers still
    /// comes, and then [`Incoming`] ends. For those who read in the thread that also stops.
    pub fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.told, true) {
            return Ok(());
        }
        if !self.owned {
            // It goes on, and its last word comes later than ours.
            if let Ok(state) = self.control.query() {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = counters_of(&state);
            }
            // Not everybody may; without it, what the last buffers hold is left to others.
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
            // Somebody else was quicker.
            Err(error) if matches!(error.code(), Some((_, 4201))) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Stops the session, or stops listening if it is somebody else's; waits until the last event was taken, and frees
    /// everything. No event is taken afterwards.
    ///
    /// # Errors
    /// What processing ended with.
    pub fn stop(mut self) -> Result<SessionCounters, Error> {
        self.finish()?;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(SessionCounters { ended: true, ..last.clone() })
    }

    fn finish(&mut self) -> Result<(), Error> {
        let told = self.end();
        if let Some(interval) = self.sample_interval_before.take() {
            etw::set_sample_interval(interval).map_err(|error| self.error(error))?;
        }
        let Some(consumer) = self.consumer.take() else { return told };
        // A session that could not be stopped would keep its consumer waiting.
        let ended = if self.owned && told.is_ok() { Ended::Stopped } else { Ended::GoesOn };
        let finished = consumer.finish(ended).map_err(|error| self.error(error));
        told.and(finished)
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        // What went wrong nobody wants to know any more.
        let _ = self.finish();
    }
}

/// Has `handler` called, in a thread of Windows' own, when the console ends this program. Once in a program.
///
/// # Errors
/// What Windows reports.
pub fn on_program_end(handler: impl Fn(ProgramEnd) + Send + Sync + 'static) -> Result<(), Error> {
    let taken = windows::console::on_end(move |end| {
        handler(match end {
            windows::console::End::Interrupt => ProgramEnd::Interrupt,
            windows::console::End::Close => ProgramEnd::Close,
        });
    });
    taken.map_err(|error| error_of(Tried::Session { name: "", kernel: false }, error))
}

/// How long Windows may hold the name of a session that was stopped.
const NAME_HELD_MAX: Duration = Duration::from_secs(1);

/// Starts a session, in place of another if it may.
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

/// The description that a recording of the session would have. Its point of reference is now: raw time and UTC read
/// together.
///
/// Headers of sessions in real time state a pointer size of 4 on 64-bit Windows (microsoft/perfview, issue 332), and are not
/// known to state the rest: the system and the session itself are asked.
fn header_of(facts: &LogfileFacts, state: &SessionState, name: &str) -> Result<LogfileHeader, Error> {
    let clock = match facts.clock_type {
        2 => etw::Clock::SystemTime,
        3 => etw::Clock::CpuCycles,
        _ => etw::Clock::PerformanceCounter,
    };
    let now = clock.now().ok_or(Error::Unsupported(
        "a session stamped with processor cycles can be read live on x86-64 only; use the performance counter",
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
        // This program is of 64 bits, and so is the system.
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
