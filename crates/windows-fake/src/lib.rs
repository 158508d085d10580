//! A fake of the event-tracing functions of Windows, for tests.
//!
//! Wine does not implement these functions: sessions start, but deliver no events. This crate is
//! built as a library that replaces `advapi32.dll`. An unchanged consumer can start, query and stop
//! sessions, and the fake replays traces to it like a real-time session: buffer by buffer, the
//! processors in any order, with losses and delays as configured by the [settings](settings). Every
//! call is written to a log with its arguments.
//!
//! The behavior follows Microsoft's documentation of each function. It was never compared with a
//! real Windows.
//!
//! The portable modules are tested on any system: the contents of delivered events ([`deliver`]),
//! the order of buffers ([`replay`]), losses ([`feed`]), the block of session properties
//! ([`properties`]), the [`settings`], and the support for tests of consumers ([`harness`]). The
//! functions themselves are compiled for Windows only.
// The functions of Windows take pointers, so every unsafe block has a justification.
#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

pub mod deliver;
pub mod feed;
pub mod harness;
pub mod properties;
mod random;
pub mod raw;
pub mod replay;
pub mod settings;

#[cfg(windows)]
mod ffi;
