//! Control codes, and what the driver says of itself.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the device can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// No input, a [`Version`] as output.
    Version,
    /// A [`crate::Request`] as input, an [`crate::Answer`] as output.
    Capture,
}

/// `CTL_CODE(FILE_DEVICE_UNKNOWN, function, METHOD_BUFFERED, FILE_READ_DATA | FILE_WRITE_DATA)`; see
/// "Defining I/O Control Codes" of Microsoft's documentation. With both rights, the system itself refuses
/// handles that were opened for less.
const fn control(function: u32) -> u32 {
    const FILE_DEVICE_UNKNOWN: u32 = 0x22;
    const FILE_READ_DATA: u32 = 1;
    const FILE_WRITE_DATA: u32 = 2;
    const METHOD_BUFFERED: u32 = 0;
    FILE_DEVICE_UNKNOWN << 16 | (FILE_READ_DATA | FILE_WRITE_DATA) << 14 | function << 2 | METHOD_BUFFERED
}

impl Code {
    /// Both.
    pub const ALL: [Code; 2] = [Code::Version, Code::Capture];

    /// The number that `DeviceIoControl` takes.
    pub const fn number(self) -> u32 {
        match self {
            Code::Version => control(0x800),
            Code::Capture => control(0x801),
        }
    }

    /// What a number asks for.
    pub fn from_number(number: u32) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.number() == number)
    }
}

/// What the driver says of itself, 16 bytes.
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
    /// Bit 0: an APC can be taken out of a thread's queue again on this system.
    pub abilities: U16,
}

impl Version {
    /// In `abilities`: an APC can be taken out of its queue, so a capture that timed out leaves nothing
    /// behind.
    pub const CAN_REMOVE: u16 = 1;
}
