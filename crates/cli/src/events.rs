//! `events`: events in time order.

use std::io::Write;
use std::ops::ControlFlow;

use anyhow::Result;
use stackhound::enrich::{CreateEnd, CreateOutcome, Level};
use stackhound::{Label, Seen};

use crate::args::{Common, EventFormat, Events};
use crate::filter::EventFilter;
use crate::output::Sink;
use crate::progress::Progress;
use crate::record::Line;
use crate::time::TimeFormat;
use crate::{Outcome, naming, render};

pub fn run(arguments: &Events, common: &Common) -> Result<Outcome> {
    let trace = crate::inputs::open(&arguments.inputs, common)?;
    let filter = EventFilter::new(&arguments.filters, &trace)?;
    let used = match arguments.format {
        EventFormat::Ndjson => naming::Use::EventsWithCode,
        EventFormat::Table | EventFormat::Csv => naming::Use::Events,
    };
    let mut pipeline = arguments.reading.pipeline(&trace)?;
    if arguments.stacks || filter.names_functions() {
        pipeline = pipeline.with(naming::enrichment(&arguments.naming, common, used)?);
    }
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    let bytes = trace.sources().iter().map(|source| source.recording.size()).sum();
    let mut progress = Progress::new(common, bytes);
    let start = trace.sources()[0].recording.session().start_time;
    let mut failure = None;
    if arguments.format == EventFormat::Csv {
        csv_row(&mut sink, CSV_COLUMNS.into_iter().map(str::to_owned), arguments.stacks.then_some("stack"))?;
    }
    let choose = |seen: &Seen<'_>| {
        progress.tick();
        filter.choose(seen)
    };
    let outcome = pipeline.run_chosen(choose, |seen| {
        let written = match arguments.format {
            EventFormat::Ndjson => ndjson(&mut sink, seen, arguments.stacks),
            EventFormat::Csv => csv(&mut sink, seen, arguments.stacks),
            EventFormat::Table => {
                let time = match arguments.time {
                    TimeFormat::Utc => render::utc(seen.utc()),
                    TimeFormat::Relative => render::seconds(seen.utc().0.saturating_sub(start.0)),
                    TimeFormat::Raw => seen.raw_time().0.to_string(),
                };
                table(&mut sink, seen, &time, arguments.stacks)
            }
        };
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    sink.finish()?;
    naming::finish(progress, &outcome, &pipeline, common);
    Ok(Outcome { damaged: !outcome.trace.damage.is_empty() })
}

fn ndjson(out: &mut impl Write, seen: &Seen<'_>, with_stack: bool) -> Result<()> {
    serde_json::to_writer(&mut *out, &Line { seen, with_stack }).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

fn table(out: &mut impl Write, seen: &Seen<'_>, time: &str, with_stack: bool) -> Result<()> {
    let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let (pid, tid) = (number(seen.pid().map(|pid| pid.0)), number(seen.tid().map(|tid| tid.0)));
    let process = seen.process_name().unwrap_or("-");
    write!(
        out,
        "{time} {:>3} {pid:>6} {tid:>6} {process:<16} {}",
        number(seen.processor().map(u32::from)),
        seen.name()
    )?;
    for field in seen.fields().into_iter().flatten().filter_map(Result::ok) {
        write!(out, " {}={}", field.field.name, render::Content(field.field, &field.item))?;
    }
    if let Some(CreateOutcome { asked, end }) = seen.create() {
        match end {
            CreateEnd::Told { status, happened, .. } => {
                write!(out, " ({} asked for: {}, status {status:#x})", asked.name(), happened.name())?;
            }
            end => write!(out, " ({} asked for: end {})", asked.name(), end.name())?,
        }
    }
    writeln!(out)?;
    if with_stack
        && seen.level() != Level::None
        && (seen.stack().is_some() || seen.state() != stackhound::stacks::StackState::None)
    {
        writeln!(out, "    [{}]", seen.state().name())?;
        for frame in seen.frames() {
            let names = seen.names(&frame);
            let text = Label { frame: &frame, names: names.as_deref() };
            writeln!(out, "    {:<6} {:#018x} {text}", frame.mode.name(), frame.address.0)?;
        }
    }
    Ok(())
}

const CSV_COLUMNS: [&str; 12] =
    ["time", "ts", "cpu", "pid", "tid", "process", "provider", "event", "id", "opcode", "version", "fields"];

fn csv(out: &mut impl Write, seen: &Seen<'_>, with_stack: bool) -> Result<()> {
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    let fields: Vec<_> = seen
        .fields()
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|field| format!("{}={}", field.field.name, render::Content(field.field, &field.item)))
        .collect();
    let columns = [
        render::utc(seen.utc()),
        seen.raw_time().0.to_string(),
        number(seen.processor().map(u32::from)),
        number(seen.pid().map(|pid| pid.0)),
        number(seen.tid().map(|tid| tid.0)),
        seen.process_name().unwrap_or_default().to_owned(),
        seen.provider().into_owned(),
        seen.name().into_owned(),
        seen.id().to_string(),
        seen.opcode().to_string(),
        seen.version().to_string(),
        fields.join("; "),
    ];
    let stack = with_stack.then(|| {
        let text = |frame| {
            let names = seen.names(&frame);
            Label { frame: &frame, names: names.as_deref() }.to_string()
        };
        let frames: Vec<_> = seen.frames().map(text).collect();
        format!("{}|{}", seen.state().name(), frames.join("|"))
    });
    csv_row(out, columns, stack.as_deref())
}

/// Quotes as RFC 4180 wants it: where a comma, a quote or a line end stands in a value.
fn csv_row(
    out: &mut impl Write,
    columns: impl IntoIterator<Item = String>,
    last: Option<&str>,
) -> Result<()> {
    for (index, column) in columns.into_iter().chain(last.map(str::to_owned)).enumerate() {
        let comma = if index > 0 { "," } else { "" };
        if column.contains([',', '"', '\n', '\r']) {
            write!(out, "{comma}\"{}\"", column.replace('"', "\"\""))?;
        } else {
            write!(out, "{comma}{column}")?;
        }
    }
    Ok(out.write_all(b"\r\n")?)
}
