//! `info`: the session, buffers and losses of traces, and with `--full` their contents.

mod contents;

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::etl::{Damage, Index, LogfileHeader};
use stackhound::trace::{Capture, OpenTrace, Source};
use stackhound_export::escape::line;
use stackhound_export::json::info::{
    AppendedSession, Capture as CaptureInfo, Contents, Damage as DamageInfo, FileInfo, Files,
};
use stackhound_export::json::value::{Hex, Time};

use crate::inputs::{self, Inputs};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{counted, grouped};
use crate::render;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Read all events, and count events, losses, damage and stacks
    #[arg(long)]
    pub full: bool,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable table
    Table,
    /// One JSON object, or {"files": […]} for several files; with "captures" for several captures
    Json,
}

/// A capture as JSON.
pub fn capture_info(capture: &Capture) -> CaptureInfo<'_> {
    let machine = &capture.machine;
    CaptureInfo {
        computer_name: machine.computer_name.as_deref(),
        boot_time: machine.boot_time.map(Time),
        build: machine.build,
        processors: machine.processors,
        pointer_size: machine.pointer_size.map(|size| size.bytes() as u8),
        start_time: Time(capture.times.0),
        end_time: Time(capture.times.1),
        files: capture.trace.sources().iter().map(|source| &*source.name).collect(),
    }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, Format::Table)?;
    let captures = inputs::captures(&arguments.inputs.files, arguments.inputs.grouping, common)?;
    let mut files = Vec::new();
    let mut damaged = false;
    let sources =
        captures.iter().flat_map(|capture| capture.trace.sources().iter().zip(capture.trace.indexes()));
    for (source, index) in sources {
        let mut info = session_facts(source, index);
        if arguments.full {
            let single = OpenTrace::new(vec![source.clone()], common.threads())?;
            let (contents, damage) = contents::read(&single, common);
            info.full = Some(contents);
            info.damage = damage.iter().map(damage_info).collect();
        }
        damaged |= !info.damage.is_empty();
        files.push(info);
    }
    let mut sink = arguments.output.sentences(format)?;
    match format {
        Format::Json => match files.as_slice() {
            [one] => sink.json(one)?,
            many => {
                let captures = (captures.len() > 1).then(|| captures.iter().map(capture_info).collect());
                sink.json(&Files { files: many, captures })?;
            }
        },
        Format::Table => {
            for (index, info) in files.iter().enumerate() {
                if index > 0 {
                    writeln!(sink)?;
                }
                table(&mut sink, info)?;
            }
            if captures.len() > 1 {
                writeln!(sink)?;
            }
            for (index, capture) in captures.iter().enumerate().filter(|_| captures.len() > 1) {
                line(&mut sink, format_args!("{:<18}{capture}", format!("capture {}", index + 1)))?;
            }
        }
    }
    sink.finish()?;
    Ok(Outcome { damaged, ..Outcome::default() })
}

fn session_facts(source: &Source, index: &Index) -> FileInfo {
    let session = source.etl_file.session();
    let clock = session.clock();
    // An appended session counts only its own buffers.
    let is_counted = index.sessions.len() > 1 || u64::from(session.buffers_written) >= index.found();
    FileInfo {
        file: source.name.clone(),
        size: source.etl_file.size(),
        session: session.session_name.clone(),
        log_file: session.file_name.clone(),
        windows: format!("{}.{}", session.windows_version.0, session.windows_version.1),
        build: session.build,
        layout_version: format!("{}.{}", session.layout_version.0, session.layout_version.1),
        pointer_size: session.pointer_size.bytes() as u8,
        processors: session.processors,
        clock: render::clock_name(clock.kind()),
        ticks_per_second: clock.ticks_per_second(),
        buffer_size: session.buffer_size,
        mode: Hex(session.mode.0.into()),
        boot_time: Time(session.boot_time),
        start_time: Time(session.start_time),
        end_time: session.end_time.map(Time),
        buffers_written: session.buffers_written,
        buffers_in_file: index.found(),
        closed: session.end_time.is_some() && is_counted,
        events_lost: session.events_lost,
        buffers_lost: session.buffers_lost,
        bytes_read: index.bytes_read,
        bytes_unreadable: index.damage.iter().map(|damage| damage.skipped).sum(),
        damage: index.damage.iter().chain(&source.packed_damage).map(damage_info).collect(),
        full: None,
    }
}

fn session_info(session: &LogfileHeader) -> AppendedSession {
    let clock = session.clock();
    AppendedSession {
        session: session.session_name.clone(),
        start_time: Time(session.start_time),
        end_time: session.end_time.map(Time),
        clock: render::clock_name(clock.kind()),
        ticks_per_second: clock.ticks_per_second(),
        events_lost: session.events_lost,
        buffers_lost: session.buffers_lost,
    }
}

