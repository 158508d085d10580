//! Compares the order of events with a sort and with a simple merge.

use std::num::{NonZeroU32, NonZeroU64};

use proptest::prelude::*;
use stackhound_etl::write::{EtlWriter, Form, Session};
use stackhound_etl::{ClockKind, Damage, DamageReason, EtlFile, LogFileMode};
use stackhound_trace::{OpenTrace, Source, Stats};
use stackhound_types::{FileTime, RawTime};

use crate::trace_files::{HOOK_IDS, Logged, Making, events, open, selection};

/// One source to be made: its session, and per processor the ticks from each event to the next one.
#[derive(Clone, Debug)]
struct Plan {
    session: Session,
    steps: Vec<Vec<i64>>,
}

/// Sessions of every form that affects a merge. The buffers are small, so that streams have
/// several.
fn sessions() -> impl Strategy<Value = Session> {
    let form = prop_oneof![Just(Form::Live), Just(Form::Windows7), Just(Form::Merged)];
    (1..5u16, form, any::<bool>()).prop_map(|(processors, form, compressed)| Session {
        processors,
        form,
        windows_version: if form == Form::Windows7 { (6, 1) } else { (10, 0) },
        compressed,
        buffer_size: 1024,
        ..Session::default()
    })
}

fn plans(steps: std::ops::Range<i64>) -> impl Strategy<Value = Plan> {
    sessions().prop_flat_map(move |session| {
        let stream = prop::collection::vec(steps.clone(), 0..70);
        prop::collection::vec(stream, usize::from(session.processors))
            .prop_map(move |steps| Plan { session: session.clone(), steps })
    })
}

impl Plan {
    /// Writes the file. As in a real file, the order of processors does not follow the times.
    fn make(&self, source: u16) -> (Vec<u8>, Vec<Logged>) {
        let mut making = Making::new(source, self.session.clone());
        for (processor, steps) in self.steps.iter().enumerate() {
            let mut time = 0;
            for step in steps {
                time += step;
                making.log(processor as u16, time);
            }
        }
        making.finish()
    }
}

fn make_all(plans: &[Plan]) -> (Vec<Vec<u8>>, Vec<Logged>) {
    let made: Vec<_> = plans.iter().zip(0..).map(|(plan, source)| plan.make(source)).collect();
    let logged = made.iter().flat_map(|(_, logged)| logged.iter().copied()).collect();
    (made.into_iter().map(|(file, _)| file).collect(), logged)
}

/// Sorts by trace time, source, processor, and the order within the stream.
fn sorted(mut logged: Vec<Logged>, trace_time: impl Fn(&Logged) -> i64) -> Vec<Logged> {
    logged.sort_by_key(|event| (trace_time(event), event.source, event.processor, event.number));
    logged
}

/// Repeatedly takes the earliest of all streams' next events; for equal times, the first stream's.
fn merged(logged: &[Logged]) -> Vec<Logged> {
    let mut streams: Vec<Vec<Logged>> = Vec::new();
    let mut by_stream = logged.to_vec();
    by_stream.sort_by_key(|event| (event.source, event.processor, event.number));
    for events in by_stream.chunk_by(|a, b| (a.source, a.processor) == (b.source, b.processor)) {
        streams.push(events.iter().rev().copied().collect());
    }
    let mut merged = Vec::new();
    while let Some(next) = streams.iter_mut().filter(|s| !s.is_empty()).min_by_key(|s| s[s.len() - 1].time) {
        merged.extend(next.pop());
    }
    merged
}

