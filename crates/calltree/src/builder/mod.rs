//! Makes a [`Trace`] from definitions and [`Change`]s. Of one stack, and of one processor, they come in order; those of
//! different ones need not.

mod log;
mod write;

use std::collections::HashMap;

use crate::change::{Change, LocationInfo, ModuleInfo, StackInfo};
use crate::id::{ContextId, Cpu, LocationId, ModuleId, StackId};
use crate::kind::{EndType, Evidence, StartType};
use crate::{Error, Trace};
use log::Log;

/// A trace that is being made. It needs about six bytes of memory for every frame, and the index when it is finished.
#[derive(Debug, Default)]
pub struct Builder {
    modules: Vec<ModuleInfo>,
    module_numbers: HashMap<ModuleInfo, ModuleId>,
    locations: Vec<LocationInfo>,
    location_numbers: HashMap<LocationInfo, LocationId>,
    stacks: Vec<(StackInfo, Log)>,
    cpus: Vec<Vec<Period>>,
    transitions: Transitions,
    sampled: bool,
    source: [u64; 2],
}

/// From `first` on, `stack` is active.
#[derive(Clone, Copy, Debug)]
struct Period {
    first: u64,
    /// It may have become active so many contexts earlier.
    earlier: u64,
    stack: Option<StackId>,
}

/// What is known of single transitions.
#[derive(Debug, Default)]
struct Transitions {
    origin: u64,
    times: Vec<u64>,
    cpus: Vec<u16>,
    labels: Vec<u32>,
    names: Vec<String>,
    numbers: HashMap<String, LabelId>,
}

/// What transitions of a kind are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LabelId(pub u32);

impl Builder {
    /// An empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that only some of what happened is seen: all counts of the trace are lower bounds.
    pub fn sampled(&mut self) {
        self.sampled = true;
    }

    /// Says what the trace is made from: the length of a file in bytes and its checksum.
    pub fn made_from(&mut self, length: u64, checksum: u64) {
        self.source = [length, checksum];
    }

    /// Takes the next number for a module, whether it is known or not.
    pub(crate) fn define_module(&mut self, module: ModuleInfo) -> ModuleId {
        let number = ModuleId(self.modules.len() as u32);
        self.modules.push(module);
        number
    }

    /// Takes the next number for a location, whether it is known or not.
    pub(crate) fn define_location(&mut self, location: LocationInfo) -> LocationId {
        let number = LocationId(self.locations.len() as u32);
        self.locations.push(location);
        number
    }

    /// The number of a module.
    pub fn module(&mut self, module: ModuleInfo) -> ModuleId {
        if let Some(number) = self.module_numbers.get(&module) {
            return *number;
        }
        let number = self.define_module(module.clone());
        self.module_numbers.insert(module, number);
        number
    }

    /// The number of a location.
    pub fn location(&mut self, location: LocationInfo) -> LocationId {
        if let Some(number) = self.location_numbers.get(&location) {
            return *number;
        }
        let number = self.define_location(location.clone());
        self.location_numbers.insert(location, number);
        number
    }

    /// Defines a stack, each time another one.
    pub fn stack(&mut self, stack: StackInfo) -> StackId {
        let number = StackId(self.stacks.len() as u32);
        self.stacks.push((stack, Log::new(number)));
        number
    }

    /// The number of a label.
    pub fn label(&mut self, name: &str) -> LabelId {
        if let Some(number) = self.transitions.numbers.get(name) {
            return *number;
        }
        let number = LabelId(self.transitions.names.len() as u32);
        self.transitions.names.push(name.to_owned());
        self.transitions.numbers.insert(name.to_owned(), number);
        number
    }

    /// Describes the next transition: its time in 100 ns since 1601, its processor and what it is called. If any
    /// transition is described, all must be, in order. A time before the one of the transition before is taken as equal
    /// to it.
    pub fn transition(&mut self, time: u64, cpu: Cpu, label: LabelId) {
        let transitions = &mut self.transitions;
        if transitions.times.is_empty() {
            transitions.origin = time;
        }
        let time = time.saturating_sub(transitions.origin);
        transitions.times.push(transitions.times.last().map_or(time, |last| time.max(*last)));
        transitions.cpus.push(cpu.0);
        transitions.labels.push(label.0);
    }

