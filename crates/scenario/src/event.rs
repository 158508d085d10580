//! The kinds of records in a scenario: kernel events with their versions and headers, and the names
//! of all kinds.
#![expect(missing_docs, reason = "the names are those of the events")]

use std::fmt;

use stackhound_etl::write::{HeaderSpec, Issuer};
use stackhound_schema::kernel::hook_id;
use stackhound_types::Guid;

use crate::provider;

/// A kernel event as Windows 10 logs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelEvent {
    pub hook_id: u16,
    pub version: u8,
    /// Whether the header contains thread and process.
    pub has_ids: bool,
    name: &'static str,
}

impl KernelEvent {
    pub fn kind(self) -> EventKind {
        EventKind::Kernel(self.hook_id)
    }

    /// The header of a record of the event.
    pub fn header(self, issuer: Issuer) -> HeaderSpec<'static> {
        let KernelEvent { hook_id, version, .. } = self;
        if self.has_ids {
            HeaderSpec::System { hook_id, version, issuer }
        } else {
            HeaderSpec::PerfInfo { hook_id, version, pebs_index: None, counters: &[] }
        }
    }

    /// The event with thread and process in its header.
    pub fn with_ids(self) -> KernelEvent {
        KernelEvent { has_ids: true, ..self }
    }
}

const fn with_ids(hook_id: u16, version: u8, name: &'static str) -> KernelEvent {
    KernelEvent { hook_id, version, has_ids: true, name }
}

const fn without_ids(hook_id: u16, version: u8, name: &'static str) -> KernelEvent {
    KernelEvent { hook_id, version, has_ids: false, name }
}

pub(crate) const HEADER: KernelEvent = with_ids(hook_id::EVENT_TRACE_HEADER, 2, "EventTrace/Header");
pub const EXTENSION: KernelEvent = without_ids(hook_id::EVENT_TRACE_EXTENSION, 2, "EventTrace/Extension");
pub const RUNDOWN_COMPLETE: KernelEvent =
    without_ids(hook_id::EVENT_TRACE_RD_COMPLETE, 2, "EventTrace/RDComplete");
pub const END_EXTENSION: KernelEvent =
    without_ids(hook_id::EVENT_TRACE_END_EXTENSION, 2, "EventTrace/EndExtension");
pub const PARTITION_INFO: KernelEvent =
    with_ids(hook_id::EVENT_TRACE_PARTITION_INFO_EXTENSION, 2, "EventTrace/PartitionInfoExtension");
pub(crate) const DISK_READ: KernelEvent = without_ids(hook_id::DISK_IO_READ, 3, "DiskIo/Read");
pub(crate) const DISK_WRITE: KernelEvent = without_ids(hook_id::DISK_IO_WRITE, 3, "DiskIo/Write");
pub(crate) const DISK_READ_INIT: KernelEvent = with_ids(hook_id::DISK_IO_READ_INIT, 3, "DiskIo/ReadInit");
pub(crate) const DISK_WRITE_INIT: KernelEvent = with_ids(hook_id::DISK_IO_WRITE_INIT, 3, "DiskIo/WriteInit");
pub(crate) const HARD_FAULT: KernelEvent =
    without_ids(hook_id::PAGE_FAULT_HARD_FAULT, 2, "PageFault/HardFault");
pub const VIRTUAL_ALLOC: KernelEvent =
    without_ids(hook_id::PAGE_FAULT_VIRTUAL_ALLOC, 2, "PageFault/VirtualAlloc");
pub(crate) const VIRTUAL_FREE: KernelEvent =
    without_ids(hook_id::PAGE_FAULT_VIRTUAL_FREE, 2, "PageFault/VirtualFree");
pub(crate) const PROCESS_START: KernelEvent = with_ids(hook_id::PROCESS_START, 4, "Process/Start");
pub(crate) const PROCESS_END: KernelEvent = with_ids(hook_id::PROCESS_END, 4, "Process/End");
pub const PROCESS_DC_START: KernelEvent = without_ids(hook_id::PROCESS_DC_START, 4, "Process/DCStart");
pub(crate) const PROCESS_DC_END: KernelEvent = without_ids(hook_id::PROCESS_DC_END, 4, "Process/DCEnd");
pub const IMAGE_LOAD: KernelEvent = with_ids(hook_id::IMAGE_LOAD, 3, "Image/Load");
pub(crate) const PROCESS_TERMINATE: KernelEvent =
    with_ids(hook_id::PROCESS_TERMINATE, 2, "Process/Terminate");
pub(crate) const FILE_NAME_CREATE: KernelEvent =
    without_ids(hook_id::FILE_IO_FILE_CREATE, 2, "FileIo/FileCreate");
