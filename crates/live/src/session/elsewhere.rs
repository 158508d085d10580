//! Systems without Event Tracing for Windows, and Windows without the feature `windows`.

use std::convert::Infallible;
use std::time::Duration;

use stackhound_types::Guid;

use super::{ProgramEnd, SessionCounters, SessionInfo};
use crate::{Error, Incoming, ProviderSettings, Queue, Session};

const UNSUPPORTED: Error = Error::Unsupported(if cfg!(windows) {
    "live sessions need the feature `windows`, which this program was built without"
} else {
    "live sessions need Windows; traces (.etl files), which sessions can write, can be read on every system"
});

/// A running session. It cannot be created on this system.
#[derive(Debug)]
pub struct LiveSession(Infallible);

impl LiveSession {
    /// Starts a session and receives its events.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn start(
        session: &Session,
        _: &[ProviderSettings],
        _: Queue,
    ) -> Result<(LiveSession, Incoming), Error> {
        // Settings that are invalid on Windows are reported here as well.
        session.numbers()?;
        Err(UNSUPPORTED)
    }

    /// Starts a session that writes a file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn record(session: &Session, _: &[ProviderSettings]) -> Result<LiveSession, Error> {
        session.numbers()?;
        Err(UNSUPPORTED)
    }

    /// Receives the events of a session that another program started.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn attach(_: &str, _: Queue) -> Result<(LiveSession, Incoming), Error> {
        Err(UNSUPPORTED)
    }

    /// All running sessions.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn list() -> Result<Vec<SessionInfo>, Error> {
        Err(UNSUPPORTED)
    }

    /// Stops sessions with generated names whose process has ended.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn stop_orphans() -> Result<Vec<String>, Error> {
        Err(UNSUPPORTED)
    }

    /// Stops a session, even if another program started it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn stop_by_name(_: &str) -> Result<SessionCounters, Error> {
        Err(UNSUPPORTED)
    }

    /// The name of the session.
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// Enables a provider or changes its settings.
    pub fn enable(&self, _: &ProviderSettings) -> Result<(), Error> {
        match self.0 {}
    }

    /// Disables a provider.
    pub fn disable(&self, _: Guid) -> Result<(), Error> {
        match self.0 {}
    }

    /// Requests delivery of all buffers.
    pub fn flush(&self) -> Result<(), Error> {
        match self.0 {}
    }

    /// Changes the maximum number of buffers and the flush time.
    pub fn update(&self, _: u32, _: Duration) -> Result<(), Error> {
        match self.0 {}
    }

    /// The counters of the session.
    pub fn counters(&self) -> Result<SessionCounters, Error> {
        match self.0 {}
    }

    /// Whether another program started the session.
    pub fn is_attached(&self) -> bool {
        match self.0 {}
    }

    /// Whether no more events will arrive.
    pub fn has_ended(&self) -> bool {
        match self.0 {}
    }

    /// Stops the session, without waiting for its last events.
    pub fn end(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    /// Stops the session and waits until its last event was received.
    pub fn stop(self) -> Result<SessionCounters, Error> {
        match self.0 {}
    }
}

/// Calls `handler` when the console ends this program. This system has no sessions that would
/// outlive the program, so nothing is done.
pub fn on_program_end(_: impl Fn(ProgramEnd) + Send + Sync + 'static) -> Result<(), Error> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelGroups, Overflow};

    #[test]
    fn other_systems_report_what_works_there() {
        let queue = Queue::new(Overflow::Block);
        let session = Session::kernel("k", KernelGroups::PROCESS);
        for error in [
            LiveSession::start(&session, &[], queue).map(|_| ()),
            LiveSession::attach("k", queue).map(|_| ()),
            LiveSession::record(&session.clone().to_file("k.etl"), &[]).map(|_| ()),
            LiveSession::list().map(|_| ()),
            LiveSession::stop_by_name("k").map(|_| ()),
        ] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)));
            assert!(error.to_string().contains(".etl"), "{error}");
        }
    }

    #[test]
    fn invalid_sessions_are_refused_on_every_system() {
        let session = Session::user("u").kernel_groups(KernelGroups::PROCESS);
        let error = LiveSession::start(&session, &[], Queue::new(Overflow::Block)).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::NoKernelSession(_)));
    }
}
