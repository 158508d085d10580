//! The stack model of a trace equals the actions of its threads and processors.

use std::collections::HashMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::calltree::{Bound, ContextId, Cpu, EndType, Evidence, Frame, StackKind, Trace};
use stackhound::stacks::StackState;
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::StoreOptions;
use stackhound::symbols::{Symbolizer, SymbolizerOptions};
use stackhound::{Enrichment, Mode, Passes, Pipeline, Stacks};
use stackhound_etl::EtlFile;
use stackhound_scenario::{GroundTruth, Mix, Scenario, TraceEvent};
use stackhound_trace::{OpenTrace, Source};
use stackhound_types::{PointerSize, RawTime, Tid};

/// The first and the last context.
type Range = (u64, u64);

/// A trace, the actions in it, and the time and processor of each of its events.
struct Case {
    truth: stackhound_scenario::Truth,
    trace: OpenTrace,
    trace_events: Vec<TraceEvent>,
    events: Vec<(RawTime, u16)>,
}

fn case(events: u64, seed: u64) -> Case {
    let mut file = Cursor::new(Vec::new());
    let scenario = Scenario { events, seed, mix: Mix::Default };
    let (truth, trace_events) = scenario.write_with_events(&mut file).unwrap();
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap();
    let mut events = Vec::new();
    Pipeline::new(&trace, Passes::Two).run(|view| {
        events.push((view.raw_time(), view.processor().unwrap()));
        ControlFlow::Continue(())
    });
    Case { truth, trace, trace_events, events }
}

/// A call, its first and last context, and the contexts at which its stack was the active one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Expected {
    kind: u8,
    /// The thread id, or the processor.
    of: u32,
    first: u64,
    last: u64,
    routine: u64,
    end: u8,
    active: Vec<Range>,
}

/// The expected calls, determined by walking through the contexts one by one.
struct Truth {
    frames: Vec<Expected>,
    /// The first context after which actions are missing.
    lost_from: u64,
}

