//! Lists that are written while they are made, however long they are.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};

use anyhow::Result;
use clap::ValueEnum;
use serde::ser::{Serialize, SerializeMap, Serializer};
use stackhound::calltree::Count;
use stackhound_export::escape;

use crate::options::Common;
use crate::output::{Sink, message};

/// Forms of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Lines
    Text,
    /// One object with a list
    Json,
    /// One object a line
    Ndjson,
}

/// A list to be written.
pub struct List<H, I> {
    /// What stands before it in the JSON object, with its key.
    pub head: (&'static str, H),
    /// The key of the list in the JSON object.
    pub key: &'static str,
    /// What is in it.
    pub items: I,
}

impl<T, H: Serialize, I: Iterator<Item = T>> List<H, I> {
    /// Writes it, each item as a line by `line` or as what `json` makes of it. Gives the number of items.
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

/// How many beginnings and ends, or stretches between them, there are of so many frames, where a frame that goes on after
/// it was lost sight of has one of each less.
pub fn without_joined(frames: Count, count: u64) -> Count {
    match frames {
        Count::Exactly(_) => Count::Exactly(count),
        Count::AtLeast(_) => Count::AtLeast(count),
        Count::Between { least, seen } => {
            Count::Between { least: count.saturating_sub(2 * (seen - least)), seen: count }
        }
    }
}

/// The closing line.
pub fn tell(common: &Common, text: std::fmt::Arguments<'_>) {
    if !common.quiet {
        message(text);
    }
}

/// Anything that is gone through once.
struct Stream<I>(RefCell<I>);

impl<I: Iterator<Item: Serialize>> Serialize for Stream<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&mut *self.0.borrow_mut())
    }
}
