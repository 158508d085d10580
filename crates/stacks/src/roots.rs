//! The outermost functions of threads, from which it follows whether a walk reached the end of its
//! stack.
//!
//! A walk that fails ends early, and its record does not show it. The evidence is where other walks
//! of the same thread end. The rules are those of `docs/format/stacks.md`, "Truncated walks".

use stackhound_trace::Event;
use stackhound_types::{Address, Pid, PointerSize, RawTime, Tid};

use crate::keys::Map;
use crate::part::WALK_FRAMES_MAX;
use crate::table::{StackId, StackTable};

/// A thread of a process. Windows reuses the ids of threads that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Thread {
    pub pid: u32,
    pub tid: u32,
    /// [`RUNNING`] if the start was not recorded.
    started: RawTime,
}

/// Before all times.
const RUNNING: RawTime = RawTime(i64::MIN);

/// An address at which walks of a thread end.
#[derive(Clone, Copy, Debug)]
struct End {
    address: Address,
    walks: u32,
    /// The raw times of the events of the first and of the last one.
    first: RawTime,
    last: RawTime,
}

/// With this number of walks of a single thread that end at one address, the address is as reliable
/// a root as with walks of two threads.
const FIRM: u32 = 16;

/// Maximum number of addresses that are kept for each thread: those with the most walks.
const ENDS_MAX: usize = 8;

/// Maximum number of threads, of their starts, and of addresses at which walks end. Beyond that,
/// all are discarded and collected again.
const KEPT_MAX: usize = 1 << 16;

/// The process and the thread that a start event states. `None` in version 0, in which the order of
/// the two ids is not known.
#[cold]
pub(crate) fn started_thread(event: &Event<'_>) -> Option<(Pid, Tid)> {
    let record = event.record();
    let number = |at: usize| Some(u32::from_le_bytes(record.payload().get(at..at + 4)?.try_into().ok()?));
    (record.version() > 0).then_some(())?;
    Some((Pid(number(0)?), Tid(number(4)?)))
}

/// The addresses at which walks end, by thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadRoots {
    /// The start times of threads with equal ids, in ascending order.
    starts: Map<(u32, u32), Vec<RawTime>>,
    starts_len: usize,
    threads: Map<Thread, Vec<End>>,
    /// The number of threads whose walks end at an address.
    breadth: Map<Address, u32>,
    /// For two addresses at which walks of a thread end alternately: the number of walks that end
    /// at the first one.
    by_turns: Map<(Address, Address), u64>,
}

impl ThreadRoots {
    /// Adds the start of a thread. Walks of an earlier thread with the same ids do not apply to it.
    #[cold]
    pub fn observe_start(&mut self, event: &Event<'_>) {
        if let Some((Pid(pid), Tid(tid))) = started_thread(event) {
            self.start(pid, tid, event.raw_time());
        }
    }

    fn start(&mut self, pid: u32, tid: u32, time: RawTime) {
        self.bound();
        let starts = self.starts.entry((pid, tid)).or_default();
        starts.insert(starts.partition_point(|&known| known <= time), time);
        self.starts_len += 1;
    }

    /// The thread that had these ids at a time.
    #[inline]
    pub fn thread(&self, pid: u32, tid: u32, time: RawTime) -> Thread {
        let starts = self.starts.get(&(pid, tid)).map_or(&[][..], Vec::as_slice);
        let started = starts.iter().rev().find(|&&start| start <= time).copied().unwrap_or(RUNNING);
        Thread { pid, tid, started }
    }

    /// The addresses at which walks end, by thread.
    pub fn ends(&self) -> impl Iterator<Item = (Thread, Vec<Address>)> {
        let addresses = |ends: &Vec<End>| ends.iter().map(|end| end.address).collect();
        self.threads.iter().map(move |(&thread, ends)| (thread, addresses(ends)))
    }

    fn bound(&mut self) {
        let kept = [self.threads.len(), self.breadth.len(), self.by_turns.len(), self.starts_len];
        if kept.into_iter().max() >= Some(KEPT_MAX) {
            *self = ThreadRoots::default();
        }
    }

