//! `hunt`: judges the call stacks of recordings, of Sysmon's data and of what happens now.

mod evidence;
mod live;
mod recorded;
mod report;
mod sums;

use std::io::{self, IsTerminal};

use anyhow::Result;

use crate::Outcome;
use crate::args::{ColorChoice, Common, Hunt, HuntFormat};
use crate::progress::Progress;
use report::Report;

/// Hunts in all inputs; recordings are merged by time, as everywhere.
pub fn run(arguments: &Hunt, common: &Common) -> Result<Outcome> {
    if arguments.sources.live {
        return live::run(arguments, common);
    }
    let judge = evidence::judge(arguments, common)?;
    let mut report = Report::open(arguments, judge.lists(), is_colored(arguments, common))?;
    let trace = crate::inputs::open(&arguments.sources.files, common)?;
    let bytes = trace.sources().iter().map(|source| source.recording.size()).sum();
    let mut progress = Progress::new(common, bytes);
    let (_, hunted) = recorded::hunt(&trace, judge, arguments, common, &mut report, &mut progress)?;
    report.count(hunted.with_stack, &hunted.totals);
    let told = report.closing();
    let found = report.finish()?;
    progress.finish(&(told + &crate::render::losses(&hunted.outcome)));
    let damaged = !hunted.outcome.trace.damage.is_empty();
    Ok(Outcome { damaged, found: found && !arguments.exit_zero })
}

/// Only tables that go to a terminal have colours, unless they are asked for.
fn is_colored(arguments: &Hunt, common: &Common) -> bool {
    let is_table = arguments.format == HuntFormat::Table;
    let by_itself = || {
        arguments.output.output.is_none()
            && io::stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    };
    is_table
        && match common.color {
            ColorChoice::Auto => by_itself(),
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        }
}
