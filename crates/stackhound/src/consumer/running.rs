//! A trace that runs on a separate thread.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use stackhound_live::{LiveSession, ProviderSettings, RingCounts, SessionCounters};
use stackhound_stacks::StackStats;
use stackhound_system::SystemStats;
use stackhound_trace::{Flow, Stats};

use crate::consumer::error::Error;

/// Counters of a trace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TraceStats {
    /// Events that were read, and events that could not be read.
    pub trace: Stats,
    /// Counters of stacks.
    pub stacks: StackStats,
    /// Number of events that were passed to handlers.
    pub delivered: u64,
    /// Number of events that no provider selected and that
    /// [`on_unclaimed`](crate::Trace::on_unclaimed) received.
    pub unclaimed: u64,
    /// Number of errors of handlers and filters.
    pub errors: u64,
    /// Number of schema look-ups without a result.
    pub schema_misses: u64,
    /// Recorded processes, modules and names, and those that a live session discarded.
    pub system: SystemStats,
    /// Events sent to a subscription, and those of them that were dropped.
    pub subscription: RingCounts,
    /// Counters of the live sessions.
    pub sessions: Vec<SessionCounters>,
}

/// State shared between threads.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The trace must end without delivering further events, including pending ones.
    leave: AtomicBool,
    /// The thread that calls the handlers.
    thread: OnceLock<ThreadId>,
    is_live: bool,
    sessions: Mutex<Sessions>,
    latest: Mutex<TraceStats>,
}

#[derive(Debug, Default)]
struct Sessions {
    running: Vec<LiveSession>,
    ended: Vec<SessionCounters>,
    error: Option<stackhound_live::Error>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data in these locks is consistent after each change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn of(sessions: Vec<LiveSession>) -> Arc<Shared> {
        let is_live = !sessions.is_empty();
        let sessions = Sessions { running: sessions, ..Sessions::default() };
        Arc::new(Shared { sessions: Mutex::new(sessions), is_live, ..Shared::default() })
    }

    /// Marks the current thread as the one that calls the handlers.
    pub fn enter(&self) {
        self.thread.get_or_init(|| thread::current().id());
    }

    /// Whether to continue.
    #[inline]
    pub fn go_on(&self) -> Flow {
        if self.leave.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub fn publish(&self, stats: TraceStats) {
        *locked(&self.latest) = stats;
    }

    /// Stops the sessions, and waits until their last events are on the way to the handlers.
    pub fn stop_sessions(&self) {
        let mut sessions = locked(&self.sessions);
        let running = std::mem::take(&mut sessions.running);
        for session in running {
            match session.stop() {
                Ok(counters) => sessions.ended.push(counters),
                Err(error) => sessions.error = sessions.error.take().or(Some(error)),
            }
        }
    }

    /// Queries the counters of the sessions, so that they are recent if another program stops a
    /// session.
    pub fn poll_sessions(&self) {
        // If the sessions are locked, another thread queries or stops them.
        if let Ok(sessions) = self.sessions.try_lock() {
            for session in &sessions.running {
                // Errors are reported at the end.
                let _ = session.counters();
            }
        }
    }

    /// The final counters of the sessions, and the error at their end.
    pub fn ended(&self) -> (Vec<SessionCounters>, Option<stackhound_live::Error>) {
        let mut sessions = locked(&self.sessions);
        (sessions.ended.clone(), sessions.error.take())
    }
}

/// A running trace. Stops when dropped.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<TraceStats, Error>>>,
}

/// Stops a trace from anywhere: a timer, a signal, a handler.
#[derive(Clone, Debug)]
pub struct StopHandle {
    shared: Arc<Shared>,
}

impl StopHandle {
    /// Stops the sessions, or stops reading files. Events that the sessions logged before are still
    /// passed to the handlers, after this returns. In a handler, this has the effect of a break: no
    /// further events are delivered.
    pub fn stop(&self) {
        let from_handler = self.shared.thread.get() == Some(&thread::current().id());
        if self.shared.is_live && !from_handler {
            self.shared.stop_sessions();
        } else {
            // The callback of a session may be waiting for this thread to accept events.
            self.shared.leave.store(true, Ordering::Relaxed);
        }
    }
}

impl Running {
    pub(crate) fn new(shared: Arc<Shared>, thread: JoinHandle<Result<TraceStats, Error>>) -> Running {
        Running { shared, thread: Some(thread) }
    }

    /// Ends the trace: stops the sessions, and passes all events that they logged to the handlers.
    /// No handler is called after this. Files are not read further.
    ///
    /// # Errors
    /// If a handler panicked, or a session could not be stopped.
    pub fn stop(mut self) -> Result<TraceStats, Error> {
        self.handle().stop();
        self.join()
    }

    /// Waits for the end of the trace: the end of the files, or a handler that breaks.
    ///
    /// # Errors
    /// As [`stop`](Running::stop).
    pub fn wait(mut self) -> Result<TraceStats, Error> {
        self.join()
    }

    fn join(&mut self) -> Result<TraceStats, Error> {
        let Some(thread) = self.thread.take() else { return Ok(locked(&self.shared.latest).clone()) };
        thread.join().unwrap_or_else(|panic| Err(Error::Panicked(super::drive::message(&*panic))))
    }

    /// Whether the trace has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The latest published counters, and the current counters of the sessions.
    ///
    /// # Errors
    /// If Windows does not report the counters.
    pub fn stats(&self) -> Result<TraceStats, Error> {
        let mut stats = locked(&self.shared.latest).clone();
        let sessions = locked(&self.shared.sessions);
        stats.sessions.clone_from(&sessions.ended);
        for session in &sessions.running {
            stats.sessions.push(session.counters()?);
        }
        Ok(stats)
    }

    /// Makes the sessions deliver the contents of their buffers.
    ///
    /// # Errors
    /// If Windows reports an error.
    pub fn flush(&self) -> Result<(), Error> {
        for session in &locked(&self.shared.sessions).running {
            session.flush()?;
        }
        Ok(())
    }

    /// Changes the settings of a provider in all sessions. Handlers do not change; events that no
    /// provider of the trace selects are passed to [`on_unclaimed`](crate::Trace::on_unclaimed).
    ///
    /// # Errors
    /// If Windows reports an error.
    pub fn reconfigure(&self, settings: &ProviderSettings) -> Result<(), Error> {
        for session in &locked(&self.shared.sessions).running {
            session.enable(settings)?;
        }
        Ok(())
    }

    /// A handle that stops the trace from elsewhere.
    pub fn handle(&self) -> StopHandle {
        StopHandle { shared: self.shared.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.handle().stop();
            // The outcome is of no interest when the trace is dropped.
            let _ = self.join();
        }
    }
}
