//! Generated event logs, because logs written by Windows cannot be part of the repository.

use std::io::Cursor;
use std::ops::ControlFlow;

use proptest::prelude::*;
use stackhound_detect::report::EventContext;
use stackhound_detect::{Binaries, Detector};
use stackhound_facts::ProcessFact;
use stackhound_frames::Lists;
use stackhound_rules::Library;
use stackhound_rules::evaluate::{Mode, Verdict};
use stackhound_sysmon::rules::LogRules;
use stackhound_sysmon::{Found, Sysmon, Totals};

use self::support::{Event, Value, log};

mod support;

const SYSMON: &str = "Microsoft-Windows-Sysmon";

/// Reads a log. Returns its counts, the event contexts of its rows, and the messages about
/// unreadable items.
fn hunt(file: &[u8]) -> (Totals, Vec<EventContext>, Vec<String>) {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists());
    let (mut event_contexts, mut unreadable) = (Vec::new(), Vec::new());
    let totals = sysmon.hunt(Cursor::new(file), "log.evtx", &mut detector, |found| {
        match found {
            Found::Evaluated(evaluated) => event_contexts.push(evaluated.event_context()),
            Found::Unreadable(line) => unreadable.push(line.to_string()),
        }
        ControlFlow::Continue(())
    });
    (totals.expect("a log"), event_contexts, unreadable)
}

fn access(trace: &str) -> Event<'_> {
    let data = vec![
        ("UtcTime", Value::Text("2020-10-20 11:50:56.473")),
        ("SourceProcessGUID", Value::Text("{1}")),
        ("SourceProcessId", Value::Number(6896)),
        ("SourceThreadId", Value::Number(1084)),
        ("SourceImage", Value::Text(r"C:\Temp\[1]a&b.exe")),
        ("TargetProcessId", Value::Number(700)),
        ("TargetImage", Value::Text(r"C:\Windows\system32\lsass.exe")),
        ("GrantedAccess", Value::Hex(0x1f_ffff)),
        ("CallTrace", Value::Text(trace)),
    ];
    Event { provider: SYSMON, id: 10, computer: "PC", data }
}

fn events() -> Vec<Event<'static>> {
    let started = vec![
        ("UtcTime", Value::Text("2020-10-20 11:50:55.000")),
        ("ProcessGuid", Value::Text("{1}")),
        ("ProcessId", Value::Number(6896)),
        ("Image", Value::Text(r"C:\Temp\[1]a&b.exe")),
        ("CommandLine", Value::Text("a \"b\" <c>")),
        ("ParentProcessId", Value::Number(4)),
    ];
    let thread = vec![
        ("SourceProcessId", Value::Number(6896)),
        ("SourceImage", Value::Text(r"C:\Temp\a.exe")),
        ("TargetProcessId", Value::Number(700)),
        ("TargetImage", Value::Text(r"C:\Windows\system32\lsass.exe")),
        ("NewThreadId", Value::Number(9)),
        ("StartAddress", Value::Text("0x00007FFF9F40EB60")),
        ("StartModule", Value::Text(r"C:\Windows\System32\KERNEL32.DLL")),
        ("StartFunction", Value::Text("LoadLibraryA")),
    ];
    let service = vec![("param1", Value::Text("x"))];
    vec![
        Event { provider: SYSMON, id: 1, computer: "PC", data: started },
        Event { provider: "Service Control Manager", id: 10, computer: "PC", data: service },
        access(r"C:\Windows\SYSTEM32\ntdll.dll+9d934|UNKNOWN(0000024F64B7B7A1)|C:\Temp\[1]a&b.exe+18be"),
        access("C:\\Temp\\é\u{3100}.dll+1"),
        Event { provider: SYSMON, id: 8, computer: "PC", data: thread },
    ]
}

