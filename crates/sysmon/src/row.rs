//! One Sysmon event, with the fields that the evaluation of stacks needs.

use stackhound_images::{FactSource, ImageFacts, Signature, SignatureReason, SignatureState, VersionInfo};
use stackhound_types::sha256_of_hex;

use crate::call_trace::Hex;
use crate::field::Field;
use crate::json::Fields;

/// The error about a required field that is missing or invalid. The event is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("event {event}: expected a valid {field}")]
pub struct FieldError {
    /// Sysmon's id of the event.
    pub event: u32,
    /// Sysmon's name of the field.
    pub field: &'static str,
}

/// The acting process. Texts are empty if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Actor<'a> {
    /// Id of the process.
    pub pid: Option<u32>,
    /// Id of the thread.
    pub tid: Option<u32>,
    /// Sysmon's GUID of the process, which is unique on a machine.
    pub guid: &'a str,
    /// Path of the image. Old versions of Sysmon write damaged paths.
    pub image: &'a str,
}

/// The target process. Texts are empty if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aim<'a> {
    /// Id of the process.
    pub pid: Option<u32>,
    /// Path of the image.
    pub image: &'a str,
}

/// What event 7 states about an image. Texts are empty if they are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatedImage<'a> {
    /// Whether it is signed, as Sysmon writes it: `true` or `false`.
    pub signed: &'a str,
    /// The signer, whatever the state of the signature.
    pub signature: &'a str,
    /// The state of the signature, such as `Valid`, `Expired` or `Unavailable`.
    pub status: &'a str,
    /// The original file name in the version resource.
    pub original_file_name: &'a str,
    /// The company.
    pub company: &'a str,
    /// The product.
    pub product: &'a str,
    /// The description.
    pub description: &'a str,
    /// The version of the file.
    pub file_version: &'a str,
}

impl<'a> StatedImage<'a> {
    /// An image with a valid signature of this signer. Nothing is stated if it is empty.
    pub(crate) fn signed_by(signer: &'a str) -> StatedImage<'a> {
        match signer {
            "" => StatedImage::default(),
            signature => StatedImage { signed: "true", signature, status: "Valid", ..StatedImage::default() },
        }
    }

    /// The signer, empty if Sysmon found no valid signature.
    pub(crate) fn valid_signer(&self) -> &'a str {
        if self.state() == Some(SignatureState::Valid) { self.signature } else { "" }
    }

    /// The facts as all sources have them.
    pub fn facts(&self) -> ImageFacts {
        let known = |text: &str| (!text.is_empty()).then(|| text.into());
        let signature = self.state().map(|state| Signature {
            state,
            reason: self.reason(),
            signer: known(self.signature),
        });
        let version = VersionInfo {
            original_file_name: known(self.original_file_name),
            company: known(self.company),
            product: known(self.product),
            description: known(self.description),
            file_version: known(self.file_version),
        };
        ImageFacts { signature, version, ..ImageFacts::new(FactSource::Sysmon) }
    }

    /// Whether [`StatedImage::facts`] are these. Does not allocate.
    pub(crate) fn has_facts(&self, facts: &ImageFacts) -> bool {
        fn text(text: &Option<Box<str>>) -> &str {
            text.as_deref().unwrap_or_default()
        }
        let ImageFacts { source, signature, version, is_dotnet } = facts;
        let stated = self.state().map(|state| (state, self.reason(), self.signature));
        let known = signature.as_ref().map(|known| (known.state, known.reason, text(&known.signer)));
        stated == known
            && (*source, *is_dotnet) == (FactSource::Sysmon, None)
            && self.original_file_name == text(&version.original_file_name)
            && self.company == text(&version.company)
            && self.product == text(&version.product)
            && self.description == text(&version.description)
            && self.file_version == text(&version.file_version)
    }

    /// Whether nothing is stated.
    pub(crate) fn is_empty(&self) -> bool {
        self.has_facts(&ImageFacts::new(FactSource::Sysmon))
    }

    /// The reason for an invalid signature.
    fn reason(&self) -> Option<SignatureReason> {
        let is_expired = self.status.eq_ignore_ascii_case("expired");
        let reason = if is_expired { SignatureReason::Expired } else { SignatureReason::StatedInvalid };
        (self.state() == Some(SignatureState::Invalid)).then_some(reason)
    }

    /// The state of the signature. Sysmon also checks catalogs, so an unsigned image has none.
    fn state(&self) -> Option<SignatureState> {
        let is = |text: &str, expected: &str| text.eq_ignore_ascii_case(expected);
        match (self.signed, self.status) {
            ("", "") => None,
            // Signatures that are expired or not trusted name their signer.
            (signed, _) if is(signed, "false") && self.signature.is_empty() => Some(SignatureState::Unsigned),
            (signed, status) if is(status, "valid") && !is(signed, "false") => Some(SignatureState::Valid),
            (_, status) if status.is_empty() || is(status, "unavailable") => Some(SignatureState::Unknown),
            _ => Some(SignatureState::Invalid),
        }
    }
}

