//! Filters on the events of a trace: every field, from text and from Rust.

mod etl_file;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stackhound::expr::field;
use stackhound::schema::Sid;
use stackhound::{
    Address, Error, EventFilter, EventView, FileTime, Filter, Guid, Pid, Predicate, Provider, Tid, Trace,
    pred,
};

use etl_file::{ACTIVITY, GUID_VALUE, PROVIDER, SID, TIME, UNKNOWN, etl_file, schemas};

/// Calls `handle` with the events of the trace, except the first one, which describes the session.
fn with_events(mut handle: impl FnMut(&EventView<'_>)) {
    let file = etl_file();
    let mut is_first = true;
    let mut handle = |view: &EventView<'_>| {
        if !std::mem::take(&mut is_first) {
            handle(view);
        }
    };
    let stats = Trace::file(file.path()).schemas(schemas()).run(&mut handle).expect("a trace");
    assert_eq!(stats.delivered, 5);
}

/// The events that match, by their position in the trace: `0123` is all of them.
fn passing(filters: &[Filter]) -> Vec<String> {
    let predicates: Vec<Predicate> =
        filters.iter().map(|filter| Predicate::new(filter).expect("known names")).collect();
    let mut passing = vec![String::new(); filters.len()];
    let mut index = 0;
    with_events(|view| {
        for (predicate, passing) in predicates.iter().zip(&mut passing) {
            if predicate.matches(view) {
                *passing += &index.to_string();
            }
        }
        index += 1;
    });
    passing
}

#[track_caller]
fn check_text(rows: &[(&str, &str)]) {
    let filters: Vec<Filter> = rows
        .iter()
        .map(|(text, _)| Filter::parse(text).unwrap_or_else(|e| panic!("{}", e.render(text))))
        .collect();
    for ((text, expected), passing) in rows.iter().zip(passing(&filters)) {
        assert_eq!(passing, *expected, "{text}");
    }
}

#[test]
fn fields_of_headers() {
    check_text(&[
        ("id = 7", "0"),
        ("id = 0", "123"),
        ("opcode = 3", "0"),
        ("version = 2", "0"),
        ("level = 4", "0"),
        ("level <= 4", "023"),
        ("level = 2", "2"),
        ("keyword = 0x8000000000000030", "0"),
        ("keyword hasany 0x10", "0"),
        ("keyword hasany 0x1", ""),
        ("keyword hasall 0x30", "0"),
        ("channel = 16", "0"),
        ("task = 11", "0"),
        ("flags hasany 0", ""),
        ("flags hasall 0", "03"),
        ("activity = '01010101-0101-0101-0101-010101010101'", "0"),
        ("activity ~ '*'", "0"),
        ("provider_guid = '5d1ef9a0-0b1c-4c1f-8e21-3a6f904e7701'", "0"),
        ("provider_guid istartswith '5D1EF9A0'", "0"),
        ("provider = 'Stackhound-Test'", "0"),
        ("provider i= '5D1EF9A0-0B1C-4C1F-8E21-3A6F904E7701'", "0"),
        ("event = 'Fetch'", "0"),
        ("event = Process/Start", "1"),
        ("pid = 812", "0"),
        ("tid = 900", "0"),
        ("process i= 'APP.EXE'", ""),
        ("cpu = 0", "0123"),
        ("time startswith '2024-'", "0123"),
        ("ts > 0", "0123"),
        ("stack.state = 'none'", "0123"),
        ("stack.module ~ '*'", ""),
        ("true", "0123"),
        ("false", ""),
    ]);
}

