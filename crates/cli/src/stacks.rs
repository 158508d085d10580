//! `stacks`: the most frequent call stacks by event.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use stackhound::stacks::StackStates;
use stackhound::system::{MethodId, ModuleId, System};
use stackhound::trace::{Capture, OpenTrace};
use stackhound::types::AddressKind;
use stackhound::{Address, Depth, EventView, FrameView, Label, Naming, Pipeline, frames, symbols};
use stackhound_export::escape::{Plain, folded_name, line};
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
#[derive(Clone, Debug)]
struct StackRow {
    count: u64,
    pid: Option<u32>,
    process: Option<String>,
    states: StackStates,
    /// Innermost first.
    frames: Vec<FrameIndex>,
}

/// Index into [`Frames`].
type FrameIndex = u32;

/// The stacks of one kind of event.
#[derive(Debug)]
struct Kind {
    event: String,
    events: u64,
    with_stack: u64,
    distinct: usize,
    stacks: Vec<StackRow>,
}

/// The key of a row: stacks of one kind of event with the same key are counted together.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct RowKey {
    stack: usize,
    pid: Option<u32>,
    states: StackStates,
}

#[derive(Default)]
struct Collected {
    events: u64,
    with_stack: u64,
    rows: HashMap<RowKey, StackRow>,
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
    known: HashMap<FrameKey, FrameIndex>,
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

/// Frames with everything needed to show them.
struct Shown<'a> {
    frames: &'a Frames,
    modules: &'a frames::Modules,
    system: &'a System,
    naming: Option<&'a Naming>,
}

impl Shown<'_> {
    /// The summary of a row, unless frames are shown as addresses only.
    fn summary(&self, row: &StackRow) -> Option<StackSummary<'static>> {
        let rows = || row.frames.iter().map(|&index| &self.frames.rows[index as usize]);
        if rows().all(|row| row.depth == Depth::Address) {
            return None;
        }
        let facts: Vec<frames::Frame> = rows().map(|row| row.facts).collect();
        let mut summary = frames::Summary::default();
        summary.of(self.modules, row.states, &facts);
        Some(StackSummary::new(&summary, self.modules))
    }

    fn frame<T>(&self, index: FrameIndex, show: impl FnOnce(Label<'_>) -> T) -> T {
        let row = &self.frames.rows[index as usize];
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
    let mut report = Report { format, sink, captures: &captures, written: 0, folded: BTreeMap::new() };
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
    let mut kinds: HashMap<String, Collected> = HashMap::new();
    let mut frames = Frames::default();
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        if filter.is_past(view) {
            return ControlFlow::Break(());
        }
        if filter.wants(view) {
            collect(&mut kinds, &mut frames, view);
        }
        ControlFlow::Continue(())
    });
    let mut kinds: Vec<Kind> = kinds
        .into_iter()
        .filter(|(_, found)| found.with_stack > 0)
        .map(|(event, found)| kind(event, found, &frames))
        .collect();
    kinds.sort_by(|a, b| b.with_stack.cmp(&a.with_stack).then_with(|| a.event.cmp(&b.event)));
    if report.format != Format::Folded {
        kinds.iter_mut().for_each(|kind| kind.stacks.truncate(arguments.top));
    }
    name(&mut pipeline, &kinds, &mut frames);
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    let (known, resolver, naming) = pipeline.parts();
    let (modules, system) = (resolver.modules(), known.system());
    let shown = Shown { frames: &frames, modules, system, naming: naming.as_deref() };
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
    folded: BTreeMap<String, u64>,
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
            Format::Folded => folded(&mut self.folded, kinds, shown),
            Format::Json => {
                let stacks = Stacks { kinds: kinds.iter().map(|kind| kind_json(kind, shown)).collect() };
                let Some(capture) = capture else { return self.sink.json(&stacks) };
                self.sink.write_all(if self.written > 1 { b"," } else { b"{\"captures\": [\n" })?;
                self.sink.json(&CaptureStacks { capture: capture_info(capture), stacks })
            }
        }
    }

    fn finish(mut self) -> Result<()> {
        for (stack, count) in &self.folded {
            line(&mut self.sink, format_args!("{stack} {count}"))?;
        }
        if self.format == Format::Json && self.captures.len() > 1 {
            writeln!(self.sink, "]}}")?;
        }
        self.sink.finish()
    }
}

