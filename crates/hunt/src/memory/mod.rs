//! Evidence from the memory of processes that are still there: what the frames of live events lie in, and the bytes there.
//!
//! It is what was there when it was asked for, which is later than the event. So a process that has gone gives nothing, nor
//! does memory that was given back or serves something else by now: evidence is missing then, and nothing is denied. A page
//! that has become another one of the same kind is not noticed.
//!
//! For live sessions of this machine only: the processes of a recording are those of another time or machine, and so are
//! those of sessions that somebody replays. Work and memory are bounded, whatever events come; limits go by the time of
//! events, and what is beyond them is counted.
//!
//! Knows frames and processes; must not know what detections make of it, nor events.

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

/// What is found at an address is believed for so long, and limits are for such a span.
const PERIOD: i64 = 10 * TICKS_PER_SECOND;
/// Places that are asked for in a period, at most: about a tenth of a second of work, and 4 MB.
const PLACES_MAX: usize = 1 << 15;
/// Of one process, so that one with stacks of its own making does not blind us to others.
const PLACES_PER_PROCESS_MAX: u32 = 1 << 11;
/// Processes that are kept open, at most. Windows keeps what is left of a process that has ended for as long.
const OPEN_MAX: usize = 64;

/// What is at an address of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Memory.
    Found {
        /// What it is.
        memory: Memory,
        /// The bytes around the address, if all of them can be read.
        bytes: Option<SiteBytes>,
    },
    /// None, or Windows does not tell.
    Nothing,
    /// The process has gone.
    Gone,
}

/// Asks an open process. It is closed when this is dropped.
pub type Look = Box<dyn FnMut(u64) -> Answer + Send>;

/// Opens the process that had an id at a time, when something happened in it: one that was started later is another one.
/// `None` if it has gone or may not be asked.
pub type Open = Box<dyn FnMut(Pid, FileTime) -> Option<Look> + Send>;

/// Which user frames are looked at, beside those in no module and the innermost one of each stack. Never those that a
/// runtime facts of as compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// No others.
    Code,
    /// All others, too: of images that tells whether somebody wrote to them.
    Images,
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Places that were asked for.
    pub asked: u64,
    /// Of these, places where there was memory.
    pub found: u64,
    /// Frames whose memory had become something else since their event.
    pub changed: u64,
    /// How often a process could not be opened, or had gone when it was asked.
    pub closed: u64,
    /// Frames that were not looked at, since too many had been.
    pub beyond_limits: u64,
}

/// The memory of live processes.
pub struct LiveMemory {
    open: Open,
    reach: Reach,
    /// The period of which everything below is.
    moment: i64,
    answers: HashMap<(ProcessEntity, u64), Answer, foldhash::fast::RandomState>,
    processes: HashMap<ProcessEntity, Tally, foldhash::fast::RandomState>,
    /// The last one was used last. Outlives periods.
    opened: Vec<Opened>,
    stats: MemoryStats,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    locations: u32,
    is_closed: bool,
}

struct Opened {
    process: ProcessEntity,
    look: Look,
    was_used: bool,
}

impl fmt::Debug for LiveMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LiveMemory { reach, moment, stats, .. } = self;
        f.debug_struct("LiveMemory")
            .field("reach", reach)
            .field("moment", moment)
            .field("opened", &self.opened.len())
            .field("stats", stats)
            .finish_non_exhaustive()
    }
}

impl LiveMemory {
    /// Of processes that `open` opens.
    pub fn new(open: Open, reach: Reach) -> LiveMemory {
        LiveMemory {
            open,
            reach,
            moment: i64::MIN,
            answers: HashMap::default(),
            processes: HashMap::default(),
            opened: Vec::new(),
            stats: MemoryStats::default(),
        }
    }

    /// Of the processes of this machine; `None` where it is no Windows. Takes the privilege to open those of other users and
    /// of the system, if this process has it.
    pub fn of_this_machine(reach: Reach) -> Option<LiveMemory> {
        #[cfg(all(windows, feature = "windows"))]
        return Some(LiveMemory::new(system::opener(), reach));
        #[cfg(not(all(windows, feature = "windows")))]
        {
            let _ = reach;
            None
        }
    }

    /// What was counted.
    pub fn stats(&self) -> MemoryStats {
        self.stats
    }

    /// The period that a time is in: answers of one period are the same whenever they are asked for.
    pub(super) fn moment(at: FileTime) -> i64 {
        at.0.div_euclid(PERIOD)
    }

    /// What the memory of the frames of a stack is, of an event in a process at a time: one entry for each frame.
    pub(super) fn read(
        &mut self,
        process: ProcessEntity,
        at: FileTime,
        frames: &[Frame],
        live: &mut Vec<LiveFrame>,
    ) {
        self.turn_to(LiveMemory::moment(at));
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
                    && self.is_as_it_was(frame, memory)
                {
                    read = LiveFrame { memory, bytes };
                }
            }
            live.push(read);
        }
    }

    /// Trace time goes on; an event that is late finds what the newer ones found.
    fn turn_to(&mut self, moment: i64) {
        if moment <= self.moment {
            return;
        }
        self.moment = moment;
        self.answers.clear();
        self.processes.clear();
        self.opened.retain_mut(|opened| std::mem::take(&mut opened.was_used));
    }

    fn answer(&mut self, process: ProcessEntity, at: FileTime, address: u64) -> Answer {
        let is_full = self.answers.len() >= PLACES_MAX;
        let location = match self.answers.entry((process, address)) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(location) => location,
        };
        // As many as there are places, and no more.
        let tally = self.processes.entry(process).or_default();
        if tally.is_closed {
            return Answer::Gone;
        }
        if is_full || tally.locations >= PLACES_PER_PROCESS_MAX {
            self.stats.beyond_limits += 1;
            return Answer::Nothing;
        }
        tally.locations += 1;
        let answer = match opened(&mut self.opened, &mut self.open, process, at) {
            Some(opened) => {
                self.stats.asked += 1;
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
        *location.insert(answer)
    }

    /// What the trace says is of the time of the event. Memory of another kind has come later, and says nothing.
    fn is_as_it_was(&mut self, frame: &Frame, memory: Memory) -> bool {
        let then = MemoryKind::of(frame.region.kind);
        let is_same = then.is_none() || memory.kind.is_none() || then == memory.kind;
        self.stats.changed += u64::from(!is_same);
        is_same
    }
}

/// A process, opened if it is not open yet; the one that was used longest ago makes room.
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
