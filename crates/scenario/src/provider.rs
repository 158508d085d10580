//! Providers other than the kernel logger: TraceLogging providers, an EventSource with its manifest
//! in the trace, and kernel providers with manifests.

use stackhound_etl::record::Descriptor;
use stackhound_schema::kernel::class_guid;
use stackhound_schema::provider_guid;
use stackhound_types::{FileTime, Guid, Pid, PointerSize};

use crate::event::EventKind;
use crate::machine::{Machine, ProcessIndex};
use crate::payload::{self, Payload};

/// An event of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProviderEvent {
    /// TraceLogging in 64-bit processes: the progress of a download, in bytes.
    DownloadProgress(u64),
    /// TraceLogging in 32-bit processes.
    SyncState(u32),
    /// A chunk of the EventSource manifest.
    Manifest(u16),
    NavigationStart(u32),
    NavigationStop(u32),
    CacheLookup(u64),
    /// Kernel audit: a process was opened.
    OpenProcess(Pid),
    /// Kernel: a thread was started. Its process, and its index in the process.
    ThreadStart(ProcessIndex, usize),
    /// Kernel: a process was started. Only if ids are used again.
    ProcessStart(ProcessIndex, FileTime),
}

/// The extended data item with the stack of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extended {
    None,
    /// User frames.
    User,
    /// 32-bit user frames.
    User32,
    /// Kernel and user frames.
    Both,
    /// Kernel frames. The user frames are in a later event with the same match id.
    Kernel,
}

/// Identifies an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub provider: Guid,
    pub descriptor: Descriptor,
}

impl Identity {
    pub fn kind(&self) -> EventKind {
        EventKind::Provider(self.provider, self.descriptor.id)
    }
}

const DOWNLOAD: Guid =
    Guid::new(0x6d1f_0b52, 0x93c4, 0x5e0a, [0xa1, 0x7d, 0x42, 0x5b, 0x8e, 0x60, 0x1c, 0x39]);
const SYNC: Guid = Guid::new(0x2f8a_7c15, 0x41de, 0x5b93, [0x8c, 0x04, 0xd7, 0x19, 0x6b, 0xe2, 0x55, 0xf0]);
const BROWSER: Guid =
    Guid::new(0x81b4_e6d3, 0x0a27, 0x5c48, [0x9f, 0x12, 0x3e, 0xc5, 0x70, 0xad, 0x24, 0x6e]);
const KERNEL_PROCESS: Guid = provider_guid::KERNEL_PROCESS;
const KERNEL_AUDIT: Guid = provider_guid::KERNEL_AUDIT_API_CALLS;
const KERNEL_EVENT_TRACING: Guid = provider_guid::KERNEL_EVENT_TRACING;
/// The class of the events about the system that tools add to a trace.
pub(crate) const SYSTEM_CONFIGURATION: Guid = class_guid::SYS_CONFIG_EX;
pub(crate) const SYSTEM_PATHS: u8 = 33;
pub(crate) const VOLUME_MAPPING: u8 = 35;
/// The provider of the .NET runtime.
pub const RUNTIME: Guid = provider_guid::DOT_NET_RUNTIME;
pub(crate) const RUNTIME_RUNDOWN: Guid = provider_guid::DOT_NET_RUNTIME_RUNDOWN;
pub(crate) const ALLOCATION_TICK: u16 = 10;
/// Id of its event for a JIT-compiled method (`MethodLoadVerbose`).
pub const METHOD_LOAD: u16 = 143;
pub(crate) const METHOD_RUNDOWN: u16 = 144;

pub(crate) fn classic_name(class: Guid, opcode: u8) -> Option<&'static str> {
    match (class, opcode) {
        (SYSTEM_CONFIGURATION, SYSTEM_PATHS) => Some("SysConfigEx/SystemPaths"),
        (SYSTEM_CONFIGURATION, VOLUME_MAPPING) => Some("SysConfigEx/VolumeMapping"),
        _ => None,
    }
}

