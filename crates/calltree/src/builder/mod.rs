//! Builds a [`Trace`] from definitions and [`Change`]s. The changes of one stack, and of one
//! processor, must be in order; those of different stacks and processors need not be.

mod log;
mod varints;
mod write;

use std::collections::HashMap;

use crate::change::{Change, LocationInfo, ModuleInfo, StackInfo};
use crate::id::{ContextId, Cpu, LocationId, ModuleId, StackId};
use crate::kind::{EndType, Evidence, StartType};
use crate::{Error, Trace};
use log::Log;
use varints::Varints;

/// A trace under construction. It needs about six bytes of memory for every frame of an exact trace,
/// ten to fourteen for every frame of a sampled one, five for every described transition, and the size
/// of the index when it is finished.
#[derive(Debug, Default)]
pub struct Builder {
    modules: Vec<ModuleInfo>,
    module_numbers: HashMap<ModuleInfo, ModuleId>,
    locations: Vec<LocationInfo>,
    location_numbers: HashMap<LocationInfo, LocationId>,
    /// The stubs through which locations are entered.
    entered_through: HashMap<LocationId, LocationId>,
    stacks: Vec<(StackInfo, Log)>,
    cpus: Vec<Vec<Period>>,
    transitions: Transitions,
    sampled: bool,
    no_switches: bool,
    source: [u64; 2],
}

/// `stack` is active from `first` on.
#[derive(Clone, Copy, Debug)]
struct Period {
    first: u64,
    /// The number of contexts by which it may have become active earlier.
    earlier: u64,
    stack: Option<StackId>,
}

/// Descriptions of single transitions, about five bytes for each.
#[derive(Debug, Default)]
struct Transitions {
    origin: u64,
    /// The time of the last one since the origin.
    last: u64,
    /// The difference of each time from the previous one.
    times: Varints,
    cpus: Varints,
    labels: Varints,
    names: Vec<String>,
    numbers: HashMap<String, LabelId>,
}

/// The name of a kind of transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LabelId(pub u32);

/// A year in units of 100 ns.
const YEAR: u64 = 365 * 24 * 60 * 60 * 10_000_000;
/// The longest trace in units of 100 ns: nanoseconds of it are signed 64-bit numbers.
const LENGTH_MAX: u64 = i64::MAX as u64 / 100;

impl Builder {
    /// Creates an empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the trace as sampled: it does not contain every call, and all its counts are lower
    /// bounds.
    pub fn sampled(&mut self) {
        self.sampled = true;
    }

    /// Marks the trace as one without the switches of threads: a thread is known to be active only at
    /// its own transitions.
    pub fn without_switches(&mut self) {
        self.no_switches = true;
    }

    /// Sets the source of the trace: the length of a file in bytes and its checksum.
    pub fn made_from(&mut self, length: u64, checksum: u64) {
        self.source = [length, checksum];
    }

    /// Defines a module with the next number, even if the same module is already defined.
    pub(crate) fn define_module(&mut self, module: ModuleInfo) -> ModuleId {
        let number = ModuleId(self.modules.len() as u32);
        self.modules.push(module);
        number
    }

    /// Defines a location with the next number, even if the same location is already defined.
    pub(crate) fn define_location(&mut self, location: LocationInfo) -> LocationId {
        let number = LocationId(self.locations.len() as u32);
        self.locations.push(location);
        number
    }

    /// Defines a function that is entered through a stub, with the next number. Both locations must
    /// be defined.
    pub(crate) fn define_entry(&mut self, function: LocationId, stub: LocationId) {
        if let Some(info) = self.locations.get(function.0 as usize).cloned() {
            let number = self.define_location(info);
            self.entered_through.insert(number, stub);
        }
    }

    /// Returns the number of a module, which is defined if it is new.
    pub fn module(&mut self, module: ModuleInfo) -> ModuleId {
        if let Some(number) = self.module_numbers.get(&module) {
            return *number;
        }
        let number = self.define_module(module.clone());
        self.module_numbers.insert(module, number);
        number
    }

    /// Returns the number of a location, which is defined if it is new.
    pub fn location(&mut self, location: LocationInfo) -> LocationId {
        if let Some(number) = self.location_numbers.get(&location) {
            return *number;
        }
        let number = self.define_location(location.clone());
        self.location_numbers.insert(location, number);
        number
    }

