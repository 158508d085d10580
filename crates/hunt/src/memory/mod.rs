//! Evidence from the memory of running processes: the memory and bytes at the frames of live
//! events.
//!
//! Memory is read after the event. A process that has ended gives no evidence, and neither does
//! memory that was freed or is used for another purpose by now: evidence is missing then, and no
//! answer becomes no. A page that was replaced by another one of the same kind is not noticed.
//!
//! Only for live sessions of this machine: the processes of a trace or of a replayed session no
//! longer exist or are on another machine. Work and memory are bounded for any events. Limits
//! follow the time of events, and frames beyond the limits are counted.
//!
//! This module knows frames and processes. It does not know detections or events.

#[cfg(all(windows, feature = "windows"))]
mod system;
#[cfg(test)]
mod tests;

use std::fmt;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use stackhound_detect::{LiveFrame, Memory, MemoryKind, SiteBytes};
use stackhound_frames::{Code, Frame};
use stackhound_system::ProcessEntity;
use stackhound_types::{FileTime, Mode, Pid, TICKS_PER_SECOND};

/// Answers are valid for this period, and limits apply to each period.
const PERIOD: i64 = 10 * TICKS_PER_SECOND;
/// Maximum number of addresses that are read per period: about a tenth of a second of work, and 4
/// MB.
const ADDRESSES_MAX: usize = 1 << 15;
/// Maximum number for one process, so that a process with manipulated stacks does not prevent
/// look-ups in others.
const ADDRESSES_PER_PROCESS_MAX: u32 = 1 << 11;
/// Maximum number of open processes. Windows keeps the remains of an ended process as long as it is
/// open.
const OPEN_MAX: usize = 64;

/// The memory at an address of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The address has memory.
    Found {
        /// The memory.
        memory: Memory,
        /// The bytes around the address, if all of them can be read.
        bytes: Option<SiteBytes>,
    },
    /// No memory, or Windows does not report it.
    Nothing,
    /// The process has ended.
    Gone,
}

/// Reads the memory of an open process, which is closed on drop.
pub type Look = Box<dyn FnMut(u64) -> Answer + Send>;

/// Opens the process that had an id at the time of an event. A process that was started later is
/// another one. Returns `None` if the process has ended or access is denied.
pub type Open = Box<dyn FnMut(Pid, FileTime) -> Option<Look> + Send>;

/// The user frames that are read, in addition to those in no module and the innermost one of each
/// stack. Frames of JIT-compiled code that a runtime reported are never read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// No others.
    Code,
    /// All others: for images, this shows whether a page was modified.
    Images,
}

/// Statistics of memory look-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Number of addresses that were read.
    pub lookups: u64,
    /// Number of these addresses with memory.
    pub found: u64,
    /// Number of frames whose memory was of another kind than at the time of the event.
    pub changed: u64,
    /// How often a process could not be opened, or had ended.
    pub closed: u64,
    /// Number of frames that were not read because of the limits.
    pub beyond_limits: u64,
}

/// The memory of live processes.
pub struct LiveMemory {
    open: Open,
    reach: Reach,
    /// The period of the answers below.
    period: i64,
    answers: HashMap<(ProcessEntity, u64), Answer, foldhash::fast::RandomState>,
    processes: HashMap<ProcessEntity, Tally, foldhash::fast::RandomState>,
    /// Open processes, the last used one at the end. They are kept across periods.
    opened: Vec<Opened>,
    stats: MemoryStats,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    addresses: u32,
    is_closed: bool,
}

struct Opened {
    process: ProcessEntity,
    look: Look,
    was_used: bool,
}

impl fmt::Debug for LiveMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LiveMemory { reach, period, stats, .. } = self;
        f.debug_struct("LiveMemory")
            .field("reach", reach)
            .field("period", period)
            .field("opened", &self.opened.len())
            .field("stats", stats)
            .finish_non_exhaustive()
    }
}

impl LiveMemory {
    /// Reads memory of processes that `open` opens.
    pub fn new(open: Open, reach: Reach) -> LiveMemory {
        LiveMemory {
            open,
            reach,
            period: i64::MIN,
            answers: HashMap::default(),
            processes: HashMap::default(),
            opened: Vec::new(),
            stats: MemoryStats::default(),
        }
    }