fn collect(kinds: &mut HashMap<String, Collected>, frames: &mut Frames, view: &EventView<'_>) {
    let name = view.name();
    let kind = match kinds.get_mut(&*name) {
        Some(kind) => kind,
        None => kinds.entry(name.into_owned()).or_default(),
    };
    kind.events += 1;
    let Some(stack) = view.stack().filter(|_| view.level() != frames::Level::None) else { return };
    kind.with_stack += 1;
    let pid = view.pid().map(|pid| pid.0);
    // Without the uncertainty about the end of the walk, which is not shown.
    let states = view.stack_states();
    let states = states.others().fold(StackStates::of(states.first()), StackStates::with);
    let key = RowKey { stack: stack.index(), pid, states };
    let row = kind.rows.entry(key).or_insert_with(|| {
        let frames_pid = view.stack_owner().pid.map(|pid| pid.0);
        StackRow {
            count: 0,
            pid,
            process: view.process_name().map(str::to_owned),
            states,
            frames: view.frames().map(|frame| frames.index(frames_pid, &frame)).collect(),
        }
    });
    row.count += 1;
}

/// Sorts the rows of a kind: most frequent first, then by process, frames, state and process id.
fn kind(event: String, found: Collected, frames: &Frames) -> Kind {
    let mut stacks: Vec<(RowKey, StackRow)> = found.rows.into_iter().collect();
    let addresses = |row: &StackRow| -> Vec<Address> {
        row.frames
            .iter()
            .map(|&index| frames.rows[index as usize].facts.address.unwrap_or(Address(0)))
            .collect()
    };
    stacks.sort_by(|(key_a, a), (key_b, b)| {
        let by_frames = || addresses(a).cmp(&addresses(b));
        let rest = |key: &RowKey| (key.states, key.pid, key.stack);
        b.count
            .cmp(&a.count)
            .then_with(|| a.process.cmp(&b.process))
            .then_with(by_frames)
            .then_with(|| rest(key_a).cmp(&rest(key_b)))
    });
    let stacks: Vec<StackRow> = stacks.into_iter().map(|(_, row)| row).collect();
    Kind { event, events: found.events, with_stack: found.with_stack, distinct: stacks.len(), stacks }
}

/// Resolves the names of the frames that are shown. Requests all modules before waiting.
fn name(pipeline: &mut Pipeline<'_>, kinds: &[Kind], frames: &mut Frames) {
    let (known, _, Some(naming)) = pipeline.parts() else { return };
    for &index in kinds.iter().flat_map(|kind| &kind.stacks).flat_map(|row| &row.frames) {
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
        write!(out, "{style}{}{style:#}", Plain(&kind.event))?;
        line(
            out,
            format_args!(
                ": {}, {} with a stack (100 %), {} distinct",
                counted(kind.events, "event", "events"),
                grouped(kind.with_stack),
                grouped(kind.distinct as u64)
            ),
        )?;
        for row in &kind.stacks {
            let share = 100.0 * row.count as f64 / kind.with_stack as f64;
            let process = row.process.as_deref().unwrap_or("-");
            let unit = palette::of(palette::UNIT);
            write!(out, "  {:>8} {share:>5.1} {unit}%{unit:#}  ", grouped(row.count))?;
            line(out, format_args!("{process} [{}]", row.states.first().name()))?;
            for &index in &row.frames {
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
/// the count. The counts of equal lines are summed.
fn folded(lines: &mut BTreeMap<String, u64>, kinds: &[Kind], shown: &Shown<'_>) -> Result<()> {
    for kind in kinds {
        for row in &kind.stacks {
            let mut line = folded_name(row.process.as_deref().unwrap_or("-"));
            for &index in row.frames.iter().rev() {
                shown.frame(index, |label| {
                    let inlines = label.inlines().rev().map(|inline| inline.to_string());
                    for name in std::iter::once(label.function()).chain(inlines) {
                        line.push(';');
                        line.push_str(&folded_name(&name));
                    }
                });
            }
            line.push(';');
            line.push_str(&folded_name(&kind.event));
            *lines.entry(line).or_default() += row.count;
        }
    }
    Ok(())
}

/// The frames of a row. Each one is built when it is written, because its names are borrowed.
struct RowFrames<'a> {
    row: &'a StackRow,
    shown: &'a Shown<'a>,
}

impl Serialize for RowFrames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.row.frames.len()))?;
        for &index in &self.row.frames {
            self.shown.frame(index, |label| list.serialize_element(&Frame::of_event(&label)))?;
        }
        list.end()
    }
}

fn kind_json<'a>(kind: &'a Kind, shown: &'a Shown<'a>) -> EventStacks<'a, json::StackRow<'a, RowFrames<'a>>> {
    let row = |row: &'a StackRow| json::StackRow {
        count: row.count,
        pid: row.pid,
        process: Process::named(row.process.as_deref()),
        stack: Stack::new(row.states, RowFrames { row, shown }, shown.summary(row)),
    };
    EventStacks {
        event: &kind.event,
        events: kind.events,
        with_stack: kind.with_stack,
        distinct: kind.distinct as u64,
        stacks: kind.stacks.iter().map(row).collect(),
    }
}
