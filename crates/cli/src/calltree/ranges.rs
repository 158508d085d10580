//! `ranges`: the ranges of contexts at which a frame was executing.

use std::cell::Cell;
use std::io::Write;

use anyhow::Result;
use clap::Args;
use stackhound::calltree::{ContextRange, Frame, Pattern};
use stackhound_export::json::tree::{RangeLine, TreeFrame};
use stackhound_export::tree::text;

use super::list::{List, ListFormat, closing, with_noun, without_joined};
use super::position::WhichFrame;
use super::{Source, open, pattern, report_unknown_modules};
use crate::options::{Common, Output};
use crate::outcome::Outcome;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    frame: WhichFrame,
    /// Split ranges where frames below it begin and end, and show the frame of each range
    #[arg(long)]
    by_call: bool,
    /// Exclude functions that match, such as ntoskrnl!Ke*, and all their calls (* and ? match any
    /// text)
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    exclude: Vec<Pattern>,
    /// Output format; by default derived from the file name of -o, else text
    #[arg(long, value_enum)]
    format: Option<ListFormat>,
    #[command(flatten)]
    output: Output,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Text)?;
    let (trace, outcome) = open(&arguments.source, common)?;
    report_unknown_modules(&trace, &arguments.exclude, common);
    let frame = arguments.frame.find(&trace)?;
    let head = ("frame", TreeFrame::from(frame));
    let contexts = Cell::new(0);
    let add = |range: ContextRange| contexts.set(contexts.get() + range.len());
    let excluded = |frame: &Frame<'_>| arguments.exclude.iter().any(|pattern| frame.fits(pattern));
    let by_call = frame.execution_ranges_by_call().without(excluded);
    let mut sink = arguments.output.rows(format)?;
    let count = if arguments.by_call {
        let items = by_call.inspect(|item| add(item.range));
        let below = frame.descendant_count();
        let counted = |count| without_joined(below, count);
        List { head, key: "ranges", items }.write(
            &mut sink,
            format,
            counted,
            |sink, item| writeln!(sink, "{}", text::call_range(*item)),
            |item| RangeLine::OfCall(item.into()),
        )?
    } else {
        let plain: Box<dyn Iterator<Item = ContextRange>> = match arguments.exclude.is_empty() {
            true => Box::new(frame.execution_ranges()),
            false => Box::new(joined(by_call.map(|item| item.range))),
        };
        let items = plain.inspect(|range| add(*range));
        List { head, key: "ranges", items }.write(
            &mut sink,
            format,
            |count| trace.counted(count),
            |sink, item| writeln!(sink, "{item}"),
            |item| RangeLine::Of(item.into()),
        )?
    };
    sink.finish()?;
    let total = with_noun(trace.counted(contexts.get()), "context");
    closing(common, format_args!("{}, {total}", with_noun(count, "range")));
    Ok(outcome)
}

/// Joins adjacent ranges.
fn joined(ranges: impl Iterator<Item = ContextRange>) -> impl Iterator<Item = ContextRange> {
    let mut ranges = ranges.peekable();
    std::iter::from_fn(move || {
        let mut range = ranges.next()?;
        while let Some(next) = ranges.next_if(|next| next.begin().0 == range.last().0 + 1) {
            range = ContextRange::new(range.begin(), next.last()).unwrap_or(range);
        }
        Some(range)
    })
}
