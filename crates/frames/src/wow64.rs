//! 32-bit programs on 64-bit Windows: which processes run them, and which of their code is 64-bit.

use stackhound_symbols::folder::Folder;
use stackhound_system::ProcessRef;

/// `ProcessFlags` of the kernel's process events.
const IS_WOW64: u32 = 2;

/// The library in which the layer for 32-bit programs begins.
pub const LAYER: &str = "wow64.dll";

/// Whether a process on 64-bit Windows runs a 32-bit program, if an event reports it.
pub fn is_reported(process: ProcessRef<'_>) -> Option<bool> {
    process.flags().map(|flags| flags & IS_WOW64 != 0)
}

/// Whether a module in the process of a 32-bit program is 64-bit: what lies in `System32` there is of the 64-bit part, what
/// lies in another folder of Windows' own libraries is not. Elsewhere the address tells: 64-bit images are mapped above
/// 4 GB since Windows 8.
pub fn is_64_bit_part(path: &str, windows: Option<&str>, base: u64) -> bool {
    let folder = path.rsplit('\\').nth(1).unwrap_or_default();
    match Folder::of(path, windows) {
        Folder::System => folder.eq_ignore_ascii_case("System32"),
        Folder::Windows | Folder::Elsewhere | Folder::Unstated => base > u64::from(u32::MAX),
    }
}
