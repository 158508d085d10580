//! A test fake of the event-tracing functions of Windows.
//!
//! Wine has none of them: sessions start and deliver nothing. Built as a library that takes the place of
//! `advapi32.dll`, this crate lets an unchanged consumer start, query and stop sessions, and replays recordings to it as
//! a session in real time would: buffer by buffer, the processors in any order, with losses and delays where the
//! [settings](settings) ask for them. Every call is written to a log with its arguments.
//!
//! What it does follows Microsoft's pages about each function; none of it was compared with a real Windows.
//!
//! Portable, and tested on any system: what a consumer is handed for a record ([`deliver`]), the order of buffers
//! ([`replay`]), what a session loses ([`feed`]), the block of a session's properties ([`properties`]), the settings, and
//! what tests of consumers need ([`harness`]).
//! For Windows only: the functions themselves.
// The functions of Windows get pointers: each block says what makes it sound.
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
