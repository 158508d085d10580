//! The fields and events of rules in events of Windows logs.

use std::sync::LazyLock;

use stackhound_facts::{FactId, ProcessFact};
use stackhound_rules::evaluate::{FieldRef, ResolvedField};
use stackhound_rules::{DataForm, DataSource, EventName, Field};

use super::event::WindowsEvent;

/// A field of conditions, as the data of events has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogField {
    /// The value of a field of conditions.
    Known(DataSource),
    /// A value by the name that a rule of Sigma uses.
    Named(Box<str>),
    /// Every value.
    All,
}

impl LogField {
    /// The field for events with this name; `None` if they never have it.
    pub fn resolve(used: FieldRef<'_>, event: EventName) -> Option<ResolvedField<LogField>> {
        let field = match used {
            FieldRef::Data("*") => LogField::All,
            FieldRef::Data(name) => LogField::Named(name.into()),
            FieldRef::Field(used) => {
                let field = match (used.field.name, used.argument.as_deref()) {
                    ("evt.arg", Some(argument)) if has_argument(argument, event.name()) => {
                        Field::of_argument(argument)?
                    }
                    (_, None) => used.field,
                    _ => return None,
                };
                LogField::Known(source(field, event.name())?)
            }
        };
        Some(ResolvedField { field, cost: 0 })
    }
}

fn has_argument(argument: &str, event: &str) -> bool {
    match argument {
        "exe" | "name" | "pid" => matches!(event, "OpenProcess" | "CreateThread"),
        "file_path" | "key_path" | "status" => true,
        _ => false,
    }
}

/// The data with the value of a field.
fn source(field: &Field, event: &str) -> Option<DataSource> {
    let name = field.canonical_name;
    // Other events have these names for other values, or not at all.
    let is_of_start = matches!(name, "ps.args" | "ps.cwd")
        || ["ps.parent.", "ps.pe."].iter().any(|prefix| name.starts_with(prefix));
    if is_of_start && event != "CreateProcess" {
        return None;
    }
    if field.data.is_some() {
        return field.data;
    }
    let (fact, form) = match name {
        "ps.name" => (ProcessFact::Path, DataForm::FileName),
        "ps.username" => (ProcessFact::UserName, DataForm::User),
        "ps.domain" => (ProcessFact::UserName, DataForm::Domain),
        "ps.token.integrity_level" => (ProcessFact::Integrity, DataForm::Upper),
        name => (ProcessFact::with_alias(name.strip_prefix("ps.")?)?, DataForm::Text),
    };
    let names = fact.row().sigma;
    (!names.is_empty()).then_some(DataSource { names, form })
}

/// The categories of services by channel.
static CHANNELS: LazyLock<Vec<(&str, EventName)>> = LazyLock::new(|| {
    let of = |(service, channel): &(&str, &'static str)| {
        Some((*channel, EventName::of(&format!("sigma.service.{service}"))?))
    };
    SERVICES.iter().filter_map(of).collect()
});

/// The names that rules have for an event.
pub(super) fn names(event: &WindowsEvent) -> Vec<EventName> {
    if event.is_of_sysmon() {
        let names = of_sysmon(event.id.unwrap_or(0), event).iter().copied().chain(["sigma.service.sysmon"]);
        return names.filter_map(EventName::of).collect();
    }
    let is_channel = |known: &str| known.eq_ignore_ascii_case(&event.channel);
    let services = CHANNELS.iter().filter(|(channel, _)| is_channel(channel)).map(|(_, name)| *name);
    let category = match event.id {
        Some(4103) if is_channel("Microsoft-Windows-PowerShell/Operational") => Some("sigma.ps_module"),
        Some(4104) if is_channel("Microsoft-Windows-PowerShell/Operational") => Some("sigma.ps_script"),
        Some(400) if is_channel("Windows PowerShell") => Some("sigma.ps_classic_start"),
        _ => None,
    };
    services.chain(category.and_then(EventName::of)).collect()
}

