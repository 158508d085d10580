//! What the driver for kernel stacks is asked, and what it answers.
//!
//! Two requests: [`Code::Version`] takes nothing and gives a [`Version`]; [`Code::Capture`] takes a
//! [`Request`] and gives an [`Answer`], which is a header and the addresses behind it. All numbers are
//! little-endian; a 32-bit client sends the same bytes. The driver and its client share this crate; it knows
//! nothing of how a stack is captured.
#![no_std]
#![forbid(unsafe_code)]

mod answer;
mod code;
mod frames;
mod request;

pub use answer::{Answer, AnswerError, AnswerHeader, Outcome};
pub use code::{Code, Version};
pub use frames::{Entry, Missing, hash};
pub use request::{Capture, Flags, Request, RequestError};

/// The version of these layouts. A driver refuses requests of any other.
pub const VERSION: u16 = 2;

/// The first four bytes of every request and answer: `SHKS`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SHKS");

/// Addresses of one capture at most, the kernel's and the user's part together.
pub const MAX_FRAMES: u16 = 256;

/// How long a capture may take at most, in milliseconds.
pub const MAX_TIMEOUT_MS: u32 = 1000;

/// Captures at most that the device has under way.
pub const MAX_OUTSTANDING: usize = 64;

/// The device's name in the kernel, and what programs open.
pub const DEVICE_NAME: &str = r"\Device\StackhoundKstack";

/// The link to [`DEVICE_NAME`], in the kernel's spelling.
pub const LINK_NAME: &str = r"\DosDevices\Global\StackhoundKstack";

/// What a program opens.
pub const PATH: &str = r"\\.\Global\StackhoundKstack";
