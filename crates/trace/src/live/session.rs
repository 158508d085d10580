use crate::live::{Incoming, Queue};
use crate::{Error, ProviderSettings, Session};
#[derive(Debug)]
pub struct LiveSession {}
#[derive(Clone, Debug, Default)]
pub struct SessionCounters {}
impl LiveSession {
    pub fn start(_: &Session, _: &[ProviderSettings], _: Queue) -> Result<(LiveSession, Incoming), Error> {
        Err(Error::Nothing)
    }
    pub fn attach(_: &str, _: Queue) -> Result<(LiveSession, Incoming), Error> {
        Err(Error::Nothing)
    }
    pub fn stop(self) -> Result<SessionCounters, Error> {
        Ok(SessionCounters {})
    }
    pub fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
    pub fn counters(&self) -> Result<SessionCounters, Error> {
        Ok(SessionCounters {})
    }
    pub fn enable(&self, _: &ProviderSettings) -> Result<(), Error> {
        Ok(())
    }
    pub fn is_attached(&self) -> bool {
        false
    }
}
