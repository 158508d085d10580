//! Lists of any length, written while they are computed.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};

use anyhow::Result;
use clap::ValueEnum;
use serde::ser::{Serialize, SerializeMap, Serializer};
use stackhound::calltree::Count;
use stackhound_export::escape;

use crate::options::Common;
use crate::output::{Sink, message};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Human-readable text, one line per item
    Text,
    /// One JSON object with a list
    Json,
    /// One JSON object per line
    Ndjson,
}

/// A list to be written.
pub struct List<H, I> {
    /// The key and the value that precede the list in the JSON object.
    pub head: (&'static str, H),
    /// The key of the list in the JSON object.
    pub key: &'static str,
    pub items: I,
}

impl<T, H: Serialize, I: Iterator<Item = T>> List<H, I> {
    /// Writes each item with `line`, or as the value that `json` returns for it. Returns the number
    /// of items.
    pub fn write<J: Serialize>(
        self,
        sink: &mut Sink,
        format: ListFormat,
        counted: impl Fn(u64) -> Count,
        line: impl Fn(&mut Sink, &T) -> io::Result<()>,
        json: impl Fn(T) -> J,
    ) -> Result<Count> {
        let count = Cell::new(0_u64);
        let mut items = self.items.inspect(|_| count.set(count.get() + 1));
        match format {
            ListFormat::Text => items.try_for_each(|item| line(sink, &item))?,
            ListFormat::Ndjson => items.try_for_each(|item| {
                escape::json(sink, &json(item))?;
                writeln!(sink)
            })?,
            ListFormat::Json => {
                let items = Stream(RefCell::new(items.map(json)));
                let mut serializer = escape::pretty_serializer(&mut *sink);
                let mut write = || {
                    let mut map = serializer.serialize_map(None)?;
                    map.serialize_entry(self.head.0, &self.head.1)?;
                    map.serialize_entry(self.key, &items)?;
                    let counted = counted(count.get());
                    map.serialize_entry("count", &counted.number())?;
                    map.serialize_entry("least", &counted.least())?;
                    map.serialize_entry("at_least", &counted.is_lower_bound())?;
                    map.end()
                };
                write().map_err(io::Error::from)?;
                writeln!(sink)?;
            }
        }
        Ok(counted(count.get()))
    }
}

/// The number of starts and ends, or of ranges between them, for a number of frames. If two of
/// these frames can be one that continues after a gap, the least number has one start and one end
/// less.
pub fn without_joined(frames: Count, count: u64) -> Count {
    match frames {
        Count::Exactly(_) => Count::Exactly(count),
        Count::AtLeast(_) => Count::AtLeast(count),
        Count::Between { least, seen } => {
            Count::Between { least: count.saturating_sub(2 * (seen - least)), seen: count }
        }
    }
}

/// A count with its noun, such as `1 call` or `>=3 calls`.
pub fn with_noun(count: Count, noun: &str) -> String {
    let plural = if matches!(count, Count::Exactly(1)) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Writes the closing line, unless the program is quiet.
pub fn closing(common: &Common, text: std::fmt::Arguments<'_>) {
    if !common.quiet {
        message(text);
    }
}

/// An iterator that can be serialized once.
struct Stream<I>(RefCell<I>);

impl<I: Iterator<Item: Serialize>> Serialize for Stream<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&mut *self.0.borrow_mut())
    }
}
