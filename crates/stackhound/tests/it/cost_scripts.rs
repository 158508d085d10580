//! Measurements of short traces whose sums are known.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroU64;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::costs::{self, CostBy, CostReport, Costs, Metric};
use stackhound::analysis::rows::By;
use stackhound::profile::Grouping;
use stackhound::trace::{OpenTrace, Source, TraceTime};
use stackhound::{ClockKind, EventView, Passes, Pipeline};
use stackhound_etl::EtlFile;
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_schema::kernel::hook_id;
use stackhound_schema::provider_guid;
use stackhound_types::{FileTime, Guid, Pid, PointerSize, RawTime, Tid};

use crate::costs::column;

/// The value and the size of each field.
type Fields = &'static [(u64, usize)];

/// An event: its time, the processor, the process and the thread, its kind and version, and its payload.
struct Event(i64, u16, (u32, u32), Kind, u8, Vec<u8>);

#[derive(Clone, Copy)]
enum Kind {
    Kernel(u16),
    Runtime(u16),
    /// A buffer of the processor is lost.
    Loss,
}

fn loss(time: i64, processor: u16) -> Event {
    Event(time, processor, (0, 0), Kind::Loss, 0, Vec::new())
}

fn payload(fields: &[(u64, usize)]) -> Vec<u8> {
    fields.iter().flat_map(|(value, size)| value.to_le_bytes()[..*size].to_vec()).collect()
}

fn kernel(time: i64, processor: u16, hook_id: u16, version: u8, fields: &[(u64, usize)]) -> Event {
    Event(time, processor, (8, 12), Kind::Kernel(hook_id), version, payload(fields))
}

fn runtime(time: i64, tid: u32, id: u16, fields: &[u32]) -> Event {
    let fields: Vec<_> = fields.iter().map(|value| ((*value).into(), 4)).collect();
    Event(time, 0, (8, tid), Kind::Runtime(id), 1, [payload(&fields), vec![0; 2]].concat())
}

/// Time zero of the traces.
const START: i64 = 1_000_000;

fn report(metric: &'static Metric, window: (Option<i64>, Option<i64>), events: &[Event]) -> CostReport {
    report_of(metric, window, &[(Session::default(), events)], |_| true)
}

/// Measures a trace of several sessions, with a filter.
fn report_of(
    metric: &'static Metric,
    window: (Option<i64>, Option<i64>),
    sessions: &[(Session, &[Event])],
    wanted: impl Fn(&EventView<'_>) -> bool,
) -> CostReport {
    let sources = sessions.iter().map(|(session, events)| {
        let etl_file = EtlFile::open(file(session.clone(), events).into()).unwrap();
        Source::new("", etl_file)
    });
    let trace = OpenTrace::new(sources.collect(), 2).unwrap();
    let at = |time: Option<i64>| time.map(|time| TraceTime(START + time));
    let window = Window { from: at(window.0), to: at(window.1) };
    let mut costs = Costs::new(metric, String::new(), &trace, window);
    let mut pipeline = Pipeline::new(&trace, Passes::Two);
    pipeline.run(|view| {
        costs.observe(view, || wanted(view)).unwrap();
        ControlFlow::Continue(())
    });
    let (known, _, naming) = pipeline.parts();
    costs.finish(known, naming)
}

fn file(session: Session, events: &[Event]) -> Vec<u8> {
    let session = Session { start: RawTime(START), processors: 4, ..session };
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    for Event(time, processor, (pid, tid), kind, version, payload) in events {
        let issuer = Issuer::new(Pid(*pid), Tid(*tid));
        let header = match *kind {
            Kind::Loss => {
                writer.flush(*processor).unwrap();
                writer.lose_buffer(*processor).unwrap();
                continue;
            }
            Kind::Kernel(hook_id) => HeaderSpec::System { hook_id, version: *version, issuer },
            Kind::Runtime(id) => HeaderSpec::Event {
                provider: provider_guid::DOT_NET_RUNTIME,
                descriptor: Descriptor {
                    id,
                    version: *version,
                    channel: 0,
                    level: 4,
                    opcode: 0,
                    task: 0,
                    keyword: 1,
                },
                property: 0,
                issuer,
                activity: Guid::ZERO,
                items: &[],
            },
        };
        let (time, payload) = (RawTime(START + time), Payload::Bytes(payload));
        writer
            .write(*processor, &RecordSpec { time, pointer_size: PointerSize::Eight, header, payload })
            .unwrap();
    }
    writer.finish().unwrap().0.into_inner()
}

const WHOLE: (Option<i64>, Option<i64>) = (None, None);

/// The columns of a dimension, as `name: column value, …` without zeros. Times are raw ticks, of 100 ns.
fn shown(report: &CostReport, by: CostBy) -> Vec<String> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for column_of in report.metric.columns {
        for (name, value) in column(report, by, column_of.name) {
            let value = if column_of.unit == costs::Unit::Ticks { value / 100 } else { value };
            rows.entry(name).or_default().push(format!("{} {value}", column_of.name));
        }
    }
    let rows = rows.into_iter().map(|(name, values)| format!("{name}: {}", values.join(", ")));
    let remainders = report.remainders.iter();
    rows.chain(remainders.map(|known| format!("{} {}", known.sums.count, known.reason))).collect()
}

