//! `backtrace`: all frames at a point of a trace, from stack to stack.

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::calltree::{Axis, Stack, StackKind};
use stackhound_export::json::tree::{Backtrace, FullStack};
use stackhound_export::tree::text;

use super::position::PositionArguments;
use super::{Format, Source, open};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::Sink;

/// Arguments of `backtrace`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    spot: PositionArguments,
    /// Along what: by default the thread's other stacks; for the stacks of a processor, what it did before
    #[arg(long, value_enum)]
    axis: Option<AxisName>,
    /// Form of the output
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
}

/// Along what the next stack is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AxisName {
    /// What the processor did before
    Cpu,
    /// The other stack of the thread
    Thread,
}

/// A backtrace has no more stacks than this: nested interrupts on top of a thread in the kernel need five.
const STACKS_MAX: usize = 16;

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let (trace, outcome) = open(&arguments.source, common)?;
    let PositionArguments { at, choice } = arguments.spot;
    let stacks = stacks(choice.stack(&trace, at)?, arguments.axis);
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    match arguments.format {
        Format::Text => text::backtrace(&stacks, &mut sink)?,
        Format::Json => {
            let stacks = stacks.into_iter().map(FullStack::from).collect();
            sink.json(&Backtrace { at: at.context(&trace)?.into(), stacks })?;
        }
    }
    sink.finish()?;
    Ok(outcome)
}

/// A stack and those below it, down to the first one of user mode.
fn stacks(from: Stack<'_>, axis: Option<AxisName>) -> Vec<Stack<'_>> {
    let mut stacks = vec![from];
    let mut top = from;
    while top.info().kind != StackKind::User && stacks.len() < STACKS_MAX {
        let axis = match axis {
            Some(AxisName::Cpu) => Axis::Cpu,
            Some(AxisName::Thread) => Axis::Thread,
            None if top.info().thread.is_some() => Axis::Thread,
            None => Axis::Cpu,
        };
        // A stack that comes again is not below itself: the processor only went to and fro.
        match top.prev_stack(axis).filter(|below| stacks.iter().all(|above| above.id() != below.id())) {
            Some(below) => {
                // A 32-bit program calls the kernel through 64-bit code, of which no event tells when it begins.
                if (top.info().kind, below.info().kind) == (StackKind::Kernel, StackKind::User) {
                    stacks.extend(top.of_thread(StackKind::Wow64));
                }
                stacks.push(below);
                top = below;
            }
            None => break,
        }
    }
    stacks
}
