//! The summary as text: one screen for one capture, one line for each of several.

use std::io::{self, Write};

use stackhound::FileTime;
use stackhound::analysis::contents::{Kind, Transfers};
use stackhound::trace::Capture;
use stackhound_export::escape::{Plain, line};

use super::trace::{Provider, Summarized, alert_title};
use crate::output::{self, counted, grouped};
use crate::palette;
use crate::render;
use crate::top::table::{Table, duration, percent, seconds};

/// The number of characters in a line of the screen, without a terminal and the least.
const WIDTH: usize = 100;
const WIDTH_MIN: usize = 40;

/// The number of characters in the column of names.
const NAMES: usize = 11;

/// The number of files on the screen, and of characters of the name of each.
const FILES: usize = 2;
const NAME: usize = 22;

/// The number of alerts on the screen.
const ALERTS: usize = 3;

/// Cuts a text to a number of characters.
fn cut(text: &str, width: usize) -> String {
    output::cut(&Plain(text).to_string(), width).into_owned()
}

/// Keeps the end of a text: of a path, the file name.
fn cut_start(text: &str, width: usize) -> String {
    let text = Plain(text).to_string();
    match text.chars().count().checked_sub(width) {
        None | Some(0) => text,
        Some(excess) => [output::CUT].into_iter().chain(text.chars().skip(excess + 1)).collect(),
    }
}

/// Items that fit into a line, separated by commas, and the number of the others.
fn listed(items: &[String], width: usize) -> String {
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let rest = items.len() - index;
        let more = if rest > 1 { format!(", {} more", rest - 1).len() } else { 0 };
        let comma = if index > 0 { ", " } else { "" };
        if text.chars().count() + comma.len() + item.chars().count() + more > width && index > 0 {
            text += &format!(", {rest} more");
            break;
        }
        text += comma;
        text += item;
    }
    text
}

/// A number of bytes with a unit.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return counted(count, "byte", "bytes");
    }
    let mut value = count as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"");
    while value >= 1024.0
        && let Some(next) = units.next()
    {
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.1} {unit}")
}

struct Screen<'o, W> {
    out: &'o mut W,
    width: usize,
}

impl<W: Write> Screen<'_, W> {
    /// The number of characters after the names.
    fn rest(&self) -> usize {
        self.width - NAMES
    }

    fn fact(&mut self, name: &str, text: &str) -> io::Result<()> {
        let text = cut(text, self.rest());
        let style = palette::of(palette::HEADING);
        write!(self.out, "{style}{name:<NAMES$}{style:#}")?;
        line(self.out, format_args!("{text}"))
    }
}

