//! Kernel stacks of a process that runs, asked of the system.

use anyhow::Result;

use super::Arguments;
use crate::options::Common;
use crate::outcome::Outcome;

/// Windows has the driver ask each thread.
#[cfg(windows)]
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    use stackhound::kstack::{DriverOptions, DriverSource, KernelStackSource};

    use crate::naming;

    let symbols = naming::symbolizer_options(&arguments.naming.places, common)?;
    let options = DriverOptions {
        depth: arguments.depth(),
        symbols,
        user_in_critical_regions: arguments.user_always,
        ..DriverOptions::default()
    };
    let mut source = DriverSource::open(options)?;
    let stacks = source.stacks(&arguments.selection())?;
    super::write(arguments, None, &stacks)?;
    if !common.quiet {
        naming::tell_missing(source.symbol_stats());
    }
    Ok(Outcome::default())
}

/// Linux tells them in `/proc`.
#[cfg(target_os = "linux")]
pub fn run(arguments: &Arguments, _: &Common) -> Result<Outcome> {
    use stackhound::kstack::{KernelStackSource, ProcStacks};

    let stacks = ProcStacks::default().stacks(&arguments.selection())?;
    super::write(arguments, None, &stacks)?;
    Ok(Outcome::default())
}

#[cfg(not(any(windows, target_os = "linux")))]
pub fn run(_: &Arguments, _: &Common) -> Result<Outcome> {
    anyhow::bail!(
        "the kernel stacks of a process that runs cannot be asked for on this system; `stackhound kstack --recording FILE.etl` tells those of recordings"
    )
}
