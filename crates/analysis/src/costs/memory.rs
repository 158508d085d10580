//! Committed memory: what `VirtualAlloc` committed and is not yet freed, by the stack that committed
//! it.
//!
//! A commit counts the bytes that were not committed before. Freed bytes are taken from the stacks
//! that committed them, which can be several, and only partly freed. The end of a process frees all.
//! Memory that was committed before the trace is not known; freeing it is a remainder.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::{Full, StackId, ThreadId};
use stackhound_schema::kernel::hook_id;
use stackhound_types::Pid;

use super::{Column, Figures, Key, Label, Measure, Metric, Observations, bytes, count};
use crate::fields::{self, number};

const ALLOCATED: usize = 1;
const FREED: usize = 2;
const ALLOCATIONS: usize = 3;

pub(super) const METRIC: Metric = Metric {
    name: "memory",
    columns: COLUMNS,
    dimensions: &[],
    start: || Box::new(Memory(Committed::new(RANGES_MAX))),
};

const COLUMNS: &[Column] = &[
    bytes("outstanding_bytes", 0),
    bytes("allocated_bytes", ALLOCATED),
    bytes("freed_bytes", FREED),
    count("allocations", ALLOCATIONS),
];

const COMMIT: u64 = 0x1000;
const DECOMMIT: u64 = 0x4000;
const RELEASE: u64 = 0x8000;

/// Maximum number of committed ranges of all processes. Beyond that, all are forgotten.
const RANGES_MAX: usize = 1 << 20;

/// Who committed a range; `None` if that does not count.
type Owner = Option<(ThreadId, StackId)>;

/// The committed ranges of a process, which do not overlap: owners and ends by start.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, (u64, Owner)>);

impl Ranges {
    /// Removes a range, and calls `freed` with the parts that were committed.
    fn remove(&mut self, from: u64, until: u64, mut freed: impl FnMut(Owner, u64)) {
        let before = self.0.range(..from).next_back().map(|(&start, &(end, owner))| (start, end, owner));
        if let Some((start, end, owner)) = before.filter(|(_, end, _)| *end > from) {
            self.0.insert(start, (from, owner));
            freed(owner, end.min(until) - from);
            if end > until {
                self.0.insert(until, (end, owner));
            }
        }
        while let Some((&start, &(end, owner))) = self.0.range(from..until).next() {
            self.0.remove(&start);
            freed(owner, end.min(until) - start);
            if end > until {
                self.0.insert(until, (end, owner));
            }
        }
    }

    /// Adds the parts of a range that are not committed. Returns their size.
    fn add(&mut self, from: u64, until: u64, owner: Owner) -> u64 {
        let mut at = from;
        let before = self.0.range(..=from).next_back().map(|(_, &(end, _))| end);
        at = before.map_or(at, |end| at.max(end));
        let mut size = 0;
        while at < until {
            let next = self.0.range(at..until).next().map(|(&start, &(end, _))| (start, end));
            let (end, after) = next.unwrap_or((until, until));
            if end > at {
                self.0.insert(at, (end, owner));
                size += end - at;
            }
            at = after;
        }
        size
    }
}

/// The committed ranges of all processes.
#[derive(Debug)]
struct Committed {
    /// By process id: a process can get memory before the event of its start.
    processes: FxHashMap<Pid, Ranges>,
    /// The number of ranges of all processes.
    count: usize,
    max: usize,
}

impl Committed {
    fn new(max: usize) -> Committed {
        Committed { processes: FxHashMap::default(), count: 0, max }
    }

    /// Commits a range. Returns the size that was not committed before.
    fn add(&mut self, pid: Pid, from: u64, until: u64, owner: Owner) -> u64 {
        let ranges = self.processes.entry(pid).or_default();
        let before = ranges.0.len();
        let added = ranges.add(from, until, owner);
        self.count = self.count - before + ranges.0.len();
        added
    }

    /// Frees a range, and calls `freed` with the parts that were committed.
    fn remove(&mut self, pid: Pid, from: u64, until: u64, freed: impl FnMut(Owner, u64)) {
        let Some(ranges) = self.processes.get_mut(&pid) else { return };
        let before = ranges.0.len();
        ranges.remove(from, until, freed);
        self.count = self.count - before + ranges.0.len();
        if ranges.0.is_empty() {
            self.processes.remove(&pid);
        }
    }

    /// Forgets all ranges if there are too many. Returns whether it did.
    fn limit(&mut self) -> bool {
        let is_full = self.count > self.max;
        if is_full {
            self.processes.clear();
            self.count = 0;
        }
        is_full
    }
}

#[derive(Debug)]
struct Memory(Committed);

fn key((thread, stack): (ThreadId, StackId)) -> Key {
    Key { thread, stack, labels: [Label::default(); 2] }
}

impl Memory {
    /// Returns the size that was known to be committed.
    fn free(&mut self, pid: Pid, from: u64, until: u64, out: &mut Observations, is_counted: bool) -> u64 {
        let mut known = 0;
        self.0.remove(pid, from, until, |owner, size| {
            known += size;
            if let Some(owner) = owner.filter(|_| is_counted) {
                out.add(key(owner), Figures::default().with(FREED, size));
            }
        });
        known
    }
}

