//! A naive model of stacks that searches everything, and random traces for it.

use proptest::prelude::*;
use stackhound_calltree::{
    Builder, Change, ContextId, Cpu, EndType, LocationId, LocationInfo, StackId, StackInfo, StackKind,
    StartType, Trace,
};

#[derive(Clone, Debug)]
pub struct Frame {
    pub stack: usize,
    pub first: u64,
    pub last: u64,
    pub start: StartType,
    pub end: EndType,
    pub location: Option<LocationId>,
    /// The first contexts and locations of its tail calls.
    pub tail_calls: Vec<(u64, LocationId)>,
    /// Its ancestors, outermost first, by position in `Model::frames`.
    pub ancestors: Vec<usize>,
}

/// The start or the end of a frame, or a switch of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Start(usize),
    End(usize),
    /// The transition.
    Leave(u64),
    Enter(u64),
}

/// The expected content of a trace.
#[derive(Debug)]
pub struct Model {
    pub transitions: u64,
    pub cpus: usize,
    /// In the order of their numbers.
    pub frames: Vec<Frame>,
    /// For every processor, the active stack at every context.
    pub active: Vec<Vec<Option<usize>>>,
    /// For every stack, the frame starts and ends with the first context at which each holds, in
    /// order.
    pub events: Vec<Vec<(u64, Event)>>,
    pub trace: Trace,
}

/// The action at a transition. Numbers are reduced modulo the number of possibilities.
#[derive(Clone, Debug)]
pub enum Step {
    Nothing,
    Call(u8),
    TailCall(u8),
    Interrupt,
    Return(EndType),
    /// Several frames end at once.
    Unwind(u8),
    /// The top frame is replaced.
    Damage,
    /// A return below all known frames.
    Underflow,
    /// A switch to another stack, where frames end or are created at the same time.
    Switch(u8, u8, bool),
    /// No stack is known to be active.
    Lose,
}

/// Steps of up to two processors.
pub fn steps() -> impl Strategy<Value = (usize, usize, Vec<(u8, Step)>)> {
    let end = prop::sample::select(vec![
        EndType::Return,
        EndType::ReturnElsewhere,
        EndType::InterruptReturn,
        EndType::Unwound,
        EndType::Replaced,
        EndType::Abandoned,
        EndType::Gone,
    ]);
    let step = prop_oneof![
        2 => Just(Step::Nothing),
        6 => any::<u8>().prop_map(Step::Call),
        2 => any::<u8>().prop_map(Step::TailCall),
        1 => Just(Step::Interrupt),
        5 => end.prop_map(Step::Return),
        1 => any::<u8>().prop_map(Step::Unwind),
        1 => Just(Step::Damage),
        1 => Just(Step::Underflow),
        2 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(stack, frames, closes)| Step::Switch(stack, frames, closes)),
        1 => Just(Step::Lose),
    ];
    (1_usize..3, 2_usize..7, prop::collection::vec((any::<u8>(), step), 1..120))
}

/// Runs the steps.
pub fn run((cpus, stacks, steps): &(usize, usize, Vec<(u8, Step)>)) -> Model {
    let mut run = Run::new(*cpus, *stacks);
    for (cpu, step) in steps {
        run.step(usize::from(*cpu) % cpus, step);
    }
    run.finish()
}

#[derive(Default)]
struct OneStack {
    /// Indexes into `Run::frames`, outermost first.
    open: Vec<usize>,
    /// Starts and ends in order, by index.
    events: Vec<(u64, Event)>,
    /// The frames that were found below the others, the first one found first.
    below: Vec<usize>,
    above: Vec<usize>,
    first: Option<u64>,
}

struct Run {
    builder: Builder,
    locations: Vec<LocationId>,
    now: u64,
    frames: Vec<Frame>,
    stacks: Vec<OneStack>,
    active: Vec<Vec<Option<usize>>>,
}

impl Run {
    fn new(cpus: usize, stacks: usize) -> Self {
        let mut builder = Builder::new();
        for number in 0..stacks {
            let (kind, thread) = match number {
                0 | 2 => (StackKind::User, Some(number as u32 / 2)),
                1 | 3 => (StackKind::Kernel, Some(number as u32 / 2)),
                4 => (StackKind::Interrupt, None),
                _ => (StackKind::Deferred, None),
            };
            builder.stack(StackInfo { kind, process: Some(1), thread, cpu: None, name: None, region: None });
        }
        let locations = (0..5)
            .map(|number| {
                builder.location(LocationInfo {
                    address: None,
                    module: None,
                    rva: None,
                    symbol: Some(format!("f{number}")),
                    symbol_offset: 0,
                })
            })
            .collect();
        let mut run = Self {
            builder,
            locations,
            now: 0,
            frames: Vec::new(),
            stacks: (0..stacks).map(|_| OneStack::default()).collect(),
            active: vec![vec![None]; cpus],
        };
        for cpu in 0..cpus {
            run.enter(cpu, cpu, 0);
            run.open(cpu, 0, StartType::Unknown, None);
        }
        run
    }