const OWN: CostBy = CostBy::Own(0);

#[test]
fn pauses_belong_to_collections() {
    let (start_id, end_id, restarted_id, suspend_id) = (1, 2, 3, 9);
    let suspend = |time, tid, reason| runtime(time, tid, suspend_id, &[reason, 0]);
    let restarted = |time, tid| runtime(time, tid, restarted_id, &[]);
    let start = |time, number, generation, kind| runtime(time, 16, start_id, &[number, generation, 0, kind]);
    let end = |time, number| runtime(time, 16, end_id, &[number, 0]);
    let rows: &[(&[Event], &[&str])] = &[
        (
            &[suspend(100, 16, 1), start(110, 1, 1, 0), end(150, 1), restarted(160, 16)],
            &["generation 1: paused 60, pauses 1, max 60, collections 1, duration 40, generation_1 1"],
        ),
        // In the background, with a collection of another generation inside of it.
        (
            &[
                suspend(100, 16, 1),
                start(110, 1, 2, 1),
                restarted(120, 16),
                suspend(200, 20, 1),
                start(205, 2, 0, 2),
                end(215, 2),
                restarted(220, 20),
                suspend(300, 16, 6),
                restarted(340, 16),
                end(400, 1),
            ],
            &[
                "generation 0: paused 20, pauses 1, max 20, collections 1, duration 10, generation_0 1",
                "generation 2: paused 60, pauses 2, max 40, collections 1, duration 290, generation_2 1",
            ],
        ),
        // A debugger suspends on another thread, and later on the same one.
        (
            &[
                suspend(100, 16, 1),
                suspend(105, 24, 5),
                start(110, 1, 0, 0),
                start(111, 1, 0, 0),
                restarted(130, 24),
                end(140, 1),
                restarted(150, 16),
                suspend(200, 16, 5),
                restarted(300, 16),
            ],
            &["generation 0: paused 50, pauses 1, max 50, collections 1, duration 30, generation_0 1"],
        ),
        (
            &[restarted(50, 16), end(60, 9), suspend(100, 16, 1), start(110, 10, 2, 0)],
            &[
                "generation 2: collections 1, generation_2 1",
                "1 collections that were not over at the end",
                "1 ends of collections without a known start",
                "1 pauses that were not over at the end",
                "1 restarts without a known suspension",
            ],
        ),
    ];
    for (events, expected) in rows {
        assert_eq!(shown(&report(&costs::GC, WHOLE, events), OWN), *expected);
    }
    // Clipped to the window.
    let clipped = report(&costs::GC, (Some(130), Some(155)), rows[0].0);
    assert_eq!(shown(&clipped, OWN), ["generation 1: paused 25, max 25, duration 20"]);
}

#[test]
fn compilations_can_be_nested() {
    let begin = |time, method: u64| {
        let texts = [0u16; 3].map(u16::to_le_bytes).concat();
        let fields = payload(&[(method, 8), (0, 8), (0, 4), (10 * method, 4)]);
        Event(time, 0, (8, 16), Kind::Runtime(145), 0, [fields, texts].concat())
    };
    let load = |time, method: u64, flags: u64| {
        let fields = payload(&[(method, 8), (0, 8), (0, 8), (100 * method, 4), (0, 4), (flags, 4)]);
        let name = [0, 0, b'm', 0, b'0' + method as u8, 0, 0, 0, 0, 0];
        Event(time, 0, (8, 16), Kind::Runtime(143), 0, [fields, name.to_vec()].concat())
    };
    const JITTED: u64 = 8;
    let events = [
        begin(10, 1),
        begin(20, 2),
        load(50, 2, JITTED),
        load(55, 4, 0),
        load(60, 1, JITTED | 4 << 7),
        load(70, 3, JITTED),
        begin(80, 5),
        begin(85, 6),
        load(90, 5, JITTED),
    ];
    let all = report(&costs::JIT, WHOLE, &events);
    let remainders = [
        "1 compilations without a method that was loaded",
        "1 methods without a known start: no duration and IL size",
    ];
    let mut expected = vec![
        "m1: duration 50, methods 1, il_bytes 10, native_bytes 100, max 50",
        "m2: duration 30, methods 1, il_bytes 20, native_bytes 200, max 30",
        "m3: methods 1, native_bytes 300",
        "m5: duration 10, methods 1, il_bytes 50, native_bytes 500, max 10",
    ];
    expected.extend(remainders);
    assert_eq!(shown(&all, OWN), expected);
    let mut tiers = vec![
        "not stated: duration 40, methods 3, il_bytes 70, native_bytes 1000, max 30",
        "tier 1: duration 50, methods 1, il_bytes 10, native_bytes 100, max 50",
    ];
    tiers.extend(remainders);
    assert_eq!(shown(&all, CostBy::Own(1)), tiers);
}

