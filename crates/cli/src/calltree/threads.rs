//! `threads`: the processes, threads and stacks of a trace.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::calltree::{ContextId, Cpu, GroupBy, Stack, StackGroup, Trace};
use stackhound_export::escape;
use stackhound_export::json::threads::{ThreadRow, Threads};
use stackhound_export::tree::Spans;

use super::list::closing;
use super::position::{Position, ThreadChoice};
use super::{Source, open};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, counted, grouped};
use crate::time::Point;
use crate::top::table::Table;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Show processes, threads or stacks; by default processes, with --pid, --process or --at threads,
    /// and with --tid stacks
    #[arg(long, value_enum)]
    by: Option<By>,
    #[command(flatten)]
    threads: ThreadChoice,
    /// Also show the function of each thread at this context, such as #1000 (or 1000), or time:
    /// RFC 3339, or +5s since the start; those that are active on a processor come first
    #[arg(long, value_name = "POSITION")]
    at: Option<Position>,
    /// Show only the first N rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// One row per process
    Process,
    /// One row per thread, and per processor with stacks of its own
    Thread,
    /// One row per stack
    Stack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable table
    Table,
    /// One JSON object
    Json,
    /// One JSON object per row, one per line
    Ndjson,
}

impl Arguments {
    fn by(&self) -> GroupBy {
        match self.by {
            Some(By::Process) => GroupBy::Process,
            Some(By::Thread) => GroupBy::Thread,
            Some(By::Stack) => GroupBy::Stack,
            None if self.threads.tid.is_some() => GroupBy::Stack,
            None if self.threads.is_made() || self.at.is_some() => GroupBy::Thread,
            None => GroupBy::Process,
        }
    }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, Format::Table)?;
    let (trace, outcome) = open(&arguments.source, common)?;
    let chosen = arguments.threads.stacks(&trace)?;
    let by = arguments.by();
    let at = arguments.at.map(|at| at.context(&trace)).transpose()?;
    let mut groups = trace.groups(by, |stack| chosen.has(stack));
    let found = groups.len() as u64;
    if let Some(at) = at {
        let is_active = |group: &StackGroup| {
            group.stack_at(&trace, at.id()).is_some_and(|(_, processor)| processor.is_some())
        };
        groups.sort_by_cached_key(|group| !is_active(group));
    }
    groups.truncate(arguments.limit.unwrap_or(usize::MAX));
    let mut sink = arguments.output.rows(format)?;
    let position = at.map(|at| at.id());
    let rows = groups.iter().map(|group| ThreadRow::new(&trace, by, group, position));
    match format {
        Format::Table => table(&mut sink, &trace, by, &groups, position)?,
        Format::Json => sink.json(&Threads { at: at.map(Into::into), found, rows: rows.collect() })?,
        Format::Ndjson => {
            for row in rows {
                escape::json(&mut sink, &row)?;
                writeln!(sink)?;
            }
        }
    }
    sink.finish()?;
    let total = match by {
        GroupBy::Process => counted(found, "process", "processes"),
        GroupBy::Thread => counted(found, "thread", "threads"),
        GroupBy::Stack => counted(found, "stack", "stacks"),
    };
    match groups.len() as u64 {
        shown if shown < found => closing(common, format_args!("{total}, {} shown", grouped(shown))),
        _ => closing(common, format_args!("{total}")),
    }
    Ok(outcome)
}

fn table(
    out: &mut Sink,
    trace: &Trace,
    by: GroupBy,
    groups: &[StackGroup],
    at: Option<ContextId>,
) -> io::Result<()> {
    let at = at.filter(|_| by != GroupBy::Process);
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut table = Table::<(&StackGroup, Option<(Stack<'_>, Option<Cpu>)>)>::new();
    table.left("process", |(group, _)| match (&group.name, group.cpu) {
        (Some(name), Some(cpu)) => format!("{name}, processor {}", cpu.0),
        (Some(name), None) => name.clone(),
        (None, Some(cpu)) => format!("processor {}", cpu.0),
        (None, None) => known(None),
    });
    table.right("pid", |(group, _)| known(group.process.map(|pid| pid.to_string())));
    if by == GroupBy::Process {
        table.right("threads", |(group, _)| group.threads.to_string());
    } else {
        table.right("tid", |(group, _)| known(group.thread.map(|tid| tid.to_string())));
    }
    if by == GroupBy::Stack {
        table.left("stack", |(group, _)| {
            let stack = group.stacks.first().and_then(|id| trace.stack(*id, ContextId(0)).ok());
            known(stack.map(|stack| stack.info().kind.name().to_owned()))
        });
    }
    table.right("frames", |(group, _)| trace.counted(group.activity.frames).to_string());
    table.right("active", |(group, _)| match group.activity.time {
        Some((shortest, longest)) => Spans { prefix: "", shortest, longest }.to_string(),
        None => counted(group.activity.contexts, "context", "contexts"),
    });
    table
        .right("first", |(group, _)| known(group.activity.range.map(|range| position(trace, range.begin()))));
    table.right("last", |(group, _)| known(group.activity.range.map(|range| position(trace, range.last()))));
    if at.is_some() {
        table.right("processor", |(_, now)| known(now.and_then(|(_, cpu)| Some(cpu?.0.to_string()))));
        table.left("function", |(_, now)| {
            let frame = now.and_then(|(stack, _)| stack.frame());
            known(frame.map(|frame| frame.name().to_string()))
        });
    }
    let now = |group: &StackGroup| group.stack_at(trace, at?);
    table.write(out, &groups.iter().map(|group| (group, now(group))).collect::<Vec<_>>())
}

/// A context as `--at` accepts it: its time since the start of the trace, or its number.
fn position(trace: &Trace, context: ContextId) -> String {
    let time = trace.context(context).ok().and_then(|context| context.time());
    match (time, trace.first_context().time()) {
        (Some(time), Some(zero)) => Point::SinceStart(time.saturating_sub(zero) as i64).to_string(),
        _ => format!("#{}", context.0),
    }
}
