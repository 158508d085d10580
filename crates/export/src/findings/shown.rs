//! Values as all formats show them, and the identities of events and processes.

use std::fmt;

use serde_json::json;
use stackhound_detect::report::{EventContext, Finding, FrameReport, LossReport, ProcessReport};
use stackhound_detect::tuning::Suppression;
use stackhound_detect::{Analytic, Input, Verdict};
use stackhound_types::HexBytes;

use crate::json::value::{Hex, Time};

/// The version of the program, for documents that name their producer.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The text, if it is known.
pub(crate) fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Seconds from 1601 to 1970.
const TO_1970: i64 = 11_644_473_600;

/// A time in units of 100 ns since 1601 as RFC 3339 in UTC, such as `2023-01-01T00:00:00.0000000Z`;
/// `None` after the year 9999.
pub(super) fn time(time: u64) -> Option<String> {
    Time::from_ticks(time).map(|time| time.to_string())
}

/// A time in units of 100 ns since 1601 as milliseconds since 1970.
pub(super) fn milliseconds(time: u64) -> i64 {
    (time / 10_000) as i64 - TO_1970 * 1000
}

/// The protection of a page, as Elastic spells it: `R-X`, `RWX|GUARD`. `C` is copy-on-write. Other
/// protections are numbers.
pub(crate) fn protection(protection: u32) -> String {
    const MODIFIERS: [(u32, &str); 3] = [(0x100, "|GUARD"), (0x200, "|NOCACHE"), (0x400, "|WRITECOMBINE")];
    let kind = match protection & 0xff {
        0x01 => "---",
        0x02 => "R--",
        0x04 => "RW-",
        0x08 => "RC-",
        0x10 => "--X",
        0x20 => "R-X",
        0x40 => "RWX",
        0x80 => "RCX",
        _ => return Hex(protection.into()).to_string(),
    };
    if protection & !0x7ff != 0 {
        return Hex(protection.into()).to_string();
    }
    let modifiers = MODIFIERS.iter().filter(|(bit, _)| protection & bit != 0).map(|(_, name)| *name);
    std::iter::once(kind).chain(modifiers).collect()
}

/// Bytes as hexadecimal digits, in the order of addresses.
pub(super) fn hex_bytes(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| HexBytes(bytes).to_string())
}

/// The last part of a path.
pub(crate) use stackhound_types::last_component as file_name;

/// The origin of a frame's code, as Elastic spells it: the module's file name, `Unbacked`,
/// `Unknown`, `jit:clr`.
pub(super) fn module_name(frame: &FrameReport) -> &str {
    match frame.module_name() {
        "" => "Unknown",
        name => elastic_name(name),
    }
}

/// The name of a module, or its substitute, as Elastic spells it.
pub(super) fn elastic_name(name: &str) -> &str {
    match name {
        "unbacked" => "Unbacked",
        "unknown" => "Unknown",
        name => name,
    }
}

/// The frame that a finding concerns, with its index.
pub(crate) fn frame<'s>(
    event_context: &'s EventContext,
    finding: &Finding,
) -> Option<(usize, &'s FrameReport)> {
    let index = usize::from(finding.outcome.frame?);
    event_context.stack.get(index).map(|frame| (index, frame))
}

/// The reasons as sentences. Those about the frame come first, because they state the observation;
/// the others state how important it is.
pub(crate) fn explanation(event_context: &EventContext, finding: &Finding) -> String {
    if let Some(found) = &finding.rule_match {
        return if found.text.is_empty() { finding.analytic.meaning() } else { found.text.clone() };
    }
    let is_aside = finding.outcome.reasons.iter().map(|reason| !reason.sentence().contains("{frame}"));
    let mut sentences: Vec<_> = is_aside.zip(finding.sentences(event_context)).collect();
    sentences.sort_by_key(|(is_aside, _)| *is_aside);
    sentences.into_iter().map(|(_, sentence)| sentence).collect::<Vec<_>>().join(" ")
}

/// The version of the program for its detections, and that of a rule.
pub(super) fn version(analytic: &Analytic) -> Option<&str> {
    analytic.rule().map_or(Some(VERSION), |rule| known(&rule.version))
}

/// The match of a rule; null for detections.
pub(super) fn rule(finding: &Finding) -> serde_json::Value {
    let found = finding.rule_match.as_deref();
    found.map_or(serde_json::Value::Null, |found| {
        json!({
            "file": finding.analytic.rule().and_then(|rule| known(&rule.file)),
            "is_possible": found.is_possible,
            "earlier": found.earlier.iter().map(|event| json!({
                "record": event.record,
                "time": event.time.and_then(time),
            })).collect::<Vec<_>>(),
        })
    })
}

