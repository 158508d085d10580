//! Tests the fake with a consumer that calls the functions of Windows directly, before other tests
//! use the fake.
//!
//! Runs under Wine with the fake: `scripts/with-fake cargo test --target x86_64-pc-windows-gnu`.
//! Without the fake, Wine starts sessions that cannot be opened.
#![cfg(windows)]

mod calls;
mod trace_files;

use calls::{Block, Interface, ReceivedEvent, open, process, session_names, start, stop, with_settings};
use stackhound_etw_fake::harness::wait_for;
use trace_files::{EVENTS, PROCESSORS, TICKS};
use windows_sys::Win32::System::Diagnostics::Etw::{
    CLASSIC_EVENT_ID, CONTROLTRACE_HANDLE, CloseTrace, ENABLE_TRACE_PARAMETERS,
    EVENT_CONTROL_CODE_ENABLE_PROVIDER, EVENT_FILTER_DESCRIPTOR, EVENT_FILTER_TYPE_PID,
    EVENT_TRACE_CONTROL_FLUSH, EVENT_TRACE_CONTROL_QUERY, EVENT_TRACE_CONTROL_STOP, EnableTraceEx2,
    PROCESSTRACE_HANDLE, TraceSetInformation, TraceStackTracingInfo,
};
use windows_sys::core::GUID;

/// The maximum time by which an event follows a later one.
fn disorder(received: &[ReceivedEvent]) -> i64 {
    let mut latest = i64::MIN;
    let delays = received.iter().map(|event| {
        latest = latest.max(event.time);
        latest - event.time
    });
    delays.max().unwrap_or(0)
}

#[test]
fn every_event_arrives_in_the_order_of_its_processor() {
    for seed in 0..4 {
        for (disorder_ms, bound) in [(0, 0), (5, 5 * TICKS)] {
            let settings = format!("[*]\nseed = {seed}\ndisorder_ms = {disorder_ms}\n");
            let (received, code) = with_settings(&settings, || {
                let handle = start("fake", Block::new("fake")).unwrap();
                let trace = open("fake", Interface::Events).unwrap();
                let outcome = process(trace);
                assert_eq!(stop(handle), 4201, "the session ended with its trace");
                outcome
            });
            assert_eq!(code, 0);
            assert_eq!(received.events.len() as u64, EVENTS);
            for processor in 0..PROCESSORS {
                let of_it = received.events.iter().filter(|event| event.processor == processor);
                let numbers: Vec<u32> = of_it.map(|event| event.number).collect();
                assert!(numbers.is_sorted(), "{processor}: {numbers:?}");
                assert!(!numbers.is_empty());
            }
            assert!(disorder(&received.events) <= bound, "seed {seed}: {}", disorder(&received.events));
            if bound > 0 {
                assert!(disorder(&received.events) > 0, "seed {seed} changes nothing");
            }
            assert!(received.buffers > 1);
            assert!(received.ended_in_callback, "the last call is that of the buffer callback");
        }
    }
}

#[test]
fn raw_buffers_contain_the_same_events() {
    let (received, code) = with_settings("[*]\nseed = 9\n", || {
        start("fake", Block::new("fake")).unwrap();
        process(open("fake", Interface::Raw).unwrap())
    });
    assert_eq!((code, received.events.len() as u64), (0, EVENTS));
    for processor in 0..PROCESSORS {
        let of_it = received.events.iter().filter(|event| event.processor == processor);
        assert!(of_it.map(|event| event.number).is_sorted());
    }
}

#[test]
fn the_functions_for_raw_buffers_can_be_missing() {
    if std::env::var_os("STACKHOUND_TEST_NO_RAW").is_some() {
        assert!(!calls::has_raw());
        return;
    }
    assert!(calls::has_raw());
    with_settings("raw = off\n", || {
        let test = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_functions_for_raw_buffers_can_be_missing"])
            .env("STACKHOUND_TEST_NO_RAW", "1")
            .output()
            .unwrap();
        assert!(test.status.success(), "{test:?}");
    });
}