fn truth(case: &Case) -> Truth {
    let number: HashMap<(RawTime, u16), u64> =
        (0..).zip(&case.events).map(|(n, &event)| (event, n)).collect();
    let lost = case
        .trace_events
        .iter()
        .filter(|trace_event| !trace_event.kept)
        .map(|trace_event| (trace_event.time, trace_event.processor));
    let first_lost = lost.min_by_key(|lost| lost.0);
    let lost_from = first_lost.map_or(u64::MAX, |(time, on)| {
        let before = (0..).zip(&case.events).filter(|(_, event)| event.1 == on && event.0 < time);
        before.map(|(n, _)| n).last().unwrap() + 1
    });
    let transitions = case.events.len() as u64;
    let mut frames: Vec<Expected> = Vec::new();
    let mut open: HashMap<Tid, Vec<usize>> = HashMap::new();
    // For each processor: the threads that it runs and their first contexts, and its interruptions.
    // For each thread: the contexts directly before its calls.
    let mut runs: Vec<Vec<(u64, Tid)>> = vec![Vec::new(); 4];
    let mut interrupted: Vec<Vec<(Range, StackKind)>> = vec![Vec::new(); 4];
    let mut in_user_mode: HashMap<Tid, Vec<u64>> = HashMap::new();
    for trace_event in case.trace_events.iter().filter(|trace_event| trace_event.kept) {
        let n = number[&(trace_event.time, trace_event.processor)];
        let on = usize::from(trace_event.processor);
        match trace_event.action {
            GroundTruth::Switch { old, old_ends, new } => {
                runs[on].push((n + 1, new));
                for at in open.get_mut(&old).filter(|_| old_ends).into_iter().flat_map(|open| open.drain(..))
                {
                    (frames[at].last, frames[at].end) = (n, EndType::Unwound as u8);
                }
            }
            GroundTruth::Enter { tid, routine } => {
                in_user_mode.entry(tid).or_default().push(n);
                open.entry(tid).or_default().push(frames.len());
                let (kind, end) = (StackKind::Kernel as u8, EndType::TraceEnd as u8);
                let (first, last, routine, active) = (n + 1, transitions, routine.0, Vec::new());
                frames.push(Expected { kind, of: tid.0, first, last, routine, end, active });
            }
            GroundTruth::Exit { tid } => {
                if let Some(at) = open.entry(tid).or_default().pop() {
                    (frames[at].last, frames[at].end) = (n, EndType::Return as u8);
                }
            }
            GroundTruth::Interrupt { since, routine, is_deferred } => {
                let reached = case.events.iter().position(|event| event.0 >= since).unwrap() as u64;
                let own = (0..).zip(&case.events).filter(|(_, event)| event.1 == trace_event.processor);
                let after = own.take_while(|(_, event)| event.0 <= since).map(|(n, _)| n + 1).last();
                let first = reached.max(after.unwrap_or(0));
                let kind = if is_deferred { StackKind::Deferred } else { StackKind::Interrupt };
                let end = if is_deferred { EndType::Return } else { EndType::InterruptReturn } as u8;
                interrupted[on].push(((first, n), kind));
                let (of, last, routine, active) =
                    (trace_event.processor.into(), n, routine.0, vec![(first, n)]);
                frames.push(Expected { kind: kind as u8, of, first, last, routine, end, active });
            }
            _ => {}
        }
    }
    for frame in frames.iter_mut().filter(|frame| frame.kind == StackKind::Kernel as u8) {
        let mut active = vec![false; (frame.last - frame.first + 1) as usize];
        for (runs, interrupted) in runs.iter().zip(&interrupted) {
            for (at, &(first, tid)) in runs.iter().enumerate().filter(|(_, run)| run.1.0 == frame.of) {
                let last = runs.get(at + 1).map_or(transitions, |next| next.0 - 1);
                for context in first.max(frame.first)..=last.min(frame.last) {
                    let is_cut = interrupted.iter().any(|(cut, _)| (cut.0..=cut.1).contains(&context));
                    let is_user = in_user_mode[&tid].binary_search(&context).is_ok();
                    active[(context - frame.first) as usize] |= !is_cut && !is_user;
                }
            }
        }
        for (context, _) in (frame.first..).zip(&active).filter(|(_, active)| **active) {
            add(&mut frame.active, (context, context));
        }
    }
    frames.sort();
    Truth { frames, lost_from }
}

fn add(ranges: &mut Vec<Range>, range: Range) {
    match ranges.last_mut() {
        Some(last) if last.1 + 1 == range.0 => last.1 = range.1,
        _ => ranges.push(range),
    }
}

fn found(frame: &Frame<'_>) -> Expected {
    let info = frame.stack().info();
    let of = match info.kind {
        StackKind::Kernel => info.thread.unwrap(),
        _ => info.cpu.unwrap().0.into(),
    };
    let mut active = Vec::new();
    for range in frame.execution_ranges() {
        add(&mut active, (range.begin().0, range.last().0));
    }
    Expected {
        kind: info.kind as u8,
        of,
        first: frame.first_context().id().0,
        last: frame.last_context().id().0,
        routine: frame
            .function_location()
            .and_then(|location| location.address())
            .map_or(0, |address| address.0),
        end: frame.end_type() as u8,
        active,
    }
}

fn boundaries(trace: &Trace) -> impl Iterator<Item = Frame<'_>> {
    let frames = (0..trace.frame_count()).map(|n| trace.frame(stackhound::calltree::FrameId(n)).unwrap());
    frames.filter(|frame| frame.evidence() == Evidence::Boundary)
}

