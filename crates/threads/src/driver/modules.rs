//! The loaded modules, as the system listed them at one moment.

use std::collections::BTreeSet;
use std::path::PathBuf;

use stackhound_types::{ImageIdentity, ModuleIdentity};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Loaded {
    /// Base address.
    pub base: u64,
    /// Size in bytes.
    pub size: u32,
    /// Path of the file, in any Windows notation.
    pub path: String,
    /// `TimeDateStamp` of the image, if it is known.
    pub time_date_stamp: Option<u32>,
}

impl Loaded {
    pub fn file_name(&self) -> &str {
        self.path.rsplit('\\').next().unwrap_or(&self.path)
    }

    /// The identity for a symbolizer. The image names its PDB.
    pub fn identity(&self) -> ModuleIdentity {
        let image =
            self.time_date_stamp.map(|time_date_stamp| ImageIdentity { time_date_stamp, size: self.size });
        ModuleIdentity { name: self.file_name().to_owned(), image, pdb: None }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Modules {
    /// Sorted by address.
    modules: Vec<Loaded>,
}

impl Modules {
    /// Accepts modules in any order. Omits modules with the base address zero, which the system
    /// reports if it hides the address.
    pub fn new(mut modules: Vec<Loaded>) -> Modules {
        modules.retain(|module| module.base != 0);
        modules.sort_by_key(|module| module.base);
        Modules { modules }
    }

    /// Whether no module is known.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// The module at an address, and the offset in it. Costs a binary search.
    pub fn at(&self, address: u64) -> Option<(&Loaded, u32)> {
        let next = self.modules.partition_point(|module| module.base <= address);
        let module = &self.modules[next.checked_sub(1)?];
        let rva = u32::try_from(address - module.base).ok()?;
        (rva < module.size).then_some((module, rva))
    }

    /// The folders of the modules that contain any of the addresses.
    pub fn folders(&self, addresses: impl Iterator<Item = u64>, windows: &str) -> BTreeSet<PathBuf> {
        let modules: BTreeSet<&str> =
            addresses.filter_map(|address| Some(&*self.at(address)?.0.path)).collect();
        modules.into_iter().filter_map(|path| folder(path, windows)).map(PathBuf::from).collect()
    }
}

/// The folder of a local file, in the notation of Win32 paths. `windows` is the Windows directory.
/// `None` for files on network shares, which must not be accessed unless the user allows it, and
/// for device paths.
fn folder(path: &str, windows: &str) -> Option<String> {
    let path = path.strip_prefix(r"\??\").unwrap_or(path);
    let (folder, _) = path.rsplit_once('\\')?;
    let below = |root: &str| {
        let (start, rest) = folder.split_at_checked(root.len())?;
        (start.eq_ignore_ascii_case(root) && (rest.is_empty() || rest.starts_with('\\'))).then_some(rest)
    };
    if let Some(rest) = below(r"\SystemRoot") {
        return Some(format!("{windows}{rest}"));
    }
    let mut start = folder.bytes();
    let has_drive =
        start.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && start.next() == Some(b':');
    has_drive
        .then(|| folder.to_owned())
        .filter(|folder| folder.as_bytes().get(2).is_none_or(|next| *next == b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(base: u64, size: u32, path: &str) -> Loaded {
        Loaded { base, size, path: path.to_owned(), time_date_stamp: None }
    }

    #[test]
    fn addresses_resolve_to_the_module_that_contains_them() {
        let modules = Modules::new(vec![
            loaded(0x9000, 0x1000, r"C:\b.dll"),
            loaded(0x1000, 0x2000, r"C:\a.dll"),
            loaded(0, 0x1000, "hidden.sys"),
            loaded(u64::MAX - 0xfff, 0x1000, "last.sys"),
        ]);
        for (address, expected) in [
            (0x10, None),
            (0xfff, None),
            (0x1000, Some(("a.dll", 0))),
            (0x2fff, Some(("a.dll", 0x1fff))),
            (0x3000, None),
            (0x9abc, Some(("b.dll", 0xabc))),
            (0xa000, None),
            (u64::MAX, Some(("last.sys", 0xfff))),
        ] {
            let found = modules.at(address).map(|(module, rva)| (module.file_name(), rva));
            assert_eq!(found, expected, "{address:#x}");
        }
        assert!(Modules::new(vec![loaded(0, 0x1000, "hidden.sys")]).is_empty());
    }

    #[test]
    fn folders_are_normalized_to_win32_paths() {
        for (path, expected) in [
            (r"\SystemRoot\system32\ntoskrnl.exe", Some(r"D:\Win\system32")),
            (r"\systemroot\ntoskrnl.exe", Some(r"D:\Win")),
            (r"\SystemRoots\ntoskrnl.exe", None),
            (r"\??\C:\Tools\some.sys", Some(r"C:\Tools")),
            (r"C:\Windows\System32\drivers\tcpip.sys", Some(r"C:\Windows\System32\drivers")),
            (r"C:\some.dll", Some("C:")),
            (r"C:some\x.dll", None),
            (r"\\server\share\some.dll", None),
            (r"\??\UNC\server\share\some.dll", None),
            (r"\\?\C:\some\x.dll", None),
            (r"\Device\HarddiskVolume3\x\some.sys", None),
            ("some.sys", None),
            ("", None),
        ] {
            assert_eq!(folder(path, r"D:\Win").as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn only_folders_of_modules_with_frames_are_searched() {
        let modules = Modules::new(vec![
            loaded(0x1000, 0x1000, r"C:\one\a.dll"),
            loaded(0x2000, 0x1000, r"C:\one\b.dll"),
            loaded(0x3000, 0x1000, r"C:\two\c.dll"),
            loaded(0x4000, 0x1000, r"\\server\three\d.dll"),
        ]);
        let found = modules.folders([0x1800, 0x2800, 0x1801, 0x4800, 0x9000].into_iter(), r"C:\Windows");
        assert_eq!(found, BTreeSet::from([PathBuf::from(r"C:\one")]));
    }
}
