//! Errors.

use std::io;
use std::path::PathBuf;

/// The reason why a program could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program does not exist at this path, or in the folders of `PATH`.
    #[error("{}: there is no such program", .0.display())]
    Missing(PathBuf),
    /// The path is not a file, or its permissions do not allow execution.
    #[error("{}: not an executable file", .0.display())]
    NotExecutable(PathBuf),
    /// The program would run as another user or group, which the system does not allow under a
    /// tracer.
    #[error("{}: cannot record a program that runs as another user or group (set-user-ID or set-group-ID)", .0.display())]
    OtherUser(PathBuf),
    /// The program is not for 64-bit x86.
    #[error("{}: not a 64-bit x86 program; only those can be recorded", .0.display())]
    OtherMachine(PathBuf),
    /// The system could not start the program.
    #[error("{}: cannot be started: {cause}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The system does not allow the program to be traced.
    #[error("the system does not allow the program to be traced: {0}")]
    NotTraceable(io::Error),
    /// The journal could not be written.
    #[error("cannot write the journal: {0}")]
    Keep(#[source] io::Error),
    /// A `ptrace` request or another operation on the traced program failed.
    #[error("cannot control the traced program (failed to {operation}): {cause}")]
    Control {
        /// The operation that failed.
        operation: &'static str,
        /// The error of the system.
        cause: io::Error,
    },
}

impl Error {
    /// For `map_err`: an error of this operation.
    pub(crate) fn control(operation: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Control { operation, cause }
    }
}
