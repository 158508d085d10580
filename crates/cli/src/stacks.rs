//! `stacks`: the most frequent call stacks by event.

use std::cmp::Ordering;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rustc_hash::FxHashMap;
use serde::ser::{Serialize, SerializeSeq, Serializer};
use stackhound::stacks::StackStates;
use stackhound::system::{MethodId, ModuleId, System};
use stackhound::trace::{Capture, OpenTrace};
use stackhound::types::AddressKind;
use stackhound::{
    Address, Depth, EventNameId, EventNumbers, EventView, FrameView, Label, Naming, Pipeline, frames, symbols,
};
use stackhound_export::escape::{Plain, folded_name, line};
use stackhound_export::folded::Lines;
use stackhound_export::json::frame::Frame;
use stackhound_export::json::process::Process;
use stackhound_export::json::stack::{Stack, StackSummary};
use stackhound_export::json::stacks::{self as json, CaptureStacks, EventStacks, Stacks};

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

/// One stack of one process. An address can belong to different modules in different processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct RowKey {
    event: EventNameId,
    /// Index into the stack table of the trace.
    stack: u32,
    pid: Option<u32>,
    states: StackStates,
}

/// How often a stack of one process was observed.
#[derive(Clone, Copy, Debug)]
struct StackRow {
    key: RowKey,
    count: u64,
    /// Index into [`Collected::processes`].
    process: Option<u32>,
    /// The range of its frames in [`Collected::frames`].
    start: usize,
    end: usize,
}

/// Index into [`Frames`].
type FrameIndex = u32;

/// The stacks of one kind of event.
#[derive(Debug)]
struct Kind {
    event: EventNameId,
    events: u64,
    with_stack: u64,
    /// The rows, most frequent first.
    stacks: Vec<StackRow>,
    distinct: usize,
}

/// All stacks of a capture, as numbers: a trace repeats names, frames and stacks very often.
#[derive(Default)]
struct Collected {
    names: EventNumbers,
    /// The number of events, and of those with a stack, by the number of their name.
    counts: Vec<(u64, u64)>,
    numbers: FxHashMap<RowKey, u32>,
    rows: Vec<StackRow>,
    /// The frames of the rows, innermost first.
    frames: Vec<FrameIndex>,
    processes: Vec<String>,
    process_numbers: FxHashMap<String, u32>,
    distinct: Frames,
}

/// The key of a distinct frame: its address and address space.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct FrameKey {
    address: Address,
    kind: AddressKind,
    depth: Depth,
    pid: Option<u32>,
    module: Option<ModuleId>,
    method: Option<MethodId>,
}

/// All distinct frames. The facts about the memory of a frame are those at its first occurrence.
#[derive(Default)]
struct Frames {
    known: FxHashMap<FrameKey, FrameIndex>,
    rows: Vec<FrameRow>,
}

struct FrameRow {
    facts: frames::Frame,
    depth: Depth,
    number: Option<symbols::FrameNumber>,
}

impl Frames {
    fn index(&mut self, pid: Option<u32>, frame: &FrameView<'_>) -> FrameIndex {
        let (facts, depth) = (frame.facts(), frame.depth());
        let module = facts.loaded;
        // A module at the same address is the same in every process.
        let pid = pid.filter(|_| module.is_none());
        let key =
            FrameKey { address: frame.address(), kind: facts.kind, depth, pid, module, method: facts.method };
        *self.known.entry(key).or_insert_with(|| {
            self.rows.push(FrameRow { facts: *facts, depth, number: None });
            self.rows.len() as FrameIndex - 1
        })
    }
}

impl Collected {
    fn add(&mut self, view: &EventView<'_>) {
        let event = self.names.of(view);
        if self.counts.len() <= event.index() {
            self.counts.resize(event.index() + 1, (0, 0));
        }
        let (events, with_stack) = &mut self.counts[event.index()];
        *events += 1;
        let Some(stack) = view.stack().filter(|_| view.level() != frames::Level::None) else { return };
        *with_stack += 1;
        // Without the uncertainty about the end of the walk, which is not shown.
        let states = view.stack_states();
        let states = states.others().fold(StackStates::of(states.first()), StackStates::with);
        let pid = view.pid().map(|pid| pid.0);
        let key = RowKey { event, stack: stack.index() as u32, pid, states };
        let row = match self.numbers.get(&key) {
            Some(&number) => number as usize,
            None => self.insert(key, view),
        };
        self.rows[row].count += 1;
    }

