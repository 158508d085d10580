//! Providers as tables.

use std::io::Write;

use anyhow::Result;
use stackhound::schema::{Named, readable};

use super::names;
use super::sources::Known;
use crate::output::grouped;

/// One line a provider.
pub fn list(out: &mut impl Write, known: &[Known]) -> Result<()> {
    let width =
        known.iter().map(|known| known.description.name.chars().count()).max().unwrap_or(0).clamp(8, 60);
    writeln!(out, "{:<width$}  {:<36}  {:>7}  {:>8}  from", "provider", "GUID", "events", "keywords")?;
    for Known { description, origin } in known {
        writeln!(
            out,
            "{:<width$}  {}  {:>7}  {:>8}  {origin}",
            or_dash(&description.name),
            description.guid,
            grouped(description.events.len() as u64),
            grouped(description.keywords.len() as u64),
        )?;
    }
    Ok(())
}

/// Everything about one.
pub fn provider(out: &mut impl Write, known: &Known) -> Result<()> {
    let provider = &known.description;
    writeln!(out, "{}  {}  ({})", or_dash(&provider.name), provider.guid, known.origin)?;
    if let Some(message) = &provider.message {
        writeln!(out, "{}", one_line(message))?;
    }
    let files = [
        ("resources", &provider.resource_file),
        ("messages", &provider.message_file),
        ("parameters", &provider.parameter_file),
    ];
    for (kind, file) in files {
        if let Some(file) = file {
            writeln!(out, "{kind}: {file}")?;
        }
    }
    table(out, "Channels", &provider.channels, |value| format!("{value:>6}"))?;
    table(out, "Levels", &provider.levels, |value| format!("{value:>6}"))?;
    table(out, "Keywords", &provider.keywords, |value| format!("{value:#018x}"))?;
    table(out, "Tasks", &provider.tasks, |value| format!("{value:>6}"))?;
    if !provider.opcodes.is_empty() {
        writeln!(out, "\nOpcodes")?;
        for opcode in &provider.opcodes {
            let task = opcode.task.filter(|task| *task != 0);
            let task = task.map(|task| match provider.task_name(task) {
                Some(name) => format!("  of {name}"),
                None => format!("  of task {task}"),
            });
            writeln!(out, "  {:>6}  {}{}", opcode.named.value, opcode.named.name, task.unwrap_or_default())?;
        }
    }
    for map in &provider.maps {
        let bits = matches!(map.kind, stackhound::schema::MapKind::Bits);
        writeln!(out, "\n{} {}", if bits { "Bits" } else { "Values" }, map.name)?;
        for (value, text) in &map.entries {
            let value = if bits { format!("{value:#x}") } else { value.to_string() };
            writeln!(out, "  {value:>10}  {}", one_line(text))?;
        }
    }
    if !provider.events.is_empty() {
        writeln!(out, "\nEvents")?;
    }
    for event in &provider.events {
        write!(out, "  {:>6} v{:<3} {}", event.id, event.version, event.schema.event_name)?;
        let level = names::level(provider, event).into_iter();
        let keywords = names::keywords(provider, event).into_iter().map(str::to_owned);
        let rest: Vec<String> = level.chain(keywords).collect();
        writeln!(out, "{}{}", if rest.is_empty() { "" } else { "  " }, rest.join(" "))?;
        if !event.schema.fields.is_empty() {
            writeln!(out, "              {}", names::fields(&event.schema))?;
        }
        if let Some(message) = &event.schema.message {
            writeln!(out, "              \"{}\"", one_line(message))?;
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
    writeln!(out, "\n{title}")?;
    for row in rows {
        let message = row.message.as_deref().map(one_line).filter(|text| **text != *row.name);
        let line = format!("  {}  {:<width$}  {}", value(row.value), row.name, message.unwrap_or_default());
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn or_dash(name: &str) -> &str {
    if name.is_empty() { "-" } else { name }
}

/// A text for people on one line.
fn one_line(text: &str) -> String {
    readable(text).split_whitespace().collect::<Vec<_>>().join(" ")
}
