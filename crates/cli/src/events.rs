//! `events`: events in time order.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::frames::{CallEnd, CallOutcome, CreateEnd, CreateOutcome, Level, Summary};
use stackhound::schema::ItemText;
use stackhound::stacks::StackState;
use stackhound::trace::{Flow, OpenTrace};
use stackhound::types::Mode;
use stackhound::{Depth, Enrichment, EventView, FileTime, FrameView, Label, Pipeline};
use stackhound_export::escape::{Short, cell, line, row};
use stackhound_export::json::event_rows::EventRows;

use crate::filter::{EventFilter, Filters};
use crate::lines::LineWriter;
use crate::live::{self, Live, Sources};
use crate::naming::{self, Naming};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, message};
use crate::progress::{Progress, report_undecided};
use crate::reading::Reading;
use crate::time::TimeFormat;
use crate::{facts, inputs, palette, render};

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub sources: Sources,
    #[command(flatten)]
    pub filters: Filters,
    /// Show the call stack of each event
    #[arg(long)]
    pub stacks: bool,
    /// Show the call before each return address, from the image files along the symbol path
    #[arg(long, requires = "stacks")]
    pub call_sites: bool,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Time format in tables
    #[arg(long, value_enum, default_value = "utc")]
    pub time: TimeFormat,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable table
    Table,
    /// One JSON object per line
    #[value(alias = "jsonl")]
    Ndjson,
    /// Comma-separated values, one line per event
    Csv,
}

impl Arguments {
    fn format(&self) -> Result<Format> {
        self.output.format(self.format, Format::Table)
    }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    arguments.format()?;
    if arguments.sources.live {
        return run_live(arguments, common);
    }
    let Sources { files, grouping, .. } = &arguments.sources;
    let captures = inputs::captures(files, *grouping, common)?;
    // An invalid filter is reported before the output file is created.
    EventFilter::parse(&arguments.filters)?;
    let mut printer = Printer::open(arguments, common.threads())?;
    let mut damaged = false;
    for (index, capture) in captures.iter().enumerate() {
        inputs::announce(&captures, index, common);
        damaged |= run_recorded(arguments, common, &capture.trace, &mut printer)?;
        if printer.failure.is_some() {
            break;
        }
    }
    printer.finish()?;
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Writes the events of one capture. Returns whether a byte of it is damaged.
fn run_recorded(
    arguments: &Arguments,
    common: &Common,
    trace: &OpenTrace,
    printer: &mut Printer<'_>,
) -> Result<bool> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let enrichment = enrichment(arguments, &filter, common)?;
    let mut pipeline = with(arguments.reading.pipeline(trace)?, enrichment);
    printer.start = trace.sources()[0].etl_file.session().start_time;
    let mut progress = Progress::of(common, trace);
    let choose = |view: &EventView<'_>| {
        progress.tick_at(view);
        filter.choose(view)
    };
    let outcome = pipeline.run_chosen(choose, |view| printer.event(view));
    printer.end_capture();
    let missing = std::mem::take(&mut printer.missing).to_string();
    naming::finish_with(progress, &outcome, &pipeline, (Some(&filter), &missing), common);
    Ok(!outcome.trace.damage.is_empty())
}

