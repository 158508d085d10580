//! Comparisons of generated traces: of two parts of one, and of a trace with the same one after
//! losses.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::analysis::diff::sides::{Names, Samples};
use stackhound::analysis::diff::tree::{Node, tree};
use stackhound::analysis::diff::{Comparison, Difference, Normalization, Side, Verdict, compare};
use stackhound::profile::Grouping;
use stackhound::trace::{OpenTrace, TraceTime};
use stackhound::{Passes, Pipeline};
use stackhound_scenario::{Mix, Scenario};

use crate::analysis::open;
use crate::loss::drops::without;

const ALL: [Normalization; 3] = [Normalization::None, Normalization::Second, Normalization::Total];

fn written(mix: Mix, seed: u64, events: u64) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    Scenario { events, seed, mix }.write(&mut file).unwrap();
    file.into_inner()
}

fn analyze(trace: &OpenTrace, window: Window) -> CpuReport {
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let mut cpu = Cpu::new(String::new(), trace, window, Weighing::default()).with_slices();
    pipeline.run(|view| {
        cpu.observe(view, || true).unwrap();
        ControlFlow::Continue(())
    });
    let (known, _, naming) = pipeline.parts();
    cpu.finish(known, naming)
}

/// Each kind of name, with both sides.
fn sides(a: &CpuReport, b: &CpuReport) -> Vec<(&'static str, Side<Names>, Side<Names>)> {
    let [a, b] = [a, b].map(|report| Samples::of(report, false).expect("samples"));
    let of = |samples: &Samples<'_>| {
        let [own, total] = samples.frames(Grouping::Offset);
        let [modules, _] = samples.frames(Grouping::Module);
        [own, total, modules, samples.stacks(Grouping::Function), samples.processes()]
    };
    let names = ["function", "total", "module", "stack", "process"];
    names.into_iter().zip(of(&a)).zip(of(&b)).map(|((name, a), b)| (name, a, b)).collect()
}

fn changes(comparison: &Comparison<Names>) -> Vec<&(Names, Difference)> {
    comparison.rows.iter().filter(|(_, difference)| difference.verdict.is_change()).collect()
}

fn check_nothing_changed(a: &CpuReport, b: &CpuReport, normalizations: &[Normalization], what: &str) {
    for (name, a, b) in sides(a, b) {
        assert!(a.rows.len() > 3 && b.rows.len() > 3, "{what}: {name}");
        for &normalization in normalizations {
            let comparison = compare(&a, &b, normalization);
            assert!(comparison.compared > 3, "{what}: {name}");
            assert!(changes(&comparison).is_empty(), "{what}: {name}: {:#?}", changes(&comparison));
        }
    }
}

#[test]
fn nothing_changed_between_two_parts_of_a_steady_trace() {
    for seed in 1..=4 {
        let trace = open(written(Mix::Before, seed, 120_000));
        let (from, to) = analyze(&trace, Window::default()).window;
        // The attacker has started.
        let [start, middle] =
            [30, 65].map(|percent| Some(TraceTime(from.0 + (to.0 - from.0) / 100 * percent)));
        let first = analyze(&trace, Window { from: start, to: middle });
        let second = analyze(&trace, Window { from: middle, to: None });
        check_nothing_changed(&first, &second, &ALL, &format!("seed {seed}"));
    }
}

#[test]
fn nothing_changed_between_other_seeds() {
    for mix in [Mix::Before, Mix::Default] {
        let reports: Vec<CpuReport> =
            (10..18).map(|seed| analyze(&open(written(mix, seed, 60_000)), Window::default())).collect();
        for (number, pair) in reports.windows(2).enumerate() {
            // They have the same number of records, not the same length.
            let comparable = [Normalization::Second, Normalization::Total];
            let what = format!("{mix:?}, seeds from {}", 10 + number);
            check_nothing_changed(&pair[0], &pair[1], &comparable, &what);
        }
    }
}

/// A trace and itself after losses: nothing is called changed, new or gone, because nothing is. The
/// error that the report states is not exceeded.
#[test]
fn losses_are_not_called_changes() {
    for seed in 1..=2 {
        let bytes = written(Mix::Before, seed, 40_000);
        let trace = open(bytes.clone());
        let whole = analyze(&trace, Window::default());
        assert!(!whole.sliced.as_ref().unwrap().is_lossy);
        let buffers = trace.indexes()[0].buffers.clone();
        for (number, start) in (4..buffers.len() - 4).step_by(9).enumerate() {
            // From one buffer to a quarter of the trace.
            let length = 1 + number * 7 % (buffers.len() / 4);
            let end = (start + length).min(buffers.len() - 3);
            let dropped: Vec<_> = buffers[start..end].iter().collect();
            let part_trace = open(without(&bytes, &dropped));
            let part = analyze(&part_trace, Window::default());
            let what = format!("seed {seed}, buffers {start} to {end}");
            assert!(part.sliced.as_ref().unwrap().is_lossy, "{what}");
            for (name, of_whole, of_part) in sides(&whole, &part) {
                let what = format!("{what}, {name}");
                let uncertain = of_part.uncertain.unwrap();
                for (row, measured) in &of_whole.rows {
                    let left = of_part.rows.get(row).map_or(0, |measured| measured.amount);
                    let missing = measured.amount.abs_diff(left);
                    assert!(missing <= uncertain + 2_000_000, "{what}: {row:?}: {missing} of {uncertain}");
                }
                for normalization in ALL {
                    for (a, b) in [(&of_whole, &of_part), (&of_part, &of_whole)] {
                        let comparison = compare(a, b, normalization);
                        assert!(changes(&comparison).is_empty(), "{what}: {:#?}", changes(&comparison));
                    }
                }
            }
        }
    }
}

/// The tree has the sums of the samples, with those of the slower function.
#[test]
fn trees_have_the_sums_of_the_samples() {
    let reports = [(Mix::Before, 1), (Mix::After, 2)]
        .map(|(mix, seed)| analyze(&open(written(mix, seed, 200_000)), Window::default()));
    let [a, b] = reports.each_ref().map(|report| Samples::of(report, false).unwrap());
    let tree = tree(&a, &b, Grouping::Offset, Normalization::Second);
    let mut children: BTreeMap<usize, [u64; 2]> = BTreeMap::new();
    for (index, node) in tree.nodes.iter().enumerate() {
        assert!(node.caller.is_none_or(|caller| caller < index));
        let Some(caller) = node.caller else { continue };
        let sums = children.entry(caller).or_default();
        sums[0] += node.difference.a.amount;
        sums[1] += node.difference.b.amount;
    }
    for (caller, sums) in children {
        let of = tree.nodes[caller].difference;
        // Nanoseconds are rounded.
        assert!(sums[0] <= of.a.amount + 1000 && sums[1] <= of.b.amount + 1000, "{:?}", tree.nodes[caller]);
    }
    let root = tree.nodes[0].difference;
    assert_eq!([root.a.count, root.b.count], reports.each_ref().map(|report| report.classes.busy().count));
    // The function that takes three times as long, by address.
    let is_slow = |node: &&Node| node.name.len() == 17 && node.name.starts_with("core.dll+0xc000");
    let slow: Vec<&Node> = tree.nodes.iter().filter(is_slow).collect();
    let sum = |of: fn(&Difference) -> u64| slow.iter().map(|node| of(&node.difference)).sum::<u64>();
    let (in_a, in_b) = (sum(|of| of.a.amount), sum(|of| of.b.amount));
    assert!(in_a > 0 && 2 * in_a < in_b, "{in_a}, {in_b}");
    assert!(!slow.iter().any(|node| node.difference.verdict == Verdict::Less));
}
