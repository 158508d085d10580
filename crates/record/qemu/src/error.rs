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
    /// There is no suitable emulator of programs.
    #[error(
        "{found}; recording a program in QEMU needs qemu-x86_64 10 or later with plugins, which packages of \
         distributions lack: build QEMU with ./configure --target-list=x86_64-linux-user --enable-plugins, \
         and put the folder of the program qemu-x86_64 first in PATH"
    )]
    NoUserEmulator {
        /// What was found instead.
        found: String,
    },
    /// The program does not exist at this path, or in the folders of `PATH`.
    #[error("{}: there is no such program", .0.display())]
    NoProgram(PathBuf),
    /// The program is not for 64-bit x86.
    #[error("{}: not a 64-bit x86 program; only those can be recorded", .0.display())]
    OtherMachine(PathBuf),
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
        program: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// QEMU ended before it executed the kernel.
    #[error("QEMU ended before the kernel was executed ({0}); its messages say why")]
    NotBooted(ExitStatus),
    /// QEMU ended before it executed the program.
    #[error("QEMU ended before the program was executed ({0}); its messages say why")]
    NotStarted(ExitStatus),
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
