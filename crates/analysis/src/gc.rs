//! Garbage collections of .NET processes, from events of Microsoft-Windows-DotNETRuntime.
//!
//! A pause is the time from the start of a suspension for a collection to the end of the restart,
//! both on the thread that suspends. Suspensions for other reasons, such as debuggers, do not count.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Sums;
use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

/// `GCStart`.
const START: u16 = 1;
/// `GCRestartEEEnd`.
const RESTARTED: u16 = 3;
/// `GCSuspendEEBegin`.
const SUSPEND: u16 = 9;

/// The reasons of suspensions for a collection: `GC` and `GCPrep`.
const FOR_COLLECTION: [u64; 2] = [1, 6];

/// Maximum number of processes, and of suspending threads. Beyond that, all are forgotten.
const KEPT_MAX: usize = 1 << 14;

/// The collections of all processes.
#[derive(Clone, Debug, Default)]
pub struct GarbageCollections {
    /// By generation: 0, 1, 2 and older.
    pub generations: [u64; 3],
    /// The pauses, in raw ticks.
    pub pauses: Sums,
    suspended: FxHashMap<(Pid, Tid), TraceTime>,
    /// The last number of a collection by process: a second start of the same one does not count.
    last: FxHashMap<Pid, u64>,
}

impl GarbageCollections {
    /// The number of collections.
    pub fn count(&self) -> u64 {
        self.generations.iter().sum()
    }

    /// Adds an event of the provider.
    pub fn observe(&mut self, view: &EventView<'_>) {
        let (Some(pid), Some(tid)) = (view.pid(), view.tid()) else { return };
        if self.suspended.len() >= KEPT_MAX {
            self.suspended.clear();
        }
        if self.last.len() >= KEPT_MAX {
            self.last.clear();
        }
        let number = |name: &str| view.field(name).and_then(|(_, value)| value.as_u64());
        match view.id() {
            START => {
                let (Some(count), Some(depth)) = (number("Count"), number("Depth")) else { return };
                if self.last.insert(pid, count) != Some(count) {
                    self.generations[depth.min(2) as usize] += 1;
                }
            }
            SUSPEND if number("Reason").is_some_and(|reason| FOR_COLLECTION.contains(&reason)) => {
                self.suspended.insert((pid, tid), view.time());
            }
            SUSPEND => {
                self.suspended.remove(&(pid, tid));
            }
            RESTARTED => {
                let Some(since) = self.suspended.remove(&(pid, tid)) else { return };
                self.pauses += Sums::one(u64::try_from(view.time().0.saturating_sub(since.0)).unwrap_or(0));
            }
            _ => {}
        }
    }
}
