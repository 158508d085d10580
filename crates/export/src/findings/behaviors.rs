//! The names of findings in Elastic's vocabulary of behaviors, so that rules for it match.
//!
//! Elastic's names are those of `process.Ext.api.behaviors` in its endpoint package
//! (`custom_schemas/custom_api.yml`). Other names are our own. They do not always mean the same as
//! in Elastic's agent, which knows the protection of memory, unlike most traces.

use stackhound_detect::Reason;
use stackhound_detect::report::{EventContext, Finding};

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
    let of_detection = finding.analytic.detection().map(|id| id.detection().behaviors.to_vec());
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
    use stackhound_detect::Detection;
    use stackhound_detect::catalogue::DETECTIONS;

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
        for Detection { name, behaviors, .. } in &DETECTIONS {
            assert!(!behaviors.is_empty(), "{name}");
            for word in *behaviors {
                assert!(ELASTIC.contains(word) || OWN.contains(word), "{name}: {word}");
            }
        }
        for word in OWN {
            assert!(guide.contains(&format!("`{word}`")), "{word} is not in the guide");
        }
    }
}
