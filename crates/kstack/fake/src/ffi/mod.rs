//! The functions of the kernel themselves, in 64-bit calling convention.
//!
//! They have names of their own (`fake_KeInsertQueueApc`); the list of exports gives them their real ones.

mod apc;
mod kapc;
mod log;
mod objects;
mod own;
mod processes;
mod security;
mod targets;
mod threads;
mod walk;

use std::ffi::c_void;

/// What the kernel calls TRUE and FALSE, a byte.
pub(crate) type Boolean = u8;

/// An opaque object of the kernel: a thread, a process, a device.
pub(crate) type Object = *mut c_void;

/// NTSTATUS values.
pub(crate) mod status {
    pub const SUCCESS: i32 = 0;
    pub const UNSUCCESSFUL: i32 = 0xc000_0001_u32 as i32;
}
