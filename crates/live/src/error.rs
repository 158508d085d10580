//! Why a session cannot be described, started or read.

use stackhound_types::Guid;

/// What is wrong with the description of a session or provider, or why Windows does not run it.
///
/// The first variants are settings that ETW would refuse, or quietly ignore. They are found on every system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The size of a buffer, in KiB.
    #[error("buffers of {0} KiB: Windows allows 4 to 16,384")]
    BufferSize(u32),
    /// Fewer buffers at most than at least, or none.
    #[error("{minimum} to {maximum} buffers: neither may be 0, and the first not above the second")]
    BufferCount {
        /// At least so many.
        minimum: u32,
        /// At most so many.
        maximum: u32,
    },
    /// All buffers together, in KiB.
    #[error("buffers of {0} KiB in all are more than the 4 GiB that a session may take")]
    BufferMemory(u64),
    /// The time after which buffers are handed out that are not full.
    #[error(
        "a flush every {0} ms: it must be at least 1 ms and at most an hour, in whole seconds from one second on"
    )]
    Flush(u64),
    /// The time between two samples, in 100 ns.
    #[error("a sample every {0} × 100 ns: Windows allows 1,221 (0.1221 ms) to 10,000,000 (1 s)")]
    SampleInterval(u64),
    /// A session name that is empty, too long or has a zero character.
    #[error("{0:?} is no name for a session: 1 to 1,023 characters, none of them zero")]
    Name(String),
    /// Kernel events with stacks.
    #[error("stacks for {0} kinds of kernel events: Windows allows 256")]
    TooManyStacks(usize),
    /// Stacks, groups or samples of the kernel, asked for in a session that has no kernel events.
    #[error("{0} belong to a kernel session")]
    NoKernelSession(&'static str),
    /// A session that hands its events over was to be recorded.
    #[error("a session that records needs a file to write")]
    NoFile,
    /// No kernel event has this name.
    #[error("no kernel event is called {0:?}; names are like PerfInfo/SysCallEnter")]
    UnknownEvent(String),
    /// No kernel group has this name.
    #[error("no kernel group is called {0:?}")]
    UnknownGroup(String),
    /// A filter without values would let everything pass, or nothing.
    #[error("an empty list of {0} chooses nothing")]
    EmptyFilter(&'static str),
    /// More values than Windows takes.
    #[error("{found} {what}: Windows allows {limit}")]
    TooManyInFilter {
        /// Of what.
        what: &'static str,
        /// How many there were.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The values are too long together, in bytes as they are passed.
    #[error("{what} of {found} bytes: Windows allows {limit}")]
    FilterSize {
        /// Of what.
        what: &'static str,
        /// Bytes there were.
        found: usize,
        /// Bytes there may be.
        limit: usize,
    },
    /// A name with a character that separates or ends names.
    #[error(
        "{0:?} cannot be filtered by: names are not empty and have no zero and, but for events, no semicolon"
    )]
    FilterName(String),
    /// A second filter of a kind: Windows takes one of each.
    #[error("a provider takes one filter of each kind; there is one of {0} already")]
    SecondFilter(&'static str),
    /// No session to read.
    #[error("no session was given")]
    Nothing,
    /// More sessions than have numbers.
    #[error("more than 65,535 sessions at once")]
    TooMany,
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
