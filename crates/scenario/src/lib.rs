//! Generated recordings of a Windows system, with an attack in them, and the truth about them.
//!
//! ```
//! use std::io::Cursor;
//! use stackhound_scenario::{AttackKind, Mix, Scenario};
//!
//! let scenario = Scenario { events: 8_000, seed: 1, mix: Mix::Default };
//! let mut file = Cursor::new(Vec::new());
//! let truth = scenario.write(&mut file)?;
//! assert!(truth.attacks.iter().any(|attack| attack.kind == AttackKind::DirectSyscall));
//! assert!(truth.records().abs_diff(8_000) <= 80);
//! # Ok::<(), stackhound_scenario::ScenarioError>(())
//! ```
//!
//! [`Scenario`] says what to generate; [`Truth`] is what a correct reader must find in it. The same scenario always
//! gives the same bytes.
//!
//! Knows how Windows works as far as its kernel logger shows it, and writes through [`stackhound_etl::write`]. Does not
//! know any reader: what it says of stacks follows from what it wrote.
#![forbid(unsafe_code)]

mod attack;
mod calls;
pub mod event;
mod frames;
mod image;
mod machine;
mod output;
pub mod payload;
mod perform;
mod plan;
mod profile;
mod provider;
mod random;
mod resources;
mod rundown;
mod simulation;
mod site;
mod stacks;
pub mod symbols;
mod thread;
mod truth;

use std::io::{Seek, Write};

use stackhound_etl::write::WriteError;

pub use event::EventKind;
pub use image::Image;
pub use provider::{METHOD_LOAD, RUNTIME};
pub use symbols::ImageFile;
pub use truth::{
    Attack, AttackKind, EventStack, GroundTruth, Lost, Process, Region, StackRecords, State, States,
    SwitchTruth, Thread, TraceEvent, Truth,
};

use self::machine::Machine;
use self::output::{Notes, Output};
use self::profile::Profile;
use self::random::Random;
use self::simulation::Simulation;
use self::stacks::Stacks;

/// A recording to generate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Records, those with stacks and the rundown included; met to within one percent.
    pub events: u64,
    /// Different seeds give different recordings.
    pub seed: u64,
    /// What happens.
    pub mix: Mix,
}

impl Default for Scenario {
    /// 20,000 records, less than a second of the machine's time.
    fn default() -> Scenario {
        Scenario { events: 20_000, seed: 1, mix: Mix::Default }
    }
}

/// What happens in a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mix {
    /// Four processors run eleven processes, every kind of event and stack occurs, and one program attacks another.
    #[default]
    Default,
    /// What a profiler records on a busy machine, for measuring throughput: samples, events of managed code, few stacks.
    /// Written at several million records a second.
    Profile,
}

/// Why a scenario cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// So few records have no room for all that is to happen.
    #[error("{events} records are too few; {minimum} is the least")]
    TooFew {
        /// Records asked for.
        events: u64,
        /// The least.
        minimum: u64,
    },
    /// The recording cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Ticks of the clock between two records of one action, at most.
const GAP: u64 = 24;
/// Stacks of each mode that the session's cache holds.
const CACHED_STACKS: usize = 1536;

impl Scenario {
    /// The least number of records.
    pub const EVENTS_MIN: u64 = 8_000;

    /// Writes the recording to an output, from its current position on.
    pub fn write(&self, output: impl Write + Seek) -> Result<Truth, ScenarioError> {
        self.write_with(output, &mut |_| {})
    }

    /// The same, and tells `expect` of each event with a stack, though not in the order of time.
    ///
    /// What it is told would fill more memory than the writing of a large scenario takes, so that it is not part of the
    /// [`Truth`].
    pub fn write_with(
        &self,
        output: impl Write + Seek,
        expect: &mut dyn FnMut(&EventStack<'_>),
    ) -> Result<Truth, ScenarioError> {
        self.perform(output, expect, Notes::default()).map(|(truth, _)| truth)
    }

    /// The same, and gives all that threads and processors did, in the order of time. About 48 bytes for each deed.
    pub fn write_with_events(
        &self,
        output: impl Write + Seek,
    ) -> Result<(Truth, Vec<TraceEvent>), ScenarioError> {
        let notes = Notes { trace_events: Some(Vec::new()), ..Notes::default() };
        let (truth, notes) = self.perform(output, &mut |_| {}, notes)?;
        Ok((truth, notes.trace_events.unwrap_or_default()))
    }

    /// The same, and gives all context switches with the stacks of their threads, in the order of time. About 600 bytes for
    /// each. Only of [`Mix::Default`].
    pub fn write_switches(
        &self,
        output: impl Write + Seek,
    ) -> Result<(Truth, Vec<SwitchTruth>), ScenarioError> {
        let notes = Notes { switches: Some(Vec::new()), ..Notes::default() };
        let (truth, notes) = self.perform(output, &mut |_| {}, notes)?;
        Ok((truth, notes.switches.unwrap_or_default()))
    }

    fn perform(
        &self,
        output: impl Write + Seek,
        expect: &mut dyn FnMut(&EventStack<'_>),
        notes: Notes,
    ) -> Result<(Truth, Notes), ScenarioError> {
        if self.events < Self::EVENTS_MIN {
            return Err(ScenarioError::TooFew { events: self.events, minimum: Self::EVENTS_MIN });
        }
        let mut seeds = Random::new(self.seed);
        let mut out = Output::new(output, seeds.next(), GAP)?;
        out.notes = notes;
        let cached = match self.mix {
            Mix::Default => CACHED_STACKS,
            Mix::Profile => (self.events / 64).clamp(128, 8192) as usize,
        };
        let stacks = Stacks::new(cached, seeds.next(), expect);
        match self.mix {
            Mix::Default => {
                let mut simulation = Simulation::new(out, stacks, seeds);
                simulation.begin()?;
                simulation.run(self.events)?;
                simulation.end()?;
                let Simulation { out, stacks, machine, .. } = simulation;
                truth(out, stacks, machine)
            }
            Mix::Profile => {
                let mut profile = Profile::begin(out, stacks, seeds, self.events)?;
                profile.run(self.events)?;
                profile.end()?;
                let Profile { out, stacks, machine, .. } = profile;
                truth(out, stacks, machine)
            }
        }
    }
}

/// Ends the recording and says what is in it.
fn truth<W: Write + Seek>(
    mut out: Output<W>,
    stacks: Stacks<'_>,
    machine: Machine,
) -> Result<(Truth, Notes), ScenarioError> {
    let notes = std::mem::take(&mut out.notes);
    let (events, lost, bytes) = out.finish()?;
    let (images, processes) = machine.into_facts();
    let mut attacks = stacks.attacks;
    attacks.sort_by_key(|attack| attack.time);
    let truth = Truth {
        events,
        bytes,
        stacks: stacks.records,
        states: stacks.states,
        lost,
        kernel_images: (0..image::KERNEL_IMAGES).collect(),
        images,
        processes,
        attacks,
    };
    Ok((truth, notes))
}
