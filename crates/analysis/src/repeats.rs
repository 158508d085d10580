//! Events that several sessions recorded. Each counts once.

use std::collections::VecDeque;
use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};
use stackhound_etl::Clock;
use stackhound_pipeline::EventView;
use stackhound_trace::{OpenTrace, TraceTime};

/// Number of the last events of a processor among which the same event of another session is found.
const RECENT_MAX: usize = 32;

/// Recognizes events that another session recorded too: with the same thread and payload, on the same
/// processor, within 100 ms.
#[derive(Debug)]
pub struct Repeats {
    clock: Clock,
    /// By processor: events that no other session recorded so far. `None` if there is one session.
    recent: Option<FxHashMap<Option<u16>, VecDeque<Recent>>>,
}

/// An event that another session can also have recorded.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// Of its kind, thread and payload.
    hash: u64,
    session: u32,
    time: TraceTime,
}

impl Repeats {
    /// For the sessions of a trace.
    pub fn of(trace: &OpenTrace) -> Repeats {
        let recent = (trace.time_bases().len() > 1).then(FxHashMap::default);
        Repeats { clock: trace.clock(), recent }
    }

    /// Whether another session recorded the same event. Must be called once for each event that a
    /// measurement uses. Costs nothing if the trace has one session.
    pub fn has(&mut self, view: &EventView<'_>) -> bool {
        let Some(recent) = &mut self.recent else { return false };
        let (event, now) = (view.event(), view.time());
        let mut hasher = FxHasher::default();
        hasher.write_u16(view.kernel_id().unwrap_or(view.id()));
        hasher.write_u32(event.header_tid().map_or(0, |tid| tid.0));
        hasher.write(event.payload());
        let (hash, session) = (hasher.finish(), event.session_number());
        let recent = recent.entry(view.processor()).or_default();
        let oldest = now.0.saturating_sub_unsigned(self.clock.ticks_per_second() / 10);
        let same = recent
            .iter()
            .position(|known| known.hash == hash && known.session != session && known.time.0 >= oldest);
        if let Some(same) = same {
            recent.remove(same);
            return true;
        }
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(Recent { hash, session, time: now });
        false
    }
}