proptest! {
    #[test]
    fn a_merge_is_a_stable_sort(plans in prop::collection::vec(plans(0..4), 1..4)) {
        let (files, logged) = make_all(&plans);
        let expected = sorted(logged, |event| event.time);
        let trace = open(&files, 1);
        let (found, stats) = events(trace.ordered());
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!((stats.events, stats.out_of_order), (expected.len() as u64, 0));
        prop_assert!(stats.damage.is_empty(), "{:?}", stats.damage);
        let buffers: usize = trace.indexes().iter().map(|index| index.buffers.len()).sum();
        prop_assert_eq!(stats.buffers, buffers as u64);
        prop_assert_eq!(events(trace.ordered()).0, expected, "a trace can be read again");
    }

    #[test]
    fn the_number_of_threads_changes_nothing(plans in prop::collection::vec(plans(0..4), 1..4)) {
        let (files, _) = make_all(&plans);
        let one = events(open(&files, 1).ordered());
        for threads in [2, 4] {
            prop_assert_eq!(&events(open(&files, threads).ordered()), &one, "{} threads", threads);
        }
    }

    /// Not all are read, and then the counters are those of the events that were.
    #[test]
    fn counters_do_not_depend_on_the_number_of_threads(
        plans in prop::collection::vec(plans(0..4), 1..4), damaged in 0..40_000usize, taken in 0..400usize,
    ) {
        let (mut files, _) = make_all(&plans);
        for file in &mut files {
            let start = file.len().min(1024 + damaged);
            let end = file.len().min(start + 64);
            file[start..end].fill(0xee);
        }
        let counters = |threads| {
            let trace = open(&files, threads);
            let (mut ordered, mut counters) = (trace.ordered(), Vec::new());
            for _ in 0..taken {
                let Some(time) = ordered.next().map(|event| event.time()) else { break };
                counters.push((time, ordered.stats().clone()));
            }
            (counters, ordered.into_stats())
        };
        prop_assert_eq!(counters(2), counters(1));
    }

    /// A second pass after a first one reads the same.
    #[test]
    fn a_survey_changes_nothing(
        plans in prop::collection::vec(plans(0..4), 1..4), hook_ids in hook_ids(), threads in 1..3usize,
    ) {
        let (files, _) = make_all(&plans);
        let expected = events(open(&files, 1).ordered());
        let trace = open(&files, threads);
        events(trace.selected(selection(&hook_ids)));
        prop_assert_eq!(&events(trace.ordered()), &expected);
        prop_assert_eq!(&events(trace.ordered()), &expected, "the third pass");
    }

    #[test]
    fn a_selection_is_a_filter(plans in prop::collection::vec(plans(0..4), 1..4), hook_ids in hook_ids()) {
        let (files, _) = make_all(&plans);
        let trace = open(&files, 1);
        let mut expected = events(trace.ordered()).0;
        expected.retain(|event| hook_ids.contains(&event.hook_id()));
        prop_assert_eq!(events(trace.selected(selection(&hook_ids))).0, expected);
    }

    /// Where the system clock was set back, streams are not sorted; only the next events of all are
    /// compared.
    #[test]
    fn disorder_within_a_stream_is_kept_and_counted(
        mut plans in prop::collection::vec(plans(-4..8), 1..4), hook_ids in hook_ids(),
    ) {
        for plan in &mut plans {
            plan.session.clock = ClockKind::SystemTime;
            plan.session.start = RawTime(plan.session.start_time.0);
        }
        let (files, logged) = make_all(&plans);
        let expected = merged(&logged);
        let trace = open(&files, 2);
        let (found, stats) = events(trace.ordered());
        prop_assert_eq!(&found, &expected);
        let backwards = expected.windows(2).filter(|pair| pair[1].time < pair[0].time).count();
        prop_assert_eq!(stats.out_of_order, backwards as u64);

        // A selection has the same events; between streams in disorder, their order depends on the
        // others.
        let mut selected = events(trace.selected(selection(&hook_ids))).0;
        let mut filtered = expected;
        filtered.retain(|event| hook_ids.contains(&event.hook_id()));
        selected.sort();
        filtered.sort();
        prop_assert_eq!(selected, filtered);
    }

    #[test]
    fn other_clocks_are_converted(
        first in plans(0..4), second in plans(0..400), frequency in 1_000..50_000_000u64, later in 0..100i64,
    ) {
        let mut second = second;
        second.session.perf_frequency = NonZeroU64::new(frequency).unwrap();
        second.session.start = RawTime(77);
        second.session.start_time.0 += later;
        let clocks = [first.session.clock(), second.session.clock()];
        let (files, logged) = make_all(&[first, second]);
        let trace_time = |event: &Logged| {
            let [to, from] = clocks;
            if event.source == 0 { event.time } else { to.to_raw(from.to_file_time(RawTime(event.time))).0 }
        };
        let expected = sorted(logged, trace_time);
        prop_assume!(!clocks[0].comparable(&clocks[1]));

        let trace = open(&files, 1);
        prop_assert_eq!(trace.clock(), clocks[0]);
        let mut ordered = trace.ordered();
        let mut times = Vec::new();
        while let Some(event) = ordered.next() {
            times.push((event.time().0, event.utc()));
        }
        let expected_times = expected.iter().map(|event| {
            (trace_time(event), clocks[usize::from(event.source)].to_file_time(RawTime(event.time)))
        });
        prop_assert_eq!(times, expected_times.collect::<Vec<_>>());
        prop_assert_eq!(events(trace.ordered()).0, expected);
    }
}

