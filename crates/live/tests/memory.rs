//! The memory that is committed while a live session is read is bounded for any number of
//! processors.
//!
//! Memory is counted as Windows does: all allocated memory is committed, touched or not. Linux
//! reports this as `VmData`.
#![cfg(target_os = "linux")]

use std::io::Cursor;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_etl::{EtlFile, LogfileHeader};
use stackhound_live::{EventRecord, LiveMerger, Overflow, Queue, Step, channel};
use stackhound_types::{Pid, PointerSize, RawTime, Tid};

const PROCESSORS: u16 = 64;
/// Ticks of 100 ns between two flushes, as in `Buffers::low_latency`.
const FLUSH: i64 = 50_000;
/// Events of a processor in one flush.
const EVENTS: i64 = 2;
/// The bound that `docs/live.md` states for this session.
const BOUND: u64 = 16 << 20;

/// Bytes that this process has committed.
fn committed() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("a line");
    let kib = line.trim().strip_suffix(" kB").expect("in KiB");
    kib.trim().parse::<u64>().expect("a number") * 1024
}

fn session() -> Arc<LogfileHeader> {
    let settings = Session { processors: PROCESSORS, buffer_size: 32 << 10, ..Session::default() };
    let start = settings.start.0;
    let mut writer = EtlWriter::new(settings, Cursor::new(Vec::new())).expect("a writer");
    let header = HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: Issuer::new(Pid(1), Tid(2)) };
    let record = RecordSpec {
        time: RawTime(start),
        pointer_size: PointerSize::Eight,
        header,
        payload: Payload::Bytes(&[]),
    };
    writer.write(0, &record).expect("written");
    let (file, _) = writer.finish().expect("finished");
    EtlFile::open(file.into_inner().into()).expect("a trace").session().clone()
}

/// Simulates flushes for this many seconds of trace time, in real time or as fast as they are read.
/// Returns the number of events that were read, and the maximum of the memory that was committed in
/// addition.
fn run(seconds: u64, at_pace: bool) -> (u64, u64) {
    let header = session();
    let start = header.reference.0;
    let queue = Queue::new(Overflow::Block).for_flush(Duration::from_millis(5));
    let before = committed();
    let (mut capture, incoming) = channel(header, queue);
    let reader = thread::spawn(move || {
        let mut merger = LiveMerger::new(vec![incoming]).expect("one session");
        loop {
            if let Step::End = merger.next() {
                let stats = merger.stats();
                assert_eq!((stats.events_dropped, stats.out_of_order), (0, 0));
                return stats.events;
            }
        }
    });
    let (begun, mut peak) = (Instant::now(), 0);
    let mut event = [0; 80];
    event[4] = 0x40;
    let payload = [7; 64];
    for flush in 0..seconds as i64 * 200 {
        // The buffers of all processors, merged by time: their ends are close together, and a call
        // follows each of them.
        for number in 0..EVENTS * i64::from(PROCESSORS) {
            let time = start + flush * FLUSH + number;
            event[0x10..0x18].copy_from_slice(&time.to_le_bytes());
            let processor = (number % i64::from(PROCESSORS)) as u16;
            let _ = capture.event(&EventRecord { header: &event, processor, items: &[], payload: &payload });
            if number >= (EVENTS - 1) * i64::from(PROCESSORS) {
                let _ = capture.buffer_done();
            }
        }
        if flush % 20 == 0 {
            peak = peak.max(committed().saturating_sub(before));
        }
        if at_pace {
            let due = Duration::from_micros(flush as u64 * 5_000);
            thread::sleep(due.saturating_sub(begun.elapsed()));
        }
    }
    drop(capture);
    (reader.join().expect("read"), peak)
}

/// Runs for `STACKHOUND_MEMORY_SECONDS` of trace time, by default for 20 seconds.
#[test]
fn memory_of_many_processors_is_bounded() {
    let setting = std::env::var("STACKHOUND_MEMORY_SECONDS").ok();
    let seconds = setting.map_or(20, |text| text.parse().expect("a number of seconds"));
    for (seconds, at_pace) in [(3, true), (seconds, false)] {
        let (events, peak) = run(seconds, at_pace);
        assert_eq!(events, seconds * 200 * EVENTS as u64 * u64::from(PROCESSORS));
        println!("{seconds} s, {events} events: {} MiB committed at most", peak >> 20);
        assert!(peak < BOUND, "{} MiB of {} MiB", peak >> 20, BOUND >> 20);
    }
}
