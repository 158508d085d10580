//! What can go wrong.

use std::io;

/// What a function of Windows returned, as a result.
pub(crate) fn check(function: &'static str, status: u32) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::of_status(function, status)) }
}

/// A call of Windows that failed, or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A function of Windows reported an error.
    #[error("{function}: {source}")]
    Call {
        /// Its name.
        function: &'static str,
        /// What Windows says of it.
        source: io::Error,
    },
    /// A function of Windows needs a privilege that this process does not have.
    #[error("this process does not have {0}")]
    NoPrivilege(&'static str),
    /// A text is longer than Windows takes.
    #[error("a text of {found} characters, where Windows takes {limit}")]
    TextTooLong {
        /// UTF-16 units there were.
        found: usize,
        /// Units there may be.
        limit: usize,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
    /// What takes events panicked, with this message.
    #[error("what takes events panicked: {0}")]
    Panicked(String),
    /// A text contains a zero character, where Windows would end it.
    #[error("a text with a zero character in it cannot be passed to Windows")]
    ZeroInText,
    /// The session has this module, or another one at the place.
    #[error("a module is loaded at {0:#x} already")]
    AlreadyLoaded(u64),
    /// A stack that this program cannot walk: of itself, or of a 32-bit program.
    #[error("the stack cannot be walked from outside")]
    NotFromOutside,
    /// No module is loaded there.
    #[error("no module is loaded at {0:#x}")]
    NoModule(u64),
}

impl Error {
    /// Of a function that has just returned: takes the thread's last error.
    pub(crate) fn last(function: &'static str) -> Self {
        Error::Call { function, source: io::Error::last_os_error() }
    }

    /// Of a function that returns its error.
    pub(crate) fn of_status(function: &'static str, status: u32) -> Self {
        Error::Call { function, source: io::Error::from_raw_os_error(status as i32) }
    }

    /// The function that failed and its error, where a function of Windows did.
    pub fn code(&self) -> Option<(&'static str, u32)> {
        match self {
            Error::Call { function, source } => Some((function, source.raw_os_error()? as u32)),
            _ => None,
        }
    }
}
