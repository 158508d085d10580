//! Starts, monitors and ends the live sessions of the arguments.
//!
//! The verbs handle the events. Systems other than Windows check the arguments and return an error
//! that names the commands that work there.

pub mod record;
mod session_monitor;
mod settings;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::live::{Incoming, LiveMerger, LiveSession, Overflow, Queue};
use stackhound::stacks::Window;
use stackhound::types::Pid;
use stackhound::{EventView, Outcome};

use crate::inputs::Grouping;
use crate::options::Common;
use crate::output::{counted, grouped, message};
use session_monitor::Shown;
pub use session_monitor::{Ended, Losses, SessionMonitor};
use settings::Planned;
pub use settings::{BufferPreset, LiveSettings, ProviderSpec};

/// The input: files or a live session.
#[derive(Args, Debug)]
pub struct Sources {
    /// Read these traces (.etl), archives or directories
    #[arg(
        required_unless_present = "live",
        conflicts_with_all = ["live", "attach", "preset", "buffers", "session", "replace", "duration"],
        value_name = "FILE"
    )]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub grouping: Grouping,
    /// Read a live session instead of files, on Windows; `--provider NAME[:KEYWORDS[:LEVEL]]` then
    /// enables providers
    #[arg(long, conflicts_with_all = ["merge", "separate"], help_heading = "Live")]
    pub live: bool,
    /// Read the events of this existing session, without changing it
    #[arg(
        long,
        value_name = "SESSION",
        requires = "live",
        conflicts_with_all = ["preset", "buffers", "session", "replace"],
        help_heading = "Live"
    )]
    pub attach: Option<String>,
    #[command(flatten)]
    pub settings: LiveSettings,
}

/// The limit for waiting for slower processors and for stacks in sessions with small buffers, which
/// are used if events must be delivered fast.
const SHORT: std::time::Duration = std::time::Duration::from_millis(250);

/// Running sessions and the merger of their events.
pub struct Live {
    pub merger: LiveMerger,
    pub session_monitor: SessionMonitor,
    /// The time that events wait for their stacks; `None` is the same as for traces.
    pub window: Option<Window>,
}

impl Live {
    /// Starts sessions, or attaches to one. Enables `providers` in started sessions.
    pub fn open(
        sources: &Sources,
        providers: &[String],
        with_stacks: bool,
        common: &Common,
        status: bool,
    ) -> Result<Live> {
        let settings = &sources.settings;
        let short = settings.buffers == Some(BufferPreset::LowLatency);
        let mut queue = Queue::new(Overflow::Block);
        if short {
            queue.disorder = Some(SHORT);
        }
        let (sessions, incoming) = match &sources.attach {
            Some(name) => {
                needs_windows()?;
                let (session, incoming) = LiveSession::attach(name, queue)?;
                (vec![session], vec![incoming])
            }
            None => {
                let providers: Result<Vec<ProviderSpec>> =
                    providers.iter().map(|text| text.parse()).collect();
                let providers = providers?;
                needs_windows()?;
                stop_orphans(common);
                start(&settings::plan(settings, &providers, with_stacks)?, queue)?
            }
        };
        let merger = LiveMerger::new(incoming)?;
        let shown = if status { Shown::Events } else { Shown::Nothing };
        let session_monitor = SessionMonitor::start(sessions, settings.duration, common, shown)?;
        let clock = merger.clock();
        let window = short.then(|| Window { max_hold: clock.duration_to_raw(SHORT), ..Window::of(&clock) });
        Ok(Live { merger, session_monitor, window })
    }
}

/// Stops sessions that earlier runs of this program did not stop, and reports them. Sessions that
/// cannot be stopped are ignored: if they conflict, the start of a new session fails.
fn stop_orphans(common: &Common) {
    for name in LiveSession::stop_orphans().unwrap_or_default() {
        if !common.quiet {
            message(format_args!("stopped session {name}, whose process had ended without stopping it"));
        }
    }
}

/// Starts all sessions. If one cannot be started, the others end.
fn start(planned: &[Planned], queue: Queue) -> Result<(Vec<LiveSession>, Vec<Incoming>)> {
    let (mut sessions, mut incoming) = (Vec::new(), Vec::new());
    for Planned { session, providers } in planned {
        let (running, events) = LiveSession::start(session, providers, queue)?;
        sessions.push(running);
        incoming.push(events);
    }
    Ok((sessions, incoming))
}

/// Returns an error on other systems, with the commands that work there.
fn needs_windows() -> Result<()> {
    if cfg!(windows) {
        return Ok(());
    }
    bail!(
        "live sessions need Windows; here, `stackhound events FILE.etl` reads a trace that was recorded on Windows{}",
        exact_hint()
    );
}

/// The command that records on this system.
fn exact_hint() -> &'static str {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        ", and `stackhound record --exact -- PROGRAM` records the calls of one program"
    } else {
        ""
    }
}

/// Whether this program caused an event. Such events are not shown, because showing them would
/// cause further events.
pub fn is_own(view: &EventView<'_>) -> bool {
    view.pid() == Some(Pid(std::process::id()))
}

/// The counts of events and losses, for closing lines.
pub fn closing(outcome: &Outcome, ended: &Ended) -> String {
    let trace = &outcome.trace;
    let losses = Losses { dropped: trace.events_dropped, file_buffers: 0, ..Losses::of(&ended.counters) };
    let unreadable = match trace.events_unreadable {
        0 => String::new(),
        number => format!(", {} unreadable", counted(number, "event", "events")),
    };
    let repeated = match trace.buffers_repeated {
        0 => String::new(),
        number => format!(", {}", counted(number, "repeated buffer", "repeated buffers")),
    };
    let forgotten = match outcome.system.forgotten_early.is_any() {
        true => ", more processes, modules or names than the limits allow",
        false => "",
    };
    format!("{}, {losses}{unreadable}{repeated}{forgotten}", rate(trace.events, ended.time.as_secs_f64()))
}

/// The number and rate of events, for closing lines.
pub fn rate(events: u64, seconds: f64) -> String {
    let rate = (events as f64 / seconds.max(1e-9)) as u64;
    format!("{} in {seconds:.1} s ({} events/s)", counted(events, "event", "events"), grouped(rate))
}
