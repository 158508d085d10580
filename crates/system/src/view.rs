//! Sections mapped into processes: files, including images, and page-file memory.

use std::collections::BTreeSet;
use std::fmt;

use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid};

use crate::address_spaces::AddressSpaces;
use crate::file::FileKey;
use crate::process::ProcessId;
use crate::ranges::AddressRange;
use crate::slab::Slab;
use crate::span::{Evidence, Phase, Span};

/// Page protection, as numbered by the memory manager.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Protection(u8);

impl Protection {
    /// The protection for a number. Only the lowest three bits are used: 1 read, 2 execute, 3
    /// execute and read, 4 read and write, 5 copy on write, 6 execute, read and write, 7 execute
    /// and copy on write.
    pub fn of_section(number: u8) -> Protection {
        Protection(number & 7)
    }

    /// Whether the protection allows execution.
    pub fn is_executable(self) -> bool {
        matches!(self.0, 2 | 3 | 6 | 7)
    }

    /// Three letters for read, write and execute; `-` if not allowed, and `C` for copy on write.
    pub fn letters(self) -> &'static str {
        ["---", "R--", "--X", "R-X", "RW-", "RC-", "RWX", "RCX"][usize::from(self.0)]
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.letters())
    }
}

/// The facts that an event states about a mapped section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewFacts {
    /// The process that the section is mapped into.
    pub pid: Pid,
    /// The start address.
    pub base: Address,
    /// The size in bytes.
    pub size: u64,
    /// The mapped file.
    pub file: FileKey,
    /// The protection of the mapping.
    pub protection: Protection,
}

/// A section mapped into a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// The start address.
    pub base: Address,
    /// The size in bytes.
    pub size: u64,
    /// The mapped file. [`file_name`](crate::System::file_name) returns its name.
    pub file: FileKey,
    /// The initial protection. The protection of pages can have changed since.
    pub protection: Protection,
    /// The time of the mapping; [`Span::BEGINNING`] if it was before the trace.
    pub since: TraceTime,
    /// The evidence for the mapping.
    pub evidence: Evidence,
}

/// Views of all processes. Each takes about 100 to 250 bytes.
#[derive(Debug, Default)]
pub(crate) struct Views {
    records: Slab<View>,
    pub spaces: AddressSpaces,
}

impl Views {
    pub fn at(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<View> {
        let number = self.spaces.at(process, address, time)?;
        Some(*self.records.get(number))
    }

    /// All views of a process.
    pub fn of(&self, process: ProcessId) -> impl Iterator<Item = View> {
        let numbers: BTreeSet<u32> =
            self.spaces.get(process).into_iter().flat_map(|space| space.values()).collect();
        numbers.into_iter().map(|number| *self.records.get(number))
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Forgets views that are no longer referenced. Returns their number.
    pub fn sweep(&mut self) -> u64 {
        self.records.sweep(self.spaces.values())
    }

    pub fn observe(&mut self, phase: Phase, time: TraceTime, process: ProcessId, facts: &ViewFacts) {
        let Some(range) = AddressRange::new(facts.base.0, facts.size) else { return };
        let Views { records, spaces } = self;
        let space = spaces.get_mut(process);
        let present = space.held_at(range.first, time).map(|number| *records.get(number));
        let present = present.filter(|view| view.base == facts.base);
        if phase == Phase::End
            && let Some(range) = present.and_then(|view| AddressRange::new(view.base.0, view.size))
        {
            return space.free(time, range);
        }
        if phase != Phase::Start && present.is_some_and(|view| view.size == facts.size) {
            return;
        }
        let number = records.next();
        let is_old = phase != Phase::Start && space.set_from_beginning(range, number);
        match phase {
            Phase::End if is_old => space.free(time, range),
            // Another section was mapped there since, so the facts of this one are unknown.
            Phase::End => return,
            _ if is_old => {}
            _ => space.set(time, range, number),
        }
        let &ViewFacts { base, size, file, protection, .. } = facts;
        let since = if is_old { Span::BEGINNING } else { time };
        let evidence = match phase {
            Phase::Start => Evidence::Observed,
            Phase::RundownAtStart => Evidence::RundownAtStart,
            Phase::RundownAtEnd => Evidence::RundownAtEnd,
            Phase::End => Evidence::Unknown,
        };
        records.insert(View { base, size, file, protection, since, evidence });
    }
}
