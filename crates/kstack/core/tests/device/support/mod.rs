//! A simulated system, and the oracle for its answers.

mod check_call;
mod mock;
pub mod oracle;
mod world;

pub use check_call::check_call;
pub use mock::{Mock, Reaction, Settings, Thread};
pub use oracle::{Call, KINDS, kind};
pub use world::{OPENER, Random, all_late, request, thread, threads};
