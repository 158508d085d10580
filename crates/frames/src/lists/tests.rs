use stackhound_images::{FactSource, ImageEvidence, ImageFacts, Signature, SignatureState};

use super::*;

fn roles(path: &str) -> Roles {
    Lists::default().roles(&ModuleFacts { path: path.into(), ..ModuleFacts::default() }, None)
}

#[test]
fn patterns_match_like_globs() {
    for (pattern, text, expected) in [
        ("*.ni.dll", "mscorlib.ni.dll", true),
        ("*.ni.dll", "mscorlib.dll", false),
        ("umppc*.dll", "UMPPC1234.DLL", true),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*", "", true),
        ("", "", true),
        ("", "a", false),
        ("*a*b", "xaxbxb", true),
        ("*a*b", "xaxbxbc", false),
    ] {
        assert_eq!(Pattern::from(pattern.to_owned()).fits(text), expected, "{pattern} {text}");
    }
}

#[test]
fn roles_depend_on_the_folder() {
    let ntdll = roles(r"\SystemRoot\System32\ntdll.dll");
    assert!(ntdll.has(Role::SystemCall) && ntdll.has(Role::Ntdll) && ntdll.has(Role::Windows));
    let copy = roles(r"C:\Users\a\ntdll.dll");
    assert!(copy.has(Role::NamedNtdll));
    assert!(!copy.has_any(Role::SystemCall | Role::Ntdll) && !copy.has(Role::Windows));
    assert!(!roles(r"C:\Windows\Temp\a.dll").has(Role::Windows));
    assert!(roles(r"C:\Windows\Temporary\a.dll").has(Role::Windows));
    assert!(roles(r"\Device\HarddiskVolume2\Program Files\A\a.exe").has(Role::Installed));
    assert!(roles(r"C:\Program Files\A\a.exe").has(Role::Installed));
    assert!(!roles(r"C:\Users\Program Files\a.exe").has(Role::Installed));
    assert!(!roles(r"C:\Program Files").has(Role::Installed));
}

#[test]
fn names_of_runtimes_are_confirmed_by_their_folder_or_signer() {
    let facts = |path: &str| ModuleFacts { path: path.into(), ..ModuleFacts::default() };
    for (path, expected) in [
        (r"C:\Windows\Microsoft.NET\Framework64\v4.0.30319\clr.dll", true),
        (r"\Device\HarddiskVolume2\Windows\Microsoft.NET\Framework\v2.0.50727\mscorwks.dll", true),
        (r"C:\Windows\assembly\NativeImages_v4.0.30319_64\System\0a\System.ni.dll", true),
        (r"C:\Windows\System32\mscoree.dll", true),
        (r"C:\Program Files\dotnet\shared\Microsoft.NETCore.App\9.0.0\coreclr.dll", true),
        (r"C:\Program Files (x86)\Game\lua51.dll", true),
        ("clr.dll", true),
        (r"C:\Windows\System32\lua51.dll", false),
        (r"C:\Windows\Temp\assembly\NativeImages_v4.0.30319_64\a.ni.dll", false),
        (r"C:\Windows \assembly\NativeImages_v4.0.30319_64\a.ni.dll", false),
        (r"C:\Users\a\Windows\assembly\NativeImages_v4.0.30319_64\a.ni.dll", false),
        (r"C:\Windows\assembly\temp\a.ni.dll", false),
        (r"C:\Users\a\lua51.dll", false),
        (r"C:\clr.dll", false),
    ] {
        let roles = roles(path);
        assert_eq!((roles.has(Role::Runtime), roles.has(Role::LikeRuntime)), (expected, !expected), "{path}");
    }
    let signed = |signer: &str| {
        let chrome = facts(r"C:\Users\a\AppData\Local\Google\Chrome\chrome.dll");
        Lists::default().roles(&ModuleFacts { signer: Some(signer.into()), ..chrome }, None)
    };
    assert!(signed("Google LLC").has(Role::Runtime));
    assert!(!signed("Contoso").has(Role::Runtime) && signed("Contoso").has(Role::LikeRuntime));
    assert!(!roles(r"C:\Users\a\app.exe").has_any(Role::Runtime | Role::LikeRuntime));
}

/// As stated by a source that also checks catalogs.
fn unsigned_image() -> ImageEvidence {
    let signature = Signature { state: SignatureState::Unsigned, reason: None, signer: None };
    ImageFacts { signature: Some(signature), ..ImageFacts::new(FactSource::Sysmon) }.into()
}

