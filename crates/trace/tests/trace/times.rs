//! Records whose times are damaged: each is reported and skipped, or stays in its place.

use std::io::Cursor;

use stackhound_etl::write::{EtlWriter, Form, HeaderSpec, Payload, RecordSpec, Session};
use stackhound_etl::{BufferHeader, ClockKind, DamageReason, EtlFile, LogFileMode};
use stackhound_trace::LossMap;
use stackhound_types::RawTime;

use crate::trace_files::{HOOK_IDS, Logged, Making, events, open, selection};

/// Offset of the time in a record of the generated traces.
const TIME: usize = 0x10;

/// A record of a trace: the event, the offset of its time in the file, and the latest time that its
/// buffer allows.
#[derive(Clone, Copy, Debug)]
struct Location {
    event: Logged,
    offset: usize,
    written: i64,
}

/// A trace of two processors with pauses of several lengths. 23 records fit into a buffer.
fn trace_of(session: Session) -> (Vec<u8>, Vec<Logged>) {
    let mut making = Making::new(0, session);
    let mut time = 5;
    for number in 0..64 {
        making.log(u16::from(number % 3 == 0), time);
        time += [0, 1, 900, 40, 70_000, 3][number % 6];
    }
    making.finish()
}

/// The data records of a file, in the order of their streams.
fn locations(file: &[u8], logged: &[Logged]) -> Vec<Location> {
    let etl_file = EtlFile::open(file.to_vec().into()).unwrap();
    let mut locations = Vec::new();
    for buffer in etl_file.index().streams().iter().flatten().filter(|buffer| buffer.sequence > 0) {
        let (block, damage) = etl_file.block(buffer, None).unwrap();
        assert_eq!(damage, []);
        let stamp = BufferHeader::read(&file[buffer.offset as usize..]).unwrap().time_stamp.get();
        let is_merged = etl_file.session().mode.has(LogFileMode::RELOG);
        let written =
            if is_merged { etl_file.clock().to_raw(stackhound_types::FileTime(stamp)).0 } else { stamp };
        for entry in block.entries() {
            let number = u64::from_le_bytes(block.record(entry).payload().try_into().unwrap());
            let event = logged[number as usize];
            assert_eq!(event.time, entry.time.0);
            let offset = buffer.offset as usize + entry.offset() + TIME;
            locations.push(Location { event, offset, written });
        }
    }
    locations
}

/// The damage of a trace that is read twice: the number of records that are skipped.
fn read(file: &[u8], case: &str) -> (Vec<Logged>, u64, LossMap) {
    let trace = open(&[file.to_vec()], 1);
    let mut survey = trace.selected(selection(&HOOK_IDS[..1]));
    while survey.next().is_some() {}
    let losses = LossMap::surveyed(&trace, survey);
    let (found, stats) = events(trace.ordered());
    let skipped = stats.damage.iter().map(|(_, damage)| match damage.reason {
        DamageReason::Time { records, .. } => u64::from(records),
        reason => panic!("{reason}"),
    });
    assert_eq!(stats.out_of_order, 0, "{case}: {:?}", stats.damage);
    (found, skipped.sum(), losses)
}

