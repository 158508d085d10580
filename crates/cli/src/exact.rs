//! `stackhound record --exact`: runs a program and records its calls.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stackhound_calltree::journal::Writer;
use stackhound_record_ptrace::{Ending, Recorder, Totals, wait_for_end};

use crate::live::record::Arguments;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped, message};

/// The exit code after a second interrupt.
const INTERRUPTED: i32 = 130;

/// Records, and waits for the end of the program unless interrupted.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => default_path(&arguments.program),
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The first signal ends the recording, the second one ends this program.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let recorder = Recorder::start(&arguments.program)?;
    let process = recorder.process();
    // Written under its final name from the start, so that the recorded part survives a crash.
    let unwritable = || format!("cannot write {}", path.display());
    let journal = Writer::new(File::create(&path).with_context(unwritable)?).with_context(unwritable)?;
    let started = Instant::now();
    let recorded = recorder.record(arguments.limit.unwrap_or(u64::MAX), &stop, journal);
    let recorded = recorded.with_context(|| path.display().to_string())?;
    let seconds = started.elapsed().as_secs_f64();
    drop(recorded.journal);
    let interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    let ending = match recorded.ending {
        Ending::Running if !interrupted => {
            wait_for_end(process).context("cannot wait for the end of the program")?
        }
        ending => ending,
    };
    if !common.quiet {
        message(format_args!("{}; {}: {}", closing(&recorded.totals, seconds), end(ending), path.display()));
    }
    Ok(Outcome::default())
}

/// A file in the current directory, named after the program.
fn default_path(program: &[std::ffi::OsString]) -> PathBuf {
    let name = program.first().and_then(|program| Path::new(program).file_name());
    let mut name = name.unwrap_or_default().to_owned();
    name.push(".calls");
    PathBuf::from(name)
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
    fn files_are_named_after_programs() {
        for (program, expected) in
            [("ls", "ls.calls"), ("/usr/bin/gzip", "gzip.calls"), ("./a.out", "a.out.calls")]
        {
            assert_eq!(default_path(&[program.into()]), Path::new(expected));
        }
    }

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