/// A survey of sources with the same number does not mix them up.
#[test]
fn numbers_of_sources_need_not_be_distinct() {
    let session = Session { processors: 1, buffer_size: 1024, ..Session::default() };
    let plans = [3, 5].map(|step| Plan { session: session.clone(), steps: vec![vec![step; 60]] });
    let (files, _) = make_all(&plans);
    let sources = files.iter().map(|file| Source::new("", EtlFile::open(file.clone().into()).unwrap()));
    let trace = OpenTrace::new(sources.collect(), 1).unwrap();
    let expected = events(trace.ordered());
    events(trace.selected(selection(&[])));
    assert_eq!(events(trace.ordered()), expected);
}

fn hook_ids() -> impl Strategy<Value = Vec<u16>> {
    prop::sample::subsequence([&[0], &HOOK_IDS[..]].concat(), 0..=1 + HOOK_IDS.len())
}

/// Each row: source, processor, ticks after the start. Expected are the numbers within the sources.
#[track_caller]
fn check(sessions: &[Session], rows: &[(u16, u16, i64)], expected: &[(u16, u64)]) -> Stats {
    let mut makings: Vec<_> =
        sessions.iter().zip(0..).map(|(session, source)| Making::new(source, session.clone())).collect();
    for &(source, processor, time) in rows {
        makings[usize::from(source)].log(processor, time);
    }
    let files: Vec<_> = makings.into_iter().map(|making| making.finish().0).collect();
    let (found, stats) = events(open(&files, 1).ordered());
    let found: Vec<_> = found.iter().map(|event| (event.source, event.number)).collect();
    assert_eq!(found, expected);
    stats
}

fn session(processors: u16) -> Session {
    Session { processors, buffer_size: 1024, ..Session::default() }
}

#[test]
fn equal_times_go_by_source_then_processor_then_place() {
    check(
        &[session(3), session(2)],
        &[(1, 0, 5), (0, 2, 5), (1, 1, 5), (0, 0, 5), (0, 2, 5), (0, 1, 5), (0, 0, 5), (1, 1, 6), (1, 0, 5)],
        &[(0, 0), (1, 0), (0, 2), (0, 5), (0, 4), (0, 1), (0, 3), (1, 1), (1, 4), (1, 2), (1, 3)],
    );
}

#[test]
fn a_later_session_of_the_same_boot_shares_the_counter() {
    // Both saw the counter at 10 MHz; the second one's pair of times is off by 0.2 ms.
    let first = session(1);
    let mut second = session(1);
    second.start.0 += 100_000_000;
    second.start_time.0 += 100_002_000;
    assert!(first.clock().comparable(&second.clock()));
    // The counter decides, although by UTC the second session's events would come after both of the
    // first one's.
    check(
        &[first, second],
        &[(0, 0, 100_000_001), (0, 0, 100_000_003), (1, 0, 2)],
        &[(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)],
    );
}

#[test]
fn a_stream_without_processors_is_sorted_within_its_buffers() {
    let mode = LogFileMode(LogFileMode::NO_PER_PROCESSOR_BUFFERING.0 | 1);
    let clock = ClockKind::SystemTime;
    let start = RawTime(session(1).start_time.0);
    let stats = check(
        &[Session { mode, clock, start, ..session(1) }],
        &[(0, 0, 30), (0, 0, 10), (0, 0, 20)],
        &[(0, 0), (0, 2), (0, 3), (0, 1)],
    );
    assert_eq!(stats.out_of_order, 0);
}

