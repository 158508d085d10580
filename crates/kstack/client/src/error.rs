//! What can go wrong, in sentences.

use stackhound_kstack_proto::{AnswerError, MAX_OUTSTANDING, RequestError, VERSION};

use crate::Refused;

/// Why there is no answer. That a thread has ended or does not react is an answer, see [`crate::Reply`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no device.
    #[error("the driver for kernel stacks is not loaded; docs/driver.md says how it is installed")]
    NotLoaded,
    /// The process lacks the privilege that the driver asks for.
    #[error(
        "this process does not have SeDebugPrivilege, without which the driver answers nobody: run it as administrator"
    )]
    NoPrivilege,
    /// The system or the driver refused.
    #[error(
        "access to the driver for kernel stacks was denied: it answers administrators who have SeDebugPrivilege, and only the process that opened it"
    )]
    Denied,
    /// Other captures are in the way.
    #[error(
        "the driver is busy: it has {MAX_OUTSTANDING} captures under way, or one of this thread, and still had after {attempts} attempts"
    )]
    Busy {
        /// How often it was asked.
        attempts: u32,
    },
    /// The driver belongs to another version of this program.
    #[error(
        "the driver that is loaded speaks version {driver}, and this program version {VERSION}: install the driver that belongs to this program"
    )]
    OtherVersion {
        /// What the driver speaks.
        driver: u16,
    },
    /// What answers is something else.
    #[error("what answers in the place of the driver for kernel stacks is something else")]
    NotOurs,
    /// The answer cannot be believed.
    #[error("{0}")]
    Damaged(AnswerError),
    /// This is not sent, because it would be refused.
    #[error("this cannot be asked of the driver: {0}")]
    Request(RequestError),
    /// Another error of the system.
    #[error("{}: {} (error {})", .0.function, .0.text, .0.code)]
    System(Refused),
}

/// Numbers of `winerror.h`, with what the system makes of the driver's own where it is one.
mod code {
    pub(super) const FILE_NOT_FOUND: u32 = 2;
    pub(super) const PATH_NOT_FOUND: u32 = 3;
    /// `STATUS_ACCESS_DENIED`
    pub(super) const ACCESS_DENIED: u32 = 5;
    /// `STATUS_DEVICE_BUSY`
    pub(super) const BUSY: u32 = 170;
}

/// What a refusal means to who asks once.
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
    fn each_refusal_says_what_to_do() {
        for (code, part) in [
            (2, "is not loaded; docs/driver.md"),
            (3, "is not loaded; docs/driver.md"),
            (5, "administrators who have SeDebugPrivilege"),
            (170, "64 captures under way"),
            (87, "DeviceIoControl: words of the system (error 87)"),
        ] {
            let refused = Refused { function: "DeviceIoControl", code, text: "words of the system".into() };
            let text = Error::from(refused).to_string();
            assert!(text.contains(part), "{code}: {text}");
        }
        let text = Error::OtherVersion { driver: 9 }.to_string();
        assert!(text.contains("version 9") && text.contains("version 2"), "{text}");
    }
}
