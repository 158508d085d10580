//! Asks the driver for the kernel stacks of threads.
//!
//! On Windows, `Client::open` takes the privilege that the driver wants, opens its device and sees to it that both speak one version.
//! [`Client::capture`] then asks for the stack of one thread, [`Client::captures`] for those of many, one after another. Everything but
//! the device itself is the same on all systems: whoever implements [`Device`] can be asked.
//!
//! Knows the driver's requests and answers, and what refusals mean; must not know modules or names.
#![forbid(unsafe_code)]

mod client;
mod device;
mod error;
mod stack;
#[cfg(all(windows, feature = "windows"))]
mod windows;

pub use client::{Client, Patience};
pub use device::{Device, Refused};
pub use error::Error;
pub use stack::{Frames, Part, Reply, Stack, Thread};
#[cfg(all(windows, feature = "windows"))]
pub use windows::{SystemDevice, threads};
