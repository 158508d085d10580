//! Errors.

use stackhound_kstack_proto::{AnswerError, MAX_OUTSTANDING, RequestError, VERSION};

use crate::Refused;

/// The reason why there is no answer. A thread that has ended or does not react is an answer, see
/// [`crate::Reply`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device does not exist.
    #[error("the kernel-stack driver is not loaded: install it as described in docs/driver.md")]
    NotLoaded,
    /// The process does not hold the privilege that the driver requires.
    #[error(
        "this process does not hold SeDebugPrivilege, which the kernel-stack driver requires: run it as administrator"
    )]
    NoPrivilege,
    /// The system or the driver denied access.
    #[error(
        "access to the kernel-stack driver was denied: it answers only administrators with SeDebugPrivilege, and only the process that opened it"
    )]
    Denied,
    /// The driver cannot start another capture.
    #[error(
        "the kernel-stack driver is busy: it has {MAX_OUTSTANDING} captures in progress, or one of this thread; try again later (attempts: {attempts})"
    )]
    Busy {
        /// The number of attempts.
        attempts: u32,
    },
    /// The driver has another version of the protocol.
    #[error(
        "the loaded kernel-stack driver has protocol version {driver}, but this program needs version {VERSION}: install the driver that belongs to this program"
    )]
    OtherVersion {
        /// The version of the driver.
        driver: u16,
    },
    /// The device does not belong to the driver.
    #[error(
        "the device of the kernel-stack driver did not answer with a valid version: it may belong to another driver"
    )]
    NotOurs,
    /// The answer is not valid.
    #[error("{0}")]
    Damaged(AnswerError),
    /// The request is not valid, and was not sent.
    #[error("invalid request to the kernel-stack driver: {0}")]
    Request(RequestError),
    /// Another error of the system.
    #[error("{}: {} (error {})", .0.function, .0.text, .0.code)]
    System(Refused),
}

/// Error codes of `winerror.h`, and the status codes of the driver that the system maps to them.
mod code {
    pub(super) const FILE_NOT_FOUND: u32 = 2;
    pub(super) const PATH_NOT_FOUND: u32 = 3;
    /// `STATUS_ACCESS_DENIED`
    pub(super) const ACCESS_DENIED: u32 = 5;
    /// `STATUS_DEVICE_BUSY`
    pub(super) const BUSY: u32 = 170;
}

/// The meaning of a failed call, with one attempt.
impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused.code {
            code::FILE_NOT_FOUND | code::PATH_NOT_FOUND => Error::NotLoaded,
            code::ACCESS_DENIED => Error::Denied,
            code::BUSY => Error::Busy { attempts: 1 },
            _ => Error::System(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_advice() {
        for (code, expected) in [
            (2, "is not loaded: install it as described in docs/driver.md"),
            (3, "is not loaded: install it as described in docs/driver.md"),
            (5, "administrators with SeDebugPrivilege"),
            (170, "64 captures in progress"),
            (87, "DeviceIoControl: text of the system (error 87)"),
        ] {
            let refused = Refused { function: "DeviceIoControl", code, text: "text of the system".into() };
            let text = Error::from(refused).to_string();
            assert!(text.contains(expected), "{code}: {text}");
        }
        let text = Error::OtherVersion { driver: 9 }.to_string();
        assert!(text.contains("version 9") && text.contains("version 2"), "{text}");
    }
}
