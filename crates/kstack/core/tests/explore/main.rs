//! Every order of the steps of requests and APCs, in a model of a kernel that does whatever a kernel may do.
//!
//! The machines are those of the driver. What the model lets happen at any moment: a thread takes the APC in its queue, or never does; it
//! ends, and refuses APCs from then on; is in a critical region or not; hangs as it reads a page of its user stack; a wait ends without an answer; an APC can be taken back, or not, or too late; the APC runs before
//! queueing it is over; a walk gives frames, none or an error; the one who waits has to run an APC itself. `cargo test -p
//! stackhound-kstack-core --test explore -- --nocapture` prints how much was seen.
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

/// All that may come of a request for a thread that may end.
const ANY: [Ended; 4] = [Ended::Captured, Ended::NoThread, Ended::Terminating, Ended::TimedOut];
/// And if there are others who ask.
const ANY_OR_BUSY: [Ended; 5] =
    [Ended::Captured, Ended::NoThread, Ended::Terminating, Ended::TimedOut, Ended::Busy];

/// Explores a scenario: nothing that must not be is seen, and every end that is possible is.
#[track_caller]
fn check(scenario: &Scenario, ends: &[Ended]) {
    let seen = explore(scenario);
    println!("{}{}: {seen}", scenario.name, if scenario.removal { "" } else { ", no removal" });
    assert!(seen.violations.is_empty(), "{}: {:#?}", scenario.name, seen.violations);
    assert_eq!(seen.ends, ends.iter().copied().collect(), "{}", scenario.name);
    // As it is said at `Requester`, which counts on the limit of the wait only.
    let bound = 13 + 2 * scenario.slots as u32;
    assert!(seen.steps <= bound, "{}: {} steps", scenario.name, seen.steps);
    assert!(seen.paths > 0, "{}: nothing came to an end", scenario.name);
}

/// With and without the possibility to take an APC back.
#[track_caller]
fn check_both(scenario: Scenario, ends: &[Ended]) {
    check(&scenario, ends);
    check(&scenario.without_removal(), ends);
}

#[test]
fn one_asks_for_another() {
    check_both(Scenario::new("one asks for another", 1, &[Lasting, Mortal], &[(0, 1)]), &ANY);
}

#[test]
fn one_asks_for_another_and_walks_may_fail() {
    let scenario = Scenario::new("walks may fail", 1, &[Lasting, Mortal], &[(0, 1)]).with_parts(BOTH);
    check_both(Scenario { walks: Walks::MayFail, ..scenario.clone() }, &ANY);
    check_both(Scenario { user: Err(Missing::System), ..scenario.clone() }, &ANY);
    check_both(scenario.with_parts(Flags::USER), &ANY);
}

#[test]
fn one_asks_for_another_that_may_be_in_a_critical_region() {
    let scenario = Scenario::new("critical regions", 1, &[Lasting, Mortal], &[(0, 1)]);
    let scenario = Scenario { regions: true, ..scenario };
    check_both(scenario.clone().with_parts(BOTH), &ANY);
    check_both(scenario.with_parts(BOTH.and(Flags::USER_IN_CRITICAL_REGION)), &ANY);
}

#[test]
fn one_asks_for_another_that_may_hang_in_a_page_of_its_user_stack() {
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
fn two_ask_for_one_thread() {
    for slots in [1, 2] {
        let scenario =
            Scenario::new("two ask for one", slots, &[Lasting, Lasting, Mortal], &[(0, 2), (1, 2)]);
        check_both(scenario, &ANY_OR_BUSY);
    }
}

#[test]
fn two_ask_for_two_threads() {
    let scenario = |slots| {
        Scenario::new("two ask for two", slots, &[Lasting, Lasting, Mortal, Mortal], &[(0, 2), (1, 3)])
    };
    check_both(scenario(1), &ANY_OR_BUSY);
    check_both(scenario(2), &ANY);
}

#[test]
fn one_asks_again() {
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
fn one_asks_for_itself() {
    let scenario = Scenario::new("one asks for itself", 1, &[Mortal], &[(0, 0)]).with_parts(BOTH);
    check_both(Scenario { walks: Walks::MayFail, ..scenario }, &[Ended::Captured]);
    // While another asks for it.
    let scenario = Scenario::new("itself and another", 2, &[Lasting, Mortal], &[(0, 1), (1, 1)]);
    check_both(scenario, &ANY_OR_BUSY);
}

#[test]
fn two_ask_for_each_other() {
    check_both(Scenario::new("each other", 2, &[Mortal, Mortal], &[(0, 1), (1, 0)]), &ANY);
    check_both(Scenario::new("each other, one slot", 1, &[Mortal, Mortal], &[(0, 1), (1, 0)]), &ANY_OR_BUSY);
}

#[test]
fn an_idle_thread_is_not_asked() {
    check_both(Scenario::new("idle", 1, &[Lasting, Idle], &[(0, 1)]), &[Ended::Idle]);
}
