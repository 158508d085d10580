//! Rows sorted by time. Many rows are sorted in parts, in a temporary file without a name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Maximum size of the rows in memory, in bytes.
const MEMORY_MAX: usize = 64 << 20;
/// Bytes that are read at once from each part.
const READ_SIZE: usize = 1 << 16;
/// Size of the numbers before each row in the file: time, sequence number, length.
const HEAD: usize = 24;

/// Time, then the order of arrival. Rows without a time are last.
type Key = (u64, u64);

/// Collects rows.
#[derive(Debug)]
pub(super) struct Sorted {
    rows: Vec<(Key, Vec<u8>)>,
    bytes: usize,
    memory_max: usize,
    sequence: u64,
    /// Rows that did not fit in memory: the file, and the end of each sorted part.
    file: Option<(File, Vec<u64>)>,
}

impl Sorted {
    pub(super) fn new() -> Sorted {
        Sorted { rows: Vec::new(), bytes: 0, memory_max: MEMORY_MAX, sequence: 0, file: None }
    }

    pub(super) fn push(&mut self, time: Option<u64>, row: Vec<u8>) -> io::Result<()> {
        self.bytes += row.len() + size_of::<(Key, Vec<u8>)>();
        self.rows.push(((time.unwrap_or(u64::MAX), self.sequence), row));
        self.sequence += 1;
        if self.bytes > self.memory_max { self.write_part() } else { Ok(()) }
    }

    /// Moves the rows from memory to a sorted part of the file.
    fn write_part(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some((tempfile::tempfile()?, Vec::new()));
        }
        let Some((file, ends)) = &mut self.file else { return Ok(()) };
        self.rows.sort_unstable_by_key(|(key, _)| *key);
        let mut out = io::BufWriter::new(&mut *file);
        for ((time, sequence), row) in self.rows.drain(..) {
            for number in [time, sequence, row.len() as u64] {
                out.write_all(&number.to_le_bytes())?;
            }
            out.write_all(&row)?;
        }
        out.flush()?;
        drop(out);
        ends.push(file.stream_position()?);
        self.bytes = 0;
        Ok(())
    }

    /// Writes all rows in the order of their times.
    pub(super) fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.file.is_some() && !self.rows.is_empty() {
            self.write_part()?;
        }
        let Some((mut file, ends)) = self.file else {
            self.rows.sort_unstable_by_key(|(key, _)| *key);
            return self.rows.iter().try_for_each(|(_, row)| out.write_all(row));
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let mut parts: Vec<Part> = starts.zip(&ends).map(|(start, end)| Part::new(start, *end)).collect();
        let mut heads = BinaryHeap::new();
        for (index, part) in parts.iter_mut().enumerate() {
            heads.extend(part.next(&mut file)?.map(|(key, row)| Reverse((key, index, row))));
        }
        while let Some(Reverse((_, index, row))) = heads.pop() {
            out.write_all(&row)?;
            heads.extend(parts[index].next(&mut file)?.map(|(key, row)| Reverse((key, index, row))));
        }
        Ok(())
    }
}

/// The unread rest of a part of the file.
struct Part {
    at: u64,
    end: u64,
    read: Vec<u8>,
    used: usize,
}

impl Part {
    fn new(at: u64, end: u64) -> Part {
        Part { at, end, read: Vec::new(), used: 0 }
    }

    fn next(&mut self, file: &mut File) -> io::Result<Option<(Key, Vec<u8>)>> {
        if self.used == self.read.len() && self.at == self.end {
            return Ok(None);
        }
        let mut numbers = [0; 3];
        let head = self.take(file, HEAD)?;
        for (number, bytes) in numbers.iter_mut().zip(head.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().map_err(io::Error::other)?);
        }
        let [time, sequence, length] = numbers;
        let row = self.take(file, length as usize)?;
        Ok(Some(((time, sequence), row)))
    }

    fn take(&mut self, file: &mut File, length: usize) -> io::Result<Vec<u8>> {
        if self.read.len() - self.used < length {
            self.read.drain(..self.used);
            self.used = 0;
            let wanted = (length.max(READ_SIZE) as u64).min(self.end - self.at);
            file.seek(SeekFrom::Start(self.at))?;
            self.at += Read::by_ref(file).take(wanted).read_to_end(&mut self.read)? as u64;
        }
        let taken =
            self.read.get(self.used..self.used + length).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec();
        self.used += length;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// The limit of memory does not change the result.
        #[test]
        fn rows_are_sorted_by_time_and_arrival(times in proptest::collection::vec(proptest::option::of(0..9_u64), 0..60),
            memory_max in 0..4000_usize, size in 0..70_000_usize) {
            let mut sorted = Sorted { memory_max, ..Sorted::new() };
            let row = |index: usize| {
                let mut row = index.to_string().into_bytes();
                row.resize(row.len() + if index.is_multiple_of(20) { size } else { 0 }, b' ');
                row.push(b'\n');
                row
            };
            for (index, time) in times.iter().enumerate() {
                sorted.push(*time, row(index)).unwrap();
            }
            let mut expected: Vec<usize> = (0..times.len()).collect();
            expected.sort_by_key(|index| times[*index].unwrap_or(u64::MAX));
            let expected: Vec<u8> = expected.into_iter().flat_map(row).collect();
            let mut out = Vec::new();
            sorted.finish(&mut out).unwrap();
            proptest::prop_assert!(out == expected);
        }
    }
}
