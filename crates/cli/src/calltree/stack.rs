//! `stack`: the stack at a point of a trace, and those before and behind it.

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
use crate::output::Sink;

/// Arguments of `stack`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    spot: PositionArguments,
    /// Form of the output
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
}

/// The neighbours on the processor and of the thread.
type Neighbours<'t> = [Option<Stack<'t>>; 2];

fn neighbours<'t>(find: impl Fn(Axis) -> Option<Stack<'t>>) -> Neighbours<'t> {
    [find(Axis::Cpu), find(Axis::Thread)]
}

fn json([on_cpu, of_thread]: Neighbours<'_>) -> json::Neighbours {
    json::Neighbours { on_cpu: on_cpu.map(From::from), of_thread: of_thread.map(From::from) }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let (trace, outcome) = open(&arguments.source, common)?;
    let PositionArguments { at, choice } = arguments.spot;
    let stack = choice.stack(&trace, at)?;
    let before = neighbours(|axis| stack.prev_stack(axis));
    let after = neighbours(|axis| stack.next_stack(axis));
    let context = at.context(&trace)?;
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    match arguments.format {
        Format::Json => {
            let (at, stack) = (context.into(), stack.into());
            sink.json(&json::StackDocument { at, stack, before: json(before), after: json(after) })?;
        }
        Format::Text => {
            if let Some(time) = json::time(context) {
                writeln!(sink, "{time}")?;
            }
            text::stack(&stack, &mut sink)?;
            for (neighbours, side) in [(before, "before"), (after, "after")] {
                for (neighbour, choice) in neighbours.into_iter().zip(["processor", "thread"]) {
                    if let Some(neighbour) = neighbour {
                        write!(sink, "{side}, of the {choice}: ")?;
                        text::heading(&neighbour, &mut sink)?;
                    }
                }
            }
        }
    }
    sink.finish()?;
    Ok(outcome)
}
