//! Sysmon's data, which people already have, as cases for the engine of [`stackhound_detect`], and back to text.
//!
//! [`Sysmon::hunt`] reads a file, `.evtx` or JSON with one event a line, told apart by its content, and evaluates what events 10
//! (`ProcessAccess`) and 8 (`CreateRemoteThread`) tell. Events 7 (`ImageLoad`) and 1 (`ProcessCreate`) before them tell what
//! files modules are and how processes were started; all others are counted.
//!
//! | layer | what |
//! |---|---|
//! | [`call_trace`] | the text of a stack in its frames, and back without loss |
//! | [`row`] | one event: what its fields mean |
//! | [`json`] | rows in JSON: Winlogbeat's documents, flat ones, those of `evtx_dump`, and how they are written |
//! | [`case`] | rows as cases in the normal form |
//! | [`hunt`] | files, line by line or record by record, with what could not be read |
//!
//! What Sysmon tells of a stack: the user part alone, up to 24 frames (16 by older versions), each with the module that the
//! process's list of loaded modules had there when Sysmon asked. So a frame in no module is *unbacked*, not unknown. Addresses
//! are told of these frames alone.
//!
//! Knows text and the engine. Must not know ETW, or how findings are shown.
#![forbid(unsafe_code)]

pub mod call_trace;
pub mod case;
mod chunks;
mod event_context;
pub mod hunt;
pub mod json;
mod known;
pub mod row;
mod time;

pub use hunt::{Error, Evaluated, Format, Found, Sysmon, Totals, Unreadable, detects};
pub use row::Row;
