//! The memory map of a process, from `/proc/PID/maps`.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// A range of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// Whether its code can be executed.
    pub executable: bool,
    /// Whether its code can change without a system call: it is writable, or shared with a mapping
    /// that may be writable.
    pub volatile: bool,
    /// Its offset in the file.
    pub offset: u64,
    /// The device and inode of the file; 0 if there is none.
    pub file: (u64, u64),
    /// The file's path, or a name in brackets; empty for memory without one.
    pub name: PathBuf,
}

/// All mappings, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryMap {
    mappings: Vec<Mapping>,
}

impl MemoryMap {
    /// Reads the map of a process from `/proc`.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn read(process: u32) -> io::Result<MemoryMap> {
        let text = std::fs::read(format!("/proc/{}/maps", process))?;
        Ok(MemoryMap::parse(&text))
    }

    /// Reads the text of such a file. Lines that are not valid are skipped.
    pub fn parse(text: &[u8]) -> MemoryMap {
        MemoryMap { mappings: text.split(|&byte| byte == b'\n').filter_map(parse_line).collect() }
    }

    /// The mapping that contains an address.
    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let index = self.mappings.partition_point(|mapping| mapping.addresses.end <= address);
        self.mappings.get(index).filter(|mapping| mapping.addresses.contains(&address))
    }

    /// The end of the last mapping that ends at or below an address.
    pub fn end_below(&self, address: u64) -> u64 {
        let index = self.mappings.partition_point(|mapping| mapping.addresses.end <= address);
        index
            .checked_sub(1)
            .and_then(|index| self.mappings.get(index))
            .map_or(0, |mapping| mapping.addresses.end)
    }

    /// All mappings, by address.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The executable mappings.
    pub fn executable(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.iter().filter(|mapping| mapping.executable)
    }
}

/// Parses a line such as `7f0000001000-7f0000003000 r-xp 00001000 fe:01 1234
/// /usr/lib/libm.so`.
fn parse_line(line: &[u8]) -> Option<Mapping> {
    use std::os::unix::ffi::OsStrExt;
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (found, left) = rest.split_at(end);
        rest = left.trim_ascii_start();
        std::str::from_utf8(found).ok()
    };
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let rights = field()?.as_bytes();
    let offset = hexadecimal(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let inode: u64 = field()?.parse().ok()?;
    let (write, execute, share) = (*rights.get(1)?, *rights.get(2)?, *rights.get(3)?);
    // Combined as in the result of `stat`.
    let device = libc::makedev(hexadecimal(major)? as u32, hexadecimal(minor)? as u32);
    Some(Mapping {
        addresses: hexadecimal(start)?..hexadecimal(end)?,
        executable: execute == b'x',
        volatile: write == b'w' || share == b's',
        offset,
        file: (device, inode),
        name: PathBuf::from(std::ffi::OsStr::from_bytes(rest)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &[u8] = b"\
555555554000-555555556000 r--p 00000000 fe:01 1234                       /usr/bin/a program
555555556000-55555555a000 r-xp 00002000 fe:01 1234                       /usr/bin/a program
7ffff7ff0000-7ffff7ff1000 rwxs 00000000 00:05 99                         /memfd:jit (deleted)
7ffff7ff1000-7ffff7ff2000 rw-p 00000000 00:00 0
no mapping at all
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn lines_are_parsed_as_mappings() {
        let map = MemoryMap::parse(MAP);
        assert_eq!(map.mappings.len(), 5);
        let code = map.at(0x555555556000).unwrap();
        assert_eq!(code.addresses, 0x555555556000..0x55555555a000);
        assert!(code.executable && !code.volatile);
        assert_eq!((code.offset, code.file.1), (0x2000, 1234));
        assert_eq!(code.name, PathBuf::from("/usr/bin/a program"));
        assert!(map.at(0x7ffff7ff0fff).unwrap().volatile);
        assert_eq!(map.at(0x7ffff7ff1000).unwrap().name, PathBuf::new());
        assert_eq!(map.at(0x7ffffffdefff).unwrap().name, PathBuf::from("[stack]"));
        assert_eq!(map.executable().count(), 2);
        for outside in [0, 0x555555553fff, 0x55555555a000, u64::MAX] {
            assert_eq!(map.at(outside), None, "{outside:#x}");
        }
    }
}
