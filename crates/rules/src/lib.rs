//! Detection rules, which users write.
//!
//! [`Library::read`] reads rules in the dialect of Fibratus: YAML files with conditions about one
//! event or a sequence of events, and files with macros. Each rule is parsed and checked. What is
//! suspicious is reported as a lint finding, and [`Needs`] states what an evaluation requires: kinds
//! of events, stacks, names of functions, facts about images.
//!
//! Rules are untrusted input: sizes and depths are limited, and templates, actions and functions
//! that would change or ask the running system are never executed. This crate does not know where
//! events come from, or how findings are shown.
//!
//! ```
//! use stackhound_rules::Library;
//!
//! let rule = r"
//! name: Program started by a document
//! id: 0b1ff1c4-5b1c-4a7e-9c40-3f0d3f0f3a11
//! version: 1.0.0
//! condition: >
//!   evt.name = 'CreateProcess' and ps.parent.name iin ('winword.exe', 'excel.exe')
//! min-engine-version: 3.0.0
//! ";
//! let library = Library::read([("rule.yml", rule.as_bytes())]);
//! let condition = library.rules[0].condition.as_ref().unwrap();
//! assert_eq!(condition.events, [["CreateProcess"]]);
//! assert_eq!(condition.needs.iter().map(|need| need.name()).collect::<Vec<_>>(), ["process-events"]);
//! ```

#![forbid(unsafe_code)]

mod check;
mod duration;
mod error;
pub mod evaluate;
mod events;
mod fields;
mod file;
mod functions;
mod lex;
mod library;
mod macros;
pub mod names;
mod needs;
mod parse;
mod rule;
mod sigma;
pub mod source;
mod sources;
pub mod syntax;
mod types;

pub use error::{Error, ErrorKind, Lint, LintKind};
pub use events::EventName;
pub use fields::{Field, Part};
pub use functions::Function;
pub use library::{FILE_MAX, has_cases};
pub use needs::{Need, Needs};
pub use rule::{Head, Library, Rule, RuleCondition};
pub use sources::{DataForm, DataSource, PayloadForm, PayloadSource};
pub use types::{Elements, Type};
