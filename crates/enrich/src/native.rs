//! The layer of Windows' own modules that nearly every call of a program goes through, and that tells nothing of who
//! asked.

use stackhound_symbols::folder::Folder;
use stackhound_system::{ModuleRef, System};

/// The modules of the layer: the native API and the Win32 base on top of it, system calls of windows and graphics, the
/// layer for 32-bit programs and the emulators of ARM systems.
const LAYER: [&str; 12] = [
    "ntdll.dll",
    "kernelbase.dll",
    "kernel32.dll",
    "win32u.dll",
    "wow64.dll",
    "wow64base.dll",
    "wow64con.dll",
    "wow64cpu.dll",
    "wow64win.dll",
    "wowarmhw.dll",
    "xtajit.dll",
    "xtajit64.dll",
];

/// Whether a module belongs to the layer: by its name and its folder, since anybody can call a file `ntdll.dll`.
pub(crate) fn is_native_layer(system: &System, module: ModuleRef<'_>) -> bool {
    LAYER.iter().any(|name| module.file_name().eq_ignore_ascii_case(name))
        && is_in_system_folder(system, module.path())
}

fn is_in_system_folder(system: &System, path: &str) -> bool {
    let path = system.dos_path(path);
    // The oldest recordings have no folders.
    matches!(Folder::of(&path, system.volumes().windows_directory()), Folder::System | Folder::Unstated)
}

#[cfg(test)]
mod tests {
    use stackhound_etl::PointerSize;
    use stackhound_system::Losses;

    use super::*;

    #[test]
    fn the_layer_is_where_windows_is() {
        let mut system = System::new(PointerSize::Eight, Losses::default());
        for (path, expected) in [
            ("ntdll.dll", true),
            ("\\SystemRoot\\System32\\ntdll.dll", true),
            ("\\Windows\\SysWOW64\\ntdll.dll", true),
            ("\\Device\\HarddiskVolume3\\Windows\\System32\\ntdll.dll", true),
            ("\\??\\C:\\WINDOWS\\system32\\ntdll.dll", true),
            ("C:\\WINNT\\system32\\ntdll.dll", true),
            ("\\Device\\HarddiskVolume3\\Users\\Windows\\System32\\ntdll.dll", false),
            ("C:\\Users\\Windows\\System32\\ntdll.dll", false),
            ("C:\\Windows\\ntdll.dll", false),
            ("C:\\Windows\\System32\\evil\\ntdll.dll", false),
            ("\\System32\\ntdll.dll", false),
        ] {
            assert_eq!(is_in_system_folder(&system, path), expected, "{path}");
        }
        system.volumes_mut().set_windows_directory("D:\\W");
        assert!(is_in_system_folder(&system, "D:\\w\\system32\\ntdll.dll"));
        assert!(!is_in_system_folder(&system, "C:\\Windows\\System32\\ntdll.dll"));
    }
}
