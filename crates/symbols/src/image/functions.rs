//! The ranges of functions, from the unwind data (`.pdata`).
//!
//! The compiler may split a function. Chunks on x64 refer to their function by chained unwind
//! information. On ARM64, a chunk is only marked as such.

use stackhound_types::Rva;

use super::{Image, Machine, u32_at};

/// A function, or a chunk of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its start.
    pub start: Rva,
    /// The end of its last byte.
    pub end: Rva,
    /// The start of the function that it belongs to: its own start, or that of another function if
    /// it is a chunk. `None` if it is a chunk of an unknown function, or its unwind information
    /// cannot be read.
    pub primary: Option<Rva>,
}

impl Function {
    /// Whether it contains an address.
    pub fn contains(&self, rva: Rva) -> bool {
        self.start <= rva && rva < self.end
    }
}

/// The functions of an image. Leaf functions need no unwind data, so the list is not complete.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Functions {
    /// The functions, by address.
    pub entries: Vec<Function>,
    /// The number of entries that are empty, extend beyond the image, or have a length that cannot
    /// be read.
    pub unreadable: usize,
}

impl Functions {
    /// Returns the function, or chunk of a function, that contains an address.
    pub fn at(&self, rva: Rva) -> Option<&Function> {
        let next = self.entries.partition_point(|function| function.start <= rva);
        self.entries.get(next.checked_sub(1)?).filter(|function| function.contains(rva))
    }
}

pub(super) fn read(image: &Image<'_>) -> Functions {
    let entry: fn(&Image<'_>, &[u8]) -> Option<Function>;
    let entry_size;
    (entry, entry_size) = match image.machine() {
        Machine::X64 => (x64 as _, 12),
        Machine::Arm64 => (arm64 as _, 8),
        Machine::X86 | Machine::Other(_) => return Functions::default(),
    };
    let bytes = image.headers.exceptions.and_then(|directory| {
        let bytes = image.bytes_from(directory.rva)?;
        bytes.get(..bytes.len().min(directory.size as usize))
    });
    let mut functions = Functions::default();
    for bytes in bytes.unwrap_or_default().chunks_exact(entry_size) {
        let start = u32_at(bytes, 0);
        match entry(image, bytes).filter(|function| function.end.0 <= image.size()) {
            Some(function) => functions.entries.push(function),
            // Padding at the end of the table.
            None if start == Some(0) => {}
            None => functions.unreadable += 1,
        }
    }
    functions.entries.sort_by_key(|function| (function.start, function.end));
    functions
}

/// The flag for chained unwind information.
const CHAINED: u8 = 4;
/// Maximum number of chains. The unwinder of Windows has the same limit.
const MAX_CHAINS: usize = 32;

/// Reads a `RUNTIME_FUNCTION`: start, end, unwind information.
fn x64(image: &Image<'_>, bytes: &[u8]) -> Option<Function> {
    let (start, end) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?);
    (start < end).then(|| Function { start: Rva(start), end: Rva(end), primary: x64_primary(image, bytes) })
}

/// Returns the start of the function that a `RUNTIME_FUNCTION` belongs to.
fn x64_primary(image: &Image<'_>, entry: &[u8]) -> Option<Rva> {
    let (mut start, mut unwind) = (u32_at(entry, 0)?, u32_at(entry, 8)?);
    for _ in 0..MAX_CHAINS {
        let next = if unwind & 1 != 0 {
            // This refers to another entry instead of unwind information.
            Rva(unwind & !1)
        } else {
            let header = image.bytes_at(Rva(unwind), 4)?;
            if (header[0] >> 3) & CHAINED == 0 {
                return Some(Rva(start));
            }
            // The entry follows the unwind codes, which are padded to an even number.
            let codes = u32::from(header[2]).next_multiple_of(2);
            Rva(unwind.checked_add(4 + 2 * codes)?)
        };
        let entry = image.bytes_at(next, 12)?;
        (start, unwind) = (u32_at(entry, 0)?, u32_at(entry, 8)?);
    }
    None
}

