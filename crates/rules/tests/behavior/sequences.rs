//! Sequences: those that Fibratus misses, random streams of events, and bounds of memory.

use std::time::{Duration, Instant};

use stackhound_rules::Library;
use stackhound_rules::evaluate::{Mode, RuleSet, Verdict};

use crate::chains::answers;
use crate::event::{Data, Datum, Event, answer, library, rule_set, text};
use crate::random::Random;

/// In units of 100 ns.
const SECOND: i64 = 10_000_000;

const YES: Option<Verdict> = Some(Verdict::Yes);
const UNDETERMINED: Option<Verdict> = Some(Verdict::Undetermined);

/// The answers for all events, whose records are in their order.
fn run(library: &Library, mode: Mode, events: &[Event]) -> Vec<Option<Verdict>> {
    let mut set = rule_set(library, mode);
    events.iter().map(|event| answer(&mut set, event)).collect()
}

/// Events with names and times, and the values of a field.
fn stream(field: &str, events: &[(&str, f64, Data)]) -> Vec<Event> {
    let event = |(record, (name, seconds, data)): (usize, &(&str, f64, Data))| {
        let time = (seconds * SECOND as f64) as i64;
        Event::new(name).at(time, record as u64).with(field, data.clone())
    };
    events.iter().enumerate().map(event).collect()
}

fn number(number: i64) -> Data {
    vec![Datum::Number(number)]
}

const TWO: &str = "sequence maxspan 1m by ps.uuid |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|";
const THREE: &str = "sequence maxspan 1m by ps.uuid
|evt.name = 'CreateProcess'| |evt.name = 'LoadModule'| |evt.name = 'CreateFile'|";
const A: &str = "CreateProcess";
const M: &str = "LoadModule";
const B: &str = "CreateFile";

#[test]
fn what_fibratus_misses_is_found() {
    let one = || number(1);
    let two = || number(2);
    for (what, condition, events, strict, compatible) in [
        (
            "the second of two that overlap",
            TWO,
            vec![(A, 0.0, one()), (A, 1.0, two()), (B, 2.0, one()), (B, 3.0, two())],
            "..yy",
            "..yy",
        ),
        (
            "one after the time of another is over",
            TWO,
            vec![(A, 0.0, one()), (A, 54.0, two()), (B, 66.0, two())],
            "..y",
            "..y",
        ),
        ("at the same time", TWO, vec![(A, 5.0, one()), (B, 5.0, one())], ".y", ".y"),
        ("at the same time in the other order", TWO, vec![(B, 5.0, one()), (A, 5.0, one())], "..", ".."),
        (
            "three within the time",
            THREE,
            vec![(A, 0.0, one()), (M, 30.0, one()), (B, 60.0, one())],
            "..y",
            "..y",
        ),
        (
            "three whose steps are within the time",
            THREE,
            vec![(A, 0.0, one()), (M, 50.0, one()), (B, 100.0, one())],
            "...",
            "..y",
        ),
        (
            "a repeated first event counts with its later time",
            TWO,
            vec![(A, 0.0, one()), (A, 50.0, one()), (B, 100.0, one())],
            "..y",
            "..y",
        ),
        (
            "a first event that is in time together with one that is not",
            THREE,
            vec![(A, 0.0, one()), (A, 20.0, one()), (M, 50.0, one()), (B, 75.0, one())],
            "...y",
            "...y",
        ),
        (
            "each last event",
            TWO,
            vec![(A, 0.0, one()), (B, 1.0, one()), (B, 2.0, one()), (B, 61.0, one())],
            ".yy.",
            ".yy.",
        ),
        ("nothing after the time", TWO, vec![(A, 0.0, one()), (B, 60.1, one())], "..", ".."),
        ("exactly the time", TWO, vec![(A, 0.0, one()), (B, 60.0, one())], ".y", ".y"),
        (
            "the end of a process changes nothing",
            TWO,
            vec![(A, 0.0, one()), ("TerminateProcess", 1.0, one()), (B, 2.0, one())],
            "..y",
            "..y",
        ),
    ] {
        let library = library(condition);
        let events = stream("ps.uuid", &events);
        for (mode, expected) in [(Mode::Strict, strict), (Mode::Compatible, compatible)] {
            let found: String = run(&library, mode, &events)
                .into_iter()
                .map(|found| if found == YES { 'y' } else { '.' })
                .collect();
            assert_eq!(found, expected, "{what}, {mode:?}");
        }
    }
}

