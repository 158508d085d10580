//! Message tables (`RT_MESSAGETABLE`): texts by number.
//!
//! The layouts of `MESSAGE_RESOURCE_DATA` and its parts are those of the header `winnt.h` of the
//! Windows SDK.

use std::collections::HashMap;

use super::{Bytes, NO_MESSAGE, utf16_until_zero};

/// The maximum number of texts in all tables. Large files of Windows have several thousand.
const MAX_MESSAGES: usize = 1 << 18;

/// The texts of several tables. If a number is in several tables, the first one is used.
#[derive(Debug, Default)]
pub(super) struct Messages<'a> {
    entries: HashMap<u32, Entry<'a>>,
    /// The number of entries that were read, including those whose number was already known.
    entries_read: usize,
}

#[derive(Debug)]
struct Entry<'a> {
    text: &'a [u8],
    is_utf_16: bool,
}

impl<'a> Messages<'a> {
    /// Adds a table, as far as it can be read. It consists of blocks with consecutive numbers.
    pub fn add(&mut self, table: &'a [u8]) {
        const HEADER: usize = 4;
        const BLOCK: usize = 12;
        let bytes = Bytes(table);
        let Ok(count) = bytes.count(0, HEADER, BLOCK) else { return };
        for at in (0..count).map(|index| HEADER + BLOCK * index) {
            if let (Ok(first), Ok(last), Ok(offset)) = (bytes.u32(at), bytes.u32(at + 4), bytes.u32(at + 8)) {
                self.add_block(bytes, first, last, offset as usize);
            }
        }
    }

    /// Entries begin with a length in bytes, which includes itself, and flags.
    fn add_block(&mut self, table: Bytes<'a>, first: u32, last: u32, mut at: usize) {
        const UTF_16: u16 = 1;
        for number in first..=last {
            let (Ok(length), Ok(flags)) = (table.u16(at), table.u16(at + 2)) else { return };
            let length = usize::from(length);
            let Some(text) = table.0.get(at + 4..).and_then(|rest| rest.get(..length.checked_sub(4)?)) else {
                return;
            };
            if self.entries_read >= MAX_MESSAGES {
                return;
            }
            self.entries_read += 1;
            self.entries.entry(number).or_insert(Entry { text, is_utf_16: flags & UTF_16 != 0 });
            at += length;
        }
    }

    /// The text with this number, without its trailing line end.
    pub fn text(&self, number: u32) -> Option<Box<str>> {
        let entry = self.entries.get(&number).filter(|_| number != NO_MESSAGE)?;
        let text = if entry.is_utf_16 {
            utf16_until_zero(entry.text)
        } else {
            let end = entry.text.iter().position(|byte| *byte == 0).unwrap_or(entry.text.len());
            String::from_utf8_lossy(&entry.text[..end]).into()
        };
        let text = text.trim_end();
        if text.is_empty() { None } else { Some(text.into()) }
    }
}