/// Writes the events of a session as they arrive. Otherwise like [`run`] with one pass.
fn run_live(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    // In a session of another program, `--provider` selects events. In our own session it enables
    // providers instead.
    let mut filters = arguments.filters.clone();
    if arguments.sources.attach.is_none() {
        filters.provider.clear();
    }
    let filter = EventFilter::parse(&filters)?;
    // A status line below events on the same terminal would only flicker.
    let status =
        io::stderr().is_terminal() && (arguments.output.output.is_some() || !io::stdout().is_terminal());
    let live = Live::open(&arguments.sources, &arguments.filters.provider, arguments.stacks, common, status)?;
    // On an error, the merger is dropped before the monitor, which ends the sessions: ending them
    // would otherwise wait for the delivery of their last events.
    let Live { session_monitor, merger, window } = live;
    let (clock, start) = (merger.clock(), merger.start_time());
    let filter = filter.between(&filters, &clock, start);
    let printer = RefCell::new(Printer { start, ..Printer::open(arguments, 1)? });
    let enrichment = enrichment(arguments, &filter, common)?;
    let mut pipeline = with(Pipeline::live(merger, arguments.reading.schemas()?), enrichment);
    if let Some(window) = window {
        pipeline = pipeline.hold(window);
    }
    let outcome = pipeline.run_watched(
        |view| if live::is_own(view) { ControlFlow::Continue(false) } else { filter.choose(view) },
        |view| printer.borrow_mut().event(view),
        |counted| {
            let trace = counted.trace();
            session_monitor.update(trace.events, trace.events_dropped);
            printer.borrow_mut().flush()
        },
    );
    let ended = session_monitor.finish()?;
    let printer = printer.into_inner();
    let missing = printer.missing.to_string();
    printer.finish()?;
    let undecided = filter.undecided();
    if common.quiet {
        report_undecided(&undecided);
    } else {
        let stacks = render::stacks(&outcome.stacks);
        let symbols = render::symbols(pipeline.symbol_stats().as_ref());
        message(format_args!("{}{stacks}{undecided}{missing}{symbols}", live::closing(&outcome, &ended)));
        naming::report_missing(pipeline.symbol_stats().as_ref());
    }
    Ok(Outcome::default())
}

/// The enrichment that the output or the filter needs, if any.
fn enrichment(arguments: &Arguments, filter: &EventFilter, common: &Common) -> Result<Option<Enrichment>> {
    let used = match arguments.format()? {
        Format::Ndjson => naming::Use::EventsWithCode,
        Format::Table if arguments.call_sites => naming::Use::EventsWithCode,
        Format::Table | Format::Csv => naming::Use::Events,
    };
    // Names also confirm the services of system calls.
    let wanted = arguments.stacks || filter.names_functions() || arguments.naming.is_stated();
    wanted.then(|| naming::enrichment(&arguments.naming, common, used, Some(filter))).transpose()
}

fn with(pipeline: Pipeline<'_>, enrichment: Option<Enrichment>) -> Pipeline<'_> {
    match enrichment {
        Some(enrichment) => pipeline.with(enrichment),
        None => pipeline,
    }
}

/// Writes events in the requested format.
struct Printer<'a> {
    arguments: &'a Arguments,
    output: EventOutput,
    /// The start of the capture.
    start: FileTime,
    missing: facts::MissingFacts,
    failure: Option<anyhow::Error>,
}

enum EventOutput {
    Table(Sink),
    Csv(Sink),
    /// With the events of the capture that are not yet written.
    Ndjson(LineWriter, Box<EventRows>),
}

