//! The log sources and names of Sigma in events of traces.

use std::sync::LazyLock;

use stackhound_frames::CreateDisposition;
use stackhound_pipeline::EventView;
use stackhound_rules::EventName;

/// The categories of Sigma by the name that rules have for events.
const CATEGORIES: [(&str, &[&str]); 14] = [
    ("CreateProcess", &["sigma.process_creation"]),
    ("TerminateProcess", &["sigma.process_termination"]),
    ("LoadModule", &["sigma.image_load"]),
    ("CreateFile", &["sigma.file_event"]),
    ("DeleteFile", &["sigma.file_delete"]),
    ("RenameFile", &["sigma.file_rename"]),
    ("RegSetValue", &["sigma.registry_set", "sigma.registry_event"]),
    ("RegCreateKey", &["sigma.registry_add", "sigma.registry_event"]),
    ("RegDeleteKey", &["sigma.registry_delete", "sigma.registry_event"]),
    ("RegDeleteValue", &["sigma.registry_delete", "sigma.registry_event"]),
    ("Connect", &["sigma.network_connection"]),
    ("QueryDns", &["sigma.dns_query"]),
    ("OpenProcess", &["sigma.process_access"]),
    ("CreateThread", &["sigma.create_remote_thread"]),
];

/// By the index of the name.
static BY_NAME: LazyLock<Vec<Vec<EventName>>> = LazyLock::new(|| {
    let of = |name: EventName| {
        let found = CATEGORIES.iter().find(|(known, _)| *known == name.name());
        let categories = found.map_or(&[][..], |(_, categories)| categories);
        categories.iter().filter_map(|category| EventName::of(category)).collect()
    };
    EventName::all().map(of).collect()
});

static CREATE_FILE: LazyLock<Option<EventName>> = LazyLock::new(|| EventName::of("CreateFile"));
static CREATE_THREAD: LazyLock<Option<EventName>> = LazyLock::new(|| EventName::of("CreateThread"));

/// The categories of Sigma for an event, by the name that rules have for it.
pub(super) fn categories(name: EventName, view: &EventView<'_>) -> &'static [EventName] {
    let categories = &BY_NAME[name.index()];
    if categories.is_empty()
        || *CREATE_FILE == Some(name) && !is_new_file(view)
        || *CREATE_THREAD == Some(name) && !is_remote(view)
    {
        return &[];
    }
    categories
}

/// Whether an open created or replaced the file.
fn is_new_file(view: &EventView<'_>) -> bool {
    view.create()
        .is_some_and(|create| create.requested != CreateDisposition::Open && !create.end.has_failed())
}

fn is_remote(view: &EventView<'_>) -> bool {
    view.target().is_some_and(|target| target.pid().is_some())
}

/// The name of the event in conditions, of a category.
pub(super) fn event_of(category: &str) -> Option<&'static str> {
    CATEGORIES.iter().find(|(_, categories)| categories.contains(&category)).map(|(name, _)| *name)
}

/// The field of conditions, with its argument, that has the value of a name in Sysmon's data. The catalogue has the names
/// of facts about the process.
pub(super) fn field_of(category: &str, name: &str) -> Option<(&'static str, Option<&'static str>)> {
    let plain = |field| Some((field, None));
    match (category, name) {
        ("sigma.process_access", "TargetImage") => Some(("evt.arg", Some("exe"))),
        ("sigma.process_access", "TargetProcessId") => Some(("evt.arg", Some("pid"))),
        ("sigma.create_remote_thread", "TargetProcessId") => plain("thread.pid"),
        ("sigma.create_remote_thread", "StartAddress") => plain("thread.start_address"),
        ("sigma.create_remote_thread", "StartModule") => plain("thread.start_address.module"),
        ("sigma.create_remote_thread", "StartFunction") => plain("thread.start_address.symbol"),
        (_, "ProcessId" | "SourceProcessId") => plain("evt.pid"),
        (_, "ParentCommandLine") => plain("ps.parent.cmdline"),
        (_, "ParentProcessGuid") => plain("ps.parent.uuid"),
        ("sigma.process_creation", "OriginalFileName") => plain("ps.pe.file.name"),
        ("sigma.process_creation", "Company") => plain("ps.pe.company"),
        ("sigma.process_creation", "Product") => plain("ps.pe.product"),
        ("sigma.process_creation", "Description") => plain("ps.pe.description"),
        (_, "ImageLoaded") => plain("module.path"),
        ("sigma.image_load", "Signed") => plain("module.signature.exists"),
        ("sigma.image_load", "Signature") => plain("module.signature.subject"),
        (_, "TargetFilename") => plain("file.path"),
        (_, "TargetObject") => plain("registry.path"),
        (_, "Details") => plain("registry.data"),
        (_, "DestinationIp") => plain("net.dip"),
        (_, "DestinationPort") => plain("net.dport"),
        (_, "SourceIp") => plain("net.sip"),
        (_, "SourcePort") => plain("net.sport"),
        (_, "Protocol") => plain("net.l4.proto"),
        (_, "QueryName") => plain("dns.name"),
        (_, "QueryResults") => plain("dns.answers"),
        _ => None,
    }
}
