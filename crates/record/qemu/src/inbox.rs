//! What arrives from the emulator: records, and memory on request.

use std::io;

use stackhound_qemu_plugin::protocol::{Kind, LENGTH, MEMORY_MAX, Record, Request};
use stackhound_record_guest::Memory;
use stackhound_types::Address;

use crate::emulator::Emulator;

/// The number of records that are read together.
const BATCH: usize = 4096;

/// The records that have arrived.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { buffer: vec![0; BATCH * LENGTH], start: 0, end: 0 }
    }

    /// Returns the next record that has arrived.
    #[inline]
    pub fn next(&mut self) -> Option<[u8; LENGTH]> {
        let bytes = *self.buffer[self.start..self.end].first_chunk()?;
        self.start += LENGTH;
        Some(bytes)
    }

    /// Waits for more. Returns 0 if the emulator has ended, and `None` if nothing arrives for some time.
    pub fn wait(&mut self, emulator: &mut Emulator) -> io::Result<Option<usize>> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = emulator.read(&mut self.buffer[self.end..])?;
        self.end += read.unwrap_or(0);
        Ok(read)
    }

    /// Copies bytes that follow a record, with padding to the length of a record.
    pub fn copy(&mut self, bytes: &mut [u8], emulator: &mut Emulator) -> io::Result<()> {
        let padding = bytes.len().next_multiple_of(LENGTH) - bytes.len();
        for part in bytes.chunks_mut(LENGTH * BATCH / 2).chain([&mut [0; LENGTH][..padding]]) {
            while self.end - self.start < part.len() {
                self.wait_until(emulator)?;
            }
            part.copy_from_slice(&self.buffer[self.start..self.start + part.len()]);
            self.start += part.len();
        }
        Ok(())
    }

    fn wait_until(&mut self, emulator: &mut Emulator) -> io::Result<()> {
        match self.wait(emulator)? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
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
        self.emulator.request(Request::Read { address: address.0, length: bytes.len() as u64 })?;
        let header = loop {
            match self.inbox.next() {
                Some(header) => break Record::from_bytes(&header),
                None => self.inbox.wait_until(self.emulator)?,
            }
        };
        match header {
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
