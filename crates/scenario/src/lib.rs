//! Generates traces of a simulated Windows system that contain an attack or a problem of performance,
//! with the ground truth.
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
//! [`Scenario`] configures the trace; [`Truth`] contains the data that a correct reader must find
//! in it. The same scenario always produces the same bytes.
//!
//! This crate models the parts of Windows that the kernel logger shows, and writes traces with
//! [`stackhound_etl::write`]. It must not depend on a reader: the expected stacks are derived from
//! the records that were written.
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
mod problem;
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
pub use problem::{Cause, Problem};
pub use provider::{METHOD_LOAD, RUNTIME};
pub use symbols::ImageFile;
pub use truth::{
    About, Attack, AttackKind, EventStack, EventSubject, GroundTruth, Lost, Process, Region, StackRecords,
    State, States, SwitchTruth, Thread, TraceEvent, Truth,
};

use self::machine::Machine;
use self::output::{Notes, Output};
use self::profile::Profile;
use self::random::Random;
use self::simulation::{Simulation, Version};
use self::stacks::Stacks;

/// Configuration of a generated trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Number of records, including stack records and the rundown. Exact to within one percent.
    pub events: u64,
    /// Seed of the random numbers. Different seeds produce different traces.
    pub seed: u64,
    /// Activity of the simulated machine.
    pub mix: Mix,
}

impl Default for Scenario {
    /// 20,000 records, less than a second of simulated time.
    fn default() -> Scenario {
        Scenario { events: 20_000, seed: 1, mix: Mix::Default }
    }
}

/// Activity of the simulated machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mix {
    /// Four processors run eleven processes. All kinds of events and stacks occur, and one program
    /// attacks another.
    #[default]
    Default,
    /// Like [`Mix::Default`], but nothing is lost, and `writer.exe` also calls
    /// `core.dll!LayoutParagraphs`: for comparisons with [`Mix::After`].
    Before,
    /// Like [`Mix::Before`], but that function takes three times as long, and one more program
    /// attacks: `backgroundTaskHost.exe` makes a direct system call.
    After,
    /// Like [`Mix::Default`], but ids of ended processes and threads are used again at once.
    Reuse,
    /// The trace of a profiler on a busy machine, to measure throughput: samples, events of managed
    /// code, few stacks. Written at several million records per second.
    Profile,
    /// Like [`Mix::Default`], with a problem of performance instead of the attack and the lost
    /// buffer, with little other activity, and without events of system calls.
    Problem(Problem),
}

/// Error in writing a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The requested number of records is too small for the activity of a scenario.
    #[error("{events} records are too few; the minimum is {minimum}")]
    TooFew {
        /// Requested number of records.
        events: u64,
        /// Minimum number of records.
        minimum: u64,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Maximum number of clock ticks between two records of one action.
const GAP: u64 = 24;
/// Capacity of the session's stack cache for each mode.
const CACHED_STACKS: usize = 1536;

impl Scenario {
    /// Minimum number of records.
    pub const EVENTS_MIN: u64 = 8_000;

    /// Writes the trace to an output, starting at its current position.
    ///
    /// # Errors
    /// If [`events`](Scenario::events) is less than [`EVENTS_MIN`](Scenario::EVENTS_MIN), or the
    /// output cannot be written.
    pub fn write(&self, output: impl Write + Seek) -> Result<Truth, ScenarioError> {
        self.write_with(output, &mut |_| {})
    }

    /// Like [`write`](Scenario::write), and calls `expect` for each event with a stack, in no
    /// defined order.
    ///
    /// These stacks are not part of the [`Truth`], because they would need more memory than the
    /// rest of a large scenario.
    pub fn write_with(
        &self,
        output: impl Write + Seek,
        expect: &mut dyn FnMut(&EventStack<'_>),
    ) -> Result<Truth, ScenarioError> {
        self.perform(output, expect, Notes::default()).map(|(truth, _)| truth)
    }

    /// Like [`write`](Scenario::write), and returns the actions of all threads and processors in
    /// the order of time. Each needs about 48 bytes of memory.
    pub fn write_with_events(
        &self,
        output: impl Write + Seek,
    ) -> Result<(Truth, Vec<TraceEvent>), ScenarioError> {
        let notes = Notes { trace_events: Some(Vec::new()), ..Notes::default() };
        let (truth, notes) = self.perform(output, &mut |_| {}, notes)?;
        Ok((truth, notes.trace_events.unwrap_or_default()))
    }

    /// Like [`write`](Scenario::write), and returns all context switches with the stacks of their
    /// threads, in the order of time. Each needs about 600 bytes of memory. Only for
    /// [`Mix::Default`].
    pub fn write_switches(
        &self,
        output: impl Write + Seek,
    ) -> Result<(Truth, Vec<SwitchTruth>), ScenarioError> {
        let notes = Notes { switches: Some(Vec::new()), ..Notes::default() };
        let (truth, notes) = self.perform(output, &mut |_| {}, notes)?;
        Ok((truth, notes.switches.unwrap_or_default()))
    }

    /// Like [`write`](Scenario::write), and returns all events with the objects that they are about,
    /// in the order of time. Each needs about 150 bytes of memory. Only for [`Mix::Default`] and
    /// [`Mix::Reuse`].
    pub fn write_with_subjects(
        &self,
        output: impl Write + Seek,
    ) -> Result<(Truth, Vec<EventSubject>), ScenarioError> {
        let notes = Notes { subjects: Some(Vec::new()), ..Notes::default() };
        let (truth, notes) = self.perform(output, &mut |_| {}, notes)?;
        Ok((truth, notes.subjects.unwrap_or_default()))
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
            Mix::Default | Mix::Before | Mix::After | Mix::Reuse | Mix::Problem(_) => CACHED_STACKS,
            Mix::Profile => (self.events / 64).clamp(128, 8192) as usize,
        };
        let stacks = Stacks::new(cached, seeds.next(), expect);
        match self.mix {
            Mix::Default | Mix::Before | Mix::After | Mix::Reuse | Mix::Problem(_) => {
                out.has_system_calls = !matches!(self.mix, Mix::Problem(_));
                let mut simulation = Simulation::new(out, stacks, seeds);
                simulation.version = match self.mix {
                    Mix::Before => Some(Version::Before),
                    Mix::After => Some(Version::After),
                    _ => None,
                };
                if self.mix == Mix::Reuse {
                    simulation.machine.reuse_ids();
                    simulation.resources.has_new_names = true;
                }
                let problem = if let Mix::Problem(problem) = self.mix { Some(problem) } else { None };
                simulation.begin(problem)?;
                simulation.run(self.events)?;
                simulation.end()?;
                let cause = simulation.cause();
                let Simulation { out, stacks, machine, .. } = simulation;
                truth(out, stacks, machine, cause)
            }
            Mix::Profile => {
                let mut profile = Profile::begin(out, stacks, seeds, self.events)?;
                profile.run(self.events)?;
                profile.end()?;
                let Profile { out, stacks, machine, .. } = profile;
                truth(out, stacks, machine, None)
            }
        }
    }
}

/// Finishes the trace and returns its ground truth.
fn truth<W: Write + Seek>(
    mut out: Output<W>,
    stacks: Stacks<'_>,
    machine: Machine,
    cause: Option<Cause>,
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
        cause,
    };
    Ok((truth, notes))
}
