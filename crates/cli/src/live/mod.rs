//! Live sessions, as the arguments ask for them: started, watched and ended.
//!
//! Where their events go is the business of verbs. On systems without sessions, everything here is checked as far as it
//! can be, and refused with what works there.

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
use crate::output::{grouped, message};
use session_monitor::Shown;
pub use session_monitor::{Ended, Losses, SessionMonitor};
use settings::Planned;
pub use settings::{BufferPreset, LiveSettings, Preset, ProviderSpec};

/// What to read: recordings, or what happens now.
#[derive(Args, Debug)]
pub struct Sources {
    /// Recordings, archives or directories
    #[arg(
        required_unless_present = "live",
        conflicts_with_all = ["live", "attach", "preset", "buffers", "session", "replace", "duration"],
        value_name = "FILE"
    )]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub grouping: Grouping,
    /// What happens now instead of a recording, on Windows; `--provider NAME[:KEYWORDS[:LEVEL]]` then enables
    /// providers
    #[arg(long, conflicts_with_all = ["merge", "separate"], help_heading = "Live")]
    pub live: bool,
    /// Take the events of this session that runs already, and leave it as it is
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

/// Sessions with small buffers are asked for where events cannot wait: then nothing here waits longer either, neither for
/// slower processors nor for stacks.
const SHORT: std::time::Duration = std::time::Duration::from_millis(250);

/// Sessions whose events are to be shown.
pub struct Live {
    pub arrivals: LiveMerger,
    pub session_monitor: SessionMonitor,
    short: bool,
}

impl Live {
    /// Starts sessions, or attaches to one. `providers` are enabled in what is started.
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
        let arrivals = LiveMerger::new(incoming)?;
        let shown = if status { Shown::Events } else { Shown::Nothing };
        let session_monitor = SessionMonitor::start(sessions, settings.duration, common, shown)?;
        Ok(Live { arrivals, session_monitor, short })
    }

    /// How long events wait for their stacks; `None` is as long as those of recordings.
    pub fn window(&self) -> Option<Window> {
        let clock = self.arrivals.clock();
        self.short.then(|| Window { max_hold: clock.duration_to_raw(SHORT), ..Window::of(&clock) })
    }
}

/// Stops what earlier runs of this program have left behind, and says so. What cannot be stopped is left: whether it is in the
/// way, starting a session will show.
fn stop_orphans(common: &Common) {
    for name in LiveSession::stop_orphans().unwrap_or_default() {
        if !common.quiet {
            message(format_args!("stopped session {name}, whose process has ended without stopping it"));
        }
    }
}

/// Starts all of them; those that run already end if one cannot be started.
fn start(planned: &[Planned], queue: Queue) -> Result<(Vec<LiveSession>, Vec<Incoming>)> {
    let (mut sessions, mut incoming) = (Vec::new(), Vec::new());
    for Planned { session, providers } in planned {
        let (running, events) = LiveSession::start(session, providers, queue)?;
        sessions.push(running);
        incoming.push(events);
    }
    Ok((sessions, incoming))
}

/// Says on other systems what works there.
fn needs_windows() -> Result<()> {
    if cfg!(windows) {
        return Ok(());
    }
    bail!(
        "live sessions need Windows; here, `stackhound events FILE.etl` reads what a session recorded there{}",
        exact_hint()
    );
}

/// What else records on this system.
fn exact_hint() -> &'static str {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        ", and `stackhound record --exact -- PROGRAM` records the calls of one program"
    } else {
        ""
    }
}

/// Whether this program caused an event. Such events are not shown: to write down what it did makes further ones.
pub fn is_own(view: &EventView<'_>) -> bool {
    view.pid() == Some(Pid(std::process::id()))
}

/// What came and what was lost, for the closing lines of verbs that look at events.
pub fn closing(outcome: &Outcome, ended: &Ended) -> String {
    let trace = &outcome.trace;
    let losses = Losses { dropped: trace.events_dropped, file_buffers: 0, ..Losses::of(&ended.counters) };
    let unreadable = match trace.events_unreadable {
        0 => String::new(),
        number => format!(", {} events unreadable", grouped(number)),
    };
    let repeated = match trace.buffers_repeated {
        0 => String::new(),
        number => format!(", {} repeated buffers", grouped(number)),
    };
    let forgotten = match outcome.system.forgotten_early.is_any() {
        true => ", more processes, modules or names than are remembered",
        false => "",
    };
    format!("{}, {losses}{unreadable}{repeated}{forgotten}", rate(trace.events, ended.time.as_secs_f64()))
}

/// How many events there were, for closing lines.
pub fn rate(events: u64, seconds: f64) -> String {
    let rate = (events as f64 / seconds.max(1e-9)) as u64;
    format!("{} events in {seconds:.1} s ({} events/s)", grouped(events), grouped(rate))
}
