//! What can go wrong.

use std::io;

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
    /// A text contains a zero character, where Windows would end it.
    #[error("a text with a zero character in it cannot be passed to Windows")]
    ZeroInText,
    /// The session has this module, or another one at the place.
    #[error("a module is loaded at {0:#x} already")]
    AlreadyLoaded(u64),
    /// No module is loaded there.
    #[error("no module is loaded at {0:#x}")]
    NoModule(u64),
}

impl Error {
    /// Of a function that has just returned: takes the thread's last error.
    pub(crate) fn last(function: &'static str) -> Self {
        Error::Call { function, source: io::Error::last_os_error() }
    }
}
