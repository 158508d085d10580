//! Monitors running sessions: reports losses, shows the status line, and ends the sessions.
//!
//! This needs its own thread, because ending a session waits until its last event was consumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use stackhound::live::{LiveSession, ProgramEnd, SessionCounters, on_program_end};

use crate::options::Common;
use crate::output::{counted, grouped, message};

/// The interval of checks for the end.
const NAP: Duration = Duration::from_millis(50);
/// The interval of queries for the counters of the sessions.
const POLL: Duration = Duration::from_secs(1);
/// The shortest interval between two warnings about losses.
const WARN: Duration = Duration::from_secs(60);

/// State that the monitor thread shares with the others.
#[derive(Debug, Default)]
struct Shared {
    /// Events so far, and events that the queue dropped.
    events: AtomicU64,
    dropped: AtomicU64,
    /// Events are no longer consumed.
    done: AtomicBool,
}

/// The monitor of running sessions. Ends them when it is dropped.
#[derive(Debug)]
pub struct SessionMonitor {
    shared: Arc<Shared>,
    started: Instant,
    thread: Option<JoinHandle<Result<Vec<SessionCounters>>>>,
}

/// The result of ended sessions.
#[derive(Debug)]
pub struct Ended {
    /// The counters of each session.
    pub counters: Vec<SessionCounters>,
    /// The time from start to end.
    pub time: Duration,
}

impl SessionMonitor {
    /// Takes over running sessions. They end after `duration`, on an interrupt, or when the monitor
    /// is finished or dropped.
    pub fn start(
        sessions: Vec<LiveSession>,
        duration: Option<Duration>,
        common: &Common,
        shown: Shown,
    ) -> Result<SessionMonitor> {
        let ours = sessions.iter().filter(|session| !session.is_attached());
        let interrupted = on_interrupt(ours.map(|session| session.name().to_owned()).collect())?;
        let shared = Arc::new(Shared::default());
        let started = Instant::now();
        let is_shown = shown != Shown::Nothing && !common.quiet && !common.no_progress;
        let status = is_shown.then(status_line);
        let watch = Watch {
            shared: shared.clone(),
            sessions,
            deadline: duration.and_then(|duration| started.checked_add(duration)),
            interrupted,
            status,
            shown,
            quiet: common.quiet,
        };
        let thread = thread::Builder::new().name("sessions".to_owned()).spawn(|| watch.run());
        Ok(SessionMonitor { shared, started, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Updates the number of events so far, and of events that the queue dropped.
    pub fn update(&self, events: u64, dropped: u64) {
        self.shared.events.store(events, Ordering::Relaxed);
        self.shared.dropped.store(dropped, Ordering::Relaxed);
    }

    /// Waits until the sessions end.
    pub fn wait(&self) {
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            thread::sleep(NAP);
        }
    }

    /// Ends the sessions, if they still run.
    ///
    /// # Errors
    /// If a session could not be ended.
    pub fn finish(mut self) -> Result<Ended> {
        let counters = self.end()?;
        Ok(Ended { counters, time: self.started.elapsed() })
    }

    fn end(&mut self) -> Result<Vec<SessionCounters>> {
        self.shared.done.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Vec::new()) };
        thread.thread().unpark();
        thread.join().map_err(|_| anyhow!("the thread that monitors the sessions panicked"))?
    }
}

impl Drop for SessionMonitor {
    fn drop(&mut self) {
        // An earlier error is reported instead.
        let _ = self.end();
    }
}

struct Watch {
    shared: Arc<Shared>,
    sessions: Vec<LiveSession>,
    deadline: Option<Instant>,
    interrupted: Arc<AtomicBool>,
    status: Option<ProgressBar>,
    shown: Shown,
    quiet: bool,
}

/// The content of the status line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    Nothing,
    /// The number of events.
    Events,
    /// The number of bytes that were written to files.
    Bytes,
}

impl Watch {
    fn run(self) -> Result<Vec<SessionCounters>> {
        let mut polled = Polled { at: Instant::now(), events: 0 };
        let mut warned: Option<(Instant, u64)> = None;
        while !self.is_over() {
            thread::park_timeout(NAP);
            if polled.at.elapsed() < POLL {
                continue;
            }
            let counters: Vec<_> =
                self.sessions.iter().filter_map(|session| session.counters().ok()).collect();
            // Another program may have stopped them.
            if counters.len() == self.sessions.len() && counters.iter().all(|session| session.ended) {
                break;
            }
            let losses = self.losses(&counters);
            let events = self.shared.events.load(Ordering::Relaxed);
            let rate = (events - polled.events) as f64 / polled.at.elapsed().as_secs_f64();
            polled = Polled { at: Instant::now(), events };
            if let Some(status) = &self.status {
                status.set_message(match self.shown {
                    Shown::Bytes => format!("{}, {losses}", written(&counters)),
                    _ => format!(
                        "{}, {}/s, {losses}",
                        counted(events, "event", "events"),
                        grouped(rate as u64)
                    ),
                });
                status.tick();
            }
            let is_new = warned.is_none_or(|(at, sum)| losses.sum() > sum && at.elapsed() >= WARN);
            if losses.sum() > 0 && is_new && !self.quiet {
                warned = Some((Instant::now(), losses.sum()));
                self.warn(&format!("{losses} so far; use --buffers throughput, or record fewer events"));
            }
        }
        if let Some(status) = &self.status {
            status.finish_and_clear();
        }
        // All sessions end before the first is waited for: stopping waits for the last event, and a
        // closing console leaves little time.
        let mut sessions = self.sessions;
        let ended: Result<Vec<()>, _> = sessions.iter_mut().map(LiveSession::end).collect();
        let counters = sessions.into_iter().map(|session| Ok(session.stop()?)).collect();
        ended?;
        counters
    }

