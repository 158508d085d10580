//! `calls`: all calls of functions by name.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use stackhound::calltree::{ContextId, Pattern};
use stackhound_export::json::tree::CallLine;
use stackhound_export::tree::text;

use super::list::{List, ListFormat, closing, with_noun};
use super::position::{Position, ThreadChoice};
use super::{Source, open, pattern, report_unknown_modules};
use crate::options::{Common, Output};
use crate::outcome::Outcome;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Show calls of functions that match, such as ntoskrnl!Ke* or *Close* (* and ? match any text)
    #[arg(value_name = "PATTERN", value_parser = pattern)]
    pattern: Pattern,
    #[command(flatten)]
    threads: ThreadChoice,
    /// Show only calls that exist at this context, such as #1000 (or 1000), or time: RFC 3339, or +5s
    /// since the start
    #[arg(long, value_name = "POSITION")]
    at: Option<Position>,
    /// Show only calls whose first context is at or after this context or time
    #[arg(long, value_name = "POSITION")]
    from: Option<Position>,
    /// Show only calls whose first context is before this context or time
    #[arg(long, value_name = "POSITION")]
    to: Option<Position>,
    /// Show only the first N calls
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Output format; by default derived from the file name of -o, else text
    #[arg(long, value_enum)]
    format: Option<ListFormat>,
    #[command(flatten)]
    output: Output,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Text)?;
    let (trace, outcome) = open(&arguments.source, common)?;
    report_unknown_modules(&trace, std::slice::from_ref(&arguments.pattern), common);
    let limit = |location: Option<Position>, without| {
        location.map_or(Ok(ContextId(without)), |location: Position| location.limit(&trace))
    };
    let (from, to) = (limit(arguments.from, 0)?, limit(arguments.to, u64::MAX)?);
    let at = arguments.at.map(|at| at.context(&trace)).transpose()?.map(|at| at.id());
    let chosen = arguments.threads.stacks(&trace)?;
    let mut calls = trace.calls(&arguments.pattern);
    calls.retain(|frame| {
        (from..to).contains(&frame.first_context().id())
            && at.is_none_or(|at| frame.range().contains(at))
            && chosen.has_frame(frame)
    });
    let found = trace.counted_frames(calls.iter().copied());
    let shown = match arguments.limit.filter(|limit| *limit < calls.len()) {
        Some(limit) => {
            calls.truncate(limit);
            trace.counted_frames(calls.iter().copied())
        }
        None => found,
    };
    let mut sink = arguments.output.rows(format)?;
    let list = List { head: ("found", found.number()), key: "calls", items: calls.into_iter() };
    list.write(
        &mut sink,
        format,
        |_| shown,
        |sink, call| writeln!(sink, "{}", text::call(*call)),
        CallLine::from,
    )?;
    sink.finish()?;
    let counted = with_noun(found, "call");
    match shown == found {
        true => closing(common, format_args!("{counted}")),
        false => closing(common, format_args!("{counted}, {} shown", shown.number())),
    }
    Ok(outcome)
}
