//! Running live sessions, as described by [`crate::Session`].
//!
//! Windows only. On other systems the same functions exist and return [`Error::Unsupported`], so
//! that programs need no conditions.
//!
//! [`Error::Unsupported`]: crate::Error::Unsupported

mod access;
#[cfg(not(all(windows, feature = "windows")))]
mod elsewhere;
#[cfg(all(windows, feature = "windows"))]
mod system;

#[cfg(not(all(windows, feature = "windows")))]
pub use elsewhere::{LiveSession, on_program_end};
#[cfg(all(windows, feature = "windows"))]
pub use system::{LiveSession, on_program_end};

pub use access::{AccessNeed, access_needed};

/// How the console ends a program. Sessions outlive a program that does not stop them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramEnd {
    /// Ctrl-C or Ctrl-Break. The program can end at any time.
    Interrupt,
    /// The console is closed, the user logs off, or the system shuts down. Windows ends the program
    /// as soon as the handler returns, and after about five seconds in any case.
    Close,
}

/// The counters of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SessionCounters {
    /// Events for which the session had no buffer.
    pub events_lost: u64,
    /// Buffers that could not be written to the file.
    pub buffers_lost: u64,
    /// Buffers that could not be delivered, with all events in them.
    pub real_time_buffers_lost: u64,
    /// Buffers that were written to the file or delivered.
    pub buffers_written: u64,
    /// The size of these buffers in bytes, whether they were full or not.
    pub bytes_written: u64,
    /// The number of buffers.
    pub buffers: u32,
    /// The number of unused buffers.
    pub free_buffers: u32,
    /// The session has ended. The counters are those of its last successful query.
    pub ended: bool,
}

impl SessionCounters {
    /// Whether any events or buffers were lost.
    pub fn lost_something(&self) -> bool {
        self.events_lost != 0 || self.buffers_lost != 0 || self.real_time_buffers_lost != 0
    }
}

/// A session that runs on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The name of the session.
    pub name: String,
    /// The file that the session writes, if any.
    pub file: Option<String>,
    /// The logging mode; see Microsoft's page "Logging Mode Constants".
    pub mode: u32,
    /// The kernel groups that have flags.
    pub enable_flags: u32,
    /// The size of a buffer in KiB.
    pub buffer_size_kib: u32,
    /// The counters of the session.
    pub counters: SessionCounters,
}

impl SessionInfo {
    /// Whether events can be received while the session runs.
    pub fn is_real_time(&self) -> bool {
        self.mode & 0x0000_0100 != 0
    }
}