#[test]
fn fields_of_payloads() {
    check_text(&[
        ("fields.Url = 'https://Example.org/ä'", "0"),
        ("fields.Url i= 'HTTPS://EXAMPLE.ORG/Ä'", "0"),
        ("fields.Url contains 'Example'", "0"),
        ("fields.Url contains 'example'", ""),
        ("fields.Url icontains 'example'", "0"),
        ("fields.Url endswith 'ä'", "0"),
        ("fields.Verb = 'GET'", "0"),
        ("fields.Verb istartswith 'ge'", "0"),
        // Latin-1, because it is not valid UTF-8.
        ("fields.Narrow = 'Zoë'", "0"),
        ("fields.Narrow icontains 'OË'", "0"),
        ("fields.Counted = 'two'", "0"),
        ("fields.Counted contains 'o'", "0"),
        ("fields.Counted contains 'r'", ""),
        ("fields.ProcessId = 4242", "0"),
        ("fields.ProcessId contains 42", ""),
        ("fields.ProcessId = 1001", "1"),
        ("fields.Address = '10.0.0.1'", "0"),
        ("fields.Port = 443", "0"),
        ("fields.Status = 0xc0000005", "0"),
        ("fields.Ratio > 0.2", "0"),
        ("fields.Flag = true", "0"),
        ("fields.Flag is 1", "0"),
        ("fields.Offset < 0", "0"),
        ("fields.Color = 'green'", "0"),
        ("fields.Color is 2", "0"),
        ("fields.Base = 0x7ff612340000", "0"),
        ("fields.Base startswith 0x7ff612", "0"),
        ("fields.Status = '0xc0000005'", "0"),
        ("fields.Ports = 81", "0"),
        ("fields.Ports in (1, 82)", "0"),
        ("fields.Ports = 83", ""),
        ("fields.Ports != 81", ""),
        ("fields.Ports != 83", "0"),
        ("fields.When startswith '2024-02-'", "0"),
        ("fields.Id = '03030303-0303-0303-0303-030303030303'", "0"),
        ("fields.User = 'S-1-5-18'", "0"),
        ("fields.Nothing = 1", ""),
        ("not fields.Nothing = 1", ""),
        ("fields.ImageFileName i= 'APP.EXE'", "1"),
        ("fields.CommandLine endswith ' /q'", "1"),
    ]);
}

