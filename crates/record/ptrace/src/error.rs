//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Why a program could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such program, neither at that path nor in the folders of `PATH`.
    #[error("{}: there is no such program", .0.display())]
    Missing(PathBuf),
    /// It is a folder, or its permissions do not let it be run.
    #[error("{}: not a program that may be run", .0.display())]
    NotExecutable(PathBuf),
    /// It would run as another user or group, which the system does not allow under a tracer.
    #[error("{}: would run as another user or group (set-user-ID or set-group-ID), which cannot be recorded", .0.display())]
    OtherUser(PathBuf),
    /// It is no program for 64-bit x86.
    #[error("{}: not a program for 64-bit x86, the only kind that can be recorded", .0.display())]
    OtherMachine(PathBuf),
    /// The system could not start it.
    #[error("{}: cannot be started: {cause}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The system does not let it be traced.
    #[error("the system does not let the program be traced: {0}")]
    NotTraceable(io::Error),
    /// What was recorded could not be kept.
    #[error("the recording cannot be written: {0}")]
    Keep(#[source] io::Error),
    /// A step of the traced program failed.
    #[error("the traced program cannot be controlled any more ({what}): {cause}")]
    Control {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}

impl Error {
    /// For `map_err`: what was tried when the system refused.
    pub(crate) fn control(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Control { what, cause }
    }
}
