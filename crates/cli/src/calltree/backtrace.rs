//! `backtrace`: all frames at a position in a trace, through all stacks.

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::calltree::{Axis, Stack, StackKind};
use stackhound_export::json::tree::{Backtrace, FullStack};
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
    /// Follow the stacks of the thread or of the processor; by default the thread, if the stack has
    /// one
    #[arg(long, value_enum)]
    axis: Option<AxisName>,
    /// Output format; by default derived from the file name of -o, else text
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AxisName {
    /// The previous stack of the processor
    Cpu,
    /// The other stack of the thread
    Thread,
}

/// The limit of stacks in a backtrace. Nested interrupts on top of a thread in the kernel need
/// five.
const STACKS_MAX: usize = 16;

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, Format::Text)?;
    let (trace, outcome) = open(&arguments.source, common)?;
    let PositionArguments { at, choice } = &arguments.position;
    let stacks = stacks(choice.stack(&trace, *at)?, arguments.axis);
    let mut sink = arguments.output.rows(format)?;
    match format {
        Format::Text => text::backtrace(&stacks, &mut sink)?,
        Format::Json => {
            let stacks = stacks.into_iter().map(FullStack::from).collect();
            sink.json(&Backtrace { at: at.context(&trace)?.into(), stacks })?;
        }
    }
    sink.finish()?;
    Ok(outcome)
}

/// A stack and those below it, down to the first one in user mode.
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
        // A stack that appears again is not below itself: the processor switched away and back.
        match top.prev_stack(axis).filter(|below| stacks.iter().all(|above| above.id() != below.id())) {
            Some(below) => {
                // A 32-bit program calls the kernel through 64-bit code. No event reports its
                // start.
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