pub(crate) fn event_name(provider: Guid, id: u16) -> Option<&'static str> {
    match (provider, id) {
        (DOWNLOAD, 0) => Some("Contoso.Download/Progress"),
        (SYNC, 0) => Some("Contoso.Sync/State"),
        (BROWSER, MANIFEST_ID) => Some("Contoso-Browser/ManifestData"),
        (BROWSER, 1) => Some("Contoso-Browser/NavigationStart"),
        (BROWSER, 2) => Some("Contoso-Browser/NavigationStop"),
        (BROWSER, 3) => Some("Contoso-Browser/CacheLookup"),
        (KERNEL_PROCESS, 1) => Some("Microsoft-Windows-Kernel-Process/ProcessStart"),
        (KERNEL_PROCESS, 3) => Some("Microsoft-Windows-Kernel-Process/ThreadStart"),
        (KERNEL_AUDIT, 5) => Some("Microsoft-Windows-Kernel-Audit-API-Calls/OpenProcess"),
        (KERNEL_EVENT_TRACING, 18) => Some("Microsoft-Windows-Kernel-EventTracing/UserStack"),
        (RUNTIME, ALLOCATION_TICK) => Some("Microsoft-Windows-DotNETRuntime/GC/AllocationTick"),
        (RUNTIME, METHOD_LOAD) => Some("Microsoft-Windows-DotNETRuntime/Method/LoadVerbose"),
        (RUNTIME_RUNDOWN, METHOD_RUNDOWN) => {
            Some("Microsoft-Windows-DotNETRuntimeRundown/Method/DCEndVerbose")
        }
        _ => None,
    }
}

/// The id and task of the events that contain a manifest.
const MANIFEST_ID: u16 = 0xfffe;
/// Event that contains only the user stack of an earlier event.
pub(crate) const USER_STACK: Identity = Identity {
    provider: KERNEL_EVENT_TRACING,
    descriptor: Descriptor { id: 18, version: 0, channel: 16, level: 4, opcode: 24, task: 0, keyword: 0x10 },
};

impl ProviderEvent {
    pub fn identity(self) -> Identity {
        let descriptor = |id, channel, opcode, task, keyword| Descriptor {
            id,
            version: 0,
            channel,
            level: 4,
            opcode,
            task,
            keyword,
        };
        let (provider, descriptor) = match self {
            ProviderEvent::DownloadProgress(_) => (DOWNLOAD, descriptor(0, 11, 0, 0, 0x1)),
            ProviderEvent::SyncState(_) => (SYNC, descriptor(0, 11, 0, 0, 0)),
            ProviderEvent::Manifest(_) => (BROWSER, descriptor(MANIFEST_ID, 0, 0xfe, MANIFEST_ID, 0)),
            ProviderEvent::NavigationStart(_) => (BROWSER, descriptor(1, 0, 1, 1, 0x1)),
            ProviderEvent::NavigationStop(_) => (BROWSER, descriptor(2, 0, 2, 1, 0x1)),
            ProviderEvent::CacheLookup(_) => (BROWSER, descriptor(3, 0, 0, 2, 0x2)),
            ProviderEvent::OpenProcess(_) => (KERNEL_AUDIT, descriptor(5, 16, 0, 0, 0)),
            ProviderEvent::ThreadStart(..) => {
                (KERNEL_PROCESS, Descriptor { version: 1, ..descriptor(3, 16, 1, 3, 0x20) })
            }
            ProviderEvent::ProcessStart(..) => {
                (KERNEL_PROCESS, Descriptor { version: 3, ..descriptor(1, 16, 1, 1, 0x10) })
            }
        };
        Identity { provider, descriptor }
    }

    pub fn extended(self) -> Extended {
        match self {
            ProviderEvent::DownloadProgress(_) | ProviderEvent::NavigationStart(_) => Extended::User,
            ProviderEvent::SyncState(_) => Extended::User32,
            ProviderEvent::OpenProcess(_) => Extended::Both,
            ProviderEvent::ThreadStart(..) => Extended::Kernel,
            ProviderEvent::Manifest(_)
            | ProviderEvent::NavigationStop(_)
            | ProviderEvent::CacheLookup(_)
            | ProviderEvent::ProcessStart(..) => Extended::None,
        }
    }

