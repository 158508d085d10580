//! Sessions and their events, with a fake of the ETW functions: `scripts/with-fake cargo test`.
#![cfg(windows)]

mod fake;
mod sinks;

use std::time::Duration;

use fake::{EVENTS, ITEM, PROCESSORS, PROVIDER};
use sinks::{Collector, Observed};
use stackhound_etw_fake::harness::wait_for;
use stackhound_windows::Error;
use stackhound_windows::etw::{
    self, Clock, Consumer, Delivery, Enable, Ended, Filter, Session, StartSession,
};

fn settings(name: &str) -> StartSession<'_> {
    StartSession {
        name,
        file: None,
        guid: [0; 16],
        clock: 1,
        mode: 0x100,
        buffer_size: 64,
        minimum_buffers: 4,
        maximum_buffers: 64,
        flush_timer: 1,
        enable_flags: 0,
    }
}

fn start(name: &str) -> Session {
    Session::start(&settings(name)).expect("a session")
}

fn listen(name: &str, delivery: Delivery, collector: &Collector) -> Consumer {
    let opened = etw::open(name, delivery).expect("opened");
    opened.run(collector.sink()).expect("a thread")
}

#[track_caller]
fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> (&'static str, u32) {
    result.unwrap_err().code().expect("an error of Windows")
}

#[test]
fn events_arrive_with_header_items_and_payload() {
    let test = "events_arrive_with_header_items_and_payload";
    let Some(_fake) = fake::run(test, "[*]\ntrace = TRACE\n") else { return };
    let _session = start("one");
    let opened = etw::open("one", Delivery::Events).expect("opened");
    assert!(!opened.by_buffers());
    let facts = opened.facts().clone();
    assert_eq!(facts.processors, u32::from(PROCESSORS));
    let collector = Collector::default();
    let consumer = opened.run(collector.sink()).expect("a thread");
    wait_for("the trace ends", || consumer.has_ended());
    assert_eq!(consumer.events(), EVENTS);
    consumer.finish(Ended::Stopped).expect("no error");
    let received = collector.received();
    assert_eq!(received.events.len() as u64, EVENTS);
    assert!(received.buffers > 3 && received.dropped);
    let mut ids: Vec<u16> = Vec::new();
    for Observed { header, processor, items, payload } in &received.events {
        let id = u16::from_le_bytes([header[0x28], header[0x29]]);
        assert_eq!(header[0x18..0x28], PROVIDER.0);
        assert_eq!((header[0x2a], header[0x2c], header[0x2d]), (1, 4, 2));
        assert_eq!(*processor, id % PROCESSORS);
        assert_eq!(items[..], [(ITEM.0, ITEM.1.to_vec())]);
        assert_eq!(payload[..], id.to_le_bytes());
        ids.push(id);
    }
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(0..EVENTS as u16));
}

#[test]
fn whole_buffers_arrive_if_windows_supports_them() {
    let test = "whole_buffers_arrive_if_windows_supports_them";
    let Some(_fake) = fake::run(test, "[*]\ntrace = TRACE\n") else { return };
    let _session = start("one");
    let collector = Collector::default();
    let consumer = listen("one", Delivery::WholeBuffers, &collector);
    assert!(consumer.by_buffers());
    wait_for("the trace ends", || consumer.has_ended());
    consumer.finish(Ended::Stopped).expect("no error");
    let received = collector.received();
    assert!(received.events.is_empty());
    // Each buffer with its header, which begins with the size of the buffer.
    assert!(received.raw.len() > 3);
    for buffer in &received.raw {
        assert_eq!(u32::from_le_bytes(buffer[..4].try_into().unwrap()) as usize, buffer.len());
    }
}

