//! `profile`: samples, context switches and events in the formats of profile viewers.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use flate2::Compression;
use flate2::write::GzEncoder;
use stackhound::analysis::{Collector, Counted, Limits};
use stackhound::profile::{Grouping, Profile as Collected};
use stackhound::symbols::{SymbolStats, temporary};
use stackhound::trace::OpenTrace;
use stackhound_export::{self as export, firefox, flamegraph, numbers};

use crate::calltree::fold;
use crate::filter::{self, EventFilter, Filters};
use crate::inputs::{self, Inputs};
use crate::naming::{self, Naming};
use crate::open::{self, Viewer};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, at_end, counted};
use crate::patterns::Patterns;
use crate::progress::{self, Closing, Progress};
use crate::reading::{Reading, or_stop};
use crate::recognition;
use crate::render;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub output: Output,
    /// Output format; by default derived from the file name of -o
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Use events of this kind, such as FileIo/*, instead of profile samples (* and ? match any
    /// text)
    #[arg(long, value_name = "EVENT")]
    pub samples: Option<String>,
    /// Write at most N other events as markers
    #[arg(long, value_name = "N", default_value_t = Limits::default().markers)]
    pub markers: usize,
    /// Write at most N context switches
    #[arg(long, value_name = "N", default_value_t = Limits::default().switches)]
    pub switches: usize,
    /// Draw the flame graph with the outermost frames at the top
    #[arg(long)]
    pub icicle: bool,
    /// Show functions without a name by their offset in the module, not as one frame of the module
    #[arg(long)]
    pub offsets: bool,
    /// Let the Firefox Profiler request function names from its symbol server
    #[arg(long)]
    pub unsymbolicated: bool,
    /// Show the flame graph in the default browser, or the profile in the Firefox Profiler, until
    /// Ctrl-C; without -o, the file is temporary, and a Firefox profile by default
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub patterns: Patterns,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
}

/// Output formats of `profile`. The output is compressed if the file name ends in `.gz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Firefox Profiler (.json, .json.gz)
    #[value(alias = "json")]
    Firefox,
    /// Flame graph (.svg)
    #[value(alias = "svg")]
    Flamegraph,
    /// Folded stacks (.folded, .txt)
    #[value(alias = "txt")]
    Folded,
    /// Speedscope (.speedscope.json)
    #[value(alias = "speedscope.json")]
    Speedscope,
    /// Perfetto (.pftrace, .perfetto-trace)
    #[value(aliases = ["pftrace", "perfetto-trace"])]
    Perfetto,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    if let [file] = &arguments.inputs.files[..]
        && recognition::holds_call_trees(file)
    {
        return exact(file, arguments, common);
    }
    let format = format(arguments)?;
    let viewer = viewer(arguments, format)?;
    if arguments.unsymbolicated && format != Format::Firefox {
        bail!("--unsymbolicated is for the Firefox Profiler; use -o FILE.json or --format firefox");
    }
    let patterns = arguments.patterns.compile()?;
    if arguments.unsymbolicated && patterns.is_some() {
        bail!("--unsymbolicated requests names after frames are grouped; leave out one of them");
    }
    let captures = inputs::captures(&arguments.inputs.files, arguments.inputs.grouping, common)?;
    EventFilter::parse(&arguments.filters)?;
    let chosen = arguments.samples.as_deref().map(filter::of_kind).transpose()?;
    let limits = if shows_time(format) {
        Limits { markers: arguments.markers, switches: arguments.switches }
    } else {
        Limits { markers: 0, switches: 0 }
    };
    let mut collector = Collector::new(product(arguments), &captures[0].trace, chosen, limits);
    let size = captures.iter().map(|capture| progress::size(&capture.trace)).sum();
    let mut progress = Progress::new(common, size);
    let (mut losses, mut damaged, mut symbols) = (render::Losses::default(), false, Vec::new());
    let (mut undecided, mut selected) = (String::new(), Some(0));
    for (index, capture) in captures.iter().enumerate() {
        inputs::announce(&captures, index, common);
        let (outcome, named, filter) =
            collect(arguments, common, &capture.trace, (&mut collector, &mut progress))?;
        undecided += &filter.undecided();
        selected = selected.zip(filter.selected()).map(|(sum, of_capture)| sum + of_capture);
        losses.add(&outcome);
        damaged |= !outcome.trace.damage.is_empty();
        symbols.push(named);
    }
    let (mut profile, counts) = collector.finish();
    let folds = matches!(format, Format::Firefox | Format::Flamegraph | Format::Speedscope);
    let folds = folds && !arguments.offsets && !arguments.unsymbolicated;
    let applied = match patterns {
        Some(patterns) => {
            let unnamed = if folds { Grouping::Function } else { Grouping::Offset };
            group(&mut profile, &patterns, arguments, unnamed)
        }
        None => {
            if folds {
                profile.fold_unnamed();
            }
            Vec::new()
        }
    };
    let written = write_file(&profile, format, arguments)?;
    let named: String = symbols.iter().map(|named| render::symbols(named.as_ref())).collect();
    let losses = losses.to_string();
    progress.finish_with(Closing { selected, losses: &losses, undecided: &undecided, results: &named });
    if !common.quiet {
        symbols.iter().for_each(|named| naming::report_missing(named.as_ref()));
        applied.iter().for_each(|text| at_end(format_args!("{text}")));
        report(&profile, &counts, shows_time(format));
    }
    drop(profile);
    written.show(viewer, common)?;
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Groups the stacks of a profile. Returns lines about what was done.
fn group(
    profile: &mut Collected,
    patterns: &stackhound::profile::Patterns,
    arguments: &Arguments,
    unnamed: Grouping,
) -> Vec<String> {
    let threads = profile.thread_ids().map(|(id, _)| id).filter(|&id| profile.sample_count_of(id) > 0);
    let threads: Vec<_> = threads.collect();
    let regrouped = patterns.regroup(profile, threads, unnamed);
    let directories = regrouped.own_directories.clone();
    let weight = profile.replace_stacks(regrouped);
    profile.remove_unused();
    let excluded = numbers::weight(profile.unit(), weight);
    arguments.patterns.lines(&directories, &excluded).collect()
}

/// The functions of an exact trace.
fn exact(file: &Path, arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = format(arguments)?;
    let others = [
        (arguments.samples.is_some(), "--samples"),
        (arguments.offsets, "--offsets"),
        (arguments.unsymbolicated, "--unsymbolicated"),
    ];
    fold::refuse_options(&arguments.filters, &arguments.naming, &others)?;
    if format == Format::Perfetto {
        bail!("Perfetto shows times, and the functions of an exact trace are sums; choose another format");
    }
    let viewer = viewer(arguments, format)?;
    let patterns = arguments.patterns.compile()?;
    let mut folded = fold::read(file, product(arguments), common)?;
    let applied = patterns
        .map(|patterns| group(&mut folded.calls.profile, &patterns, arguments, Grouping::Function))
        .unwrap_or_default();
    let written = write_file(&folded.calls.profile, format, arguments)?;
    if !common.quiet {
        folded.report();
        applied.iter().for_each(|text| at_end(format_args!("{text}")));
    }
    let outcome = folded.outcome();
    drop(folded);
    written.show(viewer, common)?;
    Ok(outcome)
}

/// A file with a profile; without a path, standard output.
struct Written<D> {
    path: Option<PathBuf>,
    /// The folder of a temporary file, which is removed when the program ends.
    _folder: Option<D>,
}

impl<D> Written<D> {
    /// Shows the file, if there is a viewer, until the program ends.
    fn show(&self, viewer: Option<Viewer>, common: &Common) -> Result<()> {
        match (viewer, &self.path) {
            (Some(viewer), Some(path)) => open::browse(path, viewer, common),
            _ => Ok(()),
        }
    }
}

/// Writes the profile to the selected file; for --open without one, into a temporary folder. It is
/// compressed if its name ends in `.gz`.
fn write_file(
    profile: &Collected,
    format: Format,
    arguments: &Arguments,
) -> Result<Written<impl AsRef<Path> + use<>>> {
    let stated = &arguments.output.output;
    let is_temporary = arguments.open && stated.is_none();
    let folder = is_temporary.then(temporary::folder).transpose().context("cannot write a temporary file")?;
    let path = stated.clone().or_else(|| Some(folder.as_ref()?.path().join("profile")));
    let compressed = path.as_deref().is_some_and(|path| path.extension().is_some_and(|end| end == "gz"));
    let mut sink = Sink::open(path.as_deref())?;
    if compressed {
        // The formats write in small pieces, which compress slowly.
        let mut out = BufWriter::new(GzEncoder::new(sink, Compression::default()));
        write(profile, format, arguments, &mut out)?;
        sink = out.into_inner().map_err(|error| error.into_error())?.finish()?;
    } else {
        write(profile, format, arguments, &mut sink)?;
    }
    sink.finish()?;
    Ok(Written { path, _folder: folder })
}

/// What shows the profile, for --open. Refuses options that the format does not have.
fn viewer(arguments: &Arguments, format: Format) -> Result<Option<Viewer>> {
    if arguments.icicle && format != Format::Flamegraph {
        bail!("--icicle changes flame graphs; use -o FILE.svg or --format flamegraph");
    }
    if !arguments.open {
        return Ok(None);
    }
    let path = arguments.output.output.as_deref();
    if path.and_then(|path| path.metadata().ok()).is_some_and(|found| !found.is_file()) {
        bail!("--open needs a file; leave out -o for a temporary one");
    }
    match format {
        Format::Flamegraph => Ok(Some(Viewer::Browser)),
        Format::Firefox => Ok(Some(Viewer::FirefoxProfiler)),
        Format::Folded | Format::Speedscope | Format::Perfetto => {
            bail!("--open shows flame graphs and Firefox profiles; use -o FILE.svg, -o FILE.json or --format")
        }
    }
}

/// Adds the events of one capture.
fn collect(
    arguments: &Arguments,
    common: &Common,
    trace: &OpenTrace,
    (collector, progress): (&mut Collector, &mut Progress),
) -> Result<(stackhound::Outcome, Option<SymbolStats>, EventFilter)> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, Some(&filter))?;
    let mut pipeline = arguments.reading.pipeline(trace)?.with(enrichment);
    let mut failure = None;
    collector.begin_capture(trace.clock());
    progress.begin(trace);
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        if filter.is_past(view) {
            return ControlFlow::Break(());
        }
        or_stop(collector.observe(view, || filter.wants(view)), &mut failure)
    });
    if let Some(full) = failure {
        return Err(full.into());
    }
    if !common.quiet {
        naming::report_no_match(Some(&filter), &pipeline);
    }
    let (known, _, naming) = pipeline.parts();
    collector.end_capture(known, naming);
    Ok((outcome, pipeline.symbol_stats(), filter))
}

/// Whether a format has a time axis, with context switches and markers.
fn shows_time(format: Format) -> bool {
    matches!(format, Format::Firefox | Format::Perfetto)
}

/// The names of the input files.
fn product(arguments: &Arguments) -> String {
    let names = arguments.inputs.files.iter().map(|path| path.file_name().unwrap_or(path.as_os_str()));
    names.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ")
}

/// The requested format, or the one of the file name.
fn format(arguments: &Arguments) -> Result<Format> {
    match (arguments.format, &arguments.output.output) {
        (None, None) if arguments.open => Ok(Format::Firefox),
        (None, None) => {
            bail!("expected an output file or format; use -o FILE, or --format for standard output")
        }
        (stated, _) => arguments.output.known_format(stated),
    }
}

fn write(profile: &Collected, format: Format, arguments: &Arguments, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Firefox => {
            let from_server = arguments.unsymbolicated;
            let names = if from_server { firefox::Names::SymbolServer } else { firefox::Names::Profile };
            firefox::write(profile, names, out)
        }
        Format::Flamegraph => {
            let Filters { from, to, .. } = &arguments.filters;
            let mut selected = filter::texts(&arguments.filters);
            selected.extend(from.map(|from| format!("from {from}")));
            selected.extend(to.map(|to| format!("to {to}")));
            selected.extend(arguments.patterns.texts());
            selected.extend(arguments.samples.as_ref().map(|kind| format!("samples: {kind}")));
            let options = flamegraph::Options {
                form: if arguments.icicle { flamegraph::Form::Icicle } else { flamegraph::Form::Flame },
                filter: selected.join(", "),
            };
            flamegraph::write(profile, &options, out)
        }
        Format::Folded => export::folded::write(profile, out),
        Format::Speedscope => export::speedscope::write(profile, out),
        Format::Perfetto => export::perfetto::write(profile, out),
    }
}

/// Reports the contents of the profile, and the dropped events.
fn report(profile: &Collected, counts: &Counted, with_time: bool) {
    if counts.stand_ins {
        at_end(format_args!(
            "The trace has no profile samples; each event with a stack counts as one sample."
        ));
    }
    let samples = counted(profile.sample_count() as u64, "sample", "samples");
    if !with_time {
        at_end(format_args!("{samples}"));
        return;
    }
    let switches = counted(profile.switches().len() as u64, "context switch", "context switches");
    let markers = counted(profile.markers().len() as u64, "marker", "markers");
    at_end(format_args!("{samples}, {switches}, {markers}"));
    let dropped = [
        (
            counts.markers_dropped,
            ("event was not written as a marker", "events were not written as markers"),
            "--markers",
        ),
        (
            counts.switches_dropped,
            ("context switch was not written", "context switches were not written"),
            "--switches",
        ),
    ];
    for (number, (one, many), option) in dropped {
        if number > 0 {
            at_end(format_args!("{}; {option} sets the limit", counted(number, one, many)));
        }
    }
}
