//! `stackhound record --exact --system KERNEL`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use stackhound_record_qemu::{Ending, Recorder, Returns, System, Totals};

use super::{journal, output, stop_at_signals};
use crate::live::record::Arguments;
use crate::options::Common;
use crate::output::{counted, grouped, message};
use crate::progress::Progress;

/// Records until the system ends or the recording is interrupted.
pub fn run(kernel: &Path, arguments: &Arguments, common: &Common) -> Result<()> {
    let path = output(arguments.output.as_deref(), Some(kernel));
    let stop = stop_at_signals()?;
    let system = System {
        kernel: kernel.to_owned(),
        initrd: arguments.initrd.clone(),
        arguments: arguments.program.clone(),
    };
    let recorder = Recorder::start(&system)?;
    if let (Some(reason), Some(initrd)) = (recorder.without_programs(), &system.initrd) {
        message(format_args!("functions of programs get no names: {}: {reason}", initrd.display()));
    }
    let journal = journal(&path)?;
    let started = Instant::now();
    let progress = Progress::new(common, 0);
    let recorded = recorder.record(arguments.limit.unwrap_or(u64::MAX), &stop, journal, |totals| {
        progress.show(|elapsed| {
            let (transitions, calls) = (grouped(totals.transitions), grouped(totals.calls));
            format!("{} s  {transitions} transitions, {calls} calls", elapsed.as_secs())
        });
    });
    progress.clear();
    let recorded = recorded.with_context(|| path.display().to_string())?;
    let seconds = started.elapsed().as_secs_f64();
    if !common.quiet {
        let end = match recorded.ending {
            Ending::Ended(status) if status.success() => "the system ended".to_owned(),
            Ending::Ended(status) => format!("QEMU ended with {status}"),
            Ending::Stopped => "the system was stopped".to_owned(),
        };
        message(format_args!("{}; {end}: {}", closing(&recorded.totals, seconds), path.display()));
    }
    Ok(())
}

/// The closing line.
fn closing(totals: &Totals, seconds: f64) -> String {
    let mut unusual = String::new();
    for (number, kind) in [
        (totals.lost, "changes between user and kernel mode not recognized"),
        (totals.refused, "frames or stacks beyond the limit"),
    ] {
        if number > 0 {
            unusual += &format!(", {} {kind}", grouped(number));
        }
    }
    let instructions = match totals.instructions {
        0 => String::new(),
        instructions => format!(" with {} instructions", grouped(instructions)),
    };
    let system = match totals.symbols {
        0 => ", no symbols of the kernel found".to_owned(),
        symbols => format!(
            ", {} of {}, {}, {} of the kernel",
            counted(totals.switches, "switch", "switches"),
            counted(totals.threads, "thread", "threads"),
            counted(totals.signals, "signal", "signals"),
            counted(symbols, "symbol", "symbols"),
        ),
    };
    format!(
        "{}{instructions}, {}, returns in kernel mode: {}, in user mode: {}, {}, {}, {} on {}{system}{unusual} \
         in {seconds:.1} s",
        counted(totals.transitions, "transition", "transitions"),
        counted(totals.calls, "call", "calls"),
        returns(&totals.kernel_returns),
        returns(&totals.user_returns),
        counted(totals.interrupts, "interrupt", "interrupts"),
        counted(totals.system_calls, "system call", "system calls"),
        counted(totals.frames, "frame", "frames"),
        counted(totals.stacks, "stack", "stacks"),
    )
}

pub(super) fn returns(returns: &Returns) -> String {
    let mut text = format!("{} of {} matched", grouped(returns.matched), grouped(returns.all));
    for (number, kind) in [
        (returns.as_jumps, "used as jumps"),
        (returns.below, "from calls before the recording"),
        (returns.elsewhere, "elsewhere"),
    ] {
        if number > 0 {
            text += &format!(", {} {kind}", grouped(number));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_returns_are_counted_by_kind() {
        let plain = Returns { all: 1_000, matched: 1_000, ..Returns::default() };
        assert_eq!(returns(&plain), "1,000 of 1,000 matched");
        let unusual = Returns { all: 1_000, matched: 900, below: 1, as_jumps: 97, elsewhere: 2 };
        assert_eq!(
            returns(&unusual),
            "900 of 1,000 matched, 97 used as jumps, 1 from calls before the recording, 2 elsewhere"
        );
        let mut totals =
            Totals { kernel_returns: plain, user_returns: unusual, lost: 3, ..Totals::default() };
        let text = closing(&totals, 2.0);
        assert!(text.starts_with("0 transitions, 0 calls, "), "{text}");
        let lost = "on 0 stacks, no symbols of the kernel found, \
                    3 changes between user and kernel mode not recognized in 2.0 s";
        assert!(text.ends_with(lost), "{text}");
        totals.symbols = 2;
        (totals.switches, totals.threads, totals.signals) = (1, 3, 1);
        let known = "on 0 stacks, 1 switch of 3 threads, 1 signal, 2 symbols of the kernel, 3 changes";
        assert!(closing(&totals, 2.0).contains(known), "{}", closing(&totals, 2.0));
        (totals.transitions, totals.instructions) = (5_001, 5_000);
        assert!(closing(&totals, 2.0).starts_with("5,001 transitions with 5,000 instructions, 0 calls, "));
    }
}
