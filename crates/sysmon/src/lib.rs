//! Converts Sysmon events to cases for the detector of [`stackhound_detect`], and back to text.
//!
//! [`Sysmon::hunt`] reads a file, `.evtx` or JSON with one event per line, recognized by its
//! content. It evaluates events 10 (`ProcessAccess`) and 8 (`CreateRemoteThread`). Earlier events 7
//! (`ImageLoad`) and 1 (`ProcessCreate`) supply the identity of modules and the command lines of
//! processes. All other events are counted.
//!
//! | layer | content |
//! |---|---|
//! | [`call_trace`] | the text of a stack as frames, and back without loss |
//! | [`row`] | one event and the meaning of its fields |
//! | [`json`] | rows in JSON, in the forms of several tools, read and written |
//! | [`case`] | rows as cases in the normal form |
//! | [`hunt`] | files, line by line or record by record, with the unreadable ones |
//!
//! Sysmon records only the user stack: up to 24 frames (16 in older versions). Each frame has the
//! module that the list of loaded modules of the process had at that address when Sysmon walked the
//! stack. A frame in no module is therefore *unbacked*, not unknown. Only such frames have
//! addresses.
//!
//! Handles text and uses the detector. Does not depend on ETW or on the output of findings.
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

pub use hunt::{Error, Evaluated, Format, Found, Sysmon, Totals, Unreadable, detect_format};
pub use row::Row;
