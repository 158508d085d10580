//! `profile`: samples, context switches and events for the tools that people look at profiles with.

mod collect;
mod stacks;

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use stackhound_export::{self as export, Profile as Collected};

use crate::args::{Common, Profile, ProfileFormat};
use crate::filter::EventFilter;
use crate::output::{Sink, grouped};
use crate::progress::Progress;
use crate::{Outcome, naming};
use collect::{Collector, Counted, Limits};

pub fn run(arguments: &Profile, common: &Common) -> Result<Outcome> {
    let path = arguments.output.output.as_deref();
    let format = format(arguments.format, path)?;
    let trace = crate::inputs::open(&arguments.inputs.files, common)?;
    let filter = EventFilter::new(&arguments.filters, &trace)?;
    let chosen = arguments.samples.as_deref().map(EventFilter::of_kind).transpose()?;
    let limits = if shows_time(format) {
        Limits { markers: arguments.markers, switches: arguments.switches }
    } else {
        Limits { markers: 0, switches: 0 }
    };
    let mut collector = Collector::new(product(arguments), &trace, chosen, limits);
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary)?;
    let mut pipeline = arguments.reading.pipeline(&trace)?.with(enrichment);
    let bytes = trace.sources().iter().map(|source| source.recording.size()).sum();
    let mut progress = Progress::new(common, bytes);
    let mut failure = None;
    let outcome = pipeline.run(|seen| {
        progress.tick();
        if filter.is_past(seen) {
            return ControlFlow::Break(());
        }
        let taken = collector.observe(seen, || filter.wants(seen));
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
    let (known, naming) = pipeline.parts();
    let (profile, counted) = collector.finish(known, naming);
    #[cfg(feature = "flamegraph")]
    if format == ProfileFormat::Flamegraph && profile.samples() == 0 {
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
    naming::finish(progress, &outcome, &pipeline, common);
    if !common.quiet {
        tell(&profile, &counted, shows_time(format));
    }
    Ok(Outcome { damaged: !outcome.trace.damage.is_empty(), ..Outcome::default() })
}

/// Whether a format shows more than samples.
fn shows_time(format: ProfileFormat) -> bool {
    matches!(format, ProfileFormat::Firefox | ProfileFormat::Perfetto)
}

/// The names of the files that were read.
fn product(arguments: &Profile) -> String {
    let names = arguments.inputs.files.iter().map(|path| path.file_name().unwrap_or(path.as_os_str()));
    names.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ")
}

/// The format that is asked for, else the one that the name of the file means.
fn format(asked: Option<ProfileFormat>, path: Option<&Path>) -> Result<ProfileFormat> {
    if let Some(asked) = asked {
        return Ok(asked);
    }
    let Some(path) = path else { bail!("where to? Write -o FILE, or --format for standard output") };
    const ENDINGS: &[(&str, ProfileFormat)] = &[
        (".speedscope.json", ProfileFormat::Speedscope),
        (".json", ProfileFormat::Firefox),
        #[cfg(feature = "flamegraph")]
        (".svg", ProfileFormat::Flamegraph),
        (".folded", ProfileFormat::Folded),
        (".txt", ProfileFormat::Folded),
        (".pftrace", ProfileFormat::Perfetto),
        (".perfetto-trace", ProfileFormat::Perfetto),
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

fn write(profile: &Collected, format: ProfileFormat, out: &mut impl Write) -> io::Result<()> {
    match format {
        ProfileFormat::Firefox => export::firefox::write(profile, out),
        #[cfg(feature = "flamegraph")]
        ProfileFormat::Flamegraph => export::flamegraph::write(profile, out),
        ProfileFormat::Folded => export::folded::write(profile, out),
        ProfileFormat::Speedscope => export::speedscope::write(profile, out),
        ProfileFormat::Perfetto => export::perfetto::write(profile, out),
    }
}

/// What is in the profile, and what is not.
fn tell(profile: &Collected, counted: &Counted, with_time: bool) {
    if counted.stand_ins {
        eprintln!("There are no profile samples: every event with a stack counts as one.");
    }
    let samples = grouped(profile.samples() as u64);
    if !with_time {
        eprintln!("{samples} samples");
        return;
    }
    let (switches, markers) = (grouped(profile.switches() as u64), grouped(profile.markers() as u64));
    eprintln!("{samples} samples, {switches} context switches, {markers} markers");
    let dropped = [
        (counted.markers_dropped, "events did not become markers", "--markers"),
        (counted.switches_dropped, "context switches were not taken", "--switches"),
    ];
    for (number, what, option) in dropped {
        if number > 0 {
            eprintln!("{} {what}: the limit is set by {option}", grouped(number));
        }
    }
}