#[test]
fn older_systems_deliver_events() {
    let test = "older_systems_deliver_events";
    let Some(_fake) = fake::run(test, "raw = off\n[*]\ntrace = TRACE\n") else { return };
    let _session = start("one");
    let collector = Collector::default();
    let consumer = listen("one", Delivery::WholeBuffers, &collector);
    assert!(!consumer.by_buffers());
    wait_for("the trace ends", || consumer.has_ended());
    consumer.finish(Ended::Stopped).expect("no error");
    assert_eq!(collector.received().events.len() as u64, EVENTS);
}

#[test]
fn events_are_delivered_if_whole_buffers_are_refused() {
    let test = "events_are_delivered_if_whole_buffers_are_refused";
    let text = "error OpenTraceFromRealTimeLogger = 50\n[*]\ntrace = TRACE\n";
    let Some(_fake) = fake::run(test, text) else { return };
    let _session = start("one");
    assert!(!listen("one", Delivery::WholeBuffers, &Collector::default()).by_buffers());
}

#[test]
fn a_stop_in_a_burst_delivers_everything_and_nothing_afterwards() {
    let test = "a_stop_in_a_burst_delivers_everything_and_nothing_afterwards";
    let text = "[*]\ntrace = TRACE\nrate = 300000\nrounds = forever\n";
    let Some(fake) = fake::run(test, text) else { return };
    for delivery in [Delivery::Events, Delivery::WholeBuffers] {
        let session = start("one");
        let collector = Collector::default();
        let consumer = listen("one", delivery, &collector);
        wait_for("some buffers", || consumer.buffers() > 50);
        session.stop().expect("stopped");
        consumer.finish(Ended::Stopped).expect("no error");
        let then = collector.counts();
        assert!(collector.received().dropped);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(collector.counts(), then, "a call came after the end");
        // No event is missing.
        let last = fake.log("ProcessTrace").pop().expect("a line");
        if delivery == Delivery::Events {
            // A burst may be too much for the session, which then reports its losses.
            let count = |name: &str| -> u64 {
                let rest = last.split_once(name).expect("a counter").1;
                rest.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
            };
            assert_eq!(count(" delivered=") + count(" notices="), then.0 as u64, "{last} {then:?}");
        }
        assert!(last.ends_with("-> 0"), "{last}");
    }
}

#[test]
fn a_continuing_session_is_not_stopped() {
    let test = "a_continuing_session_is_not_stopped";
    let text = "exists = theirs\n[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(_fake) = fake::run(test, text) else { return };
    let (session, state) = Session::attach("theirs").expect("attached");
    assert_eq!(state.name, "theirs");
    let collector = Collector::default();
    let consumer = listen("theirs", Delivery::Events, &collector);
    wait_for("some events", || consumer.events() > 1000);
    consumer.finish(Ended::GoesOn).expect("no error");
    let then = collector.counts();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(collector.counts(), then);
    assert_eq!(session.query().expect("it runs").name, "theirs");
}

#[test]
fn a_panic_in_the_sink_is_returned() {
    let test = "a_panic_in_the_sink_is_returned";
    let text = "[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(_fake) = fake::run(test, text) else { return };
    for delivery in [Delivery::Events, Delivery::WholeBuffers] {
        let session = start("one");
        let collector = Collector::panics_at(5);
        let consumer = listen("one", delivery, &collector);
        wait_for("the panic", || consumer.has_ended());
        session.stop().expect("stopped");
        let error = consumer.finish(Ended::Stopped).unwrap_err();
        assert!(matches!(&error, Error::Panicked(message) if message == "call 5"), "{error}");
        assert!(collector.received().dropped);
        assert_eq!(collector.counts().1, 5, "no call follows a panic");
    }
}

/// Processing has often not begun when the trace is closed.
#[test]
fn a_consumer_can_finish_at_once() {
    let test = "a_consumer_can_finish_at_once";
    let text = "exists = theirs\n[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(_fake) = fake::run(test, text) else { return };
    for _ in 0..50 {
        let consumer = listen("theirs", Delivery::Events, &Collector::default());
        consumer.finish(Ended::GoesOn).expect("no error");
    }
}

