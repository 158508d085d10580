//! Batches of context switches in two to eight bytes each: hook 0x0525.
//!
//! A batch is of one processor. Each switch tells which thread stops; which one starts is known from the switch after
//! it, where it is the one that stops. Times are sums of differences.

use stackhound_etl::{PointerSize, RawTime, Tid};
use zerocopy::byteorder::little_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::Reader;
use crate::error::Error;

/// A batch of switches.
#[derive(Clone, Copy, Debug)]
pub struct CompactSwitches<'a> {
    fixed: &'a FixedBatch,
    switches: &'a [u8],
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct FixedBatch {
    first_time_stamp: I64,
    tid_table: [U32; 16],
    thread_base_priority: [i8; 16],
}

/// One switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactSwitch {
    /// When it was, in raw ticks.
    pub time: RawTime,
    /// The thread that stops. `None` is the idle thread.
    pub old_thread: Option<CompactThread>,
    /// How many timer ticks the new thread has waited, if more than one; 17 bits.
    pub new_thread_wait_time: Option<u32>,
}

/// The thread that stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactThread {
    /// The thread.
    pub thread_id: Tid,
    /// Its priority.
    pub priority: i8,
    /// Up to the system's number of wait reasons: the reason, of a thread that waits. From there on: the state, plus
    /// that number, which differs between systems.
    pub state_or_wait_reason: u8,
}

impl<'a> CompactSwitches<'a> {
    /// Reads the payload of CompactCSwitch.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short for the tables before the switches.
    pub fn parse(
        payload: &'a [u8],
        _version: u8,
        _pointer: PointerSize,
    ) -> Result<CompactSwitches<'a>, Error> {
        let mut reader = Reader::new("CompactSwitches", payload);
        let fixed = reader.fixed()?;
        Ok(CompactSwitches { fixed, switches: reader.rest() })
    }

    /// What the time of the first switch is counted from.
    pub fn first_time_stamp(&self) -> RawTime {
        RawTime(self.fixed.first_time_stamp.get())
    }

    /// The threads that the switches name by index.
    pub fn thread_ids(&self) -> impl ExactSizeIterator<Item = Tid> + 'a {
        self.fixed.tid_table.iter().map(|id| Tid(id.get()))
    }

    /// The base priorities of the threads, by the same index.
    pub fn base_priorities(&self) -> &'a [i8; 16] {
        &self.fixed.thread_base_priority
    }

    /// The switches as they are stored.
    pub fn bytes(&self) -> &'a [u8] {
        self.switches
    }

    /// The switches in order of time. Ends before one that is cut off.
    pub fn iter(&self) -> CompactSwitchIter<'a> {
        CompactSwitchIter { batch: *self, rest: self.switches, time: self.first_time_stamp() }
    }
}

impl<'a> IntoIterator for CompactSwitches<'a> {
    type Item = CompactSwitch;
    type IntoIter = CompactSwitchIter<'a>;

    fn into_iter(self) -> CompactSwitchIter<'a> {
        self.iter()
    }
}

/// Yields the switches of a batch.
#[derive(Clone, Debug)]
pub struct CompactSwitchIter<'a> {
    batch: CompactSwitches<'a>,
    rest: &'a [u8],
    time: RawTime,
}

/// Takes bits from the lower end of a number.
struct Bits(u64);

impl Bits {
    fn take(&mut self, n: u32) -> u32 {
        let bits = self.0 & ((1 << n) - 1);
        self.0 >>= n;
        bits as u32
    }
}

impl Iterator for CompactSwitchIter<'_> {
    type Item = CompactSwitch;

    fn next(&mut self) -> Option<CompactSwitch> {
        let kind = self.rest.first()? & 3;
        let size = [2, 4, 4, 8][usize::from(kind)];
        let (record, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        let mut bits = Bits(record.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)));
        bits.take(2);
        let base = &self.batch.fixed;
        let thread = |index: u32, priority: i8, state: u32| CompactThread {
            thread_id: Tid(base.tid_table[index as usize].get()),
            priority,
            state_or_wait_reason: state as u8,
        };
        let (delta, old_thread, new_thread_wait_time) = match kind {
            0 => (bits.take(14), None, None),
            1 => (bits.take(30), None, None),
            2 => {
                let (index, increment, state) = (bits.take(4), bits.take(3), bits.take(6));
                let priority = base.thread_base_priority[index as usize].saturating_add(increment as i8);
                (bits.take(17), Some(thread(index, priority, state)), None)
            }
            _ => {
                let delta = bits.take(30);
                let (index, state, priority) = (bits.take(4), bits.take(6), bits.take(5));
                (delta, Some(thread(index, priority as i8, state)), Some(bits.take(17)))
            }
        };
        self.time = RawTime(self.time.0.saturating_add(delta.into()));
        Some(CompactSwitch { time: self.time, old_thread, new_thread_wait_time })
    }
}

impl std::iter::FusedIterator for CompactSwitchIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit fields from the lowest on, as (value, width), in whole bytes.
    fn pack(fields: &[(u64, u32)]) -> Vec<u8> {
        let mut value = 0;
        let mut at = 0;
        for &(field, width) in fields {
            assert!(field < 1 << width);
            value |= field << at;
            at += width;
        }
        value.to_le_bytes()[..at as usize / 8].to_vec()
    }

    #[test]
    fn all_kinds_of_switches() {
        let mut payload = 1_000_i64.to_le_bytes().to_vec();
        (0..16_u32).for_each(|i| payload.extend((100 + i).to_le_bytes()));
        (0..16_u8).for_each(|i| payload.push(8 + i));
        payload.extend(pack(&[(0, 2), (16_383, 14)]));
        payload.extend(pack(&[(1, 2), ((1 << 30) - 1, 30)]));
        payload.extend(pack(&[(2, 2), (15, 4), (7, 3), (63, 6), (131_071, 17)]));
        payload.extend(pack(&[(3, 2), (5, 30), (3, 4), (6, 6), (31, 5), (131_070, 17)]));
        payload.extend([3, 0, 0]);

        let batch = CompactSwitches::parse(&payload, 2, PointerSize::Eight).unwrap();
        let expected = [
            (1_000 + 16_383, None, None),
            (1_000 + 16_383 + 1_073_741_823, None, None),
            (1_000 + 16_383 + 1_073_741_823 + 131_071, Some((115, 30, 63)), None),
            (1_000 + 16_383 + 1_073_741_823 + 131_071 + 5, Some((103, 31, 6)), Some(131_070)),
        ];
        let found: Vec<_> = batch
            .iter()
            .map(|switch| {
                let thread = switch.old_thread.map(|t| (t.thread_id.0, t.priority, t.state_or_wait_reason));
                (switch.time.0, thread, switch.new_thread_wait_time)
            })
            .collect();
        assert_eq!(found, expected);
    }
}
