//! Compares folded frames with a walk of the stack at each context.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;
use stackhound_calltree::{
    Builder, Change, ContextId, Cpu, EndType, LocationInfo, StackId, StackInfo, StackKind, StartType, Trace,
};

use super::naive::{run, steps};

type Path = Vec<Option<u32>>;

/// By stack and path: transitions, and contexts of all processors.
type Weights = BTreeMap<(u32, Path), (u64, u64)>;

fn folded(trace: &Trace) -> Weights {
    let mut paths: Vec<Path> = Vec::new();
    let mut weights = Weights::new();
    let mut ranges = Vec::new();
    let entered = trace.fold(
        |_, parent: Option<usize>, location| {
            let mut path = parent.map_or_else(Path::new, |parent| paths[parent].clone());
            path.push(location.map(|location| location.id().0));
            paths.push(path);
            Ok::<_, Infallible>(paths.len() - 1)
        },
        |stack, path, range, cpu| ranges.push((stack, path, range, cpu)),
    );
    entered.unwrap();
    for (stack, path, range, cpu) in ranges {
        let path = path.map_or_else(Path::new, |path| paths[path].clone());
        let sums = weights.entry((stack.0, path)).or_default();
        sums.0 += trace.transitions_of(cpu, range);
        sums.1 += range.len();
    }
    weights.retain(|_, sums| *sums != (0, 0));
    weights
}

fn walked(trace: &Trace, cpus: usize) -> Weights {
    let mut weights = Weights::new();
    for number in 0..=trace.transition_count() {
        let context = trace.context(ContextId(number)).unwrap();
        for cpu in (0..cpus).map(|cpu| Cpu(cpu as u16)) {
            let Some(stack) = context.on(cpu).stack() else { continue };
            let mut path: Path = stack
                .frames()
                .map(|frame| frame.function_location().map(|location| location.id().0))
                .collect();
            path.reverse();
            let sums = weights.entry((stack.id().0, path)).or_default();
            let is_own = number < trace.transition_count() && context.cpu() == cpu;
            sums.0 += u64::from(is_own);
            sums.1 += 1;
        }
    }
    weights
}

/// Two processors with one stack each, on which frames begin and end in turns.
fn described(cpus: &[bool]) -> Trace {
    let mut builder = Builder::new();
    let label = builder.label("Event");
    let mut depths = [0; 2];
    for number in 0..2 {
        let (kind, thread) = (StackKind::User, Some(number));
        builder.stack(StackInfo { kind, process: Some(1), thread, cpu: None, name: None, region: None });
        let (cpu, stack) = (Cpu(number as u16), StackId(number));
        builder.apply(Change::Enter { cpu, stack, first: ContextId(0) }).unwrap();
    }
    for (number, &cpu) in (0_u64..).zip(cpus) {
        let cpu = usize::from(cpu);
        let stack = StackId(cpu as u32);
        builder.transition(1_000 + 7 * number, Cpu(cpu as u16), label);
        if number % 3 < 2 {
            let symbol = Some(format!("f{}", number % 2));
            let location = LocationInfo { address: None, module: None, rva: None, symbol, symbol_offset: 0 };
            let (first, location) = (ContextId(number + 1), Some(builder.location(location)));
            builder.apply(Change::Open { stack, first, start: StartType::Call, location }).unwrap();
            depths[cpu] += 1;
        } else if depths[cpu] > 0 {
            let (last, end) = (ContextId(number), EndType::Return);
            builder.apply(Change::Close { stack, last, end }).unwrap();
            depths[cpu] -= 1;
        }
    }
    builder.finish(cpus.len() as u64).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn folded_frames_are_those_of_all_contexts(steps in steps()) {
        let model = run(&steps);
        prop_assert_eq!(folded(&model.trace), walked(&model.trace, model.cpus));
    }

    #[test]
    fn each_processor_has_its_transitions_and_all_the_time(cpus in prop::collection::vec(any::<bool>(), 1..60)) {
        let trace = described(&cpus);
        let weights = folded(&trace);
        prop_assert_eq!(&weights, &walked(&trace, 2));
        prop_assert_eq!(weights.values().map(|sums| sums.0).sum::<u64>(), cpus.len() as u64);
        let mut time = [0; 2];
        let entered = trace.fold(
            |_, _: Option<()>, _| Ok::<_, Infallible>(()),
            |stack, _, range, _| time[stack.0 as usize] += trace.time_in(range).unwrap(),
        );
        entered.unwrap();
        prop_assert_eq!(time, [7 * (cpus.len() as u64 - 1); 2]);
    }
}