#[test]
fn service_of_a_disk_begins_after_the_previous_transfer() {
    let init = |time, irp| kernel(time, 0, hook_id::DISK_IO_READ_INIT, 3, &[(irp, 8), (12, 4)]);
    let read = |time, irp, response, tid| {
        let fields = [(0, 4), (0, 4), (512, 4), (0, 4), (0, 8), (0, 8), (irp, 8), (response, 8), (tid, 4)];
        kernel(time, 1, hook_id::DISK_IO_READ, 3, &fields)
    };
    let rows: &[(&[Event], &str, &[&str])] = &[
        // Two requests at the same time: the second one waits for the first.
        (
            &[init(10, 1), init(12, 2), read(30, 1, 20, 12), read(45, 2, 33, 12)],
            "service_time 35, io_time 53, busy 35, reads 2, read_bytes 1024, max 33",
            &[],
        ),
        // Out of order.
        (
            &[init(0, 1), init(20, 2), read(50, 2, 30, 12), read(100, 1, 100, 12)],
            "service_time 80, io_time 130, busy 100, reads 2, read_bytes 1024, max 100",
            &[],
        ),
        // The address of a packet is used again, and a request of another thread is not its own.
        (
            &[
                init(0, 1),
                init(20, 1),
                read(50, 1, 30, 12),
                init(60, 2),
                read(70, 2, 10, 16),
                read(90, 3, 5, 12),
            ],
            "service_time 45, io_time 45, busy 45, reads 3, read_bytes 1536, max 30",
            &["1 requests without a known completion", "2 transfers without a known request: no stack"],
        ),
    ];
    for (events, sums, remainders) in rows {
        let report = report(&costs::DISK, WHOLE, events);
        let row = format!("0: {sums}");
        let expected: Vec<&str> = std::iter::once(&*row).chain(remainders.iter().copied()).collect();
        assert_eq!(shown(&report, CostBy::Own(1)), expected);
    }
}

#[test]
fn paging_repeats_the_bytes_of_other_operations() {
    let read = |time, irp, size, flags| {
        let fields = [(0, 8), (irp, 8), (1, 8), (2, 8), (12, 4), (size, 4), (flags, 4), (0, 4)];
        kernel(time, 0, hook_id::FILE_IO_READ, 3, &fields)
    };
    let end = |time, irp, size, status| {
        kernel(time, 0, hook_id::FILE_IO_OPERATION_END, 3, &[(irp, 8), (size, 8), (status, 4)])
    };
    let events = [
        end(5, 9, 0, 0),
        read(10, 1, 4096, 0),
        read(12, 2, 8192, 2),
        end(20, 2, 8192, 0),
        end(30, 1, 100, 0),
        read(40, 3, 512, 0),
        end(45, 3, 512, 0xc000_0011),
        read(50, 4, 1, 0),
    ];
    let expected = [
        "read: duration 25, operations 3, reads 3, read_bytes 4609, transferred_bytes 100, failed 1, max 20",
        "1 ends of operations without a known beginning",
        "1 operations without a known end: no duration",
        "1 paging transfers, which repeat bytes of other operations",
    ];
    assert_eq!(shown(&report(&costs::FILE, WHOLE, &events), CostBy::Own(1)), expected);
}

#[test]
fn soft_faults_are_counted_by_kind() {
    let fault = |time, hook_id| kernel(time, 0, hook_id, 2, &[(0x1000, 8), (0x2000, 8)]);
    let events = [
        fault(10, hook_id::PAGE_FAULT_DEMAND_ZERO_FAULT),
        fault(20, hook_id::PAGE_FAULT_TRANSITION_FAULT),
        fault(30, hook_id::PAGE_FAULT_DEMAND_ZERO_FAULT),
    ];
    let expected = ["demand zero: soft_faults 2", "transition: soft_faults 1"];
    assert_eq!(shown(&report(&costs::FAULT, WHOLE, &events), CostBy::Own(1)), expected);
}

