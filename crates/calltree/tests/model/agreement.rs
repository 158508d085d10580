//! Compares the queries of the index with a naive model that searches everything.

use std::collections::HashSet;

use super::naive::{Event, Model, run, steps};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use stackhound_calltree::{
    Activity, Axis, Context, ContextId, Cpu, Frame, FrameId, GroupBy, LocationId, Pattern, StackEvent,
    StackId, TailCall, TransitionId,
};

fn number(frame: Frame<'_>) -> usize {
    frame.id().0 as usize
}

fn numbers<'t>(frames: impl IntoIterator<Item = Frame<'t>>) -> Vec<usize> {
    frames.into_iter().map(number).collect()
}

fn frame(model: &Model, number: usize) -> Frame<'_> {
    model.trace.frame(FrameId(number as u64)).unwrap()
}

fn event(event: StackEvent<'_>) -> Event {
    match event {
        StackEvent::FrameStart(frame) => Event::Start(number(frame)),
        StackEvent::FrameEnd(frame) => Event::End(number(frame)),
        StackEvent::StackLeave(transition) => Event::Leave(transition.id().0),
        StackEvent::StackEnter(transition) => Event::Enter(transition.id().0),
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, ..ProptestConfig::default() }
}

#[test]
fn random_traces_contain_all_types() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = [HashSet::new(), HashSet::new()];
    let mut below = 0;
    for _ in 0..200 {
        let model = run(&steps().new_tree(&mut runner).unwrap().current());
        for frame in &model.frames {
            seen[0].insert(format!("{:?}", frame.start));
            seen[1].insert(format!("{:?}", frame.end));
            below += usize::from(frame.ancestors.is_empty() && frame.first != frame.last);
        }
    }
    assert_eq!((seen[0].len(), seen[1].len()), (5, 8), "{seen:?}");
    assert!(below > 0);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn frames_match_the_built_ones(steps in steps()) {
        let model = run(&steps);
        prop_assert_eq!(model.trace.frame_count(), model.frames.len() as u64);
        for (index, expected) in model.frames.iter().enumerate() {
            let found = frame(&model, index);
            prop_assert_eq!((found.first_context().id().0, found.last_context().id().0), (expected.first, expected.last));
            prop_assert_eq!((found.start_type(), found.end_type()), (expected.start, expected.end));
            prop_assert_eq!(found.function_location().map(|location| location.id()), expected.location);
            prop_assert_eq!(found.stack().id().0 as usize, expected.stack);
            let mut ancestors = numbers(found.ancestors());
            ancestors.reverse();
            prop_assert_eq!(&ancestors, &expected.ancestors);
            let mut ids = Vec::new();
            found.ancestor_ids(&mut ids);
            prop_assert_eq!(ids, found.ancestors().map(|frame| frame.id()).collect::<Vec<_>>());
            prop_assert_eq!(found.depth() as usize, expected.ancestors.len());
            let children: Vec<usize> =
                (0..model.frames.len()).filter(|child| model.frames[*child].ancestors.last() == Some(&index)).collect();
            prop_assert_eq!(numbers(found.children()), children.clone());
            let reversed: Vec<usize> = children.into_iter().rev().collect();
            prop_assert_eq!(numbers(found.reversed_children()), reversed);
        }
    }

    #[test]
    fn tail_calls_match_the_made_ones(steps in steps()) {
        let model = run(&steps);
        let seen = |found: TailCall<'_>| {
            prop_assert_eq!(found.transition().id().0 + 1, found.first_context().id().0);
            Ok((found.first_context().id().0, found.location().unwrap().id(), number(found.frame())))
        };
        let mut all = Vec::new();
        for (index, expected) in model.frames.iter().enumerate() {
            let made = expected.tail_calls.iter().map(|&(first, location)| (first, location, index));
            let found: Vec<_> = frame(&model, index).tail_calls().map(seen).collect::<Result<_, _>>()?;
            prop_assert_eq!(&found, &made.clone().collect::<Vec<_>>());
            let ends = expected.tail_calls.iter().skip(1).map(|(next, _)| next - 1).chain([expected.last]);
            let ends: Vec<u64> = ends.take(found.len()).collect();
            let lasts: Vec<u64> =
                frame(&model, index).tail_calls().map(|found| found.last_context().id().0).collect();
            prop_assert_eq!(lasts, ends);
            all.extend(made);
        }
        prop_assert_eq!(model.trace.tail_call_count(), all.len() as u64);
        all.sort_by_key(|&(first, _, frame)| (first, frame));
        for name in ["f0", "f3", "*"] {
            let pattern = Pattern::new(name).unwrap();
            let found = model.trace.tail_calls(&pattern);
            let fits = |location: LocationId| name == "*" || name == format!("f{}", location.0);
            let expected: Vec<_> = all.iter().copied().filter(|(_, location, _)| fits(*location)).collect();
            prop_assert_eq!(found.into_iter().map(seen).collect::<Result<Vec<_>, _>>()?, expected);
        }
    }

    #[test]
    fn contexts_have_their_stacks_and_frames(steps in steps()) {
        let model = run(&steps);
        for context in 0..=model.transitions {
            for (cpu, active) in model.active.iter().enumerate() {
                let seen: Context<'_> = model.trace.context(ContextId(context)).unwrap().on(Cpu(cpu as u16));
                let stack = seen.stack();
                prop_assert_eq!(stack.map(|stack| stack.id().0 as usize), active[context as usize]);
                let Some(stack) = stack else { continue };
                let mut open = model.open(active[context as usize].unwrap(), context);
                open.reverse();
                prop_assert_eq!(stack.frame().map(number), open.first().copied());
                prop_assert_eq!(numbers(stack.frames()), open);
                prop_assert!(stack.is_active());
                // The stacks before and after this stack's period on the same processor.
                let same = |at: u64| active[at as usize] == active[context as usize];
                let begin = (0..=context).rev().take_while(|at| same(*at)).last().unwrap();
                let last = (context..=model.transitions).take_while(|at| same(*at)).last().unwrap();
                let before = begin.checked_sub(1).and_then(|at| Some((active[at as usize]?, at)));
                let after = (last < model.transitions).then(|| Some((active[last as usize + 1]?, last + 1))).flatten();
                let seen = |stack: Option<stackhound_calltree::Stack<'_>>| {
                    stack.map(|stack| (stack.id().0 as usize, stack.context().id().0))
                };
                prop_assert_eq!(seen(stack.prev_stack(Axis::Cpu)), before);
                prop_assert_eq!(seen(stack.next_stack(Axis::Cpu)), after);
            }
            for stack in 0..model.events.len() {
                let seen = model.trace.stack(StackId(stack as u32), ContextId(context)).unwrap();
                prop_assert_eq!(seen.is_active(), model.on(stack, context).is_some());
            }
        }
    }

    #[test]
    fn ranges_match_the_contexts(steps in steps()) {
        let model = run(&steps);
        for index in 0..model.frames.len() {
            let found = frame(&model, index);
            let plain: Vec<(u64, u64)> =
                found.execution_ranges().map(|range| (range.begin().0, range.last().0)).collect();
            let expected: Vec<(u64, u64)> =
                model.runs(index, |_| ()).into_iter().map(|(begin, last, ())| (begin, last)).collect();
            prop_assert_eq!(&plain, &expected);
            let by_call: Vec<(u64, u64, usize)> = found
                .execution_ranges_by_call()
                .map(|part| (part.range.begin().0, part.range.last().0, number(part.frame)))
                .collect();
            let stack = model.frames[index].stack;
            let expected = model.runs(index, |context| *model.open(stack, context).last().unwrap());
            prop_assert_eq!(&by_call, &expected);
            for part in found.execution_ranges_by_call() {
                let path = numbers(part.path());
                prop_assert_eq!(path[0], index);
                prop_assert_eq!(*path.last().unwrap(), number(part.frame));
                prop_assert_eq!(path.len() as u64, part.depth + 1);
            }
            let executed = by_call.iter().find(|part| part.2 == index).map(|part| part.0);
            prop_assert_eq!(found.first_executed_context().map(|context| context.id().0), executed);
        }
    }

    #[test]
    fn excluded_frames_are_removed_from_ranges(steps in steps(), excluded in any::<u32>()) {
        let model = run(&steps);
        let is_excluded = |number: usize| excluded >> (number % 32) & 1 == 1;
        for index in 0..model.frames.len() {
            let found = frame(&model, index);
            let own = model.frames[index].ancestors.len() + 1;
            let stack = model.frames[index].stack;
            let expected: Vec<(u64, u64, usize)> = model
                .runs(index, |context| {
                    let open = model.open(stack, context);
                    let hidden = open[own..].iter().any(|inner| is_excluded(*inner));
                    (*open.last().unwrap(), hidden)
                })
                .into_iter()
                .filter(|(_, _, (_, hidden))| !hidden)
                .map(|(begin, last, (top, _))| (begin, last, top))
                .collect();
            let seen: Vec<(u64, u64, usize)> = found
                .execution_ranges_by_call()
                .without(|frame| is_excluded(number(*frame)))
                .map(|part| (part.range.begin().0, part.range.last().0, number(part.frame)))
                .collect();
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn events_are_in_order_and_balanced(steps in steps()) {
        let model = run(&steps);
        for index in 0..model.frames.len() {
            let events: Vec<Event> = frame(&model, index).descendant_events().map(event).collect();
            prop_assert_eq!(events, model.below(index));
        }
    }

    #[test]
    fn skipping_children_is_filtering(steps in steps(), skipped in any::<u32>()) {
        let model = run(&steps);
        let is_skipped = |number: usize| skipped >> (number % 32) & 1 == 1;
        for index in 0..model.frames.len() {
            let mut expected = Vec::new();
            let mut within = None;
            for event in model.below(index) {
                match (within, event) {
                    (Some(outer), Event::End(number)) if number == outer => within = None,
                    (Some(_), _) => continue,
                    (None, Event::Start(number)) if is_skipped(number) => within = Some(number),
                    _ => {}
                }
                expected.push(event);
            }
            let mut events = frame(&model, index).descendant_events();
            let mut seen = Vec::new();
            while let Some(next) = events.next() {
                seen.push(event(next));
                if matches!(next, StackEvent::FrameStart(frame) if is_skipped(number(frame))) {
                    events.skip_children();
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn calls_are_found_by_name(steps in steps()) {
        let model = run(&steps);
        for (index, name) in ["f0", "f1", "f2", "f3", "f4"].into_iter().enumerate() {
            let mut expected: Vec<usize> = (0..model.frames.len())
                .filter(|number| model.frames[*number].location.is_some_and(|location| location.0 as usize == index))
                .collect();
            expected.sort_by_key(|number| (model.frames[*number].first, *number));
            prop_assert_eq!(numbers(model.trace.calls(&Pattern::new(name).unwrap())), expected);
        }
    }

    #[test]
    fn activities_count_active_contexts_and_frames(steps in steps()) {
        let model = run(&steps);
        let trace = &model.trace;
        let mut active = vec![Vec::new(); trace.stack_count() as usize];
        for id in (0..=model.transitions).map(ContextId) {
            for cpu in (0..trace.cpu_count()).map(|cpu| Cpu(cpu as u16)) {
                if let Some(stack) = trace.context(id).unwrap().on(cpu).stack() {
                    active[stack.id().0 as usize].push(id);
                }
            }
        }
        for (number, activity) in trace.activities().into_iter().enumerate() {
            let contexts = &active[number];
            prop_assert_eq!(activity.contexts, contexts.len() as u64);
            let range = activity.range.map(|range| (range.begin(), range.last()));
            prop_assert_eq!(range, contexts.first().copied().zip(contexts.last().copied()));
            let of_stack = |frame: u64| trace.frame(FrameId(frame)).unwrap().stack().id().0 as usize == number;
            let frames = (0..trace.frame_count()).filter(|frame| of_stack(*frame)).count();
            prop_assert_eq!(activity.frames, frames as u64);
        }
        let threads = trace.groups(GroupBy::Thread, |_| true);
        let together = threads.into_iter().map(|group| group.activity).fold(Activity::default(), Activity::and);
        let contexts: usize = active.iter().map(Vec::len).sum();
        prop_assert_eq!((together.contexts, together.frames), (contexts as u64, trace.frame_count()));
    }

    #[test]
    fn calls_are_counted(steps in steps()) {
        let model = run(&steps);
        for (location, count) in model.trace.call_counts() {
            let of = model.frames.iter().filter(|frame| frame.location == Some(location.id())).count();
            prop_assert_eq!(count, of as u64);
        }
        // The number of frames below each outermost one.
        let mut below = vec![0; model.frames.len()];
        for index in 0..model.frames.len() {
            below[model.frames[index].ancestors.first().copied().unwrap_or(index)] += 1;
        }
        let most = (0..below.len()).rev().max_by_key(|index| below[*index]);
        prop_assert_eq!(model.trace.largest_call(|_| true).map(number), most);
    }

    #[test]
    fn transitions_start_and_end_frames(steps in steps()) {
        let model = run(&steps);
        // The trace has one processor.
        prop_assume!(model.cpus == 1);
        for id in 0..model.transitions {
            let transition = model.trace.transition(TransitionId(id)).unwrap();
            if let Some(begun) = transition.begins() {
                prop_assert_eq!(begun.first_context().id().0, id + 1);
            }
            let top = model.active[0][id as usize].and_then(|stack| model.open(stack, id).last().copied());
            let ends = top.filter(|top| {
                let frame = &model.frames[*top];
                frame.last == id && frame.end != stackhound_calltree::EndType::TraceEnd
            });
            prop_assert_eq!(transition.ends().is_some(), ends.is_some());
        }
    }

    #[test]
    fn an_index_reads_the_same_from_its_bytes(steps in steps()) {
        let model = run(&steps);
        let again = stackhound_calltree::Trace::open(model.trace.as_bytes().to_vec().into()).unwrap();
        prop_assert_eq!(again.as_bytes(), model.trace.as_bytes());
        prop_assert_eq!(again.frame_count(), model.trace.frame_count());
    }
}

proptest! {
    #[test]
    fn steps_match_a_walk_over_all_transitions(steps in steps()) {
        crate::oracle::check(&run(&steps).trace);
    }
}
