//! The names of findings in Elastic's vocabulary of behaviors, so that rules for it match.
//!
//! Elastic's names are those of `process.Ext.api.behaviors` in its endpoint package
//! (`custom_schemas/custom_api.yml`). Other names are our own. They do not always mean the same as
//! in Elastic's agent, which knows the protection of memory, unlike most traces.

use stackhound_detect::Reason;
use stackhound_detect::catalogue::DETECTIONS;
use stackhound_detect::report::{EventContext, Finding};

/// The names for each detection, for any reason.
#[rustfmt::skip]
const WORDS: [(&str, &[&str]); DETECTIONS.len()] = [
    ("CS01", &["direct_syscall", "shellcode"]),
    ("CS02", &["direct_syscall"]),
    ("CS03", &["indirect_syscall"]),
    ("CS04", &["indirect_syscall"]),
    ("CS05", &["indirect_syscall", "native_api"]),
    ("CS06", &["native_api"]),
    ("CS07", &["shellcode"]),
    ("CS08", &["unbacked_code"]),
    ("CS09", &["unbacked_code"]),
    ("CS10", &["parallel_ntdll"]),
    ("CS11", &["image_rop"]),
    ("CS12", &["image_rop"]),
    ("CS13", &["outside_function"]),
    ("CS14", &["truncated_stack"]),
    ("CS15", &["root_mismatch"]),
    ("CS16", &["broken_linkage"]),
    ("CS17", &["proxy_call"]),
    ("CS18", &["image_hooked"]),
    ("CS19", &["suspicious_start"]),
    ("CS20", &["heavens_gate"]),
    ("CS21", &["masked_sleep"]),
    ("CS22", &["exception_handler"]),
    ("CS23", &["unbacked_driver_code"]),
    ("CS24", &["sensitive_handle"]),
    ("CS25", &["memory_dump"]),
    ("CS26", &["kernel_callback"]),
    ("CS27", &["shellcode"]),
    ("CS28", &["execute_fluctuation"]),
    ("CS29", &["image_hooked"]),
    ("CS30", &["process_tampering"]),
];

/// Further names for certain reasons.
const BY_REASON: &[(Reason, &str)] = &[
    (Reason::WritableCode, "unbacked_rwx"),
    (Reason::SensitiveExport, "hook_api"),
    (Reason::ProgramReplaced, "hollow_image"),
    (Reason::StartInReplacement, "hollow_image"),
    (Reason::FrameInReplacement, "hollow_image"),
];

/// The names for a finding. Undetermined answers must not have any.
pub(super) fn of(event_context: &EventContext, finding: &Finding) -> Vec<&'static str> {
    let of_detection = finding.analytic.detection().map(|id| WORDS[id.index()].1.to_vec());
    let mut words = of_detection.unwrap_or_default();
    let by_reason = BY_REASON.iter().filter(|(reason, _)| finding.outcome.reasons.has(*reason));
    words.extend(by_reason.map(|(_, word)| *word));
    let (event, process) = (&event_context.event, &event_context.process);
    if event.target_pid().is_some() && process.pid.is_some() {
        words.push(if super::ecs::is_process_start(event_context) {
            "parent-child"
        } else {
            "cross-process"
        });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elastic's names that are used here.
    const ELASTIC: &[&str] = &[
        "cross-process",
        "parent-child",
        "native_api",
        "direct_syscall",
        "proxy_call",
        "shellcode",
        "image_hooked",
        "image_rop",
        "unbacked_rwx",
        "truncated_stack",
        "execute_fluctuation",
    ];

    /// Own names, which `docs/findings.md` lists.
    const OWN: &[&str] = &[
        "indirect_syscall",
        "unbacked_code",
        "parallel_ntdll",
        "outside_function",
        "root_mismatch",
        "broken_linkage",
        "suspicious_start",
        "heavens_gate",
        "masked_sleep",
        "exception_handler",
        "unbacked_driver_code",
        "sensitive_handle",
        "memory_dump",
        "kernel_callback",
        "process_tampering",
    ];

    #[test]
    fn detections_have_names_of_elastic_or_documented_ones() {
        let guide = include_str!("../../../../docs/findings.md");
        for (detection, (name, words)) in DETECTIONS.iter().zip(WORDS) {
            assert_eq!(detection.name, name);
            assert!(!words.is_empty(), "{name}");
            for word in words {
                assert!(ELASTIC.contains(word) || OWN.contains(word), "{name}: {word}");
            }
        }
        for word in OWN {
            assert!(guide.contains(&format!("`{word}`")), "{word} is not in the guide");
        }
    }
}