#[test]
fn logs_have_the_same_rows_as_json() {
    for per_chunk in [1, 2, 100] {
        let (totals, event_contexts, unreadable) = hunt(&log(&events(), per_chunk));
        assert_eq!(unreadable, [""; 0]);
        let expected =
            Totals { records: 5, evaluated: 3, events: 3, context: 1, other: 1, ..Totals::default() };
        assert_eq!(totals, expected);
        let records: Vec<u64> =
            event_contexts.iter().map(|event_context| event_context.location.record).collect();
        assert_eq!(records, [3, 4, 5]);
        let first = &event_contexts[0];
        assert_eq!((first.host.as_str(), first.time, first.count), ("PC", Some(132_476_682_564_730_000), 1));
        let process = &first.process;
        assert_eq!(
            (process.pid, process.tid, process.facts.number(ProcessFact::ParentPid)),
            (Some(6896), Some(1084), Some(4))
        );
        assert_eq!((process.name(), process.command_line()), ("[1]a&b.exe", "a \"b\" <c>"));
        assert_eq!(process.started(), Some(132_476_682_550_000_000));
        assert_eq!((first.event.access, first.event.target_pid()), (Some(0x1f_ffff), Some(700)));
        let labels: Vec<String> = first.stack.iter().map(|frame| frame.label()).collect();
        assert_eq!(labels, ["ntdll.dll+0x9d934", "unbacked 0x24f64b7b7a1", "[1]a&b.exe+0x18be"]);
        assert_eq!(first.summary, "ntdll.dll|unbacked|[1]a&b.exe");
        let thread = &event_contexts[2].event;
        assert_eq!(
            (thread.start_name.as_str(), thread.start_address),
            ("KERNEL32.DLL!LoadLibraryA", Some(0x7fff_9f40_eb60))
        );
    }
}

const MANY_ACCESSES: &str = "
title: Access to another process
name: access
id: 11111111-0000-0000-0000-000000000001
logsource: { product: windows, category: process_access }
detection:
  selection: { TargetImage|endswith: '\\lsass.exe' }
  condition: selection
---
title: Many accesses
id: 11111111-0000-0000-0000-000000000002
correlation:
  type: event_count
  rules: [access]
  group-by: [SourceImage]
  timespan: 1m
  condition: { gte: 3 }
";

/// A correlation over a log: all events with two others of the same process in the minute before.
#[test]
fn correlations_are_evaluated_on_logs() {
    let library = Library::read([("r.yml", MANY_ACCESSES.as_bytes())]);
    assert!(library.errors.is_empty() && library.rules.iter().all(|rule| rule.condition.is_ok()));
    // Seconds after 11:00, source, and whether the target is LSASS.
    let rows: Vec<(u32, &str, bool)> = (0..300_u32)
        .map(|n| (n * 7, [r"C:\a.exe", r"C:\b.exe", r"C:\c.exe"][(n * n % 7 % 3) as usize], n % 5 != 3))
        .collect();
    let times: Vec<String> = rows
        .iter()
        .map(|(seconds, ..)| format!("2020-10-20 11:{:02}:{:02}.000", seconds / 60, seconds % 60))
        .collect();
    let one = |((_, source, is_lsass), time)| {
        let target = if is_lsass { r"C:\Windows\System32\lsass.exe" } else { r"C:\Windows\explorer.exe" };
        let data = vec![
            ("UtcTime", Value::Text(time)),
            ("SourceImage", Value::Text(source)),
            ("TargetImage", Value::Text(target)),
        ];
        Event { provider: SYSMON, id: 10, computer: "PC", data }
    };
    let times = times.iter().map(String::as_str);
    let events: Vec<Event<'_>> = rows.iter().copied().zip(times).map(one).collect();
    let expected: Vec<u64> = (0..rows.len())
        .filter(|index| {
            let (now, source, is_lsass) = rows[*index];
            let near = |(then, other, is_lsass): &&(u32, &str, bool)| {
                *is_lsass && *other == source && then + 60 > now
            };
            is_lsass && rows[..=*index].iter().filter(near).count() >= 3
        })
        .map(|index| index as u64 + 1)
        .collect();
    assert!((20..250).contains(&expected.len()), "{}", expected.len());
    for per_chunk in [7, 100] {
        let mut found = Vec::new();
        let count = LogRules::new(&library, Mode::Strict).hunt(
            Cursor::new(log(&events, per_chunk)),
            |_, record, answers| {
                // Only the correlation uses the answers of the other rule.
                assert!(answers.iter().all(|answer| (answer.rule, answer.verdict) == (1, Verdict::Yes)));
                found.push(record);
                ControlFlow::Continue(())
            },
        );
        assert_eq!((count.unwrap(), &found), (300, &expected));
    }
}

