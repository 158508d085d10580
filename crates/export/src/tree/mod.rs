//! The stack model as text and HTML: the calls around a frame, stacks, ranges, events and calls.
//!
//! A [`Tree`] is what is shown of the calls around one frame. It looks at no more frames than it shows, however many
//! there are, and what it leaves out it counts without visiting it. [`text`] and [`html`] write it, and
//! [`json`](crate::json::tree) has its document; [`text`] also has the forms of everything else of a trace.
//!
//! Knows nothing of files, of the command line, or of where traces come from. Names are untrusted: text has no control
//! characters of them, HTML has them escaped.

pub mod html;
mod selection;
pub mod text;

pub use selection::{Limits, ROWS_MAX, Relation, Row, Shown, Tree};