/// Shows one capture on at most 24 lines of the width of the terminal, or of 100 characters.
pub fn screen(
    out: &mut impl Write,
    capture: &Capture,
    found: &Summarized,
    width: Option<usize>,
) -> io::Result<()> {
    let mut screen = Screen { out, width: width.unwrap_or(WIDTH).max(WIDTH_MIN) };
    let rest = screen.rest();
    let contents = &found.contents;
    let size = format!(" ({})", bytes(found.size));
    screen.fact("trace", &(cut_start(&found.files, rest.saturating_sub(size.len())) + &size))?;
    screen.fact("machine", &machine(capture))?;
    let time = utc_seconds(capture.times.0);
    screen.fact(
        "recorded",
        &format!("{time}; {} s from the first to the last event", seconds(found.duration())),
    )?;
    for note in &found.cuts {
        let (selected, all) = (grouped(note.selected), grouped(note.events));
        screen.fact("cut by", &format!("{}: {selected} of {all} events were selected", note.selection))?;
    }
    let with_stack = format!(
        "{} with stacks ({})",
        grouped(contents.with_stack),
        percent(contents.with_stack, contents.events)
    );
    screen.fact("events", &format!("{}, {with_stack}; {}", grouped(contents.events), losses(found)))?;
    let (contains, missing) = found.kinds();
    let number = |kind: &Kind| format!("{} {}", grouped(contents.count(*kind)), kind.name());
    let providers = found.providers();
    let others = providers.iter().map(|provider| {
        let Provider { guid, name, events } = provider;
        match providers.iter().filter(|other| other.name == *name).count() {
            1 => format!("{} {name}", grouped(*events)),
            // The trace gives several providers this name.
            _ => format!("{} {name} {guid}", grouped(*events)),
        }
    });
    let contains: Vec<String> = contains.iter().map(number).chain(others).collect();
    screen.fact("contains", &listed(&contains, rest))?;
    let missing: Vec<String> = missing.into_iter().map(|kind| kind.name().to_owned()).collect();
    if !missing.is_empty() {
        screen.fact("not in it", &listed(&missing, rest))?;
    }
    symbols(&mut screen, found)?;
    cpu(&mut screen, found)?;
    if contents.read.count + contents.written.count > 0 {
        let transfers = |verb: &str, of: &Transfers| {
            format!("{} {verb} in {}", bytes(of.bytes), counted(of.count, "transfer", "transfers"))
        };
        let (read, written) = (transfers("read", &contents.read), transfers("written", &contents.written));
        screen.fact("disk", &format!("{read}, {written}"))?;
    }
    files(&mut screen, found)?;
    let collections = &contents.collections;
    if collections.count() > 0 {
        let [gen0, gen1, gen2] = collections.generations.map(grouped);
        let pauses = &collections.pauses;
        screen.fact(
            ".NET",
            &format!(
                "{} (generation 0: {gen0}, 1: {gen1}, 2: {gen2}), {}, together {}, longest {}",
                counted(collections.count(), "collection", "collections"),
                counted(pauses.count, "pause", "pauses"),
                duration(found.cpu.nanos(pauses.amount)),
                duration(found.cpu.nanos(pauses.max))
            ),
        )?;
    }
    findings(&mut screen, found)?;
    writeln!(screen.out)?;
    for (index, command) in found.next().iter().enumerate() {
        let name = if index == 0 { "next" } else { "" };
        // A command that is cut could not be run.
        line(screen.out, format_args!("{name:<NAMES$}{command}"))?;
    }
    Ok(())
}

fn machine(capture: &Capture) -> String {
    let machine = &capture.machine;
    let mut parts: Vec<String> = machine.computer_name.iter().cloned().collect();
    parts.extend(machine.build.map(|build| format!("Windows build {build}")));
    parts.extend(machine.pointer_size.map(|size| format!("{}-bit", 8 * size.bytes())));
    parts.extend(machine.processors.map(|count| counted(count.into(), "processor", "processors")));
    parts.extend(machine.boot_time.map(|time| format!("booted {}", utc_seconds(time))));
    parts.join(", ")
}

/// UTC, cut to seconds.
fn utc_seconds(time: FileTime) -> String {
    render::utc(time).chars().take(19).chain(['Z']).collect()
}

fn losses(found: &Summarized) -> String {
    let trace = &found.outcome.trace;
    let counts = [
        (trace.events_lost, "event lost", "events lost"),
        (found.buffers_lost(), "buffer lost", "buffers lost"),
        (trace.damage.len() as u64, "damaged range", "damaged ranges"),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, one, many)| counted(count, one, many)).collect();
    if counts.is_empty() { "nothing lost".to_owned() } else { counts.join(", ") }
}

fn symbols<W: Write>(screen: &mut Screen<'_, W>, found: &Summarized) -> io::Result<()> {
    let symbols = &found.symbols;
    if symbols.modules == 0 {
        return Ok(());
    }
    let modules = counted(symbols.modules, "module", "modules");
    let mut text = format!("PDB known of {} of {modules}", grouped(symbols.with_pdb_identity));
    if symbols.frames > 0 {
        let (named, frames) = (grouped(symbols.named_frames), counted(symbols.frames, "frame", "frames"));
        text += &format!(", {named} of {frames} named");
    }
    if symbols.with_pdb_identity < symbols.modules || symbols.named_frames < symbols.frames {
        text += "; see `symbols check`";
    }
    screen.fact("symbols", &text)
}

/// The files with the most bytes: those that disks transferred, or else those that were requested.
fn files<W: Write>(screen: &mut Screen<'_, W>, found: &Summarized) -> io::Result<()> {
    let contents = &found.contents;
    let (files, measure) = match contents.disk_files.count() {
        0 => (&contents.requested_files, "requested"),
        _ => (&contents.disk_files, "by disk"),
    };
    if files.count() == 0 {
        return Ok(());
    }
    // The start of a remark, and the end of a path.
    let shown = |name: &str| if name.starts_with('[') { cut(name, NAME) } else { cut_start(name, NAME) };
    let most = files.most(FILES).into_iter().map(|(name, count)| format!("{} {}", bytes(count), shown(name)));
    let most: Vec<String> = most.collect();
    let count = counted(files.count() as u64, "file", "files");
    screen.fact("files", &format!("{count} {measure}, most: {}", most.join(", ")))
}

