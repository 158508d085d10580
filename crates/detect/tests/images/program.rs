//! Generated images: code at given addresses, with all tables that the detections read.

use crate::made::{EXCEPTION, Pe, Target, X64, X86, hex, words};

const IMPORT: usize = 1;
const RELOCATION: usize = 5;

/// Address of the code. The bytes between functions are `int3`.
pub const CODE: u32 = 0x1000;
const CODE_SIZE: usize = 0x1000;
const UNWIND: u32 = 0x3000;
const IMPORTS: u32 = 0x5000;
/// Address of data for pointers.
pub const DATA: u32 = 0x7000;

/// An image.
#[derive(Clone)]
pub struct Program {
    machine: u16,
    code: Vec<u8>,
    /// Start, end and unwind information.
    functions: Vec<(u32, u32, u32)>,
    unwind: Vec<u8>,
    exports: Vec<(&'static str, u32)>,
    imports: Vec<(&'static str, &'static str)>,
    relocations: Vec<u16>,
}

impl Program {
    pub fn new(machine: u16) -> Program {
        // Version 1, without unwind codes; the same with a machine frame.
        let unwind = hex("01000000 00000000 00000000 00000000 01000100 000a0000 00000000 00000000");
        let code = vec![0xcc; CODE_SIZE];
        let (functions, exports, imports) = (Vec::new(), Vec::new(), Vec::new());
        Program { machine, code, functions, unwind, exports, imports, relocations: Vec::new() }
    }

    /// Puts code at an address. `>1234` in it stands for the four-byte distance to that address.
    pub fn code(mut self, rva: u32, text: &str) -> Program {
        let mut at = rva;
        for part in text.split_whitespace() {
            let bytes = match part.strip_prefix('>') {
                Some(target) => {
                    let target = u32::from_str_radix(target, 16).expect("an address");
                    target.wrapping_sub(at + 4).to_le_bytes().to_vec()
                }
                None => hex(part),
            };
            let location = (at - CODE) as usize;
            self.code[location..location + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len() as u32;
        }
        self
    }

    /// A function with unwind data.
    pub fn function(mut self, start: u32, end: u32, text: &str) -> Program {
        self.functions.push((start, end, UNWIND));
        self.code(start, text)
    }

    /// A function that the kernel starts when it interrupts code.
    pub fn dispatcher(mut self, start: u32, end: u32, text: &str) -> Program {
        self.functions.push((start, end, UNWIND + 16));
        self.code(start, text)
    }

    /// A chunk of the function at `primary`.
    pub fn chunk(mut self, start: u32, end: u32, primary: (u32, u32), text: &str) -> Program {
        let info = UNWIND + self.unwind.len() as u32;
        self.unwind.extend(hex("21000000"));
        self.unwind.extend(words(&[primary.0, primary.1, UNWIND]));
        self.functions.push((start, end, info));
        self.code(start, text)
    }

    pub fn export(mut self, name: &'static str, rva: u32) -> Program {
        self.exports.push((name, rva));
        self
    }

    /// A stub of Windows 10, with both names.
    pub fn stub(self, rva: u32, names: [&'static str; 2], number: u32) -> Program {
        let number: String = number.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("4c8bd1 b8 {number} f604250803fe7f01 7503 0f05 c3 cd2e c3");
        self.code(rva, &text).export(names[0], rva).export(names[1], rva)
    }

    /// An import, whose pointer is at [`slot`].
    pub fn import(mut self, library: &'static str, name: &'static str) -> Program {
        self.imports.push((library, name));
        self
    }

    /// Four or eight bytes that the loader relocates.
    pub fn relocation(mut self, rva: u32) -> Program {
        let kind = if self.machine == X64 { 10 } else { 3 };
        self.relocations.push(kind << 12 | (rva - CODE) as u16);
        self
    }

    pub fn file(&self) -> Vec<u8> {
        let mut functions = self.functions.clone();
        functions.sort_unstable();
        let table: Vec<u32> =
            functions.iter().flat_map(|(start, end, unwind)| [*start, *end, *unwind]).collect();
        let mut pe = Pe::new(self.machine).code(CODE, self.code.clone());
        pe = pe.data(UNWIND, self.unwind.clone());
        if self.machine == X64 && !functions.is_empty() {
            pe = pe.table(EXCEPTION, 0x4000, words(&table));
        }
        if !self.imports.is_empty() {
            pe = pe.table(IMPORT, IMPORTS, self.import_table());
        }
        if !self.relocations.is_empty() {
            let mut block = words(&[CODE, 8 + 2 * self.relocations.len() as u32]);
            block.extend(self.relocations.iter().flat_map(|entry| entry.to_le_bytes()));
            pe = pe.table(RELOCATION, 0x6000, block);
        }
        pe = pe.data(DATA, vec![0; 0x100]);
        let mut exports = self.exports.clone();
        exports.sort_by_key(|export| export.1);
        let exports: Vec<_> = exports.iter().map(|(name, rva)| (Some(*name), Target::Rva(*rva))).collect();
        if exports.is_empty() { pe.file() } else { pe.exports(&exports).file() }
    }

    /// The import table, with one library per import.
    fn import_table(&self) -> Vec<u8> {
        let width = if self.machine == X86 { 4 } else { 8 };
        let mut bytes = vec![0; 0x800];
        let mut text = 0x400;
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        for (index, (library, name)) in self.imports.iter().enumerate() {
            let slot = slot(self.machine, index as u32) - IMPORTS;
            let names = 0x100 + 2 * width * index;
            let mut location = |value: &[u8], hint: usize| {
                let start = text;
                put(start + hint, value);
                text += hint + value.len() + 1;
                IMPORTS + start as u32
            };
            let (library, name) = (location(library.as_bytes(), 0), location(name.as_bytes(), 2));
            let descriptor = words(&[IMPORTS + names as u32, 0, 0, library, IMPORTS + slot]);
            put(20 * index, &descriptor);
            put(names, &name.to_le_bytes());
            put(slot as usize, &name.to_le_bytes());
        }
        bytes
    }
}

/// The address of an import's pointer.
pub fn slot(machine: u16, index: u32) -> u32 {
    IMPORTS + 0x200 + index * if machine == X86 { 8 } else { 16 }
}

/// The file with a first section that is larger than its bytes in the file.
pub fn stretched(mut file: Vec<u8>) -> Vec<u8> {
    file[SECTION + 8..SECTION + 12].copy_from_slice(&0x1f00_u32.to_le_bytes());
    file
}

/// The file with a writable first section.
pub fn writable(mut file: Vec<u8>) -> Vec<u8> {
    file[SECTION + 39] |= 0x80;
    file
}

/// Offset of the first section's header in a 64-bit image.
const SECTION: usize = 0x40 + 24 + 240;
