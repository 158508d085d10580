//! The offsets in the headers of an image file that signatures and resources need, in addition to
//! those that `stackhound_symbols::image` reads.

use std::ops::Range;

/// A table that the optional header refers to: its address (for certificates, its offset in the
/// file) and its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Directory {
    pub at: u32,
    pub size: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Headers {
    /// The field `CheckSum`.
    #[cfg(feature = "authenticode")]
    pub checksum: Range<usize>,
    /// The entry of the certificate table in the data directories, if the header has one.
    pub certificates_entry: Option<Range<usize>>,
    pub certificates: Directory,
    pub resources: Directory,
    pub cli_header: Directory,
}

const RESOURCES: usize = 2;
const CERTIFICATES: usize = 4;
const CLI_HEADER: usize = 14;
const PE32: u16 = 0x10b;
const PE32_PLUS: u16 = 0x20b;

impl Headers {
    /// Reads the headers. `None` if they are truncated.
    pub fn read(bytes: &[u8]) -> Option<Headers> {
        let optional = usize::try_from(u32_at(bytes, 0x3c)?).ok()?.checked_add(24)?;
        let magic = u16::from_le_bytes(*bytes.get(optional..)?.first_chunk()?);
        let number_at = optional.checked_add(match magic {
            PE32 => 92,
            PE32_PLUS => 108,
            _ => return None,
        })?;
        let number = u32_at(bytes, number_at)? as usize;
        let entry = |index: usize| {
            let at = number_at + 4 + 8 * index;
            (index < number && at + 8 <= bytes.len()).then_some(at..at + 8)
        };
        let directory = |index| {
            let read = |entry: Range<usize>| {
                Some(Directory { at: u32_at(bytes, entry.start)?, size: u32_at(bytes, entry.start + 4)? })
            };
            entry(index).and_then(read).unwrap_or_default()
        };
        Some(Headers {
            #[cfg(feature = "authenticode")]
            checksum: optional + 64..optional + 68,
            certificates_entry: entry(CERTIFICATES),
            certificates: directory(CERTIFICATES),
            resources: directory(RESOURCES),
            cli_header: directory(CLI_HEADER),
        })
    }

    /// The range of the certificate table in the file. `None` if there is none; an error if it is
    /// not inside of the file, after the headers.
    pub fn certificate_table(&self, bytes: &[u8]) -> Option<Result<Range<usize>, ()>> {
        let Directory { at, size } = self.certificates;
        if size == 0 {
            return None;
        }
        let (start, entry) = (at as usize, self.certificates_entry.as_ref()?);
        let end = start.checked_add(size as usize).filter(|end| *end <= bytes.len());
        Some(end.filter(|_| start >= entry.end).map(|end| start..end).ok_or(()))
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
