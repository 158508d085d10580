//! Errors of describing, starting and reading sessions.

use stackhound_types::Guid;

/// An invalid description of a session or provider, or the reason why Windows does not run it.
///
/// The first variants are settings that ETW would refuse, or ignore without an error. They are
/// detected on every system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The size of a buffer is out of range. In KiB.
    #[error("a buffer size of {0} KiB is not allowed; Windows accepts 4 to 16,384 KiB")]
    BufferSize(u32),
    /// The range of the number of buffers is empty or contains 0.
    #[error(
        "{minimum} to {maximum} buffers is not a valid range; use a minimum of at least 1 and a maximum not below it"
    )]
    BufferCount {
        /// The minimum number of buffers.
        minimum: u32,
        /// The maximum number of buffers.
        maximum: u32,
    },
    /// The total size of all buffers is too large. In KiB.
    #[error(
        "buffers of {0} KiB in total exceed the limit of 4 GiB for a session; use fewer or smaller buffers"
    )]
    BufferMemory(u64),
    /// The flush time is out of range, or has a fraction that ETW has no unit for. In milliseconds.
    #[error("a flush time of {0} ms is not allowed; use 1 to 999 ms, or whole seconds up to one hour")]
    Flush(u64),
    /// The sampling interval is out of range. In 100 ns.
    #[error(
        "a sampling interval of {0} × 100 ns is not allowed; Windows accepts 1,221 (0.1221 ms) to 10,000,000 (1 s)"
    )]
    SampleInterval(u64),
    /// The session name is empty, too long or contains a zero character.
    #[error("{0:?} is not a valid session name; use 1 to 1,023 characters, without zero characters")]
    Name(String),
    /// Stacks are requested for too many kinds of kernel events.
    #[error("stacks are requested for {0} kinds of kernel events; Windows accepts at most 256")]
    TooManyStacks(usize),
    /// Stacks, groups or samples of the kernel are requested in a session without kernel events.
    #[error("{0} are available only in a kernel session")]
    NoKernelSession(&'static str),
    /// A session without a file was to be recorded.
    #[error("a session for recording has no file; set one with `to_file`")]
    NoFile,
    /// No kernel event has this name.
    #[error("unknown kernel event {0:?}; use a name such as PerfInfo/SysCallEnter")]
    UnknownEvent(String),
    /// No kernel group has this name.
    #[error("unknown kernel group {0:?}; use a name such as process or OB_HANDLE")]
    UnknownGroup(String),
    /// A filter without values.
    #[error("the list of {0} is empty; add at least one value")]
    EmptyFilter(&'static str),
    /// A filter has more values than Windows accepts.
    #[error("{found} {values} are too many; Windows accepts at most {limit}")]
    TooManyInFilter {
        /// The kind of the values, in the plural.
        values: &'static str,
        /// The number of values.
        found: usize,
        /// The maximum number of values.
        limit: usize,
    },
    /// The values of a filter are too long in total. In bytes as passed to Windows.
    #[error("{values} take {found} bytes; Windows accepts at most {limit}")]
    FilterSize {
        /// The kind of the values, in the plural.
        values: &'static str,
        /// The number of bytes.
        found: usize,
        /// The maximum number of bytes.
        limit: usize,
    },
    /// A name is empty, or contains a character that separates or ends names.
    #[error(
        "{0:?} is not a valid name for a filter; it must not be empty, and must not contain a zero or, except for event names, a semicolon"
    )]
    FilterName(String),
    /// A second filter of the same kind. Windows accepts one of each.
    #[error("the provider already has a filter for {0}; Windows accepts one filter of each kind")]
    SecondFilter(&'static str),
    /// No session was given.
    #[error("no session was given; at least one is required")]
    Nothing,
    /// More sessions were given than can be numbered.
    #[error("more than 65,535 sessions were given; this is the limit")]
    TooMany,
    /// A function that this system does not have, with an alternative.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Windows denied access.
    #[error("access to {to} was denied: this needs {need}")]
    AccessDenied {
        /// The session or provider.
        to: String,
        /// The required access.
        need: &'static str,
    },
    /// This process lacks a privilege. Administrators have those that sessions need.
    #[error("this process does not have {0}: run it as an administrator with an elevated token")]
    NoPrivilege(&'static str),
    /// A session of this name is running.
    #[error("a session named {0:?} is already running; use another name, replace it or attach to it")]
    SessionExists(String),
    /// No session of this name is running.
    #[error("no session named {0:?} is running")]
    NoSession(String),
    /// The session writes a file and delivers no events.
    #[error("session {0:?} only writes a file; its events cannot be received live")]
    NotInRealTime(String),
    /// All sessions of the system are in use.
    #[error("Windows has no free session: it runs at most 64 at a time, and 8 with kernel events; stop some")]
    NoSessionsLeft,
    /// The GUID cannot belong to a provider, or the provider does not accept the filters.
    #[error(
        "provider {0:?} cannot be enabled: no provider has this GUID, or it does not accept these filters"
    )]
    InvalidProvider(Guid),
    /// Another error of a Windows function.
    #[error("{function} failed with error {code}: {text}")]
    Windows {
        /// The name of the function.
        function: &'static str,
        /// The error code.
        code: u32,
        /// The message of Windows.
        text: String,
    },
    /// The event consumer panicked with this message. The session was stopped.
    #[error("the event consumer panicked: {0}")]
    Panicked(String),
    /// Another error while a session was opened.
    #[error("{0}")]
    Other(String),
}
