//! Live sessions: started, listened to and stopped as [`crate::Session`] describes them.
//!
//! On Windows only. Elsewhere all of it is there and says [`Error::Unsupported`], so that programs are the same.
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
    /// Ctrl-C or Ctrl-Break: the program ends when it likes.
    Interrupt,
    /// The console is closed, the user logs off, or the system shuts down. Windows ends the program as soon as the handler
    /// returns, and after about five seconds in any case.
    Close,
}

/// What a session says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SessionCounters {
    /// Events for which the session had no buffer.
    pub events_lost: u64,
    /// Buffers that could not be written to the file.
    pub buffers_lost: u64,
    /// Buffers that could not be handed over, with all events in them.
    pub real_time_buffers_lost: u64,
    /// Buffers written to the file or handed over.
    pub buffers_written: u64,
    /// Bytes of these buffers, which are full or not.
    pub bytes_written: u64,
    /// Buffers there are.
    pub buffers: u32,
    /// Of these, how many are unused.
    pub free_buffers: u32,
    /// Nothing comes any more. Counters are those of the last time the session could be asked.
    pub ended: bool,
}

impl SessionCounters {
    /// Whether anything was lost before it could be taken.
    pub fn lost_something(&self) -> bool {
        self.events_lost != 0 || self.buffers_lost != 0 || self.real_time_buffers_lost != 0
    }
}

/// A session that runs on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its name.
    pub name: String,
    /// The file it writes, if any.
    pub file: Option<String>,
    /// Logging mode; see Microsoft's page "Logging Mode Constants".
    pub mode: u32,
    /// Kernel groups by their flags.
    pub enable_flags: u32,
    /// Size of a buffer in KiB.
    pub buffer_size_kib: u32,
    /// Its counters.
    pub counters: SessionCounters,
}

impl SessionInfo {
    /// Whether events can be taken while it runs.
    pub fn is_real_time(&self) -> bool {
        self.mode & 0x0000_0100 != 0
    }
}
