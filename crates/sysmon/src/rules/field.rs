//! The fields and events of rules in events of Windows logs.

use std::sync::LazyLock;

use stackhound_facts::{FactId, ProcessFact};
use stackhound_rules::EventName;
use stackhound_rules::evaluate::{FieldRef, ResolvedField};

use super::event::WindowsEvent;

/// A field of conditions, as Sysmon's data has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogField {
    /// The names of the value in the data, of which the first one that is there counts.
    names: &'static [&'static str],
    /// A name that a rule of Sigma uses.
    own: Option<Box<str>>,
    pub(super) form: LogForm,
}

/// How the value is spelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogForm {
    /// As it is.
    Text,
    /// The file name of a path.
    FileName,
    /// The extension of a path with its dot.
    Extension,
    /// In upper case.
    Upper,
    /// The part before, or after, a backslash.
    Domain,
    User,
    /// Registry paths with the long names of roots.
    Registry,
    /// Names of access rights, one by one.
    ProcessAccess,
    /// Hexadecimal digits without `0x`.
    Hex,
    /// Arguments of a command line.
    Arguments,
    /// `true` and `false`.
    Truth,
    /// Whether a signature is valid.
    IsValid,
    /// Parts between semicolons.
    Parts,
    /// Paths of the modules in a stack, and the file names of adjacent ones.
    StackModules,
    StackSummary,
    /// Whether a frame of the stack is in no module.
    IsUnbacked,
    /// Always this text.
    Constant(&'static str),
    /// Every value of the data.
    All,
}

impl LogField {
    /// The field for events with this name; `None` if they never have it.
    pub fn resolve(used: FieldRef<'_>, event: EventName) -> Option<ResolvedField<LogField>> {
        let of = |(names, form)| LogField { names, own: None, form };
        let field = match used {
            FieldRef::Data("*") => LogField { names: &[], own: None, form: LogForm::All },
            FieldRef::Data(name) => LogField { names: &[], own: Some(name.into()), form: LogForm::Text },
            FieldRef::Field(used) => {
                let name = match (used.field.name, used.argument.as_deref()) {
                    ("evt.arg", Some(argument)) => argument_name(argument, event.name())?,
                    (name, None) => name,
                    _ => return None,
                };
                of(data_of(name, event.name())?)
            }
        };
        Some(ResolvedField { field, cost: 0 })
    }

    /// The text of the value in an event.
    pub(super) fn text<'e>(&self, event: &'e WindowsEvent) -> Option<&'e str> {
        match &self.own {
            Some(name) => event.get(name),
            None => self.names.iter().find_map(|name| event.get(name)),
        }
    }

    /// Whether a rule of Sigma uses this name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.own.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(name))
    }

    /// Whether the name is one that a rule of Sigma uses.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

fn argument_name(argument: &str, event: &str) -> Option<&'static str> {
    Some(match (argument, event) {
        ("exe", "OpenProcess" | "CreateThread") => "target.exe",
        ("name", "OpenProcess" | "CreateThread") => "target.name",
        ("pid", "OpenProcess" | "CreateThread") => "thread.pid",
        ("status", _) => "status",
        ("file_path", _) => "file.path",
        ("key_path", _) => "registry.path",
        _ => return None,
    })
}

/// The names in Sysmon's data of a field of conditions. Sysmon's event 10 and 8 have their own names
/// for the acting process.
fn data_of(name: &str, event: &str) -> Option<(&'static [&'static str], LogForm)> {
    use LogForm::*;
    let is_created = event == "CreateProcess";
    Some(match name {
        "ps.name" => (ProcessFact::Path.row().sigma, FileName),
        "evt.pid" | "ps.pid" => (&["ProcessId", "SourceProcessId"], Text),
        "ps.username" => (ProcessFact::UserName.row().sigma, User),
        "ps.domain" => (ProcessFact::UserName.row().sigma, Domain),
        "ps.args" if is_created => (&["CommandLine"], Arguments),
        "ps.cwd" if is_created => (&["CurrentDirectory"], Text),
        "ps.token.integrity_level" => (ProcessFact::Integrity.row().sigma, Upper),
        "ps.parent.pid" if is_created => (&["ParentProcessId"], Text),
        "ps.parent.exe" if is_created => (&["ParentImage"], Text),
        "ps.parent.name" if is_created => (&["ParentImage"], FileName),
        "ps.parent.cmdline" if is_created => (&["ParentCommandLine"], Text),
        "ps.parent.args" if is_created => (&["ParentCommandLine"], Arguments),
        "ps.parent.uuid" if is_created => (&["ParentProcessGuid"], Text),
        "ps.parent.username" if is_created => (&["ParentUser"], User),
        "ps.pe.file.name" if is_created => (&["OriginalFileName"], Text),
        "ps.pe.company" if is_created => (&["Company"], Text),
        "ps.pe.product" if is_created => (&["Product"], Text),
        "ps.pe.description" if is_created => (&["Description"], Text),
        "ps.pe.file.version" if is_created => (&["FileVersion"], Text),
        "file.path" => (&["TargetFilename"], Text),
        "file.name" => (&["TargetFilename"], FileName),
        "file.extension" => (&["TargetFilename"], Extension),
        "file.operation" => (&[], Constant("CREATE")),
        "file.status" | "registry.status" | "ps.access.status" | "status" => (&[], Constant("Success")),
        "module.path" | "dll.path" => (&["ImageLoaded"], Text),
        "module.name" | "dll.name" => (&["ImageLoaded"], FileName),
        "module.signature.exists" | "dll.signature.exists" => (&["Signed"], Truth),
        "module.signature.trusted" | "dll.signature.trusted" => (&["SignatureStatus"], IsValid),
        "module.signature.subject" | "dll.signature.subject" => (&["Signature"], Text),
        "registry.path" => (&["TargetObject"], Registry),
        "registry.key.name" => (&["TargetObject"], FileName),
        "registry.value" => (&["TargetObject"], FileName),
        "registry.data" => (&["Details"], Text),
        "net.dip" => (&["DestinationIp"], Text),
        "net.sip" => (&["SourceIp"], Text),
        "net.dport" => (&["DestinationPort"], Text),
        "net.sport" => (&["SourcePort"], Text),
        "net.l4.proto" => (&["Protocol"], Upper),
        "dns.name" => (&["QueryName"], Text),
        "dns.answers" => (&["QueryResults"], Parts),
        "target.exe" => (&["TargetImage"], Text),
        "target.name" => (&["TargetImage"], FileName),
        "thread.pid" => (&["TargetProcessId"], Text),
        "thread.start_address" => (&["StartAddress"], Hex),
        "thread.start_address.module" => (&["StartModule"], Text),
        "thread.start_address.symbol" => (&["StartFunction"], Text),
        "ps.access.mask.names" => (&["GrantedAccess"], ProcessAccess),
        "thread.callstack.modules" => (&["CallTrace"], StackModules),
        "thread.callstack.summary" => (&["CallTrace"], StackSummary),
        "thread.callstack.is_unbacked" => (&["CallTrace"], IsUnbacked),
        name => {
            let names = ProcessFact::with_alias(name.strip_prefix("ps.")?)?.row().sigma;
            return (!names.is_empty()).then_some((names, Text));
        }
    })
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