fn of_sysmon(id: u32, event: &WindowsEvent) -> &'static [&'static str] {
    let kind = event.get("EventType").unwrap_or_default();
    match id {
        1 => &["CreateProcess", "sigma.process_creation"],
        2 => &["sigma.file_change"],
        3 if event.get("Initiated").is_some_and(|text| text.eq_ignore_ascii_case("false")) => {
            &["Accept", "sigma.network_connection"]
        }
        3 => &["Connect", "sigma.network_connection"],
        4 | 16 => &["sigma.sysmon_status"],
        5 => &["TerminateProcess", "sigma.process_termination"],
        6 => &["LoadModule", "sigma.driver_load"],
        7 => &["LoadModule", "sigma.image_load"],
        8 => &["CreateThread", "sigma.create_remote_thread"],
        9 => &["sigma.raw_access_thread"],
        10 => &["OpenProcess", "sigma.process_access"],
        11 => &["CreateFile", "sigma.file_event"],
        12 if kind == "CreateKey" => &["RegCreateKey", "sigma.registry_add", "sigma.registry_event"],
        12 if kind == "DeleteKey" => &["RegDeleteKey", "sigma.registry_delete", "sigma.registry_event"],
        12 => &["RegDeleteValue", "sigma.registry_delete", "sigma.registry_event"],
        13 => &["RegSetValue", "sigma.registry_set", "sigma.registry_event"],
        14 => &["sigma.registry_rename", "sigma.registry_event"],
        15 => &["sigma.create_stream_hash"],
        17 | 18 => &["sigma.pipe_created"],
        19..=21 => &["sigma.wmi_event"],
        22 => &["QueryDns", "sigma.dns_query"],
        23 => &["DeleteFile", "sigma.file_delete"],
        24 => &["sigma.clipboard_capture"],
        25 => &["sigma.process_tampering"],
        26 => &["DeleteFile", "sigma.file_delete", "sigma.file_delete_detected"],
        27 => &["sigma.file_block_executable"],
        28 => &["sigma.file_block_shredding"],
        29 => &["sigma.file_executable_detected"],
        255 => &["sigma.sysmon_error"],
        _ => &[],
    }
}

/// Services of Sigma, with the channels of their events.
const SERVICES: [(&str, &str); 36] = [
    ("application", "Application"),
    ("applocker", "Microsoft-Windows-AppLocker/EXE and DLL"),
    ("applocker", "Microsoft-Windows-AppLocker/MSI and Script"),
    ("applocker", "Microsoft-Windows-AppLocker/Packaged app-Deployment"),
    ("applocker", "Microsoft-Windows-AppLocker/Packaged app-Execution"),
    ("appxdeployment-server", "Microsoft-Windows-AppXDeploymentServer/Operational"),
    ("bits-client", "Microsoft-Windows-Bits-Client/Operational"),
    ("capi2", "Microsoft-Windows-CAPI2/Operational"),
    (
        "certificateservicesclient-lifecycle-system",
        "Microsoft-Windows-CertificateServicesClient-Lifecycle-System/Operational",
    ),
    ("codeintegrity-operational", "Microsoft-Windows-CodeIntegrity/Operational"),
    ("diagnosis-scripted", "Microsoft-Windows-Diagnosis-Scripted/Operational"),
    ("dns-client", "Microsoft-Windows-DNS Client Events/Operational"),
    ("dns-server", "DNS Server"),
    ("driver-framework", "Microsoft-Windows-DriverFrameworks-UserMode/Operational"),
    ("firewall-as", "Microsoft-Windows-Windows Firewall With Advanced Security/Firewall"),
    ("ldap", "Microsoft-Windows-LDAP-Client/Debug"),
    ("lsa-server", "Microsoft-Windows-LSA/Operational"),
    ("ntlm", "Microsoft-Windows-NTLM/Operational"),
    ("openssh", "OpenSSH/Operational"),
    ("powershell", "Microsoft-Windows-PowerShell/Operational"),
    ("powershell", "PowerShellCore/Operational"),
    ("powershell-classic", "Windows PowerShell"),
    ("printservice-admin", "Microsoft-Windows-PrintService/Admin"),
    ("printservice-operational", "Microsoft-Windows-PrintService/Operational"),
    ("security", "Security"),
    ("security-mitigations", "Microsoft-Windows-Security-Mitigations/Kernel Mode"),
    ("security-mitigations", "Microsoft-Windows-Security-Mitigations/User Mode"),
    ("shell-core", "Microsoft-Windows-Shell-Core/Operational"),
    ("smbclient-connectivity", "Microsoft-Windows-SmbClient/Connectivity"),
    ("smbclient-security", "Microsoft-Windows-SmbClient/Security"),
    ("system", "System"),
    ("taskscheduler", "Microsoft-Windows-TaskScheduler/Operational"),
    (
        "terminalservices-localsessionmanager",
        "Microsoft-Windows-TerminalServices-LocalSessionManager/Operational",
    ),
    ("vhdmp", "Microsoft-Windows-VHDMP/Operational"),
    ("windefend", "Microsoft-Windows-Windows Defender/Operational"),
    ("wmi", "Microsoft-Windows-WMI-Activity/Operational"),
];
