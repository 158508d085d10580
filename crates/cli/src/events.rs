//! `events`: events in time order.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::frames::{CreateEnd, CreateOutcome, Level};
use stackhound::schema::ItemText;
use stackhound::stacks::StackState;
use stackhound::trace::{Flow, OpenTrace};
use stackhound::{Enrichment, EventView, FileTime, Label, Pipeline};
use stackhound_export::escape::{self, Short, cell, line, row};
use stackhound_export::json;

use crate::filter::{EventFilter, Filters};
use crate::live::{self, Live, Sources};
use crate::naming::{self, Naming};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, message};
use crate::progress::Progress;
use crate::reading::Reading;
use crate::time::TimeFormat;
use crate::{inputs, render};

/// Arguments of `events`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub sources: Sources,
    #[command(flatten)]
    pub filters: Filters,
    /// With call stacks
    #[arg(long)]
    pub stacks: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// How times are shown in tables
    #[arg(long, value_enum, default_value = "utc")]
    pub time: TimeFormat,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

/// Forms of `events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// One object a line
    Ndjson,
    /// Comma-separated, one line an event
    Csv,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    if arguments.sources.live {
        return run_live(arguments, common);
    }
    let Sources { files, grouping, .. } = &arguments.sources;
    let captures = inputs::captures(files, *grouping, common)?;
    // Whatever is wrong with the filter, nothing is written then.
    EventFilter::parse(&arguments.filters)?;
    let mut printer = Printer::open(arguments)?;
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

/// The events of one capture. Says whether a byte of it is damaged.
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
    let bytes = trace.sources().iter().map(|source| source.etl_file.size()).sum();
    let mut progress = Progress::new(common, bytes);
    let choose = |view: &EventView<'_>| {
        progress.tick();
        filter.choose(view)
    };
    let outcome = pipeline.run_chosen(choose, |view| printer.event(view));
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    Ok(!outcome.trace.damage.is_empty())
}

/// As [`run`] with one pass, only that events come from a session, and that somebody waits for them.
fn run_live(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    // Of somebody else's session, events are chosen by provider; ours has what is enabled in it.
    let mut filters = arguments.filters.clone();
    if arguments.sources.attach.is_none() {
        filters.provider.clear();
    }
    let filter = EventFilter::parse(&filters)?;
    // Where events go to the terminal themselves, a line below them would only flicker.
    let status =
        io::stderr().is_terminal() && (arguments.output.output.is_some() || !io::stdout().is_terminal());
    let live = Live::open(&arguments.sources, &arguments.filters.provider, arguments.stacks, common, status)?;
    let window = live.window();
    // Should something fail, events must no longer be waited for when the sessions end.
    let Live { session_monitor, arrivals, .. } = live;
    let (clock, start) = (arrivals.clock(), arrivals.start_time());
    let filter = filter.between(&filters, &clock, start);
    let printer = RefCell::new(Printer { start, ..Printer::open(arguments)? });
    let enrichment = enrichment(arguments, &filter, common)?;
    let mut pipeline = with(Pipeline::live(arrivals, arguments.reading.schemas()?), enrichment);
    if let Some(window) = window {
        pipeline = pipeline.hold(window);
    }
    let outcome = pipeline.run_watched(
        |view| if live::is_own(view) { ControlFlow::Continue(false) } else { filter.choose(view) },
        |view| printer.borrow_mut().event(view),
        |counted| {
            let trace = counted.trace();
            session_monitor.tell(trace.events, trace.events_dropped);
            printer.borrow_mut().flush()
        },
    );
    let ended = session_monitor.finish()?;
    printer.into_inner().finish()?;
    if !common.quiet {
        let stacks = render::stacks(&outcome.stacks);
        let symbols = render::symbols(pipeline.symbol_stats().as_ref());
        message(format_args!("{}{stacks}{symbols}", live::closing(&outcome, &ended)));
        naming::tell_missing(pipeline.symbol_stats().as_ref());
    }
    Ok(Outcome::default())
}

