//! The container of Windows event trace logs (`.etl`): buffers, records, clocks, compression, order and repair.
//!
//! ```
//! # fn main() -> Result<(), stackhound_etl::OpenError> {
//! # let bytes = match std::fs::read("trace.etl") { Ok(bytes) => bytes, Err(_) => return Ok(()) };
//! let recording = stackhound_etl::Recording::open(bytes.into())?;
//! for buffer in &recording.index().buffers {
//!     if let Ok((block, _damage)) = recording.block(buffer, None) {
//!         for entry in block.entries() {
//!             println!("{} {}", entry.time.0, block.record(entry).kind().name());
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One type for each layer of the format: [`EtlFile`] is a file, [`BufferHeader`] frames a buffer, [`Block`] is a
//! buffer whose records were found, [`record::Record`] is one record, [`record::ExtendedItems`] is what stands between
//! a modern header and its payload. `docs/format/` describes each.
//!
//! [`write`](mod@write) is the other way round: records as plain data become a file.
//!
//! Knows bytes and where they stand; does not know what an event means, and opens no files.
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
