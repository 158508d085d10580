//! The way of records to the recorder: memory that both share, and a pipe that announces them.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::protocol::{LENGTH, LOOKS, RING_RECORDS, Record, Ring, WORDS};

/// The number of records that become readable together.
const BATCH: u64 = 256;
/// The number of records that are announced together. The recorder looks for records by itself; this wakes it
/// after a pause without records.
const ANNOUNCED: u64 = RING_RECORDS / 4;
/// How long to wait for space before looking again.
const PAUSE: Duration = Duration::from_micros(50);
/// The number of pauses after which the recorder is known to be alive or not.
const PAUSES: u32 = 100;

/// The sending side. After an error, or when it was closed, it discards records.
#[derive(Debug)]
pub struct Channel {
    ring: &'static Ring,
    announcements: Option<File>,
    /// The number of records so far, and of those that were announced.
    sent: u64,
    announced: u64,
    /// The number of records at which space must be looked for.
    limit: u64,
}

impl Channel {
    pub fn new(ring: &'static Ring, announcements: File) -> Channel {
        Channel { ring, announcements: Some(announcements), sent: 0, announced: 0, limit: RING_RECORDS }
    }

    pub fn is_open(&self) -> bool {
        self.announcements.is_some()
    }

    /// Sends a record, later.
    pub fn send(&mut self, record: Record) {
        self.put(record.to_words());
    }

    /// Sends bytes, padded to the length of a record.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(LENGTH) {
            let mut padded = [0; LENGTH];
            padded[..part.len()].copy_from_slice(part);
            let words = padded.as_chunks().0;
            self.put(std::array::from_fn(|index| u64::from_ne_bytes(words[index])));
        }
    }

    #[inline(always)]
    fn put(&mut self, words: [u64; WORDS]) {
        if self.sent >= self.limit {
            self.wait_for_space();
        }
        if !self.is_open() {
            return;
        }
        for (place, word) in self.ring.record(self.sent).iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.sent += 1;
        if self.sent.is_multiple_of(BATCH) {
            self.publish();
            if self.sent - self.announced >= ANNOUNCED {
                self.announce();
            }
        }
    }

    /// Announces all records so far.
    pub fn flush(&mut self) {
        self.publish();
        self.announce();
    }

    /// Makes all records so far readable.
    fn publish(&self) {
        self.ring.written().store(self.sent, Ordering::Release);
    }

    /// Waits for the request with a number, from 0, for a short time. It need not have arrived then.
    pub fn await_request(&self, number: u64) {
        for _ in 0..LOOKS {
            if self.ring.requested().load(Ordering::Acquire) > number {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Ends the connection. Records that were not announced are lost.
    pub fn close(&mut self) {
        self.announcements = None;
    }

    #[cold]
    fn announce(&mut self) {
        self.announced = self.sent;
        // Otherwise, the recorder has ended. The system continues.
        if self.announcements.as_mut().is_some_and(|pipe| pipe.write_all(&[0]).is_err()) {
            self.close();
        }
    }

    #[cold]
    fn wait_for_space(&mut self) {
        self.flush();
        let mut pauses = 0;
        while self.is_open() {
            self.limit = self.ring.read().load(Ordering::Acquire).saturating_add(RING_RECORDS);
            if self.sent < self.limit {
                return;
            }
            std::thread::sleep(PAUSE);
            pauses += 1;
            if pauses % PAUSES == 0 {
                self.announce();
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::protocol::Kind;
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;

    /// Creates a channel whose memory exists for ever, and its reading side.
    pub fn channel() -> (Channel, &'static Ring, PipeReader) {
        let words = vec![0_u64; crate::protocol::RING_WORDS].leak();
        // SAFETY: the words are never freed nor used otherwise, and the types have the same layout.
        let ring: &'static Ring = unsafe { &*words.as_ptr().cast() };
        let (announced, pipe) = std::io::pipe().unwrap();
        (Channel::new(ring, File::from(OwnedFd::from(pipe))), ring, announced)
    }

    /// Reads the words of all records that can be read, from a number on.
    pub fn read(ring: &Ring, from: u64) -> Vec<[u64; WORDS]> {
        let words = |number| {
            let record = ring.record(number);
            std::array::from_fn(|index| record[index].load(Ordering::Relaxed))
        };
        (from..ring.written().load(Ordering::Acquire)).map(words).collect()
    }

    #[test]
    fn records_are_announced_together() {
        let (mut channel, ring, mut announced) = channel();
        let record = |transition| Record { pc_before: 7, ..Record::new(Kind::Call, transition) };
        for transition in 0..BATCH + 3 {
            channel.send(record(transition));
        }
        assert_eq!(ring.written().load(Ordering::Relaxed), BATCH);
        channel.send_bytes(&[1; LENGTH + 2]);
        channel.flush();
        let found = read(ring, 0);
        assert_eq!(found.len() as u64, BATCH + 5);
        assert_eq!(Record::from_words(found[257]), Some(record(257)));
        assert_eq!((found[259][5], found[260]), (0x0101_0101_0101_0101, [0x0101, 0, 0, 0, 0, 0]));
        for transition in 0..2 * (ANNOUNCED + BATCH) {
            channel.send(record(transition));
        }
        channel.close();
        channel.send(record(0));
        let mut bytes = Vec::new();
        announced.read_to_end(&mut bytes).unwrap();
        // By `flush`, and twice because of their number.
        assert_eq!(bytes, [0; 3]);
    }

    /// The ring is full again and again.
    #[test]
    fn a_full_ring_waits_for_the_recorder() {
        const COUNT: u64 = 3 * RING_RECORDS + 5;
        let (mut channel, ring, mut announced) = channel();
        let sender = std::thread::spawn(move || {
            for transition in 0..COUNT {
                channel.send(Record::new(Kind::Return, transition));
            }
            channel.flush();
        });
        let mut next = 0;
        while announced.read(&mut [0; 64]).unwrap() > 0 {
            for words in read(ring, next) {
                assert_eq!(words[1], next);
                next += 1;
            }
            ring.read().store(next, Ordering::Release);
        }
        sender.join().unwrap();
        assert_eq!(next, COUNT);
    }

    #[test]
    fn nothing_is_sent_after_the_recorder_has_ended() {
        let (mut channel, _, announced) = channel();
        drop(announced);
        for transition in 0..2 * RING_RECORDS {
            channel.send(Record::new(Kind::Return, transition));
        }
        assert!(!channel.is_open());
    }
}
