//! Compares the generated constants of hook ids, GUIDs and event ids with the tables that they are
//! generated from. With `STACKHOUND_WRITE_CONSTANTS=1`, writes them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use stackhound_types::Guid;

use crate::provider::EventDescription;
use crate::{builtin, kernel, provider_guid};

/// Uppercase words separated by `_`. A word begins at an uppercase letter after a lowercase letter
/// or digit, and at the last of several uppercase letters if a lowercase letter follows it.
fn constant_name(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        if !letter.is_ascii_alphanumeric() {
            out.push('_');
            continue;
        }
        if let Some(before) = at.checked_sub(1).map(|at| letters[at]) {
            let ends_word = before.is_ascii_lowercase() || before.is_ascii_digit();
            let ends_acronym =
                before.is_ascii_uppercase() && letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
            if letter.is_ascii_uppercase() && (ends_word || ends_acronym) {
                out.push('_');
            }
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

fn hook_ids() -> String {
    let mut names = BTreeMap::new();
    for event in kernel::events() {
        let Some(hook_id) = event.hook_id else { continue };
        let mut name = constant_name(event.name);
        if names.contains_key(&name) {
            write!(name, "_{hook_id:04X}").expect("writing to a string cannot fail");
        }
        assert_eq!(names.insert(name, hook_id), None, "{} is named twice", event.name);
    }
    let mut ids: Vec<(u16, String)> = names.into_iter().map(|(name, hook_id)| (hook_id, name)).collect();
    ids.sort_unstable();
    ids.iter().map(|(hook_id, name)| format!("pub const {name}: u16 = {hook_id:#06x};\n")).collect()
}

fn guids(named: impl Iterator<Item = (String, Guid)>) -> String {
    let mut names = BTreeMap::new();
    for (name, guid) in named {
        assert!(names.insert(name.clone(), guid).is_none_or(|other| other == guid), "{name} is named twice");
    }
    let digits = |guid: Guid| guid.to_string().replace('-', "_");
    let line = |(name, guid)| format!("pub const {name}: Guid = Guid::from_u128(0x{});\n", digits(guid));
    names.into_iter().map(line).collect()
}

fn classes() -> String {
    guids(kernel::events().map(|event| {
        let (class, _) = event.name.split_once('/').expect("a name of the form Class/Type");
        (constant_name(class), event.class)
    }))
}

/// The name of the constant for a provider.
fn provider_name(name: &str) -> String {
    let name = name.strip_prefix("Microsoft-").unwrap_or(name);
    constant_name(name.strip_prefix("Windows-").unwrap_or(name))
}

fn providers() -> String {
    guids(builtin::providers().map(|provider| (provider_name(&provider.name), provider.guid)))
}

/// The events of providers that code of this project reads.
const READ: &[(Guid, &[u16])] = &[
    (provider_guid::DNS_CLIENT, &[3006, 3008]),
    (
        provider_guid::DOT_NET_RUNTIME,
        &[1, 2, 3, 9, 137, 138, 139, 140, 141, 142, 143, 144, 145, 149, 150, 151, 152, 153],
    ),
    (provider_guid::DOT_NET_RUNTIME_RUNDOWN, &[141, 142, 143, 144, 151, 152, 153, 154]),
    (provider_guid::KERNEL_AUDIT_API_CALLS, &[2, 3, 4, 5, 6]),
    (provider_guid::KERNEL_EVENT_TRACING, &[18]),
    (provider_guid::KERNEL_FILE, &[10, 12, 13, 15, 16, 23, 24, 25, 26, 27, 29, 30, 31, 34]),
    (provider_guid::KERNEL_PROCESS, &[1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 15]),
    (provider_guid::NDIS_PACKET_CAPTURE, &[1001]),
    (provider_guid::PKT_MON, &[160, 170]),
];

/// The name of the constant for an event: `PROCESS_START` for `ProcessStart/Start`.
fn event_constant(event: &EventDescription) -> String {
    let name = &*event.schema.event_name;
    match name.split_once('/') {
        Some((task, opcode)) if task.ends_with(opcode) => constant_name(task),
        _ => constant_name(name),
    }
}

fn event_ids() -> String {
    let mut out = String::new();
    for (guid, ids) in READ {
        let provider = builtin::provider(*guid).expect("a provider with a table");
        let module = provider_name(&provider.name).to_lowercase();
        writeln!(out, "pub mod {module} {{").expect("writing to a string cannot fail");
        for &id in *ids {
            let event = provider.events.iter().find(|event| event.id == id);
            let event = event.unwrap_or_else(|| panic!("{module} has no event {id}"));
            let mut name = event_constant(event);
            // The first event with a name has it alone.
            if provider.events.iter().any(|other| other.id < id && event_constant(other) == name) {
                write!(name, "_{id}").expect("writing to a string cannot fail");
            }
            writeln!(out, "    pub const {name}: u16 = {id};").expect("writing to a string cannot fail");
        }
        out.push_str("}\n");
    }
    out
}

/// Only the constants are generated; the text before the first one is written by hand.
#[track_caller]
fn check(file: &str, constants: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let text = std::fs::read_to_string(&path).expect("a readable source file");
    let head = text.find("\n\npub ").map_or(&*text, |at| &text[..at + 2]);
    if std::env::var_os("STACKHOUND_WRITE_CONSTANTS").is_some() {
        std::fs::write(&path, format!("{head}{constants}")).expect("a writable source file");
    } else {
        assert!(
            &text[head.len()..] == constants,
            "{file} is out of date: run this test with STACKHOUND_WRITE_CONSTANTS=1"
        );
    }
}

#[test]
fn constants_match_the_tables() {
    check("kernel/hook_id.rs", &hook_ids());
    check("kernel/class_guid.rs", &classes());
    check("provider_guid.rs", &providers());
    check("event_id.rs", &event_ids());
}

#[test]
fn names_are_split_into_words() {
    for (name, expected) in [
        ("PerfInfo/SampledProfile", "PERF_INFO_SAMPLED_PROFILE"),
        ("PerfInfo/IOTimer", "PERF_INFO_IO_TIMER"),
        ("TcpIp/SendIPV4", "TCP_IP_SEND_IPV4"),
        ("EventTrace/DbgIdNB10", "EVENT_TRACE_DBG_ID_NB10"),
        ("Kernel-Audit-API-Calls", "KERNEL_AUDIT_API_CALLS"),
    ] {
        assert_eq!(constant_name(name), expected);
    }
}

/// The container crate defines the ids that it needs itself, because it does not depend on this
/// crate.
#[test]
fn the_container_has_the_same_ids() {
    use kernel::hook_id::*;
    use stackhound_etl::hook_id as etl;
    for (of_container, of_tables) in [
        (etl::EVENT_TRACE_HEADER, EVENT_TRACE_HEADER),
        (etl::STACK_WALK_STACK, STACK_WALK_STACK),
        (etl::STACK_WALK_KEY_CREATE, STACK_WALK_KEY_CREATE),
        (etl::STACK_WALK_KEY_DELETE, STACK_WALK_KEY_DELETE),
        (etl::STACK_WALK_KEY_RUNDOWN, STACK_WALK_KEY_RUNDOWN),
        (etl::STACK_WALK_KEY_KERNEL, STACK_WALK_KEY_KERNEL),
        (etl::STACK_WALK_KEY_USER, STACK_WALK_KEY_USER),
        (etl::SYSTEM_CONFIG_CPU, SYSTEM_CONFIG_CPU),
    ] {
        assert_eq!(of_container, of_tables);
    }
}