    /// Defines a new stack.
    pub fn stack(&mut self, stack: StackInfo) -> StackId {
        let number = StackId(self.stacks.len() as u32);
        self.stacks.push((stack, Log::new(number)));
        number
    }

    /// Gives a stack another name. A stack that is not defined has none.
    pub fn name_stack(&mut self, stack: StackId, name: String) {
        if let Some((info, _)) = self.stacks.get_mut(stack.0 as usize) {
            info.name = Some(name);
        }
    }

    /// Takes the stacks of another builder with their changes, in place of its own. One builder can
    /// thus be given the definitions of locations and transitions, and another one the changes.
    pub fn take_stacks(&mut self, other: Self) {
        (self.stacks, self.cpus) = (other.stacks, other.cpus);
    }

    /// The definitions of all stacks, to be completed.
    pub fn stack_infos(&mut self) -> impl Iterator<Item = &mut StackInfo> {
        self.stacks.iter_mut().map(|(info, _)| info)
    }

    /// Returns the number of a label, which is defined if it is new.
    pub fn label(&mut self, name: &str) -> LabelId {
        if let Some(number) = self.transitions.numbers.get(name) {
            return *number;
        }
        let number = LabelId(self.transitions.names.len() as u32);
        self.transitions.names.push(name.to_owned());
        self.transitions.numbers.insert(name.to_owned(), number);
        number
    }

    /// Describes the next transition: its time in 100 ns since 1601, its processor and its label.
    /// Either all transitions must be described, in order, or none. A time before the time of the
    /// previous transition is replaced by it.
    pub fn transition(&mut self, time: u64, cpu: Cpu, label: LabelId) {
        let transitions = &mut self.transitions;
        if transitions.times.len() == 0 {
            transitions.origin = time;
        }
        let since = time.saturating_sub(transitions.origin).saturating_sub(transitions.last);
        transitions.last += since;
        transitions.times.push(since);
        transitions.cpus.push(cpu.0.into());
        transitions.labels.push(label.0.into());
    }

    /// Applies a change.
    ///
    /// # Errors
    /// The change is before an earlier change of the same stack or processor, its stack is not
    /// defined, or it ends a frame on a stack without an open frame or before the first context of
    /// the frame.
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
            Change::Target { stack, location } => self.log(stack)?.target(location),
            Change::TailCall { stack, first, location } => self.log(stack)?.tail_call(first, location),
            Change::Below { stack, location } => self.log(stack)?.below(location),
        }
    }

    /// Activates a stack at one of the contexts from `lo` to `hi`. It counts as active from `hi`
    /// on.
    ///
    /// # Errors
    /// See [`Builder::apply`].
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

    /// Opens a frame whose first context is one from `lo` to `hi`. It counts as open from `hi` on.
    ///
    /// # Errors
    /// See [`Builder::apply`].
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

    /// Closes the top frame, whose last context is one from `lo` to `hi`. It counts as closed after
    /// `lo`.
    ///
    /// # Errors
    /// See [`Builder::apply`].
    pub fn close_between(
        &mut self,
        stack: StackId,
        (lo, hi): (ContextId, ContextId),
        end: EndType,
    ) -> Result<(), Error> {
        self.log(stack)?.end(lo, Some(hi.0.saturating_sub(lo.0)), end)
    }

    /// Finishes a trace with this number of transitions. Open frames stay open.
    ///
    /// # Errors
    /// A change is after the end, the number of described transitions is different, there are more
    /// than 2^44 transitions, the stacks have too many contexts together, or the trace is longer
    /// than 292 years.
    pub fn finish(self, transitions: u64) -> Result<Trace, Error> {
        if self.transitions.last > LENGTH_MAX {
            return Err(Error::TooLong { years: self.transitions.last / YEAR });
        }
        Trace::open(self.write(transitions)?.into())
    }

    fn log(&mut self, stack: StackId) -> Result<&mut Log, Error> {
        let count = self.stacks.len() as u32;
        let found = self.stacks.get_mut(stack.0 as usize);
        found.map(|(_, log)| log).ok_or(Error::NoSuchStack { requested: stack.0, count })
    }

    fn period(&mut self, cpu: Cpu, period: Period) -> Result<(), Error> {
        let cpu = usize::from(cpu.0);
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, Vec::new());
        }
        let periods = &mut self.cpus[cpu];
        // A stack that was active for no context is dropped.
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