pub(crate) const FILE_NAME_DELETE: KernelEvent =
    without_ids(hook_id::FILE_IO_FILE_DELETE, 2, "FileIo/FileDelete");
pub(crate) const FILE_NAME_RUNDOWN: KernelEvent =
    without_ids(hook_id::FILE_IO_FILE_RUNDOWN, 2, "FileIo/FileRundown");
pub(crate) const FILE_CREATE: KernelEvent = without_ids(hook_id::FILE_IO_CREATE, 3, "FileIo/Create");
pub(crate) const FILE_CLEANUP: KernelEvent = without_ids(hook_id::FILE_IO_CLEANUP, 3, "FileIo/Cleanup");
pub(crate) const FILE_CLOSE: KernelEvent = without_ids(hook_id::FILE_IO_CLOSE, 3, "FileIo/Close");
pub(crate) const FILE_READ: KernelEvent = without_ids(hook_id::FILE_IO_READ, 3, "FileIo/Read");
pub(crate) const FILE_WRITE: KernelEvent = without_ids(hook_id::FILE_IO_WRITE, 3, "FileIo/Write");
pub(crate) const FILE_OPERATION_END: KernelEvent =
    without_ids(hook_id::FILE_IO_OPERATION_END, 3, "FileIo/OperationEnd");
pub const THREAD_START: KernelEvent = with_ids(hook_id::THREAD_START, 3, "Thread/Start");
pub(crate) const THREAD_END: KernelEvent = with_ids(hook_id::THREAD_END, 3, "Thread/End");
pub const THREAD_DC_START: KernelEvent = with_ids(hook_id::THREAD_DC_START, 3, "Thread/DCStart");
pub(crate) const THREAD_DC_END: KernelEvent = with_ids(hook_id::THREAD_DC_END, 3, "Thread/DCEnd");
pub const CONTEXT_SWITCH: KernelEvent = without_ids(hook_id::THREAD_C_SWITCH, 4, "Thread/CSwitch");
pub(crate) const READY_THREAD: KernelEvent =
    without_ids(hook_id::THREAD_READY_THREAD, 2, "Thread/ReadyThread");
pub(crate) const TCP_SEND: KernelEvent = without_ids(hook_id::TCP_IP_SEND_IPV4, 2, "TcpIp/SendIPV4");
pub(crate) const TCP_RECEIVE: KernelEvent = without_ids(hook_id::TCP_IP_RECV_IPV4, 2, "TcpIp/RecvIPV4");
pub(crate) const REGISTRY_CREATE: KernelEvent = with_ids(hook_id::REGISTRY_CREATE, 2, "Registry/Create");
pub(crate) const REGISTRY_OPEN: KernelEvent = with_ids(hook_id::REGISTRY_OPEN, 2, "Registry/Open");
pub(crate) const REGISTRY_SET_VALUE: KernelEvent =
    with_ids(hook_id::REGISTRY_SET_VALUE, 2, "Registry/SetValue");
pub(crate) const REGISTRY_QUERY_VALUE: KernelEvent =
    with_ids(hook_id::REGISTRY_QUERY_VALUE, 2, "Registry/QueryValue");
pub(crate) const KCB_CREATE: KernelEvent = with_ids(hook_id::REGISTRY_KCB_CREATE, 2, "Registry/KCBCreate");
pub(crate) const KCB_DELETE: KernelEvent = with_ids(hook_id::REGISTRY_KCB_DELETE, 2, "Registry/KCBDelete");
pub(crate) const KCB_RUNDOWN_BEGIN: KernelEvent =
    without_ids(hook_id::REGISTRY_KCB_RUNDOWN_BEGIN, 2, "Registry/KCBRundownBegin");
pub(crate) const KCB_RUNDOWN_END: KernelEvent =
    without_ids(hook_id::REGISTRY_KCB_RUNDOWN_END, 2, "Registry/KCBRundownEnd");
pub(crate) const REGISTRY_CLOSE: KernelEvent = with_ids(hook_id::REGISTRY_CLOSE, 2, "Registry/Close");
pub(crate) const CPU: KernelEvent = with_ids(hook_id::SYSTEM_CONFIG_CPU, 3, "SystemConfig/CPU");
pub const SAMPLED_PROFILE: KernelEvent =
    without_ids(hook_id::PERF_INFO_SAMPLED_PROFILE, 2, "PerfInfo/SampledProfile");
pub const SYSTEM_CALL_ENTER: KernelEvent =
    without_ids(hook_id::PERF_INFO_SYS_CALL_ENTER, 2, "PerfInfo/SysCallEnter");
pub const SYSTEM_CALL_EXIT: KernelEvent =
    without_ids(hook_id::PERF_INFO_SYS_CALL_EXIT, 2, "PerfInfo/SysCallExit");
