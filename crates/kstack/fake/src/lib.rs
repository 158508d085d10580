//! A fake of the Windows kernel, in which the unchanged kernel-stack driver runs under Wine.
//!
//! Wine runs drivers in an ordinary process, and has most of the functions that they call.
//! Asynchronous procedure calls in kernel mode, stack walks and many functions on threads are
//! missing. This crate is a library that replaces `ntoskrnl.exe`. It implements the missing
//! functions, and forwards all others to a copy of Wine's own library.
//!
//! When the driver creates its device, the fake starts threads with known behavior in the driver's
//! process (see [`report::Behavior`]), and reports their ids. A test controls the fake with a file
//! of [`settings`]. Relevant calls are written to a log.
//!
//! The fake follows Microsoft's documentation and headers, and was never compared with a real
//! Windows. In particular, only the fake's own threads take APCs, only while they wait for them,
//! and "kernel addresses" are addresses of the process with their upper bits set, see [`HIGH`].
// Windows functions take pointers, so each unsafe block has a comment on its soundness.
#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

pub mod report;
pub mod settings;

#[cfg(windows)]
mod ffi;

/// The folder through which a test and the fake exchange files. Wine's services do not inherit the
/// test's environment.
pub const FOLDER: &str = r"C:\stackhound-kstack";

/// The bits that turn an address of the driver's process into a kernel address. All kernel
/// addresses have them, and no address of a process in Wine does.
pub const HIGH: u64 = 0xffff_8000_0000_0000;
