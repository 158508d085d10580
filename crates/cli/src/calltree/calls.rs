//! `calls`: all calls of functions by name.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use stackhound::calltree::{ContextId, Count, Frame, Pattern, TailCall, Trace};
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

/// A frame of a function, or a function that a frame reached.
#[derive(Clone, Copy)]
enum Call<'t> {
    Called(Frame<'t>),
    TailCalled(TailCall<'t>),
}

impl<'t> Call<'t> {
    fn frame(self) -> Frame<'t> {
        match self {
            Call::Called(frame) => frame,
            Call::TailCalled(found) => found.frame(),
        }
    }

    fn first(self) -> ContextId {
        match self {
            Call::Called(frame) => frame.first_context().id(),
            Call::TailCalled(found) => found.first_context().id(),
        }
    }

    fn last(self) -> ContextId {
        match self {
            Call::Called(frame) => frame.last_context().id(),
            Call::TailCalled(found) => found.last_context().id(),
        }
    }
}

/// All calls of functions, in the order of their first contexts.
fn find<'t>(trace: &'t Trace, pattern: &Pattern) -> Vec<Call<'t>> {
    let mut calls: Vec<Call<'t>> = trace.calls(pattern).into_iter().map(Call::Called).collect();
    let tail_calls = trace.tail_calls(pattern);
    if !tail_calls.is_empty() {
        calls.extend(tail_calls.into_iter().map(Call::TailCalled));
        calls.sort_by_cached_key(|call| (call.first(), call.frame().id()));
    }
    calls
}

fn count(trace: &Trace, calls: &[Call<'_>]) -> Count {
    let frames = calls.iter().filter_map(|call| match call {
        Call::Called(frame) => Some(*frame),
        Call::TailCalled(_) => None,
    });
    let tail_calls = calls.iter().filter(|call| matches!(call, Call::TailCalled(_))).count() as u64;
    // All tail calls are observed.
    match trace.counted_frames(frames) {
        Count::Exactly(number) => Count::Exactly(number + tail_calls),
        Count::AtLeast(number) => Count::AtLeast(number + tail_calls),
        Count::Between { least, seen } => {
            Count::Between { least: least + tail_calls, seen: seen + tail_calls }
        }
    }
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
    let mut calls = find(&trace, &arguments.pattern);
    calls.retain(|call| {
        (from..to).contains(&call.first())
            && at.is_none_or(|at| (call.first()..=call.last()).contains(&at))
            && chosen.has_frame(&call.frame())
    });
    let found = count(&trace, &calls);
    let shown = match arguments.limit.filter(|limit| *limit < calls.len()) {
        Some(limit) => {
            calls.truncate(limit);
            count(&trace, &calls)
        }
        None => found,
    };
    let mut sink = arguments.output.rows(format)?;
    let list = List { head: ("found", found.number()), key: "calls", items: calls.into_iter() };
    list.write(
        &mut sink,
        format,
        |_| shown,
        |sink, call| match *call {
            Call::Called(frame) => writeln!(sink, "{}", text::call(frame)),
            Call::TailCalled(found) => writeln!(sink, "{}", text::tail_call(found)),
        },
        |call| match call {
            Call::Called(frame) => CallLine::from(frame),
            Call::TailCalled(found) => CallLine::from(found),
        },
    )?;
    sink.finish()?;
    let counted = with_noun(found, "call");
    match shown == found {
        true => closing(common, format_args!("{counted}")),
        false => closing(common, format_args!("{counted}, {} shown", shown.number())),
    }
    Ok(outcome)
}
