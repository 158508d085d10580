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