#[test]
fn a_circular_file_has_the_latest_buffers_in_time_order() {
    let circular = NonZeroU32::new(5);
    let mut making = Making::new(0, Session { circular, ..session(2) });
    let mut buffers = Vec::new();
    for buffer in 0..13 {
        let processor = buffer % 2;
        buffers
            .push((0..6).map(|tick| making.log(processor, i64::from(buffer) * 4 + tick)).collect::<Vec<_>>());
        making.flush(processor);
    }
    let (file, logged) = making.finish();
    let kept = buffers[8..].concat();
    let expected = sorted([&logged[..1], &kept].concat(), |event| event.time);
    let (found, stats) = events(open(&[file], 1).ordered());
    assert_eq!(found, expected);
    assert_eq!((stats.out_of_order, stats.buffers_missing, stats.buffers), (0, 0, 6));
}

#[test]
fn an_unfinished_file_has_all_its_events() {
    for (session, zeros) in [
        (session(2), 0),
        (session(2), 5_000),
        (Session { form: Form::Windows7, windows_version: (6, 1), ..session(2) }, 3_000),
        (Session { form: Form::Merged, compressed: true, ..session(2) }, 4_096),
    ] {
        let mut making = Making::new(0, session);
        for tick in 0..200 {
            making.log((tick % 2) as u16, tick / 3);
        }
        let (file, logged) = making.leave_unfinished(zeros);
        let (found, stats) = events(open(&[file], 1).ordered());
        assert_eq!(found, sorted(logged, |event| event.time));
        assert!(stats.damage.is_empty(), "{:?}", stats.damage);
    }
}

#[test]
fn counters_of_impossible_size_saturate() {
    let mut making = Making::new(0, session(1));
    for tick in 0..60 {
        making.log(0, tick);
    }
    let (mut file, _) = making.finish();
    // The sequence number of the last data buffer.
    let at = file.len() - 1024 + 0x18;
    file[at..at + 8].copy_from_slice(&i64::MAX.to_le_bytes());
    let files = vec![file; 3];
    let (_, stats) = events(open(&files, 1).ordered());
    assert_eq!(stats.buffers_missing, u64::MAX);
}

#[test]
fn as_many_streams_as_there_are_processors() {
    let mut making = Making::new(0, session(u16::MAX));
    for processor in 0..u16::MAX {
        making.log(processor, i64::from(processor) * 7919 % 1000);
    }
    let (file, logged) = making.finish();
    let (found, _) = events(open(&[file], 1).ordered());
    assert!(found == sorted(logged, |event| event.time));
}

#[test]
fn events_of_a_repeated_buffer_come_once() {
    for compressed in [false, true] {
        let session = Session { processors: 2, buffer_size: 1024, compressed, ..Session::default() };
        let plan = Plan { session, steps: vec![vec![3; 60], vec![5; 60]] };
        let (file, logged) = plan.make(0);
        let buffers = open(std::slice::from_ref(&file), 1).indexes()[0].buffers.clone();
        for buffer in &buffers[1..] {
            let (start, end) = (buffer.offset as usize, buffer.offset as usize + buffer.size as usize);
            let repeated = [&file[..], &file[start..end]].concat();
            let (found, stats) = events(open(&[repeated], 1).ordered());
            assert_eq!(found, sorted(logged.clone(), |event| event.time));
            let reason = DamageReason::Repeated { first: buffer.offset };
            assert_eq!(stats.damage, [(0, Damage { offset: file.len() as u64, skipped: 0, reason })]);
        }
    }
}

