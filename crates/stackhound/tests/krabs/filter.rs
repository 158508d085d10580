//! `test_filter`: 78 cases. The events that predicates match, alone and combined.
//!
//! In krabs, a test may request to view a null-terminated property as a counted string. Here, the
//! schema determines the type of a property, so these cases use a counted property.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stackhound::schema::OwnedValue;
use stackhound::testing::OwnedEvent;
use stackhound::{EventFilter, EventView, Filter, Provider, pred};

use crate::rows::{self, Rows, builder, incomplete};
use crate::schemas::{EVERY_TEXT, POWERSHELL, POWERSHELL_7937};
use pred::{all_of, any_event, any_of, id_is, no_event, none_of, opcode_is, property, version_is};

/// A table: a name, a filter, and whether it matches the event.
pub type Table = Vec<(&'static str, Filter, bool)>;

/// Checks the result of each filter of a table for an event.
#[track_caller]
pub fn check(event: &OwnedEvent, table: Table) -> Rows {
    let filters: Vec<EventFilter> =
        table.iter().map(|(_, filter, _)| EventFilter::new(filter.clone())).collect();
    assert!(filters.iter().all(|filter| filter.predicate().is_ok()), "{filters:?}");
    let mut results = Vec::new();
    let evaluate = |view: &EventView<'_>| results.extend(filters.iter().map(|filter| filter.wants(view)));
    rows::trace(event).run(evaluate).expect("a trace");
    assert_eq!(results.len(), table.len(), "one event is read");
    rows::check(table.into_iter().zip(results).map(|((name, _, expected), result)| (name, result, expected)))
}

/// A null-terminated UTF-16 text.
fn plain() -> OwnedEvent {
    incomplete(&builder(POWERSHELL_7937).pid(812).with("ContextInfo", "One two three four"))
}

/// A counted UTF-16 text of 31 characters, followed by bytes that look like a continuation of the
/// text: the length of the next property is a comma, and that property and the last one continue in
/// UTF-16. The length of the text itself, 62 bytes, looks like `>`.
fn counted() -> OwnedEvent {
    let more: Vec<u8> = " though more is after ".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(more.len(), usize::from(b','));
    let end = u32::from(b'i') | u32::from(b't') << 16;
    let event = builder(EVERY_TEXT)
        .with("CountedWide", "only this much of it is counted")
        .with("CountedNarrow", OwnedValue::Bytes(more))
        .with("After", end);
    let event = incomplete(&event);
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    assert!(event.payload().ends_with(&utf16(">only this much of it is counted, though more is after it")));
    event
}

/// Number of calls of two handlers of a filter for one event.
fn calls(filter: EventFilter) -> (u64, u64) {
    let (first, second) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let count = |counter: &Arc<AtomicU64>| {
        let counter = counter.clone();
        move |_: &EventView<'_>| {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    let filter = filter.on_event(count(&first)).on_event(count(&second));
    let trace = rows::trace(&plain()).enable(Provider::guid(POWERSHELL).filter(filter));
    trace.run(|_| {}).expect("a trace");
    (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed))
}

fn handlers() -> Rows {
    let rows = [
        ("all handlers are called for a matching event", EventFilter::new(any_event()), 1),
        ("no handler is called for other events", EventFilter::new(no_event()), 0),
        ("an id is a filter", EventFilter::ids([7937]), 1),
        ("several ids are a filter", EventFilter::ids([1, 7937]), 1),
        ("other ids do not match", EventFilter::ids([1, 2]), 0),
        ("an id and a predicate are a filter", EventFilter::ids([7937]).and(version_is(1)), 1),
        ("both the id and the predicate must hold", EventFilter::ids([7937]).and(version_is(2)), 0),
    ];
    rows::check(rows.map(|(name, filter, expected)| (name, calls(filter), (expected, expected))))
}

fn headers() -> Rows {
    check(
        &plain(),
        vec![
            ("the same id", id_is(7937), true),
            ("another id", id_is(8000), false),
            ("the same version", version_is(1), true),
            ("another version", version_is(2), false),
            ("the same opcode", opcode_is(0), true),
            ("another opcode", opcode_is(77), false),
            ("the process of the header", pred::pid_is(812), true),
            ("another process", pred::pid_is(813), false),
        ],
    )
}

fn terminated_text() -> Rows {
    let text = || property("ContextInfo");
    check(
        &plain(),
        vec![
            ("is: the same value", text().is("One two three four"), true),
            ("is: another value", text().is("One"), false),
            ("is: a property that the event does not have", property("Nothing").is("One"), false),
            ("equals: the same text", text().equals("One two three four"), true),
            ("equals: another text", text().equals("five"), false),
            ("iequals: the same text in another case", text().iequals("oNE TWO Three FOUR"), true),
            ("iequals: another text", text().iequals("five"), false),
            ("contains: a part", text().contains("two"), true),
            ("contains: other text", text().contains("five"), false),
            ("icontains: a part in another case", text().icontains("tWo"), true),
            ("icontains: other text", text().icontains("fIVe"), false),
            ("starts with: its start", text().starts_with("One two"), true),
            ("starts with: another part", text().starts_with("three four"), false),
            ("istarts with: its start in another case", text().istarts_with("oNe TWo"), true),
            ("istarts with: another part", text().istarts_with("thREe fOUr"), false),
            ("ends with: its end", text().ends_with("three four"), true),
            ("ends with: another part", text().ends_with("One two"), false),
            ("iends with: its end in another case", text().iends_with("thREe fOUr"), true),
            ("iends with: another part", text().iends_with("oNe TWo"), false),
        ],
    )
}

fn counted_text() -> Rows {
    let text = || property("CountedWide");
    check(
        &counted(),
        vec![
            ("equals: the counted text", text().equals("only this much of it is counted"), true),
            ("equals: another text", text().equals("five"), false),
            ("equals: one character past the end", text().equals("only this much of it is counted,"), false),
            ("iequals: another case", text().iequals("Only THIS much of it is COUNTED"), true),
            ("iequals: another text", text().iequals("five"), false),
            (
                "iequals: one character past the end",
                text().iequals("Only THIS much of it is COUNTED,"),
                false,
            ),
            ("contains: a part", text().contains("much of it"), true),
            ("contains: other text", text().contains("little of it"), false),
            ("contains: one character past the end", text().contains("counted,"), false),
            ("contains: the bytes after the text", text().contains("is after"), false),
            ("contains: the end itself", text().contains("counted"), true),
            ("icontains: a part", text().icontains("mUCh OF it"), true),
            ("icontains: other text", text().icontains("lITTLe of it"), false),
            ("icontains: one character past the end", text().icontains("COUNTED,"), false),
            ("icontains: the end itself", text().icontains("COUNTED"), true),
            ("starts with: its start", text().starts_with("only this"), true),
            ("starts with: another part", text().starts_with("of it is"), false),
            ("starts with: not the length", text().starts_with(">"), false),
            ("starts with: not past the end", text().starts_with("only this much of it is counted,"), false),
            ("istarts with: its start", text().istarts_with("ONLy THIs"), true),
            ("istarts with: another part", text().istarts_with("OF IT is"), false),
            ("istarts with: not the length", text().istarts_with(">"), false),
            (
                "istarts with: not past the end",
                text().istarts_with("ONLY this much of it is counted,"),
                false,
            ),
            ("ends with: its end", text().ends_with("it is counted"), true),
            ("ends with: the bytes after the text", text().ends_with("more is after it"), false),
            ("ends with: not past the end", text().ends_with("only this much of it is counted,"), false),
            ("iends with: its end", text().iends_with("it iS COUNted"), true),
            ("iends with: the bytes after the text", text().iends_with("MORE is after it"), false),
            ("iends with: not past the end", text().iends_with("ONLY this much of it is counted,"), false),
        ],
    )
}

fn combinations() -> Rows {
    let yes = any_event;
    let no = no_event;
    let all = |filters: [fn() -> Filter; 2]| all_of(filters.map(|filter| filter()));
    let any = |filters: [fn() -> Filter; 2]| any_of(filters.map(|filter| filter()));
    let none = |filters: [fn() -> Filter; 2]| none_of(filters.map(|filter| filter()));
    check(
        &plain(),
        vec![
            ("and: both hold", yes() & yes(), true),
            ("and: both hold, header fields", id_is(7937) & version_is(1), true),
            ("and: the left does not hold", no() & yes(), false),
            ("and: the right does not hold", yes() & no(), false),
            ("or: the left holds", yes() | no(), true),
            ("or: the right holds", no() | yes(), true),
            ("or: both hold", yes() | yes(), true),
            ("or: one header field holds", id_is(7397) | version_is(1), true),
            ("or: neither holds", no() | no(), false),
            ("not: of a true predicate", !yes(), false),
            ("not: of a false predicate", !no(), true),
            ("not: of the same id", !id_is(7937), false),
            ("not: of another version", !version_is(2), true),
            ("any of: the first", any([yes, no]), true),
            ("any of: the last", any([no, yes]), true),
            ("any of: all", any([yes, yes]), true),
            ("any of: none", any([no, no]), false),
            ("any of: nothing given", any_of([]), false),
            ("all of: all", all([yes, yes]), true),
            ("all of: only the first", all([yes, no]), false),
            ("all of: only the last", all([no, yes]), false),
            ("all of: none", all([no, no]), false),
            ("all of: nothing given", all_of([]), false),
            ("none of: none", none([no, no]), true),
            ("none of: nothing given", none_of([]), true),
            ("none of: the first", none([yes, no]), false),
            ("none of: the last", none([no, yes]), false),
            ("none of: all", none([yes, yes]), false),
        ],
    )
}

pub fn rows() -> Rows {
    [handlers(), headers(), terminated_text(), counted_text(), combinations()].concat()
}
