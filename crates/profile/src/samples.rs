//! The samples of a profile, by thread. A trace has millions of them, so they are encoded: times as
//! differences, and all numbers with as many bytes as they need. A sample takes about 8 bytes.

use crate::model::{Nanos, Sample, StackId, ThreadId};

/// The samples of all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    threads: Vec<OfThread>,
}

/// The samples of one thread, in the order in which they were added.
#[derive(Clone, Debug, Default)]
struct OfThread {
    bytes: Vec<u8>,
    count: usize,
    weight: u64,
    last: Nanos,
    /// Whether the times are out of order.
    is_unsorted: bool,
}

impl Samples {
    pub fn push(&mut self, sample: Sample) {
        let thread = sample.thread.index();
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, OfThread::default);
        }
        self.threads[thread].push(sample);
    }

    pub fn len(&self) -> usize {
        self.threads.iter().map(|thread| thread.count).sum()
    }

    /// The total weight.
    pub fn weight(&self) -> u64 {
        self.threads.iter().map(|thread| thread.weight).sum()
    }

    pub fn len_of(&self, thread: ThreadId) -> usize {
        self.threads.get(thread.index()).map_or(0, |samples| samples.count)
    }

    pub fn weight_of(&self, thread: ThreadId) -> u64 {
        self.threads.get(thread.index()).map_or(0, |samples| samples.weight)
    }

    pub fn of(&self, thread: ThreadId) -> Decoder<'_> {
        let bytes = self.threads.get(thread.index()).map_or(&[][..], |samples| &samples.bytes);
        Decoder { bytes, thread, last: Nanos(0) }
    }

    pub fn iter(&self) -> impl Iterator<Item = Sample> {
        (0..self.threads.len()).flat_map(|thread| self.of(ThreadId(thread as u32)))
    }

    /// Sorts the samples of each thread by time. Samples with the same time keep their order.
    pub fn sort(&mut self) {
        for index in 0..self.threads.len() {
            if self.threads[index].is_unsorted {
                let mut samples: Vec<Sample> = self.of(ThreadId(index as u32)).collect();
                samples.sort_by_key(|sample| sample.time);
                self.threads[index] = OfThread::of(samples);
            }
            self.threads[index].bytes.shrink_to_fit();
        }
    }

    /// Replaces the stack of each sample. Removes the samples without a new one.
    pub fn replace_stacks(&mut self, of: impl Fn(StackId) -> Option<StackId>) {
        for index in 0..self.threads.len() {
            let samples = self.of(ThreadId(index as u32));
            let replaced = samples.filter_map(|sample| Some(Sample { stack: of(sample.stack)?, ..sample }));
            self.threads[index] = OfThread::of(replaced);
        }
    }
}

impl FromIterator<Sample> for Samples {
    fn from_iter<T: IntoIterator<Item = Sample>>(samples: T) -> Samples {
        let mut collected = Samples::default();
        samples.into_iter().for_each(|sample| collected.push(sample));
        collected
    }
}

impl OfThread {
    fn of(samples: impl IntoIterator<Item = Sample>) -> OfThread {
        let mut collected = OfThread::default();
        samples.into_iter().for_each(|sample| collected.push(sample));
        collected.bytes.shrink_to_fit();
        collected
    }

    fn push(&mut self, sample: Sample) {
        let Sample { time, stack, weight, cpu, .. } = sample;
        self.is_unsorted |= time < self.last;
        // Modulo 2^64, so that the difference of any two times fits. It is small in both directions.
        let difference = time.0.wrapping_sub(self.last.0) as i64;
        put(&mut self.bytes, (difference << 1 ^ difference >> 63) as u64);
        put(&mut self.bytes, stack.0.into());
        put(&mut self.bytes, weight.into());
        put(&mut self.bytes, cpu.map_or(0, |cpu| u64::from(cpu) + 1));
        self.last = time;
        self.count += 1;
        self.weight += u64::from(weight);
    }
}

/// The samples of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Decoder<'s> {
    bytes: &'s [u8],
    thread: ThreadId,
    last: Nanos,
}

impl Iterator for Decoder<'_> {
    type Item = Sample;

    #[inline]
    fn next(&mut self) -> Option<Sample> {
        let difference = take(&mut self.bytes)?;
        let difference = (difference >> 1) ^ (difference & 1).wrapping_neg();
        self.last.0 = self.last.0.wrapping_add(difference);
        let stack = StackId(take(&mut self.bytes)? as u32);
        let weight = take(&mut self.bytes)? as u32;
        let cpu = take(&mut self.bytes)?.checked_sub(1).map(|cpu| cpu as u16);
        Some(Sample { time: self.last, thread: self.thread, stack, weight, cpu })
    }
}

/// Appends a number in groups of 7 bits, the lowest first. All bytes except the last one have bit 7.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[inline]
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        let time = prop_oneof![any::<u64>(), 0..10_u64];
        let sample = (0..4_u32, time, any::<u32>(), any::<u32>(), any::<Option<u16>>());
        let sample = sample.prop_map(|(thread, time, stack, weight, cpu)| Sample {
            time: Nanos(time),
            thread: ThreadId(thread),
            stack: StackId(stack),
            weight,
            cpu,
        });
        prop::collection::vec(sample, 0..40)
    }

    proptest! {
        #[test]
        fn samples_are_those_that_were_added(mut expected in samples()) {
            let mut encoded: Samples = expected.iter().copied().collect();
            encoded.sort();
            expected.sort_by_key(|sample| (sample.thread, sample.time));
            prop_assert_eq!(encoded.iter().collect::<Vec<_>>(), &expected[..]);
            prop_assert_eq!(encoded.len(), expected.len());
            let weight = |samples: &[Sample]| samples.iter().map(|sample| u64::from(sample.weight)).sum::<u64>();
            prop_assert_eq!(encoded.weight(), weight(&expected));
            for thread in (0..5).map(ThreadId) {
                let of: Vec<Sample> = expected.iter().copied().filter(|sample| sample.thread == thread).collect();
                prop_assert_eq!(encoded.len_of(thread), of.len());
                prop_assert_eq!(encoded.weight_of(thread), weight(&of));
                prop_assert_eq!(encoded.of(thread).collect::<Vec<_>>(), of);
            }
            let new = |stack: StackId| (!stack.0.is_multiple_of(3)).then_some(StackId(stack.0 / 2));
            encoded.replace_stacks(new);
            expected.retain(|sample| new(sample.stack).is_some());
            expected.iter_mut().for_each(|sample| sample.stack = StackId(sample.stack.0 / 2));
            prop_assert_eq!(encoded.iter().collect::<Vec<_>>(), &expected[..]);
            prop_assert_eq!((encoded.len(), encoded.weight()), (expected.len(), weight(&expected)));
        }
    }
}
