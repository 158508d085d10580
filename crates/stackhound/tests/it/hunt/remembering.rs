//! Cached evaluations equal those of a session without a cache.

use std::ops::ControlFlow;

use stackhound::detect::Binaries;
use stackhound::hunt::HuntSession;
use stackhound::{Passes, Pipeline};

use super::generated;

#[test]
fn cached_evaluations_equal_uncached_ones() {
    /// One in this number of events is evaluated again, without a cache.
    const STEP: u64 = 7;
    let (_folder, trace, _) = generated(2);
    for passes in [Passes::One, Passes::Two] {
        let mut pipeline = Pipeline::new(&trace, passes);
        let clock = pipeline.clock();
        let mut hunt_session = HuntSession::new(Binaries::none(), clock);
        let mut number = 0;
        pipeline.run(|view| {
            number += 1;
            let evaluation = *hunt_session.evaluate(view);
            // The first thread of a process is known only to a session that observed it.
            if number % STEP == 0 && view.name() != "Thread/Start" {
                let uncached = *HuntSession::new(Binaries::none(), clock).evaluate(view);
                assert_eq!(evaluation, uncached, "{passes:?}, event {number}: {}", view.name());
            }
            ControlFlow::Continue(())
        });
        let stats = hunt_session.stats();
        assert!(stats.remembered > 0 && stats.with_stack > 1000, "{stats:?}");
        assert_eq!(hunt_session.totals().events, number);
    }
}
