//! The client of the kernel-stack driver.
//!
//! On Windows, `Client::open` enables the privilege that the driver requires, opens the device, and
//! checks that client and driver have the same version. [`Client::capture`] then captures the stack
//! of one thread, [`Client::captures`] those of many threads, one after another. Everything except
//! the device itself is the same on all systems: any implementation of [`Device`] can be used.
//!
//! The crate handles the requests and answers of the driver, and the meaning of refusals. It does
//! not resolve modules or names.
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
