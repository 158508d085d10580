//! The MITRE ATT&CK techniques of the detections, with their names and tactics.
//!
//! From the page of each technique (`attack.mitre.org/techniques/…`) as of version 17. Later
//! versions divide Defense Evasion into two tactics; the ids of techniques stay the same.

/// Version of ATT&CK with these names.
pub(super) const VERSION: &str = "17";

/// A tactic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tactic {
    pub id: &'static str,
    pub name: &'static str,
}

const EXECUTION: Tactic = Tactic { id: "TA0002", name: "Execution" };
const PRIVILEGE_ESCALATION: Tactic = Tactic { id: "TA0004", name: "Privilege Escalation" };
const DEFENSE_EVASION: Tactic = Tactic { id: "TA0005", name: "Defense Evasion" };
const CREDENTIAL_ACCESS: Tactic = Tactic { id: "TA0006", name: "Credential Access" };
const DISCOVERY: Tactic = Tactic { id: "TA0007", name: "Discovery" };

/// A technique or, with a dot in its id, a sub-technique.
#[derive(Clone, Copy, Debug)]
pub(super) struct Technique {
    pub id: &'static str,
    pub name: &'static str,
    pub tactics: &'static [Tactic],
}

const INJECTION: &[Tactic] = &[DEFENSE_EVASION, PRIVILEGE_ESCALATION];

#[rustfmt::skip]
const TECHNIQUES: &[Technique] = &[
    Technique { id: "T1003", name: "OS Credential Dumping", tactics: &[CREDENTIAL_ACCESS] },
    Technique { id: "T1003.001", name: "LSASS Memory", tactics: &[CREDENTIAL_ACCESS] },
    Technique { id: "T1014", name: "Rootkit", tactics: &[DEFENSE_EVASION] },
    Technique { id: "T1027", name: "Obfuscated Files or Information", tactics: &[DEFENSE_EVASION] },
    Technique { id: "T1027.007", name: "Dynamic API Resolution", tactics: &[DEFENSE_EVASION] },
    Technique { id: "T1036", name: "Masquerading", tactics: &[DEFENSE_EVASION] },
    Technique { id: "T1055", name: "Process Injection", tactics: INJECTION },
    Technique { id: "T1055.001", name: "Dynamic-link Library Injection", tactics: INJECTION },
    Technique { id: "T1055.002", name: "Portable Executable Injection", tactics: INJECTION },
    Technique { id: "T1055.012", name: "Process Hollowing", tactics: INJECTION },
    Technique { id: "T1068", name: "Exploitation for Privilege Escalation", tactics: &[PRIVILEGE_ESCALATION] },
    Technique { id: "T1106", name: "Native API", tactics: &[EXECUTION] },
    Technique { id: "T1129", name: "Shared Modules", tactics: &[EXECUTION] },
    Technique { id: "T1497", name: "Virtualization/Sandbox Evasion", tactics: &[DEFENSE_EVASION, DISCOVERY] },
    Technique { id: "T1497.003", name: "Time Based Evasion", tactics: &[DEFENSE_EVASION, DISCOVERY] },
    Technique { id: "T1562", name: "Impair Defenses", tactics: &[DEFENSE_EVASION] },
    Technique { id: "T1562.001", name: "Disable or Modify Tools", tactics: &[DEFENSE_EVASION] },
    Technique { id: "T1620", name: "Reflective Code Loading", tactics: &[DEFENSE_EVASION] },
];

/// The technique with this id.
pub(super) fn technique(id: &str) -> Option<&'static Technique> {
    TECHNIQUES.iter().find(|technique| technique.id == id)
}

/// The URL of the page of a technique.
pub(super) fn url(id: &str) -> String {
    format!("https://attack.mitre.org/techniques/{}/", id.replace('.', "/"))
}

/// The URL of the page of a tactic.
pub(super) fn tactic_url(id: &str) -> String {
    format!("https://attack.mitre.org/tactics/{id}/")
}

/// The name that a rule states for an id, else the id.
pub(super) fn shown_name((id, name): &(String, String)) -> &str {
    if name.is_empty() { id } else { name }
}

impl Technique {
    /// The technique of a sub-technique; the technique itself if it is not one.
    pub(super) fn parent(&self) -> &Technique {
        self.id.split_once('.').and_then(|(parent, _)| technique(parent)).unwrap_or(self)
    }

    /// Whether this is a sub-technique.
    pub(super) fn is_sub(&self) -> bool {
        self.id.contains('.')
    }

    /// The URL of its page.
    pub(super) fn url(&self) -> String {
        url(self.id)
    }
}

impl Tactic {
    /// The URL of its page.
    pub(super) fn url(&self) -> String {
        tactic_url(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackhound_detect::catalogue::DETECTIONS;

    #[test]
    fn detections_name_known_techniques() {
        for detection in &DETECTIONS {
            assert!(!detection.attack.is_empty(), "{}", detection.name);
            for id in detection.attack {
                let known = technique(id).unwrap_or_else(|| panic!("{}: {id}", detection.name));
                assert!(!known.parent().is_sub(), "{id} without its technique");
                assert!(!known.tactics.is_empty());
            }
        }
    }
}
