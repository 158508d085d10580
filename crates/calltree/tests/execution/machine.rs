//! The simulated machine: memory, registers, stacks, threads, and the notes it takes.

use std::collections::BTreeMap;

use stackhound_calltree::ContextId;
use stackhound_calltree::tracker::{Class, Point, Space, Step, Thread};
use stackhound_calltree::{EndType, StackKind, StartType};
use stackhound_types::Address;

use super::random::Random;
use super::truth::{Active, TrueFrame, TrueStack, Truth};
use super::{Event, Execution, Memory};

pub(super) const SPACE: Space = Space(7);
/// The functions stand at multiples of this, and their code takes half of it.
const FUNCTION: u64 = 0x1000;
const FUNCTIONS: u64 = 40;
const CODE: u64 = 0x40_0000;

/// A frame as the machine knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    /// Its place among the stack's frames in the truth. `None` as long as it is older than the trace and not found.
    pub known: Option<usize>,
    /// What the stack pointer can be at most while this is the top frame: where the return address is, if it has one.
    pub ceiling: u64,
    /// What its return address was.
    pub back: Option<u64>,
    pub kind: Kind,
    /// Its return address was changed while its stack was not active.
    pub changed: bool,
}

impl Shadow {
    pub fn new(ceiling: u64, back: Option<u64>, kind: Kind) -> Shadow {
        Shadow { known: None, ceiling, back, kind, changed: false }
    }

    /// The lowest stack pointer at which it is gone.
    pub fn gone(&self) -> u64 {
        self.ceiling + 8
    }
}

/// What sort of frame it is, for how it can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function with a return address: called, or a signal handler, or one whose return address was replaced.
    Function,
    /// Older than the trace. The outermost never returns.
    Older { outermost: bool },
    /// Put there while the stack was not active.
    Foreign,
    /// An interrupt or a signal: where it goes back to.
    Interrupt { stack: usize, sp: u64, pc: u64 },
}

/// Memory used as a stack.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    pub low: u64,
    pub high: u64,
    pub kind: StackKind,
    pub declared: bool,
    /// Its place in the truth, once it was active.
    pub known: Option<usize>,
    pub frames: Vec<Shadow>,
    /// The stack pointer when it was left.
    pub left: u64,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A thread uses it, or it waits for an interrupt.
    Used,
    /// A coroutine that any thread may resume, or, as the thread's own, that thread.
    Parked { owner: Option<Thread> },
    /// Given up.
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadState {
    pub thread: Thread,
    pub own: usize,
    /// Where it goes on.
    pub stack: usize,
    pub alternate: Option<usize>,
}

pub(super) struct Machine<'a> {
    pub execution: Execution,
    each: &'a mut dyn FnMut(Event, Memory),
    pub random: Random,
    memory: BTreeMap<u64, u64>,
    pub pc: u64,
    pub sp: u64,
    pub transition: u64,
    pub stacks: Vec<Stack>,
    pub active: usize,
    pub threads: Vec<ThreadState>,
    /// The running thread's place.
    pub running: usize,
    pub threads_made: u32,
    /// The stack for interrupts.
    pub interrupts: usize,
    pub truth: Truth,
    next_memory: u64,
}

