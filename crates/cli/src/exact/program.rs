//! `stackhound record --exact -- PROGRAM`.

use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result};
use stackhound_record_ptrace::{Ending, Recorder, Totals, wait_for_end};

use super::{journal, output, stop_at_signals};
use crate::live::record::Arguments;
use crate::options::Common;
use crate::output::{counted, grouped, message};

/// Records, and waits for the end of the program unless interrupted.
pub fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let path = output(arguments.output.as_deref(), arguments.program.first().map(|name| name.as_ref()));
    let stop = stop_at_signals()?;
    let recorder = Recorder::start(&arguments.program)?;
    let process = recorder.process();
    let journal = journal(&path)?;
    let started = Instant::now();
    let recorded = recorder.record(arguments.limit.unwrap_or(u64::MAX), &stop, journal);
    let recorded = recorded.with_context(|| path.display().to_string())?;
    let seconds = started.elapsed().as_secs_f64();
    drop(recorded.journal);
    let interrupted = stop.load(Ordering::Relaxed);
    let ending = match recorded.ending {
        Ending::Running if !interrupted => {
            wait_for_end(process).context("cannot wait for the end of the program")?
        }
        ending => ending,
    };
    if !common.quiet {
        message(format_args!("{}; {}: {}", closing(&recorded.totals, seconds), end(ending), path.display()));
    }
    Ok(())
}

/// The closing line.
fn closing(totals: &Totals, seconds: f64) -> String {
    let mut unusual = String::new();
    for (number, kind) in [
        (totals.returns_below, "from calls before the recording"),
        (totals.returns_as_jumps, "used as jumps"),
        (totals.returns_elsewhere, "elsewhere"),
    ] {
        if number > 0 {
            unusual += &format!(", {} {kind}", grouped(number));
        }
    }
    if totals.refused > 0 {
        unusual += &format!(", {} frames or stacks beyond the limit", grouped(totals.refused));
    }
    format!(
        "{} transitions, {} calls, {} of {} returns matched{unusual}, {} frames on {} in {seconds:.1} s ({} transitions/s)",
        grouped(totals.transitions),
        grouped(totals.calls),
        grouped(totals.returns_matched),
        grouped(totals.returns),
        grouped(totals.frames),
        counted(totals.stacks, "stack", "stacks"),
        grouped((totals.transitions as f64 / seconds.max(1e-9)) as u64),
    )
}

fn end(ending: Ending) -> String {
    match ending {
        Ending::Exited(code) => format!("the program ended with exit code {code}"),
        Ending::Killed(signal) => format!("the program was killed by signal {signal}"),
        Ending::Running => "the program continues to run".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_returns_are_counted_by_kind() {
        let mut totals =
            Totals { transitions: 2_000, calls: 20, returns: 18, returns_matched: 18, ..Totals::default() };
        let plain = closing(&totals, 2.0);
        assert_eq!(
            plain,
            "2,000 transitions, 20 calls, 18 of 18 returns matched, 0 frames on 0 stacks in 2.0 s (1,000 transitions/s)"
        );
        (totals.returns_matched, totals.returns_as_jumps, totals.returns_elsewhere) = (15, 2, 1);
        let unusual = closing(&totals, 2.0);
        assert!(
            unusual.contains("15 of 18 returns matched, 2 used as jumps, 1 elsewhere, 0 frames"),
            "{unusual}"
        );
    }
}
