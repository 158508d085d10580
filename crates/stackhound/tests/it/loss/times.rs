//! Each bit of the times of records flipped: it is reported, or no sum changes by more than the
//! record was moved.
//!
//! With `STACKHOUND_LOSS=full`, 200 records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::etl::DamageReason;
use stackhound::profile::Full;
use stackhound::{Passes, Pipeline};
use stackhound_etl::EtlFile;
use stackhound_scenario::Mix;

use super::drops::Extent;
use crate::analysis::{analyze, open};

const RECORDS: usize = 200;
const SAMPLED_RECORDS: usize = 4;

/// Sums of a trace in raw ticks, by thread id and kind.
fn sums(report: &CpuReport) -> BTreeMap<(&'static str, u32), u64> {
    let mut sums = BTreeMap::new();
    let tid = |thread: usize| report.profile.threads()[thread].tid.unwrap_or(u32::MAX);
    for ((thread, _), sampled) in &report.samples {
        *sums.entry(("sampled", tid(thread.index()))).or_default() += sampled.amount;
    }
    for (thread, exact) in report.exact.iter().flat_map(|exact| &exact.threads) {
        *sums.entry(("exact", tid(thread.index()))).or_default() += exact.amount;
    }
    sums.insert(("window", 0), report.window.1.ticks_since(report.window.0));
    sums
}

#[test]
fn a_flipped_bit_of_a_time_is_reported_or_changes_sums_by_as_much() {
    let file = super::demo(Mix::Default, 1);
    let etl_file = EtlFile::open(file.clone().into()).expect("a trace");
    let whole_report = analyze(&open(file.clone()), Window::default(), Weighing::default());
    let interval = whole_report.interval.expect("samples").ticks;
    let whole = sums(&whole_report);

    // The time is at the third word of SYSTEM records and of records with a GUID, and at the second
    // of short ones.
    let data = etl_file.index().buffers.into_iter().filter(|buffer| buffer.sequence > 0);
    let records: Vec<(usize, i64)> = data
        .flat_map(|buffer| {
            let (block, _) = etl_file.block(&buffer, None).expect("a whole buffer");
            let location = |entry: &stackhound_etl::Entry| {
                let is_short = entry.kind().name().starts_with("PERFINFO");
                let at = buffer.offset as usize + entry.offset() + if is_short { 8 } else { 0x10 };
                (at, entry.time.0)
            };
            block.entries().iter().map(location).collect::<Vec<_>>()
        })
        .collect();
    let count = if Extent::from_environment() == Extent::Full { RECORDS } else { SAMPLED_RECORDS };
    let (mut reported, mut unnoticed, mut ticks) = (0, 0, 0);
    for (at, time) in records.iter().step_by(records.len() / count) {
        assert_eq!(file[*at..at + 8], time.to_le_bytes());
        for bit in 0..64 {
            let mut damaged = file.clone();
            damaged[at + bit / 8] ^= 1 << (bit % 8);
            let trace = open(damaged);
            let mut events = trace.ordered();
            while events.next().is_some() {}
            let stats = events.into_stats();
            let case = format!("bit {bit} of {time} at {at:#x}");
            assert_eq!(stats.out_of_order, 0, "{case}");
            let is_reported =
                stats.damage.iter().any(|(_, damage)| matches!(damage.reason, DamageReason::Time { .. }));
            let moved = 1_u64 << bit;
            // A record that is skipped takes away no more than the time until the next one of its
            // thread, which is then not known; what remains is never larger than the trace.
            let report = analyze(&trace, Window::default(), Weighing::default());
            let found = sums(&report);
            let window = |sums: &BTreeMap<(&'static str, u32), u64>| sums[&("window", 0)];
            if is_reported {
                reported += 1;
                assert!(window(&found) <= window(&whole), "{case}");
                let exact = report.exact.as_ref().map_or(0, |exact| exact.busy().saturating_add(exact.idle));
                assert!(exact <= report.available(), "{case}");
                continue;
            }
            unnoticed += 1;
            ticks = ticks.max(moved);
            for key in whole.keys().chain(found.keys()) {
                let [before, after] = [&whole, &found].map(|sums| sums.get(key).copied().unwrap_or(0));
                let most = if key.0 == "sampled" { moved.saturating_mul(2).min(interval) } else { moved };
                assert!(before.abs_diff(after) <= most, "{case}: {key:?} {before} {after}");
            }
        }
    }
    println!("{reported} reported, {unnoticed} not, which moved a record by at most {ticks} ticks");
    assert!(reported > unnoticed);
}

/// A damaged header can make any trace too long for sums of nanoseconds.
#[test]
fn times_that_cannot_be_added_up_are_refused() {
    const PROCESSORS: usize = 0xc;
    const PERFORMANCE_FREQUENCY: usize = 0x100;
    let mut file = super::demo(Mix::Default, 1);
    super::set(&mut file, PROCESSORS, |_| u32::MAX);
    super::set(&mut file, PERFORMANCE_FREQUENCY, |_| 1);
    let trace = open(file);
    let mut cpu = Cpu::new(String::new(), &trace, Window::default(), Weighing::default());
    let mut refused = None;
    Pipeline::new(&trace, Passes::Two).run(|view| {
        refused = cpu.observe(view, || true).err();
        if refused.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(refused, Some(Full::Time { processors: u32::MAX, .. })), "{refused:?}");
}
