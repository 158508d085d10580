//! What a trace contains: how many events of each kind, and the amounts that some of them state.

use std::collections::HashMap;

use stackhound_pipeline::EventView;
use stackhound_schema::kernel::hook_id;
use stackhound_schema::provider_guid;
use stackhound_trace::TraceTime;
use stackhound_types::Guid;
use strum::VariantArray;

use crate::fields::{file_name, number};
use crate::gc::GarbageCollections;

/// A kind of kernel event that questions are about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, VariantArray)]
pub enum Kind {
    /// What processors execute, at regular times.
    Samples,
    /// Switches of processors between threads.
    Switches,
    /// Entries into system calls.
    SystemCalls,
    /// Deferred procedure calls and interrupt service routines.
    Interrupts,
    /// Transfers of disks.
    Disk,
    /// Operations of file systems.
    File,
    /// Operations of the registry.
    Registry,
    /// Transfers and connections.
    Network,
    /// Pages that were read from a disk because of a fault.
    HardFaults,
    /// Allocations and releases of address space.
    Memory,
    /// Starts of processes during the trace.
    Processes,
    /// Starts of threads during the trace.
    Threads,
    /// Loads of images during the trace.
    Images,
    /// Events of .NET: collections, methods, exceptions.
    DotNet,
}

impl Kind {
    /// All kinds.
    pub const ALL: &[Kind] = Kind::VARIANTS;

    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Samples => "profile samples",
            Kind::Switches => "context switches",
            Kind::SystemCalls => "system calls",
            Kind::Interrupts => "DPCs and ISRs",
            Kind::Disk => "disk I/O",
            Kind::File => "file I/O",
            Kind::Registry => "registry",
            Kind::Network => "network",
            Kind::HardFaults => "hard faults",
            Kind::Memory => "memory allocations",
            Kind::Processes => "process starts",
            Kind::Threads => "thread starts",
            Kind::Images => "image loads",
            Kind::DotNet => ".NET events",
        }
    }

    /// The kind of a kernel event. Definitions of names and states that a trace writes at its start
    /// and end have none.
    fn of(id: u16) -> Option<Kind> {
        Some(match id {
            hook_id::PERF_INFO_SAMPLED_PROFILE | hook_id::PERF_INFO_SAMPLED_PROFILE_NMI => Kind::Samples,
            hook_id::THREAD_C_SWITCH | hook_id::THREAD_COMPACT_C_SWITCH => Kind::Switches,
            hook_id::PERF_INFO_SYS_CALL_ENTER => Kind::SystemCalls,
            hook_id::PERF_INFO_DPC
            | hook_id::PERF_INFO_TIMER_DPC
            | hook_id::PERF_INFO_THREADED_DPC
            | hook_id::PERF_INFO_ISR
            | hook_id::PERF_INFO_ISR_MSI => Kind::Interrupts,
            hook_id::DISK_IO_READ | hook_id::DISK_IO_WRITE | hook_id::DISK_IO_FLUSH_BUFFERS => Kind::Disk,
            hook_id::FILE_IO_CREATE..=FILE_IO_LAST => Kind::File,
            hook_id::REGISTRY_CREATE..=hook_id::REGISTRY_FLUSH => Kind::Registry,
            hook_id::PAGE_FAULT_HARD_FAULT => Kind::HardFaults,
            hook_id::PAGE_FAULT_VIRTUAL_ALLOC | hook_id::PAGE_FAULT_VIRTUAL_FREE => Kind::Memory,
            hook_id::PROCESS_START => Kind::Processes,
            hook_id::THREAD_START => Kind::Threads,
            hook_id::IMAGE_LOAD => Kind::Images,
            _ if matches!(id >> 8, TCP_GROUP | UDP_GROUP) => Kind::Network,
            _ => return None,
        })
    }
}

/// The last operation of files; the ends of operations follow.
const FILE_IO_LAST: u16 = hook_id::FILE_IO_OPERATION_END - 1;
const TCP_GROUP: u16 = 0x06;
const UDP_GROUP: u16 = 0x08;