/// The first context at which the thread of a processor is no longer known.
fn first_gap(trace: &Trace) -> u64 {
    let stack = |cpu: u16, at: u64| trace.context(ContextId(at)).unwrap().on(Cpu(cpu)).stack();
    let has_stack = |cpu, at| stack(cpu, at).is_some();
    let has_thread = |cpu, at| stack(cpu, at).is_some_and(|stack| stack.info().thread.is_some());
    let gaps = (0..4).filter_map(|cpu| {
        let mut contexts = 0..=trace.transition_count();
        contexts.find(|&at| has_thread(cpu, at))?;
        contexts.find(|&at| !has_stack(cpu, at))
    });
    gaps.min().unwrap()
}

#[test]
fn system_calls_and_interruptions_match_the_ground_truth() {
    for seed in 1..=5 {
        let case = case(20_000, seed);
        let truth = truth(&case);
        let (trace, report) =
            stackhound::timeline(&case.trace, Enrichment::default(), Stacks::Exact).unwrap();
        assert_eq!(trace.transition_count(), case.events.len() as u64);
        // A missing buffer may belong to any processor whose sequence numbers go past it.
        // Therefore, the threads of some processors become unknown earlier than those of the
        // processor that lost the buffer.
        let lost_from = first_gap(&trace);
        assert!(lost_from <= truth.lost_from && lost_from > truth.lost_from * 3 / 4, "{lost_from}");
        let is_before = |frame: &Expected| frame.last + 1 < lost_from;
        let mut before: Vec<Expected> = boundaries(&trace)
            .filter(|frame| frame.start() == Bound::Observed(frame.first_context().id()))
            .map(|frame| found(&frame))
            .filter(is_before)
            .collect();
        before.sort();
        let expected: Vec<Expected> = truth.frames.iter().filter(|frame| is_before(frame)).cloned().collect();
        for (found, expected) in before.iter().zip(&expected) {
            assert_eq!(found, expected, "seed {seed}");
        }
        assert_eq!(before.len(), expected.len());
        assert!(before.len() > 1000, "{}", before.len());

        // After the loss, all bounds that are reported as observed must be right.
        let mut exact = 0;
        for frame in boundaries(&trace).filter(|frame| frame.last_context().id().0 + 1 >= lost_from) {
            let found = found(&frame);
            let same_stack = |true_one: &&Expected| (true_one.kind, true_one.of) == (found.kind, found.of);
            let around = |true_one: &&Expected| true_one.first <= found.first && found.last <= true_one.last;
            let true_one = truth.frames.iter().filter(same_stack).rfind(around);
            let was_older = frame.function_location().is_none();
            let Some(true_one) = true_one else {
                assert!(was_older, "{found:?}");
                continue;
            };
            for (bound, context) in [(frame.start(), true_one.first), (frame.end(), true_one.last)] {
                match bound {
                    Bound::Observed(at) => {
                        assert_eq!(at, ContextId(context), "{found:?} {true_one:?}");
                        exact += 1;
                    }
                    Bound::Inferred { lo, hi } => {
                        assert!((lo.0..=hi.0).contains(&context), "{found:?} {true_one:?}");
                    }
                    Bound::Open => assert!(true_one.last == trace.transition_count()),
                }
            }
        }
        assert!(exact > 100, "{exact}");
        assert!(report.counts.gaps > 0 && report.counts.conflicting_threads == 0, "{:?}", report.counts);
        assert_eq!(report.counts.clipped_interruptions, 0);
    }
}