#[test]
fn a_sink_that_breaks_ends_the_processing() {
    let test = "a_sink_that_breaks_ends_the_processing";
    let text = "[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(_fake) = fake::run(test, text) else { return };
    let session = start("one");
    let collector = Collector::breaks_at(7);
    let consumer = listen("one", Delivery::Events, &collector);
    wait_for("the break", || consumer.has_ended());
    consumer.finish(Ended::GoesOn).expect("no error");
    assert_eq!(collector.counts().1, 7);
    session.stop().expect("it still ran");
}

#[test]
fn a_dropped_consumer_frees_its_sink() {
    let test = "a_dropped_consumer_frees_its_sink";
    let text = "[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(fake) = fake::run(test, text) else { return };
    let _session = start("one");
    let collector = Collector::default();
    drop(listen("one", Delivery::Events, &collector));
    assert!(collector.received().dropped);
    drop(etw::open::<sinks::Recorder>("one", Delivery::Events).expect("opened"));
    assert_eq!(fake.log("CloseTrace").len(), 2);
}

#[test]
fn errors_of_windows_keep_their_function_and_number() {
    let test = "errors_of_windows_keep_their_function_and_number";
    let text = "exists = theirs\nerror StartTraceW denied = 5\nerror StartTraceW many = 1450\n\
                error EnableTraceEx2 {07070707-0707-0707-0707-070707070707} = 5\n";
    let Some(_fake) = fake::run(test, text) else { return };
    assert_eq!(code(Session::start(&settings("theirs"))), ("StartTraceW", 183));
    assert_eq!(code(Session::start(&settings("denied"))), ("StartTraceW", 5));
    assert_eq!(code(Session::start(&settings("many"))), ("StartTraceW", 1450));
    assert_eq!(code(Session::attach("missing")), ("ControlTraceW", 4201));
    assert_eq!(code(Session::stop_by_name("missing")), ("ControlTraceW", 4201));
    // Windows reports this only when the trace is processed, as for a session that has ended.
    let opened = etw::open::<sinks::Recorder>("missing", Delivery::WholeBuffers).expect("opened");
    assert!(opened.run(Collector::default().sink()).expect("a thread").finish(Ended::Stopped).is_ok());
    let enable =
        Enable { provider: PROVIDER.0, level: 5, any: 0, all: 0, properties: 0, filters: Vec::new() };
    assert_eq!(code(start("mine").enable(&enable)), ("EnableTraceEx2", 5));
    let error = Session::start(&settings("with a \0 in it")).unwrap_err();
    assert!(matches!(error, Error::ZeroInText));
    let long = "x".repeat(1024);
    let file = Some(std::path::Path::new(&long));
    let error = Session::start(&StartSession { file, ..settings("file") }).unwrap_err();
    assert!(matches!(error, Error::TextTooLong { found: 1024, limit: 1023 }));
}

