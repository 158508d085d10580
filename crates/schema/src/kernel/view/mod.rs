//! Typed readers of the important classes, one struct each.
//!
//! `parse` looks at a payload once: it checks that the fixed part is there, copies the few numbers and borrows texts,
//! SIDs and lists of addresses. Nothing allocates, and no payload makes it panic. What only some versions have is an
//! `Option`; what newer systems append is ignored.
//!
//! Layouts are written here a second time, as structs, independently of the class tables.

mod alpc;
mod config;
mod control;
mod disk;
mod file;
mod image;
mod memory;
mod network;
mod object;
mod perfinfo;
mod pool;
mod process;
mod read;
mod registry;
mod stack;
mod switch;
mod text;
mod thread;

pub use alpc::{AlpcMessage, AlpcPortWait, AlpcUnwait};
pub use config::{CpuConfig, CpuDetail, GroupMasks, Service};
pub use control::{BuildInfo, DbgIdRsds, FileVersion, ImageId, SystemPaths, VolumeMapping};
pub use disk::{DiskFlush, DiskInit, DiskTransfer};
pub use file::{
    DirectoryEnumeration, FileCreate, FileInformation, FileName, FileOperation, FilePath, FileReadWrite,
    MapFile, OperationEnd,
};
pub use image::{Image, ImageIdentity, ImageSignature, KernelBase};
pub use memory::{HardFault, PageFault, VirtualAllocation};
pub use network::{ConnectionSetup, Endpoints, NetworkFailure, NetworkTransfer, TransferShape};
pub use object::{Handle, HandleDuplicate};
pub use perfinfo::{Dpc, Isr, PmcSample, SampledProfile, SysCallEnter, SysCallExit};
pub use pool::PoolAllocation;
pub use process::{Process, ProcessCounters, ProcessTerminate};
pub use registry::{
    HiveDestroy, HiveDirty, HiveInit, HiveLink, HiveRundown, RegistryOperation, RegistryTransaction,
};
pub use stack::{Branch, Frames, FramesIter, LastBranch, Stack, StackKeyDefinition, StackKeyReference};
pub use switch::{CompactSwitch, CompactSwitchIter, CompactSwitches, CompactThread};
pub use text::{Ansi, Utf16};
pub use thread::{CSwitch, ReadyThread, Thread, ThreadDetail, ThreadPriorities, ThreadSetName};
