//! Sessions of this Windows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stackhound_etl::{FileTime, Guid, LogFileMode, LogfileHeader, PointerSize, RawTime};
use stackhound_windows as windows;
use stackhound_windows::etw::{
    self, Consumer, Enable, Ended, EventView, Filter, LogfileFacts, SessionState, Sink, StartSession,
};

use super::access::{Tried, meaning};
use super::{SessionCounters, SessionInfo};
use crate::live::{Capture, Handed, Incoming, Queue, channel};
use crate::session::{Delivery, REAL_TIME, fresh_guid};
use crate::{EnableParameters, Error, Flow, FlushTimer, IfExists, ProviderSettings, Session, SessionNumbers};

/// Takes events where Windows hands them over.
struct Taking(Capture);

impl Sink for Taking {
    #[inline]
    fn event(&mut self, event: &EventView<'_>) -> Flow {
        let EventView { header, processor, items, payload } = *event;
        self.0.event(&Handed { header, processor, items, payload })
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
/// is stopped, if what has no room is to wait ([`Overflow::Block`](crate::live::Overflow::Block)).
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
    consumer: Option<Consumer>,
    last: Mutex<SessionCounters>,
}

impl LiveSession {
    /// Starts a session, listens to it and enables providers. Settings of one provider are merged; each caller's own
    /// [`ProviderSettings::wants`] takes away what others asked for.
    ///
    /// # Errors
    /// Settings that Windows would refuse; missing access, with what is needed; a session of this name, unless it is to be
    /// replaced or attached to; no sessions left. A session that was begun is stopped again.
    pub fn start(
        session: &Session,
        providers: &[ProviderSettings],
        queue: Queue,
    ) -> Result<(LiveSession, Incoming), Error> {
        let numbers = session.numbers()?;
        let tried = Tried::Session { name: session.name(), kernel: session.is_kernel() };
        if numbers.profile_privilege {
            etw::take_system_profile_privilege().map_err(|error| error_of(tried, error))?;
        }
        let (control, owned, flush_timer) = match begin(session, &numbers) {
            Ok(control) => (control, true, FlushTimer::of_numbers(numbers.flush_timer, numbers.mode)),
            Err(error) => {
                let exists = matches!(error.code(), Some((_, 183)));
                if !exists || session.existing() != IfExists::Attach {
                    return Err(error_of(tried, error));
                }
                let (control, state) =
                    etw::Session::attach(session.name()).map_err(|error| error_of(tried, error))?;
                (control, false, FlushTimer::of_numbers(state.flush_timer, state.mode))
            }
        };
        let mut live = LiveSession {
            name: session.name().into(),
            kernel: session.is_kernel(),
            control,
            owned,
            told: false,
            flush_timer,
            consumer: None,
            last: Mutex::default(),
        };
        // From here on the session is stopped when `live` goes.
        let incoming = live.listen(queue, session.delivered())?;
        if owned {
            live.set_up_kernel(&numbers)?;
        }
        let merged = ProviderSettings::merged(providers);
        for settings in &merged {
            live.enable(settings)?;
        }
        Ok((live, incoming))
    }

    /// Listens to a session that somebody else has started, and leaves it running in the end.
    ///
    /// # Errors
    /// No session of this name; missing access.
    pub fn attach(name: &str, queue: Queue) -> Result<(LiveSession, Incoming), Error> {
        let tried = Tried::Session { name, kernel: false };
        let (control, state) = etw::Session::attach(name).map_err(|error| error_of(tried, error))?;
        let mut live = LiveSession {
            name: name.into(),
            kernel: false,
            control,
            owned: false,
            told: false,
            flush_timer: FlushTimer::of_numbers(state.flush_timer, state.mode),
            consumer: None,
            last: Mutex::new(counters_of(&state)),
        };
        let incoming = live.listen(queue, Delivery::default())?;
        Ok((live, incoming))
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

    fn set_up_kernel(&self, numbers: &SessionNumbers) -> Result<(), Error> {
        let of = |result: Result<(), windows::Error>| result.map_err(|error| self.error(error));
        if let Some(interval) = numbers.sample_interval {
            of(etw::set_sample_interval(interval))?;
        }
        // Before the groups, so that no event of theirs comes without its stack.
        if !numbers.stacks.is_empty() {
            of(self.control.set_stacks(&numbers.stacks))?;
        }
        for words in &numbers.group_masks {
            of(self.control.set_groups(words))?;
        }
        Ok(())
    }

    fn tried(&self) -> Tried<'_> {
        Tried::Session { name: &self.name, kernel: self.kernel }
    }

    fn error(&self, error: windows::Error) -> Error {
        error_of(self.tried(), error)
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
    pub fn enable(&self, settings: &ProviderSettings) -> Result<(), Error> {
        let EnableParameters { provider, level, any, all, properties, filters, rundown } =
            settings.parameters();
        let filters: Vec<Filter<'_>> =
            filters.iter().map(|filter| Filter { kind: filter.kind, bytes: &filter.bytes }).collect();
        let of = |result: Result<(), windows::Error>| {
            result.map_err(|error| error_of(Tried::Provider(provider), error))
        };
        of(self.control.enable(&Enable { provider: provider.0, level, any, all, properties, filters }))?;
        if rundown {
            of(self.control.capture_state(provider.0, level, any))?;
        }
        Ok(())
    }

    /// The provider's events no longer come.
    pub fn disable(&self, provider: Guid) -> Result<(), Error> {
        self.control.disable(provider.0).map_err(|error| error_of(Tried::Provider(provider), error))
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
        self.control.update(maximum_buffers, timer).map_err(|error| self.error(error))
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
        let ended = last.ended || self.told || self.has_ended();
        Ok(SessionCounters { ended, ..last.clone() })
    }

    /// Whether somebody else has started it: then it is left running.
    pub fn is_attached(&self) -> bool {
        !self.owned
    }

    /// Whether nothing comes any more.
    pub fn has_ended(&self) -> bool {
        self.consumer.as_ref().is_none_or(Consumer::has_ended)
    }

    /// Stops the session, or stops listening if it is somebody else's, without waiting: what is in its buffers still
    /// comes, and then [`Incoming`] ends. For those who read in the thread that also stops.
    pub fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.told, true) {
            return Ok(());
        }
        if !self.owned {
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
        if self.is_attached() {
            // It goes on, and its last word comes later than ours.
            self.counters()?;
        }
        self.finish()?;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(SessionCounters { ended: true, ..last.clone() })
    }

    fn finish(&mut self) -> Result<(), Error> {
        let told = self.end();
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

/// Starts a session, in place of another if it may.
fn begin(session: &Session, numbers: &SessionNumbers) -> Result<etw::Session, windows::Error> {
    let guid = if session.is_kernel() && numbers.guid == Guid::ZERO { fresh_guid() } else { numbers.guid };
    let settings = StartSession {
        name: session.name(),
        file: session.file(),
        guid: guid.0,
        clock: numbers.clock,
        mode: numbers.mode,
        buffer_size: numbers.buffer_size,
        minimum_buffers: numbers.minimum_buffers,
        maximum_buffers: numbers.maximum_buffers,
        flush_timer: numbers.flush_timer,
        enable_flags: numbers.enable_flags,
    };
    let started = etw::Session::start(&settings);
    match &started {
        Err(error) if session.existing() == IfExists::Replace && matches!(error.code(), Some((_, 183))) => {
            etw::Session::stop_by_name(session.name())?;
            etw::Session::start(&settings)
        }
        _ => started,
    }
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