#[test]
fn recorded_stacks_are_at_the_contexts_of_their_events() {
    for seed in [1, 2] {
        let case = case(20_000, seed);
        let exact = stackhound::timeline(&case.trace, Enrichment::default(), Stacks::Exact).unwrap().0;
        let (trace, report) =
            stackhound::timeline(&case.trace, Enrichment::default(), Stacks::Recorded).unwrap();
        let bounds = |trace: &Trace| {
            let mut bounds: Vec<_> = boundaries(trace)
                .filter(|frame| frame.function_location().is_some())
                .map(|frame| (found(&frame), frame.start(), frame.end()))
                .map(|(found, start, end)| {
                    (found.kind, found.of, found.first, found.last, format!("{start:?} {end:?}"))
                })
                .collect();
            bounds.sort();
            bounds
        };
        assert_eq!(bounds(&trace), bounds(&exact), "exact calls do not depend on recorded stacks");

        let lost_from = first_gap(&trace);
        let (mut n, mut compared, mut same) = (0, 0, 0);
        Pipeline::new(&case.trace, Passes::Two).run(|view| {
            let owner = view.stack_owner();
            // Providers record only the 32-bit frames; the others remain on the stack.
            let is_whole = view.event().record().pointer_size() == PointerSize::Eight;
            if let (StackState::Complete, Some(tid), true) =
                (view.state(), owner.tid, n < lost_from && is_whole)
            {
                let user: Vec<u64> = view
                    .frames()
                    .filter(|frame| frame.mode == Mode::User)
                    .map(|frame| frame.address().0)
                    .collect();
                let context = trace.context(ContextId(n)).unwrap();
                let modules = |address: u64| {
                    let frame = view.frames().find(|frame| frame.address().0 == address).unwrap();
                    frame.module().map(|module| module.path().to_owned())
                };
                let expected: Vec<Option<String>> = user.iter().map(|&address| modules(address)).collect();
                if let Some(stack) = context.stack_of(tid.0, StackKind::User).filter(|_| !user.is_empty()) {
                    // 64-bit code of 32-bit programs is on a separate stack.
                    let wow64 = context.stack_of(tid.0, StackKind::Wow64);
                    let found: Vec<Option<String>> = wow64
                        .into_iter()
                        .chain([stack])
                        .flat_map(|stack| stack.frames())
                        .filter(|frame| frame.evidence() != Evidence::Exact)
                        .map(|frame| frame.function_location()?.module()?.path.map(str::to_owned))
                        .collect();
                    compared += 1;
                    same += u64::from(found == expected);
                }
            }
            n += 1;
            ControlFlow::Continue(())
        });
        assert!(compared > 900, "{compared}");
        assert_eq!(same, compared, "{:?}", report.counts);
    }
}

#[test]
fn with_names_kernel_frames_are_children_of_their_system_calls() {
    let case = case(20_000, 4);
    let folder = tempfile::tempdir().unwrap();
    for image in case.truth.image_files() {
        let path = folder.path().join(image.store_path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, image.bytes).unwrap();
    }
    let path = SymbolPath::store(folder.path().to_owned());
    let store = StoreOptions { path, cache: None, ..StoreOptions::default() };
    let symbolizer = Symbolizer::new(SymbolizerOptions { store, ..SymbolizerOptions::default() }).unwrap();
    let enrichment = Enrichment { symbolizer: Some(symbolizer), ..Enrichment::default() };
    let (trace, report) = stackhound::timeline(&case.trace, enrichment, Stacks::Recorded).unwrap();
    // Without names, the position of a routine in a stack is unknown.
    assert!(report.counts.without_routine < report.counts.snapshots_used / 10, "{:?}", report.counts);
    let names = |frame: &Frame<'_>| {
        let location = frame.function_location()?;
        Some((location.module()?.name.to_owned(), location.symbol()?.to_owned(), location.symbol_offset()))
    };
    let mut below = 0;
    for call in boundaries(&trace).filter(|frame| frame.stack().info().kind == StackKind::Kernel) {
        let Some((module, symbol, offset)) = names(&call) else { continue };
        assert!(symbol.starts_with("Nt") && offset == 0, "{module}!{symbol}+{offset:#x}");
        for child in call.children().filter(|child| child.evidence() == Evidence::Snapshot) {
            let (bounds, own) = (child.range(), call.range());
            assert!(own.begin() <= bounds.begin() && bounds.last() <= own.last());
            below += 1;
        }
    }
    assert!(below > 300, "{below}");
}
