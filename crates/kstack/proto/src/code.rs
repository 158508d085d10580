//! Control codes, and the version structure of the driver.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The requests that the device accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// No input; the output is a [`Version`].
    Version,
    /// The input is a [`crate::Request`], the output an [`crate::Answer`].
    Capture,
}

/// `CTL_CODE(FILE_DEVICE_UNKNOWN, function, METHOD_BUFFERED, FILE_READ_DATA | FILE_WRITE_DATA)`;
/// see "Defining I/O Control Codes" in Microsoft's documentation. Because of the two access rights,
/// the system itself refuses handles that were not opened for both reading and writing.
const fn control(function: u32) -> u32 {
    const FILE_DEVICE_UNKNOWN: u32 = 0x22;
    const FILE_READ_DATA: u32 = 1;
    const FILE_WRITE_DATA: u32 = 2;
    const METHOD_BUFFERED: u32 = 0;
    FILE_DEVICE_UNKNOWN << 16 | (FILE_READ_DATA | FILE_WRITE_DATA) << 14 | function << 2 | METHOD_BUFFERED
}

impl Code {
    /// All codes.
    pub const ALL: [Code; 2] = [Code::Version, Code::Capture];

    /// The control code for `DeviceIoControl`.
    pub const fn number(self) -> u32 {
        match self {
            Code::Version => control(0x800),
            Code::Capture => control(0x801),
        }
    }

    /// The request with this control code, if there is one.
    pub fn from_number(number: u32) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.number() == number)
    }
}

/// The version and the limits of the driver, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Version {
    /// [`crate::MAGIC`].
    pub magic: U32,
    /// [`crate::VERSION`] of the driver.
    pub version: U16,
    /// [`crate::MAX_FRAMES`] of the driver.
    pub max_frames: U16,
    /// [`crate::MAX_TIMEOUT_MS`] of the driver.
    pub max_timeout_ms: U32,
    /// [`crate::MAX_OUTSTANDING`] of the driver.
    pub max_outstanding: U16,
    /// Bit 0: this system can remove an APC from the queue of a thread.
    pub abilities: U16,
}

impl Version {
    /// Bit of `abilities`: this system can remove an APC from its queue, so a capture that timed
    /// out does not stay in progress.
    pub const CAN_REMOVE: u16 = 1;
}
