//! The order of buffers, losses, and raw buffers.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::Duration;

use stackhound_etl::record::Records;
use stackhound_etl::{BUFFER_HEADER_SIZE, BufferHeader, EtlFile};
use stackhound_etw_fake::feed::{Counters, Feed, Limits, Next};
use stackhound_etw_fake::raw;
use stackhound_etw_fake::replay::{Order, Replay, Slice};
use stackhound_scenario::{Mix, Scenario};

fn demo(events: u64) -> EtlFile {
    let mut file = Cursor::new(Vec::new());
    Scenario { events, seed: 5, mix: Mix::Default }.write(&mut file).expect("a trace");
    EtlFile::open(file.into_inner().into()).expect("a trace")
}

fn order(seed: u64, disorder: i64) -> Order {
    Order { seed, disorder, rounds: Some(1) }
}

/// Stream and time of every record except for the logfile header, in the order of delivery.
fn times(slices: impl Iterator<Item = Slice>) -> Vec<(usize, i64)> {
    slices
        .flat_map(|slice| {
            let event = |entry: &&stackhound_etl::Entry| entry.hook_id() != Some(0);
            let times: Vec<_> =
                slice.entries().filter(event).map(|entry| entry.time.0 + slice.shift).collect();
            times.into_iter().map(move |time| (slice.stream, time))
        })
        .collect()
}

#[test]
fn seeds_change_the_order_of_streams_but_not_within_a_stream() {
    let etl_file = demo(20_000);
    let second = etl_file.clock().ticks_per_second() as i64;
    let mut by_stream = times(Replay::new(etl_file.clone(), order(0, 0)));
    by_stream.sort_by_key(|&(stream, time)| (stream, time));
    for disorder in [0, second / 100, second / 2] {
        let mut last = Vec::new();
        for seed in 0..3 {
            let delivered = times(Replay::new(etl_file.clone(), order(seed, disorder)));
            let mut latest = i64::MIN;
            for &(_, time) in &delivered {
                assert!(latest <= time.saturating_add(disorder), "later than allowed");
                latest = latest.max(time);
            }
            let mut sorted = delivered.clone();
            // A stable sort: equal times keep their order, and every stream is sorted by itself.
            sorted.sort_by_key(|&(stream, _)| stream);
            assert_eq!(sorted, by_stream, "seed {seed}");
            assert!(disorder == 0 || delivered != last, "seed {seed} has the same order");
            last = delivered;
        }
    }
}

#[test]
fn rounds_continue_after_the_end() {
    let etl_file = demo(8_000);
    let once = times(Replay::new(etl_file.clone(), order(1, 0)));
    let thrice = times(Replay::new(etl_file.clone(), Order { rounds: Some(3), ..order(1, 0) }));
    assert_eq!(thrice.len(), 3 * once.len());
    assert!(thrice.is_sorted_by_key(|&(_, time)| time));
}

/// Delivers all buffers, with the time `took` for each buffer.
fn run(limits: Limits, took: Duration) -> (Counters, u64, BTreeMap<usize, u64>) {
    let mut feed = Feed::new(Replay::new(demo(20_000), order(1, 0)), limits);
    let (mut now, mut events, mut after_loss) = (Duration::ZERO, 0, BTreeMap::new());
    loop {
        match feed.next(now, false) {
            Next::Slice(slice, count) => {
                assert_eq!(slice.events(limits.raw), count);
                events += count;
                now += took;
                *after_loss.entry(slice.stream).or_default() += u64::from(slice.after_loss);
            }
            Next::Wait(due) => {
                assert!(due > now);
                now = due;
            }
            Next::End => return (feed.counters(), events, after_loss),
        }
    }
}

#[test]
fn events_are_delivered_or_counted_as_lost() {
    let all = run(Limits::default(), Duration::ZERO).0;
    assert!(all.generated > 19_800 && all.events_lost == 0);
    // Slow enough to lose buffers, and fast enough to receive some after the loss.
    let slow = Duration::from_millis(3);
    for (case, limits, took, loses) in [
        ("a fast consumer", Limits { rate: 1_000, buffers: 4, ..Limits::default() }, Duration::ZERO, false),
        ("a slow consumer", Limits { rate: 1_000_000, buffers: 4, ..Limits::default() }, slow, true),
        ("no rate", Limits { buffers: 4, ..Limits::default() }, slow, false),
        ("intended losses", Limits { lose_every: 10, ..Limits::default() }, Duration::ZERO, true),
        ("raw buffers", Limits { raw: true, lose_every: 10, ..Limits::default() }, Duration::ZERO, true),
    ] {
        let (counters, events, after_loss) = run(limits, took);
        assert_eq!(counters.generated, all.generated, "{case}");
        assert_eq!(counters.delivered, events, "{case}");
        assert_eq!(counters.delivered + counters.events_lost, counters.generated, "{case}");
        assert_eq!(counters.buffers_lost > 0, loses, "{case}");
        let reported: u64 = after_loss.values().sum();
        let recorded: u64 = run(Limits::default(), Duration::ZERO).2.values().sum();
        assert!(reported <= recorded + counters.buffers_lost, "{case}");
        assert!(!loses || reported > recorded, "{case}");
    }
    let stopped = run(Limits { stop_after: 777, ..Limits::default() }, Duration::ZERO).0;
    assert_eq!((stopped.generated, stopped.delivered), (777, 777));
}

#[test]
fn raw_buffers_contain_the_records_unchanged() {
    for slice in Replay::new(demo(8_000), Order { rounds: Some(2), ..order(3, 0) }) {
        let bytes = raw::buffer(&slice, 1);
        let header = BufferHeader::read(&bytes).expect("a header");
        let end = header.filled(bytes.len()).expect("an end");
        assert_eq!(header.processor(), slice.processor);
        assert!(end == BUFFER_HEADER_SIZE || end + raw::STALE == bytes.len());
        let mut found = Records::new(&bytes[..end], BUFFER_HEADER_SIZE);
        for entry in slice.entries().filter(|entry| entry.hook_id() != Some(0)) {
            let (record, expected) = (found.next().expect("as many records"), slice.block.record(entry));
            assert_eq!(record.time().0, expected.time().0 + slice.shift);
            assert_eq!(record.kind(), expected.kind());
            // A stack record or stack key contains the time of its event, which is shifted too.
            let moved = matches!(expected.hook_id(), Some(0x1820 | 0x1825 | 0x1826));
            let from = if moved { 8 } else { 0 };
            assert_eq!(record.payload()[from..], expected.payload()[from..]);
            if moved {
                let time = |payload: &[u8]| i64::from_le_bytes(payload[..8].try_into().expect("eight bytes"));
                assert_eq!(time(record.payload()), time(expected.payload()) + slice.shift);
            }
        }
        assert!(found.next().is_none());
        assert_eq!(found.error(), None);
    }
}
