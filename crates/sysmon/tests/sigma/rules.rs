//! The conditions of Sigma's public rules about Sysmon's `CallTrace` as data: field, comparison and
//! values.
//!
//! Rules are named by the first part of their id. Text is compared as in Sigma: without case, with
//! `*` for any text and `?` for any character. Filters for products that are not in the corpus are
//! included, so that the figures apply to other data.

/// A field of event 10.
#[derive(Clone, Copy)]
pub enum Field {
    /// The program that requested the handle.
    Source,
    /// The opened program.
    Target,
    /// The rights, as Sysmon writes them: `0x1fffff`.
    Access,
    /// The stack.
    Trace,
}

/// The kind of comparison.
#[derive(Clone, Copy)]
pub enum Is {
    Equal,
    Start,
    End,
    In,
}

/// A clause: one of the values matches the field.
pub struct Fits(pub Field, pub Is, pub &'static [&'static str]);

/// A rule matches if all clauses of one wanted list match, and no list of the exceptions does.
pub struct Rule {
    pub id: &'static str,
    pub wanted: &'static [&'static [Fits]],
    pub unless: &'static [&'static [Fits]],
}

/// The fields of an event that rules use.
pub struct Access<'a> {
    pub source: &'a str,
    pub target: &'a str,
    pub access: &'a str,
    pub trace: &'a str,
}

/// Whether a lower-case pattern matches a whole lower-case text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&c) if c == b'?' || c == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((location, until)) = star else { return false };
                star = Some((location, until + 1));
                at = location + 1;
                from = until + 1;
            }
        }
    }
    pattern[at..].iter().all(|c| *c == b'*')
}

impl Fits {
    fn holds(&self, access: &Access<'_>) -> bool {
        let text = match self.0 {
            Field::Source => access.source,
            Field::Target => access.target,
            Field::Access => access.access,
            Field::Trace => access.trace,
        };
        let text = text.to_lowercase();
        self.2.iter().any(|value| {
            let value = value.to_lowercase();
            let pattern = match self.1 {
                Is::Equal => value,
                Is::Start => format!("{value}*"),
                Is::End => format!("*{value}"),
                Is::In => format!("*{value}*"),
            };
            glob(pattern.as_bytes(), text.as_bytes())
        })
    }
}

impl Rule {
    pub fn hits(&self, access: &Access<'_>) -> bool {
        let fits = |clauses: &[Fits]| clauses.iter().all(|clause| clause.holds(access));
        let is_wanted = self.wanted.iter().any(|clauses| fits(clauses)) && self.has_shape(access.trace);
        is_wanted && !self.unless.iter().any(|clauses| fits(clauses))
    }

    /// One rule defines the whole stack by a regular expression: three frames, of which two have
    /// offsets of four to six digits, and the last one is an address of 16 digits in no module.
    fn has_shape(&self, trace: &str) -> bool {
        if self.id != "09706624" {
            return true;
        }
        let frames: Vec<&str> = trace.split('|').collect();
        let [ntdll, base, unknown] = frames[..] else { return false };
        let is_offset = |text: &str| {
            (4..=6).contains(&text.len())
                && text.bytes().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase())
        };
        let offset = |frame: &str, module: &str| frame.strip_prefix(module).is_some_and(is_offset);
        offset(ntdll, r"C:\Windows\SYSTEM32\ntdll.dll+")
            && offset(base, r"C:\Windows\System32\KERNELBASE.dll+")
            && unknown.strip_prefix("UNKNOWN(").and_then(|rest| rest.strip_suffix(')')).is_some_and(
                |digits| {
                    digits.len() == 16 && digits.bytes().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
                },
            )
    }
}

use Field::{Source, Target, Trace};
use Is::{End, Equal, In, Start};

const RIGHTS: Field = Field::Access;
const LSASS: Fits = Fits(Target, End, &["\\lsass.exe"]);
const ALL_RIGHTS: Fits = Fits(RIGHTS, Equal, &["0x1fffff"]);
const UNKNOWN: Fits = Fits(Trace, In, &["UNKNOWN"]);
const INSTALLED: &[&str] =
    &[":\\Program Files (x86)\\", ":\\Program Files\\", ":\\Windows\\System32\\", ":\\Windows\\SysWOW64\\"];
