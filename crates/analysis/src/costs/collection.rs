//! Pauses and collections of garbage collectors of .NET processes, by generation.
//!
//! The crate's module `gc` joins the events. A pause counts where it ends, for the thread that
//! suspended the process, and a collection where it starts.

use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::provider_guid;

use super::{Column, Figures, Key, MAX, Measure, Metric, Observations, count, ticks};
use crate::gc::{Collections, Generation, Step, Unpaired};

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
        if !Collections::reads(view.id()) || out.is_repeated(view) {
            return Ok(());
        }
        let is_wanted = wanted();
        let Some(step) = self.collections.observe(view, is_wanted) else { return Ok(()) };
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
            Step::Unpaired(unpaired) => {
                remain(unpaired, out);
                return Ok(());
            }
        };
        if figures == Figures::default() || !is_wanted {
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
        self.collections.open().for_each(|unpaired| remain(unpaired, out));
    }
}

fn remain(unpaired: Unpaired, out: &mut Observations) {
    if unpaired.is_wanted && out.window.contains(unpaired.time) {
        out.remain(unpaired.reason, 0);
    }
}