fn damage_info(damage: &Damage) -> DamageInfo {
    DamageInfo { offset: damage.offset, skipped: damage.skipped, reason: damage.reason.to_string() }
}

fn table(out: &mut impl Write, info: &FileInfo) -> Result<()> {
    let mut line = |label: &str, value: String| line(out, format_args!("{label:<18}{value}"));
    line("file", format!("{} ({} bytes)", info.file, grouped(info.size)))?;
    line("session", format!("{} -> {}", info.session, info.log_file))?;
    line(
        "windows",
        format!("{} build {}, {}-bit", info.windows, info.build, u32::from(info.pointer_size) * 8),
    )?;
    line("processors", info.processors.to_string())?;
    line("start", info.start_time.to_string())?;
    let end = info.end_time.map_or_else(|| "not finished".to_owned(), |end| end.to_string());
    line("end", format!("{end}{}", if info.closed { "" } else { " (not closed properly)" }))?;
    line("clock", format!("{}, {} ticks/s", info.clock, grouped(info.ticks_per_second)))?;
    let mut buffers = format!("{} of {} bytes", info.buffers_in_file, grouped(info.buffer_size.into()));
    if u64::from(info.buffers_written) != info.buffers_in_file {
        buffers += &format!("; the header counts {}", info.buffers_written);
    }
    line("buffers", buffers)?;
    line("lost", format!("{} events, {} buffers", info.events_lost, info.buffers_lost))?;
    if let Some(full) = &info.full {
        scanned(&mut line, full)?;
    }
    for damage in &info.damage {
        line(
            "damage",
            format!("at {:#x}: {} ({} bytes skipped)", damage.offset, damage.reason, damage.skipped),
        )?;
    }
    Ok(())
}

fn scanned(line: &mut impl FnMut(&str, String) -> io::Result<()>, full: &Contents) -> Result<()> {
    line("events", grouped(full.events))?;
    if let Some(compression) = full.compression {
        line(
            "compression",
            format!("{compression}, {} of {} buffers", full.compressed_buffers, full.buffers),
        )?;
    }
    if full.buffers_missing > 0 {
        line("missing", format!("{} buffers, according to their sequence numbers", full.buffers_missing))?;
    }
    let kinds: Vec<_> =
        full.by_header_type.iter().map(|(kind, n)| format!("{kind} {}", grouped(*n))).collect();
    line("record headers", kinds.join(", "))?;
    let s = &full.stacks;
    let parts = s.full + s.keyed;
    if parts + s.extended > 0 {
        line(
            "stacks",
            format!(
                "{} parts ({} inline, {} by key) in {} groups, {} attributed, {} orphaned; {} inside events",
                grouped(parts),
                grouped(s.full),
                grouped(s.keyed),
                grouped(s.groups),
                grouped(s.attributed_parts),
                grouped(s.orphaned_parts),
                grouped(s.extended)
            ),
        )?;
        for (event, parts) in &s.by_triggering_event {
            line("", format!("{:>9}  {event}", grouped(*parts)))?;
        }
        let states: Vec<_> = s.by_state.iter().filter(|(_, n)| **n > 0).collect();
        let states: Vec<_> =
            states.into_iter().map(|(state, n)| format!("{state} {}", grouped(*n))).collect();
        line("stack states", states.join(", "))?;
    }
    if !full.providers.is_empty() {
        line("providers", String::new())?;
        let mut providers: Vec<_> = full.providers.iter().collect();
        providers.sort_by_key(|(_, provider)| std::cmp::Reverse(provider.events));
        for (guid, provider) in providers {
            let name = provider.name.as_deref().unwrap_or("");
            let of_stacks = match provider.stack_records {
                0 => String::new(),
                n => format!(" ({})", counted(n, "stack record", "stack records")),
            };
            let unknown = match provider.undescribed {
                0 => String::new(),
                n => format!(" (fields of {} not known)", grouped(n)),
            };
            line("", format!("{:>9}  {guid} {name}{of_stacks}{unknown}", grouped(provider.events)))?;
        }
    }
    for session in &full.appended_sessions {
        line(
            "appended session",
            format!(
                "{} from {}, {}, {} ticks/s; lost {} events, {} buffers",
                session.session,
                session.start_time,
                session.clock,
                grouped(session.ticks_per_second),
                session.events_lost,
                session.buffers_lost
            ),
        )?;
    }
    Ok(())
}
