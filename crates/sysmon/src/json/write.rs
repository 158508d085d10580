//! Writes rows as JSON, one line each.

use serde_json::Value;
use stackhound_types::HexBytes;

use crate::field::Field;
use crate::row::{Action, Actor, Row, StatedImage};
use crate::time;

/// Writes a row in the flat form with a count of equal events: `event_id`, `calltrace`, `count`,
/// `source_image` and so on. Without the line end.
pub fn flat(row: &Row<'_>) -> String {
    let mut values = vec![
        (Field::EventId, row.action.event_id().into()),
        (Field::Utc, row.time.map(time::text).into()),
        (Field::Collector, row.host.into()),
        (Field::Count, row.count.into()),
    ];
    values.extend(actor_values(&row.actor));
    let is_aimed = is_aimed(&row.action);
    if is_aimed {
        values.extend(action_values(&row.action));
    }
    values.sort_by_key(|(field, _)| *field);
    let name = |field: Field| field.names().at_top().next().unwrap_or_default();
    let mut members: Vec<_> = values.into_iter().map(|(field, value)| (name(field), value)).collect();
    if !is_aimed {
        // In this form, these fields have only the names of Sysmon.
        members.extend(data(row));
    }
    object(members)
}

/// Writes a row as a document of Winlogbeat, which represents one event regardless of the count.
/// Without the line end.
pub fn winlogbeat(row: &Row<'_>) -> String {
    let time = row.time.map(time::text);
    let timestamp = time.as_ref().map(|time| format!(r#""@timestamp":"{}Z","#, time.replace(' ', "T")));
    let mut event_data = vec![(Field::Utc.names().data[0], time.into())];
    event_data.extend(data(row));
    format!(
        r#"{{{}"winlog":{{"provider_name":"Microsoft-Windows-Sysmon","channel":"Microsoft-Windows-Sysmon/Operational","computer_name":{},"event_id":{},"event_data":{}}}}}"#,
        timestamp.unwrap_or_default(),
        Value::from(row.host),
        row.action.event_id(),
        object(event_data),
    )
}

/// An object with these members in their order, without those that are null.
fn object(members: Vec<(&str, Value)>) -> String {
    let given = members.iter().filter(|(_, value)| !value.is_null());
    let given: Vec<_> = given.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", given.join(","))
}

/// The data of an event with Sysmon's names.
fn data(row: &Row<'_>) -> Vec<(&'static str, Value)> {
    let is_aimed = is_aimed(&row.action);
    let mut values = Vec::from(actor_values(&row.actor));
    match row.action {
        // A driver has no process.
        Action::DriverLoad { .. } => values.clear(),
        _ if is_aimed => {}
        // Other events do not state the thread.
        _ => values.retain(|(field, _)| *field != Field::Tid),
    }
    values.extend(action_values(&row.action));
    let name = |names: &[&'static str]| if is_aimed { names[0] } else { names[names.len() - 1] };
    values.into_iter().map(|(field, value)| (name(field.names().data), value)).collect()
}

/// Whether the event has a target process.
fn is_aimed(action: &Action<'_>) -> bool {
    matches!(action, Action::ProcessAccess { .. } | Action::RemoteThread { .. })
}

fn actor_values(actor: &Actor<'_>) -> [(Field, Value); 4] {
    [
        (Field::ProcessGuid, given(actor.guid)),
        (Field::Pid, actor.pid.into()),
        (Field::Tid, actor.tid.into()),
        (Field::Image, actor.image.into()),
    ]
}

/// The values of an action in the order of Sysmon's data.
fn action_values(action: &Action<'_>) -> Vec<(Field, Value)> {
    match *action {
        Action::ProcessAccess { target, access, call_trace } => vec![
            (Field::TargetPid, target.pid.into()),
            (Field::TargetImage, target.image.into()),
            (Field::Access, access.map(|access| format!("{access:#x}")).into()),
            (Field::CallTrace, call_trace.into()),
        ],
        Action::RemoteThread { target, tid, address, module, function } => vec![
            (Field::TargetPid, target.pid.into()),
            (Field::TargetImage, target.image.into()),
            (Field::NewThread, tid.into()),
            (Field::StartAddress, format!("0x{address}").into()),
            (Field::StartModule, module.into()),
            (Field::StartFunction, function.into()),
        ],
        Action::ImageLoad { path, sha256, stated } => image_values(path, sha256, &stated),
        Action::DriverLoad { path, sha256, signer } => {
            image_values(path, sha256, &StatedImage::signed_by(signer))
        }
        Action::ProcessCreate { command_line, parent_pid, user, integrity } => vec![
            (Field::CommandLine, command_line.into()),
            (Field::ParentPid, parent_pid.into()),
            (Field::User, user.into()),
            (Field::Integrity, integrity.into()),
        ],
        Action::ProcessTerminate => Vec::new(),
        Action::FileCreate { path } => vec![(Field::CreatedFile, path.into())],
        Action::FileExecutableDetected { path, sha256 } => {
            vec![(Field::Hashes, hashes(sha256)), (Field::CreatedFile, path.into())]
        }
        Action::ProcessTampering { kind } => vec![(Field::Tampering, kind.into())],
    }
}

fn image_values(path: &str, sha256: Option<[u8; 32]>, stated: &StatedImage<'_>) -> Vec<(Field, Value)> {
    let is_signed = !stated.valid_signer().is_empty();
    let or = |text: &str, other: &str| if text.is_empty() { other.into() } else { text.into() };
    vec![
        (Field::ImageLoaded, path.into()),
        (Field::Hashes, hashes(sha256)),
        (Field::Signed, or(stated.signed, if is_signed { "true" } else { "false" })),
        (Field::Signature, stated.signature.into()),
        (Field::SignatureStatus, or(stated.status, "Unavailable")),
        (Field::OriginalFileName, given(stated.original_file_name)),
        (Field::Company, given(stated.company)),
        (Field::Product, given(stated.product)),
        (Field::Description, given(stated.description)),
        (Field::FileVersion, given(stated.file_version)),
    ]
}

/// A text, null if it is empty.
fn given(text: &str) -> Value {
    (!text.is_empty()).then_some(text).into()
}

fn hashes(sha256: Option<[u8; 32]>) -> Value {
    sha256.map(|sum| format!("SHA256={:X}", HexBytes(&sum))).into()
}
