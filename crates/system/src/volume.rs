//! Conversion of NT paths to DOS paths, such as `\Device\HarddiskVolume3\Windows` to `C:\Windows`.
//!
//! Traces that were merged on the traced machine contain the mapping. It applies to the time of the
//! merge; its history is not recorded.

use std::borrow::Cow;

use hashbrown::HashMap;

/// Longer path prefixes are not accepted as volumes.
const VOLUME_MAX: usize = 260;

/// Further volumes are ignored.
const VOLUMES_MAX: usize = 1 << 16;

/// The volumes of a machine.
#[derive(Debug, Default)]
pub struct Volumes {
    /// NT path prefixes, in lower case and with a trailing backslash, and their replacements.
    recorded: HashMap<String, String, foldhash::fast::RandomState>,
    /// Such as `C:\Windows`.
    windows: Option<String>,
    /// The same folder as an NT path.
    windows_on_device: Option<String>,
}

/// The path of the session manager below the Windows folder.
const SESSION_MANAGER: &str = "\\System32\\smss.exe";

/// Removes a suffix, ignoring the case of ASCII letters.
fn strip_end<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    let at = text.len().checked_sub(end.len())?;
    text.get(at..)?.eq_ignore_ascii_case(end).then(|| &text[..at])
}

/// Removes a leading folder, ignoring the case of ASCII letters.
fn strip_folder<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let (start, rest) = path.split_at_checked(folder.len())?;
    start.eq_ignore_ascii_case(folder).then_some(rest).filter(|rest| rest.starts_with('\\'))
}

impl Volumes {
    /// Records that paths that begin with `nt` are shown as `dos`, which may be empty.
    pub fn map(&mut self, nt: &str, dos: &str) {
        if nt.is_empty() || nt.len() > VOLUME_MAX {
            return;
        }
        let (mut nt, mut dos) = (nt.to_ascii_lowercase(), dos.to_owned());
        if !nt.ends_with('\\') {
            nt.push('\\');
            if !dos.is_empty() && !dos.ends_with('\\') {
                dos.push('\\');
            }
        }
        if self.recorded.len() < VOLUMES_MAX || self.recorded.contains_key(&nt) {
            self.recorded.insert(nt, dos);
        }
    }

    /// Sets the path of the Windows folder, such as `C:\Windows\`.
    pub fn set_windows_directory(&mut self, path: &str) {
        let path = path.trim_end_matches('\\');
        if path.as_bytes().get(1) == Some(&b':') {
            self.windows = Some(path.to_owned());
        }
    }

    /// Records the path of an image. The path of the session manager identifies the volume of
    /// Windows.
    pub fn learn_from_image(&mut self, path: &str) {
        if self.windows_on_device.is_none()
            && let Some(folder) = strip_end(path, SESSION_MANAGER)
            && strip_folder(folder, "\\Device").is_some()
        {
            self.windows_on_device = Some(folder.to_owned());
        }
    }

    /// The path of the Windows folder, such as `C:\Windows`, if the trace contains it.
    pub fn windows_directory(&self) -> Option<&str> {
        self.windows.as_deref()
    }

    /// A device and the drive that is inferred for it: the device with the Windows folder has the
    /// drive letter of that folder.
    pub fn inferred(&self) -> Option<(&str, &str)> {
        let (drive, folder) = self.windows.as_deref()?.split_at(2);
        let device = strip_end(self.windows_on_device.as_deref()?, folder)?;
        Some((device, drive))
    }

