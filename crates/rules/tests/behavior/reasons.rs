//! What an undetermined answer lacks: with it, whatever it is, the rule is decided; and nothing is stated
//! that is there.

use stackhound_rules::Library;
use stackhound_rules::evaluate::{Mode, Verdict};

use crate::conditions::Writer;
use crate::event::{Data, Datum, Event, answer_with_missing, library, rule_set, text};
use crate::random::Random;
use crate::sequences::{STREAMS, random_stream};

/// How often each answer is tried with other values.
const COMPLETIONS: usize = 12;

/// The answers for a stream of events, with the names of what they lack.
fn run(library: &Library, events: &[Event]) -> Vec<Option<(Verdict, Vec<String>)>> {
    let mut set = rule_set(library, Mode::Strict);
    let answer = |event| {
        let (verdict, missing) = answer_with_missing(&mut set, event)?;
        Some((verdict, missing.iter().map(|missing| missing.name().to_owned()).collect()))
    };
    events.iter().map(answer).collect()
}

fn is_missing(data: &Data) -> bool {
    data.is_empty() || data.contains(&Datum::Unknown)
}

/// The name of a field without its argument.
fn name_of(key: &str) -> &str {
    key.split('[').next().unwrap_or(key)
}

/// A value of a field or of a part of an element.
fn value(name: &str, random: &mut Random) -> Datum {
    match name {
        "evt.pid" | "thread.pid" | "allocation_size" => Datum::Number(*random.pick(&[0, 1, 2, 4, 5])),
        "file.is_dll" | "is_unbacked" => Datum::Truth(random.one_of(2)),
        _ => text(random.pick::<&str>(&["a", "ab", "AB", "b", "x", "y", "", r"C:\a\ab.exe"])),
    }
}

/// The event with values for those of its fields that are named and missing.
fn completed(event: &Event, names: &[String], random: &mut Random) -> Event {
    let mut event = event.clone();
    let is_named = |key: &str| names.iter().any(|name| name == name_of(key));
    for (key, data) in event.fields.iter_mut().filter(|(key, data)| is_named(key) && is_missing(data)) {
        *data = match random.below(5) {
            0 => vec![Datum::Absent],
            _ => vec![value(name_of(key), random)],
        };
    }
    for (_, list) in event.lists.iter_mut().filter(|(key, _)| is_named(key)) {
        if !list.is_complete && random.one_of(2) {
            let parts = ["symbol", "module", "allocation_size", "is_unbacked"];
            list.elements.push(parts.map(|part| (part.to_owned(), Vec::new())).into());
        }
        list.is_complete = true;
        for (part, data) in list.elements.iter_mut().flatten().filter(|(_, data)| is_missing(data)) {
            *data = vec![value(part, random)];
        }
    }
    event
}

/// Whether a field is missing in an event.
fn lacks(event: &Event, name: &str) -> bool {
    let of_fields = event.fields.iter().any(|(key, data)| name_of(key) == name && is_missing(data));
    let of_lists = event.lists.iter().any(|(key, list)| {
        let mut parts = list.elements.iter().flat_map(|element| element.values());
        key == name && (!list.is_complete || parts.any(is_missing))
    });
    of_fields || of_lists
}

/// Checks the answers for a stream, and returns the number of those that are not determined.
fn check(condition: &str, events: &[Event], random: &mut Random, wrong: &mut Vec<String>) -> usize {
    let library = library(condition);
    let mut undetermined = 0;
    for (index, answer) in run(&library, events).into_iter().enumerate() {
        let Some((verdict, missing)) = answer.filter(|(verdict, _)| *verdict != Verdict::Yes) else {
            continue;
        };
        undetermined += 1;
        for name in &missing {
            if !events[..=index].iter().any(|event| lacks(event, name)) {
                wrong.push(format!("{condition}: {name} is not missing"));
            }
        }
        for _ in 0..COMPLETIONS {
            let events: Vec<Event> =
                events[..=index].iter().map(|event| completed(event, &missing, random)).collect();
            let last = run(&library, &events).pop().flatten();
            if let Some((now, more)) = last.filter(|(now, _)| *now != Verdict::Yes) {
                wrong.push(format!(
                    "{condition}: {verdict:?} without {missing:?}, and then {now:?} without {more:?}\n{events:?}"
                ));
                break;
            }
        }
    }
    undetermined
}

