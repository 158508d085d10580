//! Writes image files (PE): headers, export and import directories, function ranges, and some code.

/// An exported function.
#[derive(Clone, Debug)]
pub struct Export {
    /// RVA of its start.
    pub rva: u32,
    /// Size in bytes.
    pub size: u32,
    /// Name of the export.
    pub name: String,
}

/// Contents of an image file.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Whether the image is 32-bit.
    pub is_32_bit: bool,
    /// Whether it is a library instead of a program.
    pub is_library: bool,
    /// Time stamp in the header, in seconds since 1970.
    pub time_date_stamp: u32,
    /// Size of the image in memory, in bytes.
    pub size: u32,
    /// Checksum in the header.
    pub checksum: u32,
    /// Exported functions, in any order.
    pub exports: Vec<Export>,
    /// RVAs and sizes in bytes of functions that are not exported, in any order.
    pub functions: Vec<(u32, u32)>,
    /// File names of libraries, with the functions imported from each. Only for 64-bit images.
    pub imports: Vec<(String, Vec<String>)>,
    /// RVA of the data section; `None` for the last possible one.
    pub data_at: Option<u32>,
    /// RVAs and bytes of code, in any order. Other pages have no bytes in the file.
    pub code: Vec<(u32, Vec<u8>)>,
}

const HEADERS: u32 = 0x400;
const PAGE: u32 = 0x1000;
const FILE_ALIGNMENT: u32 = 0x200;
const CODE: u32 = 0x1000;

/// A sequence of little-endian values.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn put(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Bytes {
        self.put(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Bytes {
        self.put(&value.to_le_bytes())
    }

    /// A value with the size of a pointer.
    fn word(&mut self, is_32_bit: bool, value: u64) -> &mut Bytes {
        if is_32_bit { self.u32(value as u32) } else { self.put(&value.to_le_bytes()) }
    }

    fn pad_to(&mut self, size: usize) {
        self.0.resize(size.max(self.0.len()), 0);
    }
}

/// RVA and size of each directory.
#[derive(Clone, Copy, Default)]
struct Directories {
    exports: (u32, u32),
    imports: (u32, u32),
    functions: (u32, u32),
}

/// A section of code.
#[derive(Clone, Copy, Debug)]
struct CodeSection {
    start: u32,
    end: u32,
    /// Size in the file, in bytes.
    raw: u32,
}

impl CodeSection {
    fn holds(&self, rva: u32) -> bool {
        self.raw > 0 && (self.start..self.end).contains(&rva)
    }
}

impl File {
    /// Builds the bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        // The size of the data section does not depend on its address.
        let needed = self.data(0).0.len() as u32;
        let last = self.size.saturating_sub(needed.next_multiple_of(PAGE)).max(CODE + PAGE);
        let data_at = self.data_at.unwrap_or(last);
        let (data, directories) = self.data(data_at);
        let data_raw = needed.next_multiple_of(FILE_ALIGNMENT);
        let sections = self.code_sections(data_at);
        let code_raw: u32 = sections.iter().map(|section| section.raw).sum();

