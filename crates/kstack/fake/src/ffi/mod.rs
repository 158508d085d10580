//! The functions of the fake kernel, in the 64-bit calling convention.
//!
//! Their names have a prefix (`fake_KeInsertQueueApc`); the list of exports gives them their real
//! names.

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

/// BOOLEAN of the kernel, a byte.
pub(crate) type Boolean = u8;

/// An opaque kernel object: a thread, a process or a device.
pub(crate) type Object = *mut c_void;

/// NTSTATUS values.
pub(crate) mod status {
    pub const SUCCESS: i32 = 0;
    pub const UNSUCCESSFUL: i32 = 0xc000_0001_u32 as i32;
}
