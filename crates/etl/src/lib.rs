//! Reads and writes Windows event trace logs (`.etl`): buffers, records, clocks, compression and
//! repair.
//!
//! ```
//! # fn main() -> Result<(), stackhound_etl::OpenError> {
//! # let bytes = match std::fs::read("trace.etl") { Ok(bytes) => bytes, Err(_) => return Ok(()) };
//! let etl_file = stackhound_etl::EtlFile::open(bytes.into())?;
//! for buffer in &etl_file.index().buffers {
//!     if let Ok((block, _damage)) = etl_file.block(buffer, None) {
//!         for entry in block.entries() {
//!             println!("{} {}", entry.time.0, block.record(entry).kind().name());
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! There is one type for each layer of the format: [`EtlFile`] is a file, [`BufferHeader`] is the
//! header of a buffer, [`Block`] is a buffer with a list of its records, [`record::Record`] is one
//! record, and [`record::ExtendedItems`] are the extended data items between an EVENT_HEADER and
//! its payload. `docs/format/` describes each layer.
//!
//! [`write`](mod@write) is the inverse: it makes a file from records that are given as plain data.
//!
//! This crate does not interpret payloads and opens no files.
#![forbid(unsafe_code)]

mod assemble;
mod block;
mod buffer;
mod clock;
pub mod compress;
mod damage;
mod etl_file;
pub mod hook_id;
mod index;
mod logfile;
pub mod record;
mod repeat;
mod resync;
mod select;
mod time_check;
pub mod write;

pub use assemble::BlockBuilder;
pub use block::{Block, Entry, Extent, Origin};
pub use buffer::{BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX, BufferFlags, BufferHeader, BufferType};
pub use clock::{Clock, ClockKind};
pub use damage::{Damage, DamageReason};
pub use etl_file::{EtlFile, OpenError};
pub use index::{BufferRef, Index, MissingBuffers};
pub use logfile::{LogFileMode, LogfileHeader, LogfileHeaderError};
pub use repeat::BufferIdentity;
pub use select::{ManifestEvents, Selection};