impl<'a> Printer<'a> {
    /// `threads` is the number of threads that may write, including the one that reads.
    fn open(arguments: &'a Arguments, threads: usize) -> Result<Printer<'a>> {
        let format = arguments.format()?;
        let mut sink = arguments.output.rows(format)?;
        let output = match format {
            Format::Table => EventOutput::Table(sink),
            Format::Csv => {
                let columns = CSV_COLUMNS.into_iter().map(str::to_owned).chain(facts::columns());
                row(&mut sink, columns.chain(arguments.stacks.then(|| "stack".to_owned())))?;
                EventOutput::Csv(sink)
            }
            Format::Ndjson => {
                let rows = Box::new(EventRows::new(arguments.stacks));
                EventOutput::Ndjson(LineWriter::new(sink, threads)?, rows)
            }
        };
        let missing = facts::MissingFacts::default();
        Ok(Printer { arguments, output, start: FileTime(0), missing, failure: None })
    }

    /// Writes an event. Breaks if writing fails.
    fn event(&mut self, view: &EventView<'_>) -> Flow {
        let with_stack = self.arguments.stacks;
        let written = match &mut self.output {
            EventOutput::Ndjson(writer, rows) => match rows.push(view) {
                Ok(missing) => {
                    self.missing.add(missing);
                    if rows.is_full() { writer.write(rows.take()) } else { Ok(()) }
                }
                Err(error) => Err(error.into()),
            },
            EventOutput::Csv(sink) => csv(sink, view, with_stack),
            EventOutput::Table(sink) => {
                let time = match self.arguments.time {
                    TimeFormat::Utc => render::utc(view.utc()),
                    TimeFormat::Relative => render::seconds(view.utc().0.saturating_sub(self.start.0)),
                    TimeFormat::Raw => view.raw_time().0.to_string(),
                };
                table(sink, view, &time, with_stack.then_some(self.arguments.call_sites))
            }
        };
        self.note(written)
    }

    /// Flushes the output. Breaks if writing fails.
    fn flush(&mut self) -> Flow {
        let flushed = match &mut self.output {
            EventOutput::Ndjson(writer, rows) => writer.write(rows.take()).and_then(|()| writer.flush()),
            EventOutput::Table(sink) | EventOutput::Csv(sink) => sink.flush().map_err(Into::into),
        };
        self.note(flushed)
    }

    /// Writes the remaining events of a capture, whose state the collection of events keeps.
    fn end_capture(&mut self) {
        let EventOutput::Ndjson(writer, rows) = &mut self.output else { return };
        let last = std::mem::replace(&mut **rows, EventRows::new(self.arguments.stacks)).take();
        if self.failure.is_none() {
            self.failure = writer.write(last).err();
        }
    }

    fn note(&mut self, written: Result<()>) -> Flow {
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn finish(mut self) -> Result<()> {
        self.end_capture();
        match (self.failure, self.output) {
            (Some(error), _) => Err(error),
            (None, EventOutput::Ndjson(writer, _)) => writer.finish(),
            (None, EventOutput::Table(sink) | EventOutput::Csv(sink)) => sink.finish(),
        }
    }
}

/// `stack` states whether stacks are written, and whether with the calls before return addresses.
fn table(out: &mut impl Write, view: &EventView<'_>, time: &str, stack: Option<bool>) -> Result<()> {
    line(out, format_args!("{}", fmt::from_fn(|f| event(f, view, time))))?;
    if let Some(call_sites) = stack
        && view.level() != Level::None
        && (view.stack().is_some() || view.state() != StackState::None)
    {
        let states: Vec<&str> = view.stack_states().without_contradiction().map(StackState::name).collect();
        line(out, format_args!("    [{}]", states.join(", ")))?;
        summary(out, view)?;
        for frame in view.frames() {
            let names = view.names(&frame);
            let text = Label { frame: &frame, names: names.as_deref() };
            let memory = fmt::from_fn(|f| memory(f, &frame));
            let mode = frame.mode.name();
            let style = palette::of_code(&frame);
            for inline in text.inlines() {
                let source = render::source(inline.source());
                write!(out, "    {style}{mode:<6}{style:#} ")?;
                line(out, format_args!("{:<18} {inline}{source}", "-"))?;
            }
            let source = render::source(text.source());
            write!(out, "    {style}{mode:<6}{style:#} ")?;
            line(out, format_args!("{:#018x} {text}{memory}{source}", frame.address().0))?;
            let site = names.as_deref().and_then(|names| names.call_site.as_deref()).filter(|_| call_sites);
            if let Some(call) = site.and_then(|site| site.instruction.as_deref()) {
                line(out, format_args!("{:30}{call}", ""))?;
            }
        }
    }
    Ok(())
}

/// The modules of a stack, on one line each for user mode and the kernel.
fn summary(out: &mut impl Write, view: &EventView<'_>) -> Result<()> {
    if view.stack().is_none() || view.depth(Mode::User) == Depth::Address {
        return Ok(());
    }
    let mut summary = Summary::default();
    view.summarize(&mut summary);
    let modules = view.modules();
    let kernel = summary.final_kernel_module().map(|module| modules.get(module).name());
    let rows =
        [("user", summary.user(), summary.final_user_module(&modules)), ("kernel", summary.kernel(), kernel)];
    for (mode, modules, last) in rows.into_iter().filter(|(_, modules, _)| !modules.is_empty()) {
        line(out, format_args!("    {mode:<6} modules {modules} (final: {})", last.unwrap_or("-")))?;
    }
    Ok(())
}

/// The memory of a user frame outside of images, such as ` in RWX 0x1f0000+0x1000`.
fn memory(f: &mut fmt::Formatter<'_>, frame: &FrameView<'_>) -> fmt::Result {
    let Some((base, size)) = frame.region.extent else { return Ok(()) };
    if frame.mode == Mode::Kernel || frame.depth() == Depth::Address || frame.module().is_some() {
        return Ok(());
    }
    f.write_str(" in ")?;
    if let Some(protection) = frame.region.protection {
        write!(f, "{protection} ")?;
    }
    write!(f, "{:#x}+{size:#x}", base.0)
}

/// An event without its stack.
fn event(f: &mut fmt::Formatter<'_>, view: &EventView<'_>, time: &str) -> fmt::Result {
    let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let (pid, tid) = (number(view.pid().map(|pid| pid.0)), number(view.tid().map(|tid| tid.0)));
    let process = view.process_name().unwrap_or("-");
    write!(
        f,
        "{time} {:>3} {pid:>6} {tid:>6} {process:<16} {}",
        number(view.processor().map(u32::from)),
        view.name()
    )?;
    for field in view.fields().into_iter().flatten().filter_map(Result::ok) {
        let content = ItemText(field.field, &field.item);
        write!(f, " {}={}", field.field.name, Short(content, facts::VALUE_MAX))?;
    }
    if let Some(call) = view.call() {
        system_call(f, view, call)?;
    }
    facts::write(f, view)?;
    let Some(CreateOutcome { requested, end }) = view.create() else { return Ok(()) };
    match end {
        CreateEnd::Completed { status, result, .. } => {
            write!(f, " (requested: {}, result: {}, status {status:#x})", requested.name(), result.name())
        }
        end => write!(f, " (requested: {}, {})", requested.name(), end.name()),
    }
}

/// The service of a system call, its status and its duration.
fn system_call(f: &mut fmt::Formatter<'_>, view: &EventView<'_>, call: CallOutcome) -> fmt::Result {
    f.write_str(" (")?;
    if let Some(service) = view.service() {
        write!(f, "{service}, ")?;
    }
    match call.end {
        CallEnd::Completed { status, duration, .. } => {
            write!(f, "status {status:#x} after {:.1} us)", duration.as_nanos() as f64 / 1000.0)
        }
        end => write!(f, "{})", end.name()),
    }
}

const CSV_COLUMNS: [&str; 12] =
    ["time", "ts", "cpu", "pid", "tid", "process", "provider", "event", "id", "opcode", "version", "fields"];

fn csv(out: &mut impl Write, view: &EventView<'_>, with_stack: bool) -> Result<()> {
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    let fields: Vec<_> = view
        .fields()
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|field| format!("{}={}", field.field.name, ItemText(field.field, &field.item)))
        .collect();
    let mut columns = vec![
        render::utc(view.utc()),
        view.raw_time().0.to_string(),
        number(view.processor().map(u32::from)),
        number(view.pid().map(|pid| pid.0)),
        number(view.tid().map(|tid| tid.0)),
        cell(view.process_name().unwrap_or_default()),
        cell(&view.provider()),
        cell(&view.name()),
        view.id().to_string(),
        view.opcode().to_string(),
        view.version().to_string(),
        cell(&fields.join("; ")),
    ];
    columns.extend(facts::cells(view).map(|value| cell(&value)));
    if with_stack {
        let mut frames = Vec::new();
        for frame in view.frames() {
            let names = view.names(&frame);
            let text = Label { frame: &frame, names: names.as_deref() };
            frames.extend(text.inlines().map(|inline| inline.to_string()));
            frames.push(text.to_string());
        }
        columns.push(cell(&format!("{}|{}", view.state().name(), frames.join("|"))));
    }
    Ok(row(out, columns)?)
}