    /// The DOS path for an NT path, or `nt` itself if its prefix is not known.
    ///
    /// The longest recorded prefix decides. Without one, `\??\` is dropped before a drive,
    /// `\SystemRoot` is replaced with the Windows folder, paths without a device that begin with
    /// the Windows folder get its drive, and the [`inferred`](Volumes::inferred) drive is used.
    pub fn dos_path<'a>(&self, nt: &'a str) -> Cow<'a, str> {
        if !nt.starts_with('\\') {
            return Cow::Borrowed(nt);
        }
        self.recorded_path(nt).or_else(|| self.probable_path(nt)).unwrap_or(Cow::Borrowed(nt))
    }

    fn recorded_path<'a>(&self, nt: &'a str) -> Option<Cow<'a, str>> {
        let mut lower = nt.as_bytes()[..nt.len().min(VOLUME_MAX)].to_ascii_lowercase();
        if lower.len() == nt.len() {
            lower.push(b'\\');
        }
        for end in (1..=lower.len()).rev().filter(|&end| lower[end - 1] == b'\\') {
            let Some(dos) = str::from_utf8(&lower[..end]).ok().and_then(|start| self.recorded.get(start))
            else {
                continue;
            };
            return match nt.get(end..) {
                Some(rest) => Some(Cow::Owned([dos, rest].concat())),
                // The volume itself.
                None if end == nt.len() + 1 => Some(Cow::Owned(dos.trim_end_matches('\\').to_owned())),
                None => continue,
            };
        }
        None
    }

    fn probable_path<'a>(&self, nt: &'a str) -> Option<Cow<'a, str>> {
        if let Some(rest) = nt.strip_prefix("\\??\\").filter(|rest| rest.as_bytes().get(1) == Some(&b':')) {
            return Some(Cow::Borrowed(rest));
        }
        let windows = self.windows.as_deref()?;
        if let Some(rest) = strip_folder(nt, "\\SystemRoot") {
            return Some(Cow::Owned([windows, rest].concat()));
        }
        let (drive, folder) = windows.split_at(2);
        if strip_folder(nt, folder).is_some() {
            return Some(Cow::Owned([drive, nt].concat()));
        }
        let (device, drive) = self.inferred()?;
        Some(Cow::Owned([drive, strip_folder(nt, device)?].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged() -> Volumes {
        let mut volumes = Volumes::default();
        for (nt, dos) in [
            ("\\??\\", ""),
            ("\\SystemRoot\\", "C:\\Windows\\"),
            ("\\Device\\HarddiskVolume1\\", "C:\\"),
            ("\\Device\\HarddiskVolume1\\Mounted", "E:"),
            ("\\Device\\HarddiskVolume3", "D:"),
            ("\\Device\\Mup\\", "\\\\"),
            ("\\\\.\\", ""),
        ] {
            volumes.map(nt, dos);
        }
        volumes.set_windows_directory("C:\\Windows\\");
        volumes
    }

    #[test]
    fn recorded_volumes_decide() {
        let volumes = merged();
        for (nt, dos) in [
            ("\\Device\\HarddiskVolume1\\Windows\\a.dll", "C:\\Windows\\a.dll"),
            ("\\device\\HARDDISKVOLUME1\\a.dll", "C:\\a.dll"),
            ("\\Device\\HarddiskVolume1\\", "C:\\"),
            ("\\Device\\HarddiskVolume1", "C:"),
            ("\\Device\\HarddiskVolume1\\mounted\\b.dll", "E:\\b.dll"),
            ("\\Device\\HarddiskVolume1\\mountedtoo\\b.dll", "C:\\mountedtoo\\b.dll"),
            ("\\Device\\HarddiskVolume3\\ü.dll", "D:\\ü.dll"),
            ("\\Device\\HarddiskVolume10\\a.dll", "\\Device\\HarddiskVolume10\\a.dll"),
            ("\\SystemRoot\\System32\\ntoskrnl.exe", "C:\\Windows\\System32\\ntoskrnl.exe"),
            ("\\??\\D:\\x.sys", "D:\\x.sys"),
            ("\\Device\\Mup\\server\\share\\a.exe", "\\\\server\\share\\a.exe"),
            ("\\\\.\\C:\\a", "C:\\a"),
            ("\\Windows\\System32\\a.dll", "C:\\Windows\\System32\\a.dll"),
            ("\\Windowsapps\\a.dll", "\\Windowsapps\\a.dll"),
            ("C:\\a.dll", "C:\\a.dll"),
            ("", ""),
        ] {
            assert_eq!(volumes.dos_path(nt), dos, "{nt}");
        }
    }

    #[test]
    fn the_system_volume_is_inferred() {
        let mut volumes = Volumes::default();
        let path = "\\Device\\HarddiskVolume7\\Users\\a.dll";
        for (nt, dos) in
            [(path, path), ("\\SystemRoot\\a.sys", "\\SystemRoot\\a.sys"), ("\\??\\C:\\a", "C:\\a")]
        {
            assert_eq!(volumes.dos_path(nt), dos);
        }
        volumes.learn_from_image("\\SystemRoot\\System32\\smss.exe");
        volumes.learn_from_image("\\Device\\HarddiskVolume7\\WINDOWS\\system32\\SMSS.EXE");
        assert_eq!((volumes.inferred(), volumes.dos_path(path)), (None, Cow::Borrowed(path)));
        volumes.set_windows_directory("C:\\Windows");
        assert_eq!(volumes.inferred(), Some(("\\Device\\HarddiskVolume7", "C:")));
        assert_eq!(volumes.dos_path(path), "C:\\Users\\a.dll");
        assert_eq!(volumes.dos_path("\\SystemRoot\\a.sys"), "C:\\Windows\\a.sys");
        volumes.map("\\Device\\HarddiskVolume7\\", "X:\\");
        assert_eq!(volumes.dos_path(path), "X:\\Users\\a.dll");
    }

    #[test]
    fn a_long_path_costs_little() {
        let volumes = merged();
        let path = "\\".repeat(40_000);
        assert_eq!(volumes.dos_path(&path), path);
        let path = format!("\\Device\\HarddiskVolume1\\{}", "ü".repeat(20_000));
        assert_eq!(volumes.dos_path(&path), format!("C:\\{}", "ü".repeat(20_000)));
    }
}