fn cpu<W: Write>(screen: &mut Screen<'_, W>, found: &Summarized) -> io::Result<()> {
    let Some((busy, by_samples)) = found.busy() else { return Ok(()) };
    let report = &found.cpu;
    let available = report.available();
    let processors = counted(report.processors.into(), "processor", "processors");
    let is_assumed = report.interval.is_some_and(|interval| interval.is_assumed);
    let source = match by_samples {
        true if is_assumed => "samples of an assumed interval",
        true => "samples",
        false => "context switches",
    };
    screen.fact(
        "CPU",
        &format!(
            "{} s busy: {} of {processors} × {} s, by {source}; processes, functions (self):",
            seconds(report.nanos(busy)),
            percent(busy, available),
            seconds(report.duration())
        ),
    )?;
    let rows = found.processes.len().max(found.functions.len());
    for index in 0..rows {
        let process = found.processes.get(index).map(|row| {
            let ticks = if by_samples { row.own.amount } else { row.exact.unwrap_or_default().amount };
            format!("{:>7} {}", percent(ticks, available), row.names[0])
        });
        let function = found.functions.get(index);
        let function = function
            .map(|row| format!("{:>7} {}", percent(row.own.amount, available), row.names[0]))
            .unwrap_or_default();
        let left = (screen.rest() - 1) * 42 / 88;
        let process = cut(&process.unwrap_or_default(), left);
        let text = format!("{process:<left$} {}", cut(&function, screen.rest() - left - 1));
        line(screen.out, format_args!("{:<NAMES$}{}", "", text.trim_end()))?;
    }
    Ok(())
}

fn findings<W: Write>(screen: &mut Screen<'_, W>, found: &Summarized) -> io::Result<()> {
    let severities = found.findings();
    let text = match (severities.is_empty(), found.totals.events) {
        (true, 0) => "nothing to evaluate: no event has a stack".to_owned(),
        (true, events) => format!("none in {}", counted(events, "evaluated event", "evaluated events")),
        (false, _) => {
            let counts =
                severities.iter().map(|(severity, count)| format!("{} {}", grouped(*count), severity.name()));
            let alerts = counted(found.alerts.len() as u64, "alert", "alerts");
            format!("{}, in {alerts}", counts.collect::<Vec<_>>().join(", "))
        }
    };
    screen.fact("findings", &text)?;
    for alert in found.alerts.iter().filter_map(alert_title).take(ALERTS) {
        let pid = alert.pid.map(|pid| format!(" ({pid})")).unwrap_or_default();
        let process = if alert.process.is_empty() { "process not known" } else { alert.process };
        let events = counted(alert.events, "event", "events");
        screen.fact("", &format!("{} {process}{pid}: {}, {events}", alert.severity, alert.title))?;
    }
    Ok(())
}

/// Shows one line for each capture.
pub fn lines(out: &mut impl Write, captures: &[Capture], found: &[Summarized]) -> io::Result<()> {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut table = Table::<(&Capture, &Summarized)>::new();
    table.left("START", |(capture, _)| render::utc(capture.times.0).chars().take(19).collect());
    table.right("SECONDS", |(_, found)| seconds(found.duration()));
    table.right("EVENTS", |(_, found)| grouped(found.contents.events));
    table.right("STACKS", |(_, found)| grouped(found.contents.with_stack));
    table.right("LOST", |(_, found)| grouped(found.outcome.trace.events_lost + found.buffers_lost()));
    table.right("CPU %", |(_, found)| {
        known(found.busy().map(|(busy, _)| percent(busy, found.cpu.available())))
    });
    table.right("FINDINGS", |(_, found)| {
        let serious = found.findings().into_iter().next();
        known(serious.map(|(severity, count)| format!("{} {}", grouped(count), severity.name())))
    });
    table.left("COMPUTER", |(capture, _)| cut(capture.machine.computer_name.as_deref().unwrap_or("-"), 16));
    table.left("FILE", |(_, found)| found.files.clone());
    table.write(out, &captures.iter().zip(found).collect::<Vec<_>>())
}
