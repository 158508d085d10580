//! Shares of processor time are of the time in which sessions with samples or switches ran.

use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::cpu::CpuReport;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::trace::{OpenTrace, TraceTime};
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_scenario::{Mix, Problem, Scenario};
use stackhound_schema::kernel::hook_id;
use stackhound_types::{Guid, PointerSize, RawTime};

use crate::analysis::{analyze, open};

/// Ten seconds, in ticks of the clock of generated traces.
pub const TAIL: i64 = 100_000_000;
/// Ticks of the usual sampling interval: 1 ms of a clock with 10 MHz.
const INTERVAL: i64 = 10_000;
const START: i64 = 1_000_000;

/// What a trace contains: times in ticks since its start.
#[derive(Clone, Debug, Default)]
struct Recorded {
    /// The times of the samples of each processor.
    samples: Vec<Vec<i64>>,
    /// The times of the records at the start and the end of the session.
    start: Option<i64>,
    end: Option<i64>,
    /// The times of events of a provider.
    others: Vec<i64>,
}

impl Recorded {
    fn trace(&self) -> OpenTrace {
        let processors = self.samples.len() as u16;
        let session = Session { start: RawTime(START), processors, ..Session::default() };
        let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
        let kernel = |hook_id| HeaderSpec::PerfInfo { hook_id, version: 2, pebs_index: None, counters: &[] };
        // The address, the thread, one sample.
        let sample: Vec<u8> = [&0x1000_u64.to_le_bytes()[..], &12_u32.to_le_bytes(), &[1, 0, 0, 0]].concat();
        let interval: Vec<u8> = [0, 10_000, 10_000].into_iter().flat_map(u32::to_le_bytes).collect();
        let mut records: Vec<(i64, u16, HeaderSpec<'_>, &[u8])> = Vec::new();
        for (processor, times) in (0..).zip(&self.samples) {
            let header = kernel(hook_id::PERF_INFO_SAMPLED_PROFILE);
            records.extend(times.iter().map(|time| (*time, processor, header, &*sample)));
        }
        for (time, id) in [
            (self.start, hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START),
            (self.end, hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_END),
        ] {
            records.extend(time.map(|time| (time, 0, kernel(id), &*interval)));
        }
        records.extend(self.others.iter().map(|time| (*time, 0, of_provider(Issuer::UNKNOWN), &[][..])));
        records.sort_by_key(|(time, ..)| *time);
        for (time, processor, header, payload) in records {
            let (time, payload) = (RawTime(START + time), Payload::Bytes(payload));
            let record = RecordSpec { time, pointer_size: PointerSize::Eight, header, payload };
            writer.write(processor, &record).unwrap();
        }
        open(writer.finish().unwrap().0.into_inner())
    }
}

fn sampled(report: &CpuReport) -> u64 {
    report.classes.busy().amount + report.classes.idle.amount
}

/// A session with samples from 10 ms to 110 ms, and another one that runs for a second.
#[test]
fn time_without_the_session_with_samples_does_not_count() {
    let samples: Vec<i64> = (11..=110).map(|at| at * INTERVAL).collect();
    let (start, end) = (Some(10 * INTERVAL), Some(110 * INTERVAL));
    for (start, end) in [(None, None), (start, None), (None, end), (start, end)] {
        for others in [vec![], vec![0, 1000 * INTERVAL], vec![5 * INTERVAL, 111 * INTERVAL]] {
            let recorded = Recorded { samples: vec![samples.clone(); 2], start, end, others };
            for weighing in [Weighing::Elapsed, Weighing::Nominal] {
                let report = analyze(&recorded.trace(), Window::default(), weighing);
                assert_eq!(report.available(), 2 * 100 * INTERVAL as u64, "{recorded:?}");
                assert_eq!(sampled(&report), report.available(), "{recorded:?}");
            }
        }
    }
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit) as i64
    }
}

#[test]
fn no_share_is_above_all_of_the_time() {
    let mut random = Random(7);
    for _ in 0..100 {
        let mut recorded = Recorded::default();
        let spread = 1 + random.below(4 * INTERVAL as u64) as u64;
        for _ in 0..=random.below(3) {
            let mut at = random.below(20 * INTERVAL as u64);
            let times = (0..random.below(30)).map(|_| {
                at += 1 + random.below(spread);
                at
            });
            recorded.samples.push(times.collect());
        }
        recorded.start = (random.below(2) == 0).then(|| random.below(10 * INTERVAL as u64));
        recorded.end = (random.below(2) == 0).then(|| random.below(60 * INTERVAL as u64));
        let trace = recorded.trace();
        let mut limit =
            || (random.below(2) == 0).then(|| TraceTime(START + random.below(60 * INTERVAL as u64)));
        for window in [Window::default(), Window { from: limit(), to: limit() }] {
            for weighing in [Weighing::Elapsed, Weighing::Nominal] {
                let report = analyze(&trace, window, weighing);
                let (sum, all) = (sampled(&report), report.available());
                assert!(sum <= all, "{sum} of {all}: {weighing:?} {window:?} {recorded:?}");
            }
        }
    }
}

