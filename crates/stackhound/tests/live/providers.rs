//! The session in which a provider is enabled.

use stackhound::live::{KernelGroups, Session};
use stackhound::{Provider, Trace};
use stackhound_etw_fake::harness::Harness;

use crate::trace_files;

/// Runs with one provider, and returns how often it was enabled.
fn enabled(harness: &Harness, trace: Trace) -> usize {
    let before = harness.log("EnableTraceEx2 enable").len();
    trace.enable(Provider::guid(trace_files::PROVIDER).on_event(|_| ())).run(|_| ()).expect("a whole trace");
    harness.log("EnableTraceEx2 enable").len() - before
}

#[test]
fn a_kernel_session_takes_providers_where_it_is_alone() {
    let test = "providers::a_kernel_session_takes_providers_where_it_is_alone";
    let Some(harness) = Harness::run(test, "[*]\ntrace = TRACE\n", trace_files::plain) else {
        return;
    };
    let kernel = || Trace::live(Session::kernel("kernel", KernelGroups::PROCESS)).without_stacks();
    assert_eq!(enabled(&harness, kernel()), 1);
    assert_eq!(enabled(&harness, kernel().and_live(Session::user("user"))), 1);
}
