//! `profile`: samples, context switches and events for the tools that people look at profiles with.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use flate2::Compression;
use flate2::write::GzEncoder;
use stackhound::profile::{Collector, Counted, Limits};
use stackhound::symbols::SymbolStats;
use stackhound::trace::OpenTrace;
use stackhound_export::{self as export, Profile as Collected};

use crate::filter::{self, EventFilter, Filters};
use crate::inputs::{self, Inputs};
use crate::naming::{self, Naming};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, grouped, message};
use crate::progress::Progress;
use crate::reading::Reading;
use crate::render;

/// Arguments of `profile`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub output: Output,
    /// Form of the output, where the name of the file does not tell it
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Count events of these kinds instead of profile samples, such as FileIo/* (* and ? stand for any text)
    #[arg(long, value_name = "EVENT")]
    pub samples: Option<String>,
    /// How many other events become markers, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().markers)]
    pub markers: usize,
    /// How many context switches are taken, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().switches)]
    pub switches: usize,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
}

/// Forms of `profile`. A name that ends in `.gz` means that it is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Firefox Profiler (.json, .json.gz)
    Firefox,
    /// A flame graph (.svg)
    #[cfg(feature = "flamegraph")]
    Flamegraph,
    /// Folded stacks (.folded, .txt)
    Folded,
    /// Speedscope (.speedscope.json)
    Speedscope,
    /// Perfetto (.pftrace, .perfetto-trace)
    Perfetto,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let path = arguments.output.output.as_deref();
    let format = format(arguments.format, path)?;
    let captures = inputs::captures(&arguments.inputs.files, arguments.inputs.grouping, common)?;
    EventFilter::parse(&arguments.filters)?;
    let chosen = arguments.samples.as_deref().map(filter::of_kind).transpose()?;
    let limits = if shows_time(format) {
        Limits { markers: arguments.markers, switches: arguments.switches }
    } else {
        Limits { markers: 0, switches: 0 }
    };
    let mut collector = Collector::new(product(arguments), &captures[0].trace, chosen, limits);
    let sources = captures.iter().flat_map(|capture| capture.trace.sources());
    let mut progress = Progress::new(common, sources.map(|source| source.etl_file.size()).sum());
    let (mut losses, mut damaged, mut symbols) = (render::Losses::default(), false, Vec::new());
    let mut undecided = String::new();
    for (index, capture) in captures.iter().enumerate() {
        inputs::announce(&captures, index, common);
        let (outcome, named, open) =
            collect(arguments, common, &capture.trace, (&mut collector, &mut progress))?;
        undecided += &open;
        losses.add(&outcome);
        damaged |= !outcome.trace.damage.is_empty();
        symbols.push(named);
    }
    let (profile, counted) = collector.finish();
    #[cfg(feature = "flamegraph")]
    if format == Format::Flamegraph && profile.samples() == 0 {
        bail!("no event with a stack: there is nothing to draw");
    }
    let compressed = path.is_some_and(|path| path.extension().is_some_and(|end| end == "gz"));
    let mut sink = Sink::open(path)?;
    if compressed {
        // The formats write in small pieces, which compress slowly.
        let mut out = BufWriter::new(GzEncoder::new(sink, Compression::default()));
        write(&profile, format, &mut out)?;
        sink = out.into_inner().map_err(|error| error.into_error())?.finish()?;
    } else {
        write(&profile, format, &mut sink)?;
    }
    sink.finish()?;
    let named: String = symbols.iter().map(|named| render::symbols(named.as_ref())).collect();
    progress.finish(&(losses.to_string() + &undecided + &named));
    if !common.quiet {
        symbols.iter().for_each(|named| naming::tell_missing(named.as_ref()));
        tell(&profile, &counted, shows_time(format));
    }
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Takes in one capture.
fn collect(
    arguments: &Arguments,
    common: &Common,
    trace: &OpenTrace,
    (collector, progress): (&mut Collector, &mut Progress),
) -> Result<(stackhound::Outcome, Option<SymbolStats>, String)> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, Some(&filter))?;
    let mut pipeline = arguments.reading.pipeline(trace)?.with(enrichment);
    let mut failure = None;
    collector.begin_capture(trace.clock());
    let outcome = pipeline.run(|view| {
        progress.tick();
        if filter.is_past(view) {
            return ControlFlow::Break(());
        }
        let taken = collector.observe(view, || filter.wants(view));
        taken.map_or_else(
            |full| {
                failure = Some(full);
                ControlFlow::Break(())
            },
            ControlFlow::Continue,
        )
    });
    if let Some(full) = failure {
        return Err(full.into());
    }
    if !common.quiet {
        naming::report_no_match(Some(&filter), &pipeline);
    }
    let (known, _, naming) = pipeline.parts();
    collector.end_capture(known, naming);
    Ok((outcome, pipeline.symbol_stats(), filter.undecided()))
}

/// Whether a format shows more than samples.
fn shows_time(format: Format) -> bool {
    matches!(format, Format::Firefox | Format::Perfetto)
}

/// The names of the files that were read.
fn product(arguments: &Arguments) -> String {
    let names = arguments.inputs.files.iter().map(|path| path.file_name().unwrap_or(path.as_os_str()));
    names.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ")
}

/// The format that is asked for, else the one that the name of the file means.
fn format(asked: Option<Format>, path: Option<&Path>) -> Result<Format> {
    if let Some(asked) = asked {
        return Ok(asked);
    }
    let Some(path) = path else { bail!("where to? Write -o FILE, or --format for standard output") };
    const ENDINGS: &[(&str, Format)] = &[
        (".speedscope.json", Format::Speedscope),
        (".json", Format::Firefox),
        #[cfg(feature = "flamegraph")]
        (".svg", Format::Flamegraph),
        (".folded", Format::Folded),
        (".txt", Format::Folded),
        (".pftrace", Format::Perfetto),
        (".perfetto-trace", Format::Perfetto),
    ];
    let name = path.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let known = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
    known.map(|&(_, format)| format).with_context(|| {
        let endings: Vec<_> = ENDINGS.iter().map(|(ending, _)| *ending).collect();
        format!(
            "{}: the name does not tell the format; write --format, or a name that ends in {}",
            path.display(),
            endings.join(", ")
        )
    })
}

fn write(profile: &Collected, format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Firefox => export::firefox::write(profile, out),
        #[cfg(feature = "flamegraph")]
        Format::Flamegraph => export::flamegraph::write(profile, out),
        Format::Folded => export::folded::write(profile, out),
        Format::Speedscope => export::speedscope::write(profile, out),
        Format::Perfetto => export::perfetto::write(profile, out),
    }
}

/// What is in the profile, and what is not.
fn tell(profile: &Collected, counted: &Counted, with_time: bool) {
    if counted.stand_ins {
        message(format_args!("There are no profile samples: every event with a stack counts as one."));
    }
    let samples = grouped(profile.samples() as u64);
    if !with_time {
        message(format_args!("{samples} samples"));
        return;
    }
    let (switches, markers) = (grouped(profile.switches() as u64), grouped(profile.markers() as u64));
    message(format_args!("{samples} samples, {switches} context switches, {markers} markers"));
    let dropped = [
        (counted.markers_dropped, "events did not become markers", "--markers"),
        (counted.switches_dropped, "context switches were not taken", "--switches"),
    ];
    for (number, what, option) in dropped {
        if number > 0 {
            message(format_args!("{} {what}: the limit is set by {option}", grouped(number)));
        }
    }
}
