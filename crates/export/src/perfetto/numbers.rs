//! Unique ids for processes and threads, which the format requires.

use rustc_hash::FxHashSet;

use stackhound_profile::Profile;
use stackhound_profile::{ProcessId, ThreadId};

/// First substitute id, for processes and threads without an id or with a reused one. Windows does
/// not assign ids this high.
const FIRST_OTHER: u32 = 1 << 30;

/// All ids. They fit into the signed fields of the format.
pub struct Numbers {
    pids: Vec<u32>,
    tids: Vec<u32>,
}

impl Numbers {
    pub fn of(profile: &Profile) -> Numbers {
        Numbers {
            pids: distinct(profile.processes().iter().map(|process| process.pid)),
            tids: distinct(profile.threads().iter().map(|thread| thread.tid)),
        }
    }

    pub fn pid(&self, process: ProcessId) -> u32 {
        self.pids[process.index()]
    }

    pub fn tid(&self, thread: ThreadId) -> u32 {
        self.tids[thread.index()]
    }
}

fn distinct(known: impl Iterator<Item = Option<u32>>) -> Vec<u32> {
    let mut taken = FxHashSet::default();
    let mut other = FIRST_OTHER;
    known
        .map(|number| match number.filter(|&number| number < FIRST_OTHER && taken.insert(number)) {
            Some(number) => number,
            None => {
                other = other.saturating_add(1).min(i32::MAX as u32);
                other
            }
        })
        .collect()
}
