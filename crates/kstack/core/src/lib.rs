//! The life of one capture of a stack, and what the device of the driver may be asked.
//!
//! A thread's kernel stack can be walked only by the thread itself. So a capture sends the thread a special kernel APC, waits for a
//! bounded time, and copies what the APC found. Two parties then share what the capture is made in, and neither knows which of them is
//! the last: this crate holds everything that makes that safe, as a state machine whose steps are single accesses to what is shared, so that
//! tests can explore every order of them. It knows nothing of Windows: whoever implements [`Kernel`] does. The memory of captures is a
//! fixed number of [`Slot`]s which is never given back, so nothing is allocated, and a late APC never writes into memory of others.
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
