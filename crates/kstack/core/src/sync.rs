//! The atomics of slots. With `--cfg loom` they are loom's, which explores every order that the
//! memory model allows.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64};
