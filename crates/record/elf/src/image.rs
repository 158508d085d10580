//! The functions of an ELF file, by address.
//!
//! They come from both symbol tables and from the procedure linkage tables, whose entries are named
//! after their target functions. Files are untrusted input: entries that are not valid are skipped.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Register};
use object::elf::{R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT};
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, ReadRef,
    RelocationFlags, RelocationTarget, SymbolKind,
};
use rustc_hash::FxHashMap;

/// A range of the file, and the address at which it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    file_size: u64,
    address: u64,
}

/// A function. Its addresses are those of the file, before relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    /// The address after its last byte. If the size is unknown, the start of the next function or
    /// the end of its section.
    end: u64,
    /// The range of its name in [`Image::names`].
    name: (u32, u32),
}

/// The segments and functions of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    segments: Vec<Segment>,
    /// By start; no two start at the same address.
    functions: Vec<Function>,
    names: String,
    /// The addresses of the procedure linkage tables.
    linkage: Vec<Range<u64>>,
}

/// An address in the memory that an image is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'i> {
    /// The address at which the image is loaded.
    pub base: u64,
    /// The function at the address: its name in the file, and the offset from its start.
    pub function: Option<(&'i str, u64)>,
}

/// The rank of a name among those of the same address; the smallest wins. Equal ranks are ordered
/// by name, so that the same file always has the same names.
type Rank = (bool, bool, bool, usize);

/// A function while a file is read.
struct Found {
    address: u64,
    /// 0 if it is unknown.
    size: u64,
    rank: Rank,
    name: String,
}

/// The suffix of the names of entries of procedure linkage tables.
pub const STUB: &str = "@plt";

impl Image {
    /// Reads segments and functions of a file, and functions from its debug file, if there is one.
    /// Other files than 64-bit ELF files have none.
    pub fn read<'data, 'debug>(data: impl ReadRef<'data>, debug: Option<impl ReadRef<'debug>>) -> Image {
        let Ok(file) = ElfFile64::<Endianness, _>::parse(data) else {
            return Image::default();
        };
        let segments = file
            .segments()
            .map(|segment| {
                let (offset, file_size) = segment.file_range();
                Segment { offset, file_size, address: segment.address() }
            })
            .collect();
        let sections: Vec<(u64, u64)> = file
            .sections()
            .filter(|section| section.kind() == object::SectionKind::Text)
            .map(|section| (section.address(), section.address().saturating_add(section.size())))
            .collect();
        let mut found: Vec<Found> = Vec::new();
        add_symbols(&file, &sections, &mut found);
        // The sections of a debug file are empty, except for those with symbols.
        if let Some(debug) = debug.and_then(|debug| ElfFile64::<Endianness, _>::parse(debug).ok()) {
            add_symbols(&debug, &sections, &mut found);
        }
        let in_order = |left: &Found, right: &Found| {
            (left.address, left.rank, &left.name).cmp(&(right.address, right.rank, &right.name))
        };
        found.sort_by(in_order);
        let (linkage, stubs) = stubs(&file, &found);
        found.extend(stubs);
        found.sort_by(in_order);
        found.dedup_by_key(|entry| entry.address);
        let functions = Vec::with_capacity(found.len());
        let mut image = Image { segments, functions, names: String::new(), linkage };
        for (index, Found { address: start, size, name, .. }) in found.iter().enumerate() {
            let end = if *size > 0 {
                start.saturating_add(*size)
            } else {
                let next = found.get(index + 1).map_or(u64::MAX, |next| next.address);
                let section = sections.iter().find(|(from, to)| (*from..*to).contains(start));
                next.min(section.map_or(start.saturating_add(1), |section| section.1))
            };
            let at = image.names.len() as u32;
            image.names.push_str(name);
            image.functions.push(Function { start: *start, end, name: (at, image.names.len() as u32) });
        }
        image
    }

    /// The address of a file offset.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            .find(|segment| offset >= segment.offset && offset - segment.offset < segment.file_size)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Whether an address is in a procedure linkage table.
    pub fn is_linkage(&self, address: u64) -> bool {
        self.linkage.iter().any(|range| range.contains(&address))
    }

    /// The base address of the file: that of the first page that is loaded.
    pub fn base(&self) -> u64 {
        self.segments.iter().map(|segment| segment.address).min().unwrap_or(0) & !4095
    }

    /// Locates an address in a mapping that begins at `start` with the file's byte at `offset`.
    pub fn locate(&self, address: u64, start: u64, offset: u64) -> Located<'_> {
        let in_file = self.address_of((address - start).wrapping_add(offset));
        Located {
            // Without segments, the base is the address of the file's first byte.
            base: match in_file {
                Some(in_file) => address.wrapping_sub(in_file).wrapping_add(self.base()),
                None => start.wrapping_sub(offset),
            },
            function: in_file.and_then(|in_file| self.function_at(in_file)),
        }
    }

    /// The function that contains an address: its name in the file, and the offset from its start.
    pub fn function_at(&self, address: u64) -> Option<(&str, u64)> {
        let index = self.functions.partition_point(|function| function.start <= address).checked_sub(1)?;
        let function = self.functions.get(index).filter(|function| address < function.end)?;
        let name = self.names.get(function.name.0 as usize..function.name.1 as usize)?;
        Some((name, address - function.start))
    }
}

