//! The first answers about an exact trace: what it contains, and which functions were called most.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use stackhound::StacksFrom;
use stackhound_export::escape::line;

use super::trace::quoted;
use super::{Arguments, Format};
use crate::naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped};

/// The number of functions on the screen.
const ROWS: usize = 10;

pub fn run(file: &Path, (arguments, format): (&Arguments, Format), common: &Common) -> Result<Outcome> {
    if format == Format::Json {
        bail!(
            "{}: the summary of an exact trace has no JSON form; use calls, tree or ranges",
            file.display()
        );
    }
    let enrichment = naming::in_full(naming::with_folders(&arguments.symbols, &[], false, common)?);
    let (trace, from) = stackhound::open_stacks(file, enrichment, Default::default())?;
    let damaged = matches!(&from, StacksFrom::Journal(replayed, _) if !replayed.finished);
    let mut processes: BTreeMap<Option<u32>, Option<String>> = BTreeMap::new();
    let (mut threads, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    for stack in trace.stacks(trace.first_context().id())? {
        let info = stack.info();
        let name = processes.entry(info.process).or_default();
        *name = name.take().or(info.name);
        *threads.entry((info.process, info.thread)).or_insert(0_u64) += 1;
        *kinds.entry(info.kind.name()).or_insert(0_u64) += 1;
    }
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    for (location, count) in trace.call_counts().filter(|(_, count)| *count > 0) {
        *functions.entry(location.name().to_string()).or_default() += count;
    }
    let distinct = functions.len();
    let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
    functions.sort_by(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));

    let mut sink = arguments.output.sentences(format)?;
    let path = file.display();
    line(&mut sink, format_args!("trace      {path}: an exact trace of calls"))?;
    let named = |(pid, name): (&Option<u32>, &Option<String>)| match (pid, name) {
        (Some(pid), Some(name)) => format!("{name} ({pid})"),
        (Some(pid), None) => format!("process {pid}"),
        (None, name) => name.clone().unwrap_or_else(|| "process not known".to_owned()),
    };
    let list: Vec<String> = processes.iter().map(named).collect();
    line(&mut sink, format_args!("processes  {}", list.join(", ")))?;
    let kinds: Vec<String> =
        kinds.iter().map(|(kind, count)| format!("{} {kind}", grouped(*count))).collect();
    line(
        &mut sink,
        format_args!(
            "contains   {}, {} ({}), {}, {}",
            counted(threads.len() as u64, "thread", "threads"),
            counted(trace.stack_count().into(), "stack", "stacks"),
            kinds.join(", "),
            counted(trace.frame_count(), "call", "calls"),
            counted(trace.transition_count(), "transition", "transitions"),
        ),
    )?;
    line(&mut sink, format_args!("functions  {}; called most:", grouped(distinct as u64)))?;
    for (name, count) in functions.iter().take(ROWS) {
        line(&mut sink, format_args!("{:>20} {name}", grouped(*count)))?;
    }
    line(&mut sink, format_args!(""))?;
    let quoted_path = quoted(&file.to_string_lossy());
    // A pattern matches functions with names only.
    let most = functions.iter().find(|(name, _)| name.contains('!')).map_or("*", |(name, _)| name);
    line(&mut sink, format_args!("next       stackhound tree {quoted_path}"))?;
    line(&mut sink, format_args!("           stackhound calls {quoted_path} {} --limit 10", quoted(most)))?;
    line(
        &mut sink,
        format_args!(
            "           stackhound backtrace {quoted_path} --at '#{}'",
            trace.transition_count() / 2
        ),
    )?;
    sink.finish()?;
    Ok(Outcome { damaged, ..Outcome::default() })
}