impl Measure for Memory {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        let id = match view.kernel_id() {
            Some(
                id @ (hook_id::PAGE_FAULT_VIRTUAL_ALLOC
                | hook_id::PAGE_FAULT_VIRTUAL_FREE
                | hook_id::PROCESS_END),
            ) => id,
            _ => return Ok(()),
        };
        if out.is_repeated(view) {
            return Ok(());
        }
        // What happens after the end of the window does not change what was committed at its end.
        if out.window.to.is_some_and(|to| view.time() >= to) {
            out.events += u64::from(id != hook_id::PROCESS_END);
            return Ok(());
        }
        let is_counted = out.window.contains(view.time());
        let Some(pid) = fields::pid(view, "ProcessId") else {
            return Ok(());
        };
        if id == hook_id::PROCESS_END {
            self.free(pid, 0, u64::MAX, out, is_counted);
            return Ok(());
        }
        out.events += 1;
        let (Some(base), Some(size)) = (number(view, "BaseAddress"), number(view, "RegionSize")) else {
            return Ok(());
        };
        let (until, flags) = (base.saturating_add(size), number(view, "Flags").unwrap_or(0));
        if id == hook_id::PAGE_FAULT_VIRTUAL_FREE && flags & (DECOMMIT | RELEASE) != 0 {
            let known = self.free(pid, base, until, out, is_counted);
            if known == 0 && is_counted && wanted() {
                out.remain("releases of memory that was not known to be committed", size);
            }
        } else if id == hook_id::PAGE_FAULT_VIRTUAL_ALLOC && flags & COMMIT != 0 {
            let owner = if wanted() {
                // The process that owns the memory. Another one can commit it.
                let (process, _) = out.parts.thread_in(view, Some(pid), None)?;
                let (caller, _) = out.parts.thread_of(view)?;
                let tid = view.tid().filter(|_| caller == process);
                let thread = out.parts.thread_in(view, Some(pid), tid)?.1;
                Some((thread, out.stack(view, caller)?))
            } else {
                None
            };
            let added = self.0.add(pid, base, until, owner);
            if let Some(owner) = owner.filter(|_| is_counted) {
                out.add(key(owner), Figures::default().with(ALLOCATED, added).with(ALLOCATIONS, 1));
            }
        }
        if self.0.limit() {
            out.remain("limits of ranges that were reached: earlier ranges were forgotten", 0);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Observations) {
        for ranges in self.0.processes.values() {
            for (start, &(end, owner)) in &ranges.0 {
                if let Some(owner) = owner {
                    out.add(key(owner), Figures::default().with(0, end - start));
                    if out.is_lossy {
                        out.remain("ranges that may have been freed: records are missing", end - start);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(committed: &Committed) -> usize {
        committed.processes.values().map(|ranges| ranges.0.len()).sum()
    }

    #[test]
    fn only_ranges_that_exist_count() {
        let mut committed = Committed::new(4);
        let pid = |number| Pid(number);
        for step in 0..100 {
            // Again the same range, one that is freed, and one of a process that ends.
            committed.add(pid(8), 0, 10, None);
            committed.add(pid(8), 20, 30, None);
            committed.remove(pid(8), 20, 30, |_, _| ());
            committed.add(pid(12 + step), 0, 10, None);
            committed.remove(pid(12 + step), 0, u64::MAX, |_, _| ());
            assert!(!committed.limit());
        }
        assert_eq!((committed.count, count(&committed), committed.processes.len()), (1, 1, 1));
    }

    #[test]
    fn parts_of_ranges_are_limited() {
        let mut committed = Committed::new(4);
        committed.add(Pid(8), 0, 100, None);
        for hole in 1..=3 {
            committed.remove(Pid(8), 10 * hole, 10 * hole + 1, |_, _| ());
            assert!(!committed.limit());
        }
        committed.remove(Pid(8), 40, 41, |_, _| ());
        assert_eq!((committed.count, count(&committed)), (5, 5));
        assert!(committed.limit());
        assert_eq!((committed.count, count(&committed)), (0, 0));
    }

    proptest! {
        /// Ranges are the pages of a bitmap after every step: a commit counts the pages that were not
        /// committed, and a release those that were, each for the thread that committed it.
        #[test]
        fn ranges_are_a_set_of_pages(
            steps in prop::collection::vec((any::<bool>(), 0u64..40, 1u64..12), 1..80),
        ) {
            let mut ranges = Ranges::default();
            let mut pages: BTreeMap<u64, ThreadId> = BTreeMap::new();
            let mut parts = stackhound_profile::ProfileBuilder::new("", 0);
            let process = parts.process(stackhound_profile::Process::default()).unwrap();
            let frame = parts.frame(stackhound_profile::Frame::remark("")).unwrap();
            let stack = parts.stack(None, frame).unwrap();
            for (tid, (is_commit, from, length)) in (0u32..).zip(steps) {
                let until = from + length;
                let thread = stackhound_profile::Thread {
                    process, tid: Some(tid), name: String::new(), start: None, end: None,
                };
                let thread = parts.thread(thread).unwrap();
                if is_commit {
                    let added = ranges.add(from, until, Some((thread, stack)));
                    let new = (from..until).filter(|page| pages.insert(*page, *pages.get(page).unwrap_or(&thread)).is_none());
                    prop_assert_eq!(added, new.count() as u64);
                } else {
                    let mut freed: BTreeMap<ThreadId, u64> = BTreeMap::new();
                    ranges.remove(from, until, |owner, size| *freed.entry(owner.unwrap().0).or_default() += size);
                    let mut expected: BTreeMap<ThreadId, u64> = BTreeMap::new();
                    for owner in (from..until).filter_map(|page| pages.remove(&page)) {
                        *expected.entry(owner).or_default() += 1;
                    }
                    prop_assert_eq!(freed, expected);
                }
                let all: BTreeMap<u64, ThreadId> = ranges.0.iter()
                    .flat_map(|(&start, &(end, owner))| (start..end).map(move |page| (page, owner.unwrap().0)))
                    .collect();
                prop_assert_eq!(&all, &pages);
            }
        }
    }
}