/// Fibratus takes these for the same event, as parts of its keys are overwritten.
#[test]
fn events_that_share_a_part_are_different() {
    for (field, last, values) in [
        ("net.dip", "Connect", ["10.0.1.1", "10.0.2.2"]),
        ("evt.arg[exe]", "OpenProcess", ["a.exe", "b.exe"]),
        ("file.path", "CreateFile", ["a", "b"]),
    ] {
        let condition =
            format!("sequence maxspan 1m by {field} |evt.name = '{last}'| |evt.name = 'LoadModule'|");
        let value = |index: usize| vec![text(values[index])];
        let events = [(last, 0.0, value(0)), (last, 1.0, value(1)), (M, 2.0, value(1)), (M, 3.0, value(0))];
        let found = run(&library(&condition), Mode::Strict, &stream(field, &events));
        assert_eq!(found, [None, None, YES, YES], "{field}");
    }
}

/// Only the times of the trace count, however old they are.
#[test]
fn old_events_are_found() {
    for start in [0.0, 1e9, 13_000_000_000.0] {
        let events = [(A, start, number(1)), (B, start + 59.0, number(1)), (B, start + 61.0, number(1))];
        let found = run(&library(TWO), Mode::Strict, &stream("ps.uuid", &events));
        assert_eq!(found, [None, YES, None], "{start}");
    }
}

#[test]
fn thousands_of_open_sequences_are_found() {
    let library = library(TWO);
    let events: Vec<_> = (0..10_000_i64)
        .map(|index| (if index < 5_000 { A } else { B }, 0.001 * index as f64, number(index % 5_000)))
        .collect();
    let found = run(&library, Mode::Strict, &stream("ps.uuid", &events));
    assert_eq!(found.iter().filter(|found| **found == YES).count(), 5_000);
}

#[test]
fn earlier_events_are_named() {
    let mut set = rule_set(&library(THREE), Mode::Strict);
    let mut earlier = Vec::new();
    for event in stream("ps.uuid", &[(A, 0.0, number(1)), (M, 1.0, number(1)), (B, 2.0, number(1))]) {
        set.evaluate(event.name, event.at, &event, |answer| {
            earlier = answer.earlier().map(|position| position.record).collect();
        });
    }
    assert_eq!(earlier, [0, 1]);
}