    fn insert(&mut self, key: RowKey, view: &EventView<'_>) -> usize {
        let Collected { frames, distinct, rows, numbers, .. } = self;
        let (start, pid) = (frames.len(), view.stack_owner().pid.map(|pid| pid.0));
        frames.extend(view.frames().map(|frame| distinct.index(pid, &frame)));
        let (end, number) = (frames.len(), rows.len());
        numbers.insert(key, number as u32);
        let process = view.process_name().map(|name| self.process(name));
        self.rows.push(StackRow { key, count: 0, process, start, end });
        number
    }

    fn process(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.process_numbers.get(name) {
            return known;
        }
        let number = self.processes.len() as u32;
        self.processes.push(name.to_owned());
        self.process_numbers.insert(name.to_owned(), number);
        number
    }

    fn frames(&self, row: &StackRow) -> &[FrameIndex] {
        &self.frames[row.start..row.end]
    }

    fn process_name(&self, row: &StackRow) -> Option<&str> {
        row.process.map(|process| &*self.processes[process as usize])
    }

    /// The kinds of events, those with the most stacks first, and the most frequent rows of each.
    fn kinds(&self, top: usize) -> Vec<Kind> {
        let mut of_event: Vec<Vec<StackRow>> = vec![Vec::new(); self.counts.len()];
        self.rows.iter().for_each(|row| of_event[row.key.event.index()].push(*row));
        let mut kinds: Vec<Kind> = Vec::new();
        for (mut stacks, &(events, with_stack)) in of_event.into_iter().zip(&self.counts) {
            let Some(first) = stacks.first() else { continue };
            let (event, distinct) = (first.key.event, stacks.len());
            stacks.sort_unstable_by(|a, b| self.compare(a, b));
            stacks.truncate(top);
            kinds.push(Kind { event, events, with_stack, stacks, distinct });
        }
        kinds.sort_by(|a, b| {
            let by_name = || self.names.name(a.event).cmp(self.names.name(b.event));
            b.with_stack.cmp(&a.with_stack).then_with(by_name)
        });
        kinds
    }

    /// The order of the rows of a kind: most frequent first, then by process, frames, state and
    /// process id.
    fn compare(&self, a: &StackRow, b: &StackRow) -> Ordering {
        let address =
            |&index: &FrameIndex| self.distinct.rows[index as usize].facts.address.unwrap_or(Address(0));
        let by_frames = || self.frames(a).iter().map(address).cmp(self.frames(b).iter().map(address));
        let rest = |row: &StackRow| (row.key.states, row.key.pid, row.key.stack);
        b.count
            .cmp(&a.count)
            .then_with(|| self.process_name(a).cmp(&self.process_name(b)))
            .then_with(by_frames)
            .then_with(|| rest(a).cmp(&rest(b)))
    }
}

/// Frames with everything needed to show them.
struct Shown<'a> {
    collected: &'a Collected,
    modules: &'a frames::Modules,
    system: &'a System,
    naming: Option<&'a Naming>,
}

