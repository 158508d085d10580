//! The simulated machine: memory, registers, stacks, threads, and the expected frames.

use std::collections::BTreeMap;

use stackhound_calltree::ContextId;
use stackhound_calltree::tracker::{Class, Point, Ring, Space, Step, Thread};
use stackhound_calltree::{EndType, StackKind, StartType};
use stackhound_types::Address;

use super::random::Random;
use super::truth::{Active, TrueFrame, TrueStack, Truth};
use super::{Event, Execution, Memory};

pub(super) const SPACE: Space = Space(7);
/// Functions are at multiples of this number. Their code takes half of it.
const FUNCTION: u64 = 0x1000;
const FUNCTIONS: u64 = 40;
const CODE: u64 = 0x40_0000;

/// A frame, as the machine knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    /// Its position among the stack's frames in the truth. `None` if it is older than the trace and
    /// not found yet.
    pub known: Option<usize>,
    /// The highest stack pointer while this is the top frame: the address of the return address, if
    /// it has one.
    pub ceiling: u64,
    /// Its original return address.
    pub back: Option<u64>,
    pub kind: Kind,
    /// Its return address was changed while its stack was not active.
    pub changed: bool,
    /// The function that the last jump led to.
    pub jumped_to: Option<Address>,
}

impl Shadow {
    pub fn new(ceiling: u64, back: Option<u64>, kind: Kind) -> Shadow {
        Shadow { known: None, ceiling, back, kind, changed: false, jumped_to: None }
    }

    /// The lowest stack pointer at which the frame has ended.
    pub fn gone(&self) -> u64 {
        self.ceiling + 8
    }
}

/// The kind of a frame, which determines how it can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function with a return address: called, a signal handler, or with a replaced return
    /// address.
    Function,
    /// Older than the trace. The outermost frame never returns.
    Older { outermost: bool },
    /// Created while the stack was not active.
    Foreign,
    /// An interrupt or a signal, with the state to which it returns.
    Interrupt { stack: usize, sp: u64, pc: u64 },
}

/// Memory that is used as a stack.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    pub low: u64,
    pub high: u64,
    pub kind: StackKind,
    pub declared: bool,
    /// Its position in the truth, once it was active.
    pub known: Option<usize>,
    pub frames: Vec<Shadow>,
    /// The stack pointer when it was left.
    pub left: u64,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Used by a thread or reserved for interrupts.
    Used,
    /// A coroutine that any thread can resume, or the stack of a thread, which that thread can
    /// resume.
    Parked { owner: Option<Thread> },
    /// No longer used.
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadState {
    pub thread: Thread,
    pub own: usize,
    /// The address at which it continues.
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
    /// The index of the running thread.
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
        // Transitions that are only skipped have no known location.
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

    // Basic operations.

    pub fn emit(&mut self, event: Event) {
        let (memory, readable) = (&self.memory, self.execution.readable);
        let read = |address: Address| memory.get(&address.0).filter(|_| readable).map(|&word| Address(word));
        (self.each)(event, &read);
    }

    /// Executes one transition to these registers. Memory must already be in the state after it.
    pub fn step(&mut self, class: Class, pc: u64, sp: u64) {
        let point = |pc, sp| Point { pc: Address(pc), sp: Address(sp), ring: Ring::User };
        let step = Step { class, before: point(self.pc, self.sp), after: point(pc, sp), space: SPACE };
        self.transition += 1;
        self.emit(Event::Step(step));
        (self.pc, self.sp) = (pc, sp);
    }

    /// The address of the next instruction without a jump.
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

    /// Allocates memory. Declared stacks are adjacent, others far apart.
    pub fn new_stack(&mut self, kind: StackKind, declared: bool) -> usize {
        let (size, gap) = if declared { (32 << 10, 0) } else { (64 << 10, 1 << 20) };
        let low = self.next_memory + gap;
        let high = low + size;
        self.next_memory = high + gap;
        if declared {
            self.emit(Event::Declare { space: SPACE, low: Address(low), high: Address(high), kind });
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

    /// Adds frames that are older than the trace to a stack: the outermost one, and `inner` frames
    /// in it.
    pub fn start_older(&mut self, stack: usize, inner: u64) {
        let mut sp = self.stacks[stack].high - 8 * self.random.below(4);
        let outermost = Kind::Older { outermost: true };
        let mut put = |kind, ceiling, back| {
            let frame = Shadow::new(ceiling, back, kind);
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

    // The expected frames.

    /// Records that a stack becomes active.
    pub fn enter(&mut self, first: ContextId, stack: usize) {
        if self.stacks[stack].known.is_none() {
            self.stacks[stack].known = Some(self.truth.stacks.len());
            self.truth.stacks.push(TrueStack::default());
        }
        self.active = stack;
        self.truth.active.push(Active { first, stack: self.stacks[stack].known });
    }

    /// Records that a frame starts as the top of the active stack.
    pub fn open(&mut self, first: ContextId, start: StartType, function: Option<u64>, frame: Shadow) {
        let known = Some(self.note(first, start, function, false));
        self.stack().frames.push(Shadow { known, ..frame });
    }

    /// Records that the innermost frame from before the first activity of the stack is found.
    pub fn find_older(&mut self, first: ContextId, function: u64) {
        let known = Some(self.note(first, StartType::Unknown, Some(function), false));
        self.stack().frames.last_mut().expect("an older frame").known = known;
    }

    /// Records a return into an older frame.
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

    /// Records the end of the top frame of a stack. Frames that were never found are not recorded.
    pub fn close(&mut self, stack: usize, last: ContextId, end: EndType) {
        let known = self.stacks[stack].known;
        if let Some(frame) = self.stacks[stack].frames.pop()
            && let (Some(stack), Some(location)) = (known, frame.known)
        {
            let frame = &mut self.truth.stacks[stack].frames[location];
            (frame.last, frame.end) = (last, end);
        }
    }

    /// Ends the frames of the active stack from this one inwards, without a return.
    pub fn unwind_from(&mut self, location: usize, last: ContextId) {
        while self.stacks[self.active].frames.len() > location {
            self.close(self.active, last, EndType::Unwound);
        }
    }

    /// Records that a transition uncovers frames: if their return addresses were changed, this is
    /// detected now.
    pub fn uncover(&mut self, last: ContextId) {
        let mut damaged = None;
        while let Some(top) = self.top().filter(|top| top.changed && self.execution.readable) {
            self.close(self.active, last, EndType::Replaced);
            damaged = Some(top);
        }
        if let Some(top) = damaged {
            let back = Some(self.peek(top.ceiling));
            let frame =
                Shadow { known: None, back, kind: Kind::Function, changed: false, jumped_to: None, ..top };
            self.open(ContextId(last.0 + 1), StartType::Damaged, Some(self.pc), frame);
        }
    }

    /// Abandons all frames of a stack before the next transition.
    pub fn abandon(&mut self, stack: usize) {
        let last = ContextId(self.transition);
        while !self.stacks[stack].frames.is_empty() {
            self.close(stack, last, EndType::Abandoned);
        }
        self.stacks[stack].state = State::Gone;
    }
}