    /// Adds walks of two frames or more for events between two times. A walk of a single frame is
    /// not evidence of the thread's root: its frame is where the thread was executing.
    pub fn observe(&mut self, thread: Thread, end: Address, first: RawTime, last: RawTime) {
        self.bound();
        let ends = self.threads.entry(thread).or_default();
        let location = match ends.iter().position(|known| known.address == end) {
            Some(location) => location,
            None => {
                *self.breadth.entry(end).or_default() += 1;
                let rarest = (0..ends.len()).min_by_key(|&location| ends[location].walks);
                if let Some(rarest) = rarest.filter(|_| ends.len() == ENDS_MAX) {
                    ends.swap_remove(rarest);
                }
                ends.push(End { address: end, walks: 0, first, last });
                ends.len() - 1
            }
        };
        let this = &mut ends[location];
        this.walks = this.walks.saturating_add(1);
        (this.first, this.last) = (this.first.min(first), this.last.max(last));
        let this = *this;
        for other in ends.iter().filter(|other| other.address != end) {
            if this.first < other.last && other.first < this.last {
                *self.by_turns.entry((end, other.address)).or_default() += 1;
            }
        }
    }

    /// Adds a walk on a system with this pointer size, as [`observe`](Self::observe) does.
    pub fn learn(
        &mut self,
        thread: Thread,
        walk: StackId,
        table: &StackTable,
        (pointer, time): (PointerSize, RawTime),
    ) {
        if has_callers(table, walk, pointer) {
            self.observe(thread, table.outermost(walk), time, time);
        }
    }

    /// Whether more walks could show that a walk lacks outer frames although it counts as whole,
    /// for a thread whose root is known: many walks of its thread end elsewhere, or few walks of
    /// its thread and none of other threads end at the same address.
    pub fn is_in_doubt(&self, thread: Thread, walk: StackId, table: &StackTable) -> bool {
        let Some(ends) = self.threads.get(&thread) else { return false };
        let end = table.outermost(walk);
        let Some(own) = ends.iter().find(|known| known.address == end) else { return true };
        let has_rival = ends.iter().any(|known| known.address != end && known.walks * 4 >= own.walks);
        has_rival || own.walks < FIRM && self.breadth.get(&end) <= Some(&1)
    }

    /// Whether a walk lacks outer frames. `None` if that is not known.
    pub fn is_cut(&self, thread: Thread, walk: StackId, table: &StackTable) -> Option<bool> {
        let is_long = || table.frames(walk).nth(usize::from(WALK_FRAMES_MAX) - 1).map(|_| true);
        self.is_truncated(thread, table.outermost(walk)).or_else(is_long)
    }

    /// Whether a walk that ends at an address lacks outer frames of its thread. `None` if the root
    /// of the thread is not known.
    fn is_truncated(&self, thread: Thread, end: Address) -> Option<bool> {
        let ends = self.threads.get(&thread)?;
        let walks: u64 = ends.iter().map(|known| u64::from(known.walks)).sum();
        let is_known = |known: &&End| {
            let has_most = known.walks > 1 && u64::from(known.walks) * 2 > walks;
            has_most || self.breadth.get(&known.address) > Some(&1)
        };
        let mut roots = ends.iter().filter(is_known);
        roots.clone().next()?;
        let Some(own) = roots.clone().find(|root| root.address == end) else { return Some(true) };
        let is_shared = self.breadth.get(&end) > Some(&1);
        Some(roots.any(|root| (root.walks >= own.walks || !is_shared) && self.is_inside(end, root.address)))
    }

    /// Whether walks that end at `inner` lack frames up to `outer`. A function that is outermost
    /// again after another one was on the stack all the time, so of two alternating addresses one
    /// is not the outermost: the one at which walks of only one thread end, else the one at which
    /// fewer walks of fewer threads end.
    fn is_inside(&self, inner: Address, outer: Address) -> bool {
        let walks = |this, other| self.by_turns.get(&(this, other)).copied().unwrap_or_default();
        let threads = |end| self.breadth.get(&end).copied().unwrap_or_default();
        let (walks, threads) = ((walks(inner, outer), walks(outer, inner)), (threads(inner), threads(outer)));
        match (threads.0 > 1, threads.1 > 1) {
            _ if walks.0 + walks.1 == 0 => false,
            (is_shared, other) if is_shared != other => other,
            _ => walks.0 < walks.1 && threads.0 <= threads.1,
        }
    }
}

