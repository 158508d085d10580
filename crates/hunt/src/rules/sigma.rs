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

/// Whether traces state a value of Sysmon's data for events with this name, if a field has the value.
pub(super) fn has_data(event: &str, name: &str) -> bool {
    match name {
        "OriginalFileName" | "Company" | "Product" | "Description" => event == "CreateProcess",
        "StartAddress" | "StartModule" | "StartFunction" | "TargetProcessId" => event == "CreateThread",
        "Signed" | "Signature" => event == "LoadModule",
        "FileVersion" => false,
        _ => true,
    }
}
