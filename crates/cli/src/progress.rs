//! Progress and closing lines on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stackhound::trace::{Event, OpenTrace};
use stackhound::{EventView, FileTime};

use crate::options::Common;
use crate::output::{at_end, counted, grouped};

/// The time before the line of progress appears.
const PATIENCE: Duration = Duration::from_millis(500);

/// The number of events between two updates of the line.
const STEP: u64 = 1 << 15;

/// The line of progress, which appears during long work if standard error is a terminal, and the
/// closing line.
///
/// The share of a trace that was read is that of its time: the file says when its session ended. The
/// first of two passes is not counted.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
    bytes: u64,
    events: u64,
    quiet: bool,
    /// The bytes of earlier traces.
    before: u64,
    trace: Option<Span>,
}

/// The parts of the closing line after the number of events. Each begins with a comma, or is empty.
#[derive(Clone, Copy, Default, Debug)]
pub struct Closing<'c> {
    /// The number of selected events, if there is a filter.
    pub selected: Option<u64>,
    /// What the trace lacks.
    pub losses: &'c str,
    /// The events for which the filter has no answer.
    pub undecided: &'c str,
    /// Counts of the result.
    pub results: &'c str,
}

/// The trace that is read.
#[derive(Clone, Copy, Debug)]
struct Span {
    bytes: u64,
    start: FileTime,
    end: FileTime,
}

impl Span {
    /// `None` if the time of the end is not known, as of files that were not closed.
    fn of(trace: &OpenTrace) -> Option<Span> {
        let sessions = || trace.sources().iter().map(|source| source.etl_file.session());
        let end =
            sessions().map(|session| session.end_time).collect::<Option<Vec<_>>>()?.into_iter().max()?;
        let start = sessions().map(|session| session.start_time).min()?;
        Some(Span { bytes: size(trace), start, end })
    }

    /// The share of the trace until a time.
    fn share(&self, time: FileTime) -> f64 {
        let ticks = |time: FileTime| time.0.saturating_sub(self.start.0) as f64;
        (ticks(time) / ticks(self.end).max(1.0)).clamp(0.0, 1.0)
    }
}

/// The size of the files of a trace in bytes.
pub fn size(trace: &OpenTrace) -> u64 {
    trace.sources().iter().map(|source| source.etl_file.size()).sum()
}