#[test]
fn bytes_count_once_for_the_owner_of_a_connection() {
    const V4: Fields = &[(0x0100_007f, 4), (0x0200_007f, 4), (0xbb01, 2), (0x5000, 2), (0, 8), (0, 4)];
    const V6: Fields =
        &[(0, 8), (1 << 56, 8), (0, 8), (2 << 56, 8), (0xbb01, 2), (0x5000, 2), (0, 8), (0, 4)];
    let event = |time, hook_id, pid: u64, size: u64, rest: Fields| {
        kernel(time, 0, hook_id, 2, &[&[(pid, 4), (size, 4)], rest].concat())
    };
    let events = [
        event(10, hook_id::TCP_IP_SEND_IPV4, 100, 1000, V4),
        event(20, hook_id::TCP_IP_RETRANSMIT_IPV4, 100, 1000, V4),
        event(30, hook_id::TCP_IP_RECV_IPV4, 100, 70, V4),
        event(40, hook_id::TCP_IP_TCP_COPY_IPV4, 100, 70, V4),
        event(50, hook_id::TCP_IP_RECV_IPV6, 200, 5, V6),
        event(60, hook_id::UDP_IP_SEND_IPV4, 200, 3, V4),
    ];
    let expected = [
        "TCP 127.0.0.1:443: bytes 1070, sent_bytes 1000, sends 1, received_bytes 70, receives 1, \
         retransmitted_bytes 1000, retransmits 1",
        "TCP [::1]:443: bytes 5, received_bytes 5, receives 1",
        "UDP 127.0.0.1:443: bytes 3, sent_bytes 3, sends 1",
    ];
    let found = report(&costs::NETWORK, WHOLE, &events);
    assert_eq!(shown(&found, OWN), expected);
    // The process in the header is not the owner.
    let by_process = column(&found, CostBy::Actor(By::Process), "bytes");
    assert_eq!(by_process.values().copied().collect::<Vec<_>>(), [1070, 8]);
}

#[test]
fn freed_memory_is_taken_from_its_allocation() {
    let event = |time, hook_id, base, size, flags| {
        kernel(time, 0, hook_id, 2, &[(base, 8), (size, 8), (8, 4), (flags, 4)])
    };
    let (alloc, free) = (hook_id::PAGE_FAULT_VIRTUAL_ALLOC, hook_id::PAGE_FAULT_VIRTUAL_FREE);
    let (commit, reserve, decommit, release) = (0x1000, 0x2000, 0x4000, 0x8000);
    let events = [
        event(10, alloc, 0x1_0000, 0x8000, reserve),
        event(20, alloc, 0x1_0000, 0x4000, commit),
        // Half of it is committed already.
        event(30, alloc, 0x1_2000, 0x4000, commit | reserve),
        event(40, free, 0x1_1000, 0x1000, decommit),
        event(50, free, 0x9_0000, 0x3000, release),
        event(60, free, 0x1_0000, 0x8000, release),
    ];
    let by = CostBy::Actor(By::Process);
    let unknown = "1 releases of memory that was not known to be committed";
    for (to, sums, has_unknown) in [
        (45, "outstanding_bytes 20480, allocated_bytes 24576, freed_bytes 4096, allocations 2", false),
        (99, "allocated_bytes 24576, freed_bytes 24576, allocations 2", true),
    ] {
        let mut expected = vec![format!("unknown (8): {sums}")];
        expected.extend(has_unknown.then(|| unknown.to_owned()));
        assert_eq!(shown(&report(&costs::MEMORY, (None, Some(to)), &events), by), expected);
    }
}

#[test]
fn interrupts_of_processors_are_independent() {
    let start = |time: i64| (START + time) as u64;
    let dpc = |time, processor, from| {
        kernel(time, processor, hook_id::PERF_INFO_DPC, 2, &[(start(from), 8), (0x10, 8)])
    };
    let isr = |time, processor, from| {
        let fields = [(start(from), 8), (0x20, 8), (u64::from(processor), 1), (7, 2), (0, 1)];
        kernel(time, processor, hook_id::PERF_INFO_ISR, 2, &fields)
    };
    let switch = |time, processor| {
        kernel(time, processor, hook_id::THREAD_C_SWITCH, 4, &[(12, 4), (16, 4), (0, 8), (0, 8)])
    };
    let events = [
        // Interrupted twice, once on another processor.
        isr(20, 0, 15),
        isr(30, 1, 12),
        dpc(40, 0, 10),
        switch(50, 0),
        // Neither can have begun before the switch, or inside of another one that is over.
        dpc(60, 0, 45),
        dpc(80, 0, 70),
        dpc(90, 0, 75),
    ];
    let report = report(&costs::INTERRUPT, (Some(18), None), &events);
    let expected = [
        "DPC: exclusive 30, calls 2, max 22",
        "ISR: exclusive 14, calls 2, max 12, unclaimed 1",
        "2 routines whose start contradicts other events",
    ];
    assert_eq!(shown(&report, OWN), expected);
    let rows = report.rows(CostBy::Actor(By::Frames(Grouping::Module)));
    assert_eq!(rows.iter().map(|row| row.names[0].as_str()).collect::<Vec<_>>(), ["[no module]"]);
}