impl Shown<'_> {
    /// The summary of a row, unless frames are shown as addresses only.
    fn summary(&self, row: &StackRow) -> Option<StackSummary<'static>> {
        let frames = self.collected.frames(row);
        let rows = || frames.iter().map(|&index| &self.collected.distinct.rows[index as usize]);
        if rows().all(|row| row.depth == Depth::Address) {
            return None;
        }
        let facts: Vec<frames::Frame> = rows().map(|row| row.facts).collect();
        let mut summary = frames::Summary::default();
        summary.of(self.modules, row.key.states, &facts);
        Some(StackSummary::new(&summary, self.modules))
    }

    fn frame<T>(&self, index: FrameIndex, show: impl FnOnce(Label<'_>) -> T) -> T {
        let row = &self.collected.distinct.rows[index as usize];
        let frame = FrameView::new(row.facts, self.system, row.depth);
        let names = self.naming.and_then(|naming| naming.frame(row.number?));
        show(Label { frame: &frame, names })
    }
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
        Format::Folded => stackhound_export::folded::write(&folded.profile, &mut sink)?,
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
    let mut collected = Collected::default();
    // Folded lines do not state how many events have no stack.
    let counts_all = report.format != Format::Folded;
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        if filter.is_past(view) {
            return ControlFlow::Break(());
        }
        if (counts_all || view.stack().is_some()) && filter.wants(view) {
            collected.add(view);
        }
        ControlFlow::Continue(())
    });
    // Not used any more, and as large as the rows.
    collected.numbers = FxHashMap::default();
    collected.distinct.known = FxHashMap::default();
    let kinds = if report.format == Format::Folded {
        let all = 0..collected.distinct.rows.len() as FrameIndex;
        name(&mut pipeline, &mut collected.distinct, all);
        Vec::new()
    } else {
        let kinds = collected.kinds(arguments.top);
        let rows = kinds.iter().flat_map(|kind| &kind.stacks);
        let shown: Vec<FrameIndex> = rows.flat_map(|row| collected.frames(row)).copied().collect();
        name(&mut pipeline, &mut collected.distinct, shown);
        kinds
    };
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    let (known, resolver, naming) = pipeline.parts();
    let (modules, system) = (resolver.modules(), known.system());
    let shown = Shown { collected: &collected, modules, system, naming: naming.as_deref() };
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
    fn add(&mut self, kinds: &[Kind], shown: &Shown<'_>) -> Result<()> {
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
                self.sink.json(&CaptureStacks { capture: capture_info(capture), stacks })
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

/// Resolves the names of the frames that are shown. Requests all modules before waiting.
fn name(pipeline: &mut Pipeline<'_>, frames: &mut Frames, shown: impl IntoIterator<Item = FrameIndex>) {
    let (known, _, Some(naming)) = pipeline.parts() else { return };
    for index in shown {
        let row = &mut frames.rows[index as usize];
        if row.depth == Depth::Function
            && row.number.is_none()
            && let Some((module, rva)) = row.facts.in_loaded()
        {
            row.number = naming.request(known.system().module(module), rva, row.facts.kind);
        }
    }
    naming.wait_for_all();
}

fn table(out: &mut impl Write, kinds: &[Kind], shown: &Shown<'_>) -> Result<()> {
    for (index, kind) in kinds.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let style = palette::of(palette::HEADING);
        write!(out, "{style}{}{style:#}", Plain(shown.collected.names.name(kind.event)))?;
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
            let process = shown.collected.process_name(row).unwrap_or("-");
            let unit = palette::of(palette::UNIT);
            write!(out, "  {:>8} {share:>5.1} {unit}%{unit:#}  ", grouped(row.count))?;
            line(out, format_args!("{process} [{}]", row.key.states.first().name()))?;
            for &index in shown.collected.frames(row) {
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
fn folded(lines: &mut Lines, shown: &Shown<'_>) {
    let collected = shown.collected;
    let mut name = |text: &str| lines.label(folded_name(text));
    let unknown = name("-");
    let processes: Vec<_> = collected.processes.iter().map(|process| name(process)).collect();
    let events: Vec<_> = collected.names.iter().map(&mut name).collect();
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
    let frames: Vec<_> = (0..collected.distinct.rows.len() as FrameIndex).map(frame).collect();
    for row in &collected.rows {
        let process = row.process.map_or(unknown, |process| processes[process as usize]);
        let stack = collected.frames(row).iter().rev().map(|&index| frames[index as usize]);
        let event = events[row.key.event.index()];
        lines.add([process].into_iter().chain(stack).chain([event]), row.count);
    }
}

/// The frames of a row. Each one is built when it is written, because its names are borrowed.
struct RowFrames<'a> {
    row: &'a StackRow,
    shown: &'a Shown<'a>,
}

impl Serialize for RowFrames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frames = self.shown.collected.frames(self.row);
        let mut list = serializer.serialize_seq(Some(frames.len()))?;
        for &index in frames {
            self.shown.frame(index, |label| list.serialize_element(&Frame::of_event(&label)))?;
        }
        list.end()
    }
}

fn kind_json<'a>(kind: &'a Kind, shown: &'a Shown<'a>) -> EventStacks<'a, json::StackRow<'a, RowFrames<'a>>> {
    let row = |row: &'a StackRow| json::StackRow {
        count: row.count,
        pid: row.key.pid,
        process: Process::named(shown.collected.process_name(row)),
        stack: Stack::new(row.key.states, RowFrames { row, shown }, shown.summary(row)),
    };
    EventStacks {
        event: shown.collected.names.name(kind.event),
        events: kind.events,
        with_stack: kind.with_stack,
        distinct: kind.distinct as u64,
        stacks: kind.stacks.iter().map(row).collect(),
    }
}
