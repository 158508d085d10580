//! Runs traces of arbitrary operations through the correlator.

use std::ops::ControlFlow;

use arbitrary::{Arbitrary, Unstructured};
use stackhound_etl::{DamageReason, EtlFile};
use stackhound_stacks::Window;
use stackhound_trace::{OpenTrace, Source};

use crate::correlation;
use crate::operations::Plan;

#[derive(Arbitrary, Debug)]
struct Case {
    max_hold: Hold,
    max_pending: u8,
    first: Plan,
    second: Option<Plan>,
}

#[derive(Arbitrary, Debug)]
enum Hold {
    Short(u8),
    Any(i64),
    Forever,
}

/// Interprets bytes as operations, writes one or two traces, merges them, and correlates stacks.
pub fn pipeline(bytes: &[u8]) {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let max_hold = match case.max_hold {
        Hold::Short(ticks) => ticks.into(),
        Hold::Any(ticks) => ticks,
        Hold::Forever => i64::MAX,
    };
    let written: Vec<_> = [&case.first].into_iter().chain(&case.second).map(Plan::write).collect();
    let records = written.iter().map(|written| written.records).sum::<Option<u64>>();
    let sources = written.into_iter().zip(0..).map(|(written, number)| {
        Source::new("", EtlFile::open(written.file.into()).expect("a trace of the writer").numbered(number))
    });
    let trace = OpenTrace::new(sources.collect(), 1).expect("at least one source");
    let events = correlation::check(&trace, Window { max_hold, max_pending: case.max_pending.into() });
    if let Some(records) = records {
        let damage = trace.run(|_| ControlFlow::Continue(())).damage;
        let skipped = damage.iter().map(|(_, damage)| match damage.reason {
            DamageReason::Time { records, .. } => u64::from(records),
            _ => 0,
        });
        assert_eq!(events + skipped.sum::<u64>(), records, "all records are read or skipped: {case:?}");
    }
}
