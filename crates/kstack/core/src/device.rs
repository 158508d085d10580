//! Who may open the device, and what it answers: everything between the system's request packet and a capture.
//!
//! Requests are buffered: input and output are one buffer of the system's, so an answer is written over its request, and nothing of the
//! caller's memory is touched.

/// Who calls, as the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The call comes from a program, not from another driver.
    pub from_user_mode: bool,
    /// The process.
    pub pid: u32,
}

/// Why a request is refused. Nothing was begun, and nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The caller may not do this.
    AccessDenied,
    /// There is no such request.
    UnknownRequest,
    /// The request is not as it must be.
    InvalidParameter,
    /// There is no room for the answer.
    BufferTooSmall,
    /// As many captures as there may be are under way, or one of this thread is.
    Busy,
    /// Something happened that cannot be: a slot was not its owner's any more.
    Internal,
}
