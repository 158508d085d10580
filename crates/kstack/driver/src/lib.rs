//! The driver that captures kernel stacks: the only part of Stackhound that runs in the kernel of Windows.
//!
//! What a capture is, who may ask for one, and what is answered stands in `stackhound-kstack-core` and
//! `stackhound-kstack-proto`, which are portable and without unsafe code. Here is only what those need of the system: the
//! entry and the table of requests, the declarations of the system's functions and structures, and the implementation of
//! [`stackhound_kstack_core::Kernel`] with them. There is no way to unload it, and it allocates no memory. `docs/driver.md`
//! says what it can do to a system, and why each limit is there.
//!
//! It is built for `x86_64-pc-windows-msvc`. Elsewhere only [`security`] and [`wide`] are there, to be tested.
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