    /// Reads memory of the processes of this machine; `None` if it does not run Windows. Enables
    /// the debug privilege, which allows opening the processes of other users and the system, if
    /// this process holds it.
    pub fn of_this_machine(reach: Reach) -> Option<LiveMemory> {
        #[cfg(all(windows, feature = "windows"))]
        return Some(LiveMemory::new(system::opener(), reach));
        #[cfg(not(all(windows, feature = "windows")))]
        {
            let _ = reach;
            None
        }
    }

    /// Statistics of memory look-ups.
    pub fn stats(&self) -> MemoryStats {
        self.stats
    }

    /// The period that contains a time. All answers of a period are the same.
    pub(super) fn period(at: FileTime) -> i64 {
        at.0.div_euclid(PERIOD)
    }

    /// Reads the memory at the frames of an event's stack into `live`, one entry per frame.
    pub(super) fn read(
        &mut self,
        process: ProcessEntity,
        at: FileTime,
        frames: &[Frame],
        live: &mut Vec<LiveFrame>,
    ) {
        self.start_period(LiveMemory::period(at));
        live.clear();
        let mut is_top = true;
        for frame in frames {
            let mut read = LiveFrame::default();
            if frame.mode == Mode::User {
                let is_wanted = match frame.code {
                    Code::Jit(_) => false,
                    Code::Unbacked => true,
                    Code::Image(..) | Code::Unknown => is_top || self.reach == Reach::Images,
                };
                is_top = false;
                if let Some(address) = frame.address.filter(|_| is_wanted)
                    && let Answer::Found { memory, bytes } = self.answer(process, at, address.0)
                    && self.is_unchanged(frame, memory)
                {
                    read = LiveFrame { memory, bytes };
                }
            }
            live.push(read);
        }
    }

    /// Starts a new period. Late events use the answers of the current period.
    fn start_period(&mut self, period: i64) {
        if period <= self.period {
            return;
        }
        self.period = period;
        self.answers.clear();
        self.processes.clear();
        self.opened.retain_mut(|opened| std::mem::take(&mut opened.was_used));
    }

    fn answer(&mut self, process: ProcessEntity, at: FileTime, address: u64) -> Answer {
        let is_full = self.answers.len() >= ADDRESSES_MAX;
        let entry = match self.answers.entry((process, address)) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(entry) => entry,
        };
        // Bounded by the number of addresses.
        let tally = self.processes.entry(process).or_default();
        if tally.is_closed {
            return Answer::Gone;
        }
        if is_full || tally.addresses >= ADDRESSES_PER_PROCESS_MAX {
            self.stats.beyond_limits += 1;
            return Answer::Nothing;
        }
        tally.addresses += 1;
        let answer = match opened(&mut self.opened, &mut self.open, process, at) {
            Some(opened) => {
                self.stats.lookups += 1;
                (opened.look)(address)
            }
            None => Answer::Gone,
        };
        match answer {
            Answer::Found { .. } => self.stats.found += 1,
            Answer::Nothing => {}
            Answer::Gone => {
                self.stats.closed += 1;
                tally.is_closed = true;
                self.opened.retain(|opened| opened.process != process);
            }
        }
        *entry.insert(answer)
    }

    /// The trace reports memory at the time of the event. Memory of another kind was allocated
    /// later and is not evidence.
    fn is_unchanged(&mut self, frame: &Frame, memory: Memory) -> bool {
        let then = MemoryKind::of(frame.region.kind);
        let is_same = then.is_none() || memory.kind.is_none() || then == memory.kind;
        self.stats.changed += u64::from(!is_same);
        is_same
    }
}

/// A process, opened if necessary. The least recently used one is closed at the limit.
fn opened<'o>(
    all: &'o mut Vec<Opened>,
    open: &mut Open,
    process: ProcessEntity,
    at: FileTime,
) -> Option<&'o mut Opened> {
    let known = match all.iter().rposition(|opened| opened.process == process) {
        Some(index) => all.remove(index),
        None => {
            if all.len() >= OPEN_MAX {
                all.remove(0);
            }
            Opened { process, look: open(process.pid, at)?, was_used: true }
        }
    };
    all.push(Opened { was_used: true, ..known });
    all.last_mut()
}
