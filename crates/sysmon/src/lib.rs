//! Converts Sysmon events to cases for the detector of [`stackhound_detect`], and back to text.
//!
//! [`Sysmon::hunt`] reads a file, `.evtx` or JSON with one event per line, recognized by its
//! content. It evaluates events 10 (`ProcessAccess`), 8 (`CreateRemoteThread`) and 25
//! (`ProcessTampering`). Other events are evidence: 1 and 5 about processes, 6 and 7 about the files
//! of modules, 11 and 29 about files that processes create. [`Sysmon::learn`] collects it in a first
//! pass, so that the order of the events does not matter. All other events are counted.
//!
//! | layer | content |
//! |---|---|
//! | [`call_trace`] | the text of a stack as frames, and back without loss |
//! | [`row`] | one event and the meaning of its fields |
//! | `field` | the fields of events, with their names in all forms |
//! | [`json`] | rows in JSON, in the forms of several tools, read and written |
//! | [`case`] | rows as cases in the normal form |
//! | `known`, `processes` | evidence from other events |
//! | `blocks`, `cache` | files in parallel, and evaluations by text |
//! | [`rules`] | rules that users write, on all events of Windows logs |
//! | [`hunt`] | files, line by line or record by record, with the unreadable ones |
//!
//! Sysmon records only the user stack: up to 24 frames (16 in older versions). Each frame has the
//! module that the list of loaded modules of the process had at that address when Sysmon walked the
//! stack. A frame in no module is therefore *unbacked*, not unknown. Only such frames have
//! addresses.
//!
//! Handles text and uses the detector and the rules. Does not depend on ETW or on the output of findings.
#![forbid(unsafe_code)]

mod blocks;
mod cache;
pub mod call_trace;
pub mod case;
mod chunks;
mod event_context;
mod field;
pub mod hunt;
pub mod json;
mod known;
mod processes;
pub mod row;
pub mod rules;
mod time;

pub use hunt::{Error, Evaluated, Format, Found, Sysmon, Totals, Unreadable, detect_format};
pub use row::Row;
