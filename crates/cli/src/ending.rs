//! Early exits: on a signal, or because an input file became shorter. Temporary files are removed.

#[cfg(unix)]
use crate::output::{error, message};

#[cfg(unix)]
use stackhound::symbols::temporary;

#[cfg(unix)]
use std::io::IsTerminal;

/// Installs the handlers. Not for verbs that record until a signal arrives.
#[cfg(unix)]
pub fn prepare() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            temporary::remove_all();
            // The line of progress stays above.
            if std::io::stderr().is_terminal() {
                eprintln!();
            }
            message(format_args!("interrupted: the result is incomplete"));
            std::process::exit(INTERRUPTED);
        }
    })?;
    stackhound::trace::on_shrunk_file(|path| {
        temporary::remove_all();
        error(format_args!("{}: became shorter while it was read", path.display()));
        std::process::exit(crate::outcome::USAGE_OR_IO.into());
    })
}

/// The exit code of shells for programs that were ended by SIGINT.
#[cfg(unix)]
const INTERRUPTED: i32 = 130;

#[cfg(not(unix))]
pub fn prepare() -> std::io::Result<()> {
    Ok(())
}