/// The action of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<'a> {
    /// Event 10, `ProcessAccess`: a handle to a process was opened.
    ProcessAccess {
        /// The opened process.
        target: Aim<'a>,
        /// The granted access rights.
        access: Option<u32>,
        /// The stack in Sysmon's text, empty if it is missing.
        call_trace: &'a str,
    },
    /// Event 8, `CreateRemoteThread`.
    RemoteThread {
        /// The process of the new thread.
        target: Aim<'a>,
        /// Id of the new thread.
        tid: Option<u32>,
        /// The start address.
        address: Hex,
        /// Path of the module at the start address, empty if there is none.
        module: &'a str,
        /// Name of the function at the start address, empty if it is unknown.
        function: &'a str,
    },
    /// Event 7, `ImageLoad`.
    ImageLoad {
        /// Path of the image.
        path: &'a str,
        /// Its SHA-256, if Sysmon was configured to compute it.
        sha256: Option<[u8; 32]>,
        /// What Sysmon states about its signature and its version resource.
        stated: StatedImage<'a>,
    },
    /// Event 1, `ProcessCreate`; the process is the new one.
    ProcessCreate {
        /// The command line.
        command_line: &'a str,
        /// Id of the parent process.
        parent_pid: Option<u32>,
        /// The account, such as `CONTOSO\\user`; empty if unknown.
        user: &'a str,
        /// The integrity level, such as `High`; empty if unknown.
        integrity: &'a str,
    },
    /// Event 5, `ProcessTerminate`.
    ProcessTerminate,
    /// Event 6, `DriverLoad`; it has no process.
    DriverLoad {
        /// Path of the driver.
        path: &'a str,
        /// Its SHA-256, if Sysmon was configured to compute it.
        sha256: Option<[u8; 32]>,
        /// The signer, empty if Sysmon found no valid signature.
        signer: &'a str,
    },
    /// Event 11, `FileCreate`: the process created or overwrote a file.
    FileCreate {
        /// Path of the file.
        path: &'a str,
    },
    /// Event 25, `ProcessTampering`: the image of the process was replaced or locked.
    ProcessTampering {
        /// Sysmon's text, such as `Image is replaced`; empty if unknown.
        kind: &'a str,
    },
    /// Event 29, `FileExecutableDetected`: the process created a file that is an executable image.
    FileExecutableDetected {
        /// Path of the file.
        path: &'a str,
        /// Its SHA-256, if Sysmon was configured to compute it.
        sha256: Option<[u8; 32]>,
    },
}

impl Action<'_> {
    /// Sysmon's event id of the action.
    pub fn event_id(&self) -> u32 {
        self.event().0
    }

    /// Sysmon's event name of the action.
    pub fn event_name(&self) -> &'static str {
        self.event().1
    }

    fn event(&self) -> (u32, &'static str) {
        match self {
            Action::ProcessCreate { .. } => (1, "ProcessCreate"),
            Action::ProcessTerminate => (5, "ProcessTerminate"),
            Action::DriverLoad { .. } => (6, "DriverLoad"),
            Action::ImageLoad { .. } => (7, "ImageLoad"),
            Action::RemoteThread { .. } => (8, "CreateRemoteThread"),
            Action::ProcessAccess { .. } => (10, "ProcessAccess"),
            Action::FileCreate { .. } => (11, "FileCreate"),
            Action::ProcessTampering { .. } => (25, "ProcessTampering"),
            Action::FileExecutableDetected { .. } => (29, "FileExecutableDetected"),
        }
    }

    /// Whether events of this kind are evaluated. The others are evidence about processes and
    /// files.
    pub fn is_evaluated(&self) -> bool {
        matches!(
            self,
            Action::ProcessAccess { .. } | Action::RemoteThread { .. } | Action::ProcessTampering { .. }
        )
    }
}

/// An event, or several equal events in one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// Number of events, at least 1.
    pub count: u64,
    /// Name of the machine, empty if unknown.
    pub host: &'a str,
    /// Time in units of 100 ns since 1601.
    pub time: Option<u64>,
    /// The acting process.
    pub actor: Actor<'a>,
    /// The action.
    pub action: Action<'a>,
}

