//! Typed readers of the classes that other crates read event by event, one struct each.
//!
//! `parse` looks at a payload once: it checks that the fixed part is there, copies the few numbers and borrows texts
//! and SIDs. Nothing allocates, and no payload makes it panic. What only some versions have is an
//! `Option`; what newer systems append is ignored.
//!
//! Layouts are written here a second time, as structs, independently of the class tables.

mod config;
mod control;
mod file;
mod image;
mod memory;
mod perfinfo;
mod process;
mod read;
mod registry;
mod text;
mod thread;

pub use config::{CpuConfig, CpuDetail};
pub use control::{DbgIdRsds, SystemPaths, VolumeMapping};
pub use file::{FileCreate, FileName, FileOperation, MapFile, OperationEnd};
pub use image::{Image, ImageIdentity, ImageSignature, KernelBase};
pub use memory::VirtualAllocation;
pub use perfinfo::{Dpc, SysCallEnter};
pub use process::Process;
pub use registry::RegistryOperation;
pub use text::{Ansi, Utf16};
pub use thread::{CSwitch, ReadyThread, Thread, ThreadDetail, ThreadPriorities, ThreadSetName};
