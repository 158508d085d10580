//! Garbage collections of .NET processes, from events of Microsoft-Windows-DotNETRuntime.
//!
//! A pause is the time from the start of a suspension for a collection to the end of the restart,
//! both on the thread that suspends. Suspensions for other reasons, such as debuggers, do not count.
//! A collection in the background runs while the process does, and causes several pauses.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Sums;
use stackhound_schema::event_id::dot_net_runtime::{
    GC_RESTART_EE_STOP, GC_START, GC_STOP, GC_SUSPEND_EE_START,
};
use stackhound_system::ProcessId;
use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

use crate::fields::number;
use crate::loss::is_lost;

/// The reasons of suspensions for a collection: `GC` and `GCPrep`.
const FOR_COLLECTION: [u64; 2] = [1, 6];
/// The type of a collection in the background.
const BACKGROUND: u64 = 1;

/// Maximum number of runtimes, and of suspending threads. Beyond that, all are forgotten.
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
    /// A beginning without its end, or an end without its beginning.
    Unpaired(Unpaired),
}

/// An event that belongs to another one, which is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unpaired {
    /// What it is, as a phrase in plural form.
    pub reason: &'static str,
    /// When it was.
    pub time: TraceTime,
    /// Whether it counts.
    pub is_wanted: bool,
}

/// A process with a runtime of .NET, of which it can have several.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Runtime {
    /// The number only if nothing else is known of the process.
    process: Result<ProcessId, Pid>,
    /// `ClrInstanceID`, which the first versions of events do not have.
    instance: u64,
}

/// A collection or a suspension that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    time: TraceTime,
    source: u16,
    is_wanted: bool,
}

impl Begun {
    fn unpaired(self, reason: &'static str) -> Unpaired {
        Unpaired { reason, time: self.time, is_wanted: self.is_wanted }
    }
}

/// A collection that has started.
#[derive(Clone, Copy, Debug)]
struct Started {
    number: u64,
    generation: Generation,
    begun: Begun,
    is_background: bool,
    is_over: bool,
}

/// Joins the events of collections and pauses.
#[derive(Clone, Debug, Default)]
pub struct Collections {
    /// By thread: since when, and whether for a collection.
    suspended: FxHashMap<(Runtime, Tid), (Begun, bool)>,
    /// The last collection of a runtime, and the last one in the background.
    last: FxHashMap<Runtime, [Option<Started>; 2]>,
}

impl Collections {
    /// Whether events of the provider with this id matter.
    pub fn reads(id: u16) -> bool {
        matches!(id, GC_START | GC_STOP | GC_SUSPEND_EE_START | GC_RESTART_EE_STOP)
    }

    /// Adds an event of the provider. `is_wanted` states whether what it describes counts.
    pub fn observe(&mut self, view: &EventView<'_>, is_wanted: bool) -> Option<Step> {
        let id = view.id();
        if !Collections::reads(id) {
            return None;
        }
        let (pid, tid, now) = (view.pid()?, view.tid()?, view.time());
        let number = |name| number(view, name);
        let known = view.trace_state().system().process_of_event(pid, now);
        let process = known.map(|process| process.id()).ok_or(pid);
        let runtime = Runtime { process, instance: number("ClrInstanceID").unwrap_or(0) };
        let begun = Begun { time: now, source: view.event().source(), is_wanted };
        let unpaired = |reason| Some(Step::Unpaired(begun.unpaired(reason)));
        // The other event can be another one if records are missing.
        let is_lost = |since: Begun| is_lost(view, since.source, since.time);
        match id {
            GC_START => {
                let (count, depth) = (number("Count")?, number("Depth")?);
                if self.last.len() >= KEPT_MAX {
                    self.last.clear();
                }
                let last = self.last.entry(runtime).or_default();
                // A second start of the same collection does not count.
                if last.iter().flatten().any(|known| known.number == count) {
                    return None;
                }
                let generation = Generation(depth.min(2) as u8);
                let is_background = number("Type") == Some(BACKGROUND);
                let started = Started { number: count, generation, begun, is_background, is_over: false };
                last[usize::from(is_background)] = Some(started);
                Some(Step::Started(generation))
            }
            GC_STOP => {
                let count = number("Count")?;
                let known = self.last.get_mut(&runtime).into_iter().flatten().flatten();
                let Some(started) = known.into_iter().find(|known| known.number == count && !known.is_over)
                else {
                    return unpaired("ends of collections without a known start");
                };
                // The number of the collection makes it certain.
                started.is_over = true;
                Some(Step::Ended(started.generation, started.begun.time))
            }
            GC_SUSPEND_EE_START => {
                if self.suspended.len() >= KEPT_MAX {
                    self.suspended.clear();
                }
                let is_for_collection =
                    number("Reason").is_some_and(|reason| FOR_COLLECTION.contains(&reason));
                match self.suspended.insert((runtime, tid), (begun, is_for_collection)) {
                    Some((replaced, true)) => {
                        Some(Step::Unpaired(replaced.unpaired("suspensions without a known restart")))
                    }
                    _ => None,
                }
            }
            _ => match self.suspended.remove(&(runtime, tid)) {
                Some((since, _)) if is_lost(since) => {
                    unpaired("restarts with lost records since the suspension")
                }
                Some((since, true)) => Some(Step::Paused(self.paused_for(runtime, since.time), since.time)),
                Some((_, false)) => None,
                None => unpaired("restarts without a known suspension"),
            },
        }
    }

    /// The generation of the collection that started in a pause, or that runs in the background.
    fn paused_for(&self, runtime: Runtime, since: TraceTime) -> Option<Generation> {
        let known = self.last.get(&runtime)?.iter().flatten();
        let time = |known: &&Started| known.begun.time;
        let in_pause = known.clone().filter(|known| time(known) >= since).max_by_key(time);
        let in_background = || known.clone().find(|known| known.is_background && !known.is_over);
        in_pause.or_else(in_background).map(|known| known.generation)
    }

    /// The pauses, and the last collections of runtimes, that are not over.
    pub fn open(&self) -> impl Iterator<Item = Unpaired> {
        let pauses = self.suspended.values().filter(|(_, is_for_collection)| *is_for_collection);
        let pauses = pauses.map(|(begun, _)| begun.unpaired("pauses that were not over at the end"));
        let last = self.last.values().flatten().flatten().filter(|known| !known.is_over);
        pauses.chain(last.map(|known| known.begun.unpaired("collections that were not over at the end")))
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
        match self.collections.observe(view, true) {
            Some(Step::Started(generation)) => self.generations[generation.index()] += 1,
            Some(Step::Paused(_, since)) => {
                self.pauses += Sums::one(view.time().ticks_since(since));
            }
            _ => {}
        }
    }
}
