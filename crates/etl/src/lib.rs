//! The container of Windows event trace logs (`.etl`): buffers, records, clocks, compression, order and repair.
//!
//! Knows bytes and where they stand; does not know what an event means, and does no I/O.
#![deny(unsafe_code)]

mod guid;
mod ids;
mod time;

pub use guid::{Guid, GuidError};
pub use ids::{Address, Pid, PointerSize, Tid};
pub use time::{FileTime, RawTime};
