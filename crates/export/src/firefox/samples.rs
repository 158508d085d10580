//! The samples of the threads. A profile has many more of them than of anything else, so they are
//! not added to the library's profile, which keeps everything until it is written: the library
//! writes empty tables of samples, and the samples are written into these from the compact form of
//! the profile.

use std::io::{self, Write};

use fxprof_processed_profile::{CpuDelta, Profile as Output, ThreadHandle};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

use super::timestamp;
use crate::escape::Escaped;
use stackhound_profile::{Nanos, Profile, StackId, ThreadId};

/// The numbers of a thread's stacks in its table of stacks.
pub type StackNumbers = FxHashMap<StackId, u32>;

/// The JSON of a profile, with samples in the empty tables of the library.
pub struct WithSamples<'p> {
    profile: &'p Profile,
    /// By thread.
    numbers: &'p [StackNumbers],
    /// The threads that are still to be written, in the order of the output.
    threads: std::vec::IntoIter<ThreadId>,
    at: Position,
    escaped: Escaped<CompactFormatter>,
    buffer: Vec<u8>,
}

/// The position in the output.
#[derive(Clone, Copy)]
enum Position {
    Elsewhere,
    /// In a key outside of tables of samples.
    Key,
    /// After the key of a thread's table of samples.
    Table,
    /// In the table of samples of a thread.
    In(ThreadId),
    KeyIn(ThreadId),
    /// After the key of a column.
    Column(ThreadId, Column),
}

#[derive(Clone, Copy)]
enum Column {
    Length,
    Stack,
    TimeDeltas,
    Weight,
    CpuDelta,
}

/// Bytes that are collected before they are written.
const BUFFER_SIZE: usize = 1 << 14;

