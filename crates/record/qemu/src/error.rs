//! Errors.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// The reason why a system could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// QEMU is not installed.
    #[error(
        "{program} is not installed; recording a system needs QEMU 10 or later \
         (Debian 12: add bookworm-backports, then apt install -t bookworm-backports qemu-system-x86)"
    )]
    Missing {
        /// The name of the program.
        program: &'static str,
    },
    /// QEMU is too old.
    #[error(
        "{program} has version {found}; expected 10 or later \
         (Debian 12: add bookworm-backports, then apt install -t bookworm-backports qemu-system-x86)"
    )]
    Old {
        /// The name of the program.
        program: &'static str,
        /// Its version.
        found: String,
    },
    /// QEMU was built without plugins.
    #[error(
        "{program} was built without plugins; expected a version that was configured with --enable-plugins"
    )]
    WithoutPlugins {
        /// The name of the program.
        program: &'static str,
    },
    /// A file of the system cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// QEMU could not be started.
    #[error("cannot start {program}: {cause}")]
    Start {
        /// The name of the program.
        program: &'static str,
        /// The error of the system.
        cause: io::Error,
    },
    /// QEMU ended before it executed the kernel.
    #[error("QEMU ended before the kernel was executed ({0}); its messages say why")]
    NotBooted(ExitStatus),
    /// The plugin's records cannot be read.
    #[error("cannot read the records of QEMU: {0}")]
    Records(#[source] io::Error),
    /// A record has an unknown type.
    #[error("record {number} of QEMU's plugin is damaged")]
    Damaged {
        /// The number of the record, from 0.
        number: u64,
    },
    /// The journal could not be written.
    #[error("cannot write the journal: {0}")]
    Keep(#[source] io::Error),
}