#[test]
fn each_bit_of_a_time_is_reported_or_leaves_the_record_in_its_place() {
    let live = Session { processors: 2, buffer_size: 1024, ..Session::default() };
    let merged = Session { form: Form::Merged, ..live.clone() };
    let frequency = std::num::NonZeroU64::new(2_648_433).unwrap();
    let slow = Session { perf_frequency: frequency, start: RawTime(7_777), ..merged.clone() };
    for (name, session) in [("live", live), ("merged", merged), ("slow", slow)] {
        let start = session.start.0;
        let second = session.perf_frequency.get() as i64;
        let is_merged = session.form == Form::Merged;
        let (file, logged) = trace_of(session);
        let locations = locations(&file, &logged);
        for (at, location) in locations.iter().enumerate() {
            let same = |other: Option<&Location>| {
                other
                    .filter(|other| other.event.processor == location.event.processor)
                    .map(|other| other.event)
            };
            let before = at.checked_sub(1).and_then(|at| same(locations.get(at)));
            let after = same(locations.get(at + 1));
            for bit in 0..64 {
                let mut damaged = file.clone();
                damaged[location.offset + bit / 8] ^= 1 << (bit % 8);
                let moved = location.event.time ^ 1 << bit;
                let case = format!("{name}: bit {bit} of {location:?}");
                let (found, skipped, losses) = read(&damaged, &case);
                assert_eq!(found.len() as u64 + skipped, logged.len() as u64, "{case}");
                assert!(skipped <= 1, "{case}");
                let latest = location.written + if is_merged { second } else { 0 };
                let is_in_place = moved >= before.map_or(start, |before| before.time)
                    && moved <= after.map_or(latest, |after| after.time.min(latest));
                assert_eq!(skipped == 0, is_in_place, "{case}: {moved}");
                // Of two records that contradict each other, either may be skipped.
                let missing =
                    logged.iter().find(|event| found.iter().all(|found| found.number != event.number));
                let Some(missing) = missing else { continue };
                let around = [Some(location.event), before, after];
                assert!(around.contains(&Some(*missing)), "{case}: {missing:?}");
                let processor = Some(missing.processor);
                assert!(losses.on_processor(0, processor, missing.time, missing.time), "{case}: {missing:?}");
                let kept = found.iter().find(|event| event.number == location.event.number);
                assert!(kept.is_none_or(|kept| kept.time >= start && kept.time <= latest), "{case}");
            }
        }
    }
}

#[test]
fn the_clock_of_a_session_may_be_set_back() {
    let session = Session {
        clock: ClockKind::SystemTime,
        start: RawTime(133_485_408_000_000_000),
        buffer_size: 1024,
        ..Session::default()
    };
    let mut making = Making::new(0, session);
    let ticks = (0..20).chain([-9_000_000]).chain(5..25).chain([1 << 40]).chain(30..50);
    for tick in ticks {
        making.log(0, tick);
    }
    let (file, logged) = making.finish();
    let trace = open(&[file], 1);
    let (found, stats) = events(trace.ordered());
    // The single record of a later day is not a step of the clock.
    assert_eq!(found.len(), logged.len() - 1);
    let reason = DamageReason::Time { records: 1, time: 133_485_408_000_000_000 + (1 << 40) };
    assert_eq!(stats.damage.iter().map(|(_, damage)| damage.reason).collect::<Vec<_>>(), [reason]);
    assert!(stats.out_of_order > 0);
}

/// A record without a time has that of the record before it. If the time of the only other record of its buffer is
/// damaged, both are skipped, and both are counted.
#[test]
fn records_without_times_are_counted_with_the_rest_of_their_buffer() {
    let session = Session { buffer_size: 1024, ..Session::default() };
    let (start, pointer_size) = (session.start, session.pointer_size);
    for errors_first in [true, false] {
        let mut writer = EtlWriter::new(session.clone(), Cursor::new(Vec::new())).unwrap();
        let event =
            HeaderSpec::PerfInfo { hook_id: HOOK_IDS[0], version: 2, pebs_index: None, counters: &[] };
        let mut records = vec![HeaderSpec::Error, HeaderSpec::Error, event];
        if !errors_first {
            records.reverse();
        }
        for header in records {
            let record =
                RecordSpec { time: RawTime(start.0 - 1), pointer_size, header, payload: Payload::Bytes(&[]) };
            writer.write(0, &record).unwrap();
        }
        let (file, totals) = writer.finish().unwrap();
        assert_eq!(totals.records, 3);
        // Only the logfile header is left.
        let (found, skipped, _) = read(&file.into_inner(), "errors");
        assert_eq!((found.len(), skipped), (1, 3), "errors first: {errors_first}");
    }
}