#[test]
fn damaged_records_are_reported_and_the_others_read() {
    let mut file = log(&events(), 1);
    // The third record's binary XML.
    let at = 4096 + 2 * (1 << 16) + 512 + 24;
    file[at..at + 40].fill(0xff);
    let (totals, event_contexts, unreadable) = hunt(&file);
    assert_eq!((totals.unreadable, totals.evaluated, totals.damaged_parts), (1, 2, 1), "{unreadable:?}");
    assert!(unreadable[0].starts_with("log.evtx:3: "), "{unreadable:?}");
    assert!(
        unreadable[1].ends_with("the checksums of 1 of the 5 chunks of the event log do not match"),
        "{unreadable:?}"
    );
    assert_eq!(event_contexts.len(), 2);
}

/// Every bit of the header and of the records of a log without reserved chunks has a checksum.
#[test]
fn flipped_bits_and_missing_ends_are_reported() {
    flipped_bits_are_reported(13);
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn more_flipped_bits_are_reported() {
    flipped_bits_are_reported(3);
}

/// `step` is the number of bytes from one flipped bit to the next.
fn flipped_bits_are_reported(step: usize) {
    let whole = log(&events(), 2);
    assert!((whole.len() - 4096).is_multiple_of(1 << 16));
    let is_reported = |file: &[u8]| {
        let mut detector = Detector::new(Lists::default(), Binaries::none());
        let mut sysmon = Sysmon::new(detector.lists());
        let read = sysmon.hunt(Cursor::new(file), "x", &mut detector, |_| ControlFlow::Continue(()));
        read.is_err() || read.is_ok_and(|totals| totals.damaged_parts > 0)
    };
    assert!(!is_reported(&whole));
    for length in (0..whole.len()).step_by(4099) {
        assert!(is_reported(&whole[..length]), "{length} bytes");
    }
    for chunk in (4096..whole.len()).step_by(1 << 16) {
        let used = u32::from_le_bytes(*whole[chunk + 48..].first_chunk().unwrap()) as usize;
        for at in (0..120).chain(124..used).step_by(step) {
            let mut flipped = whole.clone();
            flipped[chunk + at] ^= 1 << (at % 8);
            assert!(is_reported(&flipped), "{at:#x} of the chunk at {chunk:#x}");
        }
        let mut zeros = whole.clone();
        zeros[chunk..chunk + (1 << 16)].fill(0);
        assert!(is_reported(&zeros), "the chunk at {chunk:#x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_stops_the_reader(
        damage in prop::collection::vec((0_usize..(4096 + 2 * (1 << 16)), any::<u8>()), 1..12),
        cut in prop::option::of(128_usize..(4096 + 2 * (1 << 16))),
    ) {
        let mut file = log(&events(), 3);
        for (at, byte) in damage {
            // Most of a chunk is empty.
            let location = if at % 3 > 0 { at % 4096 + 4096 + 500 } else { at };
            file[location] = byte;
        }
        file.truncate(cut.unwrap_or(file.len()));
        let mut detector = Detector::new(Lists::default(), Binaries::none());
        let mut sysmon = Sysmon::new(detector.lists());
        let mut calls = 0;
        let totals = sysmon.hunt(Cursor::new(&file), "x", &mut detector, |found| {
            if let Found::Evaluated(evaluated) = found {
                drop(evaluated.event_context());
            }
            calls += 1;
            ControlFlow::Continue(())
        });
        if let Ok(totals) = totals {
            let all = totals.evaluated + totals.unreadable + totals.damaged_stacks + totals.damaged_parts;
            prop_assert_eq!(calls, all);
            prop_assert_eq!(totals.records, totals.evaluated + totals.unreadable + totals.context + totals.other);
        }
    }
}