    /// Does what a change says.
    ///
    /// # Errors
    /// The change comes before an earlier one of the same stack or processor, names a stack that is not defined, or
    /// ends a frame where none is open or before its first context.
    pub fn apply(&mut self, change: Change) -> Result<(), Error> {
        match change {
            Change::Enter { cpu, stack, first } => self.enter_between(cpu, stack, first, first),
            Change::Leave { cpu, last } => {
                self.period(cpu, Period { first: last.0 + 1, earlier: 0, stack: None })
            }
            Change::Open { stack, first, start, location } => {
                self.log(stack)?.begin(first, None, start, location, Evidence::Exact)
            }
            Change::Close { stack, last, end } => self.log(stack)?.end(last, None, end),
            Change::Below { stack, location } => self.log(stack)?.below(location),
        }
    }

    /// A stack became active at one of the contexts from `lo` to `hi`, and is taken to be from `hi` on.
    ///
    /// # Errors
    /// As [`Builder::apply`].
    pub fn enter_between(
        &mut self,
        cpu: Cpu,
        stack: StackId,
        lo: ContextId,
        hi: ContextId,
    ) -> Result<(), Error> {
        self.log(stack)?.seen(hi.0);
        let earlier = hi.0.saturating_sub(lo.0);
        self.period(cpu, Period { first: hi.0, earlier, stack: Some(stack) })
    }

    /// A frame whose first context is one from `lo` to `hi`; it stands at `hi`.
    ///
    /// # Errors
    /// As [`Builder::apply`].
    pub fn open_between(
        &mut self,
        stack: StackId,
        (lo, hi): (ContextId, ContextId),
        start: StartType,
        location: Option<LocationId>,
        evidence: Evidence,
    ) -> Result<(), Error> {
        self.log(stack)?.begin(hi, Some(hi.0.saturating_sub(lo.0)), start, location, evidence)
    }

    /// The top frame's last context is one from `lo` to `hi`; it ends at `lo`.
    ///
    /// # Errors
    /// As [`Builder::apply`].
    pub fn close_between(
        &mut self,
        stack: StackId,
        (lo, hi): (ContextId, ContextId),
        end: EndType,
    ) -> Result<(), Error> {
        self.log(stack)?.end(lo, Some(hi.0.saturating_sub(lo.0)), end)
    }

    /// The trace, of so many transitions. What is still open stays open.
    ///
    /// # Errors
    /// A change lies behind the end, the number of described transitions is another one, or there are more than 2^44
    /// transitions, or so many stacks that their contexts cannot be numbered.
    pub fn finish(self, transitions: u64) -> Result<Trace, Error> {
        Trace::open(self.write(transitions)?.into())
    }

    fn log(&mut self, stack: StackId) -> Result<&mut Log, Error> {
        let count = self.stacks.len() as u32;
        let found = self.stacks.get_mut(stack.0 as usize);
        found.map(|(_, log)| log).ok_or(Error::NoSuchStack { asked: stack.0, count })
    }

    fn period(&mut self, cpu: Cpu, period: Period) -> Result<(), Error> {
        let cpu = usize::from(cpu.0);
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, Vec::new());
        }
        let periods = &mut self.cpus[cpu];
        // What was active for no context at all never was.
        while periods.last().is_some_and(|last| last.first == period.first) {
            periods.pop();
        }
        match periods.last() {
            Some(last) if last.first > period.first => {
                Err(Error::Order { at: ContextId(period.first), last: ContextId(last.first) })
            }
            Some(last) if last.stack == period.stack => Ok(()),
            None if period.stack.is_none() => Ok(()),
            _ => {
                periods.push(period);
                Ok(())
            }
        }
    }
}
