//! Typed readers of the classes that other crates read for each event, with one struct per class.
//!
//! `parse` reads a payload in one pass: it checks that the fixed part is complete, copies its
//! numbers and borrows texts and SIDs. It does not allocate, and no payload makes it panic. Fields
//! that only some versions have are `Option`s. Data that newer systems append is ignored.
//!
//! The layouts are structs in this module, independent of the class tables.

mod config;
mod control;
mod file;
mod image;
mod memory;
mod perfinfo;
mod process;
pub(crate) mod read;
mod registry;
mod stack;
mod thread;

pub use config::{CpuConfig, CpuDetail};
pub use control::{DbgIdRsds, FileVersion, SystemPaths, VolumeMapping};
pub use file::{FileCreate, FileName, FileOperation, MapFile, OperationEnd};
pub use image::{Image, ImageIdentity, ImageSignature, KernelBase};
pub use memory::VirtualAllocation;
pub use perfinfo::{Dpc, ProfileInterval, SampledProfile, SysCallEnter};
pub use process::Process;
pub use registry::RegistryOperation;
pub use stack::StackOwner;
pub use thread::{CSwitch, ReadyThread, Thread, ThreadDetail, ThreadPriorities, ThreadSetName};
