//! The interface to the system.

use stackhound_kstack_proto::Code;

/// A device that answers requests: that of the driver, or a fake in tests.
pub trait Device {
    /// Sends a request, and waits for the answer. Returns the number of bytes written to `output`.
    ///
    /// # Errors
    /// If there is no answer. The content of `output` is then undefined.
    fn control(&mut self, code: Code, input: &[u8], output: &mut [u8]) -> Result<usize, Refused>;
}

/// A system call that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The Windows function.
    pub function: &'static str,
    /// The Windows error code.
    pub code: u32,
    /// The system's text for the error.
    pub text: String,
}
