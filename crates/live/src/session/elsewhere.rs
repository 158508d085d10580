//! Systems without Event Tracing for Windows, and Windows without the feature `windows`.

use std::convert::Infallible;
use std::time::Duration;

use stackhound_types::Guid;

use super::{ProgramEnd, SessionCounters, SessionInfo};
use crate::{Error, Incoming, ProviderSettings, Queue, Session};

const UNSUPPORTED: Error = Error::Unsupported(if cfg!(windows) {
    "this program was built without the feature `windows`: live sessions need it"
} else {
    "live sessions need Windows; recordings (.etl files) can be read on every system, and sessions write them"
});

/// A running session that is listened to. There is none on this system.
#[derive(Debug)]
pub struct LiveSession(Infallible);

impl LiveSession {
    /// Starts a session and listens to it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn start(
        session: &Session,
        _: &[ProviderSettings],
        _: Queue,
    ) -> Result<(LiveSession, Incoming), Error> {
        // What is wrong on Windows is wrong here.
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

    /// Listens to a session that somebody else has started.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn attach(_: &str, _: Queue) -> Result<(LiveSession, Incoming), Error> {
        Err(UNSUPPORTED)
    }

    /// All sessions that run.
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

    /// Stops a session, whosever it is.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on this system.
    pub fn stop_by_name(_: &str) -> Result<SessionCounters, Error> {
        Err(UNSUPPORTED)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// Enables a provider or changes what was asked of it.
    pub fn enable(&self, _: &ProviderSettings) -> Result<(), Error> {
        match self.0 {}
    }

    /// The provider's events no longer come.
    pub fn disable(&self, _: Guid) -> Result<(), Error> {
        match self.0 {}
    }

    /// Has all buffers handed over.
    pub fn flush(&self) -> Result<(), Error> {
        match self.0 {}
    }

    /// Changes the most buffers there can be, and how often they are handed over.
    pub fn update(&self, _: u32, _: Duration) -> Result<(), Error> {
        match self.0 {}
    }

    /// What the session says of itself.
    pub fn counters(&self) -> Result<SessionCounters, Error> {
        match self.0 {}
    }

    /// Whether somebody else has started it.
    pub fn is_attached(&self) -> bool {
        match self.0 {}
    }

    /// Whether nothing comes any more.
    pub fn has_ended(&self) -> bool {
        match self.0 {}
    }

    /// Stops the session, without waiting for its last events.
    pub fn end(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    /// Stops the session and waits until its last event was taken.
    pub fn stop(self) -> Result<SessionCounters, Error> {
        match self.0 {}
    }
}

/// Has `handler` called when the console ends this program. There are no sessions on this system that would outlive it, so
/// nothing is done.
pub fn on_program_end(_: impl Fn(ProgramEnd) + Send + Sync + 'static) -> Result<(), Error> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelGroups, Overflow};

    #[test]
    fn other_systems_say_what_works_there() {
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
    fn a_session_that_cannot_be_is_refused_here_too() {
        let session = Session::user("u").kernel_groups(KernelGroups::PROCESS);
        let error = LiveSession::start(&session, &[], Queue::new(Overflow::Block)).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::NoKernelSession(_)));
    }
}