fn disk_init(time: i64, header_tid: u32, irp: u64, tid: u64) -> Event {
    let fields = payload(&[(irp, 8), (tid, 4)]);
    Event(time, 0, (8, header_tid), Kind::Kernel(hook_id::DISK_IO_READ_INIT), 3, fields)
}

fn disk_read(time: i64, disk: u64, irp: u64, response: u64, tid: u64) -> Event {
    let fields = [(disk, 4), (0, 4), (512, 4), (0, 4), (0, 8), (0, 8), (irp, 8), (response, 8), (tid, 4)];
    Event(time, 1, (4, 99), Kind::Kernel(hook_id::DISK_IO_READ), 3, payload(&fields))
}

const DISK: CostBy = CostBy::Own(1);

#[test]
fn a_request_states_its_thread() {
    let events = [disk_init(10, 412, 1, 44), disk_read(30, 0, 1, 20, 44)];
    let found = report(&costs::DISK, WHOLE, &events);
    assert_eq!(found.remainders, []);
    let rows = found.rows(CostBy::Actor(By::Thread));
    assert_eq!(rows.iter().map(|row| row.tid).collect::<Vec<_>>(), [Some(44)]);
}

#[test]
fn filters_select_requests_of_transfers() {
    let events = [
        disk_init(10, 12, 1, 12),
        disk_init(11, 16, 2, 16),
        disk_read(20, 0, 1, 10, 12),
        disk_read(40, 0, 2, 10, 16),
        // Neither is complete.
        disk_init(50, 12, 3, 12),
        disk_init(60, 16, 4, 16),
        disk_init(70, 12, 5, 12),
    ];
    let one = [(Session::default(), &events[..])];
    let found = report_of(&costs::DISK, (None, Some(70)), &one, |view| view.tid() == Some(Tid(12)));
    let expected = [
        "0: service_time 10, io_time 10, busy 10, reads 1, read_bytes 512, max 10",
        "1 requests without a known completion",
    ];
    assert_eq!(shown(&found, DISK), expected);
    // Requests that are selected, in the selected time.
    assert_eq!(found.without_stack, 2);
}

#[test]
fn response_times_are_ticks_of_the_performance_counter() {
    let events = [disk_init(10, 12, 1, 12), disk_read(100, 0, 1, 20, 12)];
    let session = Session {
        clock: ClockKind::SystemTime,
        start_time: FileTime(START),
        perf_frequency: NonZeroU64::new(2_500_000).unwrap(),
        ..Session::default()
    };
    let found = report_of(&costs::DISK, WHOLE, &[(session, &events[..])], |_| true);
    assert_eq!(
        shown(&found, DISK),
        ["0: service_time 80, io_time 80, busy 80, reads 1, read_bytes 512, max 80"]
    );
}

#[test]
fn starts_are_times_of_their_session() {
    // The first session has another clock, of which trace time has the ticks.
    let fast = Session { perf_frequency: NonZeroU64::new(20_000_000).unwrap(), ..Session::default() };
    let start = |time: i64| (START + time) as u64;
    let fields = [(start(100), 8), (0, 8), (0, 8), (0, 8), (12, 4), (4096, 4)];
    let fault = [kernel(300, 0, hook_id::PAGE_FAULT_HARD_FAULT, 0, &fields)];
    let dpc = [kernel(300, 0, hook_id::PERF_INFO_DPC, 2, &[(start(100), 8), (0x10, 8)])];
    for (metric, events) in [(&costs::FAULT, &fault[..]), (&costs::INTERRUPT, &dpc[..])] {
        let sessions = [(fast.clone(), &[][..]), (Session::default(), events)];
        let found = report_of(metric, WHOLE, &sessions, |_| true);
        assert_eq!(found.value(&found.total(), &metric.columns[0]), 20_000, "{}", metric.name);
    }
}

#[test]
fn impossible_starts_are_no_durations() {
    let events =
        [disk_init(10, 12, 1, 12), disk_read(100, 0, 1, 1 << 62, 12), disk_read(101, 0, 2, u64::MAX, 12)];
    let expected = [
        "0: reads 2, read_bytes 1024",
        "2 transfers whose start contradicts other events: no duration",
        "1 transfers without a known request: no stack",
    ];
    assert_eq!(shown(&report(&costs::DISK, WHOLE, &events), DISK), expected);
    let fault = |time, started: i64| {
        let fields = [(started as u64, 8), (0, 8), (0, 8), (0, 8), (12, 4), (4096, 4)];
        kernel(time, 0, hook_id::PAGE_FAULT_HARD_FAULT, 0, &fields)
    };
    let events = [fault(10, 0), fault(20, START + 30), fault(40, i64::MIN)];
    let expected =
        ["hard: hard_faults 3, bytes 12288", "3 faults whose start contradicts other events: no duration"];
    assert_eq!(shown(&report(&costs::FAULT, WHOLE, &events), CostBy::Own(1)), expected);
}

