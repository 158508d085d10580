//! `stack`: the active stack at a position in a trace, and the previous and next stacks.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use stackhound::calltree::{Axis, Stack};
use stackhound_export::json::tree as json;
use stackhound_export::tree::text;

use super::position::PositionArguments;
use super::{Format, Source, open};
use crate::options::{Common, Output};
use crate::outcome::Outcome;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    position: PositionArguments,
    /// Output format; by default derived from the file name of -o, else text
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: Output,
}

/// The neighbors on the processor and of the thread.
type Neighbors<'t> = [Option<Stack<'t>>; 2];

fn neighbors<'t>(find: impl Fn(Axis) -> Option<Stack<'t>>) -> Neighbors<'t> {
    [find(Axis::Cpu), find(Axis::Thread)]
}

fn json([on_cpu, of_thread]: Neighbors<'_>) -> json::Neighbors {
    json::Neighbors { on_cpu: on_cpu.map(From::from), of_thread: of_thread.map(From::from) }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, Format::Text)?;
    let (trace, outcome) = open(&arguments.source, common)?;
    let PositionArguments { at, choice } = &arguments.position;
    let at = *at;
    let stack = choice.stack(&trace, at)?;
    let before = neighbors(|axis| stack.prev_stack(axis));
    let after = neighbors(|axis| stack.next_stack(axis));
    let context = at.context(&trace)?;
    let mut sink = arguments.output.rows(format)?;
    match format {
        Format::Json => {
            let (at, stack) = (context.into(), stack.into());
            sink.json(&json::StackDocument { at, stack, before: json(before), after: json(after) })?;
        }
        Format::Text => {
            if let Some(time) = json::time(context) {
                writeln!(sink, "{time}")?;
            }
            text::stack(&stack, &mut sink)?;
            for (neighbors, side) in [(before, "before"), (after, "after")] {
                for (neighbor, choice) in neighbors.into_iter().zip(["processor", "thread"]) {
                    if let Some(neighbor) = neighbor {
                        write!(sink, "{side}, of the {choice}: ")?;
                        text::heading(&neighbor, &mut sink)?;
                    }
                }
            }
        }
    }
    sink.finish()?;
    Ok(outcome)
}
