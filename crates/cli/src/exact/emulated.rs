//! `stackhound record --exact --with qemu -- PROGRAM`.

use std::process::ExitStatus;
use std::time::Instant;

use anyhow::{Context, Result};
use stackhound_record_qemu::Ending;
use stackhound_record_qemu::program::{Cut, Recorder, Totals};

use super::system::returns;
use super::{journal, output, stop_at_signals};
use crate::live::record::Arguments;
use crate::options::Common;
use crate::output::{counted, grouped, message};

/// Records until the program ends or the recording is interrupted.
pub fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let path = output(arguments.output.as_deref(), arguments.program.first().map(|name| name.as_ref()));
    let stop = stop_at_signals()?;
    let recorder = Recorder::start(&arguments.program)?;
    let journal = journal(&path)?;
    let started = Instant::now();
    let recorded = recorder.record(arguments.limit.unwrap_or(u64::MAX), &stop, journal);
    let recorded = recorded.with_context(|| path.display().to_string())?;
    let seconds = started.elapsed().as_secs_f64();
    if !common.quiet {
        let closing = closing(&recorded.totals, seconds);
        message(format_args!("{closing}; {}: {}", end(recorded.ending, &recorded.totals), path.display()));
    }
    Ok(())
}

/// The closing line.
fn closing(totals: &Totals, seconds: f64) -> String {
    let refused = match totals.refused {
        0 => String::new(),
        refused => format!(", {} frames or stacks beyond the limit", grouped(refused)),
    };
    format!(
        "{}, {}, returns: {}, {}, {} with {}, {} on {}{refused} in {seconds:.1} s",
        counted(totals.transitions, "transition", "transitions"),
        counted(totals.calls, "call", "calls"),
        returns(&totals.returns),
        counted(totals.signals, "signal", "signals"),
        counted(totals.threads, "thread", "threads"),
        counted(totals.switches, "switch", "switches"),
        counted(totals.frames, "frame", "frames"),
        counted(totals.stacks, "stack", "stacks"),
    )
}

fn end(ending: Ending, totals: &Totals) -> String {
    let cut = match totals.cut {
        Some(Cut::Closed) => "the recording ended when the program closed its pipe, and ",
        Some(Cut::Vanished) => {
            "the recording ended when the program was killed or replaced itself by another one, and "
        }
        None => "",
    };
    match ending {
        Ending::Ended(status) => format!("{cut}the program {}", ended(status)),
        Ending::Stopped => "the program was stopped".to_owned(),
    }
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended with {status}"),
    }
}