    fn step(&mut self, cpu: usize, step: &Step) {
        let (now, next) = (self.now, self.now + 1);
        if self.active.len() > 1 {
            let label = self.builder.label("step");
            self.builder.transition(now, Cpu(cpu as u16), label);
        }
        for active in &mut self.active {
            active.push(active[now as usize]);
        }
        let active = self.active[cpu][now as usize];
        match (step, active) {
            (Step::Call(number), Some(stack)) => {
                let location = self.locations[usize::from(*number) % self.locations.len()];
                self.open(stack, next, StartType::Call, Some(location));
            }
            (Step::TailCall(number), Some(stack)) => {
                let location = self.locations[usize::from(*number) % self.locations.len()];
                let id = StackId(stack as u32);
                self.builder.apply(Change::TailCall { stack: id, first: ContextId(next), location }).unwrap();
                let top = *self.stacks[stack].open.last().unwrap();
                self.frames[top].tail_calls.push((next, location));
            }
            (Step::Interrupt, Some(stack)) => self.open(stack, next, StartType::Interrupt, None),
            (Step::Return(end), Some(stack)) if self.stacks[stack].open.len() > 1 => {
                self.close(stack, now, *end)
            }
            (Step::Unwind(count), Some(stack)) => {
                for _ in 0..usize::from(*count) % self.stacks[stack].open.len() {
                    self.close(stack, now, EndType::Unwound);
                }
            }
            (Step::Damage, Some(stack)) if self.stacks[stack].open.len() > 1 => {
                self.close(stack, now, EndType::Replaced);
                self.open(stack, next, StartType::Damaged, None);
            }
            (Step::Underflow, Some(stack)) => {
                while !self.stacks[stack].open.is_empty() {
                    self.close(stack, now, EndType::Return);
                }
                self.below(stack);
            }
            (Step::Switch(number, frames, closes), _) => {
                let free: Vec<usize> = (0..self.stacks.len())
                    .filter(|stack| self.active.iter().all(|active| active[now as usize] != Some(*stack)))
                    .collect();
                let Some(stack) = free.get(usize::from(*number) % free.len().max(1)).copied() else {
                    self.now = next;
                    return;
                };
                self.enter(cpu, stack, next);
                let open = self.stacks[stack].open.len();
                if open == 0 {
                    self.open(stack, next, StartType::Unknown, None);
                } else if *closes {
                    (0..usize::from(*frames) % open).for_each(|_| self.close(stack, now, EndType::Unwound));
                } else {
                    (0..frames % 3).for_each(|_| self.open(stack, next, StartType::Manual, None));
                }
            }
            (Step::Lose, Some(_)) => {
                self.builder.apply(Change::Leave { cpu: Cpu(cpu as u16), last: ContextId(now) }).unwrap();
                self.active[cpu][next as usize] = None;
            }
            _ => {}
        }
        self.now = next;
    }

    fn enter(&mut self, cpu: usize, stack: usize, first: u64) {
        let change =
            Change::Enter { cpu: Cpu(cpu as u16), stack: StackId(stack as u32), first: ContextId(first) };
        self.builder.apply(change).unwrap();
        self.active[cpu][first as usize] = Some(stack);
        self.stacks[stack].first.get_or_insert(first);
    }

    fn open(&mut self, stack: usize, first: u64, start: StartType, location: Option<LocationId>) {
        let id = StackId(stack as u32);
        self.builder.apply(Change::Open { stack: id, first: ContextId(first), start, location }).unwrap();
        let number = self.frames.len();
        self.frames.push(Frame {
            stack,
            first,
            last: 0,
            start,
            end: EndType::TraceEnd,
            location,
            tail_calls: Vec::new(),
            ancestors: Vec::new(),
        });
        self.stacks[stack].open.push(number);
        self.stacks[stack].above.push(number);
        self.stacks[stack].events.push((first, Event::Start(number)));
    }

    fn close(&mut self, stack: usize, last: u64, end: EndType) {
        let number = *self.stacks[stack].open.last().unwrap();
        if self.frames[number].first > last {
            // The frame has no context yet, so it cannot be closed.
            return;
        }
        self.builder
            .apply(Change::Close { stack: StackId(stack as u32), last: ContextId(last), end })
            .unwrap();
        self.frames[number].last = last;
        self.frames[number].end = end;
        self.stacks[stack].open.pop();
        self.stacks[stack].events.push((last + 1, Event::End(number)));
    }