fn report(wrong: &mut [String]) {
    wrong.sort_by_key(String::len);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

#[test]
fn what_a_condition_lacks_decides_it() {
    let mut writer = Writer { random: Random(11), mode: Mode::Strict };
    let (mut random, mut wrong, mut undetermined) = (Random(12), Vec::new(), 0);
    for _ in 0..400 {
        let depth = writer.random.below(4);
        let condition = format!("evt.name = 'CreateFile' and {}", writer.condition(depth));
        for _ in 0..6 {
            let event = writer.event();
            undetermined += check(&condition, &[event], &mut random, &mut wrong);
        }
    }
    println!("{undetermined} undetermined answers of conditions");
    report(&mut wrong);
    assert!(undetermined >= 500, "{undetermined}");
}

#[test]
fn what_a_sequence_lacks_decides_it() {
    let (mut random, mut wrong, mut undetermined) = (Random(13), Vec::new(), 0);
    for condition in STREAMS {
        for _ in 0..140 {
            let events = random_stream(&mut random);
            undetermined += check(condition, &events, &mut random, &mut wrong);
        }
    }
    println!("{undetermined} undetermined answers of sequences");
    report(&mut wrong);
    assert!(undetermined >= 500, "{undetermined}");
}

/// Events are missing only where some were lost.
#[test]
fn events_are_missing_only_where_some_were_lost() {
    let condition = "sequence maxspan 1m
|evt.name = 'CreateProcess' and ps.name = 'a'|
|evt.name = 'CreateFile' and file.name = 'x'|";
    let library = library(condition);
    let event = |name: &str, at: i64, field: &str, data: Data| {
        Event::new(name).at(at * 10_000_000, at as u64).with(field, data)
    };
    let unknown = || event("CreateProcess", 1, "ps.name", vec![]);
    let known = || event("CreateProcess", 1, "ps.name", vec![text("a")]);
    let other = || event("CreateProcess", 1, "ps.name", vec![text("b")]);
    let last = |data| event("CreateFile", 2, "file.name", data);
    let fits = || last(vec![text("x")]);
    for (first, last, is_lost, expected) in [
        (unknown(), fits(), false, Some("ps.name")),
        (known(), last(vec![]), false, Some("file.name")),
        (unknown(), last(vec![]), false, Some("file.name ps.name")),
        (unknown(), fits(), true, Some("ps.name events")),
        (other(), fits(), true, Some("events")),
        (other(), fits(), false, None),
        (known(), fits(), true, Some("")),
    ] {
        let mut set = rule_set(&library, Mode::Strict);
        assert_eq!(answer_with_missing(&mut set, &first), None);
        if is_lost {
            set.lose(first.at.time);
        }
        let found = answer_with_missing(&mut set, &last)
            .map(|(_, missing)| missing.iter().map(|missing| missing.name()).collect::<Vec<_>>().join(" "));
        assert_eq!(found.as_deref(), expected, "{first:?} {last:?} {is_lost}");
    }
}

/// The rule is undetermined for the second event. The correlation lacks the same, also at the third one,
/// for which the rule holds.
#[test]
fn a_correlation_lacks_what_its_earlier_answers_lack() {
    let rules = "title: One
id: 11111111-0000-0000-0000-000000000001
name: one
logsource: { product: windows, category: driver_load }
detection:
  selection: { ImageLoaded: a }
  condition: selection
---
title: Many
id: 11111111-0000-0000-0000-000000000002
correlation:
  type: event_count
  rules: [one]
  group-by: [User]
  timespan: 1m
  condition: { gte: 3 }
";
    let library = Library::read([("rules.yml", rules.as_bytes())]);
    assert_eq!(library.errors, []);
    let mut set = rule_set(&library, Mode::Strict);
    let mut found = Vec::new();
    for (record, data) in (1..).zip([vec![text("a")], vec![], vec![text("a")]]) {
        let event = Event::new("sigma.driver_load")
            .at(record * 10_000_000, record as u64)
            .with("ImageLoaded", data)
            .with("User", vec![text("u")]);
        set.evaluate(event.name, event.at, &event, |answer| {
            let missing: Vec<_> = answer.missing.iter().map(|missing| missing.name().to_owned()).collect();
            found.push((record, answer.verdict, missing.join(" ")));
        });
    }
    assert_eq!(found, [(3, Verdict::Undetermined, "ImageLoaded".to_owned())]);
}
