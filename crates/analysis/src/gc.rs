//! Garbage collections of .NET processes, from events of Microsoft-Windows-DotNETRuntime.
//!
//! A pause is the time from the start of a suspension for a collection to the end of the restart,
//! both on the thread that suspends. Suspensions for other reasons, such as debuggers, do not count.
//! A collection in the background runs while the process does, and causes several pauses.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Sums;
use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

/// `GCStart`.
const START: u16 = 1;
/// `GCEnd`.
const END: u16 = 2;
/// `GCRestartEEEnd`.
const RESTARTED: u16 = 3;
/// `GCSuspendEEBegin`.
const SUSPEND: u16 = 9;

/// The reasons of suspensions for a collection: `GC` and `GCPrep`.
const FOR_COLLECTION: [u64; 2] = [1, 6];
/// The type of a collection in the background.
const BACKGROUND: u64 = 1;

/// Maximum number of processes, and of suspending threads. Beyond that, all are forgotten.
const KEPT_MAX: usize = 1 << 14;

/// A generation: 0, 1, or 2 and older.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Generation(u8);

impl Generation {
    /// The number, from 0 to 2.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What an event says about collections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A collection starts.
    Started(Generation),
    /// A collection ends that started then.
    Ended(Generation, TraceTime),
    /// A pause ends that started then. `None` if it belongs to no known collection.
    Paused(Option<Generation>, TraceTime),
    /// A collection ends whose start is not known.
    NotStarted,
    /// A restart whose suspension is not known.
    NotSuspended,
}

/// A collection that has started.
#[derive(Clone, Copy, Debug)]
struct Started {
    number: u64,
    generation: Generation,
    time: TraceTime,
    is_background: bool,
    is_over: bool,
}

/// Joins the events of collections and pauses.
#[derive(Clone, Debug, Default)]
pub struct Collections {
    /// By thread: since when, and whether for a collection.
    suspended: FxHashMap<(Pid, Tid), (TraceTime, bool)>,
    /// The last collection of a process, and the last one in the background.
    last: FxHashMap<Pid, [Option<Started>; 2]>,
}

impl Collections {
    /// Adds an event of the provider.
    pub fn observe(&mut self, view: &EventView<'_>) -> Option<Step> {
        let (pid, tid, now) = (view.pid()?, view.tid()?, view.time());
        let number = |name: &str| view.field(name).and_then(|(_, value)| value.as_u64());
        match view.id() {
            START => {
                let (count, depth) = (number("Count")?, number("Depth")?);
                if self.last.len() >= KEPT_MAX {
                    self.last.clear();
                }
                let last = self.last.entry(pid).or_default();
                // A second start of the same collection does not count.
                if last.iter().flatten().any(|known| known.number == count) {
                    return None;
                }
                let generation = Generation(depth.min(2) as u8);
                let is_background = number("Type") == Some(BACKGROUND);
                let started = Started { number: count, generation, time: now, is_background, is_over: false };
                last[usize::from(is_background)] = Some(started);
                Some(Step::Started(generation))
            }
            END => {
                let count = number("Count")?;
                let known = self.last.get_mut(&pid).into_iter().flatten().flatten();
                let Some(started) = known.into_iter().find(|known| known.number == count && !known.is_over)
                else {
                    return Some(Step::NotStarted);
                };
                started.is_over = true;
                Some(Step::Ended(started.generation, started.time))
            }
            SUSPEND => {
                if self.suspended.len() >= KEPT_MAX {
                    self.suspended.clear();
                }
                let is_for_collection =
                    number("Reason").is_some_and(|reason| FOR_COLLECTION.contains(&reason));
                self.suspended.insert((pid, tid), (now, is_for_collection));
                None
            }
            RESTARTED => match self.suspended.remove(&(pid, tid)) {
                Some((since, true)) => Some(Step::Paused(self.paused_for(pid, since), since)),
                Some((_, false)) => None,
                None => Some(Step::NotSuspended),
            },
            _ => None,
        }
    }

    /// The generation of the collection that started in a pause, or that runs in the background.
    fn paused_for(&self, pid: Pid, since: TraceTime) -> Option<Generation> {
        let known = self.last.get(&pid)?.iter().flatten();
        let in_pause = known.clone().filter(|known| known.time >= since).max_by_key(|known| known.time);
        let in_background = || known.clone().find(|known| known.is_background && !known.is_over);
        in_pause.or_else(in_background).map(|known| known.generation)
    }

    /// The number of pauses, and of the last collections of processes, that are not over.
    pub fn open(&self) -> (u64, u64) {
        let pauses = self.suspended.values().filter(|(_, is_for_collection)| *is_for_collection).count();
        let last = self.last.values().flatten().flatten();
        (pauses as u64, last.filter(|known| !known.is_over).count() as u64)
    }
}

/// The collections of all processes.
#[derive(Clone, Debug, Default)]
pub struct GarbageCollections {
    /// By generation.
    pub generations: [u64; 3],
    /// The pauses, in raw ticks.
    pub pauses: Sums,
    collections: Collections,
}

impl GarbageCollections {
    /// The number of collections.
    pub fn count(&self) -> u64 {
        self.generations.iter().sum()
    }

    /// Adds an event of the provider.
    pub fn observe(&mut self, view: &EventView<'_>) {
        match self.collections.observe(view) {
            Some(Step::Started(generation)) => self.generations[generation.index()] += 1,
            Some(Step::Paused(_, since)) => {
                self.pauses += Sums::one(u64::try_from(view.time().0.saturating_sub(since.0)).unwrap_or(0));
            }
            _ => {}
        }
    }
}
