//! `stack`: the stack at a point of a trace, and those before and behind it.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use stackhound::calltree::{Axis, Stack};
use stackhound_export::tree::json::{Json, StackOnly};
use stackhound_export::tree::text;

use super::place::Spot;
use super::{At, Format, Source, open, time};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::Sink;

/// Arguments of `stack`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    spot: Spot,
    /// Form of the output
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Document<'t> {
    at: At,
    stack: Json<Stack<'t>>,
    before: Neighbours<'t>,
    behind: Neighbours<'t>,
}

/// The stacks before or behind the period of activity of one.
#[derive(Serialize)]
struct Neighbours<'t> {
    cpu: Option<StackOnly<'t>>,
    thread: Option<StackOnly<'t>>,
}

impl<'t> Neighbours<'t> {
    fn new(find: impl Fn(Axis) -> Option<Stack<'t>>) -> Self {
        Self { cpu: find(Axis::Cpu).map(StackOnly), thread: find(Axis::Thread).map(StackOnly) }
    }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let (trace, outcome) = open(&arguments.source, common)?;
    let Spot { at, whose } = arguments.spot;
    let stack = whose.stack(&trace, at)?;
    let before = Neighbours::new(|axis| stack.prev_stack(axis));
    let behind = Neighbours::new(|axis| stack.next_stack(axis));
    let context = at.context(&trace)?;
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    match arguments.format {
        Format::Json => {
            sink.json(&Document { at: At::new(context), stack: Json(stack), before, behind })?;
        }
        Format::Text => {
            if let Some(time) = time(context) {
                writeln!(sink, "{time}")?;
            }
            text::stack(&stack, &mut sink)?;
            for (neighbours, side) in [(before, "before"), (behind, "behind")] {
                for (neighbour, whose) in [(neighbours.cpu, "processor"), (neighbours.thread, "thread")] {
                    if let Some(StackOnly(neighbour)) = neighbour {
                        write!(sink, "{side}, of the {whose}: ")?;
                        text::heading(&neighbour, &mut sink)?;
                    }
                }
            }
        }
    }
    sink.finish()?;
    Ok(outcome)
}
