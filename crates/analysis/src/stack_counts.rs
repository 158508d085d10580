//! The most frequent call stacks of each event.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;
use stackhound_frames as frames;
use stackhound_pipeline::{Depth, EventNameId, EventNumbers, EventView, FrameView, Label, Naming, Pipeline};
use stackhound_stacks::StackStates;
use stackhound_symbols as symbols;
use stackhound_system::{MethodId, ModuleId, System};
use stackhound_types::{Address, AddressKind};

/// One stack of one process. An address can belong to different modules in different processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StackKey {
    /// The name of the event.
    pub event: EventNameId,
    /// Index into the stack table of the trace.
    stack: u32,
    /// The process of the event.
    pub pid: Option<u32>,
    /// The states of the stack, without the uncertainty about the end of the walk.
    pub states: StackStates,
}

/// How often a stack of one process was observed.
#[derive(Clone, Copy, Debug)]
pub struct StackCount {
    /// The stack.
    pub key: StackKey,
    /// Number of events.
    pub count: u64,
    /// Index into [`StackCounts::processes`].
    process: Option<u32>,
    /// The range of its frames in [`StackCounts::frames`].
    start: usize,
    end: usize,
}

/// Identifies a distinct frame of a [`StackCounts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameIndex(u32);

impl FrameIndex {
    /// The position among all distinct frames.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The stacks of the events with one name.
#[derive(Clone, Debug)]
pub struct EventStacks {
    /// The name.
    pub event: EventNameId,
    /// Number of events.
    pub events: u64,
    /// Number of events with a stack.
    pub with_stack: u64,
    /// The most frequent stacks, in order.
    pub stacks: Vec<StackCount>,
    /// Number of different stacks.
    pub distinct: usize,
}

/// How often each stack of each event was observed. As a trace repeats names, frames and stacks very
/// often, a stack costs memory once.
#[derive(Debug, Default)]
pub struct StackCounts {
    names: EventNumbers,
    /// The number of events, and of those with a stack, by the number of their name.
    counts: Vec<(u64, u64)>,
    numbers: FxHashMap<StackKey, u32>,
    rows: Vec<StackCount>,
    /// The frames of the rows, innermost first.
    frames: Vec<FrameIndex>,
    processes: Vec<String>,
    process_numbers: FxHashMap<String, u32>,
    distinct: Frames,
}

/// The key of a distinct frame: its address, its address space, and what is known of its code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FrameKey {
    address: Address,
    kind: AddressKind,
    depth: Depth,
    pid: Option<u32>,
    module: Option<ModuleId>,
    method: Option<MethodId>,
    backing: frames::Backing,
}

/// All distinct frames. The facts about the memory of a frame are those at its first occurrence.
#[derive(Debug, Default)]
struct Frames {
    known: FxHashMap<FrameKey, FrameIndex>,
    rows: Vec<FrameRow>,
}

#[derive(Debug)]
struct FrameRow {
    facts: frames::Frame,
    depth: Depth,
    number: Option<symbols::FrameNumber>,
}

impl Frames {
    fn index(&mut self, pid: Option<u32>, frame: &FrameView<'_>) -> FrameIndex {
        let (facts, depth) = (frame.facts(), frame.depth());
        let module = facts.loaded;
        // A module at the same address is the same in every process.
        let pid = pid.filter(|_| module.is_none());
        let key = FrameKey {
            address: frame.address(),
            kind: facts.kind,
            depth,
            pid,
            module,
            method: facts.method,
            backing: facts.backing(),
        };
        *self.known.entry(key).or_insert_with(|| {
            self.rows.push(FrameRow { facts: *facts, depth, number: None });
            FrameIndex(self.rows.len() as u32 - 1)
        })
    }
}

impl StackCounts {
    /// Counts an event and its stack.
    pub fn add(&mut self, view: &EventView<'_>) {
        let event = self.names.of(view);
        if self.counts.len() <= event.index() {
            self.counts.resize(event.index() + 1, (0, 0));
        }
        let (events, with_stack) = &mut self.counts[event.index()];
        *events += 1;
        let Some(stack) = view.stack().filter(|_| view.level() != frames::Level::None) else { return };
        *with_stack += 1;
        // Without the uncertainty about the end of the walk, which is not shown.
        let states = view.stack_states();
        let states = states.others().fold(StackStates::of(states.first()), StackStates::with);
        let pid = view.pid().map(|pid| pid.0);
        let key = StackKey { event, stack: stack.index() as u32, pid, states };
        let row = match self.numbers.get(&key) {
            Some(&number) => number as usize,
            None => self.insert(key, view),
        };
        self.rows[row].count += 1;
    }

    fn insert(&mut self, key: StackKey, view: &EventView<'_>) -> usize {
        let StackCounts { frames, distinct, rows, numbers, .. } = self;
        let (start, pid) = (frames.len(), view.stack_owner().pid.map(|pid| pid.0));
        frames.extend(view.frames().map(|frame| distinct.index(pid, &frame)));
        let (end, number) = (frames.len(), rows.len());
        numbers.insert(key, number as u32);
        let process = view.process_name().map(|name| self.program(name));
        self.rows.push(StackCount { key, count: 0, process, start, end });
        number
    }

