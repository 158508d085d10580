//! Errors of Windows functions.

use std::io;

/// Converts the status of a Windows function to a result.
pub(crate) fn check(function: &'static str, status: u32) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::of_status(function, status)) }
}

/// The failure of a Windows function, or the reason why it was not called.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Windows function reported an error.
    #[error("{function}: {source}")]
    Call {
        /// The name of the function.
        function: &'static str,
        /// The error of Windows.
        source: io::Error,
    },
    /// A Windows function needs a privilege that this process does not have.
    #[error("this process does not have {0}; run it as an administrator")]
    NoPrivilege(&'static str),
    /// A text is longer than Windows accepts.
    #[error("the text has {found} characters; Windows accepts at most {limit}")]
    TextTooLong {
        /// The length of the text in UTF-16 units.
        found: usize,
        /// The maximum length in UTF-16 units.
        limit: usize,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
    /// The event consumer panicked with this message.
    #[error("the event consumer panicked: {0}")]
    Panicked(String),
    /// A text contains a zero character, where Windows would end it.
    #[error("the text contains a zero character, which Windows does not accept")]
    ZeroInText,
    /// The session has this module already, or another one at this address.
    #[error("a module is already loaded at {0:#x}")]
    AlreadyLoaded(u64),
    /// The stack of a thread of this program, of another process than the given one, or of a 32-bit
    /// program was requested.
    #[error(
        "the stack cannot be walked; the thread must belong to the given process, which must be another, 64-bit process"
    )]
    NotFromOutside,
    /// No module is loaded at this address.
    #[error("no module is loaded at {0:#x}")]
    NoModule(u64),
}

impl Error {
    /// The error of a function that has just returned: reads the last error of the thread.
    pub(crate) fn last(function: &'static str) -> Self {
        Error::Call { function, source: io::Error::last_os_error() }
    }

    /// The error of a function that returns its error code.
    pub(crate) fn of_status(function: &'static str, status: u32) -> Self {
        Error::Call { function, source: io::Error::from_raw_os_error(status as i32) }
    }

    /// The function that failed and its error code, if the error is from a Windows function.
    pub fn code(&self) -> Option<(&'static str, u32)> {
        match self {
            Error::Call { function, source } => Some((function, source.raw_os_error()? as u32)),
            _ => None,
        }
    }
}
