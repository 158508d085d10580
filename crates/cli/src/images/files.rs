//! Image files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The limit of the size of examined files, in bytes.
const SIZE_MAX: u64 = 256 << 20;

/// The bytes of a file that can be an image. `None` for other files, and for unreadable ones.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    let mut start = file.take(SIZE_MAX + 1);
    // Most files of a symbol store are not images, so the first bytes are checked first.
    (&mut start).take(2).read_to_end(&mut bytes).ok()?;
    if bytes != b"MZ" {
        return None;
    }
    start.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= SIZE_MAX).then_some(bytes)
}