    fn program(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.process_numbers.get(name) {
            return known;
        }
        let number = self.processes.len() as u32;
        self.processes.push(name.to_owned());
        self.process_numbers.insert(name.to_owned(), number);
        number
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, row: &StackCount) -> &[FrameIndex] {
        &self.frames[row.start..row.end]
    }

    /// File name of the program of a stack.
    pub fn process_name(&self, row: &StackCount) -> Option<&str> {
        row.process.map(|process| &*self.processes[process as usize])
    }

    /// The names of events with stacks, those with the most first, and at most `top` stacks of each.
    pub fn events(&self, top: usize) -> Vec<EventStacks> {
        let mut of_event: Vec<Vec<StackCount>> = vec![Vec::new(); self.counts.len()];
        self.rows.iter().for_each(|row| of_event[row.key.event.index()].push(*row));
        let mut events_by_name: Vec<EventStacks> = Vec::new();
        for (mut stacks, &(events, with_stack)) in of_event.into_iter().zip(&self.counts) {
            let Some(first) = stacks.first() else { continue };
            let (event, distinct) = (first.key.event, stacks.len());
            stacks.sort_unstable_by(|a, b| self.compare(a, b));
            stacks.truncate(top);
            events_by_name.push(EventStacks { event, events, with_stack, stacks, distinct });
        }
        events_by_name.sort_by(|a, b| {
            let by_name = || self.names.name(a.event).cmp(self.names.name(b.event));
            b.with_stack.cmp(&a.with_stack).then_with(by_name)
        });
        events_by_name
    }

    /// The order of the rows of a kind: most frequent first, then by process, frames, state and
    /// process id.
    fn compare(&self, a: &StackCount, b: &StackCount) -> Ordering {
        let address =
            |&index: &FrameIndex| self.distinct.rows[index.index()].facts.address.unwrap_or(Address(0));
        let by_frames = || self.frames(a).iter().map(address).cmp(self.frames(b).iter().map(address));
        let rest = |row: &StackCount| (row.key.states, row.key.pid, row.key.stack);
        b.count
            .cmp(&a.count)
            .then_with(|| self.process_name(a).cmp(&self.process_name(b)))
            .then_with(by_frames)
            .then_with(|| rest(a).cmp(&rest(b)))
    }

    /// Forgets what is needed only to count further events, which is as large as the rest.
    pub fn end(&mut self) {
        self.numbers = FxHashMap::default();
        self.distinct.known = FxHashMap::default();
    }

    /// The names of events.
    pub fn names(&self) -> &EventNumbers {
        &self.names
    }

    /// All stacks, in the order of their first events.
    pub fn rows(&self) -> &[StackCount] {
        &self.rows
    }

    /// The names of programs.
    pub fn processes(&self) -> &[String] {
        &self.processes
    }

    /// The number of the program of a stack, in [`StackCounts::processes`].
    pub fn process(&self, row: &StackCount) -> Option<usize> {
        row.process.map(|process| process as usize)
    }

    /// All distinct frames.
    pub fn all_frames(&self) -> impl Iterator<Item = FrameIndex> + use<> {
        (0..self.distinct.rows.len() as u32).map(FrameIndex)
    }

    /// Resolves the names of frames, if the pipeline has a symbolizer. Requests all modules before
    /// waiting.
    pub fn name(&mut self, pipeline: &mut Pipeline<'_>, frames: impl IntoIterator<Item = FrameIndex>) {
        let (known, _, Some(naming)) = pipeline.parts() else { return };
        for index in frames {
            let row = &mut self.distinct.rows[index.index()];
            if row.depth == Depth::Function
                && row.number.is_none()
                && let Some((module, rva)) = row.facts.in_loaded()
            {
                row.number = naming.request(known.system().module(module), rva, row.facts.kind);
            }
        }
        naming.wait_for_all();
    }
}

/// Stacks with everything needed to show them.
#[derive(Clone, Copy, Debug)]
pub struct NamedStacks<'a> {
    /// The stacks.
    pub counts: &'a StackCounts,
    /// The modules of the frames.
    pub modules: &'a frames::Modules,
    /// The state of the trace.
    pub system: &'a System,
    /// The names of frames; `None` without a symbolizer.
    pub naming: Option<&'a Naming>,
}

impl NamedStacks<'_> {
    /// The summary of a stack, unless frames are known as addresses only.
    pub fn summary(&self, row: &StackCount) -> Option<frames::Summary> {
        let frames = self.counts.frames(row);
        let rows = || frames.iter().map(|&index| &self.counts.distinct.rows[index.index()]);
        if rows().all(|row| row.depth == Depth::Address) {
            return None;
        }
        let facts: Vec<frames::Frame> = rows().map(|row| row.facts).collect();
        let mut summary = frames::Summary::default();
        summary.of(self.modules, row.key.states, &facts);
        Some(summary)
    }

    /// Calls `show` with a frame and its names.
    pub fn frame<T>(&self, index: FrameIndex, show: impl FnOnce(Label<'_>) -> T) -> T {
        let row = &self.counts.distinct.rows[index.index()];
        let frame = FrameView::new(row.facts, self.system, row.depth);
        let names = self.naming.and_then(|naming| naming.frame(row.number?));
        show(Label { frame: &frame, names })
    }
}
