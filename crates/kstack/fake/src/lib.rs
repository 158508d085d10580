//! A test fake of the Windows kernel, for running the driver for kernel stacks unchanged in Wine.
//!
//! Wine runs drivers in an ordinary process, and has most of what they call; asynchronous procedure calls in
//! kernel mode, walks of stacks and much of what is asked about threads are missing. Built as a library that
//! takes the place of `ntoskrnl.exe`, this crate has those, and forwards everything else to a copy of Wine's
//! own library.
//!
//! When the driver makes its device, the fake makes threads in the driver's process that behave in known
//! ways (see
//! [`report::Behaviour`]) and reports their numbers. What else a test wants of it, it reads from a file of [`settings`];
//! calls that matter are written to a log.
//!
//! What it does follows Microsoft's pages and headers; none of it was compared with a real Windows. Above
//! all, only the fake's own threads take APCs, and only where they wait for them, and "addresses of the
//! kernel" are those of the process with their upper bits set, see [`HIGH`].
// The functions of Windows get pointers: each block says what makes it sound.
#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

pub mod report;
pub mod settings;

#[cfg(windows)]
mod ffi;

/// The folder in which a test and the fake meet. Wine's services have no environment of the test's.
pub const FOLDER: &str = r"C:\stackhound-kstack";

/// What makes an address of the driver's process one of the kernel: the bits that all addresses there have,
/// and none of a process in Wine.
pub const HIGH: u64 = 0xffff_8000_0000_0000;
