//! What arrives from the emulator: records, and memory on request.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stackhound_qemu_plugin::protocol::{
    FUNCTIONS_MAX, Kind, LENGTH, LOOKS, MEMORY_MAX, Record, Request, WORDS,
};
use stackhound_record_guest::Memory;
use stackhound_types::Address;

use crate::emulator::Emulator;
use crate::shared::SharedRing;

/// The number of records after which their memory is released.
const BATCH: u64 = 2048;
/// How long to wait before looking for records again: at first, and at most. An idle system makes none.
const PAUSE: Duration = Duration::from_micros(250);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The records that have arrived.
#[derive(Debug)]
pub(crate) struct Inbox {
    ring: SharedRing,
    /// The numbers of the next record, and of the first one that has not arrived.
    next: u64,
    end: u64,
    pause: Duration,
}

impl Inbox {
    pub fn new(ring: SharedRing) -> Inbox {
        Inbox { ring, next: 0, end: 0, pause: PAUSE }
    }

    /// Returns the next record that has arrived.
    #[inline]
    pub fn next(&mut self) -> Option<[u64; WORDS]> {
        if self.next == self.end {
            return None;
        }
        let record = self.ring.get().record(self.next);
        let words = std::array::from_fn(|index| record[index].load(Ordering::Relaxed));
        self.next += 1;
        if self.next.is_multiple_of(BATCH) {
            self.release();
        }
        Some(words)
    }

    /// Waits for more. Returns `Some(false)` if the emulator has ended and everything was read, and `None`
    /// if nothing arrives for some time.
    pub fn wait(&mut self, emulator: &mut Emulator) -> io::Result<Option<bool>> {
        self.release();
        // An active system makes the next ones in less time than to wake a process.
        for _ in 0..LOOKS {
            if self.look() {
                self.pause = PAUSE;
                return Ok(Some(true));
            }
            std::hint::spin_loop();
        }
        let announced = emulator.wait_for_announcement(self.pause)?;
        if self.look() {
            self.pause = PAUSE;
            return Ok(Some(true));
        }
        self.pause = (2 * self.pause).min(PAUSE_MAX);
        Ok(announced)
    }

    /// Returns whether there are more records.
    fn look(&mut self) -> bool {
        // A damaged counter must not lead backwards.
        self.end = self.next.max(self.ring.get().written().load(Ordering::Acquire));
        self.end > self.next
    }

    /// The memory of the records so far can be written again.
    fn release(&self) {
        self.ring.get().read().store(self.next, Ordering::Release);
    }

    /// Copies bytes that follow a record, with padding to the length of a record.
    pub fn copy(&mut self, bytes: &mut [u8], emulator: &mut Emulator) -> io::Result<()> {
        for part in bytes.chunks_mut(LENGTH) {
            let words = self.expect(emulator)?;
            for (to, word) in part.chunks_mut(8).zip(words) {
                to.copy_from_slice(&word.to_ne_bytes()[..to.len()]);
            }
        }
        Ok(())
    }

    /// Sends a request. The plugin waits for it.
    pub fn request(&self, request: Request, emulator: &mut Emulator) -> io::Result<()> {
        emulator.send(request)?;
        self.ring.get().requested().fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Sends the functions of the kernel, in rising order.
    pub fn send_functions(&self, functions: &[Address], emulator: &mut Emulator) -> io::Result<()> {
        let functions = &functions[..functions.len().min(FUNCTIONS_MAX as usize)];
        self.request(Request::Functions { count: functions.len() as u64 }, emulator)?;
        let bytes: Vec<u8> = functions.iter().flat_map(|function| function.0.to_ne_bytes()).collect();
        emulator.send_bytes(&bytes)
    }

    /// Waits for the next record, which the emulator is about to send.
    fn expect(&mut self, emulator: &mut Emulator) -> io::Result<[u64; WORDS]> {
        loop {
            if let Some(words) = self.next() {
                return Ok(words);
            }
            if self.wait(emulator)? == Some(false) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The memory of the system, while it waits for requests.
#[derive(Debug)]
pub(crate) struct SystemMemory<'a> {
    pub emulator: &'a mut Emulator,
    pub inbox: &'a mut Inbox,
}

impl SystemMemory<'_> {
    fn ask(&mut self, address: Address, bytes: &mut [u8]) -> io::Result<bool> {
        let length = bytes.len() as u64;
        self.inbox.request(Request::Read { address: address.0, length }, self.emulator)?;
        match Record::from_words(self.inbox.expect(self.emulator)?) {
            Some(Record { kind: Kind::Memory, sp_before: 0, .. }) => Ok(false),
            Some(Record { kind: Kind::Memory, sp_before, .. }) if sp_before == bytes.len() as u64 => {
                self.inbox.copy(bytes, self.emulator)?;
                Ok(true)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Memory for SystemMemory<'_> {
    fn read(&mut self, address: Address, bytes: &mut [u8]) -> Option<()> {
        if bytes.is_empty() || bytes.len() as u64 > MEMORY_MAX {
            return None;
        }
        // If the emulator has ended, the next records are missing too, which is reported.
        self.ask(address, bytes).is_ok_and(|is_readable| is_readable).then_some(())
    }
}
