//! Writes rows as JSON, one line each.

use serde::Serialize;
use stackhound_types::HexBytes;

use crate::row::{Action, Actor, Aim, Row};
use crate::time;

/// Writes a row in the flat form with a count of equal events: `event_id`, `calltrace`, `count`,
/// `source_image` and so on. Without the line end.
pub fn flat(row: &Row<'_>) -> String {
    let Row { count, host, time, actor, action } = *row;
    let mut flat =
        Flat { event_id: action.event_id(), utc: time.map(time::text), host, count, ..Flat::default() };
    (flat.pid, flat.tid, flat.process_guid, flat.source_image) =
        (actor.pid, actor.tid, actor.guid, actor.image);
    let data = Data::of(&actor, &action);
    if !matches!(action, Action::ProcessAccess { .. } | Action::RemoteThread { .. }) {
        // In this form, these fields have only the names of Sysmon.
        flat.rest = Some(data);
        return json(&flat);
    }
    (flat.target_image, flat.target_pid) = (data.target_image, data.target_process_id);
    (flat.granted_access, flat.calltrace) = (data.granted_access, data.call_trace);
    (flat.new_thread_id, flat.start_address) = (data.new_thread_id, data.start_address);
    (flat.start_module, flat.start_function) = (data.start_module, data.start_function);
    json(&flat)
}

/// Writes a row as a document of Winlogbeat, which represents one event regardless of the count.
/// Without the line end.
pub fn winlogbeat(row: &Row<'_>) -> String {
    let time = row.time.map(time::text);
    let document = Document {
        timestamp: time.as_ref().map(|time| format!("{}Z", time.replace(' ', "T"))),
        winlog: Winlog {
            provider_name: "Microsoft-Windows-Sysmon",
            channel: "Microsoft-Windows-Sysmon/Operational",
            computer_name: row.host,
            event_id: row.action.event_id(),
            event_data: Data { utc_time: time, ..Data::of(&row.actor, &row.action) },
        },
    };
    json(&document)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers")
}

#[derive(Serialize, Default)]
struct Flat<'a> {
    event_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    utc: Option<String>,
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    process_guid: &'a str,
    source_image: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted_access: Option<String>,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    calltrace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_thread_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_module: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_function: Option<&'a str>,
    #[serde(flatten)]
    rest: Option<Data<'a>>,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "@timestamp", skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    winlog: Winlog<'a>,
}

#[derive(Serialize)]
struct Winlog<'a> {
    provider_name: &'static str,
    channel: &'static str,
    computer_name: &'a str,
    event_id: u32,
    event_data: Data<'a>,
}

/// Sysmon's names.
#[derive(Serialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    utc_time: Option<String>,
    #[serde(rename = "SourceProcessGUID", skip_serializing_if = "Option::is_none")]
    source_process_guid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_process_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_thread_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_guid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_process_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted_access: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_trace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_thread_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_module: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_function: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_loaded: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hashes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature_status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_file_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    company: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    product: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_process_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    integrity_level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_filename: Option<&'a str>,
    #[serde(rename = "Type", skip_serializing_if = "Option::is_none")]
    tampering: Option<&'a str>,
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

impl<'a> Data<'a> {
    fn of(actor: &Actor<'a>, action: &Action<'a>) -> Data<'a> {
        let guid = Some(actor.guid).filter(|guid| !guid.is_empty());
        let aimed = |target: &Aim<'a>| Data {
            source_process_guid: guid,
            source_process_id: actor.pid,
            source_thread_id: actor.tid,
            source_image: Some(actor.image),
            target_process_id: target.pid,
            target_image: Some(target.image),
            ..Data::default()
        };
        let own =
            Data { process_guid: guid, process_id: actor.pid, image: Some(actor.image), ..Data::default() };
        match action {
            Action::ProcessAccess { target, access, call_trace } => Data {
                granted_access: access.map(|access| format!("{access:#x}")),
                call_trace: Some(call_trace),
                ..aimed(target)
            },
            Action::RemoteThread { target, tid, address, module, function } => Data {
                new_thread_id: *tid,
                start_address: Some(format!("0x{address}")),
                start_module: Some(module),
                start_function: Some(function),
                ..aimed(target)
            },
            Action::ImageLoad { path, sha256, stated } => {
                let rest = Data {
                    original_file_name: given(stated.original_file_name),
                    company: given(stated.company),
                    product: given(stated.product),
                    description: given(stated.description),
                    file_version: given(stated.file_version),
                    ..own
                };
                let image = image((path, *sha256, stated.valid_signer()), rest);
                Data {
                    signed: given(stated.signed).or(image.signed),
                    signature: given(stated.signature).or(image.signature),
                    signature_status: given(stated.status).or(image.signature_status),
                    ..image
                }
            }
            // A driver has no process.
            Action::DriverLoad { path, sha256, signer } => image((path, *sha256, signer), Data::default()),
            Action::ProcessCreate { command_line, parent_pid, user, integrity } => Data {
                command_line: Some(command_line),
                parent_process_id: *parent_pid,
                user: Some(user),
                integrity_level: Some(integrity),
                ..own
            },
            Action::ProcessTerminate => own,
            Action::FileCreate { path } => Data { target_filename: Some(path), ..own },
            Action::FileExecutableDetected { path, sha256 } => {
                Data { target_filename: Some(path), hashes: hashes(*sha256), ..own }
            }
            Action::ProcessTampering { kind } => Data { tampering: Some(kind), ..own },
        }
    }
}

type Image<'a> = (&'a str, Option<[u8; 32]>, &'a str);

/// The path, hash and signer of an image.
fn image<'a>((path, sha256, signer): Image<'a>, rest: Data<'a>) -> Data<'a> {
    Data {
        image_loaded: Some(path),
        hashes: hashes(sha256),
        signed: Some(if signer.is_empty() { "false" } else { "true" }),
        signature: Some(signer),
        signature_status: Some(if signer.is_empty() { "Unavailable" } else { "Valid" }),
        ..rest
    }
}

fn hashes(sha256: Option<[u8; 32]>) -> Option<String> {
    sha256.map(|sum| format!("SHA256={:X}", HexBytes(&sum)))
}
