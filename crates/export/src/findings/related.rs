//! Events that are related to a finding: the creation of its files, and tampering with its process.

use stackhound_detect::report::{CreatedFile, EventContext, TamperingReport};
use stackhound_types::HexBytes;

use super::shown::{file_name, known};

/// The time from a related event to the event of the finding, in seconds; negative if it came
/// later.
pub(crate) fn seconds_before(event_context: &EventContext, time: Option<u64>) -> Option<f64> {
    let difference = i128::from(event_context.time?) - i128::from(time?);
    Some(difference as f64 / 1e7)
}

/// The SHA-256 as hexadecimal digits.
pub(crate) fn sha256(file: &CreatedFile) -> Option<String> {
    file.sha256.map(|sum| HexBytes(&sum).to_string())
}

/// One sentence for each related event.
pub(super) fn sentences(event_context: &EventContext) -> Vec<String> {
    let created = event_context.created_files.iter().map(|file| {
        let CreatedFile { path, time, pid, process, .. } = file;
        let creator = match (known(file_name(process)), pid) {
            (Some(name), Some(pid)) => format!(" by {name} (pid {pid})"),
            (Some(name), None) => format!(" by {name}"),
            (None, Some(pid)) => format!(" by pid {pid}"),
            (None, None) => String::new(),
        };
        let sum = sha256(file).map(|sum| format!(", SHA-256 {sum}")).unwrap_or_default();
        format!("{} was created{creator} {}{sum}", file_name(path), when(event_context, Some(*time)))
    });
    let tampering = event_context.tampering.iter().map(|TamperingReport { time, kind }| {
        let kind = known(kind).map(|kind| format!(": {kind}")).unwrap_or_default();
        format!("process tampering was reported {}{kind}", when(event_context, *time))
    });
    created.chain(tampering).collect()
}

fn when(event_context: &EventContext, time: Option<u64>) -> String {
    match seconds_before(event_context, time) {
        Some(seconds) if seconds >= 0.0 => format!("{seconds:.1} s before"),
        Some(seconds) => format!("{:.1} s after", -seconds),
        None => "at an unknown time".to_owned(),
    }
}