    fn below(&mut self, stack: usize) {
        self.builder.apply(Change::Below { stack: StackId(stack as u32), location: None }).unwrap();
        let number = self.frames.len();
        let first = self.stacks[stack].first.unwrap();
        let frame = Frame {
            stack,
            first,
            last: 0,
            start: StartType::Unknown,
            end: EndType::TraceEnd,
            location: None,
            tail_calls: Vec::new(),
            ancestors: Vec::new(),
        };
        self.frames.push(frame);
        self.stacks[stack].open.push(number);
        self.stacks[stack].below.push(number);
    }

    fn finish(mut self) -> Model {
        let transitions = self.now;
        let mut order = Vec::new();
        let mut events = Vec::new();
        for stack in &mut self.stacks {
            while let Some(number) = stack.open.pop() {
                self.frames[number].last = transitions;
                stack.events.push((transitions + 1, Event::End(number)));
            }
            let first = stack.first.unwrap_or(0);
            let below = stack.below.iter().rev().map(|number| (first, Event::Start(*number)));
            events.push(below.chain(stack.events.iter().copied()).collect::<Vec<_>>());
            order.extend(stack.below.iter().rev().chain(&stack.above).copied());
        }
        let mut number_of = vec![0; order.len()];
        order.iter().enumerate().for_each(|(number, old)| number_of[*old] = number);
        let mut frames: Vec<Frame> = order.iter().map(|old| self.frames[*old].clone()).collect();
        for (stack, events) in events.iter_mut().enumerate() {
            let mut open: Vec<usize> = Vec::new();
            for (_, event) in events.iter_mut() {
                match event {
                    Event::Start(number) => {
                        *number = number_of[*number];
                        frames[*number].ancestors = open.clone();
                        open.push(*number);
                    }
                    Event::End(number) => {
                        *number = number_of[*number];
                        assert_eq!(open.pop(), Some(*number), "the model nests");
                    }
                    _ => {}
                }
            }
            // Insert the switches of stacks: entering before the frames of the same context,
            // leaving after them.
            let contexts = 0..=transitions as usize;
            let on = |context: usize| self.active.iter().position(|active| active[context] == Some(stack));
            let mut merged = Vec::new();
            let mut rest = events.iter().copied().peekable();
            for context in contexts {
                let before = if context == 0 { None } else { on(context - 1) };
                if context > 0 && before != on(context) && on(context).is_some() {
                    if before.is_some() {
                        merged.push((context as u64, Event::Leave(context as u64 - 1)));
                    }
                    merged.push((context as u64, Event::Enter(context as u64 - 1)));
                }
                while rest.peek().is_some_and(|(at, _)| *at == context as u64) {
                    merged.extend(rest.next());
                }
                if before.is_some() && on(context).is_none() {
                    merged.push((context as u64, Event::Leave(context as u64 - 1)));
                }
            }
            merged.extend(rest);
            *events = merged;
        }
        Model {
            transitions,
            cpus: self.active.len(),
            frames,
            active: self.active,
            events,
            trace: self.builder.finish(transitions).unwrap(),
        }
    }
}

impl Model {
    /// The frames of a stack at a context, outermost first.
    pub fn open(&self, stack: usize, context: u64) -> Vec<usize> {
        let is_open = |number: &usize| {
            let frame = &self.frames[*number];
            frame.stack == stack && frame.first <= context && context <= frame.last
        };
        let mut open: Vec<usize> = (0..self.frames.len()).filter(is_open).collect();
        open.sort_by_key(|number| self.frames[*number].ancestors.len());
        open
    }

    /// The processor on which a stack is active, if any.
    pub fn on(&self, stack: usize, context: u64) -> Option<usize> {
        self.active.iter().position(|active| active[context as usize] == Some(stack))
    }

    /// The runs of contexts with the same `key`, within a frame's contexts at which its stack is
    /// active.
    pub fn runs<K: PartialEq + Copy>(&self, number: usize, key: impl Fn(u64) -> K) -> Vec<(u64, u64, K)> {
        let frame = &self.frames[number];
        let mut runs: Vec<(u64, u64, usize, K)> = Vec::new();
        for context in frame.first..=frame.last {
            let Some(cpu) = self.on(frame.stack, context) else { continue };
            match runs.last_mut() {
                Some(run) if run.1 + 1 == context && run.2 == cpu && run.3 == key(context) => run.1 = context,
                _ => runs.push((context, context, cpu, key(context))),
            }
        }
        runs.into_iter().map(|(begin, last, _, key)| (begin, last, key)).collect()
    }

    /// The events below a frame.
    pub fn below(&self, number: usize) -> Vec<Event> {
        let events = &self.events[self.frames[number].stack];
        let location = |event| events.iter().position(|(_, found)| *found == event).unwrap();
        let below = &events[location(Event::Start(number)) + 1..location(Event::End(number))];
        // Frames that are open at the end of the trace have no end event.
        let happens = |event: &Event| match event {
            Event::End(inner) => self.frames[*inner].end != EndType::TraceEnd,
            _ => true,
        };
        below.iter().map(|(_, event)| *event).filter(happens).collect()
    }
}
