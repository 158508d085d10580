//! A trace that runs on a thread of its own.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use stackhound_live::{LiveSession, ProviderSettings, RingCounts, SessionCounters};
use stackhound_stacks::StackStats;
use stackhound_system::SystemStats;
use stackhound_trace::{Flow, Stats};

use crate::consumer::error::Error;

/// What became of a trace's events.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TraceStats {
    /// What was read, and what could not be.
    pub trace: Stats,
    /// What became of the stacks.
    pub stacks: StackStats,
    /// Events that were handed to whoever wanted them.
    pub delivered: u64,
    /// Events that no provider wanted and that [`on_unclaimed`](crate::Trace::on_unclaimed) got.
    pub unclaimed: u64,
    /// Errors of handlers and filters.
    pub errors: u64,
    /// Schemas that were looked for in vain.
    pub schema_misses: u64,
    /// What was taken in of processes, modules and names, and what a live session forgot of them.
    pub system: SystemStats,
    /// What a subscription was sent, and what of it was dropped.
    pub subscription: RingCounts,
    /// What the live sessions say of themselves.
    pub sessions: Vec<SessionCounters>,
}

/// What the threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// No more events are wanted, not even those that are on their way.
    leave: AtomicBool,
    /// Which thread calls the handlers.
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
    // What is behind these locks is whole after each change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn of(sessions: Vec<LiveSession>) -> Arc<Shared> {
        let is_live = !sessions.is_empty();
        let sessions = Sessions { running: sessions, ..Sessions::default() };
        Arc::new(Shared { sessions: Mutex::new(sessions), is_live, ..Shared::default() })
    }

    /// The calling thread calls the handlers from now on.
    pub fn enter(&self) {
        self.thread.get_or_init(|| thread::current().id());
    }

    /// Whether more events are wanted.
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

    /// Asks the sessions for their counters, so that the last word of one that somebody else stops is not an old one.
    pub fn poll_sessions(&self) {
        // Whoever has the sessions locked asks them himself, or ends them.
        if let Ok(sessions) = self.sessions.try_lock() {
            for session in &sessions.running {
                // What cannot be asked now is told at the end.
                let _ = session.counters();
            }
        }
    }

    /// What the sessions counted, and what went wrong at their end.
    pub fn ended(&self) -> (Vec<SessionCounters>, Option<stackhound_live::Error>) {
        let mut sessions = locked(&self.sessions);
        (sessions.ended.clone(), sessions.error.take())
    }
}

/// A trace that runs. Dropped, it stops.
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
    /// Ends the sessions, or stops reading recordings. What sessions logged before still goes to the handlers, after this
    /// returns. From a handler it is as if that broke: nothing more comes.
    pub fn stop(&self) {
        let from_handler = self.shared.thread.get() == Some(&thread::current().id());
        if self.shared.is_live && !from_handler {
            self.shared.stop_sessions();
        } else {
            // A session's callback may wait for this very thread to take events.
            self.shared.leave.store(true, Ordering::Relaxed);
        }
    }
}

impl Running {
    pub(crate) fn new(shared: Arc<Shared>, thread: JoinHandle<Result<TraceStats, Error>>) -> Running {
        Running { shared, thread: Some(thread) }
    }

    /// Ends the trace: sessions stop, all they logged goes to the handlers, and none is called after this. Recordings are
    /// left where they are.
    ///
    /// # Errors
    /// If a handler panicked, or a session could not be ended.
    pub fn stop(mut self) -> Result<TraceStats, Error> {
        self.handle().stop();
        self.join()
    }

    /// Waits for the end: of the recording, or by a handler that breaks.
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

    /// Whether the trace has ended by itself.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The counters a moment ago, and those of the sessions now.
    ///
    /// # Errors
    /// If Windows does not tell.
    pub fn stats(&self) -> Result<TraceStats, Error> {
        let mut stats = locked(&self.shared.latest).clone();
        let sessions = locked(&self.shared.sessions);
        stats.sessions.clone_from(&sessions.ended);
        for session in &sessions.running {
            stats.sessions.push(session.counters()?);
        }
        Ok(stats)
    }

    /// Has the sessions hand over what is in their buffers.
    ///
    /// # Errors
    /// If Windows does not.
    pub fn flush(&self) -> Result<(), Error> {
        for session in &locked(&self.shared.sessions).running {
            session.flush()?;
        }
        Ok(())
    }

    /// Asks a provider for more, or for other events than before, in all sessions. Handlers stay as they are; events that
    /// no provider of the trace wants go to [`on_unclaimed`](crate::Trace::on_unclaimed).
    ///
    /// # Errors
    /// If Windows does not.
    pub fn reconfigure(&self, settings: &ProviderSettings) -> Result<(), Error> {
        for session in &locked(&self.shared.sessions).running {
            session.enable(settings)?;
        }
        Ok(())
    }

    /// To stop it from elsewhere.
    pub fn handle(&self) -> StopHandle {
        StopHandle { shared: self.shared.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.handle().stop();
            // Whoever drops it does not ask how it went.
            let _ = self.join();
        }
    }
}