/// Adds the functions in both symbol tables.
fn add_symbols<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    sections: &[(u64, u64)],
    found: &mut Vec<Found>,
) {
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let known_code = matches!(symbol.kind(), SymbolKind::Text);
        // Assembly code often has symbols without a type.
        let in_code = || sections.iter().any(|(from, to)| (*from..*to).contains(&symbol.address()));
        if symbol.is_undefined() || !(known_code || symbol.kind() == SymbolKind::Unknown && in_code()) {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        if name.is_empty() {
            continue;
        }
        let underscores = name.bytes().take_while(|&byte| byte == b'_').count();
        let rank = (!known_code, symbol.is_local(), symbol.is_weak(), underscores);
        found.push(Found { address: symbol.address(), size: symbol.size(), rank, name: name.to_owned() });
    }
}

/// The addresses of procedure linkage tables, and their entries. `found` is in order. Each entry
/// jumps through a word that a relocation fills with the address of a function: of the one that its
/// symbol names, or of the one that a function in the same file chooses for the processor. The
/// latter has the name of the function that chooses.
fn stubs<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    found: &[Found],
) -> (Vec<Range<u64>>, Vec<Found>) {
    const ENTRY_SIZES: [u64; 2] = [16, 8];
    let (mut linkage, mut stubs) = (Vec::new(), Vec::new());
    let Some(symbols) = file.dynamic_symbol_table() else { return (linkage, stubs) };
    let mut targets: FxHashMap<u64, String> = FxHashMap::default();
    for (location, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let is_function_slot = matches!(
            relocation.flags(),
            RelocationFlags::Elf { r_type: R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT }
        );
        if matches!(relocation.flags(), RelocationFlags::Elf { r_type: R_X86_64_IRELATIVE }) {
            let chooser = relocation.addend() as u64;
            let first = found.partition_point(|function| function.address < chooser);
            if let Some(function) = found.get(first).filter(|function| function.address == chooser) {
                targets.insert(location, function.name.clone());
            }
            continue;
        }
        let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
        if let Ok(symbol) = symbols.symbol_by_index(symbol)
            && let Ok(name) = symbol.name()
            && is_function_slot
        {
            targets.insert(location, name.to_owned());
        }
    }
    for section in file.sections() {
        let Ok(name) = section.name() else { continue };
        if !matches!(name, ".plt" | ".plt.sec" | ".plt.got") {
            continue;
        }
        linkage.push(section.address()..section.address().saturating_add(section.size()));
        let Ok(bytes) = section.data() else { continue };
        let size = if name == ".plt.got" && section.align() == 8 { ENTRY_SIZES[1] } else { ENTRY_SIZES[0] };
        for (number, entry) in bytes.chunks(size as usize).enumerate() {
            let start = section.address().wrapping_add(number as u64 * size);
            let target = Decoder::with_ip(64, entry, start, DecoderOptions::NONE)
                .into_iter()
                .take_while(|instruction| !instruction.is_invalid())
                .find(|instruction| {
                    instruction.code() == Code::Jmp_rm64 && instruction.memory_base() == Register::RIP
                })
                .and_then(|jump| targets.get(&jump.memory_displacement64()));
            if let Some(target) = target {
                let (rank, name) = ((false, true, true, 0), format!("{target}{STUB}"));
                stubs.push(Found { address: start, size, rank, name });
            }
        }
    }
    (linkage, stubs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Image {
        Image::read(bytes, None::<&[u8]>)
    }

    #[test]
    fn other_files_have_no_functions() {
        for bytes in [&[][..], b"\x7fELF", &[0; 4096], b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0"] {
            let image = read(bytes);
            assert_eq!(image, Image::default());
            assert_eq!((image.function_at(0), image.address_of(0), image.base()), (None, None, 0));
        }
    }

    /// A function of the test program itself is found at the address that the compiler uses.
    #[test]
    fn our_own_functions_are_found() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let image = read(&bytes);
        assert!(image.functions.len() > 1_000, "{}", image.functions.len());
        assert!(image.functions.is_sorted_by(|left, right| left.start < right.start));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let base = maps.lines().find(|line| line.ends_with(program.to_str().unwrap())).unwrap();
        let base = u64::from_str_radix(base.split('-').next().unwrap(), 16).unwrap();
        let address = our_own_functions_are_found as fn() as usize as u64 - base + image.base();
        let (name, offset) = image.function_at(address).unwrap();
        assert!(name.contains("our_own_functions_are_found"), "{name}");
        assert_eq!(offset, 0);
        assert_eq!(image.function_at(address + 1).unwrap().1, 1);
    }

    #[test]
    fn damaged_files_do_not_panic() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let small = &bytes[..bytes.len().min(1 << 16)];
        for length in (0..small.len()).step_by(997) {
            read(&small[..length]);
        }
        let mut changed = small.to_vec();
        for position in 0..64.min(changed.len()) {
            for value in [0, 1, 0x7f, 0xff] {
                let kept = std::mem::replace(&mut changed[position], value);
                read(&changed);
                changed[position] = kept;
            }
        }
    }
}