#[test]
fn numbers_of_disks_are_limited() {
    let events: Vec<Event> = (0..3000).map(|disk| disk_read(disk as i64, disk, disk, 1, 12)).collect();
    let rows = report(&costs::DISK, WHOLE, &events).rows(DISK);
    assert_eq!(rows.len(), 1025);
    assert_eq!(rows.iter().map(|row| row.own.of(&costs::DISK.columns[2])).sum::<u64>(), 3000);
}

#[test]
fn what_two_sessions_record_counts_once() {
    let isr = |time, from: i64| {
        kernel(
            time,
            0,
            hook_id::PERF_INFO_ISR,
            2,
            &[((START + from) as u64, 8), (0x20, 8), (1, 1), (7, 2), (0, 1)],
        )
    };
    let suspend = |time| runtime(time, 16, 9, &[1, 0]);
    let restarted = |time| runtime(time, 16, 3, &[]);
    let send = |time| {
        let fields =
            [(8, 4), (100, 4), (0x0100_007f, 4), (0x0200_007f, 4), (0xbb01, 2), (0x5000, 2), (0, 8), (0, 4)];
        kernel(time, 0, hook_id::TCP_IP_SEND_IPV4, 2, &fields)
    };
    let events = |later: i64| {
        let mut events = vec![
            isr(20 + later, 15),
            disk_init(30 + later, 12, 1, 12),
            disk_read(40 + later, 0, 1, 10, 12),
            suspend(50 + later),
            restarted(60 + later),
            send(70 + later),
            // The same session records an equal event.
            send(72 + later),
        ];
        events.push(Event(80 + later, 0, (8, 16), Kind::Runtime(143), 0, compiled()));
        events
    };
    for (metric, column, count) in [
        (&costs::INTERRUPT, "calls", 1),
        (&costs::DISK, "reads", 1),
        (&costs::GC, "pauses", 1),
        (&costs::NETWORK, "sends", 2),
        (&costs::JIT, "methods", 1),
    ] {
        let (first, second) = (events(0), events(1));
        let sessions = [(Session::default(), &first[..]), (Session::default(), &second[..])];
        let found = report_of(metric, WHOLE, &sessions, |_| true);
        let column = metric.columns.iter().find(|known| known.name == column).unwrap();
        assert_eq!(found.total().of(column), count, "{}", metric.name);
        assert!(found.remainders.iter().any(|known| known.reason.contains("another session")));
    }
    // One session after the other.
    let (first, second) = (events(0), events(2_000_000));
    let sessions = [(Session::default(), &first[..]), (Session::default(), &second[..])];
    let found = report_of(&costs::NETWORK, WHOLE, &sessions, |_| true);
    assert_eq!(found.total().of(&costs::NETWORK.columns[2]), 4);
}

/// The end of the compilation of a method with a name.
fn compiled() -> Vec<u8> {
    let fields = payload(&[(1, 8), (0, 8), (0, 8), (100, 4), (0, 4), (8, 4)]);
    [fields, vec![0, 0, b'm', 0, 0, 0, 0, 0]].concat()
}

#[test]
fn methods_without_names_count() {
    let load = |time, method: u64, flags: u64| {
        let fields = [(method, 8), (0, 8), (0, 8), (100, 4), (0, 4), (flags, 4)];
        Event(time, 0, (8, 16), Kind::Runtime(141), 0, payload(&fields))
    };
    let events = [load(10, 1, 8), load(20, 2, 8 | 4 << 7), load(30, 3, 0)];
    let expected = [
        "[no name]: methods 2, native_bytes 200",
        "2 methods without a known start: no duration and IL size",
    ];
    assert_eq!(shown(&report(&costs::JIT, WHOLE, &events), OWN), expected);
}