/// Maximum number of providers that are counted one by one.
const PROVIDERS_MAX: usize = 1 << 12;

/// Transfers of disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transfers {
    /// Number of transfers.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Maximum number of files whose bytes are counted one by one.
const FILES_MAX: usize = 1 << 16;

/// The flag of paging transfers, `IRP_PAGING_IO`. They repeat bytes of other operations.
const PAGING: u64 = 2;

/// Bytes that were read and written, by file.
#[derive(Clone, Debug, Default)]
pub struct FileBytes {
    files: HashMap<String, u64>,
    bytes: u64,
}

impl FileBytes {
    fn add(&mut self, view: &EventView<'_>, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let name = file_name(view);
        if let Some(sum) = self.files.get_mut(&*name) {
            *sum = sum.saturating_add(bytes);
        } else if self.files.len() < FILES_MAX {
            self.files.insert(name.into_owned(), bytes);
        }
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of files. Files beyond the first 65,536 are not counted one by one.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// The files with the most bytes, and their bytes.
    pub fn most(&self, count: usize) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.files.iter().map(|(name, bytes)| (&**name, *bytes)).collect();
        all.sort_unstable_by(|(a, one), (b, other)| other.cmp(one).then_with(|| a.cmp(b)));
        all.truncate(count);
        all
    }
}

/// The contents of a capture.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// All events.
    pub events: u64,
    /// Events with at least a part of a stack.
    pub with_stack: u64,
    /// Events by [`Kind`], in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
    /// Events of other providers, with their names.
    pub providers: HashMap<Guid, (String, u64)>,
    /// Events of further providers, beyond the limit of providers that are counted one by one.
    pub other_providers: u64,
    /// Reads from disks.
    pub read: Transfers,
    /// Writes to disks.
    pub written: Transfers,
    /// Bytes that disks transferred.
    pub disk_files: FileBytes,
    /// Bytes that reads and writes of file systems requested, without those of paging.
    pub requested_files: FileBytes,
    /// Collections of .NET processes.
    pub collections: GarbageCollections,
    /// Times of the first and the last event.
    pub times: Option<(TraceTime, TraceTime)>,
}

impl Contents {
    /// Adds the next event.
    pub fn observe(&mut self, view: &EventView<'_>) {
        self.events += 1;
        self.with_stack += u64::from(view.stack().is_some());
        let now = view.time();
        let (first, last) = self.times.unwrap_or((now, now));
        self.times = Some((first.min(now), last.max(now)));
        let Some(id) = view.kernel_id() else { return self.observe_provider(view) };
        let Some(kind) = Kind::of(id) else { return };
        self.kinds[kind as usize] += 1;
        let transfers = match id {
            hook_id::DISK_IO_READ => &mut self.read,
            hook_id::DISK_IO_WRITE => &mut self.written,
            hook_id::FILE_IO_READ | hook_id::FILE_IO_WRITE => {
                if number(view, "IoFlags").is_none_or(|flags| flags & PAGING == 0) {
                    self.requested_files.add(view, number(view, "IoSize").unwrap_or(0));
                }
                return;
            }
            _ => return,
        };
        transfers.count += 1;
        let size = number(view, "TransferSize").unwrap_or(0);
        transfers.bytes = transfers.bytes.saturating_add(size);
        self.disk_files.add(view, size);
    }

    fn observe_provider(&mut self, view: &EventView<'_>) {
        let Some(guid) = view.event().guid() else { return };
        if guid == provider_guid::DOT_NET_RUNTIME {
            self.kinds[Kind::DotNet as usize] += 1;
            return self.collections.observe(view);
        }
        if self.providers.len() >= PROVIDERS_MAX && !self.providers.contains_key(&guid) {
            self.other_providers += 1;
            return;
        }
        let name = || (view.provider().into_owned(), 0);
        self.providers.entry(guid).or_insert_with(name).1 += 1;
    }

    /// The number of events of a kind.
    pub fn count(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize]
    }
}
