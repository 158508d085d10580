//! Ending early: by a signal, or since a file that is read became shorter. Nothing is left behind.

#[cfg(unix)]
use crate::output::message;

#[cfg(unix)]
use stackhound::symbols::temporary;

/// Prepares for it. For verbs that go on recording until a signal comes, this is not.
#[cfg(unix)]
pub fn prepare() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            temporary::remove_all();
            std::process::exit(INTERRUPTED);
        }
    })?;
    stackhound::trace::on_shrunk_file(|path| {
        temporary::remove_all();
        message(format_args!("error: {}: became shorter while it was read", path.display()));
        std::process::exit(crate::outcome::USAGE_OR_IO.into());
    })
}

/// What shells state of programs that were ended by a signal.
#[cfg(unix)]
const INTERRUPTED: i32 = 130;

#[cfg(not(unix))]
pub fn prepare() -> std::io::Result<()> {
    Ok(())
}