#[test]
fn a_session_is_started_with_its_numbers() {
    let test = "a_session_is_started_with_its_numbers";
    let Some(fake) = fake::run(test, "") else { return };
    let file = fake.path("tee.etl");
    let session = Session::start(&StartSession {
        file: Some(&file),
        guid: PROVIDER.0,
        clock: 2,
        mode: 0x0200_0111,
        flush_timer: 5,
        enable_flags: 0x87,
        ..settings("numbers")
    })
    .expect("a session");
    let line = fake.log("StartTraceW name=").pop().expect("a line");
    for part in [
        "name=\"numbers\"",
        "tee.etl\"",
        "guid={07070707-0707-0707-0707-070707070707}",
        "clock=2 buffer_kib=64 minimum=4 maximum=64 flush=5ms mode=0x2000111 flags=0x87",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let state = session.query().expect("it runs");
    assert_eq!((state.name.as_str(), state.mode, state.enable_flags), ("numbers", 0x0200_0111, 0x87));
    assert!(state.file.ends_with("tee.etl"));
    session.update(90, 7).expect("updated");
    let state = session.query().expect("it runs");
    assert_eq!((state.maximum_buffers, state.flush_timer), (90, 7));
    session.flush().expect("flushed");
    session.set_stacks(&[[7; 24], [8; 24]]).expect("stacks");
    session.set_groups(&[1, 0, 0, 0, 0x40, 0, 0, 0]).expect("groups");
    etw::set_sample_interval(10_000).expect("an interval");
    let lines = fake.log("TraceSetInformation");
    assert!(lines[0].contains("stacks {07070707-0707-0707-0707-070707070707}/7 {08080808-"), "{lines:?}");
    assert!(lines[1].contains("class=4 0100000000000000000000000000000040000000"), "{lines:?}");
    assert!(lines[2].contains("class=5 0000000010270000"), "{lines:?}");
}

#[test]
fn providers_are_enabled_with_filters() {
    let test = "providers_are_enabled_with_filters";
    let Some(fake) = fake::run(test, "") else { return };
    let session = start("one");
    let ids = [1, 0, 2, 0, 10, 0, 20, 0];
    let pids = [4, 0, 0, 0];
    let filters = vec![Filter { kind: 0x8000_0200, bytes: &ids }, Filter { kind: 0x8000_0004, bytes: &pids }];
    let enable = Enable { provider: PROVIDER.0, level: 4, any: 0x10, all: 0x20, properties: 4, filters };
    session.enable(&enable).expect("enabled");
    session.capture_state(PROVIDER.0, 4, u64::MAX).expect("captured");
    session.disable(PROVIDER.0).expect("disabled");
    let lines = fake.log("EnableTraceEx2");
    let guid = "{07070707-0707-0707-0707-070707070707}";
    for part in [
        &format!("enable {guid} level=4 any=0x10 all=0x20"),
        "version=2 property=0x4",
        "filter(ids in count=2 [10, 20])",
        "filter(pids [4])",
    ] {
        assert!(lines[0].contains(part), "{part} is not in {lines:?}");
    }
    assert!(lines[1].contains(&format!("capture {guid}")) && lines[2].contains(&format!("disable {guid}")));
}

#[test]
fn all_sessions_are_listed() {
    let test = "all_sessions_are_listed";
    let names: Vec<String> = (0..60).map(|number| format!("session {number}")).collect();
    let Some(_fake) = fake::run(test, &format!("exists = {}\n", names.join(", "))) else { return };
    let listed: Vec<String> = etw::list().expect("a list").into_iter().map(|state| state.name).collect();
    assert!(names.iter().all(|name| listed.contains(name)), "{listed:?}");
    Session::stop_by_name("session 7").expect("stopped");
    let listed = etw::list().expect("a list");
    assert!(listed.iter().all(|state| state.name != "session 7"));
}

#[test]
fn administrators_can_enable_the_privilege() {
    etw::take_system_profile_privilege().expect("the privilege");
}

#[test]
fn clocks_are_read_together_with_the_time() {
    let frequency = Clock::performance_frequency().expect("a frequency") as i64;
    for clock in [Clock::PerformanceCounter, Clock::SystemTime] {
        let one = clock.now().expect("a moment");
        std::thread::sleep(Duration::from_millis(20));
        let other = clock.now().expect("a moment");
        let by_time = other.system_time - one.system_time;
        let per_second = if clock == Clock::SystemTime { 10_000_000 } else { frequency };
        let by_clock = (other.raw - one.raw) * 10_000_000 / per_second;
        assert!(by_time >= 100_000, "{by_time}");
        assert!((by_time - by_clock).abs() < 50_000, "{clock:?}: {by_time} {by_clock}");
    }
    let cycles = |moment: Option<etw::Moment>| moment.map(|moment| moment.raw);
    assert!(cycles(Clock::CpuCycles.now()) < cycles(Clock::CpuCycles.now()));
}