    fn is_over(&self) -> bool {
        self.shared.done.load(Ordering::Relaxed)
            || self.interrupted.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn losses(&self, counters: &[SessionCounters]) -> Losses {
        Losses { dropped: self.shared.dropped.load(Ordering::Relaxed), ..Losses::of(counters) }
    }

    fn warn(&self, text: &str) {
        match &self.status {
            Some(status) => status.suspend(|| message(format_args!("{text}"))),
            None => message(format_args!("{text}")),
        }
    }
}

/// The number of bytes that the sessions wrote to their files, as text.
pub fn written(counters: &[SessionCounters]) -> String {
    HumanBytes(counters.iter().map(|session| session.bytes_written).sum()).to_string()
}

struct Polled {
    at: Instant,
    events: u64,
}

/// Losses by location.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Events for which a session had no buffer.
    pub events: u64,
    /// Buffers that were not delivered.
    pub buffers: u64,
    /// Buffers that were not written to the file.
    pub file_buffers: u64,
    /// Events that the queue dropped, because this program was too slow.
    pub dropped: u64,
}

impl Losses {
    /// Sums the counters of the sessions.
    pub fn of(counters: &[SessionCounters]) -> Losses {
        counters.iter().fold(Losses::default(), |sum, session| Losses {
            events: sum.events + session.events_lost,
            buffers: sum.buffers + session.real_time_buffers_lost,
            file_buffers: sum.file_buffers + session.buffers_lost,
            dropped: 0,
        })
    }

    fn sum(&self) -> u64 {
        self.events + self.buffers + self.file_buffers + self.dropped
    }
}

impl std::fmt::Display for Losses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.sum() == 0 {
            return f.write_str("nothing lost");
        }
        let losses = [
            (self.events, "event lost", "events lost"),
            (self.buffers, "buffer lost", "buffers lost"),
            (self.file_buffers, "buffer of the file lost", "buffers of the file lost"),
            (self.dropped, "event dropped by the queue", "events dropped by the queue"),
        ];
        let mut comma = "";
        for (number, one, many) in losses.into_iter().filter(|(number, ..)| *number > 0) {
            write!(f, "{comma}{}", counted(number, one, many))?;
            comma = ", ";
        }
        Ok(())
    }
}

fn status_line() -> ProgressBar {
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{elapsed_precise} {msg}");
    line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    line
}

/// The time for the monitor to stop the sessions. After it, the handler of the end of the program
/// stops them.
const HANDLER_WAITS: Duration = Duration::from_secs(2);

/// Returns a flag that becomes true at the first interrupt, or when the console is closed. At the
/// second interrupt, or if the monitor does not react, the sessions with these names are stopped
/// immediately, because they would outlive this program.
fn on_interrupt(sessions: Vec<String>) -> Result<Arc<AtomicBool>> {
    const INTERRUPTED: i32 = 130;
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    let stop_all = move || {
        for name in &sessions {
            // The monitor may have stopped the session already.
            let _ = LiveSession::stop_by_name(name);
        }
    };
    on_program_end(move |end| {
        let again = flag.swap(true, Ordering::Relaxed);
        match end {
            ProgramEnd::Interrupt if again => {
                stop_all();
                std::process::exit(INTERRUPTED);
            }
            ProgramEnd::Interrupt => {}
            ProgramEnd::Close => {
                // The program ends when this handler returns. It ends by itself before, or Windows
                // ends it.
                thread::sleep(HANDLER_WAITS);
                stop_all();
                loop {
                    thread::park();
                }
            }
        }
    })?;
    Ok(interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_shown_by_location() {
        let rows = [
            (Losses::default(), "nothing lost"),
            (Losses { events: 1_204, ..Losses::default() }, "1,204 events lost"),
            (
                Losses { events: 0, buffers: 2, file_buffers: 1, dropped: 3 },
                "2 buffers lost, 1 buffer of the file lost, 3 events dropped by the queue",
            ),
        ];
        for (losses, expected) in rows {
            assert_eq!(losses.to_string(), expected);
        }
    }
}