/// The codes of the reasons.
pub(crate) fn reasons(finding: &Finding) -> Vec<&'static str> {
    finding.outcome.reasons.iter().map(|reason| reason.code()).collect()
}

/// The evidence that was used.
pub(crate) fn used(finding: &Finding) -> Vec<&'static str> {
    finding.outcome.used.iter().map(|input| input.name()).collect()
}

/// A word after the id of a detection, if the answer is not a finding that is reported.
pub(super) fn verdict(finding: &Finding) -> &'static str {
    match (finding.outcome.verdict, &finding.suppressed) {
        (Verdict::Yes, None) => "",
        (Verdict::Yes, Some(_)) => " suppressed",
        (Verdict::Undetermined | Verdict::No, _) => " undetermined",
    }
}

/// Why a finding is not reported, on one line.
pub(crate) fn suppression(cause: &Suppression) -> String {
    let mut text = cause.by.name().to_owned();
    if let Some(line) = cause.line {
        text += &format!(" in line {line}");
    }
    if !cause.expires.is_empty() {
        text += &format!(", until {}", cause.expires);
    }
    format!("{text}: {}", cause.reason)
}

/// The missing evidence.
pub(crate) fn missing(finding: &Finding) -> Vec<&str> {
    let of_rule = finding.rule_match.iter().flat_map(|found| &found.missing).map(String::as_str);
    finding.outcome.missing.iter().map(|input| input.name()).chain(of_rule).collect()
}

/// The loss that makes modules a missing input.
pub(crate) fn loss<'c>(event_context: &'c EventContext, finding: &Finding) -> Option<&'c LossReport> {
    event_context.lost.as_ref().filter(|_| finding.outcome.missing.has(Input::Modules))
}

/// FNV-1a over texts and their ends: a 64-bit hash that is the same on all machines and in all
/// versions.
#[derive(Clone, Copy)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) const NEW: Digest = Digest(0xcbf2_9ce4_8422_2325);

    pub(super) fn with(self, part: impl AsRef<[u8]>) -> Digest {
        let one = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        // The end of a part is a byte that no text contains.
        Digest(one(part.as_ref().iter().fold(self.0, one), &0xff))
    }

    pub(super) fn with_number(self, number: Option<u64>) -> Digest {
        match number {
            Some(number) => self.with(number.to_le_bytes()),
            None => self.with([]),
        }
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Identifies a process by machine, id, start time and program. The id alone does not, because ids
/// are reused.
pub(super) fn entity(host: &str, process: &ProcessReport) -> Digest {
    Digest::NEW
        .with(host)
        .with(process.path().to_ascii_lowercase())
        .with_number(process.pid.map(u64::from))
        .with_number(process.started())
}

/// Identifies a finding by process, time, record and detection. It is the same whenever the same
/// input is evaluated, whatever the name of the file.
pub(super) fn finding_uid(event_context: &EventContext, finding: &Finding) -> Digest {
    entity(&event_context.host, &event_context.process)
        .with_number(event_context.time)
        .with_number(Some(event_context.location.record))
        .with(finding.analytic.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_seven_digits() {
        for (ticks, expected) in [
            (0, Some("1601-01-01T00:00:00.0000000Z")),
            // 11,644,473,600 s is 1970-01-01, as documented for FILETIME.
            (116_444_736_000_000_000, Some("1970-01-01T00:00:00.0000000Z")),
            (116_444_736_000_000_001, Some("1970-01-01T00:00:00.0000001Z")),
            (u64::MAX, None),
        ] {
            assert_eq!(time(ticks).as_deref(), expected, "{ticks}");
        }
        assert_eq!(milliseconds(116_444_736_000_010_000), 1);
    }

    #[test]
    fn each_detection_has_a_meaning() {
        for id in stackhound_detect::DetectionId::all() {
            let meaning = Analytic::Detection(id).meaning();
            assert!(meaning.ends_with('.') && !meaning.contains("What it"), "{}: {meaning}", id.name());
        }
    }

    #[test]
    fn protections_have_names() {
        for (number, expected) in [
            (0x01, "---"),
            (0x20, "R-X"),
            (0x40, "RWX"),
            (0x104, "RW-|GUARD"),
            (0x80, "RCX"),
            (0, "0x0"),
            (0x60, "0x60"),
            (0x4000_0040, "0x40000040"),
        ] {
            assert_eq!(protection(number), expected);
        }
    }

    #[test]
    fn digests_depend_on_the_ends_of_parts() {
        let one = Digest::NEW.with("ab").with("c").value();
        assert_ne!(one, Digest::NEW.with("a").with("bc").value());
        assert_ne!(one, Digest::NEW.with("abc").value());
    }
}