/// Whether a walk has at least two user-mode frames.
pub(crate) fn has_callers(table: &StackTable, walk: StackId, pointer: PointerSize) -> bool {
    table.frames(walk).filter(|address| !address.is_kernel(pointer)).nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks in time order, as `thread:end`, and starts of threads, as `+thread`; then the expected
    /// results for walks of the last threads with these ids, as `thread:end`.
    #[track_caller]
    fn check(walks: &str, expected: &[(&str, Option<bool>)]) {
        let mut roots = ThreadRoots::default();
        let parse = |roots: &ThreadRoots, time, text: &str| {
            let (tid, end) = text.split_once(':').unwrap();
            let thread = roots.thread(1, tid.parse().unwrap(), RawTime(time));
            (thread, Address(end.bytes().fold(0, |number, byte| number << 8 | u64::from(byte))))
        };
        for (time, walk) in (0..).zip(walks.split_whitespace()) {
            match walk.strip_prefix('+') {
                Some(tid) => roots.start(1, tid.parse().unwrap(), RawTime(time)),
                None => {
                    let (thread, end) = parse(&roots, time, walk);
                    roots.observe(thread, end, RawTime(time), RawTime(time));
                }
            }
        }
        for &(walk, is_truncated) in expected {
            let (thread, end) = parse(&roots, i64::MAX, walk);
            assert_eq!(roots.is_truncated(thread, end), is_truncated, "{walk} in {walks}");
        }
    }

    #[test]
    fn a_thread_with_a_reused_id_has_its_own_roots() {
        let rows = [("1:load", Some(false)), ("1:start", Some(false)), ("2:load", Some(false))];
        check("1:load 1:start +1 1:load 1:start 1:start 2:load 2:start", &rows);
        check("1:load 1:load +1 1:start", &[("1:start", None)]);
        // The same without the start.
        check("1:load 1:start 1:load 1:start 1:start 2:load 2:start", &[("2:load", Some(true))]);
    }

    #[test]
    fn an_address_at_which_walks_of_several_threads_end_is_a_root() {
        let rows = [("1:root", Some(false)), ("1:f", Some(true)), ("2:g", Some(true)), ("3:h", None)];
        check("1:root 1:f 1:f 2:root 1:root 3:h", &rows);
    }

    #[test]
    fn the_root_of_a_single_thread_has_most_of_its_walks() {
        check("1:root 1:f 1:root", &[("1:root", Some(false)), ("1:f", Some(true))]);
        check("1:a 1:b", &[("1:a", None)]);
        check("1:a", &[("1:a", None), ("2:a", None)]);
    }

    #[test]
    fn a_thread_that_starts_in_the_loader_has_two_roots_one_after_the_other() {
        let rows = [("1:load", Some(false)), ("1:start", Some(false)), ("2:load", Some(false))];
        check("1:load 1:load 1:load 1:start 2:load 2:start 2:start", &rows);
        // The same with a root that other threads do not have.
        check("1:load 1:own 1:own 2:load", &[("1:own", Some(false)), ("1:load", Some(false))]);
    }

    #[test]
    fn most_walks_of_a_thread_may_end_early() {
        let rows = [("1:f", Some(true)), ("1:root", Some(false))];
        check("1:root 1:f 1:f 1:f 2:root 1:root 1:f 1:f", &rows);
    }

    #[test]
    fn a_64_bit_part_alone_is_truncated_if_32_bit_parts_alternate_with_it() {
        let walks = "1:load 1:start 2:load 2:wow64 2:load 2:wow64 2:wow64 3:wow64";
        let rows = [("2:load", Some(true)), ("2:wow64", Some(false)), ("1:load", Some(false))];
        check(walks, &rows);
        // Evidence from one thread applies to all threads with the same two addresses.
        check("1:wow64 1:load 1:wow64 2:wow64 2:load", &[("2:load", Some(true))]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut roots = ThreadRoots::default();
        for number in 0..3 * KEPT_MAX as u64 {
            roots.start(1, number as u32, RawTime(number as i64));
            let thread = roots.thread(1, number as u32 % 1000, RawTime(number as i64));
            roots.observe(thread, Address(number), RawTime(0), RawTime(number as i64));
        }
        assert!(roots.threads.values().all(|ends| ends.len() <= ENDS_MAX));
        assert!(roots.breadth.len().max(roots.by_turns.len()) <= KEPT_MAX + ENDS_MAX);
        assert!(roots.starts.len() <= KEPT_MAX && roots.starts_len <= KEPT_MAX);
    }
}