    pub fn pointer_size(self) -> PointerSize {
        if let ProviderEvent::SyncState(_) = self { PointerSize::Four } else { PointerSize::Eight }
    }

    pub fn payload(self, out: &mut Payload, providers: &Providers, machine: &Machine) {
        match self {
            ProviderEvent::DownloadProgress(bytes) => {
                out.utf16("https://update.contoso.example/feed").u64(bytes).u32(0x0024_0007);
            }
            ProviderEvent::SyncState(items) => {
                // A counted string, a pointer, an array of two numbers.
                out.u16(7).bytes(b"pending").pointer(0x0314_2a80, PointerSize::Four).u16(2).u32(items).u32(3);
            }
            ProviderEvent::Manifest(chunk) => {
                let mut pieces = providers.manifest.chunks(MANIFEST_CHUNK);
                let total = pieces.len() as u16;
                out.bytes(&[1, 1, 0, 0x5b]).u16(total).u16(chunk);
                out.bytes(pieces.nth(chunk.into()).unwrap_or_default());
            }
            ProviderEvent::NavigationStart(tab) => {
                out.u32(tab).utf16("https://www.contoso.example/start");
            }
            ProviderEvent::NavigationStop(tab) => {
                out.u32(tab).u64(312.5f64.to_bits()).u64(48_211);
            }
            ProviderEvent::CacheLookup(key) => {
                out.u64(key).u32((key & 1) as u32);
            }
            ProviderEvent::OpenProcess(pid) => {
                // PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_QUERY_INFORMATION, PROCESS_VM_WRITE,
                // PROCESS_VM_READ, PROCESS_VM_OPERATION.
                out.u32(pid.0).u32(0x1438).u32(0);
            }
            ProviderEvent::ThreadStart(process, index_in_process) => {
                let process = &machine.processes[process].facts;
                payload::thread_start(out, process.pid, &process.threads[index_in_process]);
            }
            ProviderEvent::ProcessStart(process, time) => {
                let process = &machine.processes[process];
                let program = process.role.code().0.map(|image| &machine.images[image.index() as usize]);
                payload::process_start(out, &process.facts, program, time);
            }
        }
    }

    /// The metadata of TraceLogging events: schema and traits.
    pub fn metadata(self, providers: &Providers) -> Option<(&[u8], &[u8])> {
        let metadata = match self {
            ProviderEvent::DownloadProgress(_) => &providers.download,
            ProviderEvent::SyncState(_) => &providers.sync,
            _ => return None,
        };
        Some((&metadata.schema, &metadata.traits))
    }
}

/// Size of a manifest chunk, in bytes.
const MANIFEST_CHUNK: usize = 640;

/// The encoded metadata of all providers.
#[derive(Debug)]
pub(crate) struct Providers {
    download: Metadata,
    sync: Metadata,
    manifest: Vec<u8>,
}

#[derive(Debug)]
struct Metadata {
    schema: Vec<u8>,
    traits: Vec<u8>,
}

/// Type codes of TraceLogging fields.
mod field {
    pub const UNICODE_STRING: u8 = 1;
    pub const U32: u8 = 8;
    pub const U64: u8 = 10;
    pub const POINTER: u8 = 16;
    pub const HEX32: u8 = 20;
    pub const COUNTED_ANSI: u8 = 23;
    pub const ARRAY: u8 = 0x40;
    /// An out type follows.
    pub const CHAIN: u8 = 0x80;
    pub const HRESULT: u8 = 15;
    pub const UTF8: u8 = 35;
}