#[test]
fn lost_records_leave_durations_unknown() {
    let begin = |time| {
        let texts = vec![0; 6];
        let fields = payload(&[(1, 8), (0, 8), (0, 4), (10, 4)]);
        Event(time, 0, (8, 16), Kind::Runtime(145), 0, [fields, texts].concat())
    };
    let events = [begin(10), loss(20, 0), Event(30, 0, (8, 16), Kind::Runtime(143), 0, compiled())];
    let expected = [
        "m: methods 1, native_bytes 100",
        "1 methods with lost records since their start: no duration and IL size",
    ];
    assert_eq!(shown(&report(&costs::JIT, WHOLE, &events), OWN), expected);
    let suspend = |time, reason| runtime(time, 16, 9, &[reason, 0]);
    let events = [suspend(10, 1), loss(20, 0), runtime(30, 16, 3, &[])];
    assert_eq!(
        shown(&report(&costs::GC, WHOLE, &events), OWN),
        ["1 restarts with lost records since the suspension"]
    );
    let events = [suspend(10, 1), suspend(20, 1), runtime(30, 16, 3, &[])];
    let expected =
        ["no known collection: paused 10, pauses 1, max 10", "1 suspensions without a known restart"];
    assert_eq!(shown(&report(&costs::GC, WHOLE, &events), OWN), expected);
    let commit = [(0x1000, 8), (0x1000, 8), (8, 4), (0x1000, 4)];
    let event = |time| kernel(time, 0, hook_id::PAGE_FAULT_VIRTUAL_ALLOC, 2, &commit);
    let events = [event(10), loss(20, 0), event(30)];
    let found = report(&costs::MEMORY, WHOLE, &events);
    let known: Vec<_> = found.remainders.iter().map(|known| (known.reason, known.sums.amount)).collect();
    assert_eq!(known, [("ranges that may have been freed: records are missing", 0x1000)]);
}

#[test]
fn runtimes_of_a_process_are_independent() {
    let event = |time, id, fields: &[u32], clr: u8| {
        let fields: Vec<_> = fields.iter().map(|value| ((*value).into(), 4)).collect();
        Event(time, 0, (8, 16), Kind::Runtime(id), 1, [payload(&fields), vec![clr, 0]].concat())
    };
    let start = |time, clr| event(time, 1, &[1, 0, 0, 0], clr);
    let events = [start(10, 1), start(20, 2), event(30, 2, &[1, 0], 1), event(50, 2, &[1, 0], 2)];
    let expected = ["generation 0: collections 2, duration 50, generation_0 2"];
    assert_eq!(shown(&report(&costs::GC, WHOLE, &events), OWN), expected);
}

#[test]
fn unpaired_events_count_if_they_are_selected() {
    let events = [runtime(10, 16, 9, &[1, 0]), runtime(110, 16, 9, &[1, 0]), runtime(120, 20, 9, &[1, 0])];
    let one = [(Session::default(), &events[..])];
    let found = report_of(&costs::GC, (Some(100), None), &one, |view| view.tid() == Some(Tid(16)));
    assert_eq!(shown(&found, OWN), ["1 pauses that were not over at the end"]);
}

#[test]
fn the_end_of_a_process_frees_what_it_got_before_its_start() {
    let process = |time, hook_id| {
        let fields = [(1, 8), (20, 4), (8, 4), (0, 4), (0, 4), (0, 8), (0, 4)];
        Event(
            time,
            0,
            (8, 12),
            Kind::Kernel(hook_id),
            3,
            [payload(&fields), b"a.exe\0\0\0".to_vec()].concat(),
        )
    };
    let commit = [(0x1000, 8), (0x1000, 8), (20, 4), (0x1000, 4)];
    let events = [
        kernel(10, 0, hook_id::PAGE_FAULT_VIRTUAL_ALLOC, 2, &commit),
        process(20, hook_id::PROCESS_START),
        process(30, hook_id::PROCESS_END),
    ];
    let found = report(&costs::MEMORY, WHOLE, &events);
    assert_eq!(found.total().of(&costs::MEMORY.columns[0]), 0);
    assert_eq!(found.total().of(&costs::MEMORY.columns[2]), 0x1000);
}

#[test]
fn rows_are_sorted_by_all_columns() {
    let fault = |time, tid| {
        let fields = payload(&[(0x1000, 8), (0x2000, 8)]);
        Event(time, 0, (8, tid), Kind::Kernel(hook_id::PAGE_FAULT_DEMAND_ZERO_FAULT), 2, fields)
    };
    let events = [fault(10, 12), fault(20, 16), fault(30, 16), fault(40, 20), fault(50, 20), fault(60, 20)];
    let rows = report(&costs::FAULT, WHOLE, &events).rows(CostBy::Actor(By::Thread));
    assert_eq!(rows.iter().map(|row| row.tid).collect::<Vec<_>>(), [Some(20), Some(16), Some(12)]);
}

