//! `stacks`: the most frequent call stacks by event.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use stackhound::analysis::stack_counts::{EventStacks, FrameIndex, NamedStacks, StackCount, StackCounts};
use stackhound::trace::{Capture, OpenTrace};
use stackhound_export::escape::{Plain, folded_name, line};
use stackhound_export::folded::Lines;
use stackhound_export::json::frame::Frame;
use stackhound_export::json::info::OfCapture;
use stackhound_export::json::process::Process;
use stackhound_export::json::stack::{Stack, StackSummary};
use stackhound_export::json::stacks::{self as json, Stacks};

use crate::calltree::fold;
use crate::filter::{EventFilter, Filters};
use crate::info::capture_info;
use crate::inputs::{self, Inputs};
use crate::naming;
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, counted, grouped};
use crate::palette;
use crate::progress::Progress;
use crate::reading::Reading;
use crate::recognition;
use crate::render;
use crate::top::table::percent;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub filters: Filters,
    /// Show at most N stacks of each kind of event
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub naming: naming::Naming,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable table
    Table,
    /// Folded stacks for flame graphs: all stacks, outermost frame first
    Folded,
    /// One JSON object
    Json,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, Format::Table)?;
    if let [file] = &arguments.inputs.files[..]
        && recognition::holds_call_trees(file)
    {
        return exact(file, format, arguments, common);
    }
    let captures = inputs::captures(&arguments.inputs.files, arguments.inputs.grouping, common)?;
    let sink = arguments.output.rows(format)?;
    let mut report = Report { format, sink, captures: &captures, written: 0, folded: Lines::default() };
    let mut damaged = false;
    for (index, capture) in captures.iter().enumerate() {
        inputs::announce(&captures, index, common);
        damaged |= report_capture(arguments, common, &capture.trace, &mut report)?;
    }
    report.finish()?;
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Shows the stacks of an exact trace.
fn exact(file: &Path, format: Format, arguments: &Arguments, common: &Common) -> Result<Outcome> {
    fold::refuse_options(&arguments.filters, &arguments.naming, &[])?;
    let folded = fold::read(file, String::new(), common)?;
    let mut sink = arguments.output.rows(format)?;
    match format {
        Format::Table => folded.table(&mut sink, arguments.top)?,
        Format::Folded => stackhound_export::folded::write(&folded.calls.profile, &mut sink)?,
        Format::Json => sink.json(&folded.document(arguments.top))?,
    }
    sink.finish()?;
    Ok(folded.outcome())
}

/// Reports the stacks of one capture. Returns whether a byte of it is damaged.
fn report_capture(
    arguments: &Arguments,
    common: &Common,
    trace: &OpenTrace,
    report: &mut Report<'_>,
) -> Result<bool> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, Some(&filter))?;
    let mut pipeline = arguments.reading.pipeline(trace)?.with(enrichment);
    let mut progress = Progress::of(common, trace);
    let mut counts = StackCounts::default();
    // Folded lines do not state how many events have no stack.
    let counts_all = report.format != Format::Folded;
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        if filter.is_past(view) {
            return ControlFlow::Break(());
        }
        if (counts_all || view.stack().is_some()) && filter.wants(view) {
            counts.add(view);
        }
        ControlFlow::Continue(())
    });
    counts.end();
    let kinds = if report.format == Format::Folded {
        let all = counts.all_frames();
        counts.name(&mut pipeline, all);
        Vec::new()
    } else {
        let kinds = counts.events(arguments.top);
        let rows = kinds.iter().flat_map(|kind| &kind.stacks);
        let shown: Vec<FrameIndex> = rows.flat_map(|row| counts.frames(row)).copied().collect();
        counts.name(&mut pipeline, shown);
        kinds
    };
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    let (known, resolver, naming) = pipeline.parts();
    let (modules, system) = (resolver.modules(), known.system());
    let shown = NamedStacks { counts: &counts, modules, system, naming: naming.as_deref() };
    report.add(&kinds, &shown)?;
    Ok(!outcome.trace.damage.is_empty())
}

/// Writes the stacks of one capture after the other.
struct Report<'a> {
    format: Format,
    sink: Sink,
    captures: &'a [Capture],
    /// The number of written captures.
    written: usize,
    /// The folded lines of all captures.
    folded: Lines,
}