impl Providers {
    pub fn new() -> Providers {
        use field::{ARRAY, CHAIN, COUNTED_ANSI, HEX32, HRESULT, POINTER, U32, U64, UNICODE_STRING, UTF8};
        let metadata = |name, event, fields: &[(&str, &[u8])]| {
            let mut schema = vec![0];
            schema.extend(zero_ended(event));
            for (name, kind) in fields {
                schema.extend(zero_ended(name));
                schema.extend(*kind);
            }
            Metadata { schema: sized(schema), traits: sized(zero_ended(name)) }
        };
        Providers {
            download: metadata(
                "Contoso.Download",
                "Progress",
                &[("Url", &[UNICODE_STRING]), ("Bytes", &[U64]), ("Status", &[HEX32 | CHAIN, HRESULT])],
            ),
            sync: metadata(
                "Contoso.Sync",
                "State",
                &[("Name", &[COUNTED_ANSI | CHAIN, UTF8]), ("Queue", &[POINTER]), ("Items", &[U32 | ARRAY])],
            ),
            manifest: manifest().into_bytes(),
        }
    }

    /// Number of events for the manifest.
    pub fn manifest_chunks(&self) -> u16 {
        self.manifest.chunks(MANIFEST_CHUNK).len() as u16
    }
}

fn zero_ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// A block, preceded by its size, which includes itself.
fn sized(block: Vec<u8>) -> Vec<u8> {
    let size = block.len() as u16 + 2;
    [&size.to_le_bytes()[..], &block].concat()
}

/// The manifest of the EventSource, as the runtime writes it.
fn manifest() -> String {
    let field = |name: &str, kind: &str| format!("     <data name=\"{name}\" inType=\"win:{kind}\"/>\n");
    let template = |event: &str, fields: &[(&str, &str)]| {
        let fields: String = fields.iter().map(|(name, kind)| field(name, kind)).collect();
        format!("    <template tid=\"{event}Args\">\n{fields}    </template>\n")
    };
    let event = |id: u16, name: &str, task: &str, opcode: &str| {
        format!(
            "    <event value=\"{id}\" version=\"0\" level=\"win:Informational\" symbol=\"{name}\" task=\"{task}\"\
             {opcode} template=\"{name}Args\"/>\n"
        )
    };
    let templates = [
        template("NavigationStart", &[("tab", "Int32"), ("url", "UnicodeString")]),
        template("NavigationStop", &[("tab", "Int32"), ("milliseconds", "Double"), ("bytes", "Int64")]),
        template("CacheLookup", &[("key", "UInt64"), ("hit", "Boolean")]),
    ];
    let events = [
        event(1, "NavigationStart", "Navigation", " opcode=\"win:Start\""),
        event(2, "NavigationStop", "Navigation", " opcode=\"win:Stop\""),
        event(3, "CacheLookup", "CacheLookup", ""),
    ];
    format!(
        "<instrumentationManifest xmlns=\"http://schemas.microsoft.com/win/2004/08/events\">\n \
         <instrumentation xmlns:win=\"http://manifests.microsoft.com/win/2004/08/windows/events\">\n  \
         <events>\n   <provider name=\"Contoso-Browser\" guid=\"{{{BROWSER}}}\" symbol=\"ContosoBrowser\" \
         resourceFileName=\"Contoso-Browser\" messageFileName=\"Contoso-Browser\">\n   <tasks>\n    \
         <task name=\"Navigation\" message=\"$(string.task_Navigation)\" value=\"1\"/>\n    \
         <task name=\"CacheLookup\" message=\"$(string.task_CacheLookup)\" value=\"2\"/>\n   </tasks>\n   \
         <keywords>\n    <keyword name=\"Navigation\" mask=\"0x1\"/>\n    <keyword name=\"Cache\" mask=\"0x2\"/>\n   \
         </keywords>\n   <events>\n{}   </events>\n   <templates>\n{}   </templates>\n   </provider>\n  </events>\n \
         </instrumentation>\n <localization>\n  <resources culture=\"en-US\">\n   <stringTable>\n    \
         <string id=\"task_Navigation\" value=\"Navigation\"/>\n    \
         <string id=\"task_CacheLookup\" value=\"CacheLookup\"/>\n   </stringTable>\n  </resources>\n \
         </localization>\n</instrumentationManifest>\n",
        events.concat(),
        templates.concat(),
    )
}
