//! The code of the traced program. Instructions that cannot change are decoded once.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustc_hash::FxHashMap;
use stackhound_record_names::{MemoryMap, Process};

use crate::control::Tid;
use crate::instruction::{Instruction, LENGTH_MAX};

const PAGE: u64 = 4096;

/// Decoded instructions by address.
#[derive(Debug)]
pub(crate) struct CodeCache {
    memory: File,
    process: Tid,
    map: MemoryMap,
    /// The map may have changed since it was read.
    map_is_outdated: bool,
    /// The number of times that the map was read and had changed.
    generation: u64,
    decoded: FxHashMap<u64, Decoded>,
    /// The last page that was read, and its address. Code is read by page.
    page: Option<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
enum Decoded {
    Fixed(Instruction),
    /// In memory that can change at any time, so it is read each time.
    Volatile,
}

impl CodeCache {
    /// Opens the memory of a stopped process.
    pub(crate) fn open(process: Tid) -> io::Result<CodeCache> {
        Ok(CodeCache {
            memory: File::open(format!("/proc/{}/mem", process.0))?,
            process,
            map: MemoryMap::default(),
            map_is_outdated: true,
            generation: 0,
            decoded: FxHashMap::default(),
            page: None,
        })
    }

    /// The instruction at an address.
    pub(crate) fn instruction(&mut self, pc: u64) -> Instruction {
        match self.decoded.get(&pc) {
            Some(Decoded::Fixed(instruction)) => return *instruction,
            Some(Decoded::Volatile) => return self.decode(pc, false),
            None => {}
        }
        let volatile = self.map().at(pc).is_none_or(|mapping| mapping.volatile);
        let instruction = self.decode(pc, !volatile);
        self.decoded.insert(pc, if volatile { Decoded::Volatile } else { Decoded::Fixed(instruction) });
        instruction
    }

    fn decode(&mut self, pc: u64, fixed: bool) -> Instruction {
        let mut bytes = [0; LENGTH_MAX];
        if !fixed {
            let length = self.read(pc, &mut bytes);
            return Instruction::decode(&bytes[..length], pc);
        }
        let start = pc & !(PAGE - 1);
        let inside = (pc - start) as usize;
        if self.page.as_ref().is_none_or(|(address, _)| *address != start) {
            let mut page = vec![0; PAGE as usize];
            let length = self.read(start, &mut page);
            page.truncate(length);
            self.page = Some((start, page));
        }
        let page = self.page.as_ref().map_or(&[][..], |(_, page)| page);
        if let Some(bytes) = page.get(inside..inside + LENGTH_MAX) {
            return Instruction::decode(bytes, pc);
        }
        // The instruction may continue in the next page.
        let length = self.read(pc, &mut bytes);
        Instruction::decode(&bytes[..length], pc)
    }

    /// Reads a word of memory.
    pub(crate) fn read_word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    }

    /// Discards decoded code after a system call that changed the mapping of these addresses.
    pub(crate) fn forget(&mut self, addresses: Range<u64>) {
        self.map_is_outdated = true;
        self.page = None;
        // Most such calls concern data; then no search is needed.
        let has_code = self.map.executable().any(|mapping| {
            mapping.addresses.start < addresses.end && addresses.start < mapping.addresses.end
        });
        if has_code {
            self.decoded.retain(|pc, _| !addresses.contains(pc));
        }
    }
}

impl Process for CodeCache {
    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            match self.memory.read_at(&mut into[done..], address.wrapping_add(done as u64)) {
                Ok(0) | Err(_) => break,
                Ok(length) => done += length,
            }
        }
        done
    }

    fn map(&mut self) -> &MemoryMap {
        if self.map_is_outdated {
            self.map_is_outdated = false;
            // A process that has just been killed has no map.
            let now = MemoryMap::read(self.process.0 as u32).unwrap_or_default();
            if now != self.map {
                self.generation += 1;
                self.map = now;
            }
        }
        &self.map
    }

    fn generation(&mut self) -> u64 {
        self.map();
        self.generation
    }
}
