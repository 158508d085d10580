//! The critical path of a thread: at each time, the thread that worked on its behalf.
//!
//! The path follows the thread back in time. A wait that another thread ended is replaced with what
//! that thread did in the same time, and so on for its waits. What is left is what ran, was ready to
//! run, waited for no thread, or is not known. The parts of the path follow each other without gaps
//! and overlaps, from the start to the end.
//!
//! What a thread did before it worked for the waiting one counts as well: a thread of a pool that
//! ended a wait may have worked for others before.
//!
//! This module knows no events. It costs one binary search for each followed wait and steps back
//! through the parts of lives; the number of steps is limited.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stackhound_profile::StackId;
use stackhound_trace::TraceTime;

use crate::labels::Label;

/// How many waits are followed from one to the next.
pub const DEPTH_MAX: usize = 64;

/// How many parts of lives a path visits. What is before that is not followed.
pub const STEPS_MAX: usize = 1_000_000;

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End<T> {
    /// A thread made the waiting one ready.
    Thread(T),
    /// The thread that ran on the processor is not known.
    UnknownThread,
    /// An idle processor did it.
    Idle,
    /// A deferred procedure call: the end of a transfer of a disk that the thread had requested, with
    /// the file.
    Disk(Label),
    /// A timer.
    Timer,
    /// Another deferred procedure call.
    Dpc,
    /// No event says who ended it: it contains time in which the thread was ready.
    NoEvent,
    /// It does not end within the trace.
    StillOpen,
}

/// What a thread did in a part of its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State<T> {
    /// It ran.
    Running,
    /// It was ready to run.
    Ready {
        /// Whether it was preempted while it ran.
        is_preempted: bool,
    },
    /// It waited, with this reason (`KWAIT_REASON`).
    Waiting(u8, End<T>),
    /// Records are missing, or contradict each other.
    Unknown,
}

/// A part of the life of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile<T> {
    /// The thread.
    pub thread: T,
    /// Start.
    pub from: TraceTime,
    /// End.
    pub until: TraceTime,
    /// What it did.
    pub state: State<T>,
    /// Where it waited or was interrupted.
    pub stack: Option<StackId>,
    /// The stack that made it ready, if it waited.
    pub ready_stack: Option<StackId>,
}

/// Why it is not known what a thread did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Gap {
    /// The thread was started later.
    NotStarted,
    /// No switch says it: it is before the first one of the thread, or after the last one.
    NotObserved,
    /// Records are missing, or contradict each other.
    Lost,
    /// It is too long before the end of the analyzed time, so that it was not kept.
    NotKept,
    /// The path has too many steps.
    TooLong,
}

/// Why a path does not follow a wait that a thread ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stop {
    /// The thread ended its own wait, such as in an asynchronous procedure call.
    Itself,
    /// The other thread waits for this one: events are missing, or contradict each other.
    Repeats,
    /// Too many waits have been followed.
    TooDeep,
}

/// What a thread did in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Did<T> {
    /// It ran.
    Ran,
    /// It was ready to run.
    WasReady {
        /// Whether it was preempted while it ran.
        is_preempted: bool,
    },
    /// It waited, and it is not known which thread worked in this time.
    Waited {
        /// The reason (`KWAIT_REASON`).
        reason: u8,
        /// Why it ended.
        end: End<T>,
        /// Why it is not followed, if a thread ended it.
        stop: Option<Stop>,
    },
    /// Not known.
    Unknown(Gap),
}

/// A part of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<T> {
    /// The thread.
    pub thread: T,
    /// Start.
    pub from: TraceTime,
    /// End.
    pub until: TraceTime,
    /// What it did.
    pub did: Did<T>,
    /// Where it waited or was interrupted.
    pub stack: Option<StackId>,
    /// The stack that made it ready, if it waited.
    pub ready_stack: Option<StackId>,
    /// The innermost of the followed waits that the segment is part of: an index of [`Path::waits`].
    pub wait: Option<usize>,
}

