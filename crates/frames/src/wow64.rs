//! 32-bit programs on 64-bit Windows: identifies their processes, and the 64-bit modules in these.

use stackhound_symbols::folder::Folder;
use stackhound_system::ProcessRef;

/// `ProcessFlags` of the kernel's process events.
const IS_WOW64: u32 = 2;

/// The main library of the WoW64 layer.
pub const LAYER: &str = "wow64.dll";

/// Whether a process on 64-bit Windows runs a 32-bit program. `None` if no event reports its flags.
pub fn is_reported(process: ProcessRef<'_>) -> Option<bool> {
    process.flags().map(|flags| flags & IS_WOW64 != 0)
}

/// Whether a module in the process of a 32-bit program is 64-bit. Modules in `System32` are, and
/// modules in other system folders are not. For modules in other folders the base address decides:
/// since Windows 8, 64-bit images are mapped above 4 GB.
pub fn is_64_bit_part(path: &str, windows: Option<&str>, base: u64) -> bool {
    let folder = path.rsplit('\\').nth(1).unwrap_or_default();
    match Folder::of(path, windows) {
        Folder::System => folder.eq_ignore_ascii_case("System32"),
        Folder::Windows | Folder::Elsewhere | Folder::Unstated => base > u64::from(u32::MAX),
    }
}
