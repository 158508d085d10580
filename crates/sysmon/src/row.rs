//! One event of Sysmon, as far as evaluating stacks needs it.

use crate::call_trace::Hex;
use crate::json::{Field, Fields};
use crate::time;

/// A field that does not read as what it must be. The event is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("event {event} has no {field} that can be read")]
pub struct FieldError {
    /// The event's id.
    pub event: u32,
    /// The field, as Sysmon calls it.
    pub field: &'static str,
}

/// Who acted. Texts are empty where nothing is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Actor<'a> {
    /// Id of the process.
    pub pid: Option<u32>,
    /// Id of the thread.
    pub tid: Option<u32>,
    /// Sysmon's own name of the process, which is never given twice on one machine.
    pub guid: &'a str,
    /// Path of its program. Old versions tell damaged ones.
    pub image: &'a str,
}

/// To whom it was done. Texts are empty where nothing is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aim<'a> {
    /// Id of the process.
    pub pid: Option<u32>,
    /// Path of its program.
    pub image: &'a str,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<'a> {
    /// Event 10, `ProcessAccess`: a handle to a process was opened.
    ProcessAccess {
        /// To this one.
        target: Aim<'a>,
        /// With these rights.
        access: Option<u32>,
        /// The stack, in Sysmon's text; empty where it is missing.
        call_trace: &'a str,
    },
    /// Event 8, `CreateRemoteThread`.
    RemoteThread {
        /// In this process.
        target: Aim<'a>,
        /// Id of the new thread.
        tid: Option<u32>,
        /// Where it starts.
        address: Hex,
        /// Path of the module there; empty if there is none.
        module: &'a str,
        /// Name of the function there; empty if none is known.
        function: &'a str,
    },
    /// Event 7, `ImageLoad`.
    ImageLoad {
        /// Path of the image.
        path: &'a str,
        /// Its sum, where Sysmon was told to compute it.
        sha256: Option<[u8; 32]>,
        /// Who signed it; empty where Sysmon did not find a valid signature.
        signer: &'a str,
    },
    /// Event 1, `ProcessCreate`; the process is the new one.
    ProcessCreate {
        /// How it was started.
        command_line: &'a str,
        /// Who started it.
        parent_pid: Option<u32>,
    },
}

impl Action<'_> {
    /// Sysmon's number of such events.
    pub fn event_id(&self) -> u32 {
        match self {
            Action::ProcessCreate { .. } => 1,
            Action::ImageLoad { .. } => 7,
            Action::RemoteThread { .. } => 8,
            Action::ProcessAccess { .. } => 10,
        }
    }

    /// Sysmon's name of such events.
    pub fn event_name(&self) -> &'static str {
        match self {
            Action::ProcessCreate { .. } => "ProcessCreate",
            Action::ImageLoad { .. } => "ImageLoad",
            Action::RemoteThread { .. } => "CreateRemoteThread",
            Action::ProcessAccess { .. } => "ProcessAccess",
        }
    }
}

/// An event, or several equal ones in one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// How many events; at least 1.
    pub count: u64,
    /// The machine; empty if not told.
    pub host: &'a str,
    /// When, in units of 100 ns since 1601.
    pub time: Option<u64>,
    /// Who.
    pub actor: Actor<'a>,
    /// What.
    pub action: Action<'a>,
}

