//! Paths and names without the parts that differ between machines, users, versions and runs. `#`
//! replaces them.

/// Folders in the root of a volume whose subfolders are named after users.
const PROFILES: [&str; 2] = ["users", "documents and settings"];

/// Minimum length of a part of a name that is random if it is hexadecimal and has a digit.
const HEX_MIN: usize = 8;
/// Minimum length of a part that is random if letters and digits alternate, and the minimum number
/// of alternations.
const MIXED_MIN: (usize, usize) = (10, 4);
/// Minimum number of digits that count as a version without a separator.
const DIGITS_MIN: usize = 3;

/// Whether a path begins at the root of a volume or device.
pub(super) fn is_complete(path: &str) -> bool {
    let bytes = path.as_bytes();
    path.starts_with('\\') || matches!(bytes, [letter, b':', b'\\', ..] if letter.is_ascii_alphabetic())
}

/// A path without its volume, in lower case.
pub(super) fn path(path: &str) -> String {
    let path = path.to_ascii_lowercase();
    let path = path.strip_prefix(r"\??\").unwrap_or(&path);
    let rest = match path.strip_prefix(r"\device\") {
        Some(device) => device.split_once('\\').map_or("", |(_, rest)| rest),
        None => path.split_once('\\').map_or(path, |(_, rest)| rest),
    };
    let mut parts: Vec<String> = Vec::new();
    for part in rest.split('\\') {
        let is_user = parts.len() == 1 && PROFILES.contains(&parts[0].as_str());
        let part = match (parts.is_empty(), part) {
            (true, "systemroot") => "windows".to_owned(),
            _ if is_user => "#".to_owned(),
            _ => name(part),
        };
        parts.push(part);
    }
    parts.join("\\")
}

/// Names that are separated by `|`.
pub(super) fn names(names: &str) -> String {
    names.split('|').map(name).collect::<Vec<_>>().join("|")
}

/// A name in lower case, without GUIDs, versions and random parts.
pub(super) fn name(name: &str) -> String {
    let text = name.to_ascii_lowercase();
    let mut normal = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        let length = match guid(rest) {
            Some(length) => {
                normal.push('#');
                length
            }
            None => part(rest, &mut normal).unwrap_or_else(|| {
                normal.push(first);
                first.len_utf8()
            }),
        };
        rest = &rest[length..];
    }
    normal
}

/// The length of the GUID at the start of a text.
fn guid(text: &str) -> Option<usize> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut groups = text.splitn(GROUPS.len() + 1, '-');
    for (index, length) in GROUPS.into_iter().enumerate() {
        let group = groups.next()?;
        let is_last = index + 1 == GROUPS.len();
        let found = if is_last { group.get(..length)? } else { group };
        let ends = !is_last || !group[length..].starts_with(|c: char| c.is_ascii_alphanumeric());
        if found.len() != length || !found.bytes().all(|byte| byte.is_ascii_hexdigit()) || !ends {
            return None;
        }
    }
    Some(36)
}

/// Appends the normal form of the letters and digits at the start of a text. Returns their length;
/// `None` if there are none.
fn part(text: &str, normal: &mut String) -> Option<usize> {
    let length = run(text, |byte| byte.is_ascii_alphanumeric());
    let part = text.get(..length).filter(|part| !part.is_empty())?;
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        let all = version(text);
        let is_one = all > length || length >= DIGITS_MIN;
        normal.push_str(if is_one { "#" } else { part });
        return Some(all);
    }
    if is_random(part) {
        normal.push('#');
        return Some(length);
    }
    let mut rest = part;
    while !rest.is_empty() {
        let letters = run(rest, |byte| !byte.is_ascii_digit());
        normal.push_str(&rest[..letters]);
        rest = &rest[letters..];
        let digits = run(rest, |byte| byte.is_ascii_digit());
        normal.push_str(if digits >= DIGITS_MIN { "#" } else { &rest[..digits] });
        rest = &rest[digits..];
    }
    Some(length)
}

/// The length of the numbers at the start of a text, with one separator between each two.
fn version(text: &str) -> usize {
    let mut length = run(text, |byte| byte.is_ascii_digit());
    loop {
        let rest = &text[length..];
        let Some(rest) = rest.strip_prefix(['.', '_', '-', ',']) else { return length };
        let digits = run(rest, |byte| byte.is_ascii_digit());
        if digits == 0 || rest[digits..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            return length;
        }
        length += 1 + digits;
    }
}

fn is_random(part: &str) -> bool {
    let bytes = part.as_bytes();
    let has_digit = bytes.iter().any(u8::is_ascii_digit);
    let is_hex = part.len() >= HEX_MIN && bytes.iter().all(u8::is_ascii_hexdigit);
    let changes =
        bytes.windows(2).filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit()).count();
    has_digit && (is_hex || part.len() >= MIXED_MIN.0 && changes >= MIXED_MIN.1)
}

fn run(text: &str, is: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !is(byte)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_no_volumes_users_versions_and_random_names() {
        for (from, expected) in [
            (r"C:\Windows\System32\lsass.exe", r"windows\system32\lsass.exe"),
            (r"\Device\HarddiskVolume3\Windows\explorer.exe", r"windows\explorer.exe"),
            (r"\SystemRoot\System32\smss.exe", r"windows\system32\smss.exe"),
            (r"\??\D:\tools\a.exe", r"tools\a.exe"),
            (
                r"C:\Users\Ann.Lee\AppData\Local\Programs\app\app.exe",
                r"users\#\appdata\local\programs\app\app.exe",
            ),
            (r"C:\Agent\Agent_2.7.41491.993_2020-09-17_150914\Collect.exe", r"agent\agent_#\collect.exe"),
            (
                r"C:\Windows\WinSxS\amd64_servicingstack_31bf3856ad364e35_10.0.18362.957_none_5f2e9e6258ea82f2\t.exe",
                r"windows\winsxs\amd64_servicingstack_#_#_none_#\t.exe",
            ),
            (r"C:\Temp\{8A6F3D1C-0B2E-4C5D-9E7F-0123456789ab}\setup.exe", r"temp\{#}\setup.exe"),
            (
                r"C:\Windows\Microsoft.NET\Framework64\v4.0.30319\ngen.exe",
                r"windows\microsoft.net\framework64\v4.#\ngen.exe",
            ),
            (r"C:\ProgramData\x7f3k9q2zz4\a.exe", r"programdata\#\a.exe"),
            (r"C:\a\procdump64.exe", r"a\procdump64.exe"),
        ] {
            assert_eq!(path(from), expected, "{from}");
        }
    }

    #[test]
    fn names_keep_the_parts_that_identify_a_module() {
        let names = names(
            "ntdll.dll|d3d10warp.dll|MSVCP140.dll|umppc13107.dll|mono-2.0-bdwgc.dll|unbacked|wow64cpu.dll",
        );
        assert_eq!(
            names,
            "ntdll.dll|d3d10warp.dll|msvcp#.dll|umppc#.dll|mono-#-bdwgc.dll|unbacked|wow64cpu.dll"
        );
    }

    #[test]
    fn incomplete_paths_are_recognized() {
        for (path, expected) in [
            (r"C:\a.exe", true),
            (r"\Device\a", true),
            ("a.exe", false),
            (r"io\Windows\a.exe", false),
            ("", false),
        ] {
            assert_eq!(is_complete(path), expected, "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_normal_form_that_is_stable(text in ".{0,80}") {
            let normal = name(&text);
            proptest::prop_assert_eq!(name(&normal), normal.clone());
            let _ = path(&text);
        }
    }
}