/// How much of stacks is named, if anything is asked of it.
fn enrichment(arguments: &Arguments, filter: &EventFilter, common: &Common) -> Result<Option<Enrichment>> {
    let used = match arguments.format {
        Format::Ndjson => naming::Use::EventsWithCode,
        Format::Table | Format::Csv => naming::Use::Events,
    };
    let wanted = arguments.stacks || filter.names_functions();
    wanted.then(|| naming::enrichment(&arguments.naming, common, used, Some(filter))).transpose()
}

fn with(pipeline: Pipeline<'_>, enrichment: Option<Enrichment>) -> Pipeline<'_> {
    match enrichment {
        Some(enrichment) => pipeline.with(enrichment),
        None => pipeline,
    }
}

/// Writes events in the form that is asked for.
struct Printer<'a> {
    arguments: &'a Arguments,
    sink: Sink,
    /// When the capture begins.
    start: FileTime,
    failure: Option<anyhow::Error>,
}

impl<'a> Printer<'a> {
    fn open(arguments: &'a Arguments) -> Result<Printer<'a>> {
        let mut sink = Sink::open(arguments.output.output.as_deref())?;
        if arguments.format == Format::Csv {
            row(&mut sink, CSV_COLUMNS.into_iter().chain(arguments.stacks.then_some("stack")))?;
        }
        Ok(Printer { arguments, sink, start: FileTime(0), failure: None })
    }

    /// Breaks if nothing more can be written.
    fn event(&mut self, view: &EventView<'_>) -> Flow {
        let with_stack = self.arguments.stacks;
        let written = match self.arguments.format {
            Format::Ndjson => ndjson(&mut self.sink, view, with_stack),
            Format::Csv => csv(&mut self.sink, view, with_stack),
            Format::Table => {
                let time = match self.arguments.time {
                    TimeFormat::Utc => render::utc(view.utc()),
                    TimeFormat::Relative => render::seconds(view.utc().0.saturating_sub(self.start.0)),
                    TimeFormat::Raw => view.raw_time().0.to_string(),
                };
                table(&mut self.sink, view, &time, with_stack)
            }
        };
        self.note(written)
    }

    /// What was written so far can be seen.
    fn flush(&mut self) -> Flow {
        let flushed = self.sink.flush();
        self.note(flushed.map_err(Into::into))
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

    fn finish(self) -> Result<()> {
        match self.failure {
            Some(error) => Err(error),
            None => self.sink.finish(),
        }
    }
}

fn ndjson(out: &mut impl Write, view: &EventView<'_>, with_stack: bool) -> Result<()> {
    escape::json(out, &json::event::Event::new(view, with_stack))?;
    Ok(out.write_all(b"\n")?)
}

fn table(out: &mut impl Write, view: &EventView<'_>, time: &str, with_stack: bool) -> Result<()> {
    line(out, format_args!("{}", fmt::from_fn(|f| event(f, view, time))))?;
    if with_stack
        && view.level() != Level::None
        && (view.stack().is_some() || view.state() != StackState::None)
    {
        let states: Vec<&str> = view.stack_states().iter().map(StackState::name).collect();
        line(out, format_args!("    [{}]", states.join(", ")))?;
        for frame in view.frames() {
            let names = view.names(&frame);
            let text = Label { frame: &frame, names: names.as_deref() };
            line(out, format_args!("    {:<6} {:#018x} {text}", frame.mode.name(), frame.address().0))?;
        }
    }
    Ok(())
}

/// Characters of a value that a table shows; the other forms have all of it.
const VALUE_MAX: usize = 1024;

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
        write!(f, " {}={}", field.field.name, Short(content, VALUE_MAX))?;
    }
    let Some(CreateOutcome { requested, end }) = view.create() else { return Ok(()) };
    match end {
        CreateEnd::Completed { status, result, .. } => {
            write!(f, " (requested: {}, result: {}, status {status:#x})", requested.name(), result.name())
        }
        end => write!(f, " (requested: {}, {})", requested.name(), end.name()),
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
    if with_stack {
        let text = |frame| {
            let names = view.names(&frame);
            Label { frame: &frame, names: names.as_deref() }.to_string()
        };
        let frames: Vec<_> = view.frames().map(text).collect();
        columns.push(cell(&format!("{}|{}", view.state().name(), frames.join("|"))));
    }
    Ok(row(out, columns)?)
}