#[test]
fn no_share_of_a_trace_is_above_all_of_its_time() {
    let mut traces: Vec<(String, OpenTrace)> = generated();
    for (name, _) in stackhound_corpus::trace_files() {
        traces.extend(stackhound_corpus::etl_file(&name).map(|bytes| (name, open(bytes))));
    }
    let mut compared = 0;
    for (name, trace) in &traces {
        for weighing in [Weighing::Elapsed, Weighing::Nominal] {
            let report = analyze(trace, Window::default(), weighing);
            let (sum, all) = (sampled(&report), report.available());
            assert!(sum <= all, "{name}: {sum} of {all} by samples");
            if let Some(exact) = &report.exact {
                let sum = exact.busy() + exact.idle;
                assert!(sum <= all, "{name}: {sum} of {all} by switches");
            }
            compared += u32::from(sum > 0);
        }
    }
    assert!(compared >= 6, "{compared} with samples");
}

/// Generated traces, by name.
pub fn generated() -> Vec<(String, OpenTrace)> {
    let mixes = [Mix::Default, Mix::Reuse, Mix::Problem(Problem::Hang)];
    let trace = |mix| {
        let mut file = Cursor::new(Vec::new());
        Scenario { events: 40_000, mix, ..Scenario::default() }.write(&mut file).unwrap();
        (format!("{mix:?}"), open(file.into_inner()))
    };
    mixes.into_iter().map(trace).collect()
}

/// The event of a provider without a payload, by a thread.
fn of_provider(issuer: Issuer) -> HeaderSpec<'static> {
    HeaderSpec::Event {
        provider: Guid::new(1, 2, 3, [4; 8]),
        descriptor: Descriptor { id: 1, version: 0, channel: 0, level: 4, opcode: 0, task: 0, keyword: 0 },
        property: 0,
        issuer,
        activity: Guid::ZERO,
        items: &[],
    }
}

/// Events of a provider after the end of a trace.
#[derive(Clone, Copy)]
pub struct Tail {
    /// How many ticks after the last event, each.
    pub ticks: i64,
    pub count: i64,
    pub issuer: Issuer,
}

/// A trace without some of its kernel events, and with events after its end.
pub fn changed(trace: &OpenTrace, ids: &[u16], tail: Option<Tail>) -> OpenTrace {
    open(changed_file(trace, ids, tail))
}

pub fn changed_file(trace: &OpenTrace, ids: &[u16], tail: Option<Tail>) -> Vec<u8> {
    let header = trace.sources()[0].etl_file.session();
    let mut writer = EtlWriter::new(Session::of(header), Cursor::new(Vec::new())).unwrap();
    let mut last = RawTime(0);
    trace.run(|event| {
        last = last.max(event.raw_time());
        let is_left =
            event.hook_id().is_none_or(|id| id != hook_id::EVENT_TRACE_HEADER && !ids.contains(&id));
        if is_left {
            let bytes = event.record().bytes();
            writer.copy_bytes(event.processor().unwrap_or(0), bytes, event.raw_time()).unwrap();
        }
        ControlFlow::Continue(())
    });
    if let Some(Tail { ticks, count, issuer }) = tail {
        for number in 1..=count {
            let record = RecordSpec {
                time: RawTime(last.0 + ticks * number),
                pointer_size: PointerSize::Eight,
                header: of_provider(issuer),
                payload: Payload::Bytes(&[]),
            };
            writer.write(0, &record).unwrap();
        }
    }
    writer.finish().unwrap().0.into_inner()
}

/// A session with context switches, and another one that runs for ten seconds more.
#[test]
fn time_without_the_session_with_switches_does_not_count() {
    for (name, trace) in generated() {
        let tail = Tail { ticks: TAIL, count: 1, issuer: Issuer::UNKNOWN };
        let [one, other] = [None, Some(tail)].map(|tail| {
            let report = analyze(&changed(&trace, &[], tail), Window::default(), Weighing::default());
            (report.available(), report.exact)
        });
        assert_eq!(one, other, "{name}");
    }
}
