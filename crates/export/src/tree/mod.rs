//! The stack model as text and HTML: the calls around a frame, stacks, ranges, events and calls.
//!
//! A [`Tree`] selects the calls around one frame for output. It visits only the frames that it
//! shows, however many there are, and counts the others without visiting them. [`text`] and
//! [`html`] write it, and [`json`](crate::json::tree) has its document. [`text`] also writes all
//! other results of the stack model.
//!
//! This module does not know files, the command line, or the origin of traces. Names are untrusted:
//! text contains none of their control characters, and HTML escapes them.

pub mod html;
mod selection;
pub mod text;
mod times;

pub use selection::{Limits, ROWS_MAX, Relation, Row, Shown, Tree};
pub use times::Spans;