impl Progress {
    pub fn new(common: &Common, bytes: u64) -> Progress {
        let wanted = !common.quiet && !common.no_progress && std::io::stderr().is_terminal();
        let bar = wanted.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("{wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        let (started, quiet) = (Instant::now(), common.quiet);
        Progress { started, bar, bytes, events: 0, quiet, before: 0, trace: None }
    }

    /// Progress of reading one trace.
    pub fn of(common: &Common, trace: &OpenTrace) -> Progress {
        let mut progress = Progress::new(common, size(trace));
        progress.begin(trace);
        progress
    }

    /// Adds the size of inputs.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Begins one of several traces.
    pub fn begin(&mut self, trace: &OpenTrace) {
        self.before += self.trace.map_or(0, |trace| trace.bytes);
        self.trace = Span::of(trace);
    }

    /// Counts one event.
    #[inline]
    pub fn tick(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(STEP) {
            self.draw(None);
        }
    }

    /// Counts one event of the trace.
    #[inline]
    pub fn tick_at(&mut self, view: &EventView<'_>) {
        self.tick_event(view.event());
    }

    /// As [`tick_at`](Progress::tick_at), for an event without its context.
    #[inline]
    pub fn tick_event(&mut self, event: &Event<'_>) {
        self.events += 1;
        if self.events.is_multiple_of(STEP) {
            self.draw(Some(event.utc()));
        }
    }

    #[cold]
    fn draw(&mut self, time: Option<FileTime>) {
        let share = self.trace.zip(time).map(|(trace, time)| {
            (self.before as f64 + trace.bytes as f64 * trace.share(time)) / self.bytes.max(1) as f64
        });
        self.show(|elapsed| line(elapsed, self.events, share));
    }

    /// Shows a line, which is made of the time so far.
    pub fn show(&self, line: impl FnOnce(Duration) -> String) {
        let Some(bar) = &self.bar else { return };
        let elapsed = self.started.elapsed();
        if bar.is_hidden() && elapsed > PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_message(line(elapsed));
        bar.tick();
    }

    /// Removes the line.
    pub fn clear(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Removes the line, and writes the closing line after the result, unless the program is quiet.
    pub fn finish(self, rest: &str) {
        self.finish_with(Closing { losses: rest, ..Closing::default() });
    }

    /// As [`finish`](Progress::finish), with the parts about a filter. Events that a filter leaves
    /// undecided are missing in the result, so they are reported even if the program is quiet.
    pub fn finish_with(self, closing: Closing<'_>) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let Closing { selected, losses, undecided, results } = closing;
        if self.quiet {
            report_undecided(undecided);
            return;
        }
        let mib = self.bytes as f64 / f64::from(1 << 20);
        let elapsed = self.started.elapsed();
        let selected = selected.map(|selected| format!("{} of ", grouped(selected))).unwrap_or_default();
        at_end(format_args!(
            "{selected}{}, {mib:.1} MiB in {:.2} s ({}){losses}{undecided}{results}",
            counted(self.events, "event", "events"),
            elapsed.as_secs_f64(),
            rate(elapsed, self.events)
        ));
    }
}

/// Reports the undecided events of a quiet program, from their part of the closing line.
pub fn report_undecided(part: &str) {
    if !part.is_empty() {
        at_end(format_args!("{}", part.trim_start_matches(", ")));
    }
}

/// The line of progress: the share, if it is known, the number of events, their rate and the rest
/// of the time.
fn line(elapsed: Duration, events: u64, share: Option<f64>) -> String {
    let done = format!("{}, {}", counted(events, "event", "events"), rate(elapsed, events));
    match share {
        Some(share) if share > 0.0 => {
            let share = share.min(1.0);
            let rest = elapsed.mul_f64(((1.0 - share) / share).min(1e6)).as_secs_f64().ceil() as u64;
            let rest = match rest {
                0..60 => format!("{rest} s"),
                _ => format!("{} min {:02} s", rest / 60, rest % 60),
            };
            format!("{:>3.0} %  {done}, {rest} left", 100.0 * share)
        }
        _ => format!("{} s  {done}", elapsed.as_secs()),
    }
}

/// The rate with two digits after the point.
fn rate(elapsed: Duration, events: u64) -> String {
    format!("{:.2} M events/s", events as f64 / elapsed.as_secs_f64().max(1e-9) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_a_share_a_rate_and_the_rest_of_the_time() {
        let seconds = Duration::from_secs;
        for (elapsed, events, share, expected) in [
            (2, 2_469_134, Some(0.25), " 25 %  2,469,134 events, 1.23 M events/s, 6 s left"),
            (30, 300_000_000, Some(0.1), " 10 %  300,000,000 events, 10.00 M events/s, 4 min 30 s left"),
            (4, 32_768, Some(1.0), "100 %  32,768 events, 0.01 M events/s, 0 s left"),
            (4, 32_768, Some(0.0), "4 s  32,768 events, 0.01 M events/s"),
            (4, 1, None, "4 s  1 event, 0.00 M events/s"),
        ] {
            assert_eq!(line(seconds(elapsed), events, share), expected);
        }
    }

    #[test]
    fn shares_are_those_of_the_time() {
        let span = Span { bytes: 1, start: FileTime(100), end: FileTime(300) };
        for (time, expected) in [(0, 0.0), (100, 0.0), (200, 0.5), (300, 1.0), (400, 1.0)] {
            assert_eq!(span.share(FileTime(time)), expected);
        }
        let empty = Span { end: FileTime(100), ..span };
        assert_eq!(empty.share(FileTime(100)), 0.0);
    }
}
