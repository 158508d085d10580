//! The seam to the system.

use stackhound_kstack_proto::Code;

/// Who answers requests: the driver's device, or what takes its place in tests.
pub trait Device {
    /// Sends a request, and waits for the answer. Gives how many bytes of `output` were written.
    ///
    /// # Errors
    /// If there is no answer. What `output` holds then is not known.
    fn control(&mut self, code: Code, input: &[u8], output: &mut [u8]) -> Result<usize, Refused>;
}

/// A call of the system that did not succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The function of Windows.
    pub function: &'static str,
    /// Its error, as a number of Windows.
    pub code: u32,
    /// What the system says of it.
    pub text: String,
}
