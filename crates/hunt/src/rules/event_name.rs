//! The names that rules have for events of traces.

use std::sync::LazyLock;

use hashbrown::HashMap;
use stackhound_pipeline::EventView;
use stackhound_rules::EventName;
use stackhound_schema::event_id::{dns_client, kernel_audit_api_calls};
use stackhound_schema::kernel::hook_id::*;
use stackhound_schema::provider_guid;
use stackhound_types::Guid;

/// Names of kernel events by hook id.
const KERNEL_EVENTS: [(u16, &str); 52] = [
    (PROCESS_START, "CreateProcess"),
    (PROCESS_END, "TerminateProcess"),
    (THREAD_START, "CreateThread"),
    (THREAD_END, "TerminateThread"),
    (IMAGE_LOAD, "LoadModule"),
    (IMAGE_LOAD_140A, "LoadModule"),
    (IMAGE_UNLOAD, "UnloadModule"),
    (FILE_IO_CREATE, "CreateFile"),
    (FILE_IO_CREATE_NEW, "CreateFile"),
    (FILE_IO_CLOSE, "CloseFile"),
    (FILE_IO_READ, "ReadFile"),
    (FILE_IO_WRITE, "WriteFile"),
    (FILE_IO_SET_INFO, "SetFileInformation"),
    (FILE_IO_DELETE, "DeleteFile"),
    (FILE_IO_RENAME, "RenameFile"),
    (FILE_IO_DIR_ENUM, "EnumDirectory"),
    (FILE_IO_MAP_FILE, "MapViewFile"),
    (FILE_IO_UNMAP_FILE, "UnmapViewFile"),
    (REGISTRY_CREATE, "RegCreateKey"),
    (REGISTRY_OPEN, "RegOpenKey"),
    (REGISTRY_DELETE, "RegDeleteKey"),
    (REGISTRY_QUERY, "RegQueryKey"),
    (REGISTRY_SET_VALUE, "RegSetValue"),
    (REGISTRY_DELETE_VALUE, "RegDeleteValue"),
    (REGISTRY_QUERY_VALUE, "RegQueryValue"),
    (REGISTRY_CLOSE, "RegCloseKey"),
    (TCP_IP_SEND_IPV4, "Send"),
    (TCP_IP_RECV_IPV4, "Recv"),
    (TCP_IP_CONNECT_IPV4, "Connect"),
    (TCP_IP_DISCONNECT_IPV4, "Disconnect"),
    (TCP_IP_RETRANSMIT_IPV4, "Retransmit"),
    (TCP_IP_ACCEPT_IPV4, "Accept"),
    (TCP_IP_RECONNECT_IPV4, "Reconnect"),
    (TCP_IP_SEND_IPV6, "Send"),
    (TCP_IP_RECV_IPV6, "Recv"),
    (TCP_IP_CONNECT_IPV6, "Connect"),
    (TCP_IP_DISCONNECT_IPV6, "Disconnect"),
    (TCP_IP_RETRANSMIT_IPV6, "Retransmit"),
    (TCP_IP_ACCEPT_IPV6, "Accept"),
    (TCP_IP_RECONNECT_IPV6, "Reconnect"),
    (UDP_IP_SEND_IPV4, "Send"),
    (UDP_IP_RECV_IPV4, "Recv"),
    (UDP_IP_SEND_IPV6, "Send"),
    (UDP_IP_RECV_IPV6, "Recv"),
    (OBJECT_CREATE_HANDLE, "CreateHandle"),
    (OBJECT_CLOSE_HANDLE, "CloseHandle"),
    (OBJECT_DUPLICATE_HANDLE, "DuplicateHandle"),
    (PAGE_FAULT_VIRTUAL_ALLOC, "VirtualAlloc"),
    (PAGE_FAULT_VIRTUAL_FREE, "VirtualFree"),
    (THREAD_POOL_CALLBACK_ENQUEUE, "SubmitThreadpoolWork"),
    (THREAD_POOL_CALLBACK_START, "SubmitThreadpoolCallback"),
    (THREAD_POOL_TIMER_SET_NT_TIMER, "SetThreadpoolTimer"),
];

/// Names of manifest events by provider and id.
const MANIFEST_EVENTS: [(Guid, u16, &str); 6] = [
    (
        provider_guid::KERNEL_AUDIT_API_CALLS,
        kernel_audit_api_calls::CREATE_SYMBOLIC_LINK,
        "CreateSymbolicLinkObject",
    ),
    (provider_guid::KERNEL_AUDIT_API_CALLS, kernel_audit_api_calls::SET_THREAD_CONTEXT, "SetThreadContext"),
    (provider_guid::KERNEL_AUDIT_API_CALLS, kernel_audit_api_calls::OPEN_PROCESS, "OpenProcess"),
    (provider_guid::KERNEL_AUDIT_API_CALLS, kernel_audit_api_calls::OPEN_THREAD, "OpenThread"),
    (provider_guid::DNS_CLIENT, dns_client::DNS_QUERY_START, "QueryDns"),
    (provider_guid::DNS_CLIENT, dns_client::DNS_QUERY_STOP, "ReplyDNS"),
];

static BY_HOOK_ID: LazyLock<HashMap<u16, EventName, foldhash::fast::RandomState>> = LazyLock::new(|| {
    KERNEL_EVENTS.iter().filter_map(|(hook_id, name)| Some((*hook_id, EventName::of(name)?))).collect()
});

static BY_ID: LazyLock<Vec<(Guid, u16, EventName)>> = LazyLock::new(|| {
    MANIFEST_EVENTS.iter().filter_map(|(guid, id, name)| Some((*guid, *id, EventName::of(name)?))).collect()
});

/// The name of an event; `None` if rules have none for it.
pub(super) fn event_name(view: &EventView<'_>) -> Option<EventName> {
    if let Some(hook_id) = view.kernel_id() {
        return BY_HOOK_ID.get(&hook_id).copied();
    }
    let event = view.event();
    if !event.kind().has_descriptor() {
        return None;
    }
    let id = event.entry().tag;
    let mut of_id = BY_ID.iter().filter(|(_, number, _)| *number == id).peekable();
    // The provider is in the record, which is not read for most events.
    of_id.peek()?;
    let guid = event.guid()?;
    of_id.find(|(known, ..)| *known == guid).map(|(.., name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_known() {
        assert_eq!(BY_HOOK_ID.len(), KERNEL_EVENTS.len());
        assert_eq!(BY_ID.len(), MANIFEST_EVENTS.len());
    }
}