#[test]
fn built_filters_equal_parsed_filters() {
    let property = pred::property;
    let rows = [
        (pred::any_event(), "true", "0123"),
        (pred::no_event(), "false", ""),
        (pred::id_is(7), "id = 7", "0"),
        (pred::opcode_is(3), "opcode = 3", "0"),
        (pred::version_is(2), "version = 2", "0"),
        (pred::level_is(2), "level = 2", "2"),
        (pred::level_at_most(4), "level <= 4", "023"),
        (pred::keyword_any(0x11), "keyword hasany 0x11", "0"),
        (pred::keyword_all(0x11), "keyword hasall 0x11", ""),
        (pred::channel_is(16), "channel = 16", "0"),
        (pred::task_is(11), "task = 11", "0"),
        (pred::pid_is(812), "pid = 812", "0"),
        (pred::tid_is(900), "tid = 900", "0"),
        (pred::process_name_is("app.exe"), "process i= 'app.exe'", ""),
        (pred::event_is("Process/Start"), "event = 'Process/Start'", "1"),
        (pred::provider_is(PROVIDER), "provider_guid = '5d1ef9a0-0b1c-4c1f-8e21-3a6f904e7701'", "0"),
        (pred::activity_is(ACTIVITY), "activity = '01010101-0101-0101-0101-010101010101'", "0"),
        (property("Odd Name").equals(1), "fields.\"Odd Name\" = 1", ""),
        (property("ProcessId").is(4242_u32), "fields.ProcessId is 4242", "0"),
        (property("ProcessId").is("4242"), "fields.ProcessId is '4242'", ""),
        (property("ProcessId").equals("4242"), "fields.ProcessId = '4242'", "0"),
        (property("ProcessId").is(Pid(1001)), "fields.ProcessId is 1001", "1"),
        (property("ProcessId").is(Tid(1001)), "fields.ProcessId is 1001", "1"),
        (property("ProcessId").less(4242), "fields.ProcessId < 4242", "1"),
        (property("ProcessId").at_most(4242), "fields.ProcessId <= 4242", "01"),
        (property("ProcessId").greater(1001), "fields.ProcessId > 1001", "0"),
        (property("ProcessId").at_least(1001), "fields.ProcessId >= 1001", "01"),
        (property("ProcessId").one_of([1, 1001]), "fields.ProcessId in (1, 1001)", "1"),
        (property("ProcessId").differs(1001), "fields.ProcessId != 1001", "0"),
        (property("ProcessId").has_any(0x12), "fields.ProcessId hasany 0x12", "0"),
        (property("ProcessId").has_all(0x1092), "fields.ProcessId hasall 0x1092", "0"),
        (property("Verb").is("GET"), "fields.Verb is 'GET'", "0"),
        (property("Verb").iequals("get"), "fields.Verb i= 'get'", "0"),
        (property("Verb").starts_with("G"), "fields.Verb startswith 'G'", "0"),
        (property("Verb").istarts_with("g"), "fields.Verb istartswith 'g'", "0"),
        (property("Verb").ends_with("T"), "fields.Verb endswith 'T'", "0"),
        (property("Verb").iends_with("t"), "fields.Verb iendswith 't'", "0"),
        (property("Verb").contains("E"), "fields.Verb contains 'E'", "0"),
        (property("Verb").icontains("e"), "fields.Verb icontains 'e'", "0"),
        (property("Verb").matches("G?T"), "fields.Verb ~ 'G?T'", "0"),
        (property("Verb").imatches("g*"), "fields.Verb i~ 'g*'", "0"),
        (property("Address").is(Ipv4Addr::new(10, 0, 0, 1)), "fields.Address is '10.0.0.1'", "0"),
        (property("Address").equals(IpAddr::from([10, 0, 0, 2])), "fields.Address = '10.0.0.2'", ""),
        (property("Id").is(GUID_VALUE), "fields.Id is '03030303-0303-0303-0303-030303030303'", "0"),
        (property("User").is(Sid(&SID)), "fields.User is 'S-1-5-18'", "0"),
        (property("When").is(TIME), "fields.When is '2024-02-01T00:00:00.0000000Z'", "0"),
        (property("When").less(FileTime(TIME.0 + 1)), "fields.When < '2024-02-01T00:00:00.0000001Z'", "0"),
        (property("Base").is(Address(0x7ff6_1234_0000)), "fields.Base is 140694844080128", "0"),
        (property("Flag").is(true), "fields.Flag is true", "0"),
        (property("Ratio").is(0.25), "fields.Ratio is 0.25", "0"),
        (property("Offset").is(-8), "fields.Offset is -8", "0"),
        (pred::any_of([pred::id_is(7), pred::level_is(2)]), "id = 7 or level = 2", "02"),
        (pred::all_of([pred::id_is(7), pred::level_is(2)]), "id = 7 and level = 2", ""),
        (pred::none_of([pred::id_is(7), pred::level_is(2)]), "not (id = 7 or level = 2)", "3"),
        (pred::any_of([]), "false", ""),
        (pred::all_of([]), "false", ""),
        (pred::none_of([]), "true", "0123"),
    ];
    let filters: Vec<Filter> = rows.iter().map(|(filter, ..)| filter.clone()).collect();
    for ((filter, text, expected), passing) in rows.iter().zip(passing(&filters)) {
        assert_eq!(filter.to_string(), *text);
        assert_eq!(Filter::parse(text).as_ref(), Ok(filter));
        assert_eq!(passing, *expected, "{text}");
    }
}

#[test]
fn headers_decide_before_payloads_are_decoded() {
    // The event without a known schema: each access to its payload is a failed schema look-up.
    let misses = |text: &str| {
        let predicate = Predicate::parse(text).expect("valid");
        let mut misses = None;
        with_events(|view| {
            if view.provider_guid() == Some(UNKNOWN) {
                let before = view.trace_state().schema_misses();
                predicate.matches(view);
                misses = Some(view.trace_state().schema_misses() - before);
            }
        });
        misses.expect("an event without a schema")
    };
    for (text, expected) in [
        ("fields.Url contains 'x' and id = 9", 0),
        ("fields.Url contains 'x' and id = 0", 1),
        ("fields.Url contains 'x' or level = 0", 0),
        ("(fields.Url = 'x' and keyword hasany 1) or (fields.Verb = 'GET' and pid = 4)", 0),
        ("not (fields.Url = 'x' or pid = 77)", 0),
        ("event = 'x' and provider_guid = 0", 0),
    ] {
        assert_eq!(misses(text), expected, "{text}");
    }
}

