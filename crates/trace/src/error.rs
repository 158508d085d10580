//! Why a trace cannot be read, or a session not started. Damage inside a recording is no error: see [`crate::Stats::damage`].

use std::io;
use std::path::PathBuf;

use stackhound_etl::{Guid, OpenError};

use crate::SettingError;

/// Why a trace cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A file is no recording.
    #[error("{0}: {1}")]
    NotARecording(String, OpenError),
    /// A packed file cannot be unpacked.
    #[error("{}: {}", .0.display(), .1)]
    Packed(PathBuf, String),
    /// A path leads to a pipe or a device.
    #[error("{}: neither a file nor a folder", .0.display())]
    NoRegularFile(PathBuf),
    /// A directory holds no recordings.
    #[error("{}: no .etl, .etl.zst or .etl.zip file in this directory", .0.display())]
    NoRecordings(PathBuf),
    /// More files than can be told apart.
    #[error("more than 65,535 recordings at once")]
    TooMany,
    /// The files come from several machines, boots or captures, and one trace was asked for.
    #[error("the files are {count} captures, which cannot be read as one trace: {captures}")]
    SeveralCaptures {
        /// How many captures.
        count: usize,
        /// The files of each, in brackets.
        captures: String,
    },
    /// Nothing to read.
    #[error("no recording was given")]
    Nothing,
    /// The threads that read ahead cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// Settings of a session or provider that Windows would refuse.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Something that this system does not have, and what works instead.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Windows denied access.
    #[error("access to {to} was denied: this needs {need}")]
    AccessDenied {
        /// A session or provider.
        to: String,
        /// Who gets it.
        need: &'static str,
    },
    /// This process lacks a privilege. Administrators have those that sessions need.
    #[error("this process does not have {0}: run it as an administrator with an elevated token")]
    NoPrivilege(&'static str),
    /// A session of this name runs.
    #[error("a session {0:?} runs already: take another name, or replace or attach to it")]
    SessionExists(String),
    /// No session of this name runs.
    #[error("no session {0:?} runs")]
    NoSession(String),
    /// A session that writes a file and hands nothing over.
    #[error("session {0:?} writes a file only: there is nothing to listen to")]
    NotInRealTime(String),
    /// The system's sessions are all in use.
    #[error(
        "Windows has no more sessions: it runs at most 64 at a time, and 8 with kernel events; stop some"
    )]
    NoSessionsLeft,
    /// A GUID that cannot be a provider's, or a filter that it cannot have.
    #[error(
        "provider {0:?} cannot be enabled like this: no provider has this GUID, or not with these filters"
    )]
    InvalidProvider(Guid),
    /// Another error of a function of Windows.
    #[error("{function} failed with error {code}: {text}")]
    Windows {
        /// Its name.
        function: &'static str,
        /// The error's number.
        code: u32,
        /// What Windows says of it.
        text: String,
    },
    /// What takes events panicked, with this message. The session was stopped.
    #[error("what takes events panicked: {0}")]
    Panicked(String),
    /// Something else failed on the way to a session.
    #[error("{0}")]
    Other(String),
}