#[test]
fn lost_buffers_are_reported_and_counted() {
    let (received, counters) = with_settings("[*]\nlose_every = 5\nat_end = wait\n", || {
        let handle = start("fake", Block::new("fake")).unwrap();
        let trace = open("fake", Interface::Events).unwrap();
        let stopper = std::thread::spawn(move || {
            let mut block = Block::new("fake");
            wait_for("every event, or a report of its loss", || {
                assert_eq!(block.control(handle, EVENT_TRACE_CONTROL_QUERY), 0);
                calls::received_events() + u64::from(block.counters().0) == EVENTS
            });
            let counters = block.counters();
            assert_eq!(block.control(handle, EVENT_TRACE_CONTROL_FLUSH), 0);
            assert_eq!(block.control(handle, EVENT_TRACE_CONTROL_STOP), 0);
            counters
        });
        let (received, code) = process(trace);
        assert_eq!(code, 0, "a stopped session ends without an error");
        (received, stopper.join().unwrap())
    });
    assert_eq!(received.events.len() as u64 + u64::from(counters.0), EVENTS);
    assert!(counters.1 > 0 && received.lost > 0 && received.lost <= counters.1);
}

#[test]
fn a_slow_consumer_loses_buffers_and_the_counters_add_up() {
    let log = with_settings(
        "[*]\nrate = 200000\nrounds = forever\nstop_after = 60000\nbuffers = 2\ndelay_ms = 20\ndelay_every = 1\n",
        || {
            start("fake", Block::new("fake")).unwrap();
            let (received, code) = process(open("fake", Interface::Events).unwrap());
            assert_eq!(code, 0);
            assert!(received.events.windows(2).all(|pair| pair[0].time <= pair[1].time + 500 * TICKS));
            (received.events.len(), calls::log())
        },
    );
    let (delivered, log) = log;
    let line = log.lines().find(|line| line.contains("generated=")).expect("a summary");
    let number = |key: &str| -> u64 {
        let value = line.split_once(&format!("{key}=")).expect(key).1.split(' ').next().unwrap();
        value.parse().unwrap()
    };
    assert_eq!(number("generated"), 60_000);
    assert_eq!(number("delivered"), delivered as u64);
    assert_eq!(number("delivered") + number("events_lost"), 60_000);
    assert!(number("events_lost") > 0);
}

#[test]
fn closing_a_trace_ends_processing() {
    let (received, code) = with_settings("[*]\nrounds = forever\ndelay_ms = 5\n", || {
        let handle = start("fake", Block::new("fake")).unwrap();
        let trace = open("fake", Interface::Events).unwrap();
        let closer = std::thread::spawn(move || {
            wait_for("an event", || calls::received_events() > 0);
            // SAFETY: no preconditions.
            unsafe { CloseTrace(PROCESSTRACE_HANDLE { Value: trace }) }
        });
        let outcome = process(trace);
        assert_eq!(closer.join().unwrap(), 7007, "the call was successful and processing will end");
        assert_eq!(stop(handle), 0, "the session continues");
        outcome
    });
    assert_eq!(code, 0);
    assert!(!received.events.is_empty());
}

#[test]
fn a_callback_can_end_processing() {
    let (received, code) = with_settings("[*]\n", || {
        start("fake", Block::new("fake")).unwrap();
        let trace = open("fake", Interface::Events).unwrap();
        calls::stop_after_buffer(3);
        process(trace)
    });
    assert_eq!((code, received.buffers), (1223, 3));
}