/// Keys that are known, missing, not known, or known to have no value.
#[test]
fn keys() {
    const ONE: &str = "sequence maxspan 1m by ps.name |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|";
    const BOTH: &str =
        "sequence maxspan 1m by ps.name, evt.pid |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|";
    const ALIAS: &str = "sequence maxspan 1m by ps.name |evt.name = 'CreateProcess'| as e
        |evt.name = 'CreateFile' and file.path = $e.file.path|";
    let name = |name: &str| vec![text(name)];
    let (missing, unknown, absent) = (Vec::new(), vec![Datum::Unknown], vec![Datum::Absent]);
    let mut different = Vec::new();
    for (one, other, strict, compatible) in [
        (name("a"), name("a"), YES, YES),
        (name("a"), name("A"), YES, None),
        (name("a"), name("b"), None, None),
        (name("a"), missing.clone(), UNDETERMINED, None),
        (missing.clone(), name("a"), UNDETERMINED, None),
        (missing.clone(), missing.clone(), UNDETERMINED, YES),
        (unknown.clone(), name("a"), UNDETERMINED, None),
        (unknown.clone(), missing.clone(), UNDETERMINED, YES),
        (name(""), missing.clone(), UNDETERMINED, YES),
        (absent.clone(), name("a"), None, None),
        (absent.clone(), name(""), None, YES),
        (absent.clone(), absent.clone(), None, YES),
    ] {
        for condition in [ONE, BOTH, ALIAS] {
            for (mode, expected) in [(Mode::Strict, strict), (Mode::Compatible, compatible)] {
                let event = |kind, time: i64, key: &Data| {
                    let event = Event::new(kind).at(time, time as u64).with("ps.name", key.clone());
                    event.with("evt.pid", number(4)).with("file.path", name("f"))
                };
                let found = run(&library(condition), mode, &[event(A, 0, &one), event(B, 1, &other)]);
                if found != [None, expected] {
                    different.push(format!(
                        "{condition}: {one:?}, {other:?}, {mode:?}: {found:?}, not {expected:?}"
                    ));
                }
            }
        }
    }
    // One key that differs decides.
    let event = |kind, time: i64, name, pid| {
        Event::new(kind).at(time, time as u64).with("ps.name", name).with("evt.pid", pid)
    };
    let found = run(
        &library(BOTH),
        Mode::Strict,
        &[event(A, 0, missing, number(1)), event(B, 1, name("a"), number(2))],
    );
    if found != [None, None] {
        different.push(format!("{BOTH}: missing, 1, then a, 2: {found:?}, not None"));
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

/// In compatible mode, missing fields have zero also in slots that others refer to.
#[test]
fn slots_with_names_are_compatible() {
    for (condition, expected) in [
        ("|evt.name = 'CreateProcess' and file.name != 'x'| as e", YES),
        ("|evt.name = 'CreateProcess' and file.name = ''| as e", YES),
        ("|evt.name = 'CreateProcess' and file.name = 'x'| as e", None),
    ] {
        let condition = format!("sequence {condition} |evt.name = 'CreateFile' and evt.pid = $e.evt.pid|");
        let event = |kind, time: i64| Event::new(kind).at(time, time as u64).with("evt.pid", number(4));
        let found = run(&library(&condition), Mode::Compatible, &[event(A, 0), event(B, 1)]);
        assert_eq!(found, [None, expected], "{condition}");
    }
}

/// In compatible mode, the longest time of a sequence applies to each step, also for losses.
#[test]
fn losses_before_two_steps_count() {
    for (mode, expected) in [(Mode::Strict, None), (Mode::Compatible, UNDETERMINED)] {
        let mut set = rule_set(&library(THREE), mode);
        let event = |name, seconds: i64| {
            Event::new(name).at(seconds * SECOND, seconds as u64).with("ps.uuid", number(1))
        };
        set.lose(35 * SECOND);
        assert_eq!(answer(&mut set, &event(M, 70)), None);
        assert_eq!(answer(&mut set, &event(B, 100)), expected, "{mode:?}");
    }
}

pub const STREAMS: [&str; 13] = [
    "sequence maxspan 3s by evt.pid |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|",
    "sequence maxspan 3s by evt.pid |evt.name = 'CreateFile'| |evt.name = 'CreateFile' and file.name = 'x'|",
    "sequence maxspan 3s |evt.name = 'CreateProcess' and file.name = 'x'| |evt.name = 'CreateFile' and file.name != 'x'|",
    "sequence |evt.name = 'CreateProcess'| |evt.name = 'CreateFile' and file.name = 'y'|",
    "sequence maxspan 3s by ps.name |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|",
    "sequence maxspan 3s by evt.pid, ps.name |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|",
    "sequence maxspan 3s |evt.name = 'CreateProcess'| by evt.pid |evt.name = 'CreateFile'| by thread.pid",
    "sequence maxspan 4s by evt.pid |evt.name = 'CreateProcess' and file.name != 'x'| |evt.name in ('CreateFile', 'LoadModule')| |evt.name = 'CreateFile'|",
    "sequence maxspan 4s |evt.name = 'CreateProcess'| |evt.name = 'LoadModule' and file.name = 'x'| |evt.name = 'CreateFile'|",
    "sequence maxspan 3s |evt.name = 'CreateProcess'| as e |evt.name = 'CreateFile' and evt.pid = $e.evt.pid|",
    "sequence maxspan 3s by ps.name |evt.name = 'CreateProcess' and file.name != 'x'| as e |evt.name = 'CreateFile' and evt.pid != $e.evt.pid|",
    "sequence maxspan 4s |evt.name = 'CreateProcess'| as e |evt.name = 'LoadModule'| as f |evt.name = 'CreateFile' and evt.pid = $e.evt.pid and thread.pid = $f.thread.pid|",
    "sequence maxspan 3s |evt.name = 'CreateProcess'| as e |evt.name = 'CreateFile' and ps.name imatches concat('*', $e.ps.name)|",
];

pub fn random_stream(random: &mut Random) -> Vec<Event> {
    let mut time = 0;
    let length = 3 + random.below(6);
    let events = (0..length).map(|record| {
        time += *random.pick(&[0, 0, 1, 1, 2, 3]) * SECOND;
        let mut event = Event::new(random.pick::<&str>(&[A, A, B, B, M])).at(time, record as u64);
        for field in ["evt.pid", "thread.pid"] {
            let data = match random.below(8) {
                0 => vec![],
                1 => vec![Datum::Unknown],
                value => number(value as i64 % 2),
            };
            event = event.with(field, data);
        }
        let name = *random.pick::<&str>(&["a", "A", "b", "a", "b", "?"]);
        event = event.with("ps.name", if name == "?" { vec![] } else { vec![text(name)] });
        let file = *random.pick::<&str>(&["x", "x", "y", "y", "?"]);
        event.with("file.name", if file == "?" { vec![] } else { vec![text(file)] })
    });
    events.collect()
}

fn shown(event: &Event) -> String {
    format!("  {} {:?} {:?}\n", event.name.name(), event.at, event.fields)
}

/// The smallest part of a stream whose answers differ.
fn smallest(library: &Library, mode: Mode, mut events: Vec<Event>) -> Vec<Event> {
    let tree = &library.rules[0].condition.as_ref().unwrap().tree;
    let differs = |events: &[Event]| run(library, mode, events) != answers(tree, mode, events);
    let mut index = 0;
    while index < events.len() {
        let mut fewer = events.clone();
        fewer.remove(index);
        if differs(&fewer) {
            events = fewer;
        } else {
            index += 1;
        }
    }
    events
}

fn compare_streams(mode: Mode) {
    let mut different = Vec::new();
    for (seed, condition) in STREAMS.into_iter().enumerate() {
        let library = library(condition);
        let tree = &library.rules[0].condition.as_ref().unwrap().tree;
        let mut random = Random(seed as u64);
        for _ in 0..250 {
            let events = random_stream(&mut random);
            if run(&library, mode, &events) != answers(tree, mode, &events) {
                let events = smallest(&library, mode, events);
                let (found, expected) = (run(&library, mode, &events), answers(tree, mode, &events));
                let shown: String = events.iter().map(shown).collect();
                different.push(format!("{condition}, {mode:?}: {found:?}, not {expected:?}\n{shown}"));
                break;
            }
        }
    }
    assert!(different.is_empty(), "{} rules differ:\n{}", different.len(), different.join("\n"));
}

#[test]
fn strict_streams_have_the_answers_of_all_chains() {
    compare_streams(Mode::Strict);
}

#[test]
fn compatible_streams_have_the_answers_of_all_chains() {
    compare_streams(Mode::Compatible);
}

fn open_keys(set: &mut RuleSet<String>, keys: i64) {
    let mut event = Event::new(A).with("ps.uuid", number(0));
    for key in 0..keys {
        event.at.record = key as u64;
        event.at.time = key;
        event.fields.get_mut("ps.uuid").expect("the field")[0] = Datum::Number(key);
        assert_eq!(answer(set, &event), None);
    }
}

/// The memory is bounded: what is dropped is counted, and makes later answers undetermined.
#[test]
fn open_keys_are_bounded() {
    // Without optimization, a fifth of them.
    let keys = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };
    let start = Instant::now();
    let mut set = rule_set(&library(TWO), Mode::Strict);
    open_keys(&mut set, keys);
    let dropped = set.counts(0).dropped;
    assert!(dropped > 0 && dropped < keys as u64, "{dropped}");
    let mut later = |key, seconds| {
        let event =
            Event::new(B).at(seconds * SECOND, keys as u64 + seconds as u64).with("ps.uuid", number(key));
        answer(&mut set, &event)
    };
    let found: Vec<_> = [0, keys / 2, keys - 1, -1].into_iter().map(|key| later(key, 1)).collect();
    assert!(found[..3].iter().all(|found| [YES, UNDETERMINED].contains(found)), "{found:?}");
    assert_eq!(found[3], UNDETERMINED, "another key may have been dropped");
    // No chain that began before can be completed any more.
    assert_eq!(later(-1, 600), None);
    println!("{dropped} of {keys} keys dropped, {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

/// The same where slots refer to each other: the newest are kept.
#[test]
fn open_names_are_bounded() {
    let condition =
        "sequence |evt.name = 'CreateProcess'| as e |evt.name = 'CreateFile' and ps.uuid = $e.ps.uuid|";
    let (keys, mut set) = (20_000, rule_set(&library(condition), Mode::Strict));
    open_keys(&mut set, keys);
    let dropped = set.counts(0).dropped;
    assert!(dropped > 0 && dropped < keys as u64, "{dropped}");
    let kept = dropped as i64;
    let rows =
        [(0, UNDETERMINED), (kept - 1, UNDETERMINED), (kept, YES), (keys - 1, YES), (-1, UNDETERMINED)];
    for (key, expected) in rows {
        let event = Event::new(B).at(SECOND, keys as u64).with("ps.uuid", number(key));
        assert_eq!(answer(&mut set, &event), expected, "{key}");
    }
}

/// A loss makes undetermined what could have been found if nothing was lost.
#[test]
fn losses_within_the_time_count() {
    for (condition, first, lost, last, expected) in [
        (TWO, None, 50, 100, UNDETERMINED),
        (TWO, None, 40, 100, UNDETERMINED),
        (TWO, None, 39, 100, None),
        (TWO, Some(60), 70, 100, YES),
        (TWO, Some(30), 70, 100, UNDETERMINED),
        (TWO, Some(30), 35, 100, None),
        (TWO, None, 100, 100, UNDETERMINED),
        (THREE, None, 50, 100, UNDETERMINED),
        (THREE, Some(50), 60, 100, UNDETERMINED),
        (THREE, Some(50), 30, 100, None),
        ("sequence |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|", None, 1, 14_000, UNDETERMINED),
        ("sequence |evt.name = 'CreateProcess'| |evt.name = 'CreateFile'|", None, 1, 14_500, None),
    ] {
        let mut set = rule_set(&library(condition), Mode::Strict);
        let event = |name, seconds: i64| {
            Event::new(name).at(seconds * SECOND, seconds as u64).with("ps.uuid", number(1))
        };
        if let Some(first) = first.filter(|first| *first <= lost) {
            assert_eq!(answer(&mut set, &event(A, first)), None);
        }
        set.lose(lost * SECOND);
        if let Some(first) = first.filter(|first| *first > lost) {
            assert_eq!(answer(&mut set, &event(A, first)), None);
        }
        let found = answer(&mut set, &event(B, last));
        assert_eq!(found, expected, "{condition}, {first:?}, lost at {lost}, {last}");
    }
}

/// What is no although an event was lost is also no with that event.
#[test]
fn losses_hide_nothing() {
    let mut different = Vec::new();
    for (seed, condition) in STREAMS.into_iter().enumerate() {
        let library = library(condition);
        let mut random = Random(seed as u64 + 100);
        for _ in 0..100 {
            let events = random_stream(&mut random);
            let whole = run(&library, Mode::Strict, &events);
            let lost = random.below(events.len());
            let mut set = rule_set(&library, Mode::Strict);
            for (index, event) in events.iter().enumerate() {
                if index == lost {
                    set.lose(event.at.time);
                    continue;
                }
                let found = answer(&mut set, event);
                if found.is_none() && whole[index].is_some() || found == YES && whole[index] != YES {
                    let shown: String = events.iter().map(shown).collect();
                    different.push(format!(
                        "{condition}, without {lost}: {found:?} for {index}, {whole:?}\n{shown}"
                    ));
                }
            }
        }
    }
    different.truncate(3);
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A loss changes nothing for an event that fits no slot, nor for rules about one event.
#[test]
fn losses_do_not_count_elsewhere() {
    let condition =
        "sequence maxspan 1m |evt.name = 'CreateProcess'| |evt.name = 'CreateFile' and file.name = 'x'|";
    for (condition, file, expected) in [
        (condition, "x", UNDETERMINED),
        (condition, "y", None),
        ("evt.name = 'CreateFile' and file.name = 'x'", "x", YES),
        ("evt.name = 'CreateFile' and file.name = 'x'", "y", None),
    ] {
        let mut set = rule_set(&library(condition), Mode::Strict);
        set.lose(0);
        let event = Event::new(B).at(SECOND, 1).with("file.name", vec![text(file)]);
        assert_eq!(answer(&mut set, &event), expected, "{condition}, {file}");
    }
}
