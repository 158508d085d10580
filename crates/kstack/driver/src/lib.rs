//! The kernel-stack driver, the only part of Stackhound that runs in the kernel of Windows.
//!
//! Captures, access control and answers are implemented in `stackhound-kstack-core` and
//! `stackhound-kstack-proto`, which are portable and have no unsafe code. This crate contains only
//! the parts that depend on the system: the entry point and the dispatch table, the declarations of
//! the system's functions and structures, and the implementation of
//! [`stackhound_kstack_core::Kernel`]. The driver cannot be unloaded, and allocates no memory.
//! `docs/driver.md` describes its effects on a system, and the reason for each limit.
//!
//! It is built for `x86_64-pc-windows-msvc`. On other targets only [`security`] and [`wide`] exist,
//! for tests.
#![cfg_attr(target_env = "msvc", no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod security;
pub mod wide;

#[cfg(target_env = "msvc")]
mod device;
#[cfg(target_env = "msvc")]
mod entry;
#[cfg(target_env = "msvc")]
mod guard;
#[cfg(target_env = "msvc")]
mod irp;
#[cfg(target_env = "msvc")]
mod kernel;
#[cfg(target_env = "msvc")]
mod load_config;
#[cfg(target_env = "msvc")]
mod nt;
#[cfg(target_env = "msvc")]
mod runtime;
