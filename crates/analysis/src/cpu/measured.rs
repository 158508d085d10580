//! The time in which processors were measured: in which sessions with samples or context switches ran.
//!
//! Other sessions of a trace can run longer. PerfView, for example, records the names of methods for
//! seconds after the session with samples has ended.
//!
//! A session with samples ran from the record that Windows logs when it starts it to the one when it
//! stops it (`PerfInfo/SampledProfileIntervalCollectionStart` and `…End`), and at least from the time for
//! which the first sample of a processor stands to the last sample of one: the records can be missing, and
//! the timer does not start and stop with them. A session with context switches ran from its first record
//! to its last kernel event, which include the lists of processes and threads at its end.

use stackhound_schema::kernel::hook_id;
use stackhound_trace::TraceTime;

use crate::window::Window;

/// The times of a session.
#[derive(Clone, Copy, Debug)]
struct Session {
    /// Of the first record, and of the last kernel event.
    records: (TraceTime, TraceTime),
    /// Of the records about its start and its end.
    start: Option<TraceTime>,
    end: Option<TraceTime>,
    last_sample: Option<TraceTime>,
    has_switches: bool,
}

/// The times of all sessions, by their number.
#[derive(Debug, Default)]
pub struct Measured {
    sessions: Vec<Option<Session>>,
}

impl Measured {
    /// Observes a record of a session.
    #[inline]
    pub fn record(&mut self, session: u32, hook_id: Option<u16>, now: TraceTime) {
        let session = self.session(session, now);
        let Some(hook_id) = hook_id else { return };
        session.records.1 = now;
        match hook_id {
            hook_id::PERF_INFO_SAMPLED_PROFILE | hook_id::PERF_INFO_SAMPLED_PROFILE_NMI => {
                session.last_sample = Some(now);
            }
            hook_id::THREAD_C_SWITCH => session.has_switches = true,
            hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START => {
                session.start.get_or_insert(now);
            }
            hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_END => session.end = Some(now),
            _ => {}
        }
    }

    fn session(&mut self, number: u32, now: TraceTime) -> &mut Session {
        let number = number as usize;
        if self.sessions.len() <= number {
            self.sessions.resize(number + 1, None);
        }
        self.sessions[number].get_or_insert(Session {
            records: (now, now),
            start: None,
            end: None,
            last_sample: None,
            has_switches: false,
        })
    }

    /// The measured times within a window, in order and without overlaps. `sampled_since` returns the
    /// time from which the first sample of a session stands.
    pub fn times(
        &self,
        window: Window,
        sampled_since: impl Fn(u32) -> Option<TraceTime>,
    ) -> Vec<(TraceTime, TraceTime)> {
        let mut times: Vec<(TraceTime, TraceTime)> = Vec::new();
        for (number, session) in (0..).zip(&self.sessions) {
            let Some(session) = session else { continue };
            if let (Some(since), Some(last)) = (sampled_since(number), session.last_sample) {
                let from = session.start.map_or(since, |start| start.min(since));
                times.push((from, session.end.map_or(last, |end| end.max(last))));
            }
            times.extend(session.has_switches.then_some(session.records));
        }
        times.iter_mut().for_each(|time| *time = window.within(*time));
        times.retain(|(from, until)| from < until);
        times.sort_unstable();
        times.dedup_by(|next, before| {
            let is_overlap = next.0 <= before.1;
            if is_overlap {
                before.1 = before.1.max(next.1);
            }
            is_overlap
        });
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What sessions recorded: `[` and `]` are records of the start and the end, `s` is a sample, `c` a
    /// context switch, `k` another kernel event, `-` the event of a provider. Each is one tick, and a
    /// sample stands for two of them.
    fn times(sessions: &[&str], window: Window) -> Vec<(i64, i64)> {
        let mut measured = Measured::default();
        let mut since = Vec::new();
        for (number, records) in (0..).zip(sessions) {
            for (at, record) in (0..).zip(records.chars()).filter(|(_, record)| *record != ' ') {
                let hook_id = match record {
                    '[' => Some(hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START),
                    ']' => Some(hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_END),
                    's' => Some(hook_id::PERF_INFO_SAMPLED_PROFILE),
                    'c' => Some(hook_id::THREAD_C_SWITCH),
                    'k' => Some(hook_id::THREAD_DC_END),
                    _ => None,
                };
                measured.record(number, hook_id, TraceTime(at));
            }
            since.push(records.find('s').map(|at| TraceTime(at as i64 - 2)));
        }
        let times = measured.times(window, |number| since[number as usize]);
        times.into_iter().map(|(from, until)| (from.0, until.0)).collect()
    }

    #[test]
    fn the_session_with_samples_or_switches_counts() {
        let all = Window::default();
        let part = Window { from: Some(TraceTime(4)), to: Some(TraceTime(8)) };
        for (sessions, window, expected) in [
            // Records of its start and end, and none of them.
            (&["-[---s-s-]----"][..], all, &[(1, 9)][..]),
            (&["----s-s-s-----"], all, &[(2, 8)]),
            (&["-[--s-s-s-----"], all, &[(1, 8)]),
            (&["----s-s-s-]---"], all, &[(2, 10)]),
            // The last sample can follow the record of the end.
            (&["-[--s-s-s-]s--"], all, &[(1, 11)]),
            // Switches, alone and with samples: up to the last kernel event.
            (&["--c-c-ck---"], all, &[(0, 7)]),
            (&["--c-s-c----"], all, &[(0, 6)]),
            (&["-[cs]k-----"], all, &[(0, 5)]),
            // Other kernel events measure nothing.
            (&["-[-kk---]--"], all, &[]),
            // Sessions at the same time count once, and the time between them does not count.
            (&["-[-s--]------", "    [--s-]---"], all, &[(1, 9)]),
            (&["-[-s-]-------", "       [-s-]-"], all, &[(1, 5), (7, 11)]),
            (&["-[---s-s-]----"], part, &[(4, 8)]),
            (&["-[-s-]--------"], part, &[(4, 5)]),
        ] {
            assert_eq!(times(sessions, window), expected, "{sessions:?}");
        }
    }
}
