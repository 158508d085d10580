//! Rows of a table, in memory, by column.

use std::collections::HashMap;
use std::sync::Arc;

use stackhound_types::FileTime;

use crate::layout::{NumberColumn, SharedColumn, Source, TRACE, Table, TextColumn};

/// The number of a text in [`SharedTexts`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SharedText(u32);

impl SharedText {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Texts that many rows share.
#[derive(Debug, Default)]
pub(crate) struct SharedTexts {
    numbers: HashMap<Arc<str>, SharedText, foldhash::fast::RandomState>,
    /// Those that were added since the last call of [`take_new`](SharedTexts::take_new).
    new: Vec<Arc<str>>,
}

impl SharedTexts {
    /// The number of a text. Hashes the text.
    pub fn number(&mut self, text: &str) -> SharedText {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let (number, text) = (SharedText(self.numbers.len() as u32), Arc::<str>::from(text));
        self.new.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The texts that were added since the last call, in the order of their numbers.
    pub fn take_new(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.new)
    }
}

/// The values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    /// Signed numbers as the unsigned ones with the same bits.
    Numbers(Vec<u64>),
    /// Texts one after the other, and the end of each.
    Texts(Vec<u8>, Vec<usize>),
    Shared(Vec<SharedText>),
}

/// The values of a column, and the rows that have one.
#[derive(Debug)]
pub(crate) struct ColumnRows {
    pub values: Values,
    /// The rows of the values; `None` if all rows have one.
    pub rows: Option<Vec<u32>>,
}

/// The rows that are passed on at once.
const ROWS_MAX: usize = 1 << 14;
/// The bytes of texts from which fewer rows are passed on.
const BYTES_MAX: usize = 4 << 20;

/// Rows of one table.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: Vec<ColumnRows>,
    len: u32,
    /// The bytes of texts.
    bytes: usize,
    trace: u64,
}

impl Rows {
    /// Rows about the trace with an id.
    pub fn of(table: &Table, trace: u64) -> Rows {
        let columns = table.columns().iter().zip(table.sources()).map(|(column, source)| ColumnRows {
            values: match source {
                Source::Numbers => Values::Numbers(Vec::new()),
                Source::Texts => Values::Texts(Vec::new(), Vec::new()),
                Source::Shared => Values::Shared(Vec::new()),
            },
            rows: column.is_optional.then(Vec::new),
        });
        Rows { columns: columns.collect(), len: 0, bytes: 0, trace }
    }

    /// Rows of the same table, with memory for as many values as these have.
    pub fn next(&self) -> Rows {
        let columns = self.columns.iter().map(|column| ColumnRows {
            values: match &column.values {
                Values::Numbers(of) => Values::Numbers(Vec::with_capacity(of.len())),
                Values::Texts(bytes, ends) => {
                    Values::Texts(Vec::with_capacity(bytes.len()), Vec::with_capacity(ends.len()))
                }
                Values::Shared(of) => Values::Shared(Vec::with_capacity(of.len())),
            },
            rows: column.rows.as_ref().map(|rows| Vec::with_capacity(rows.len())),
        });
        Rows { columns: columns.collect(), len: 0, bytes: 0, trace: self.trace }
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the rows should be passed on.
    pub fn is_full(&self) -> bool {
        self.len() >= ROWS_MAX || self.bytes >= BYTES_MAX
    }

    /// Counts bytes of texts that will be appended later.
    pub fn will_have(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub fn into_columns(self) -> Vec<ColumnRows> {
        self.columns
    }

    /// Starts a row, to which the values that follow belong.
    pub fn begin(&mut self) {
        self.len += 1;
        self.number(TRACE, self.trace);
    }

    fn values(&mut self, column: usize) -> &mut Values {
        let column = &mut self.columns[column];
        if let Some(rows) = &mut column.rows {
            rows.push(self.len - 1);
        }
        &mut column.values
    }

    #[inline]
    pub fn number(&mut self, column: NumberColumn, number: impl Into<u64>) {
        if let Values::Numbers(numbers) = self.values(column.0) {
            numbers.push(number.into());
        }
    }

    pub fn signed(&mut self, column: NumberColumn, number: i64) {
        self.number(column, number.cast_unsigned());
    }

    /// Sets a time. Times that nanoseconds since 1970 cannot express (before 1677, after 2262) are
    /// missing.
    pub fn time(&mut self, column: NumberColumn, time: FileTime) {
        if let Some(nanoseconds) = time.to_unix_nanoseconds() {
            self.signed(column, nanoseconds);
        }
    }

    pub fn text(&mut self, column: TextColumn, text: &str) {
        self.bytes(column, |bytes| bytes.extend_from_slice(text.as_bytes()));
    }

    /// Sets a text that `append` appends, in UTF-8.
    pub fn bytes<R>(&mut self, column: TextColumn, append: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        let Values::Texts(bytes, ends) = self.values(column.0) else { return None };
        let before = bytes.len();
        let appended = append(bytes);
        ends.push(bytes.len());
        let added = bytes.len() - before;
        self.bytes += added;
        Some(appended)
    }

    #[inline]
    pub fn shared(&mut self, column: SharedColumn, text: SharedText) {
        if let Values::Shared(texts) = self.values(column.0) {
            texts.push(text);
        }
    }
}