/// A wait that is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait<T> {
    /// The thread that waited.
    pub thread: T,
    /// Start, not before the start of the path and of the wait that it is part of.
    pub from: TraceTime,
    /// End.
    pub until: TraceTime,
    /// The reason (`KWAIT_REASON`).
    pub reason: u8,
    /// The thread that ended it.
    pub by: T,
    /// Where it waited.
    pub stack: Option<StackId>,
    /// Where the other thread ended it.
    pub ready_stack: Option<StackId>,
    /// The wait that it is part of: an index of [`Path::waits`].
    pub within: Option<usize>,
    /// How many waits it is part of.
    pub depth: usize,
}

/// The critical path of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path<T> {
    /// Its parts, in the order of time.
    pub segments: Vec<Segment<T>>,
    /// The waits that were followed.
    pub waits: Vec<Wait<T>>,
}

/// What threads did.
#[derive(Debug, Default)]
pub struct Lives<T> {
    /// By thread and time, without overlaps.
    tiles: Vec<Tile<T>>,
    of: FxHashMap<T, Range<usize>>,
    /// When threads were started, of those whose start was observed.
    started: FxHashMap<T, TraceTime>,
    /// Before this time, not everything was kept.
    kept_since: TraceTime,
}

impl<T: Copy + Ord + std::hash::Hash> Lives<T> {
    /// From parts in any order. Where those of a thread overlap, they contradict each other, and none
    /// of them counts. Before `kept_since`, parts may be missing.
    pub fn new(mut tiles: Vec<Tile<T>>, started: FxHashMap<T, TraceTime>, kept_since: TraceTime) -> Lives<T> {
        tiles.sort_unstable_by_key(|tile| (tile.thread, tile.from, tile.until));
        // The tiles before `kept` have no overlaps.
        let (mut kept, mut covered): (usize, Option<(T, TraceTime)>) = (0, None);
        for index in 0..tiles.len() {
            let mut tile = tiles[index];
            let end = covered.filter(|(thread, _)| *thread == tile.thread).map(|(_, end)| end);
            covered = Some((tile.thread, end.map_or(tile.until, |end| end.max(tile.until))));
            if let Some(end) = end.filter(|end| *end > tile.from) {
                if let Some(before) = tiles[..kept].last_mut().filter(|before| before.thread == tile.thread) {
                    before.until = before.until.min(tile.from);
                }
                tile.from = end;
            }
            if tile.from < tile.until {
                tiles[kept] = tile;
                kept += 1;
            }
        }
        tiles.truncate(kept);
        tiles.retain(|tile| tile.from < tile.until);
        let mut of: FxHashMap<T, Range<usize>> = FxHashMap::default();
        for (index, tile) in tiles.iter().enumerate() {
            of.entry(tile.thread).or_insert(index..index).end = index + 1;
        }
        Lives { tiles, of, started, kept_since }
    }

    /// What a thread did, in the order of time.
    pub fn of(&self, thread: T) -> &[Tile<T>] {
        self.of.get(&thread).map_or(&[], |range| &self.tiles[range.clone()])
    }

    /// When a thread was started, if its start was observed.
    pub fn started(&self, thread: T) -> Option<TraceTime> {
        self.started.get(&thread).copied()
    }

    /// What a thread did just before a time, and since when.
    fn before(&self, thread: T, time: TraceTime) -> Result<&Tile<T>, (TraceTime, Gap)> {
        let tiles = self.of(thread);
        let next = tiles.partition_point(|tile| tile.from < time);
        let previous = next.checked_sub(1).map(|index| &tiles[index]);
        if let Some(tile) = previous.filter(|tile| tile.until >= time) {
            return Ok(tile);
        }
        let started = self.started(thread);
        let gap = match () {
            () if started.is_some_and(|started| time <= started) => Gap::NotStarted,
            () if time <= self.kept_since => Gap::NotKept,
            () if previous.is_some() && next < tiles.len() => Gap::Lost,
            () => Gap::NotObserved,
        };
        let bounds = [previous.map(|tile| tile.until), started, Some(self.kept_since)];
        let since = bounds.into_iter().flatten().filter(|bound| *bound < time).max();
        Err((since.unwrap_or(TraceTime(i64::MIN)), gap))
    }

    /// The critical path of a thread between two times.
    pub fn path(&self, thread: T, from: TraceTime, until: TraceTime) -> Path<T> {
        self.path_with(thread, (from, until), STEPS_MAX)
    }