#[test]
fn predicates_report_their_needs() {
    let check = |text: &str, payload: bool, functions: bool| {
        let predicate = Predicate::parse(text).expect("valid");
        assert_eq!((predicate.needs_payload(), predicate.names_functions()), (payload, functions), "{text}");
    };
    check("id = 7 and event = 'x' and stack.module = 'y'", false, false);
    check("id = 7 or fields.Url = 'x'", true, false);
    check("not stack.symbol = 'x'", false, true);
    check("true", false, false);
}

#[test]
fn unknown_names_are_reported_with_the_most_similar() {
    let error = |text: &str| Predicate::parse(text).expect_err(text).to_string();
    assert_eq!(error("lvel = 3"), "unknown field `lvel`, did you mean `level`?");
    assert_eq!(error("field.Url = 3"), "unknown field `field.Url`");
    let built = field("keywrd").has_any(1);
    assert_eq!(
        Predicate::new(&built).expect_err("unknown").to_string(),
        "unknown field `keywrd`, did you mean `keyword`?"
    );
}

/// The number of calls of the filter's handler for events of a provider, and the number of errors.
fn dispatched(provider: Guid, filter: EventFilter) -> Result<(u64, u64), Error> {
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    let filter = filter.on_event(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let file = etl_file();
    let trace = Trace::file(file.path()).schemas(schemas());
    let stats = trace.enable(Provider::guid(provider).filter(filter)).run(|_| {})?;
    Ok((calls.load(Ordering::Relaxed), stats.errors))
}

#[test]
fn filters_of_events_test_ids_and_predicate() {
    let url = || pred::property("Url").icontains("example");
    for (filter, calls) in [
        (EventFilter::ids([7]), 1),
        (EventFilter::ids([9, 7, 7]), 1),
        (EventFilter::ids([8]), 0),
        (EventFilter::ids([]), 0),
        (EventFilter::ids([7]).and(url()), 1),
        (EventFilter::ids([8]).and(url()), 0),
        (EventFilter::ids([7]).and(!url()), 0),
        (EventFilter::new(url()), 1),
        (EventFilter::new(url()).and(pred::level_is(4)), 1),
        (EventFilter::new(url()).and(pred::level_is(5)), 0),
        (EventFilter::new(pred::any_event()), 1),
        (EventFilter::new(pred::no_event()), 0),
    ] {
        let description = format!("{filter:?}");
        assert_eq!(dispatched(PROVIDER, filter).expect(&description), (calls, 0), "{description}");
    }
    assert_eq!(EventFilter::ids([9, 7, 7]).event_ids(), Some(&[7, 9][..]));
    assert_eq!(EventFilter::new(url()).event_ids(), None);
}

#[test]
fn fields_of_an_event_without_a_schema_are_an_error_of_it() {
    let property = || pred::property("Url").equals("x");
    for (filter, expected) in [
        (pred::any_event(), (1, 0)),
        (pred::level_is(0), (1, 0)),
        (pred::level_is(1) & property(), (0, 0)),
        (pred::level_is(0) | property(), (1, 0)),
        (property(), (0, 1)),
        (!property(), (0, 1)),
    ] {
        let found = dispatched(UNKNOWN, EventFilter::new(filter.clone())).expect("usable");
        assert_eq!(found, expected, "{filter}");
    }
}

#[test]
fn a_trace_with_an_invalid_filter_does_not_start() {
    let unusable = EventFilter::ids([7]).and(field("Url").equals("x"));
    assert!(unusable.predicate().is_err());
    let error = dispatched(PROVIDER, unusable).expect_err("no such field");
    assert_eq!(error.to_string(), "invalid filter: unknown field `Url`");
}
