//! Pauses and collections of garbage collectors of .NET processes, by generation.
//!
//! The crate's module `gc` joins the events. A pause counts where it ends, for the thread that
//! suspended the process, and a collection where it starts.

use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::provider_guid;

use super::{Column, Figures, Key, MAX, Measure, Metric, Observations, count, ticks};
use crate::gc::{Collections, Generation, Step};

const PAUSES: usize = 1;
const COLLECTIONS: usize = 2;
const DURATION: usize = 3;
/// The first of the columns with the numbers of collections by generation.
const OF_GENERATION: usize = 4;

pub(super) const METRIC: Metric = Metric {
    name: "gc",
    columns: COLUMNS,
    dimensions: &["generation"],
    start: || Box::new(Garbage::default()),
};

const COLUMNS: &[Column] = &[
    ticks("paused", 0),
    count("pauses", PAUSES),
    ticks("max", MAX),
    count("collections", COLLECTIONS),
    ticks("duration", DURATION),
    count("generation_0", OF_GENERATION),
    count("generation_1", OF_GENERATION + 1),
    count("generation_2", OF_GENERATION + 2),
];

#[derive(Debug, Default)]
struct Garbage {
    collections: Collections,
}

impl Measure for Garbage {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        if view.kernel_id().is_some() || view.event().guid() != Some(provider_guid::DOT_NET_RUNTIME) {
            return Ok(());
        }
        let Some(step) = self.collections.observe(view) else { return Ok(()) };
        out.events += 1;
        let (now, window) = (view.time(), out.window);
        let is_counted = window.contains(now);
        let one = Figures::default();
        let (generation, figures) = match step {
            Step::Started(generation) => {
                let of_generation = OF_GENERATION + generation.index();
                (
                    Some(generation),
                    one.with(COLLECTIONS, is_counted.into()).with(of_generation, is_counted.into()),
                )
            }
            Step::Ended(generation, from) => {
                (Some(generation), one.with(DURATION, window.overlap(from, now)))
            }
            Step::Paused(generation, from) => {
                let paused = Figures::lasting(window.overlap(from, now));
                (generation, paused.with(PAUSES, is_counted.into()))
            }
            Step::NotStarted | Step::NotSuspended if !is_counted || !wanted() => return Ok(()),
            Step::NotStarted => {
                out.remain("ends of collections without a known start", 0);
                return Ok(());
            }
            Step::NotSuspended => {
                out.remain("restarts without a known suspension", 0);
                return Ok(());
            }
        };
        if figures == Figures::default() || !wanted() {
            return Ok(());
        }
        let (thread, stack) = out.actor(view)?;
        let label = out.label(match generation.map(Generation::index) {
            Some(0) => "generation 0",
            Some(1) => "generation 1",
            Some(_) => "generation 2",
            None => "no known collection",
        });
        out.add(Key { thread, stack, labels: [label, label] }, figures);
        Ok(())
    }

    fn end(&mut self, out: &mut Observations) {
        let (pauses, collections) = self.collections.open();
        (0..pauses).for_each(|_| out.remain("pauses that were not over at the end", 0));
        (0..collections).for_each(|_| out.remain("collections that were not over at the end", 0));
    }
}
