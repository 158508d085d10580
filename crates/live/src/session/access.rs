//! The meaning of Windows errors for sessions, and the access that a provider requires.
//!
//! Error codes are those of Microsoft's pages "StartTraceW function", "EnableTraceEx2 function",
//! "OpenTraceW function" and "ControlTraceW function".

use stackhound_schema::provider_guid;
use stackhound_types::Guid;

use crate::Error;

/// Microsoft-Windows-Threat-Intelligence.
const THREAT_INTELLIGENCE: Guid = provider_guid::THREAT_INTELLIGENCE;
/// Microsoft-Windows-Kernel-Audit-API-Calls.
const KERNEL_AUDIT: Guid = provider_guid::KERNEL_AUDIT_API_CALLS;
/// Microsoft-Windows-Security-Auditing.
const SECURITY_AUDITING: Guid = provider_guid::SECURITY_AUDITING;

/// The access that is required for a session or provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessNeed {
    /// For own sessions and ordinary providers.
    Group,
    /// For kernel events, sessions of other users, and restricted providers.
    Administrator,
    /// For providers of security products.
    Antimalware,
    /// For the provider of the security log, which only the session of the security log receives.
    System,
}

impl AccessNeed {
    /// A description for messages.
    pub fn text(self) -> &'static str {
        match self {
            AccessNeed::Group => {
                "a member of Administrators or of Performance Log Users, with an elevated token"
            }
            AccessNeed::Administrator => "an administrator with an elevated token",
            AccessNeed::Antimalware => {
                "an antimalware-light protected process, which needs a driver signed for early launch \
                 (ELAM); administrator rights are not enough"
            }
            AccessNeed::System => {
                "the session EventLog-Security, to which a program of the SYSTEM account can attach; no other session \
                 receives its events"
            }
        }
    }
}

/// The access that is required to enable a provider.
pub fn access_needed(provider: Guid) -> AccessNeed {
    match provider {
        THREAT_INTELLIGENCE => AccessNeed::Antimalware,
        KERNEL_AUDIT => AccessNeed::Administrator,
        SECURITY_AUDITING => AccessNeed::System,
        _ => AccessNeed::Group,
    }
}

/// The operation that Windows refused.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(all(windows, feature = "windows"), test)),
    expect(dead_code, reason = "only Windows refuses")
)]
pub(super) enum Tried<'a> {
    /// An operation on a session.
    Session { name: &'a str, kernel: bool },
    /// Enabling a provider.
    Provider(Guid),
}

/// Converts an error of a Windows function.
#[cfg_attr(
    not(any(all(windows, feature = "windows"), test)),
    expect(dead_code, reason = "only Windows refuses")
)]
pub(super) fn meaning(tried: Tried<'_>, function: &'static str, code: u32, text: String) -> Error {
    let plain = |text| Error::Windows { function, code, text };
    match (tried, code) {
        // Access denied; a privilege is not held.
        (Tried::Session { name, kernel }, 5 | 1314) => {
            let need = if kernel { AccessNeed::Administrator } else { AccessNeed::Group };
            Error::AccessDenied { to: format!("session {name:?}"), need: need.text() }
        }
        (Tried::Provider(provider), 5 | 1314) => {
            Error::AccessDenied { to: format!("provider {provider:?}"), need: access_needed(provider).text() }
        }
        (Tried::Session { name, .. }, 183) => Error::SessionExists(name.into()),
        // No system resources.
        (Tried::Session { .. }, 1450) => Error::NoSessionsLeft,
        // No WMI instance of this name.
        (Tried::Session { name, .. }, 4201) => Error::NoSession(name.into()),
        // Invalid parameter; not a GUID of WMI; not found.
        (Tried::Provider(provider), 87 | 4200 | 1168) => Error::InvalidProvider(provider),
        _ => plain(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tried: Tried<'_>, code: u32, expected: &[&str]) {
        let text = meaning(tried, "StartTraceW", code, "the message of Windows".into()).to_string();
        for part in expected {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn errors_state_the_action() {
        let user = Tried::Session { name: "mine", kernel: false };
        let kernel = Tried::Session { name: "mine", kernel: true };
        check(user, 5, &["\"mine\"", "Administrators", "Performance Log Users"]);
        check(kernel, 5, &["\"mine\"", "administrator"]);
        check(kernel, 1314, &["administrator"]);
        check(user, 183, &["\"mine\"", "already running"]);
        check(user, 1450, &["no free session", "64", "8"]);
        check(user, 4201, &["\"mine\"", "no session"]);
        check(user, 112, &["StartTraceW", "112", "the message of Windows"]);
    }

    #[test]
    fn denied_providers_report_the_required_access() {
        let of = |text: &str| Tried::Provider(text.parse().unwrap());
        let intelligence = "f4e1897c-bb5d-5668-f1d8-040f4d8dd344";
        check(of(intelligence), 5, &[intelligence, "antimalware-light protected process", "ELAM"]);
        check(of("e02a841c-75a3-4fa7-afc8-ae09cf9b7f23"), 5, &["administrator"]);
        check(of("54849625-5478-4994-a5ba-3e3b0328c30d"), 5, &["EventLog-Security"]);
        check(of("7dd42a49-5329-4832-8dfd-43d979153a88"), 5, &["Performance Log Users"]);
        check(of("00000000-0000-0000-0000-000000000000"), 87, &["00000000", "provider"]);
    }
}