#[test]
fn unsigned_images_do_not_belong_to_windows() {
    let unsigned = |lists: &Lists, path: &str| {
        let facts = ModuleFacts { path: path.into(), image: unsigned_image(), ..ModuleFacts::default() };
        lists.roles(&facts, None)
    };
    let lists = Lists::default();
    let planted = unsigned(&lists, r"C:\Windows\System32\planted.exe");
    assert!(planted.has(Role::Unsigned) && !planted.has(Role::Windows));
    // Native images are made on the machine and are never signed.
    let native = unsigned(&lists, r"C:\Windows\assembly\NativeImages_v4.0.30319_64\System\0a\System.ni.dll");
    assert!(!native.has(Role::Unsigned) && native.has(Role::Windows));
    let outside = unsigned(&lists, r"C:\Users\a\app.exe");
    assert!(!outside.has_any(Role::Unsigned | Role::Windows));
    // The list of known images decides.
    let known = unsigned(&lists.with_known_images("planted.exe"), r"C:\Windows\System32\planted.exe");
    assert!(!known.has(Role::Unsigned) && known.has_any(Role::Windows | Role::KnownSystem));
    // The roles of the system-call libraries do not depend on signatures, which Sysmon cannot always
    // check.
    assert!(unsigned(&Lists::default(), r"C:\Windows\System32\ntdll.dll").has(Role::Ntdll));
}

#[test]
fn crash_reporters_count_in_the_folders_of_windows() {
    let lists = Lists::default();
    assert!(lists.is_crash_reporter(r"C:\Windows\System32\WerFault.exe"));
    assert!(lists.is_crash_reporter(r"c:\windows\syswow64\werfault.exe"));
    for path in [r"C:\Windows\Temp\WerFault.exe", r"C:\Users\a\WerFault.exe", "WerFault.exe", ""] {
        assert!(!lists.is_crash_reporter(path), "{path}");
    }
}

#[test]
fn custom_lists_replace_keys() {
    let lists = Lists::with("[modules]\nhook = ['mine.dll']\n[alerts]\nwindow_seconds = 5").unwrap();
    let facts = |path: &str| ModuleFacts { path: path.into(), ..ModuleFacts::default() };
    assert!(lists.roles(&facts(r"C:\mine.dll"), None).has(Role::Hook));
    assert!(!lists.roles(&facts(r"C:\ctiuser.dll"), None).has(Role::Hook));
    assert!(lists.roles(&facts(r"C:\Windows\System32\ntdll.dll"), None).has(Role::Ntdll));
    assert_eq!(lists.alert_window(), 50_000_000);
}

#[test]
fn errors_are_reported_with_their_line() {
    for (text, line) in
        [("[modules]\nhook = 3", 2), ("\n[modules]\n\nhok = []", 4), ("[[", 1), ("\n[module]\n", 2)]
    {
        assert_eq!(Lists::with(text).unwrap_err().line, line, "{text}");
    }
}

#[test]
fn known_images_match_by_path_name_or_sum() {
    let lists =
        Lists::default().with_known_images("# comment\n\nexplorer.exe\nC:\\Windows\\System32\\*.dll\n");
    assert!(lists.knows_system_images());
    let facts = |path: &str| ModuleFacts { path: path.into(), ..ModuleFacts::default() };
    assert!(lists.roles(&facts(r"C:\Windows\explorer.exe"), None).has(Role::KnownSystem));
    assert!(lists.roles(&facts(r"c:\windows\system32\lsm.dll"), None).has(Role::KnownSystem));
    assert!(!lists.roles(&facts(r"C:\Windows\System32\nanodump.x64.exe"), None).has(Role::KnownSystem));
    let sum = ModuleFacts { sha256: Some([0xab; 32]), ..facts("a.exe") };
    assert!(Lists::default().with_known_images(&"ab".repeat(32)).roles(&sum, None).has(Role::KnownSystem));
}

#[test]
fn service_aliases_are_recognized() {
    let lists = Lists::default();
    assert!(lists.is_same_service("NtOpenProcess", "ZwOpenProcess"));
    assert!(lists.is_same_service("RtlQuerySystemTime", "NtQuerySystemTime"));
    assert!(!lists.is_same_service("NtOpenProcess", "NtOpenThread"));
}
