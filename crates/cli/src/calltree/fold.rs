//! The functions of an exact trace, as `profile` and `stacks` show them.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use stackhound::profile::Unit;
use stackhound::{CallPath, CallProfile, StacksFrom};
use stackhound_export::escape::line;
use stackhound_export::json::stacks::{CallStack, CallStacks};
use stackhound_export::numbers;

use crate::filter::{self, Filters};
use crate::inputs;
use crate::naming::Naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, message};
use crate::top::table::percent;

/// The functions of a file.
pub struct Folded {
    pub calls: CallProfile,
    damaged: bool,
}

/// Refuses options that select events and names. `others` are further ones, and whether they are given.
pub fn refuse_options(filters: &Filters, naming: &Naming, others: &[(bool, &str)]) -> Result<()> {
    if !filter::texts(filters).is_empty() || filters.from.is_some() || filters.to.is_some() {
        bail!("filters and times select events, and an exact trace has transitions instead; leave them out");
    }
    if naming.is_stated() || naming.symbols.is_some() {
        bail!("an exact trace contains the names of its functions; leave out the options for symbols");
    }
    if let Some((_, name)) = others.iter().find(|(is_given, _)| *is_given) {
        bail!("{name} is for the events of a trace, which an exact trace does not have; leave it out");
    }
    Ok(())
}

/// Reads an exact trace or an index.
pub fn read(file: &Path, product: String, common: &Common) -> Result<Folded> {
    let (trace, from) = stackhound::open_stacks(file, Default::default(), inputs::grouping(false))?;
    let damaged = matches!(&from, StacksFrom::Journal(replayed, _) if !replayed.finished);
    if damaged && !common.quiet {
        message(format_args!("{} is incomplete; its end is missing.", file.display()));
    }
    Ok(Folded { calls: CallProfile::new(&trace, product)?, damaged })
}

impl Folded {
    pub fn outcome(&self) -> Outcome {
        Outcome { damaged: self.damaged, ..Outcome::default() }
    }

    fn weight(&self, weight: u64) -> String {
        numbers::weight(self.calls.profile.unit(), weight)
    }

    /// The weights, the number of paths, and what is not in them.
    fn summary(&self) -> Vec<String> {
        let paths = counted(self.calls.paths.len() as u64, "stack", "stacks");
        let mut lines = vec![format!(
            "{} in {paths}, by what the innermost function executed",
            self.weight(self.calls.total)
        )];
        if self.calls.not_known > 0 {
            lines.push(format!("{} without a known function", self.weight(self.calls.not_known)));
        }
        if self.calls.left_out > 0 {
            let calls = counted(self.calls.left_out, "call is", "calls are");
            lines.push(format!("{calls} left out of the stacks, because there are too many different ones"));
        }
        lines
    }

    pub fn report(&self) {
        self.summary().iter().for_each(|text| message(format_args!("{text}")));
    }

    /// Shows the paths with the highest weights.
    pub fn table(&self, out: &mut impl Write, top: usize) -> Result<()> {
        for text in self.summary() {
            line(out, format_args!("{text}"))?;
        }
        for path in self.calls.paths.iter().take(top) {
            let profile = &self.calls.profile;
            let process = profile.process_label(profile.threads()[path.thread.index()].process);
            let thread = profile.thread_label(path.thread);
            writeln!(out)?;
            let share = percent(path.weight, self.calls.total);
            line(out, format_args!("{} ({share}), {process} {thread}", self.weight(path.weight)))?;
            for name in self.calls.names(*path) {
                line(out, format_args!("    {name}"))?;
            }
        }
        Ok(())
    }

    /// The JSON document with the paths with the highest weights.
    pub fn document(&self, top: usize) -> CallStacks<'_> {
        let row = |path: &CallPath| {
            let thread = &self.calls.profile.threads()[path.thread.index()];
            let process = self.calls.profile.process(thread.process);
            CallStack {
                weight: path.weight,
                process: &process.name,
                pid: process.pid,
                tid: thread.tid,
                frames: self.calls.names(*path).collect(),
            }
        };
        CallStacks {
            unit: match self.calls.profile.unit() {
                Unit::Nanoseconds => "nanoseconds",
                _ => "transitions",
            },
            total: self.calls.total,
            not_known: self.calls.not_known,
            distinct: self.calls.paths.len(),
            stacks: self.calls.paths.iter().take(top).map(row).collect(),
        }
    }
}
