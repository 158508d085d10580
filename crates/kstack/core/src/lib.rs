//! The life cycle of a stack capture, and the requests to the driver's device.
//!
//! A thread's kernel stack can only be walked by the thread itself. Therefore, a capture sends the
//! thread a special kernel APC, waits for a bounded time, and copies the frames that the APC
//! walked. The request and the APC share the memory of the capture, and neither knows which of them
//! finishes last. This crate contains everything that makes this safe, as state machines whose
//! steps are single accesses to shared memory, so that tests can explore every order of them.
//! `docs/apc.md` describes the life cycle.
//!
//! The crate contains nothing specific to Windows; that is in the implementation of [`Kernel`]. The
//! memory of captures is a fixed number of [`Slot`]s that is never deallocated. Nothing is
//! allocated, and a late APC never writes to foreign memory.
#![no_std]
#![forbid(unsafe_code)]

mod apc;
mod copy;
mod device;
mod kernel;
mod requester;
mod slot;
mod sync;

pub use apc::Apc;
pub use copy::{Copied, MACHINERY};
pub use device::{Caller, Opener, Refusal, control, open};
pub use kernel::{Found, Kernel, Part, Removal, ThreadRelation};
pub use requester::{End, Requester};
pub use slot::{Progress, Slot, Stale, Ticket};