impl Report<'_> {
    fn add(&mut self, kinds: &[EventStacks], shown: &NamedStacks<'_>) -> Result<()> {
        let capture = (self.captures.len() > 1).then(|| &self.captures[self.written]);
        self.written += 1;
        match self.format {
            Format::Table => {
                if let Some(capture) = capture {
                    if self.written > 1 {
                        writeln!(self.sink)?;
                    }
                    line(&mut self.sink, format_args!("capture {}: {capture}", self.written))?;
                    writeln!(self.sink)?;
                }
                table(&mut self.sink, kinds, shown)
            }
            Format::Folded => {
                folded(&mut self.folded, shown);
                Ok(())
            }
            Format::Json => {
                let stacks = Stacks { kinds: kinds.iter().map(|kind| kind_json(kind, shown)).collect() };
                let Some(capture) = capture else { return self.sink.json(&stacks) };
                self.sink.write_all(if self.written > 1 { b"," } else { b"{\"captures\": [\n" })?;
                self.sink.json(&OfCapture { capture: capture_info(capture), document: stacks })
            }
        }
    }

    fn finish(mut self) -> Result<()> {
        self.folded.write(&mut self.sink)?;
        if self.format == Format::Json && self.captures.len() > 1 {
            writeln!(self.sink, "]}}")?;
        }
        self.sink.finish()
    }
}

fn table(out: &mut impl Write, kinds: &[EventStacks], shown: &NamedStacks<'_>) -> Result<()> {
    for (index, kind) in kinds.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let style = palette::of(palette::HEADING);
        write!(out, "{style}{}{style:#}", Plain(shown.counts.names().name(kind.event)))?;
        line(
            out,
            format_args!(
                ": {}, {} with a stack ({}), {} distinct",
                counted(kind.events, "event", "events"),
                grouped(kind.with_stack),
                percent(kind.with_stack, kind.events),
                grouped(kind.distinct as u64)
            ),
        )?;
        for row in &kind.stacks {
            let share = 100.0 * row.count as f64 / kind.with_stack as f64;
            let process = shown.counts.process_name(row).unwrap_or("-");
            let unit = palette::of(palette::UNIT);
            write!(out, "  {:>8} {share:>5.1} {unit}%{unit:#}  ", grouped(row.count))?;
            line(out, format_args!("{process} [{}]", row.key.states.first().name()))?;
            for &index in shown.counts.frames(row) {
                shown.frame(index, |label| {
                    let (style, mode) = (palette::of_code(label.frame), label.frame.mode.name());
                    for inline in label.inlines() {
                        write!(out, "    {style}{mode:<6}{style:#} ")?;
                        line(out, format_args!("{inline}{}", render::source(inline.source())))?;
                    }
                    write!(out, "    {style}{mode:<6}{style:#} ")?;
                    line(out, format_args!("{label}{}", render::source(label.source())))
                })?;
            }
        }
    }
    Ok(())
}

/// Adds one line per stack: the process, the frames from the outermost one on and the event, then
/// the count.
fn folded(lines: &mut Lines, shown: &NamedStacks<'_>) {
    let counts = shown.counts;
    let mut name = |text: &str| lines.label(folded_name(text));
    let unknown = name("-");
    let processes: Vec<_> = counts.processes().iter().map(|process| name(process)).collect();
    let events: Vec<_> = counts.names().iter().map(&mut name).collect();
    let frame = |index| {
        shown.frame(index, |label| {
            let mut text = folded_name(&label.function());
            for inline in label.inlines().rev() {
                text.push(';');
                text.push_str(&folded_name(&inline.to_string()));
            }
            lines.label(text)
        })
    };
    let frames: Vec<_> = counts.all_frames().map(frame).collect();
    for row in counts.rows() {
        let process = counts.process(row).map_or(unknown, |process| processes[process]);
        let stack = counts.frames(row).iter().rev().map(|&index| frames[index.index()]);
        let event = events[row.key.event.index()];
        lines.add([process].into_iter().chain(stack).chain([event]), row.count);
    }
}

/// The frames of a row. Each one is built when it is written, because its names are borrowed.
struct RowFrames<'a> {
    row: &'a StackCount,
    shown: &'a NamedStacks<'a>,
}

impl Serialize for RowFrames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frames = self.shown.counts.frames(self.row);
        let mut list = serializer.serialize_seq(Some(frames.len()))?;
        for &index in frames {
            self.shown.frame(index, |label| list.serialize_element(&Frame::of_event(&label)))?;
        }
        list.end()
    }
}

fn kind_json<'a>(
    kind: &'a EventStacks,
    shown: &'a NamedStacks<'a>,
) -> json::EventStacks<'a, json::StackRow<'a, RowFrames<'a>>> {
    let summary = |row| shown.summary(row).map(|summary| StackSummary::new(&summary, shown.modules));
    let row = |row: &'a StackCount| json::StackRow {
        count: row.count,
        pid: row.key.pid,
        process: Process::named(shown.counts.process_name(row)),
        stack: Stack::new(row.key.states, RowFrames { row, shown }, summary(row)),
    };
    json::EventStacks {
        event: shown.counts.names().name(kind.event),
        events: kind.events,
        with_stack: kind.with_stack,
        distinct: kind.distinct as u64,
        stacks: kind.stacks.iter().map(row).collect(),
    }
}