const INSTALLED_OR_KEPT: &[&str] = &[
    ":\\Program Files (x86)\\",
    ":\\Program Files\\",
    ":\\Windows\\System32\\",
    ":\\Windows\\SysWOW64\\",
    ":\\Windows\\WinSxS\\",
];

#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    // A stack of three frames: ntdll, kernelbase, no module.
    Rule { id: "09706624", wanted: &[&[Fits(RIGHTS, Equal, &["0x1028", "0x1fffff"])]], unless: &[] },
    // The innermost frame is in no module.
    Rule { id: "3f3f3506", wanted: &[&[Fits(Trace, Start, &["UNKNOWN"])]], unless: &[
        &[Fits(Target, End, &["vcredist_x64.exe"]), Fits(Source, End, &["vcredist_x64.exe"])],
        &[Fits(Source, In, INSTALLED_OR_KEPT), Fits(Target, In, INSTALLED_OR_KEPT)],
        &[Fits(Target, End, &[":\\Windows\\system32\\systeminfo.exe"]), Fits(Source, End, &["setup64.exe"])],
        &[Fits(Source, End, &[":\\Windows\\Explorer.EXE"]), Fits(Target, End, &[":\\Program Files\\Cylance\\Desktop\\CylanceUI.exe"])],
        &[Fits(Source, End, &["AmazonSSMAgentSetup.exe"]), Fits(Target, End, &["AmazonSSMAgentSetup.exe"])],
        &[Fits(Source, End, &["\\AppData\\Local\\Programs\\Microsoft VS Code\\Code.exe"]), Fits(Target, End, &["\\AppData\\Local\\Programs\\Microsoft VS Code\\Code.exe"])],
        &[Fits(Source, End, &["\\AppData\\Local\\Microsoft\\Teams\\current\\Teams.exe"]), Fits(Target, End, &["\\AppData\\Local\\Microsoft\\Teams\\current\\Teams.exe"])],
        &[Fits(Target, In, &["\\AppData\\Local\\Discord\\"]), Fits(Target, End, &["\\Discord.exe"])],
        &[Fits(Target, End, &["\\Evernote\\Evernote.exe"])],
    ] },
    // A handle to lsass with the right to duplicate handles, requested by code in no module.
    Rule { id: "b1bd3a59", wanted: &[&[LSASS, Fits(RIGHTS, Equal, &["0x1440"]), Fits(Trace, Start, &["C:\\Windows\\System32\\ntdll.dll+"]), Fits(Trace, In, &["|UNKNOWN("]), Fits(Trace, End, &[")"])]], unless: &[] },
    Rule { id: "7bdde3bf", wanted: &[&[Fits(Source, End, &["\\winword.exe"]), Fits(Trace, In, &[":\\Windows\\Microsoft.NET\\Framework64\\v2."]), UNKNOWN]], unless: &[] },
    Rule { id: "d29ada0f", wanted: &[
        &[Fits(Target, In, &[":\\Windows\\Sysmon.exe", ":\\Windows\\Sysmon64.exe"]), Fits(RIGHTS, Equal, &["0x1400"])],
        &[Fits(Trace, Equal, &["Ente"])],
    ], unless: &[
        &[Fits(Target, In, &[":\\Windows\\Sysmon.exe", ":\\Windows\\Sysmon64.exe"]), Fits(Source, In, INSTALLED)],
        &[Fits(Source, In, &[":\\ProgramData\\Microsoft\\Windows Defender\\Platform\\"]), Fits(Source, End, &["\\MsMpEng.exe"])],
    ] },
    Rule { id: "b916cba1", wanted: &[&[ALL_RIGHTS, Fits(Trace, Start, &["C:\\Windows\\SYSTEM32\\ntdll.dll+"]), Fits(Trace, In, &["|UNKNOWN("]), Fits(Trace, End, &[")"])]], unless: &[
        &[Fits(Source, In, INSTALLED)],
        &[Fits(Target, In, INSTALLED)],
        &[Fits(Source, End, &["\\thor.exe", "\\thor64.exe"])],
        &[Fits(Source, In, &[":\\Windows\\Microsoft.NET\\"]), Fits(Target, In, &[":\\Windows\\Microsoft.NET\\"])],
    ] },
    Rule { id: "fb3722e4", wanted: &[&[Fits(Trace, In, &["editionupgrademanagerobj.dll"])]], unless: &[] },
    Rule { id: "a49fa4d5", wanted: &[&[LSASS, Fits(Source, End, &["\\rundll32.exe"]), Fits(Trace, In, &["comsvcs.dll"])]], unless: &[] },
    Rule { id: "5ef9853e", wanted: &[&[LSASS, Fits(RIGHTS, In, &["0x1038", "0x1438", "0x143a"]), Fits(Trace, In, &["dbghelp.dll", "dbgcore.dll", "ntdll.dll"])]], unless: &[
        &[Fits(Source, Equal, &["C:\\Windows\\Sysmon64.exe"])],
        &[Fits(Trace, In, &["|C:\\Windows\\Temp\\asgard2-agent\\"]), Fits(Trace, In, &["\\thor\\thor64.exe+"]), Fits(Trace, In, &["|UNKNOWN("]), Fits(RIGHTS, Equal, &["0x103800"])],
    ] },
    Rule { id: "f8be3e82", wanted: &[&[LSASS, ALL_RIGHTS, Fits(Trace, In, &["_ctypes.pyd+"]), Fits(Trace, In, &[":\\Windows\\System32\\KERNELBASE.dll+"]), Fits(Trace, In, &[":\\Windows\\SYSTEM32\\ntdll.dll+"]), Fits(Trace, In, &["python27.dll+", "python3*.dll+"])]], unless: &[] },
    Rule { id: "166e9c50", wanted: &[&[Fits(Target, End, &[":\\Windows\\System32\\svchost.exe"]), Fits(RIGHTS, Equal, &["0x1f3fff"]), UNKNOWN]], unless: &[
        &[Fits(Source, In, &[":\\Program Files\\Microsoft Visual Studio\\"]), Fits(Source, End, &["\\MSBuild\\Current\\Bin\\MSBuild.exe"]), Fits(Trace, In, &["Microsoft.Build.ni.dll", "System.ni.dll"])],
    ] },
    Rule { id: "3b4b232a", wanted: &[&[Fits(Trace, In, &["cmlua.dll"])]], unless: &[] },
    Rule { id: "4f6c43e2", wanted: &[&[Fits(Source, In, &[":\\Windows\\SysWOW64\\"]), ALL_RIGHTS, Fits(Trace, Start, &["UNKNOWN(0000000000000000)|UNKNOWN(0000000000000000)|"])]], unless: &[] },
    Rule { id: "472159c5", wanted: &[&[LSASS, Fits(Source, End, &["\\svchost.exe"]), Fits(RIGHTS, Equal, &["0x14c0"]), Fits(Trace, In, &["seclogon.dll"])]], unless: &[] },
    // Deprecated by its authors because of many false positives.
    Rule { id: "5f113a8f", wanted: &[
        &[Fits(Trace, In, &["C:\\WINDOWS\\SYSTEM32\\ntdll.dll+"]), Fits(Trace, In, &["|C:\\WINDOWS\\System32\\KERNELBASE.dll+"]), Fits(Trace, In, &["|UNKNOWN("]), Fits(Trace, In, &[")"])],
        &[Fits(Trace, In, &["UNKNOWN("]), Fits(Trace, In, &[")|UNKNOWN("]), Fits(Trace, End, &[")"])],
        &[UNKNOWN, Fits(RIGHTS, Equal, &["0x1f0fff", "0x1f1fff", "0x143a", "0x1410", "0x1010", "0x1f2fff", "0x1f3fff", "0x1fffff"])],
    ], unless: &[
        &[Fits(Source, End, &["\\Windows\\System32\\sdiagnhost.exe", "\\procexp64.exe", "\\procexp.exe", "\\Microsoft VS Code\\Code.exe", "\\aurora-agent-64.exe", "\\aurora-agent.exe", "\\git\\usr\\bin\\sh.exe", "\\IDE\\devenv.exe", "\\GitHubDesktop\\Update.exe", "\\RuntimeBroker.exe", "\\backgroundTaskHost.exe", "\\GitHubDesktop.exe"])],
        &[Fits(Source, Start, &["C:\\Program Files (x86)\\", "C:\\Program Files\\", "C:\\Windows\\Microsoft.NET\\Framework", "C:\\WINDOWS\\System32\\DriverStore\\", "C:\\Windows\\System32\\WindowsPowerShell\\"])],
        &[Fits(Source, Equal, &["C:\\WINDOWS\\system32\\taskhostw.exe", "C:\\WINDOWS\\system32\\ctfmon.exe", "C:\\WINDOWS\\system32\\NhNotifSys.exe", "C:\\Windows\\ImmersiveControlPanel\\SystemSettings.exe", "C:\\Windows\\explorer.exe"])],
        &[Fits(Target, Equal, &["C:\\Windows\\System32\\RuntimeBroker.exe"])],
        &[Fits(Target, End, &["\\Microsoft VS Code\\Code.exe"])],
        &[Fits(Trace, In, &["|C:\\WINDOWS\\System32\\RPCRT4.dll+"])],
        &[Fits(Source, Start, &["C:\\ProgramData\\Microsoft\\Windows Defender\\Platform\\"]), Fits(Source, End, &["\\MsMpEng.exe"])],
        &[Fits(Source, End, &["\\eclipse.exe"]), Fits(Trace, In, &["\\jre\\bin\\java.dll", "|C:\\Windows\\SYSTEM32\\windows.storage.dll+", "\\configuration\\org.eclipse.osgi\\"])],
        &[Fits(Source, Equal, &["C:\\Windows\\system32\\OpenWith.exe"]), Fits(Target, Equal, &["C:\\Windows\\Explorer.EXE"])],
    ] },
    Rule { id: "b7967e22", wanted: &[
        &[Fits(Target, End, &["\\verclsid.exe"]), ALL_RIGHTS, Fits(Trace, In, &["|UNKNOWN("]), Fits(Trace, In, &["VBE7.DLL"])],
        &[Fits(Target, End, &["\\verclsid.exe"]), ALL_RIGHTS, Fits(Source, In, &["\\Microsoft Office\\"]), Fits(Trace, In, &["|UNKNOWN"])],
    ], unless: &[] },
    Rule { id: "250ae82f", wanted: &[&[Fits(RIGHTS, Equal, &["0x147a", "0x1f3fff"]), UNKNOWN]], unless: &[
        &[Fits(Source, Equal, &["C:\\Windows\\System32\\Wbem\\Wmiprvse.exe"]), Fits(Target, Equal, &["C:\\Windows\\system32\\lsass.exe"])],
        &[Fits(Source, Start, &["C:\\Program Files\\Dell\\", "C:\\Program Files (x86)\\Dell\\"]), Fits(Target, Start, &["C:\\Program Files\\Dell\\", "C:\\Program Files (x86)\\Dell\\"])],
        &[Fits(Source, Start, &["C:\\Program Files\\Microsoft Visual Studio\\"]), Fits(Target, Start, &["C:\\Program Files\\Microsoft Visual Studio\\"])],
    ] },
    Rule { id: "9f5c1d59", wanted: &[&[LSASS, Fits(Trace, In, &["dbgcore.dll", "dbghelp.dll"]), Fits(Source, In, &[":\\Perflogs\\", ":\\Temp\\", ":\\Users\\Public\\", "\\$Recycle.Bin\\", "\\AppData\\Roaming\\", "\\Contacts\\", "\\Desktop\\", "\\Documents\\", "\\Downloads\\", "\\Favorites\\", "\\Favourites\\", "\\inetpub\\wwwroot\\", "\\Music\\", "\\Pictures\\", "\\Start Menu\\Programs\\Startup\\", "\\Users\\Default\\", "\\Videos\\", "\\Windows\\Temp\\"])]], unless: &[] },
    Rule { id: "387df17d", wanted: &[&[Fits(Source, End, &["\\WerFaultSecure.exe"]), Fits(Target, End, &["\\MsMpEng.exe"]), Fits(Trace, In, &["\\dbgcore.dll", "\\dbghelp.dll"])]], unless: &[] },
    // The stack is used only to exclude Windows Defender.
    Rule { id: "a18dd26b", wanted: &[
        &[LSASS, Fits(RIGHTS, End, &["30", "50", "70", "90", "B0", "D0", "F0", "18", "38", "58", "78", "98", "B8", "D8", "F8", "1A", "3A", "5A", "7A", "9A", "BA", "DA", "FA", "0x14C2"])],
        &[LSASS, Fits(RIGHTS, Start, &["0x100000", "0x1418", "0x1438", "0x143a", "0x1f0fff", "0x1f1fff", "0x1f2fff", "0x1f3fff", "0x40"])],
    ], unless: &[
        &[Fits(Source, In, INSTALLED)],
        &[Fits(Source, End, &[":\\ProgramData\\MALWAREBYTES\\MBAMSERVICE\\ctlrupdate\\mbupdatr.exe", "\\AppData\\Local\\Programs\\Microsoft VS Code\\Code.exe"])],
        &[Fits(Source, In, &[":\\ProgramData\\Microsoft\\Windows Defender\\"]), Fits(Source, End, &["\\MsMpEng.exe"])],
        &[Fits(Trace, In, &["|?:\\ProgramData\\Microsoft\\Windows Defender\\Definition Updates\\{"]), Fits(Trace, In, &["}\\mpengine.dll+"]), Fits(RIGHTS, Equal, &["0x1418"])],
        &[Fits(Trace, In, &["|c:\\program files\\windows defender\\mprtp.dll", "|c:\\program files\\windows defender\\MpClient.dll"])],
        &[Fits(Source, In, &[":\\ProgramData\\VMware\\VMware Tools\\"]), Fits(Source, End, &["\\vmtoolsd.exe"])],
        &[Fits(RIGHTS, Equal, &["0x40"]), Fits(Source, End, &["\\PROCEXP64.EXE", "\\PROCEXP.EXE", "\\MBAMInstallerService.exe", "\\aurora-agent-64.exe", "\\aurora-agent.exe", "\\thor.exe", "\\thor64.exe", "\\handle.exe", "\\handle64.exe"])],
        &[Fits(RIGHTS, Equal, &["0x401"]), Fits(Source, End, &["\\explorer.exe", "\\AppData\\Local\\WebEx\\WebexHost.exe"])],
        &[Fits(Source, In, &["\\SteamLibrary\\steamapps\\"])],
    ] },
    // These two were merged into f8be3e82.
    Rule { id: "4b9a8556", wanted: &[&[LSASS, ALL_RIGHTS, Fits(Trace, In, &["C:\\Windows\\SYSTEM32\\ntdll.dll+"]), Fits(Trace, In, &["|C:\\Windows\\System32\\KERNELBASE.dll+"]), Fits(Trace, In, &["_ctypes.pyd+"]), Fits(Trace, In, &["python27.dll+"])]], unless: &[] },
    Rule { id: "7186e989", wanted: &[&[LSASS, ALL_RIGHTS, Fits(Trace, In, &["C:\\Windows\\SYSTEM32\\ntdll.dll+"]), Fits(Trace, In, &["C:\\Windows\\System32\\KERNELBASE.dll+"]), Fits(Trace, In, &["libffi-7.dll"]), Fits(Trace, In, &["_ctypes.pyd+"]), Fits(Trace, In, &["python3*.dll+"])]], unless: &[] },
];
