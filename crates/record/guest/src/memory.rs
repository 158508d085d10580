//! Access to the memory of a system.

use stackhound_types::Address;

/// The length of the parts in which large ranges are tested and read.
const PART: u64 = 2 << 20;
/// Maximum length of a structure.
const STRUCTURE_MAX: u64 = 64 << 10;
/// Maximum length of a kernel's image in each direction from one of its instructions.
const IMAGE_MAX: u64 = 128 << 20;

/// The memory of a stopped system.
pub trait Memory {
    /// Reads memory at an address of the current address space. Returns `None` if any of it cannot be
    /// read.
    fn read(&mut self, address: Address, bytes: &mut [u8]) -> Option<()>;
}

/// Reads a number of eight bytes.
pub(crate) fn word(memory: &mut dyn Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(Address(address), &mut bytes)?;
    Some(u64::from_le_bytes(bytes))
}

/// Reads a number of two bytes.
pub(crate) fn short(memory: &mut dyn Memory, address: u64) -> Option<u16> {
    let mut bytes = [0; 2];
    memory.read(Address(address), &mut bytes)?;
    Some(u16::from_le_bytes(bytes))
}

/// Reads a number of four bytes.
pub(crate) fn half(memory: &mut dyn Memory, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    memory.read(Address(address), &mut bytes)?;
    Some(u32::from_le_bytes(bytes))
}

/// A structure that was read as a whole: each read makes the system wait.
#[derive(Debug)]
pub(crate) struct Structure(Vec<u8>);

impl Structure {
    pub fn read(memory: &mut dyn Memory, address: u64, length: u64) -> Option<Structure> {
        let mut bytes = vec![0; usize::try_from(length.min(STRUCTURE_MAX)).ok()?];
        memory.read(Address(address), &mut bytes)?;
        Some(Structure(bytes))
    }

    pub fn word(&self, offset: u64) -> Option<u64> {
        self.rest(offset)?.first_chunk().map(|&bytes| u64::from_le_bytes(bytes))
    }

    pub fn half(&self, offset: u64) -> Option<u32> {
        self.rest(offset)?.first_chunk().map(|&bytes| u32::from_le_bytes(bytes))
    }

    /// Returns a string that ends with a zero byte or after `most` bytes.
    pub fn text(&self, offset: u64, most: usize) -> Option<String> {
        let rest = self.rest(offset)?;
        let text = rest[..rest.len().min(most)].split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn rest(&self, offset: u64) -> Option<&[u8]> {
        self.0.get(usize::try_from(offset).ok()?..)
    }
}

/// Reads a string that ends with a zero byte or after `MAX` bytes.
pub(crate) fn text<const MAX: usize>(memory: &mut dyn Memory, address: u64) -> Option<String> {
    let mut bytes = [0; MAX];
    // The string may end directly before memory that cannot be read.
    let mut length = MAX;
    while memory.read(Address(address), &mut bytes[..length]).is_none() {
        length /= 2;
        if length == 0 {
            return None;
        }
    }
    let text = bytes[..length].split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// A contiguous range of memory.
#[derive(Debug)]
pub(crate) struct Image {
    pub base: u64,
    pub bytes: Vec<u8>,
}

impl Image {
    /// Reads all readable memory around an instruction of a kernel.
    pub fn around(address: Address, memory: &mut dyn Memory) -> Image {
        let middle = address.0 & !(PART - 1);
        let mut is_readable = |part: u64| memory.read(Address(part), &mut [0]).is_some();
        let mut base = middle;
        while middle - base < IMAGE_MAX && base.checked_sub(PART).is_some_and(&mut is_readable) {
            base -= PART;
        }
        let mut bytes = Vec::new();
        let mut at = base;
        while at - base < 2 * IMAGE_MAX {
            let start = bytes.len();
            bytes.resize(start + PART as usize, 0);
            if memory.read(Address(at), &mut bytes[start..]).is_none() {
                bytes.truncate(start);
                break;
            }
            let Some(next) = at.checked_add(PART) else { break };
            at = next;
        }
        Image { base, bytes }
    }

    pub fn word(&self, offset: usize) -> Option<u64> {
        self.bytes.get(offset..)?.first_chunk().map(|&bytes| u64::from_le_bytes(bytes))
    }

    pub fn half(&self, offset: usize) -> Option<u32> {
        self.bytes.get(offset..)?.first_chunk().map(|&bytes| u32::from_le_bytes(bytes))
    }

    pub fn short(&self, offset: usize) -> Option<u16> {
        self.bytes.get(offset..)?.first_chunk().map(|&bytes| u16::from_le_bytes(bytes))
    }
}
