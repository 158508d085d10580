//! A table as bytes, for a cache that can be deleted.
//!
//! ```text
//! 0  8 bytes   "SHSYMTAB"
//! 8  u32       version
//! 12 u32       CRC-32 of all following bytes
//! 16 u32 × 19  number of values in each column
//! 92 u32       size of the text in bytes
//! 96           the columns, u32 each, then the text (UTF-8)
//! ```
//!
//! All numbers are little-endian. The bytes are not trusted: invalid content is rejected, and the
//! table must be rebuilt. The version is incremented whenever the meaning of the bytes, or the
//! choice of names, changes.

use super::names::NameTable;
use super::{Code, Inlines, Lines, NONE, Ranges, Starts, SymbolTable};

const MAGIC: &[u8; 8] = b"SHSYMTAB";
const VERSION: u32 = 2;
const COLUMNS: usize = 19;
/// The offset of the first byte that the checksum covers.
const SUMMED: usize = 16;
const HEADER_SIZE: usize = SUMMED + 4 * (COLUMNS + 1);

/// An error of the bytes of a table. The table must be rebuilt.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Other content, or another version.
    #[error("not a symbol table of version {VERSION}")]
    Version,
    /// Bytes were changed or are missing.
    #[error("damaged symbol table: the checksum does not match")]
    Sum,
    /// The checksum matches, but the content is not valid.
    #[error("damaged symbol table: the {0} are not valid")]
    Content(&'static str),
}

impl SymbolTable {
    /// The columns in the order of the file.
    pub(super) fn columns(&self) -> [&[u32]; COLUMNS] {
        [
            self.names.ends(),
            &self.pdb.starts,
            &self.pdb.begins,
            &self.pdb.names,
            &self.exported.starts,
            &self.exported.begins,
            &self.exported.names,
            &self.exports.starts,
            &self.exports.names,
            &self.code.starts,
            &self.code.ends,
            &self.lines.starts,
            &self.lines.files,
            &self.lines.numbers,
            &self.inlines.depths,
            &self.inlines.lines.starts,
            &self.inlines.lines.files,
            &self.inlines.lines.numbers,
            &self.inlines.functions,
        ]
    }

    /// Encodes the table. Equal tables have equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let columns = self.columns();
        let text = self.names.text();
        let numbers: usize = columns.iter().map(|column| column.len()).sum();
        let mut bytes = Vec::with_capacity(HEADER_SIZE + 4 * numbers + text.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        for length in columns.iter().map(|column| column.len()).chain([text.len()]) {
            bytes.extend((length as u32).to_le_bytes());
        }
        for number in columns.into_iter().flatten() {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(text.as_bytes());
        let sum = crc32fast::hash(&bytes[SUMMED..]);
        bytes[SUMMED - 4..SUMMED].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a table from the bytes of [`SymbolTable::to_bytes`]. Copies the bytes once and
    /// checks every number.
    ///
    /// # Errors
    /// The bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<SymbolTable, TableError> {
        let magic = bytes.starts_with(MAGIC) && bytes[MAGIC.len()..].starts_with(&VERSION.to_le_bytes());
        if !magic || bytes.len() < HEADER_SIZE {
            return Err(TableError::Version);
        }
        let (header, mut rest) = bytes.split_at(HEADER_SIZE);
        let mut header = numbers(&header[SUMMED - 4..]);
        if header.next() != Some(crc32fast::hash(&bytes[SUMMED..])) {
            return Err(TableError::Sum);
        }
        let mut column = || -> Option<Box<[u32]>> {
            let length = header.next()? as usize;
            let (column, remaining) = rest.split_at_checked(length.checked_mul(4)?)?;
            rest = remaining;
            Some(numbers(column).collect())
        };
        let mut columns = [const { None }; COLUMNS];
        for to in &mut columns {
            *to = Some(column().ok_or(TableError::Content("columns"))?);
        }
        let mut columns = columns.into_iter().flatten();
        let mut column = || columns.next().unwrap_or_default();
        let ends = column();
        let text = std::str::from_utf8(rest).map_err(|_| TableError::Content("names"))?;
        let table = SymbolTable {
            names: NameTable::new(text.into(), ends).ok_or(TableError::Content("names"))?,
            pdb: Ranges { starts: column(), begins: column(), names: column() },
            exported: Ranges { starts: column(), begins: column(), names: column() },
            exports: Starts { starts: column(), names: column() },
            code: Code { starts: column(), ends: column() },
            lines: Lines { starts: column(), files: column(), numbers: column() },
            inlines: Inlines {
                depths: column(),
                lines: Lines { starts: column(), files: column(), numbers: column() },
                functions: column(),
            },
        };
        if header.next() != Some(text.len() as u32) {
            return Err(TableError::Content("names"));
        }
        table.check()?;
        Ok(table)
    }

    fn check(&self) -> Result<(), TableError> {
        let names = self.names.len();
        let known = |column: &[u32]| column.iter().all(|name| *name == NONE || (*name as usize) < names);
        let sorted = |column: &[u32]| column.is_sorted_by(|a, b| a < b);
        let ranges = |ranges: &Ranges| {
            let Ranges { starts, begins, names } = ranges;
            (starts.len(), starts.len()) == (begins.len(), names.len())
                && sorted(starts)
                && starts.iter().zip(begins).all(|(start, begin)| begin <= start)
                && known(names)
        };
        let lines = |lines: &Lines| {
            let Lines { starts, files, numbers } = lines;
            (starts.len(), starts.len()) == (files.len(), numbers.len()) && known(files)
        };
        let checks = [
            ("symbols", ranges(&self.pdb)),
            ("exported functions", ranges(&self.exported)),
            ("exports", {
                let Starts { starts, names } = &self.exports;
                starts.len() == names.len() && sorted(starts) && known(names)
            }),
            ("ranges of code", {
                let Code { starts, ends } = &self.code;
                let apart = |at: usize| {
                    starts[at] < ends[at] && starts.get(at + 1).is_none_or(|next| ends[at] < *next)
                };
                starts.len() == ends.len() && (0..starts.len()).all(apart)
            }),
            ("lines", lines(&self.lines) && sorted(&self.lines.starts)),
            ("inlined functions", {
                let Inlines { depths, lines: locations, functions } = &self.inlines;
                let starts = |(start, end): (u32, &u32)| locations.starts.get(start as usize..*end as usize);
                let all = depths.last().copied().unwrap_or(0) as usize;
                let lists = [0].into_iter().chain(depths.iter().copied()).zip(depths);
                (all, all) == (locations.starts.len(), functions.len())
                    && lines(locations)
                    && known(functions)
                    && lists.map(starts).all(|starts| starts.is_some_and(sorted))
            }),
        ];
        match checks.into_iter().find(|(_, holds)| !holds) {
            Some((part, _)) => Err(TableError::Content(part)),
            None => Ok(()),
        }
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number))
}
