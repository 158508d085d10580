//! `events-of`: the calls, returns and stack changes below a frame.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use stackhound::calltree::{Frame, Pattern, StackEvent};
use stackhound_export::json::tree::{StackChange, TreeFrame};
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
    /// Hide everything below functions that match, such as ntoskrnl!Ke* (* and ? match any text)
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    skip: Vec<Pattern>,
    /// Output format; by default derived from the file name of -o, else text
    #[arg(long, value_enum)]
    format: Option<ListFormat>,
    #[command(flatten)]
    output: Output,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Text)?;
    let (trace, outcome) = open(&arguments.source, common)?;
    report_unknown_modules(&trace, &arguments.skip, common);
    let frame = arguments.frame.find(&trace)?;
    let items = events(frame, &arguments.skip);
    let mut sink = arguments.output.rows(format)?;
    let list = List { head: ("frame", TreeFrame::from(frame)), key: "events", items };
    let below = frame.descendant_count();
    let count = list.write(
        &mut sink,
        format,
        |count| without_joined(below, count),
        |sink, (depth, event)| writeln!(sink, "{}", text::event(*depth, *event)),
        |(depth, event)| StackChange::new(depth, event),
    )?;
    sink.finish()?;
    closing(common, format_args!("{}", with_noun(count, "event")));
    Ok(outcome)
}

/// The events with their depth below the frame. The start and the end of a frame have the same
/// depth.
fn events<'t>(frame: Frame<'t>, skip: &[Pattern]) -> impl Iterator<Item = (usize, StackEvent<'t>)> {
    let mut events = frame.descendant_events();
    let mut depth = 0_usize;
    std::iter::from_fn(move || {
        let event = events.next()?;
        let at = match event {
            StackEvent::FrameStart(frame) => {
                if skip.iter().any(|pattern| frame.fits(pattern)) {
                    events.skip_children();
                }
                depth += 1;
                depth - 1
            }
            StackEvent::FrameEnd(_) => {
                depth = depth.saturating_sub(1);
                depth
            }
            StackEvent::StackLeave(_) | StackEvent::StackEnter(_) => depth,
        };
        Some((at, event))
    })
}