    fn path_with(&self, thread: T, (from, until): (TraceTime, TraceTime), steps_max: usize) -> Path<T> {
        let mut path = Path { segments: Vec::new(), waits: Vec::new() };
        // Innermost last. Each thread works while the one before it waits.
        let mut levels = vec![Level { thread, from, until, wait: None }];
        let mut steps = 0;
        while let Some(level) = levels.last_mut() {
            if level.from >= level.until {
                levels.pop();
                continue;
            }
            let Level { thread, until, wait, .. } = *level;
            steps += 1;
            let (since, did, stack, ready_stack) = if steps > steps_max {
                (level.from, Did::Unknown(Gap::TooLong), None, None)
            } else {
                match self.before(thread, until) {
                    Err((since, gap)) => (since, Did::Unknown(gap), None, None),
                    Ok(tile) => (tile.from, did(tile), tile.stack, tile.ready_stack),
                }
            };
            let from = since.max(level.from);
            level.until = from;
            let segment = Segment { thread, from, until, did, stack, ready_stack, wait };
            let Did::Waited { reason, end: End::Thread(by), .. } = did else {
                path.segments.push(segment);
                continue;
            };
            let stop = match () {
                () if by == thread => Some(Stop::Itself),
                () if levels.iter().any(|level| level.thread == by) => Some(Stop::Repeats),
                () if levels.len() > DEPTH_MAX => Some(Stop::TooDeep),
                () => None,
            };
            if stop.is_some() {
                let did = Did::Waited { reason, end: End::Thread(by), stop };
                path.segments.push(Segment { did, ..segment });
                continue;
            }
            let depth = levels.len() - 1;
            path.waits.push(Wait {
                thread,
                from,
                until,
                reason,
                by,
                stack,
                ready_stack,
                within: wait,
                depth,
            });
            levels.push(Level { thread: by, from, until, wait: Some(path.waits.len() - 1) });
        }
        path.segments.reverse();
        path
    }
}

/// A thread whose life is followed back between two times.
#[derive(Clone, Copy, Debug)]
struct Level<T> {
    thread: T,
    from: TraceTime,
    /// Moves back.
    until: TraceTime,
    wait: Option<usize>,
}

