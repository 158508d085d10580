//! Without context switches, threads are active at the moments of their events, and nothing more is known.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use stackhound::calltree::{ContextId, GroupBy};
use stackhound::trace::OpenTrace;
use stackhound::{Enrichment, Passes, Pipeline, Stacks};
use stackhound_etl::write::Issuer;
use stackhound_schema::kernel::{hook_id, is_added_by_tools};
use stackhound_types::Tid;

use crate::analysis::open;
use crate::measured::{TAIL, Tail, changed, generated};

/// Events that a thread logs about others, or for others: the lists at the start and the end, and the
/// configuration.
fn is_of_another_thread(hook_id: u16) -> bool {
    let lists = [
        hook_id::PROCESS_DC_START,
        hook_id::PROCESS_DC_END,
        hook_id::THREAD_DC_START,
        hook_id::THREAD_DC_END,
        hook_id::IMAGE_DC_START,
        hook_id::IMAGE_DC_END,
    ];
    matches!(hook_id >> 8, 0x00 | 0x0b) || lists.contains(&hook_id)
}

/// The longest time in which each thread can have been active: from each of its events to the next
/// event of another thread of the processor, in units of 100 ns.
fn longest(trace: &OpenTrace) -> BTreeMap<u32, u64> {
    let mut longest: BTreeMap<u32, u64> = BTreeMap::new();
    // By processor: the threads that the last event states, and its time.
    let mut running: BTreeMap<u16, (Vec<u32>, i64)> = BTreeMap::new();
    let mut last = 0;
    let mut add = |(threads, since): (Vec<u32>, i64), now: i64| {
        for thread in threads {
            *longest.entry(thread).or_default() += now.saturating_sub(since).max(0) as u64;
        }
    };
    Pipeline::new(trace, Passes::Two).run(|view| {
        last = view.utc().0;
        let stated = [view.stack_owner().tid, view.event().header_tid()];
        let mut stated: Vec<u32> = stated.into_iter().flatten().map(|tid| tid.0).collect();
        stated.dedup();
        // Tools add events when they merge traces.
        let is_of_another = match view.event().hook_id() {
            Some(hook_id) => is_of_another_thread(hook_id),
            None => view.event().guid().is_some_and(is_added_by_tools),
        };
        let is_own = !is_of_another && !stated.is_empty();
        if let Some(processor) = view.processor().filter(|_| is_own)
            && let Some(before) = running.insert(processor, (stated, last))
        {
            add(before, last);
        }
        ControlFlow::Continue(())
    });
    running.into_values().for_each(|before| add(before, last));
    longest
}

/// Without switches, only moments are observed.
#[track_caller]
fn check_moments(name: &str, trace: &OpenTrace) -> usize {
    let limits = longest(trace);
    let (stacks, report) = stackhound::timeline(trace, Enrichment::default(), Stacks::Recorded).unwrap();
    assert_eq!((report.counts.switches, stacks.has_switches()), (0, false), "{name}");
    let mut checked = 0;
    for group in stacks.groups(GroupBy::Thread, |_| true) {
        let (Some(thread), Some((shortest, longest))) = (group.thread, group.activity.time) else { continue };
        let range = group.activity.range.expect("it was active");
        let time = |at| stacks.context(at).unwrap().time().unwrap();
        // Up to the next event, of another thread.
        let end = ContextId(range.last().0 + 1).min(stacks.last_context().id());
        let most = time(end) - time(range.begin());
        assert_eq!(shortest, 0, "{name}: thread {thread}");
        assert!(longest <= most, "{name}: thread {thread}: {longest} of {most}");
        // All idle threads have one id.
        let limit = limits.get(&thread).copied().unwrap_or(0);
        assert!(longest <= limit, "{name}: thread {thread}: {longest}, but its events allow {limit}");
        checked += 1;
    }
    checked
}

#[test]
fn without_switches_only_moments_of_threads_are_observed() {
    let mut checked = 0;
    for (name, trace) in generated() {
        checked += check_moments(&name, &changed(&trace, &[hook_id::THREAD_C_SWITCH], None));
    }
    assert!(checked > 50, "{checked} threads");
    let mut with_times = BTreeSet::new();
    for (name, _) in stackhound_corpus::trace_files() {
        let Some(bytes) = stackhound_corpus::etl_file(&name) else { continue };
        if check_moments(&name, &open(bytes)) > 0 {
            with_times.insert(name);
        }
    }
    assert!(stackhound_corpus::folder().is_none() || with_times.len() > 20, "{with_times:?}");
}

/// A session with context switches, and another one that runs for ten seconds more, with few events or
/// with many, of each thread that runs at the end of the first one.
#[test]
fn no_thread_is_active_after_the_session_with_switches() {
    let times = |trace: &OpenTrace| {
        let (stacks, _) = stackhound::timeline(trace, Enrichment::default(), Stacks::Recorded).unwrap();
        assert!(stacks.has_switches());
        stacks.activities().into_iter().map(|activity| activity.time).collect::<Vec<_>>()
    };
    let tails = [(TAIL, 1), (TAIL / 40_000, 40_000)];
    for (index, (name, trace)) in generated().into_iter().enumerate() {
        let expected = times(&changed(&trace, &[], None));
        // Many events add nothing in more than one trace.
        let tails = if index == 0 { &tails[..] } else { &tails[..1] };
        for issuer in running_at_end(&trace).into_values().chain([Issuer::UNKNOWN]) {
            for &(ticks, count) in tails {
                let tail = Tail { ticks, count, issuer };
                assert_eq!(times(&changed(&trace, &[], Some(tail))), expected, "{name}: {issuer:?} {count}");
            }
        }
    }
}

/// The thread that runs on each processor at the end of a trace.
fn running_at_end(trace: &OpenTrace) -> BTreeMap<u16, Issuer> {
    let mut running = BTreeMap::new();
    Pipeline::new(trace, Passes::Two).run(|view| {
        if view.event().hook_id() == Some(hook_id::THREAD_C_SWITCH) {
            let (_, value) = view.field("NewThreadId").unwrap();
            let tid = Tid(u32::try_from(value.as_u64().unwrap()).unwrap());
            let thread = view.trace_state().system().thread_of_event(tid, view.time());
            let issuer = thread.filter(|_| tid.0 != 0).map(|thread| Issuer::new(thread.pid(), tid));
            running.insert(view.processor().unwrap(), issuer);
        }
        ControlFlow::Continue(())
    });
    running.into_iter().filter_map(|(processor, issuer)| Some((processor, issuer?))).collect()
}