/// Whether the unwind information of the function at an address, or of a function that it is
/// chained to, has the code for a machine frame, which the processor pushes on an interrupt.
pub(super) fn has_machine_frame(image: &Image<'_>, rva: Rva) -> Option<bool> {
    let table = image.headers.exceptions.filter(|_| image.machine() == Machine::X64)?;
    let bytes = image.bytes_from(table.rva)?;
    let (entries, _) = bytes.get(..bytes.len().min(table.size as usize))?.as_chunks::<12>();
    let start = |entry: &[u8; 12]| u32_at(entry, 0).unwrap_or_default();
    let next = entries.partition_point(|entry| start(entry) <= rva.0);
    let entry = entries.get(next.checked_sub(1)?).filter(|entry| u32_at(*entry, 4) > Some(rva.0))?;
    let mut unwind = u32_at(entry, 8)?;
    for _ in 0..MAX_CHAINS {
        let next = if unwind & 1 != 0 {
            Rva(unwind & !1)
        } else {
            let header = image.bytes_at(Rva(unwind), 4)?;
            let location = Rva(unwind.checked_add(4)?);
            let codes = image.bytes_at(location, 2 * usize::from(header[2]))?;
            if pushes_machine_frame(codes) {
                return Some(true);
            }
            if (header[0] >> 3) & CHAINED == 0 {
                return Some(false);
            }
            Rva(location.0.checked_add(2 * u32::from(header[2]).next_multiple_of(2))?)
        };
        unwind = u32_at(image.bytes_at(next, 12)?, 8)?;
    }
    None
}

/// Whether these unwind codes contain `UWOP_PUSH_MACHFRAME`. Each code has two bytes: an offset,
/// and an operation with a detail. Some are followed by operands.
fn pushes_machine_frame(codes: &[u8]) -> bool {
    let mut at = 1;
    while let Some(code) = codes.get(at) {
        let (kind, detail) = (code & 15, code >> 4);
        let operands = match (kind, detail) {
            (10, _) => return true,
            (1, 0) | (4 | 6 | 8, _) => 1,
            (1, _) | (5 | 9, _) => 2,
            _ => 0,
        };
        at += 2 * (1 + operands);
    }
    false
}

/// Reads the start and the length, which is in the entry (packed) or in unwind information
/// elsewhere.
fn arm64(image: &Image<'_>, bytes: &[u8]) -> Option<Function> {
    /// The unwind code that ends the codes of a chunk. If it is the first code, the chunk has no
    /// prolog of its own.
    const END_OF_CHUNK: u8 = 0xe5;
    let (start, data) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?);
    let (words, is_chunk) = match data & 3 {
        0 => {
            let header = u32_at(image.bytes_at(Rva(data), 4)?, 0)?;
            let (epilogs, codes) = ((header >> 22) & 0x1f, header >> 27);
            let one_epilog = header & (1 << 21) != 0;
            // If both are zero, a second word contains larger numbers.
            let (skip, epilogs) = if epilogs == 0 && codes == 0 {
                let second = u32_at(image.bytes_at(Rva(data.checked_add(4)?), 4)?, 0)?;
                (8, second & 0xffff)
            } else {
                (4, epilogs)
            };
            let scopes = if one_epilog { 0 } else { 4 * epilogs };
            let first = data.checked_add(skip + scopes).and_then(|rva| image.bytes_at(Rva(rva), 1));
            (header & 0x3_ffff, first.is_some_and(|code| code[0] == END_OF_CHUNK))
        }
        1 => ((data >> 2) & 0x7ff, false),
        2 => ((data >> 2) & 0x7ff, true),
        _ => return None,
    };
    let end = start.checked_add(4 * words)?;
    (words > 0).then(|| Function {
        start: Rva(start),
        end: Rva(end),
        primary: (!is_chunk).then_some(Rva(start)),
    })
}