#[test]
fn sessions_are_refused_and_listed() {
    with_settings(
        "exists = Other\nerror EnableTraceEx2 {01010101-0101-0101-0101-010101010101} = 5\n",
        || {
            let handle = start("fake", Block::new("fake")).unwrap();
            assert_eq!(start("fake", Block::new("fake")), Err(183));
            assert_eq!(start("other", Block::new("other")), Err(183));
            let mut named = session_names();
            named.sort();
            assert_eq!(named, ["Other", "fake"]);
            // ProcessTrace reports that the session is not running.
            let unknown = open("unknown", Interface::Events).unwrap();
            assert_eq!(process(unknown).1, 4201);
            assert_eq!(Block::new("unknown").control(0, EVENT_TRACE_CONTROL_STOP), 4201);
            let refused = GUID::from_u128(0x01010101_0101_0101_0101_010101010101);
            let level = 5;
            // SAFETY: the pointers are valid during the call.
            let enable = |guid: &GUID| unsafe {
                let code = EVENT_CONTROL_CODE_ENABLE_PROVIDER;
                EnableTraceEx2(
                    CONTROLTRACE_HANDLE { Value: handle },
                    guid,
                    code,
                    level,
                    0x10,
                    0,
                    0,
                    std::ptr::null(),
                )
            };
            assert_eq!(enable(&refused), 5);
            assert_eq!(enable(&GUID::from_u128(7)), 0);
            assert_eq!(Block::new("Other").control(0, EVENT_TRACE_CONTROL_STOP), 0);
            assert_eq!(stop(handle), 0);
            assert_eq!(session_names().len(), 0);
        },
    );
    for code in [5, 1450] {
        let refused =
            with_settings(&format!("error StartTraceW = {code}\n"), || start("fake", Block::new("fake")));
        assert_eq!(refused, Err(code));
    }
    let denied = with_settings("error OpenTraceW = 5\n", || {
        let handle = start("fake", Block::new("fake")).unwrap();
        let denied = open("fake", Interface::Events);
        assert_eq!(stop(handle), 0);
        denied
    });
    assert_eq!(denied, Err(5));
}

#[test]
fn the_number_of_sessions_is_limited() {
    with_settings("", || {
        let mut handles = Vec::new();
        let refused = loop {
            let name = format!("n{}", handles.len());
            match start(&name, Block::new(&name)) {
                Ok(handle) => handles.push(handle),
                Err(code) => break code,
            }
        };
        assert_eq!((refused, handles.len()), (1450, 64));
        for handle in handles {
            assert_eq!(stop(handle), 0);
        }
    });
}

#[test]
fn requests_are_logged() {
    let log = with_settings("[*]\n", || {
        let handle = start("fake", Block::new("fake")).unwrap();
        let control = CONTROLTRACE_HANDLE { Value: handle };
        let pids = [4u32, 700];
        let mut filter =
            EVENT_FILTER_DESCRIPTOR { Ptr: pids.as_ptr() as u64, Size: 8, Type: EVENT_FILTER_TYPE_PID };
        let parameters = ENABLE_TRACE_PARAMETERS {
            Version: 2,
            EnableProperty: 4,
            EnableFilterDesc: &mut filter,
            FilterDescCount: 1,
            ..ENABLE_TRACE_PARAMETERS::default()
        };
        let provider = GUID::from_u128(0x7dd42a49_5329_4832_8dfd_43d979153a88);
        let code = EVENT_CONTROL_CODE_ENABLE_PROVIDER;
        // SAFETY: the pointers are valid during the call.
        assert_eq!(unsafe { EnableTraceEx2(control, &provider, code, 4, 0x10, 0, 0, &parameters) }, 0);
        let perf_info = GUID::from_u128(0xce1dbfb4_137e_4da6_87b0_3f59aa102cbc);
        let ids = [CLASSIC_EVENT_ID { EventGuid: perf_info, Type: 0x33, Reserved: [0; 7] }];
        // SAFETY: the pointer is valid during the call, and the size is that of the array.
        let set = unsafe { TraceSetInformation(control, TraceStackTracingInfo, ids.as_ptr().cast(), 24) };
        assert_eq!(set, 0);
        assert_eq!(stop(handle), 0);
        calls::log()
    });
    for expected in [
        "StartTraceW name=\"fake\" file=\"\" guid=none clock=1 buffer_kib=64 minimum=20 maximum=128 flush=1s \
         mode=0x100 flags=0x0",
        "EnableTraceEx2 enable {7dd42a49-5329-4832-8dfd-43d979153a88} level=4 any=0x10 all=0x0 timeout=0 version=2 \
         property=0x4 filter(pids [4, 700]) -> 0",
        "TraceSetInformation stacks {ce1dbfb4-137e-4da6-87b0-3f59aa102cbc}/51 -> 0",
        "ControlTraceW stop",
    ] {
        assert!(log.lines().any(|line| line.contains(expected)), "{expected}\nis not in\n{log}");
    }
}