impl<'a> Row<'a> {
    /// The event with these fields. `None` for other kinds of events and other providers.
    ///
    /// # Errors
    /// If a required field of the event is missing or invalid.
    pub(crate) fn of(fields: &Fields, texts: &'a str) -> Result<Option<Row<'a>>, FieldError> {
        let text = |field| match fields.text(texts, field) {
            // Newer versions of Sysmon write missing values like this.
            "-" => "",
            text => text,
        };
        let number = |field| number(text(field)).and_then(|number| u32::try_from(number).ok());
        // Other providers have events with these ids, too.
        let issuer =
            if text(Field::Provider).is_empty() { text(Field::Channel) } else { text(Field::Provider) };
        let is_other = |field| match issuer {
            "" => !fields.has(field),
            "Microsoft-Windows-Sysmon" => false,
            issuer => !issuer.to_ascii_lowercase().contains("sysmon"),
        };
        let Some(event) = number(Field::EventId) else { return Ok(None) };
        let missing = |field: Field| FieldError { event, field: field.names().data[0] };
        let target = Aim { pid: number(Field::TargetPid), image: text(Field::TargetImage) };
        let image = || match text(Field::ImageLoaded) {
            "" => Err(missing(Field::ImageLoaded)),
            path => Ok(path),
        };
        let stated = || StatedImage {
            signed: text(Field::Signed),
            signature: text(Field::Signature),
            status: text(Field::SignatureStatus),
            original_file_name: text(Field::OriginalFileName),
            company: text(Field::Company),
            product: text(Field::Product),
            description: text(Field::Description),
            file_version: text(Field::FileVersion),
        };
        // The Elastic Common Schema has one field for the paths of images and of other files.
        let created = || match (text(Field::CreatedFile), text(Field::ImageLoaded)) {
            ("", "") => Err(missing(Field::CreatedFile)),
            ("", path) | (path, _) => Ok(path),
        };
        let sha256 = || sha256(text(Field::Hashes));
        let action = match event {
            1 if !is_other(Field::ProcessGuid) => Action::ProcessCreate {
                command_line: text(Field::CommandLine),
                parent_pid: number(Field::ParentPid),
                user: text(Field::User),
                integrity: text(Field::Integrity),
            },
            5 if !is_other(Field::ProcessGuid) => Action::ProcessTerminate,
            6 if !is_other(Field::ImageLoaded) => {
                Action::DriverLoad { path: image()?, sha256: sha256(), signer: stated().valid_signer() }
            }
            7 if !is_other(Field::ImageLoaded) => {
                Action::ImageLoad { path: image()?, sha256: sha256(), stated: stated() }
            }
            8 if !is_other(Field::TargetImage) => Action::RemoteThread {
                target,
                tid: number(Field::NewThread),
                address: address(text(Field::StartAddress)).ok_or_else(|| missing(Field::StartAddress))?,
                module: text(Field::StartModule),
                function: text(Field::StartFunction),
            },
            10 if !is_other(Field::TargetImage) => Action::ProcessAccess {
                target,
                access: number(Field::Access),
                call_trace: text(Field::CallTrace),
            },
            11 if !is_other(Field::CreatedFile) => Action::FileCreate { path: created()? },
            25 if !is_other(Field::ProcessGuid) => {
                let column = Some(text(Field::TamperingColumn)).filter(|text| text.starts_with("Image is "));
                let kind = Some(text(Field::Tampering)).filter(|text| !text.is_empty()).or(column);
                Action::ProcessTampering { kind: kind.unwrap_or_default() }
            }
            29 if !is_other(Field::CreatedFile) => {
                Action::FileExecutableDetected { path: created()?, sha256: sha256() }
            }
            _ => return Ok(None),
        };
        let actor = Actor {
            pid: number(Field::Pid),
            tid: number(Field::Tid),
            guid: text(Field::ProcessGuid),
            image: text(Field::Image),
        };
        let host = if text(Field::Host).is_empty() { text(Field::Collector) } else { text(Field::Host) };
        let count = self::number(text(Field::Count)).unwrap_or(1).max(1);
        Ok(Some(Row { count, host, time: fields.time, actor, action }))
    }
}

/// A decimal number, or a hexadecimal number after `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => Hex::parse(digits).map(Hex::value),
        None => text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?,
    }
}

/// An address as Sysmon writes it, such as `0x00007FFF9F40EB60`. The number of digits shows whether
/// the system is 32-bit or 64-bit.
fn address(text: &str) -> Option<Hex> {
    Hex::parse(text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text))
}

/// The SHA-256 in `SHA1=…,MD5=…,SHA256=…`, or in a text that contains nothing else.
fn sha256(hashes: &str) -> Option<[u8; 32]> {
    let digits = hashes.split(',').find_map(|hash| match hash.split_once('=') {
        Some((name, digits)) => name.trim().eq_ignore_ascii_case("SHA256").then_some(digits),
        None => Some(hash),
    })?;
    sha256_of_hex(digits.trim())
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
    fn the_sha256_is_selected() {
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