        let mut file = self.headers(directories, data_at, data_raw, &sections);
        let mut raw_at = HEADERS;
        for section in &sections {
            file.pad_to((raw_at + section.raw) as usize);
            for (rva, bytes) in self.code.iter().filter(|(rva, _)| section.holds(*rva)) {
                let at = (raw_at + rva - section.start) as usize;
                file.0[at..at + bytes.len()].copy_from_slice(bytes);
            }
            raw_at += section.raw;
        }
        file.pad_to((HEADERS + code_raw) as usize);
        file.put(&data).pad_to((HEADERS + code_raw + data_raw) as usize);
        file.0
    }

    /// The code sections: one for each run of pages with known code, and one for each gap. Gaps
    /// have no bytes in the file, so that a reader does not take them for zeros.
    fn code_sections(&self, data_at: u32) -> Vec<CodeSection> {
        let mut code: Vec<(u32, u32)> =
            self.code.iter().map(|(rva, bytes)| (*rva, rva + bytes.len() as u32)).collect();
        code.sort_unstable();
        let mut sections: Vec<CodeSection> = Vec::new();
        let mut at = CODE;
        for (start, end) in code {
            if let Some(last) = sections.last_mut().filter(|last| start <= last.end) {
                last.raw = last.raw.max((end - last.start).next_multiple_of(FILE_ALIGNMENT));
                last.end = last.end.max(end.next_multiple_of(PAGE));
            } else {
                let start = start & !(PAGE - 1);
                if start > at {
                    sections.push(CodeSection { start: at, end: start, raw: 0 });
                }
                let raw = (end - start).next_multiple_of(FILE_ALIGNMENT);
                sections.push(CodeSection { start, end: end.next_multiple_of(PAGE), raw });
            }
            at = sections.last().map_or(at, |last| last.end);
        }
        if at < data_at {
            sections.push(CodeSection { start: at, end: data_at, raw: 0 });
        }
        sections
    }

    fn headers(
        &self,
        directories: Directories,
        data_at: u32,
        data_raw: u32,
        sections: &[CodeSection],
    ) -> Bytes {
        let is_32_bit = self.is_32_bit;
        let code_raw: u32 = sections.iter().map(|section| section.raw).sum();
        let mut out = Bytes::default();
        out.put(b"MZ").pad_to(0x3c);
        out.u32(0x80).pad_to(0x80);
        out.put(b"PE\0\0").u16(if is_32_bit { 0x14c } else { 0x8664 }).u16(sections.len() as u16 + 1);
        out.u32(self.time_date_stamp);
        let directories_size = 16 * 8;
        out.u32(0).u32(0).u16(if is_32_bit { 96 } else { 112 } + directories_size);
        let library = if self.is_library { 0x2000 } else { 0 };
        out.u16(0x0002 | library | if is_32_bit { 0x0100 } else { 0x0020 });
        // The optional header.
        out.u16(if is_32_bit { 0x10b } else { 0x20b })
            .u16(14)
            .u32(code_raw)
            .u32(data_raw)
            .u32(0)
            .u32(0)
            .u32(CODE);
        if is_32_bit {
            out.u32(data_at);
        }
        let base = if is_32_bit { 0x1000_0000 } else { 0x1_8000_0000 };
        out.word(is_32_bit, base).u32(PAGE).u32(FILE_ALIGNMENT);
        out.u16(10).u16(0).u16(10).u16(0).u16(10).u16(0).u32(0);
        out.u32(self.size).u32(HEADERS).u32(self.checksum).u16(3).u16(0x0160);
        for reserve in [0x4_0000, 0x1000, 0x10_0000, 0x1000] {
            out.word(is_32_bit, reserve);
        }
        out.u32(0).u32(16);
        for directory in 0..16 {
            let (at, size) = match directory {
                0 => directories.exports,
                1 => directories.imports,
                3 => directories.functions,
                _ => (0, 0),
            };
            out.u32(at).u32(size);
        }
        let mut section = |name: &[u8; 8], size: u32, at: u32, raw: u32, raw_at: u32, flags: u32| {
            out.put(name).u32(size).u32(at).u32(raw).u32(if raw == 0 { 0 } else { raw_at });
            out.put(&[0; 12]).u32(flags);
        };
        let mut raw_at = HEADERS;
        for code in sections {
            section(b".text\0\0\0", code.end - code.start, code.start, code.raw, raw_at, 0x6000_0020);
            raw_at += code.raw;
        }
        section(b".rdata\0\0", self.size - data_at, data_at, data_raw, raw_at, 0x4000_0040);
        out
    }

    /// RVA of the pointer to an imported function, if the data section starts at `data_at`. `None`
    /// if the function is not imported.
    pub fn import_slot(&self, data_at: u32, library: &str, function: &str) -> Option<u32> {
        let mut slot = data_at;
        for (name, functions) in &self.imports {
            if name == library {
                let index = functions.iter().position(|known| known == function)?;
                return Some(slot + 8 * index as u32);
            }
            slot += 8 * (functions.len() as u32 + 1);
        }
        None
    }

    /// The contents of the data section at `at`, and its directories.
    fn data(&self, at: u32) -> (Vec<u8>, Directories) {
        let mut out = Bytes::default();
        let mut directories = Directories::default();
        if !self.imports.is_empty() {
            directories.imports = self.put_imports(&mut out, at);
        }
        if !self.exports.is_empty() {
            let start = at + out.0.len() as u32;
            self.put_exports(&mut out, start);
            directories.exports = (start, at + out.0.len() as u32 - start);
        }
        let mut functions: Vec<(u32, u32)> =
            self.exports.iter().map(|export| (export.rva, export.size)).collect();
        functions.extend(&self.functions);
        functions.sort();
        functions.dedup();
        if !self.is_32_bit && !functions.is_empty() {
            let aligned = out.0.len().next_multiple_of(4);
            out.pad_to(aligned);
            let unwind = at + aligned as u32;
            // Unwind information: version 1, no operations.
            out.put(&[1, 0, 0, 0]);
            directories.functions = (unwind + 4, 12 * functions.len() as u32);
            for (rva, size) in functions {
                out.u32(rva).u32(rva + size).u32(unwind);
            }
        }
        (out.0, directories)
    }

    /// Writes the import address tables, the name tables and the import directory. Returns the RVA
    /// and size of the directory.
    fn put_imports(&self, out: &mut Bytes, at: u32) -> (u32, u32) {
        let words = |functions: &[String]| 8 * (functions.len() as u32 + 1);
        let slots: u32 = self.imports.iter().map(|(_, functions)| words(functions)).sum();
        let (directory, size) = (at + 2 * slots, 20 * (self.imports.len() as u32 + 1));
        let texts = directory + size;
        // In a file, the address tables and the name tables are equal: both contain the RVAs of
        // names.
        let mut text = texts;
        let mut table = Bytes::default();
        let mut names = Bytes::default();
        let mut libraries = Vec::new();
        for (library, functions) in &self.imports {
            for function in functions {
                table.word(false, text.into());
                names.u16(0).put(function.as_bytes()).put(&[0]);
                text += function.len() as u32 + 3;
            }
            table.word(false, 0);
            libraries.push(text);
            names.put(library.as_bytes()).put(&[0]);
            text += library.len() as u32 + 1;
        }
        out.put(&table.0).put(&table.0);
        let mut slot = at;
        for ((_, functions), name) in self.imports.iter().zip(libraries) {
            out.u32(slot + slots).u32(0).u32(0).u32(name).u32(slot);
            slot += words(functions);
        }
        out.put(&[0; 20]).put(&names.0);
        (directory, size)
    }

    /// Writes the export directory, which starts at `at`.
    fn put_exports(&self, out: &mut Bytes, at: u32) {
        let mut exports: Vec<&Export> = self.exports.iter().collect();
        exports.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        let count = exports.len() as u32;
        let (addresses, names) = (at + 40, at + 40 + 4 * count);
        let (ordinals, texts) = (names + 4 * count, names + 6 * count);
        out.u32(0).u32(self.time_date_stamp).u32(0).u32(texts).u32(1).u32(count).u32(count);
        out.u32(addresses).u32(names).u32(ordinals);
        for export in &exports {
            out.u32(export.rva);
        }
        let mut text = texts + b"image\0".len() as u32;
        for export in &exports {
            out.u32(text);
            text += export.name.len() as u32 + 1;
        }
        for ordinal in 0..count {
            out.u16(ordinal as u16);
        }
        out.put(b"image\0");
        for export in &exports {
            out.put(export.name.as_bytes()).put(&[0]);
        }
    }
}
