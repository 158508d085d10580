//! Requests to the kernel-stack driver and its answers.
//!
//! There are two requests. [`Code::Version`] has no input and returns a [`Version`].
//! [`Code::Capture`] takes a [`Request`] and returns an [`Answer`], which consists of a header and
//! the addresses after it. All numbers are little-endian. A 32-bit client sends the same bytes.
//! `docs/kstack-protocol.md` specifies the layouts.
//!
//! The driver and its client share this crate. It does not capture stacks.
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

/// The version of these layouts. A driver refuses requests of any other version.
pub const VERSION: u16 = 2;

/// The first four bytes of every request and answer: `SHKS`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SHKS");

/// The maximum number of addresses of one capture, kernel stack and user stack together.
pub const MAX_FRAMES: u16 = 256;

/// The maximum timeout of a capture, in milliseconds.
pub const MAX_TIMEOUT_MS: u32 = 1000;

/// The maximum number of captures in progress on the device.
pub const MAX_OUTSTANDING: usize = 64;

/// The name of the device in the kernel.
pub const DEVICE_NAME: &str = r"\Device\StackhoundKstack";

/// The symbolic link to [`DEVICE_NAME`], as spelled in the kernel.
pub const LINK_NAME: &str = r"\DosDevices\Global\StackhoundKstack";

/// The path that programs open.
pub const PATH: &str = r"\\.\Global\StackhoundKstack";
