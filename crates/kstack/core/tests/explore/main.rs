//! Every order of the steps of requests and APCs, in a model of a kernel that takes every possible
//! action.
//!
//! The state machines are those of the driver. At any moment, the model may take these actions:
//!
//! - A thread takes the APC in its queue, or never does.
//! - A thread ends, and refuses APCs from then on.
//! - A thread is in a critical region or not.
//! - A thread hangs while it reads a page of its user stack.
//! - A wait ends without an answer.
//! - An APC is removed from its queue, or not, or too late.
//! - An APC runs before the queueing call returns.
//! - A walk returns frames, none or an error.
//! - The waiting thread has to run an APC itself.
//!
//! `cargo test -p stackhound-kstack-core --test explore -- --nocapture` prints the numbers of
//! states, transitions and paths.
#![cfg(not(loom))]

mod defects;
mod explorer;
mod mutants;
mod scenario;
mod system;
mod tape;
mod world;

use stackhound_kstack_proto::{Flags, Missing};

use explorer::explore;
use scenario::Kind::{Idle, Lasting, Mortal};
use scenario::{Scenario, Walks};
use system::Ended;

const BOTH: Flags = Flags::KERNEL.and(Flags::USER);

/// All possible results of a request for a thread that may end.
const ANY: [Ended; 4] = [Ended::Captured, Ended::NoThread, Ended::Terminating, Ended::TimedOut];
/// The same with other requests in progress.
const ANY_OR_BUSY: [Ended; 5] =
    [Ended::Captured, Ended::NoThread, Ended::Terminating, Ended::TimedOut, Ended::Busy];

/// Explores a scenario: it has no violation, and exactly these ends.
#[track_caller]
fn check(scenario: &Scenario, ends: &[Ended]) {
    let visited = explore(scenario);
    println!("{}{}: {visited}", scenario.name, if scenario.removal { "" } else { ", no removal" });
    assert!(visited.violations.is_empty(), "{}: {:#?}", scenario.name, visited.violations);
    assert_eq!(visited.ends, ends.iter().copied().collect(), "{}", scenario.name);
    // The bound that `Requester` documents. It relies only on the timeout of the wait.
    let bound = 13 + 2 * scenario.slots as u32;
    assert!(visited.steps <= bound, "{}: {} steps", scenario.name, visited.steps);
    assert!(visited.paths > 0, "{}: no path ended", scenario.name);
}

/// With and without the removal of APCs.
#[track_caller]
fn check_both(scenario: Scenario, ends: &[Ended]) {
    check(&scenario, ends);
    check(&scenario.without_removal(), ends);
}

#[test]
fn one_request_for_another_thread() {
    check_both(Scenario::new("one request for another thread", 1, &[Lasting, Mortal], &[(0, 1)]), &ANY);
}

#[test]
fn one_request_with_failing_walks() {
    let scenario = Scenario::new("walks may fail", 1, &[Lasting, Mortal], &[(0, 1)]).with_parts(BOTH);
    check_both(Scenario { walks: Walks::MayFail, ..scenario.clone() }, &ANY);
    check_both(Scenario { user: Err(Missing::System), ..scenario.clone() }, &ANY);
    check_both(scenario.with_parts(Flags::USER), &ANY);
}

#[test]
fn one_request_for_a_thread_in_a_critical_region() {
    let scenario = Scenario::new("critical regions", 1, &[Lasting, Mortal], &[(0, 1)]);
    let scenario = Scenario { regions: true, ..scenario };
    check_both(scenario.clone().with_parts(BOTH), &ANY);
    check_both(scenario.with_parts(BOTH.and(Flags::USER_IN_CRITICAL_REGION)), &ANY);
}

#[test]
fn one_request_for_a_thread_that_hangs_in_a_page_of_its_user_stack() {
    let one = Scenario::new("a page hangs", 1, &[Lasting, Mortal], &[(0, 1)]).with_parts(BOTH);
    check_both(Scenario { hangs: true, ..one }, &ANY);
    for slots in [1, 2] {
        let again = Scenario::new("a page hangs, and again", slots, &[Lasting, Mortal], &[(0, 1), (0, 1)]);
        check_both(Scenario { hangs: true, ..again.with_parts(BOTH) }, &ANY_OR_BUSY);
    }
    let other = Scenario::new("a page hangs, then another", 2, &[Lasting, Mortal, Mortal], &[(0, 1), (0, 2)]);
    check_both(Scenario { hangs: true, ..other.with_parts(BOTH) }, &ANY);
}

#[test]
fn two_requests_for_one_thread() {
    for slots in [1, 2] {
        let scenario = Scenario::new(
            "two requests for one thread",
            slots,
            &[Lasting, Lasting, Mortal],
            &[(0, 2), (1, 2)],
        );
        check_both(scenario, &ANY_OR_BUSY);
    }
}

#[test]
#[ignore = "takes half of the time of all others; .ci/run runs it"]
fn two_requests_for_two_threads() {
    let scenario = |slots| {
        Scenario::new(
            "two requests for two threads",
            slots,
            &[Lasting, Lasting, Mortal, Mortal],
            &[(0, 2), (1, 3)],
        )
    };
    check_both(scenario(1), &ANY_OR_BUSY);
    check_both(scenario(2), &ANY);
}

#[test]
fn two_requests_after_each_other() {
    for slots in [1, 2] {
        let again = Scenario::new("the same thread again", slots, &[Lasting, Mortal], &[(0, 1), (0, 1)]);
        check_both(again, &ANY_OR_BUSY);
    }
    let other =
        |slots| Scenario::new("another thread then", slots, &[Lasting, Mortal, Mortal], &[(0, 1), (0, 2)]);
    check_both(other(1), &ANY_OR_BUSY);
    check_both(other(2), &ANY);
}

#[test]
fn a_request_for_the_own_stack() {
    let scenario = Scenario::new("a request for the own stack", 1, &[Mortal], &[(0, 0)]).with_parts(BOTH);
    check_both(Scenario { walks: Walks::MayFail, ..scenario }, &[Ended::Captured]);
    // While another thread requests the same stack.
    let scenario = Scenario::new("itself and another", 2, &[Lasting, Mortal], &[(0, 1), (1, 1)]);
    check_both(scenario, &ANY_OR_BUSY);
}

#[test]
fn two_threads_request_each_other() {
    check_both(Scenario::new("each other", 2, &[Mortal, Mortal], &[(0, 1), (1, 0)]), &ANY);
    check_both(Scenario::new("each other, one slot", 1, &[Mortal, Mortal], &[(0, 1), (1, 0)]), &ANY_OR_BUSY);
}

#[test]
fn an_idle_thread_is_not_captured() {
    check_both(Scenario::new("idle", 1, &[Lasting, Idle], &[(0, 1)]), &[Ended::Idle]);
}