fn did<T: Copy>(tile: &Tile<T>) -> Did<T> {
    match tile.state {
        State::Running => Did::Ran,
        State::Ready { is_preempted } => Did::WasReady { is_preempted },
        State::Waiting(reason, end) => Did::Waited { reason, end, stop: None },
        State::Unknown => Did::Unknown(Gap::Lost),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEPT: TraceTime = TraceTime(i64::MIN);

    /// A name, what threads did, when threads were started, and the path.
    type Case<'c> = (&'c str, &'c [Tile<u32>], &'c [(u32, i64)], &'c [&'c str]);

    fn tile(thread: u32, from: i64, until: i64, state: State<u32>) -> Tile<u32> {
        let (from, until) = (TraceTime(from), TraceTime(until));
        Tile { thread, from, until, state, stack: None, ready_stack: None }
    }

    fn ran(thread: u32, from: i64, until: i64) -> Tile<u32> {
        tile(thread, from, until, State::Running)
    }

    fn waited(thread: u32, from: i64, until: i64, end: End<u32>) -> Tile<u32> {
        tile(thread, from, until, State::Waiting(6, end))
    }

    fn shown(path: &Path<u32>) -> Vec<String> {
        let show = |segment: &Segment<u32>| {
            let did = match segment.did {
                Did::Ran => "ran".to_owned(),
                Did::WasReady { is_preempted: true } => "preempted".to_owned(),
                Did::WasReady { is_preempted: false } => "ready".to_owned(),
                Did::Waited { end, stop: None, .. } => format!("{end:?}"),
                Did::Waited { stop: Some(stop), .. } => format!("{stop:?}"),
                Did::Unknown(gap) => format!("{gap:?}"),
            };
            let depth = segment.wait.map_or(0, |wait| path.waits[wait].depth + 1);
            format!("{depth} {} {did} {}..{}", segment.thread, segment.from.0, segment.until.0)
        };
        path.segments.iter().map(show).collect()
    }

    fn path(tiles: &[Tile<u32>], started: &[(u32, i64)], kept_since: TraceTime) -> Vec<String> {
        let started = started.iter().map(|(thread, time)| (*thread, TraceTime(*time))).collect();
        let lives = Lives::new(tiles.to_vec(), started, kept_since);
        shown(&lives.path(1, TraceTime(0), TraceTime(100)))
    }

    #[test]
    fn a_path_names_who_worked() {
        let by = End::Thread;
        let rows: &[Case<'_>] = &[
            (
                "a chain of two locks: the last thread works",
                &[
                    ran(1, 0, 10),
                    waited(1, 10, 90, by(2)),
                    ran(1, 90, 100),
                    ran(2, 0, 15),
                    waited(2, 15, 80, by(3)),
                    ran(2, 80, 95),
                    ran(3, 0, 85),
                ],
                &[],
                &["0 1 ran 0..10", "1 2 ran 10..15", "2 3 ran 15..80", "1 2 ran 80..90", "0 1 ran 90..100"],
            ),
            (
                "a sleep, a transfer, a preemption and time in the queue of a processor",
                &[
                    waited(1, 0, 30, End::Timer),
                    tile(1, 30, 35, State::Ready { is_preempted: false }),
                    ran(1, 35, 40),
                    tile(1, 40, 50, State::Ready { is_preempted: true }),
                    ran(1, 50, 60),
                    waited(1, 60, 100, End::Disk(Label(0))),
                ],
                &[],
                &[
                    "0 1 Timer 0..30",
                    "0 1 ready 30..35",
                    "0 1 ran 35..40",
                    "0 1 preempted 40..50",
                    "0 1 ran 50..60",
                    "0 1 Disk(Label(0)) 60..100",
                ],
            ),
            (
                "two threads that each waited for the other one in the same time",
                &[waited(1, 0, 100, by(2)), waited(2, 10, 90, by(1)), ran(2, 90, 110)],
                &[],
                &["1 2 NotObserved 0..10", "1 2 Repeats 10..90", "1 2 ran 90..100"],
            ),
            (
                "a thread that ends its own wait",
                &[waited(1, 0, 50, by(1)), ran(1, 50, 100)],
                &[],
                &["0 1 Itself 0..50", "0 1 ran 50..100"],
            ),
            (
                "a thread that was started in the wait, and lost records",
                &[waited(1, 0, 60, by(2)), ran(2, 30, 70), tile(1, 60, 80, State::Unknown), ran(1, 85, 100)],
                &[(2, 25)],
                &[
                    "1 2 NotStarted 0..25",
                    "1 2 NotObserved 25..30",
                    "1 2 ran 30..60",
                    "0 1 Lost 60..80",
                    "0 1 Lost 80..85",
                    "0 1 ran 85..100",
                ],
            ),
            (
                "parts that contradict each other",
                &[ran(1, 0, 60), waited(1, 40, 70, End::Timer), ran(1, 70, 100)],
                &[],
                &["0 1 ran 0..40", "0 1 Lost 40..60", "0 1 Timer 60..70", "0 1 ran 70..100"],
            ),
        ];
        for (name, tiles, started, expected) in rows {
            assert_eq!(path(tiles, started, KEPT), *expected, "{name}");
        }
        let not_kept = path(&[ran(1, 30, 100)], &[], TraceTime(20));
        assert_eq!(not_kept, ["0 1 NotKept 0..20", "0 1 NotObserved 20..30", "0 1 ran 30..100"]);
    }

    #[test]
    fn long_chains_and_many_steps_have_limits() {
        // Each thread waits for the next one.
        let count = DEPTH_MAX as u32 + 10;
        let chain: Vec<_> =
            (1..count).map(|thread| waited(thread, 0, 100, End::Thread(thread + 1))).collect();
        let found = path(&chain, &[], KEPT);
        assert_eq!(found, [format!("{DEPTH_MAX} {} TooDeep 0..100", DEPTH_MAX + 1)]);
        // Two threads wake each other by turns.
        let turns = |thread: u32| {
            (0..50).flat_map(move |turn| {
                let from = 2 * turn + i64::from(thread) - 1;
                [ran(thread, from, from + 1), waited(thread, from + 1, from + 2, End::Thread(3 - thread))]
            })
        };
        let lives = Lives::new(turns(1).chain(turns(2)).collect(), FxHashMap::default(), KEPT);
        let whole = lives.path(1, TraceTime(0), TraceTime(100));
        assert_eq!((whole.segments.len(), whole.waits.len()), (100, 50));
        assert!(
            whole
                .segments
                .iter()
                .all(|segment| segment.did == Did::Ran && segment.from.0 + 1 == segment.until.0)
        );
        let cut = lives.path_with(1, (TraceTime(0), TraceTime(100)), 10);
        let first = cut.segments[0];
        assert_eq!((first.from.0, first.did), (0, Did::Unknown(Gap::TooLong)));
        assert_eq!(cut.segments.iter().map(|segment| segment.until.0 - segment.from.0).sum::<i64>(), 100);
    }

    /// What is found at one time, by following the definition from wait to wait.
    fn at(tiles: &[Tile<u32>], thread: u32, time: i64, above: &[u32]) -> (u32, Option<Did<u32>>) {
        let covers = |tile: &&Tile<u32>| tile.thread == thread && tile.from.0 <= time && time < tile.until.0;
        let all: Vec<_> = tiles.iter().filter(covers).collect();
        let [tile] = all[..] else { return (thread, None) };
        let chain = [above, &[thread]].concat();
        let State::Waiting(reason, end @ End::Thread(by)) = tile.state else {
            return (thread, Some(did(tile)).filter(|did| !matches!(did, Did::Unknown(_))));
        };
        let stop = match () {
            () if by == thread => Stop::Itself,
            () if chain.contains(&by) => Stop::Repeats,
            () if chain.len() > DEPTH_MAX => Stop::TooDeep,
            () => return at(tiles, by, time, &chain),
        };
        (thread, Some(Did::Waited { reason, end, stop: Some(stop) }))
    }

    proptest! {
        /// Random lives of five threads, with gaps, and with overlaps if `step` can be negative.
        #[test]
        fn a_path_has_each_time_once_and_its_worker(
            parts in prop::collection::vec((1..6_u32, -3..4_i64, 1..20_i64, 0..9_u8, 1..7_u32), 0..80),
            overlap in any::<bool>(),
            (from, length) in (0..40_i64, 0..150_i64),
        ) {
            let mut ends = [0; 6];
            let tiles: Vec<_> = parts.iter().map(|&(thread, step, length, kind, by)| {
                let end = &mut ends[thread as usize];
                let from = *end + if overlap { step } else { step.max(0) };
                *end = from + length;
                let state = match kind {
                    0 | 1 => State::Running,
                    2 => State::Ready { is_preempted: by > 3 },
                    3 => State::Waiting(kind, End::Timer),
                    4 => State::Unknown,
                    _ => State::Waiting(kind, End::Thread(by)),
                };
                tile(thread, from, from + length, state)
            }).collect();
            let lives = Lives::new(tiles.clone(), FxHashMap::default(), KEPT);
            let (start, end) = (TraceTime(from), TraceTime(from + length));
            let path = lives.path(1, start, end);
            // Each time belongs to one segment.
            let mut last = start;
            for segment in &path.segments {
                prop_assert!(segment.from == last && segment.from < segment.until);
                last = segment.until;
            }
            prop_assert_eq!(last, end);
            for wait in &path.waits {
                let outer = wait.within.map_or((start, end), |wait| (path.waits[wait].from, path.waits[wait].until));
                prop_assert!(outer.0 <= wait.from && wait.until <= outer.1);
            }
            for segment in &path.segments {
                for time in segment.from.0..segment.until.0 {
                    let (thread, expected) = at(&tiles, 1, time, &[]);
                    match segment.did {
                        Did::Unknown(_) if overlap => {}
                        Did::Unknown(_) => prop_assert_eq!((segment.thread, None), (thread, expected)),
                        did => prop_assert_eq!((segment.thread, Some(did)), (thread, expected), "{}", time),
                    }
                }
            }
        }
    }
}
