//! What is remembered is what would be evaluated anew.

use std::ops::ControlFlow;

use stackhound::detect::Binaries;
use stackhound::hunt::HuntSession;
use stackhound::{Passes, Pipeline};

use crate::generated;

#[test]
fn a_remembered_judgement_is_the_one_that_would_be_made() {
    /// Of so many events one is evaluated anew, by somebody who remembers nothing.
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
            // Which thread of a process is its first is known to those who saw it.
            if number % STEP == 0 && view.name() != "Thread/Start" {
                let anew = *HuntSession::new(Binaries::none(), clock).evaluate(view);
                assert_eq!(evaluation, anew, "{passes:?}, event {number}: {}", view.name());
            }
            ControlFlow::Continue(())
        });
        let stats = hunt_session.stats();
        assert!(stats.remembered > 0 && stats.with_stack > 1000, "{stats:?}");
        assert_eq!(hunt_session.totals().events, number);
    }
}