impl<'p> WithSamples<'p> {
    /// `order` is the order of the threads in the output.
    pub fn new(profile: &'p Profile, numbers: &'p [StackNumbers], order: Vec<ThreadId>) -> WithSamples<'p> {
        WithSamples {
            profile,
            numbers,
            threads: order.into_iter(),
            at: Position::Elsewhere,
            escaped: Escaped::default(),
            buffer: Vec::new(),
        }
    }

    /// Writes the values of a column, separated by commas.
    fn column<W: Write + ?Sized>(&mut self, out: &mut W, thread: ThreadId, column: Column) -> io::Result<()> {
        let (profile, numbers) = (self.profile, &self.numbers[thread.index()]);
        let (interval, is_idle) = (profile.interval(), profile.is_idle(thread));
        let mut last = Nanos(0);
        for (index, sample) in profile.samples_of(thread).enumerate() {
            let buffer = &mut self.buffer;
            if index > 0 {
                buffer.push(b',');
            }
            let since_last = Nanos(sample.time.0.saturating_sub(last.0));
            last = sample.time;
            match column {
                Column::Length => {}
                Column::Stack => CompactFormatter.write_u32(buffer, numbers[&sample.stack])?,
                Column::TimeDeltas => milliseconds(buffer, since_last)?,
                Column::Weight => {
                    CompactFormatter.write_i32(buffer, sample.weight.try_into().unwrap_or(i32::MAX))?;
                }
                // A sample means that the thread has run since the previous sample, but at most for
                // one interval. Idle threads do not run.
                Column::CpuDelta if is_idle => buffer.push(b'0'),
                Column::CpuDelta => {
                    CompactFormatter.write_u64(buffer, since_last.0.min(interval.0) / 1000)?;
                }
            }
            if buffer.len() >= BUFFER_SIZE {
                out.write_all(buffer)?;
                buffer.clear();
            }
        }
        out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Writes a time as a JSON number of milliseconds, as the library writes it.
fn milliseconds(out: &mut Vec<u8>, time: Nanos) -> io::Result<()> {
    const NANOS: u64 = 1_000_000;
    // A decimal number of 15 digits is the shortest one of its floating-point number. Very small and
    // very large numbers have exponents.
    let is_short = time.0 == 0 || (1000..1_000_000_000_000_000).contains(&time.0);
    if !is_short {
        return CompactFormatter.write_f64(out, time.0 as f64 / NANOS as f64);
    }
    CompactFormatter.write_u64(out, time.0 / NANOS)?;
    out.push(b'.');
    let (mut rest, mut unit) = (time.0 % NANOS, NANOS / 10);
    loop {
        out.push(b'0' + (rest / unit) as u8);
        rest %= unit;
        if rest == 0 {
            return Ok(());
        }
        unit /= 10;
    }
}

impl Formatter for WithSamples<'_> {
    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        self.at = match self.at {
            Position::In(thread) => Position::KeyIn(thread),
            _ => Position::Key,
        };
        CompactFormatter.begin_object_key(out, is_first)
    }

    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        self.at = match (self.at, text) {
            (Position::Key, "samples") => Position::Table,
            (Position::KeyIn(thread), "length") => Position::Column(thread, Column::Length),
            (Position::KeyIn(thread), "stack") => Position::Column(thread, Column::Stack),
            (Position::KeyIn(thread), "timeDeltas") => Position::Column(thread, Column::TimeDeltas),
            (Position::KeyIn(thread), "weight") => Position::Column(thread, Column::Weight),
            (Position::KeyIn(thread), "threadCPUDelta") => Position::Column(thread, Column::CpuDelta),
            (Position::KeyIn(thread) | Position::In(thread), _) => Position::In(thread),
            _ => Position::Elsewhere,
        };
        self.escaped.write_string_fragment(out, text)
    }

    fn write_char_escape<W: Write + ?Sized>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        self.escaped.write_char_escape(out, escape)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        // A field of an event can have the same name, but its value is a text.
        self.at = match self.at {
            Position::Table => self.threads.next().map_or(Position::Elsewhere, Position::In),
            _ => Position::Elsewhere,
        };
        CompactFormatter.begin_object(out)
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.at = Position::Elsewhere;
        CompactFormatter.end_object(out)
    }

    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        CompactFormatter.begin_array(out)?;
        if let Position::Column(thread, column) = self.at {
            self.column(out, thread, column)?;
            self.at = Position::In(thread);
        }
        Ok(())
    }

    fn write_u64<W: Write + ?Sized>(&mut self, out: &mut W, value: u64) -> io::Result<()> {
        match self.at {
            Position::Column(thread, Column::Length) => {
                self.at = Position::In(thread);
                CompactFormatter.write_u64(out, self.profile.sample_count_of(thread) as u64)
            }
            _ => CompactFormatter.write_u64(out, value),
        }
    }
}

/// The order of the threads in the output of the library, from an output with only the threads:
/// each has one sample whose weight is its number.
pub fn order(profile: &Profile, mut threads_only: Output, handles: &[ThreadHandle]) -> Vec<ThreadId> {
    #[derive(Deserialize)]
    struct File {
        threads: Vec<Thread>,
    }
    #[derive(Deserialize)]
    struct Thread {
        samples: Table,
    }
    #[derive(Deserialize)]
    struct Table {
        weight: [usize; 1],
    }
    for (number, &handle) in (0..).zip(handles) {
        threads_only.add_sample(handle, timestamp(Nanos(0)), None, CpuDelta::ZERO, number);
    }
    let written = serde_json::to_vec(&threads_only).and_then(|text| serde_json::from_slice::<File>(&text));
    let written = written.unwrap_or_else(|_| unreachable!("the library writes the samples of all threads"));
    let ids: Vec<ThreadId> = profile.thread_ids().map(|(id, _)| id).collect();
    written.threads.iter().map(|thread| ids[thread.samples.weight[0]]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_are_written_as_floating_point_numbers(
            time in prop_oneof![any::<u64>(), 0..3_000_000_u64, (0..u64::MAX / 100).prop_map(|time| time * 100)],
            digits in 0..20_u32,
        ) {
            for time in [time, time % 10_u64.pow(digits)] {
                let mut written = Vec::new();
                milliseconds(&mut written, Nanos(time)).unwrap();
                let expected = serde_json::to_string(&(time as f64 / 1e6)).unwrap();
                prop_assert_eq!(String::from_utf8(written).unwrap(), expected);
            }
        }
    }
}