/// The records before the damage are delivered, and the next block is marked with the loss.
#[test]
fn a_damaged_compressed_buffer_is_a_loss_before_the_next_one() {
    let form = Form::Merged;
    let session = Session { buffer_size: 1024, compressed: true, form, ..Session::default() };
    let (mut file, logged) = Plan { session, steps: vec![vec![3; 200]] }.make(0);
    let buffers = open(std::slice::from_ref(&file), 1).indexes()[0].buffers.clone();
    let (damaged, next) = (buffers[2], buffers[3]);
    // A match that refers back to before the start, in the second half of the buffer: flags of ones,
    // distance 8,192.
    let middle = (damaged.offset + u64::from(damaged.size) / 2) as usize;
    file[middle..(damaged.offset + u64::from(damaged.size)) as usize].fill(0xff);
    let trace = open(&[file], 1);
    let mut ordered = trace.ordered();
    let (mut found, mut after_loss) = (Vec::new(), Vec::new());
    while let Some(event) = ordered.next() {
        let location = event.block().origin().file_offset;
        if event.index() == 0 && event.block().origin().after_loss {
            after_loss.push(location);
        }
        found.push((location, event.raw_time().0));
    }
    assert_eq!(after_loss, [next.offset]);
    let of_damaged: Vec<i64> =
        found.iter().filter(|(location, _)| *location == damaged.offset).map(|(_, time)| *time).collect();
    let first = logged.iter().position(|event| Some(&event.time) == of_damaged.first()).unwrap();
    assert!(of_damaged.len() > 2);
    assert!(of_damaged.iter().eq(logged[first..].iter().take(of_damaged.len()).map(|event| &event.time)));
    let stats = ordered.into_stats();
    assert!(
        matches!(stats.damage[..], [(0, Damage { offset, skipped: 1.., reason: DamageReason::Inflate(_) })] if offset == damaged.offset)
    );
}

/// A file with appended sessions has the same events as separate files of its sessions, except for
/// the source number.
#[test]
fn appended_sessions_are_read_with_their_own_clocks() {
    let first = Session { processors: 2, buffer_size: 1024, ..Session::default() };
    let second = Session {
        start: RawTime(5),
        start_time: FileTime(first.start_time.0 + 10_000),
        perf_frequency: NonZeroU64::new(3_000_000).unwrap(),
        ..first.clone()
    };
    let third = Session {
        clock: ClockKind::SystemTime,
        start: RawTime(first.start_time.0 + 30_000),
        start_time: FileTime(first.start_time.0 + 30_000),
        ..first.clone()
    };
    let plans =
        [first, second, third].map(|session| Plan { session, steps: vec![vec![30; 50], vec![70; 30]] });
    let (files, _) = make_all(&plans);
    let appended = open(&[files.concat()], 1);
    let separate = open(&files, 1);
    let times = |trace: &OpenTrace| {
        let (mut ordered, mut events) = (trace.ordered(), Vec::new());
        while let Some(event) = ordered.next() {
            let raw = (event.session_number(), event.raw_time());
            events.push((event.time(), event.utc(), raw, event.processor(), event.payload().to_vec()));
        }
        (events, ordered.into_stats())
    };
    let ((found, stats), (expected, expected_stats)) = (times(&appended), times(&separate));
    assert!(found.len() == 243 && found == expected);
    assert_eq!((stats.out_of_order, &stats.damage[..]), (0, &[][..]));
    assert_eq!((stats.events, stats.buffers), (expected_stats.events, expected_stats.buffers));
    assert_eq!(appended.sessions().collect::<Vec<_>>(), separate.sessions().collect::<Vec<_>>());
    for (found, expected) in appended.time_bases().iter().zip(separate.time_bases()) {
        assert_eq!(found.trace_time(RawTime(12_345)), expected.trace_time(RawTime(12_345)));
    }
    assert_eq!(appended.time_bases().len(), 3);
}

#[test]
fn losses_of_all_sessions_of_a_file_count() {
    let mut file = std::io::Cursor::new(Vec::new());
    for lost in [3, 4] {
        let session = Session { buffer_size: 1024, ..Session::default() };
        let mut writer = EtlWriter::new(session, file).unwrap();
        writer.lose_events(lost);
        writer.lose_buffer(0).unwrap();
        file = writer.finish().unwrap().0;
    }
    let stats = open(&[file.into_inner()], 1).ordered().into_stats();
    assert_eq!((stats.events_lost, stats.buffers_lost), (7, 2));
}
