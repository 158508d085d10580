//! Progress and closing lines on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::options::Common;
use crate::output::{counted, message};

/// The time before the bar appears.
const PATIENCE: Duration = Duration::from_millis(500);

/// The number of events between two updates of the bar.
const STEP: u64 = 1 << 15;

/// The progress bar, which appears during long work if standard error is a terminal, and the
/// closing line.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
    bytes: u64,
    events: u64,
    quiet: bool,
}

impl Progress {
    pub fn new(common: &Common, bytes: u64) -> Progress {
        let wanted = !common.quiet && !common.no_progress && std::io::stderr().is_terminal();
        let bar = wanted.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("{elapsed_precise} {human_pos} events, {per_sec} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        Progress { started: Instant::now(), bar, bytes, events: 0, quiet: common.quiet }
    }

    /// Counts one event.
    #[inline]
    pub fn tick(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(STEP) {
            self.draw();
        }
    }

    #[cold]
    fn draw(&mut self) {
        let Some(bar) = &self.bar else { return };
        if bar.is_hidden() && self.started.elapsed() > PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_position(self.events);
    }

    /// Removes the bar.
    pub fn clear(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Removes the bar and writes the closing line, unless the program is quiet.
    pub fn finish(self, rest: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.quiet {
            return;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let mib = self.bytes as f64 / f64::from(1 << 20);
        let rate = self.events as f64 / seconds.max(1e-9) / 1e6;
        let events = counted(self.events, "event", "events");
        message(format_args!("{events}, {mib:.1} MiB in {seconds:.2} s ({rate:.2} M events/s){rest}"));
    }
}
