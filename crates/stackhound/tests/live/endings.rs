//! Failures of live traces: each case has its own error, and leaves no session running.

use std::ops::ControlFlow;

use stackhound::live::{Error as LiveError, IfExists, LiveSession, Session};
use stackhound::{Error, EventView, Trace, TraceStats};
use stackhound_etw_fake::harness::Harness;

use crate::trace_files;

/// Sessions that are running: in some tests, another one with the same name.
fn names() -> Vec<String> {
    LiveSession::list().expect("a list").into_iter().map(|session| session.name).collect()
}

/// Runs with these settings, and checks the outcome and the remaining sessions.
#[track_caller]
fn check(
    test: &str,
    settings: &str,
    trace: impl FnOnce() -> Trace,
    expected: impl FnOnce(Result<TraceStats, Error>),
    left: &[&str],
) {
    let settings = format!("{settings}\n[*]\ntrace = TRACE\nrounds = forever\n");
    let Some(harness) = Harness::run(test, &settings, trace_files::plain) else { return };
    let mut count = 0;
    let outcome = trace().without_stacks().run(|_: &EventView<'_>| {
        count += 1;
        if count == 5_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    expected(outcome);
    assert_eq!(names(), left, "{:#?}", harness.log(""));
}

fn mine() -> Trace {
    Trace::live(Session::user("mine"))
}

#[test]
fn a_handler_that_breaks_ends_the_session() {
    let whole = |outcome: Result<TraceStats, Error>| assert_eq!(outcome.unwrap().delivered, 5_000);
    check("endings::a_handler_that_breaks_ends_the_session", "", mine, whole, &[]);
}

#[test]
fn a_handler_that_panics_ends_the_session() {
    let test = "endings::a_handler_that_panics_ends_the_session";
    let settings = "[*]\ntrace = TRACE\nrounds = forever\n";
    let Some(_harness) = Harness::run(test, settings, trace_files::plain) else { return };
    let mut count = 0;
    let outcome = mine().without_stacks().run(|_: &EventView<'_>| {
        count += 1;
        assert!(count < 700, "enough");
        ControlFlow::Continue(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(&error, Error::Panicked(message) if message.contains("enough")), "{error}");
    assert_eq!(names(), [""; 0]);
}

#[test]
fn a_session_of_that_name_runs() {
    let exists = |outcome: Result<TraceStats, Error>| {
        let error = outcome.unwrap_err();
        assert!(matches!(&error, Error::Live(LiveError::SessionExists(name)) if name == "mine"), "{error}");
    };
    check("endings::a_session_of_that_name_runs", "exists = mine", mine, exists, &["mine"]);
}

#[test]
fn a_session_of_that_name_is_replaced() {
    let trace = || Trace::live(Session::user("mine").if_exists(IfExists::Replace));
    let whole = |outcome: Result<TraceStats, Error>| assert_eq!(outcome.unwrap().delivered, 5_000);
    check("endings::a_session_of_that_name_is_replaced", "exists = mine", trace, whole, &[]);
}

#[test]
fn a_session_that_is_attached_to_goes_on() {
    let trace = || Trace::attach("mine");
    let whole = |outcome: Result<TraceStats, Error>| assert_eq!(outcome.unwrap().delivered, 5_000);
    check("endings::a_session_that_is_attached_to_goes_on", "exists = mine", trace, whole, &["mine"]);
}

#[test]
fn attaching_to_a_missing_session_is_an_error() {
    let missing = |outcome: Result<TraceStats, Error>| {
        let error = outcome.unwrap_err();
        assert!(matches!(&error, Error::Live(LiveError::NoSession(name)) if name == "mine"), "{error}");
    };
    check("endings::attaching_to_a_missing_session_is_an_error", "", || Trace::attach("mine"), missing, &[]);
}

fn denied(outcome: Result<TraceStats, Error>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Live(LiveError::AccessDenied { .. })), "{error}");
    assert!(error.to_string().contains("Administrators"), "{error}");
}

#[test]
fn starting_is_denied() {
    check("endings::starting_is_denied", "error StartTraceW = 5", mine, denied, &[]);
}

#[test]
fn opening_is_denied() {
    let settings = "error OpenTraceW = 5\nerror OpenTraceFromRealTimeLogger = 5";
    check("endings::opening_is_denied", settings, mine, denied, &[]);
}

#[test]
fn no_sessions_are_left() {
    let none_left = |outcome: Result<TraceStats, Error>| {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Live(LiveError::NoSessionsLeft)), "{error}");
    };
    check("endings::no_sessions_are_left", "error StartTraceW = 1450", mine, none_left, &[]);
}

#[test]
fn the_system_has_no_raw_buffers() {
    let whole = |outcome: Result<TraceStats, Error>| assert_eq!(outcome.unwrap().delivered, 5_000);
    check("endings::the_system_has_no_raw_buffers", "raw = off", mine, whole, &[]);
}
