//! Providers as tables.

use std::io::Write;

use anyhow::Result;
use stackhound::schema::{Named, readable};

use super::names;
use super::sources::ListedProvider;
use crate::output::grouped;
use stackhound_export::escape::line;

/// Writes one line per provider.
pub fn list(out: &mut impl Write, known: &[ListedProvider]) -> Result<()> {
    let width =
        known.iter().map(|known| known.description.name.chars().count()).max().unwrap_or(0).clamp(8, 60);
    line(
        out,
        format_args!("{:<width$}  {:<36}  {:>7}  {:>8}  from", "provider", "GUID", "events", "keywords"),
    )?;
    for ListedProvider { description, origin } in known {
        line(
            out,
            format_args!(
                "{:<width$}  {}  {:>7}  {:>8}  {origin}",
                or_dash(&description.name),
                description.guid,
                grouped(description.events.len() as u64),
                grouped(description.keywords.len() as u64)
            ),
        )?;
    }
    Ok(())
}

/// Writes the whole description of a provider.
pub fn provider(out: &mut impl Write, known: &ListedProvider) -> Result<()> {
    let provider = &known.description;
    line(out, format_args!("{}  {}  ({})", or_dash(&provider.name), provider.guid, known.origin))?;
    if let Some(message) = &provider.message {
        line(out, format_args!("{}", one_line(message)))?;
    }
    let files = [
        ("resources", &provider.resource_file),
        ("messages", &provider.message_file),
        ("parameters", &provider.parameter_file),
    ];
    for (kind, file) in files {
        if let Some(file) = file {
            line(out, format_args!("{kind}: {file}"))?;
        }
    }
    table(out, "Channels", &provider.channels, |value| format!("{value:>6}"))?;
    table(out, "Levels", &provider.levels, |value| format!("{value:>6}"))?;
    table(out, "Keywords", &provider.keywords, |value| format!("{value:#018x}"))?;
    table(out, "Tasks", &provider.tasks, |value| format!("{value:>6}"))?;
    if !provider.opcodes.is_empty() {
        writeln!(out)?;
        line(out, format_args!("Opcodes"))?;
        for opcode in &provider.opcodes {
            let task = opcode.task.filter(|task| *task != 0);
            let task = task.map(|task| match provider.task_name(task) {
                Some(name) => format!("  of {name}"),
                None => format!("  of task {task}"),
            });
            line(
                out,
                format_args!(
                    "  {:>6}  {}{}",
                    opcode.named.value,
                    opcode.named.name,
                    task.unwrap_or_default()
                ),
            )?;
        }
    }
    for map in &provider.maps {
        let bits = matches!(map.kind, stackhound::schema::MapKind::Bits);
        writeln!(out)?;
        line(out, format_args!("{} {}", if bits { "Bits" } else { "Values" }, map.name))?;
        for (value, text) in &map.entries {
            let value = if bits { format!("{value:#x}") } else { value.to_string() };
            line(out, format_args!("  {value:>10}  {}", one_line(text)))?;
        }
    }
    writeln!(out)?;
    match provider.events.is_empty() {
        true => line(out, format_args!("Events: not known; --manifest FILE reads a manifest or an image"))?,
        false => line(out, format_args!("Events"))?,
    }
    for event in &provider.events {
        write!(out, "  {:>6} v{:<3} {}", event.id, event.version, event.schema.event_name)?;
        let level = names::level(provider, event).into_iter();
        let keywords = names::keywords(provider, event).into_iter().map(str::to_owned);
        let rest: Vec<String> = level.chain(keywords).collect();
        line(out, format_args!("{}{}", if rest.is_empty() { "" } else { "  " }, rest.join(" ")))?;
        if !event.schema.fields.is_empty() {
            line(out, format_args!("              {}", names::fields(&event.schema)))?;
        }
        if let Some(message) = &event.schema.message {
            line(out, format_args!("              \"{}\"", one_line(message)))?;
        }
    }
    Ok(())
}

fn table<V: Copy>(
    out: &mut impl Write,
    title: &str,
    rows: &[Named<V>],
    value: impl Fn(V) -> String,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).min(50);
    writeln!(out)?;
    line(out, format_args!("{title}"))?;
    for row in rows {
        let message = row.message.as_deref().map(one_line).filter(|text| **text != *row.name);
        let text = format!("  {}  {:<width$}  {}", value(row.value), row.name, message.unwrap_or_default());
        line(out, format_args!("{}", text.trim_end()))?;
    }
    Ok(())
}

fn or_dash(name: &str) -> &str {
    if name.is_empty() { "-" } else { name }
}

/// A message on one line.
fn one_line(text: &str) -> String {
    readable(text).split_whitespace().collect::<Vec<_>>().join(" ")
}
