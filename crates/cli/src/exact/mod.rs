//! `stackhound record --exact`: runs a program or a system, and records its calls.

mod emulated;
mod program;
mod system;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stackhound_calltree::journal::Writer;

use crate::live::record::{Arguments, Emulator};
use crate::options::Common;
use crate::outcome::Outcome;

/// The exit code after a second interrupt.
const INTERRUPTED: i32 = 130;

/// Records until the program or the system ends, or until interrupted.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    match (&arguments.system, arguments.with) {
        (Some(kernel), _) => system::run(kernel, arguments, common)?,
        (None, Some(Emulator::Qemu)) => emulated::run(arguments, common)?,
        (None, None) => program::run(arguments, common)?,
    }
    Ok(Outcome::default())
}

/// Returns a flag that the first signal sets, to end the recording. The second one ends this program.
fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Starts a journal. It is written under its final name from the start, so that the recorded part
/// survives a crash.
fn journal(path: &Path) -> Result<Writer<File>> {
    let unwritable = || format!("cannot write {}", path.display());
    Writer::new(File::create(path).with_context(unwritable)?).with_context(unwritable)
}

/// Returns the requested file, or one in the current directory, named after the program or the kernel.
fn output(requested: Option<&Path>, recorded: Option<&Path>) -> PathBuf {
    if let Some(path) = requested {
        return path.to_owned();
    }
    let mut name = recorded.and_then(Path::file_name).unwrap_or_default().to_owned();
    name.push(".calls");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_programs() {
        for (program, expected) in
            [("ls", "ls.calls"), ("/usr/bin/gzip", "gzip.calls"), ("./a.out", "a.out.calls")]
        {
            assert_eq!(output(None, Some(Path::new(program))), Path::new(expected));
        }
        assert_eq!(output(Some(Path::new("x")), Some(Path::new("ls"))), Path::new("x"));
    }
}