impl<'a> Row<'a> {
    /// The event that these fields tell of; `None` for events of other kinds and of others than Sysmon.
    ///
    /// # Errors
    /// If it is one of these, and what it cannot be without is missing.
    pub(crate) fn of(fields: &'a Fields) -> Result<Option<Row<'a>>, FieldError> {
        let text = |field| match fields.text(field) {
            // Newer versions write what is missing so.
            "-" => "",
            text => text,
        };
        let number = |field| number(text(field)).and_then(|number| u32::try_from(number).ok());
        // Other providers have events of these numbers too.
        let issuer =
            if text(Field::Provider).is_empty() { text(Field::Channel) } else { text(Field::Provider) };
        let is_sysmon = issuer.to_ascii_lowercase().contains("sysmon");
        let is_other = |field| if issuer.is_empty() { !fields.has(field) } else { !is_sysmon };
        let Some(event) = number(Field::EventId) else { return Ok(None) };
        let missing = |field| FieldError { event, field };
        let target = Aim { pid: number(Field::TargetPid), image: text(Field::TargetImage) };
        let action = match event {
            1 if !is_other(Field::ProcessGuid) => Action::ProcessCreate {
                command_line: text(Field::CommandLine),
                parent_pid: number(Field::ParentPid),
            },
            7 if !is_other(Field::ImageLoaded) => {
                let path = text(Field::ImageLoaded);
                if path.is_empty() {
                    return Err(missing("ImageLoaded"));
                }
                let is_valid = text(Field::SignatureStatus).eq_ignore_ascii_case("valid")
                    && !text(Field::Signed).eq_ignore_ascii_case("false");
                Action::ImageLoad {
                    path,
                    sha256: sha256(text(Field::Hashes)),
                    signer: if is_valid { text(Field::Signature) } else { "" },
                }
            }
            8 if !is_other(Field::TargetImage) => Action::RemoteThread {
                target,
                tid: number(Field::NewThread),
                address: address(text(Field::StartAddress)).ok_or_else(|| missing("StartAddress"))?,
                module: text(Field::StartModule),
                function: text(Field::StartFunction),
            },
            10 if !is_other(Field::TargetImage) => Action::ProcessAccess {
                target,
                access: number(Field::Access),
                call_trace: text(Field::CallTrace),
            },
            _ => return Ok(None),
        };
        let actor = Actor {
            pid: number(Field::Pid),
            tid: number(Field::Tid),
            guid: text(Field::ProcessGuid),
            image: text(Field::Image),
        };
        let host = if text(Field::Host).is_empty() { text(Field::Collector) } else { text(Field::Host) };
        let time = time::parse(text(Field::Utc)).or_else(|| time::parse(text(Field::Timestamp)));
        let count = self::number(text(Field::Count)).unwrap_or(1).max(1);
        Ok(Some(Row { count, host, time, actor, action }))
    }
}

/// A number in decimal digits, or in others behind `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => Hex::parse(digits).map(Hex::value),
        None => text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?,
    }
}

/// An address as Sysmon writes it, `0x00007FFF9F40EB60`. As many digits as it has, as wide is the system.
fn address(text: &str) -> Option<Hex> {
    Hex::parse(text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text))
}

/// The sum among `SHA1=…,MD5=…,SHA256=…`, or one that stands alone.
fn sha256(hashes: &str) -> Option<[u8; 32]> {
    let digits = hashes.split(',').find_map(|hash| match hash.split_once('=') {
        Some((name, digits)) => name.trim().eq_ignore_ascii_case("SHA256").then_some(digits),
        None => Some(hash),
    })?;
    let digits = digits.trim().as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let mut sum = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in sum.iter_mut().zip(digits.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_forms() {
        for (text, expected) in [
            ("10", Some(10)),
            ("0x1fffff", Some(0x1f_ffff)),
            ("0X1F", Some(0x1f)),
            ("", None),
            ("0x", None),
            ("-1", None),
            ("+1", None),
            ("1f", None),
            ("18446744073709551616", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn the_right_sum_is_taken() {
        let digits = "ab".repeat(32);
        for (text, expected) in [
            (format!("SHA1={},SHA256={digits},IMPHASH=00", "cd".repeat(20)), Some([0xab; 32])),
            (format!("sha256={}", digits.to_uppercase()), Some([0xab; 32])),
            (digits.clone(), Some([0xab; 32])),
            (format!("MD5={digits}"), None),
            (format!("SHA256={digits}0"), None),
            (format!("SHA256={}", "xy".repeat(32)), None),
            (String::new(), None),
        ] {
            assert_eq!(sha256(&text), expected, "{text}");
        }
    }
}
