//! The Windows folder that contains a module's file, as far as its path shows this.

/// The location of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Folder {
    /// Directly in a folder of Windows' own libraries: `System32`, `SysWOW64`, `SysArm32` or
    /// `SyChpe32`.
    System,
    /// Elsewhere in the Windows folder or below it.
    Windows,
    /// Outside of the Windows folder.
    Elsewhere,
    /// The path has no folders.
    Unstated,
}

/// Folders below the Windows folder that contain Windows' own libraries.
const SYSTEM: [&str; 4] = ["System32", "SysWOW64", "SysArm32", "SyChpe32"];

impl Folder {
    /// Returns the location of a path in any form that traces contain: `C:\Windows\…`,
    /// `\Windows\…`, `\SystemRoot\…`, `\Device\HarddiskVolume3\Windows\…`, `\??\C:\Windows\…`.
    ///
    /// `windows` is the Windows folder, such as `D:\Win`, if it is known. Otherwise it is assumed
    /// to be in the root of a volume, under one of its usual names. Comparison ignores case, but no
    /// other difference: `C:\Windows \System32` is another folder.
    pub fn of(path: &str, windows: Option<&str>) -> Folder {
        let Some((folder, _)) = path.rsplit_once('\\') else { return Folder::Unstated };
        let Some(rest) = below_windows(folder, windows) else { return Folder::Elsewhere };
        let is_system =
            SYSTEM.iter().any(|name| rest.strip_prefix('\\').is_some_and(|rest| same(rest, name)));
        if is_system { Folder::System } else { Folder::Windows }
    }
}

/// Returns the rest of a folder's path after the Windows folder: empty, or a backslash and more.
/// `None` for other folders.
pub fn below_windows<'p>(folder: &'p str, windows: Option<&str>) -> Option<&'p str> {
    let folder = folder.strip_prefix(r"\??\").unwrap_or(folder);
    if let Some(rest) = strip(folder, r"\SystemRoot") {
        return Some(rest);
    }
    if let Some(windows) = windows.filter(|_| folder.as_bytes().get(1) == Some(&b':')) {
        return strip(folder, windows);
    }
    let rest = match folder.strip_prefix('\\') {
        None => folder.get(1..)?.strip_prefix(':').filter(|_| folder.as_bytes()[0].is_ascii_alphabetic())?,
        // A network share is not a volume.
        Some(rest) if rest.starts_with('\\') => return None,
        Some(_) => match strip(folder, r"\Device") {
            Some(volume) => &volume[1 + volume.get(1..)?.find('\\')?..],
            None => folder,
        },
    };
    [r"\Windows", r"\WINNT"].iter().find_map(|usual| strip(rest, usual))
}

/// Returns the rest of `path` after `folder`, if `path` is `folder` or below it.
fn strip<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    let (start, rest) = path.split_at_checked(folder.len())?;
    (same(start, folder) && (rest.is_empty() || rest.starts_with('\\'))).then_some(rest)
}

fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_path_forms_are_recognized() {
        use Folder::{Elsewhere, System, Unstated, Windows};
        for (path, expected) in [
            (r"ntdll.dll", Unstated),
            (r"\SystemRoot\System32\ntdll.dll", System),
            (r"\systemroot\explorer.exe", Windows),
            (r"\SystemRootkit\System32\ntdll.dll", Elsewhere),
            (r"\Windows\SysWOW64\ntdll.dll", System),
            (r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll", System),
            (r"\Device\HarddiskVolume3\Windows\notepad.exe", Windows),
            (r"\Device\HarddiskVolume3", Elsewhere),
            (r"\Device\", Elsewhere),
            (r"\??\C:\WINDOWS\system32\ntdll.dll", System),
            (r"C:\WINNT\system32\ntdll.dll", System),
            (r"C:\Windows\System32\drivers\tcpip.sys", Windows),
            (r"C:\Windows\Microsoft.NET\Framework64\v4.0.30319\clr.dll", Windows),
            (r"\Device\HarddiskVolume3\Users\Windows\System32\ntdll.dll", Elsewhere),
            (r"C:\Users\Windows\System32\ntdll.dll", Elsewhere),
            (r"C:\Windows \System32\ntdll.dll", Elsewhere),
            (r"C:\Windows\ntdll.dll", Windows),
            (r"C:\Windows\System32\evil\ntdll.dll", Windows),
            (r"\System32\ntdll.dll", Elsewhere),
            (r"\\server\share\Windows\System32\ntdll.dll", Elsewhere),
            (r"\\Windows\System32\ntdll.dll", Elsewhere),
            (r"Windows\System32\ntdll.dll", Elsewhere),
            (r"é:\Windows\System32\ntdll.dll", Elsewhere),
            ("", Unstated),
        ] {
            assert_eq!(Folder::of(path, None), expected, "{path}");
        }
    }

    #[test]
    fn a_known_windows_folder_is_the_only_one_on_drives() {
        for (path, expected) in [
            (r"D:\w\system32\ntdll.dll", Folder::System),
            (r"D:\w\explorer.exe", Folder::Windows),
            (r"C:\Windows\System32\ntdll.dll", Folder::Elsewhere),
            (r"\SystemRoot\System32\ntdll.dll", Folder::System),
            (r"\Windows\System32\ntdll.dll", Folder::System),
        ] {
            assert_eq!(Folder::of(path, Some(r"D:\W")), expected, "{path}");
        }
    }
}
