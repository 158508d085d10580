//! The tables of an index: strings, modules, locations, stacks. Their rows are 64-bit words.

use bytes::Bytes;
use stackhound_types::Address;

use super::{Kind, Reader};
use crate::Error;
use crate::change::StackInfo;
use crate::id::Cpu;
use crate::kind::StackKind;
use crate::succinct::{Packed, Words};

/// Words of a module's row: name, path + 1, whether the base is known, base.
pub(crate) const MODULE_WORDS: u64 = 4;
/// Words of a location's row: known values and stub, address, module, rva, symbol, offset.
pub(crate) const LOCATION_WORDS: u64 = 6;
/// The first bit of a location's stub + 1 in the first word of its row.
pub(crate) const STUB_SHIFT: u32 = 32;
/// Words of a stack's row. See [`StackRow`].
pub(crate) const STACK_WORDS: u64 = 12;

#[derive(Clone, Debug)]
pub(crate) struct Tables {
    strings: Bytes,
    string_starts: Packed,
    modules: Words,
    locations: Words,
    stacks: Words,
    label_names: Words,
    pub(crate) location_count: u64,
    pub(crate) stack_count: u32,
}

/// A stack's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackRow {
    /// The first context of its stretch of bounds.
    pub(crate) first: u64,
    /// The start of its stretch. It is added to a context relative to `first`.
    pub(crate) stretch: u64,
    /// The position of its first frame start or end. The next stack's position is the end.
    pub(crate) bounds: u64,
    /// The start and the end of its periods in the list by stack.
    pub(crate) periods: (u64, u64),
}

impl Tables {
    pub(crate) fn new(reader: &Reader) -> Result<Self, Error> {
        let rows = |kind, words: u64| {
            let section = reader.section(kind);
            match section.count.checked_mul(words * 8) == Some(section.bytes.len() as u64) {
                true => Ok((Words::new(section.bytes), section.count)),
                false => {
                    Err(Error::IndexDamaged { offset: section.offset, expected: "the stated number of rows" })
                }
            }
        };
        let starts = reader.section(Kind::StringStarts);
        let (modules, _) = rows(Kind::Modules, MODULE_WORDS)?;
        let (locations, location_count) = rows(Kind::Locations, LOCATION_WORDS)?;
        let (stacks, stack_count) = rows(Kind::Stacks, STACK_WORDS)?;
        let (label_names, _) = rows(Kind::LabelNames, 1)?;
        Ok(Self {
            strings: reader.section(Kind::Strings).bytes,
            string_starts: Packed::new(Words::new(starts.bytes), starts.width),
            modules,
            locations,
            stacks,
            label_names,
            location_count,
            stack_count: u32::try_from(stack_count)
                .map_err(|_| Error::TooMany { items: "stacks", limit: u64::from(u32::MAX) })?,
        })
    }

    /// Returns the string with this number, or an empty string if it is not valid UTF-8.
    pub(crate) fn string(&self, number: u64) -> &str {
        let (start, end) = (self.string_starts.get(number), self.string_starts.get(number.saturating_add(1)));
        let bytes = self.strings.get(start as usize..end as usize).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = (&str, Option<&str>, Option<Address>)> {
        let count = self.modules.len() as u64 / MODULE_WORDS;
        (0..count).map(|number| self.module(number as u32))
    }

    /// Name, path and base of a module.
    pub(crate) fn module(&self, number: u32) -> (&str, Option<&str>, Option<Address>) {
        let word = |index| self.modules.get((u64::from(number) * MODULE_WORDS + index) as usize);
        let path = word(1).checked_sub(1).map(|number| self.string(number));
        (self.string(word(0)), path, (word(2) == 1).then(|| Address(word(3))))
    }

    /// The known values of a location: address, module, rva, symbol, and the offset from the
    /// symbol.
    pub(crate) fn location(&self, number: u32) -> (Option<u64>, Option<u32>, Option<u64>, Option<&str>, u64) {
        let word = |index| self.locations.get((u64::from(number) * LOCATION_WORDS + index) as usize);
        let known = |bit: u64, index| (word(0) >> bit & 1 == 1).then(|| word(index));
        let symbol = known(3, 4).map(|number| self.string(number));
        (known(0, 1), known(1, 2).map(|module| module as u32), known(2, 3), symbol, word(5))
    }

    /// The number of the stub through which a location is entered.
    pub(crate) fn stub(&self, number: u32) -> Option<u32> {
        let word = self.locations.get((u64::from(number) * LOCATION_WORDS) as usize);
        let stub = (word >> STUB_SHIFT).checked_sub(1)?;
        (stub < self.location_count).then_some(stub as u32)
    }

    pub(crate) fn stack_row(&self, number: u32) -> StackRow {
        let word = |index| self.stacks.get((u64::from(number) * STACK_WORDS + index) as usize);
        StackRow { first: word(7), stretch: word(8), bounds: word(9), periods: (word(10), word(11)) }
    }

    pub(crate) fn stack_info(&self, number: u32) -> StackInfo {
        let word = |index| self.stacks.get((u64::from(number) * STACK_WORDS + index) as usize);
        let known = |bit: u64| word(0) >> (8 + bit) & 1 == 1;
        StackInfo {
            kind: *StackKind::ALL.get((word(0) & 0xFF) as usize).unwrap_or(&StackKind::Alternate),
            process: known(0).then(|| word(1) as u32),
            thread: known(1).then(|| word(2) as u32),
            cpu: known(2).then(|| Cpu(word(3) as u16)),
            name: known(3).then(|| self.string(word(4)).to_owned()),
            region: known(4).then(|| (Address(word(5)), Address(word(6)))),
        }
    }

    pub(crate) fn label(&self, number: u64) -> &str {
        self.string(self.label_names.get(number as usize))
    }

    /// Encodes the row of a stack.
    pub(crate) fn stack_words(info: &StackInfo, row: StackRow, strings: &mut Strings) -> [u64; 12] {
        let kind = info.kind as u64;
        let known = [
            info.process.is_some(),
            info.thread.is_some(),
            info.cpu.is_some(),
            info.name.is_some(),
            info.region.is_some(),
        ];
        let flags =
            known.iter().enumerate().fold(kind, |flags, (bit, known)| flags | u64::from(*known) << (8 + bit));
        let region = info.region.map_or((0, 0), |(low, high)| (low.0, high.0));
        [
            flags,
            u64::from(info.process.unwrap_or(0)),
            u64::from(info.thread.unwrap_or(0)),
            u64::from(info.cpu.map_or(0, |cpu| cpu.0)),
            info.name.as_ref().map_or(0, |name| strings.number(name)),
            region.0,
            region.1,
            row.first,
            row.stretch,
            row.bounds,
            row.periods.0,
            row.periods.1,
        ]
    }
}

/// Collects strings, each once.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    all: Vec<u8>,
    starts: Vec<u64>,
    numbers: std::collections::HashMap<String, u64>,
}

impl Strings {
    /// Returns the number of a string, which is added if it is new.
    pub(crate) fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.starts.len() as u64;
        self.starts.push(self.all.len() as u64);
        self.all.extend_from_slice(text.as_bytes());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// Returns the bytes, and the start of each string, followed by the end of the last one.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Vec<u64>) {
        self.starts.push(self.all.len() as u64);
        (self.all, self.starts)
    }
}