/// Threads with tags, of services that are listed at the end, as in traces of Windows.
#[test]
fn threads_belong_to_services() {
    let thread = |time, hook_id, pid, tid, tag| {
        let fields =
            [(pid, 4), (tid, 4), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (tag, 4), (0, 4)];
        kernel(time, 0, hook_id, 3, &fields)
    };
    let running = |pid, tid, tag| thread(0, hook_id::THREAD_DC_START, pid, tid, tag);
    let of = |(pid, tid), event: Event| Event(event.0, event.1, (pid, tid), event.3, event.4, event.5);
    let commit = |pid: u32, tid: u32, pages: u64| {
        let fields = [(u64::from(tid) << 32, 8), (pages << 12, 8), (pid.into(), 4), (0x1000, 4)];
        of((pid, tid), kernel(10, 0, hook_id::PAGE_FAULT_VIRTUAL_ALLOC, 0, &fields))
    };
    let service = |pid, tag, name: &str| {
        let texts = [name, "", ""]
            .map(|text| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
        let fields = payload(&[(pid, 4), (4, 4), (tag, 4)]);
        Event(
            20,
            0,
            (8, 12),
            Kind::Kernel(hook_id::SYSTEM_CONFIG_SERVICES),
            2,
            [fields, texts.concat()].concat(),
        )
    };
    let changed = kernel(5, 0, hook_id::THREAD_SUB_PROCESS_TAG_CHANGED, 0, &[(3, 4), (4, 4)]);
    let events = [
        running(8, 12, 3),
        running(8, 16, 4),
        running(8, 20, 0),
        running(8, 24, 3),
        running(8, 28, 77),
        running(40, 44, 0),
        running(60, 64, 3),
        of((8, 24), changed),
        commit(8, 12, 1),
        commit(8, 16, 2),
        commit(8, 20, 4),
        commit(8, 24, 8),
        commit(8, 28, 16),
        commit(40, 44, 32),
        commit(60, 64, 64),
        thread(15, hook_id::THREAD_DC_END, 8, 12, 3),
        service(8, 3, "Audio"),
        service(8, 4, "Events"),
        service(8, 4, "Events"),
        service(40, 9, "Spooler"),
        service(0, 5, "Stopped"),
    ];
    let pages = |events: &[Event]| -> Vec<(String, u64)> {
        let report = report(&costs::MEMORY, WHOLE, events);
        assert_eq!(report.profile.lists_services(), events.len() == 21);
        let bytes = column(&report, CostBy::Actor(By::Service), "allocated_bytes");
        bytes.into_iter().map(|(name, bytes)| (name, bytes >> 12)).collect()
    };
    let expected = [
        ("Audio in unknown (8)", 1),
        ("Events in unknown (8)", 2),
        ("Spooler in unknown (40)", 32),
        ("[no service]", 64),
        ("several services in unknown (8)", 8),
        ("unknown service in unknown (8)", 20),
    ];
    assert_eq!(pages(&events), expected.map(|(name, pages)| (name.to_owned(), pages)));
    assert_eq!(pages(&events[..16]), [("[no service]".to_owned(), 127)]);
}

/// A process that has ended has unloaded its modules, and its program is still known.
#[test]
fn programs_of_processes_that_ended_are_known() {
    let process = |time, hook_id| {
        let fields = payload(&[(0, 8), (8, 4), (4, 4), (0, 4), (0, 4), (0, 8), (0, 4)]);
        Event(time, 0, (8, 12), Kind::Kernel(hook_id), 3, [fields, b"a.exe\0\0\0".to_vec()].concat())
    };
    let image = |time, hook_id, base, path: &str| {
        let fields = [(base, 8), (0x1000, 8), (8, 4), (0, 4), (1, 4), (0, 4), (base, 8), (0, 8), (0, 8)];
        let path = path.encode_utf16().chain([0]).flat_map(u16::to_le_bytes);
        Event(time, 0, (8, 12), Kind::Kernel(hook_id), 2, payload(&fields).into_iter().chain(path).collect())
    };
    let (program, library) = (r"\Device\HarddiskVolume1\App\a.exe", r"\Device\HarddiskVolume1\App\b.dll");
    let mut events = vec![
        process(0, hook_id::PROCESS_START),
        image(1, hook_id::IMAGE_LOAD, 0x10_0000, program),
        image(2, hook_id::IMAGE_LOAD, 0x20_0000, library),
        kernel(10, 0, hook_id::PAGE_FAULT_VIRTUAL_ALLOC, 0, &[(0, 8), (1 << 12, 8), (8, 4), (0x1000, 4)]),
    ];
    for has_ended in [false, true] {
        if has_ended {
            events.extend([
                image(20, hook_id::IMAGE_UNLOAD, 0x20_0000, library),
                image(21, hook_id::IMAGE_UNLOAD, 0x10_0000, program),
                process(22, hook_id::PROCESS_END),
                kernel(30, 0, hook_id::THREAD_SUB_PROCESS_TAG_CHANGED, 0, &[(0, 4), (0, 4)]),
            ]);
        }
        let report = report(&costs::MEMORY, WHOLE, &events);
        let programs: Vec<&str> = report.profile.processes().iter().map(|process| &*process.path).collect();
        assert_eq!(programs, [program], "{has_ended}");
    }
}
