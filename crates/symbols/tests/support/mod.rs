//! A small writer of PE images, for features that no file of the corpus has.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub const X86: u16 = 0x14c;
pub const X64: u16 = 0x8664;
pub const ARM64: u16 = 0xaa64;

pub const EXPORT: usize = 0;
pub const EXCEPTION: usize = 3;
pub const DEBUG: usize = 6;

const CODE: u32 = 0x6000_0020;
const DATA: u32 = 0x4000_0040;
const PAGE: u32 = 0x1000;
const FILE_ALIGNMENT: u32 = 0x200;
const HEADERS: u32 = 0x400;

/// The content of an image. Sections must not overlap. They are stored in the file in the order in
/// which they are added.
#[derive(Clone, Debug)]
pub struct Pe {
    machine: u16,
    base: u64,
    time_date_stamp: u32,
    sections: Vec<(u32, Vec<u8>, u32)>,
    directories: [(u32, u32); 16],
}

/// The target of an export.
#[derive(Clone, Debug)]
pub enum Target {
    Rva(u32),
    Forwarder(String),
}

impl Pe {
    pub fn new(machine: u16) -> Pe {
        let base = if machine == X86 { 0x1000_0000 } else { 0x1_8000_0000 };
        Pe { machine, base, time_date_stamp: 0x5eed_5eed, sections: Vec::new(), directories: [(0, 0); 16] }
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    /// Adds a section of code.
    pub fn code(self, rva: u32, bytes: Vec<u8>) -> Pe {
        self.section(rva, bytes, CODE)
    }

    /// Adds a section of data.
    pub fn data(self, rva: u32, bytes: Vec<u8>) -> Pe {
        self.section(rva, bytes, DATA)
    }

    /// Adds a section of data that is a table of the header.
    pub fn table(mut self, directory: usize, rva: u32, bytes: Vec<u8>) -> Pe {
        self.directories[directory] = (rva, bytes.len() as u32);
        self.section(rva, bytes, DATA)
    }

    /// Adds a table of the header that is already in a section.
    pub fn directory_at(mut self, directory: usize, rva: u32, size: u32) -> Pe {
        self.directories[directory] = (rva, size);
        self
    }

    /// Limits a table to its first bytes.
    pub fn directory_size(mut self, directory: usize, size: u32) -> Pe {
        self.directories[directory].1 = size;
        self
    }

    fn section(mut self, rva: u32, bytes: Vec<u8>, characteristics: u32) -> Pe {
        assert_eq!(rva % PAGE, 0, "sections start on pages");
        self.sections.push((rva, bytes, characteristics));
        self
    }

    /// Adds an export directory after all sections, with ordinals from 1 in the order of the list.
    /// Consecutive exports with the same target share an ordinal.
    pub fn exports(self, exports: &[(Option<&str>, Target)]) -> Pe {
        let end = self.sections.iter().map(|(rva, bytes, _)| rva + bytes.len() as u32).max().unwrap_or(0);
        let start = end.max(1).next_multiple_of(PAGE);
        let mut ordinals: Vec<&Target> = Vec::new();
        let mut names: Vec<(&str, u16)> = Vec::new();
        let mut last: Option<u32> = None;
        for (name, target) in exports {
            let rva = if let Target::Rva(rva) = target { Some(*rva) } else { None };
            if rva.is_none() || rva != last || name.is_none() {
                ordinals.push(target);
            }
            last = rva;
            if let Some(name) = name {
                names.push((name, ordinals.len() as u16 - 1));
            }
        }
        names.sort();

        let addresses = start + 40;
        let pointers = addresses + 4 * ordinals.len() as u32;
        let indices = pointers + 4 * names.len() as u32;
        let texts = indices + 2 * names.len() as u32;
        let mut text = Vec::new();
        let mut location = |string: &str| {
            let rva = texts + text.len() as u32;
            text.extend_from_slice(string.as_bytes());
            text.push(0);
            rva
        };
        let mut bytes = words(&[0, 0, 0, location("fixture.dll"), 1, ordinals.len() as u32]);
        bytes.extend(words(&[names.len() as u32, addresses, pointers, indices]));
        bytes.extend(ordinals.iter().flat_map(|target| match target {
            Target::Rva(rva) => rva.to_le_bytes(),
            Target::Forwarder(text) => location(text).to_le_bytes(),
        }));
        bytes.extend(names.iter().flat_map(|(name, _)| location(name).to_le_bytes()));
        bytes.extend(names.iter().flat_map(|(_, index)| index.to_le_bytes()));
        bytes.extend(text);
        self.table(EXPORT, start, bytes)
    }

    /// The image as a file.
    pub fn file(&self) -> Vec<u8> {
        let mut image = self.headers();
        for (_, bytes, _) in &self.sections {
            image.extend_from_slice(bytes);
            image.resize(image.len().next_multiple_of(FILE_ALIGNMENT as usize), 0);
        }
        image
    }

    /// The image as it is when loaded at its base.
    pub fn loaded(&self) -> Vec<u8> {
        let mut image = self.headers();
        image.resize(self.size() as usize, 0);
        for (rva, bytes, _) in &self.sections {
            image[*rva as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        image
    }

    fn size(&self) -> u32 {
        let end = self.sections.iter().map(|(rva, bytes, _)| rva + bytes.len() as u32).max().unwrap_or(PAGE);
        end.next_multiple_of(PAGE)
    }

    fn headers(&self) -> Vec<u8> {
        let wide = self.machine != X86;
        let mut h = vec![0; 0x40];
        h[..2].copy_from_slice(b"MZ");
        h[0x3c] = 0x40;
        h.extend_from_slice(b"PE\0\0");
        h.extend_from_slice(&self.machine.to_le_bytes());
        h.extend_from_slice(&(self.sections.len() as u16).to_le_bytes());
        h.extend(words(&[self.time_date_stamp, 0, 0]));
        let optional: u16 = if wide { 240 } else { 224 };
        h.extend_from_slice(&optional.to_le_bytes());
        h.extend_from_slice(&0x2022_u16.to_le_bytes());

        h.extend_from_slice(&(if wide { 0x20b_u16 } else { 0x10b }).to_le_bytes());
        h.extend_from_slice(&[14, 0]);
        h.extend(words(&[0; 5]));
        if wide {
            h.extend_from_slice(&self.base.to_le_bytes());
        } else {
            h.extend(words(&[0, self.base as u32]));
        }
        h.extend(words(&[PAGE, FILE_ALIGNMENT, 6, 0, 6, 0, self.size(), HEADERS, 0, 0]));
        h.extend(std::iter::repeat_n(0, if wide { 32 } else { 16 }));
        h.extend(words(&[0, 16]));
        h.extend(self.directories.iter().flat_map(|(rva, size)| words(&[*rva, *size])));

        let mut offset = HEADERS;
        for (index, (rva, bytes, characteristics)) in self.sections.iter().enumerate() {
            h.extend_from_slice(&[b'.', b's', b'0' + index as u8 % 10, 0, 0, 0, 0, 0]);
            let raw = (bytes.len() as u32).next_multiple_of(FILE_ALIGNMENT);
            h.extend(words(&[bytes.len() as u32, *rva, raw, offset, 0, 0, 0, *characteristics]));
            offset += raw;
        }
        assert!(h.len() <= HEADERS as usize);
        h.resize(HEADERS as usize, 0);
        h
    }
}

/// Little-endian 32-bit words.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes of a text such as `4c 8b d1`.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
