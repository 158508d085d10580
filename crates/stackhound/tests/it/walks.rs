//! Stack walks that do not reach the outermost function of their thread, and their effect on call
//! trees.

use std::collections::HashMap;
use std::ops::ControlFlow;

use stackhound::calltree::{Count, Pattern, StackKind};
use stackhound::stacks::StackState;
use stackhound::trace::{OpenTrace, Source};
use stackhound::{Enrichment, Passes, Pipeline, Stacks};
use stackhound_etl::EtlFile;

fn etl_file(name: &str) -> Option<OpenTrace> {
    let etl_file = EtlFile::open(stackhound_corpus::etl_file(name)?.into()).unwrap();
    Some(OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap())
}

/// A stack with user frames.
struct Walk {
    number: u64,
    thread: (u32, u32),
    /// User frames, innermost first.
    user: Vec<u64>,
    is_truncated: bool,
}

fn walks(trace: &OpenTrace, passes: Passes) -> Vec<Walk> {
    let (mut walks, mut number) = (Vec::new(), 0);
    Pipeline::new(trace, passes).run(|view| {
        let user: Vec<u64> = view.addresses().map(|address| address.0).filter(|at| at >> 63 == 0).collect();
        if let (false, Some(pid), Some(tid)) = (user.is_empty(), view.pid(), view.tid()) {
            let is_truncated = view.stack_states().has(StackState::Truncated);
            walks.push(Walk { number, thread: (pid.0, tid.0), user, is_truncated });
        }
        number += 1;
        ControlFlow::Continue(())
    });
    walks
}

/// For each thread, the address at which most of its walks end.
fn usual_ends(walks: &[Walk]) -> HashMap<(u32, u32), u64> {
    let mut ends: HashMap<(u32, u32), HashMap<u64, u64>> = HashMap::new();
    for walk in walks {
        *ends.entry(walk.thread).or_default().entry(*walk.user.last().unwrap()).or_default() += 1;
    }
    let usual = |ends: HashMap<u64, u64>| ends.into_iter().max_by_key(|(_, walks)| *walks).unwrap().0;
    ends.into_iter().map(|(thread, ends)| (thread, usual(ends))).collect()
}

/// Oracle: the address at which most walks of the thread end.
#[test]
fn walks_that_end_elsewhere_are_truncated() {
    let Some(trace) = etl_file("perfview-net452-x64.etl") else { return };
    let two = walks(&trace, Passes::Two);
    let usual = usual_ends(&two);
    let differ: Vec<&Walk> = two
        .iter()
        .filter(|walk| walk.is_truncated != (usual[&walk.thread] != *walk.user.last().unwrap()))
        .collect();
    // A thread that is starting: its first walks end in the loader, and are complete.
    let starts = |walk: &&&Walk| walk.user.len() > 1 && !walk.is_truncated && walk.thread == (3676, 3680);
    assert_eq!(differ.iter().filter(starts).count(), differ.len());
    assert_eq!(differ.len(), 8);
    let truncated: Vec<u64> = two.iter().filter(|walk| walk.is_truncated).map(|walk| walk.number).collect();
    assert_eq!(truncated.len(), 104);
    for number in [14_517, 14_639, 68_967] {
        assert!(truncated.contains(&number), "{number}");
    }
}

#[test]
fn read_once_walks_are_truncated_from_the_first_whole_one_on() {
    let Some(trace) = etl_file("perfview-net452-x64.etl") else { return };
    let (two, one) = (walks(&trace, Passes::Two), walks(&trace, Passes::One));
    let usual = usual_ends(&two);
    let known: HashMap<u64, bool> = two.iter().map(|walk| (walk.number, walk.is_truncated)).collect();
    let mut whole: HashMap<(u32, u32), u64> = HashMap::new();
    let (mut same, mut early) = (0, 0);
    for walk in &one {
        let end = *walk.user.last().unwrap();
        let is_known = whole.get(&walk.thread).is_some_and(|&walks| walks > 1);
        if end == usual[&walk.thread] {
            *whole.entry(walk.thread).or_default() += 1;
        }
        assert!(!walk.is_truncated || known[&walk.number], "{}", walk.number);
        // Only a later walk that ends further out shows that the loader is not the outermost
        // function.
        match is_known && walk.user.len() == 1 {
            true => assert_eq!(walk.is_truncated, known[&walk.number], "{}", walk.number),
            false => early += u64::from(walk.is_truncated != known[&walk.number]),
        }
        same += u64::from(walk.is_truncated == known[&walk.number]);
    }
    assert!(early <= 8, "{early}");
    assert_eq!(same + early, one.len() as u64);
}

#[test]
fn a_function_that_runs_once_is_one_call() {
    let Some(trace) = etl_file("perfview-net452-x64.etl") else { return };
    let (trace, report) = stackhound::timeline(&trace, Enrichment::default(), Stacks::Recorded).unwrap();
    let calls = trace.calls(&Pattern::new("PerfView.App.Main").unwrap());
    assert_eq!(calls.len(), 1);
    assert_eq!(trace.counted_frames(calls.iter().copied()), Count::AtLeast(1));
    // 32-bit code and 64-bit code have separate stacks, each with one outermost function.
    let last = trace.last_context().id();
    for kind in [StackKind::User, StackKind::Wow64] {
        let mut stacks = trace.stacks(last).unwrap();
        let stack = stacks.find(|stack| stack.info().thread == Some(3992) && stack.info().kind == kind);
        assert!(stack.is_some(), "{kind:?}");
    }
    // The remaining walks with different ends are from the start of threads.
    assert!(report.counts.unaligned < 30, "{}", report.counts.unaligned);
}