impl<'a> Machine<'a> {
    pub fn new(execution: Execution, each: &'a mut dyn FnMut(Event, Memory)) -> Machine<'a> {
        let mut machine = Machine {
            execution,
            each,
            random: Random::new(execution.seed),
            memory: BTreeMap::new(),
            pc: CODE,
            sp: 0,
            transition: 0,
            stacks: Vec::new(),
            active: 0,
            threads: Vec::new(),
            running: 0,
            threads_made: 0,
            interrupts: 0,
            truth: Truth::default(),
            next_memory: 0x7000_0000_0000,
        };
        let declared = machine.random.one_in(2);
        let first = machine.new_stack(StackKind::User, declared);
        machine.interrupts = machine.new_stack(StackKind::Interrupt, true);
        machine.active = first;
        machine.add_thread(first);
        let older = machine.random.below(4);
        machine.start_older(first, older);
        machine.sp = machine.stacks[first].frames.last().expect("just put there").ceiling
            - 8 * machine.random.below(5);
        machine.enter(ContextId(0), first);
        machine.find_older(ContextId(0), machine.pc);
        machine
    }

    pub fn run(mut self) -> Truth {
        while self.transition < self.execution.transitions {
            self.act();
        }
        // Of transitions that are only skipped nobody learns where they took place.
        self.plain();
        self.truth.transitions = self.transition;
        let end = ContextId(self.transition);
        for stack in &mut self.truth.stacks {
            for frame in stack.frames.iter_mut().filter(|frame| frame.end == EndType::TraceEnd) {
                frame.last = end;
            }
        }
        self.truth
    }

    // What the machine does.

    pub fn tell(&mut self, event: Event) {
        let (memory, readable) = (&self.memory, self.execution.readable);
        let read = |address: Address| memory.get(&address.0).filter(|_| readable).map(|&word| Address(word));
        (self.each)(event, &read);
    }

    /// One transition, to these registers. Memory must be as it is afterwards.
    pub fn step(&mut self, class: Class, pc: u64, sp: u64) {
        let point = |pc, sp| Point { pc: Address(pc), sp: Address(sp) };
        let step = Step { class, before: point(self.pc, self.sp), after: point(pc, sp), space: SPACE };
        self.transition += 1;
        self.tell(Event::Step(step));
        (self.pc, self.sp) = (pc, sp);
    }

    /// The address of the next instruction, if nothing jumps.
    pub fn next_pc(&self) -> u64 {
        let inside = (self.pc + 4) % FUNCTION;
        self.pc - self.pc % FUNCTION + if inside < FUNCTION / 2 { inside } else { 0 }
    }

    pub fn plain(&mut self) {
        self.step(Class::Other, self.next_pc(), self.sp);
    }

    pub fn poke(&mut self, address: u64, word: u64) {
        self.memory.insert(address, word);
    }

    pub fn peek(&self, address: u64) -> u64 {
        self.memory.get(&address).copied().unwrap_or(0)
    }

    pub fn any_function(&mut self) -> u64 {
        CODE + FUNCTION * self.random.below(FUNCTIONS)
    }

    // Stacks and threads.

    /// Sets memory aside. Declared stacks lie next to each other, others far apart.
    pub fn new_stack(&mut self, kind: StackKind, declared: bool) -> usize {
        let (size, gap) = if declared { (32 << 10, 0) } else { (64 << 10, 1 << 20) };
        let low = self.next_memory + gap;
        let high = low + size;
        self.next_memory = high + gap;
        if declared {
            self.tell(Event::Declare { space: SPACE, low: Address(low), high: Address(high), kind });
        }
        self.put_stack(low, high, kind, declared)
    }

    pub fn put_stack(&mut self, low: u64, high: u64, kind: StackKind, declared: bool) -> usize {
        let state = State::Used;
        self.stacks.push(Stack {
            low,
            high,
            kind,
            declared,
            known: None,
            frames: Vec::new(),
            left: 0,
            state,
        });
        self.stacks.len() - 1
    }

    /// Gives a stack frames that are older than what can be seen of it: the outermost, and so many in it.
    pub fn start_older(&mut self, stack: usize, inner: u64) {
        let mut sp = self.stacks[stack].high - 8 * self.random.below(4);
        let outermost = Kind::Older { outermost: true };
        let mut put = |kind, ceiling, back| {
            let frame = Shadow { known: None, ceiling, back, kind, changed: false };
            self.stacks[stack].frames.push(frame);
        };
        put(outermost, sp, None);
        for _ in 0..inner {
            sp -= 8 * self.random.between(1, 6);
            let back = CODE + FUNCTION * self.random.below(FUNCTIONS) + 0x40;
            self.memory.insert(sp, back);
            put(Kind::Older { outermost: false }, sp, Some(back));
        }
    }

    pub fn add_thread(&mut self, own: usize) -> usize {
        self.threads_made += 1;
        let thread = Thread(Execution::FIRST_THREAD.0 + self.threads_made - 1);
        let alternate = self.random.one_in(2).then(|| self.new_stack(StackKind::Alternate, true));
        self.threads.push(ThreadState { thread, own, stack: own, alternate });
        self.threads.len() - 1
    }

    pub fn thread(&self) -> ThreadState {
        self.threads[self.running]
    }

    pub fn stack(&mut self) -> &mut Stack {
        &mut self.stacks[self.active]
    }

    pub fn top(&self) -> Option<Shadow> {
        self.stacks[self.active].frames.last().copied()
    }

    // What is noted.

    /// A stack becomes the active one.
    pub fn enter(&mut self, first: ContextId, stack: usize) {
        if self.stacks[stack].known.is_none() {
            self.stacks[stack].known = Some(self.truth.stacks.len());
            self.truth.stacks.push(TrueStack::default());
        }
        self.active = stack;
        self.truth.active.push(Active { first, stack: self.stacks[stack].known });
    }

    /// A frame starts on the active stack, as its top one.
    pub fn open(&mut self, first: ContextId, start: StartType, function: Option<u64>, frame: Shadow) {
        let known = Some(self.note(first, start, function, false));
        self.stack().frames.push(Shadow { known, ..frame });
    }

    /// The innermost frame that is older than what is known of the stack is found.
    pub fn find_older(&mut self, first: ContextId, function: u64) {
        let known = Some(self.note(first, StartType::Unknown, Some(function), false));
        self.stack().frames.last_mut().expect("an older frame").known = known;
    }

    /// A return into a frame that is older.
    pub fn find_below(&mut self, function: u64) {
        let stack = self.stacks[self.active].known;
        let entered =
            self.truth.active.iter().find(|active| active.stack == stack).expect("it is active").first;
        let known = Some(self.note(entered, StartType::Unknown, Some(function), true));
        self.stack().frames.last_mut().expect("an older frame").known = known;
    }

    fn note(&mut self, first: ContextId, start: StartType, function: Option<u64>, below: bool) -> usize {
        let (last, end, function) = (first, EndType::TraceEnd, function.map(Address));
        let known = self.stacks[self.active].known.expect("an active stack");
        let frames = &mut self.truth.stacks[known].frames;
        frames.push(TrueFrame { first, last, start, end, function, below });
        frames.len() - 1
    }

    /// The top frame of a stack ends. Nothing is said of frames that were never found.
    pub fn close(&mut self, stack: usize, last: ContextId, end: EndType) {
        let known = self.stacks[stack].known;
        if let Some(frame) = self.stacks[stack].frames.pop()
            && let (Some(stack), Some(location)) = (known, frame.known)
        {
            let frame = &mut self.truth.stacks[stack].frames[location];
            (frame.last, frame.end) = (last, end);
        }
    }

    /// The frames of the active stack from this one inwards end without a return.
    pub fn unwind_from(&mut self, location: usize, last: ContextId) {
        while self.stacks[self.active].frames.len() > location {
            self.close(self.active, last, EndType::Unwound);
        }
    }

    /// Frames become visible, by a transition: where their return addresses were changed meanwhile, that shows now.
    pub fn uncover(&mut self, last: ContextId) {
        let mut damaged = None;
        while let Some(top) = self.top().filter(|top| top.changed && self.execution.readable) {
            self.close(self.active, last, EndType::Replaced);
            damaged = Some(top);
        }
        if let Some(top) = damaged {
            let back = Some(self.peek(top.ceiling));
            let frame = Shadow { known: None, back, kind: Kind::Function, changed: false, ..top };
            self.open(ContextId(last.0 + 1), StartType::Damaged, Some(self.pc), frame);
        }
    }

    /// All that is on a stack is given up before the next transition.
    pub fn abandon(&mut self, stack: usize) {
        let last = ContextId(self.transition);
        while !self.stacks[stack].frames.is_empty() {
            self.close(stack, last, EndType::Abandoned);
        }
        self.stacks[stack].state = State::Gone;
    }
}
