//! The exploration detects defects: models with those of the HOWTO of 2009, and with others.

use stackhound_kstack_proto::Flags;

use crate::defects::{Defect, Violation};
use crate::explorer::explore;
use crate::scenario::Kind::{Lasting, Mortal};
use crate::scenario::Scenario;

/// The exploration finds at least this violation with the defect, and none without it.
#[track_caller]
fn check_caught(scenario: Scenario, defect: Defect, violation: Violation) {
    assert!(explore(&scenario).violations.is_empty(), "{}", scenario.name);
    let visited = explore(&scenario.with(defect));
    let path = visited.violations.get(&violation);
    println!("{defect:?}: {:?}; a path to {violation:?}: {path:?}", visited.violations.keys());
    assert!(path.is_some(), "{defect:?} is not found as {violation:?}: {:#?}", visited.violations);
}

fn one() -> Scenario {
    Scenario::new("one request for another thread", 1, &[Lasting, Mortal], &[(0, 1)])
}

fn again() -> Scenario {
    Scenario::new("the same thread again", 1, &[Lasting, Mortal], &[(0, 1), (0, 1)])
}

#[test]
fn the_stack_of_the_requesting_thread_is_caught() {
    check_caught(one(), Defect::TakenForOwn, Violation::WrongThread);
}

#[test]
fn a_missing_run_down_is_caught() {
    check_caught(one(), Defect::NoRunDown, Violation::SlotLost);
    check_caught(one().without_removal(), Defect::NoRunDown, Violation::SlotLost);
}

#[test]
fn an_endless_wait_is_caught() {
    check_caught(one(), Defect::EndlessWait, Violation::EndlessWait);
    let each_other = Scenario::new("each other", 2, &[Mortal, Mortal], &[(0, 1), (1, 0)]);
    check_caught(each_other, Defect::EndlessWait, Violation::EndlessWait);
}

#[test]
fn a_capture_on_the_requesters_stack_is_caught() {
    check_caught(one(), Defect::OnTheStack, Violation::FreedInUse);
    check_caught(one().without_removal(), Defect::OnTheStack, Violation::FreedInUse);
}

#[test]
fn freeing_when_the_wait_fails_is_caught() {
    check_caught(one(), Defect::FreedOnTimeOut, Violation::FreedInUse);
}

#[test]
fn an_event_that_is_not_initialized_again_is_caught() {
    check_caught(again(), Defect::EventKept, Violation::StaleEvent);
}

#[test]
fn frames_of_an_earlier_capture_are_caught() {
    check_caught(again(), Defect::FramesKept, Violation::ForeignFrames);
    check_caught(again().with_parts(Flags::USER), Defect::FramesKept, Violation::ForeignFrames);
}

#[test]
fn a_thread_that_is_not_referenced_is_caught() {
    check_caught(one(), Defect::ThreadReleasedEarly, Violation::ThreadGone);
}

#[test]
fn unloading_with_an_apc_queued_is_caught() {
    check_caught(one().without_removal(), Defect::Unloadable, Violation::CodeGone);
}

#[test]
fn a_reference_taken_after_queueing_is_caught() {
    check_caught(one(), Defect::ReferredLate, Violation::Stale);
}

#[test]
fn two_captures_of_one_thread_are_caught() {
    let two = Scenario::new("two requests for one thread", 2, &[Lasting, Lasting, Mortal], &[(0, 2), (1, 2)]);
    check_caught(two, Defect::NumbersRounded, Violation::TwoCaptures);
}

#[test]
fn an_apc_that_ignores_abandonment_is_caught() {
    check_caught(one(), Defect::AbandonmentIgnored, Violation::SignaledAbandoned);
}

#[test]
fn a_kernel_stack_that_is_published_too_early_is_caught() {
    let both = Flags::KERNEL.and(Flags::USER);
    check_caught(one().with_parts(both), Defect::KernelStackLate, Violation::ForeignFrames);
}

#[test]
fn a_user_stack_over_the_kernel_stack_is_caught() {
    let both = Flags::KERNEL.and(Flags::USER);
    check_caught(one().with_parts(both), Defect::UserOverKernel, Violation::ForeignFrames);
}

#[test]
fn a_user_stack_walked_in_a_critical_region_is_caught() {
    let scenario = Scenario { regions: true, ..one().with_parts(Flags::USER) };
    check_caught(scenario, Defect::RegionIgnored, Violation::PagedInRegion);
}

#[test]
fn a_removal_without_cleanup_is_caught() {
    check_caught(one(), Defect::RemovalForgotten, Violation::SlotLost);
}