pub(crate) const INTERRUPT: KernelEvent = without_ids(hook_id::PERF_INFO_ISR, 2, "PerfInfo/ISR");
pub(crate) const DEFERRED_CALL: KernelEvent = without_ids(hook_id::PERF_INFO_DPC, 2, "PerfInfo/DPC");
pub(crate) const TIMER_DEFERRED_CALL: KernelEvent =
    without_ids(hook_id::PERF_INFO_TIMER_DPC, 2, "PerfInfo/TimerDPC");
pub(crate) const SAMPLING_INTERVAL_START: KernelEvent = with_ids(
    hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START,
    3,
    "PerfInfo/SampledProfileIntervalCollectionStart",
);
pub(crate) const SAMPLING_INTERVAL_END: KernelEvent = with_ids(
    hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_END,
    3,
    "PerfInfo/SampledProfileIntervalCollectionEnd",
);
pub const IMAGE_UNLOAD: KernelEvent = with_ids(hook_id::IMAGE_UNLOAD, 3, "Image/Unload");
/// A loaded image of a process, in the rundown.
pub const IMAGE_DC_START: KernelEvent = without_ids(hook_id::IMAGE_DC_START, 3, "Image/DCStart");
pub(crate) const IMAGE_DC_END: KernelEvent = without_ids(hook_id::IMAGE_DC_END, 3, "Image/DCEnd");

/// Stack records, which the writer creates.
const STACK_RECORDS: [KernelEvent; 5] = [
    without_ids(hook_id::STACK_WALK_STACK, 2, "StackWalk/Stack"),
    without_ids(hook_id::STACK_WALK_KEY_DELETE, 2, "StackWalk/KeyDelete"),
    without_ids(hook_id::STACK_WALK_KEY_RUNDOWN, 2, "StackWalk/KeyRundown"),
    without_ids(hook_id::STACK_WALK_KEY_KERNEL, 2, "StackWalk/KeyKernel"),
    without_ids(hook_id::STACK_WALK_KEY_USER, 2, "StackWalk/KeyUser"),
];

#[rustfmt::skip]
const KERNEL_EVENTS: [KernelEvent; 56] = [
    HEADER, EXTENSION, RUNDOWN_COMPLETE, END_EXTENSION, PARTITION_INFO, DISK_READ, DISK_WRITE, DISK_READ_INIT, DISK_WRITE_INIT,
    HARD_FAULT, VIRTUAL_ALLOC, VIRTUAL_FREE, PROCESS_START, PROCESS_END, PROCESS_DC_START, PROCESS_DC_END,
    IMAGE_LOAD, PROCESS_TERMINATE, FILE_NAME_CREATE, FILE_NAME_DELETE, FILE_NAME_RUNDOWN, FILE_CREATE,
    FILE_CLEANUP, FILE_CLOSE, FILE_READ, FILE_WRITE, FILE_OPERATION_END, THREAD_START, THREAD_END,
    THREAD_DC_START, THREAD_DC_END, CONTEXT_SWITCH, READY_THREAD, TCP_SEND, TCP_RECEIVE, REGISTRY_CREATE,
    REGISTRY_OPEN, REGISTRY_SET_VALUE, REGISTRY_QUERY_VALUE, KCB_CREATE, KCB_DELETE, KCB_RUNDOWN_BEGIN,
    KCB_RUNDOWN_END, REGISTRY_CLOSE, CPU, SAMPLED_PROFILE, SYSTEM_CALL_ENTER, SYSTEM_CALL_EXIT, INTERRUPT,
    DEFERRED_CALL, TIMER_DEFERRED_CALL, SAMPLING_INTERVAL_START, SAMPLING_INTERVAL_END, IMAGE_UNLOAD, IMAGE_DC_START, IMAGE_DC_END,
];

/// The kind of a record, from its header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A kernel event, by its hook id.
    Kernel(u16),
    /// A classic event, by its class and opcode.
    Classic(Guid, u8),
    /// An event of a provider, by its id. All TraceLogging events have the id 0.
    Provider(Guid, u16),
}

impl EventKind {
    /// The name, such as `Thread/CSwitch`; `?` for a kind that does not occur in scenarios.
    pub fn name(self) -> &'static str {
        let found = match self {
            EventKind::Kernel(hook_id) => {
                let mut events = KERNEL_EVENTS.iter().chain(&STACK_RECORDS);
                events.find(|event| event.hook_id == hook_id).map(|event| event.name)
            }
            EventKind::Classic(class, opcode) => provider::classic_name(class, opcode),
            EventKind::Provider(provider, id) => provider::event_name(provider, id),
        };
        found.unwrap_or("?")
    }
}

impl fmt::Debug for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
