//! A literal implementation of the tracker's rules: all frames are in one list, which is searched
//! from end to end. Both trackers process the same steps, which need not be meaningful.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use stackhound_calltree::tracker::{
    Class, DOUBT_MAX, NEAR, Point, Ring, Space, Step, Thread, Tracked, Tracker,
};
use stackhound_calltree::{ContextId, EndType, StackKind, StartType};
use stackhound_types::Address;

use super::found::Found;
use crate::execution::truth::{TrueFrame, TrueJump};

/// Stacks of 32 words, far from each other.
const STACKS: u64 = 3;
const WORDS: u64 = 32;

fn high(stack: u64) -> u64 {
    0x100_0000 * (stack + 1)
}

fn stack_of(sp: u64) -> u64 {
    (sp - 1) / 0x100_0000
}

#[derive(Clone, Copy, Debug)]
struct Past {
    stack: u64,
    /// The return address is at this address, or at a lower one, or, for the base, not at a lower
    /// one.
    slot: u64,
    base: bool,
    return_address: Option<u64>,
    frame: TrueFrame,
    open: bool,
    /// The transition until which it is a doubtful call.
    doubted: Option<u64>,
    /// Its slot was not checked since the stack was entered.
    unchecked: bool,
    erased: bool,
    /// The address of its call.
    call: u64,
    /// The function that it started in, or that its last jump led to.
    function: Option<Address>,
}

#[derive(Default)]
struct Literal {
    past: Vec<Past>,
    jumps: Vec<(u64, TrueJump)>,
    /// The calls that turned out to be those of retpolines.
    retpolines: HashSet<u64>,
    /// The stacks in the order of their first activity, with its context.
    known: Vec<(u64, u64)>,
    left: HashMap<u64, u64>,
    active: u64,
}

impl Literal {
    fn top(&self) -> Option<usize> {
        self.past.iter().rposition(|past| past.open && past.stack == self.active)
    }

    fn topmost(&self) -> Option<Past> {
        self.top().map(|top| self.past[top])
    }

    fn close(&mut self, transition: u64, end: EndType) {
        self.confirm();
        let top = self.top().expect("an open frame");
        let past = &mut self.past[top];
        past.open = false;
        (past.frame.last, past.frame.end) = (ContextId(transition), end);
    }

    fn open(
        &mut self,
        first: u64,
        start: StartType,
        slot: u64,
        return_address: Option<u64>,
        function: Option<u64>,
    ) {
        self.past.push(Past {
            stack: self.active,
            slot,
            base: start == StartType::Unknown,
            return_address,
            frame: TrueFrame {
                first: ContextId(first),
                last: ContextId(first),
                start,
                end: EndType::TraceEnd,
                function: function.map(Address),
                below: false,
            },
            open: true,
            doubted: None,
            unchecked: false,
            erased: false,
            call: 0,
            function: function.map(Address),
        });
    }

    /// Removes the top frame, which is doubtful.
    fn erase(&mut self) {
        let top = self.top().expect("an open frame");
        (self.past[top].open, self.past[top].erased) = (false, true);
    }

    /// An interrupt confirms all doubtful frames but those of known retpolines.
    fn interrupt(&mut self) {
        while self.topmost().is_some_and(|top| top.doubted.is_some() && self.retpolines.contains(&top.call)) {
            self.erase();
        }
        self.confirm();
    }

    /// A jump leaves the function of the top frame if the stack pointer is at its return address.
    fn jump(&mut self, transition: u64, function: u64, sp: u64) {
        let Some(top) = self.top() else { return };
        let past = self.past[top];
        let is_function = past.return_address.is_some() && past.frame.start != StartType::Interrupt;
        if past.slot == sp && is_function {
            self.confirm();
            let (first, function) = (ContextId(transition + 1), Address(function));
            let from = self.past[top].function.replace(function);
            self.jumps.push((self.active, TrueJump { stack: 0, first, from, function }));
        }
    }

    /// Confirms all doubtful frames.
    fn confirm(&mut self) {
        self.past.iter_mut().for_each(|past| past.doubted = None);
    }

    fn rise(&mut self, transition: u64, sp: u64) {
        while let Some(top) = self.top() {
            let past = &mut self.past[top];
            if past.base {
                past.slot = past.slot.max(sp);
                return;
            }
            if past.slot >= sp {
                return;
            }
            if past.doubted.is_some() {
                (past.open, past.erased) = (false, true);
            } else {
                self.close(transition, EndType::Unwound);
            }
        }
    }

    fn overwrite(&mut self, transition: u64, slot: u64) {
        while self.topmost().is_some_and(|top| !top.base && top.slot <= slot) {
            self.close(transition, EndType::Unwound);
        }
    }

    fn check(&mut self, transition: u64, function: u64, memory: &HashMap<u64, u64>) {
        let mut damaged = None;
        while let Some(top) = self.top().filter(|&top| self.past[top].unchecked) {
            let past = self.past[top];
            let expected = past.return_address.filter(|_| past.frame.start != StartType::Interrupt);
            let word = memory.get(&past.slot).copied();
            match (expected, word) {
                (Some(expected), Some(word)) if expected != word && !past.base => {
                    self.close(transition, EndType::Replaced);
                    damaged = Some((past.slot, word));
                }
                _ => {
                    self.past[top].unchecked = false;
                    break;
                }
            }
        }
        if let Some((slot, word)) = damaged {
            self.open(transition + 1, StartType::Damaged, slot, Some(word), Some(function));
        }
    }

    fn ensure(&mut self, first: u64, function: u64, sp: u64) {
        if self.top().is_none() {
            self.open(first, StartType::Unknown, sp, None, Some(function));
        }
    }

    /// Whether this is another stack.
    fn reach(&mut self, transition: u64, before: u64, after: u64) -> bool {
        let to = stack_of(after);
        if to == self.active {
            return false;
        }
        self.confirm();
        self.left.insert(self.active, before);
        self.active = to;
        if !self.known.iter().any(|(stack, _)| *stack == to) {
            self.known.push((to, transition + 1));
        }
        for past in self.past.iter_mut().filter(|past| past.stack == to) {
            past.unchecked = true;
        }
        true
    }

    fn start(&mut self, at: Point) {
        self.active = stack_of(at.sp.0);
        self.known.push((self.active, 0));
        self.ensure(0, at.pc.0, at.sp.0);
    }

    fn step(&mut self, transition: u64, step: &Step, memory: &HashMap<u64, u64>) {
        let (from, to) = (step.before.sp.0, step.after.sp.0);
        let (first, function) = (transition + 1, step.after.pc.0);
        self.rise(transition, from);
        let mut moves = false;
        let mut is_jump = step.class == Class::Jump;
        match step.class {
            Class::Call { return_address } => {
                let near = function.wrapping_sub(return_address.0) <= NEAR;
                if !near || self.past.iter().filter(|past| past.open && past.doubted.is_some()).count() == 4 {
                    self.confirm();
                }
                self.overwrite(transition, to);
                let alone = self.top().is_none();
                if !near || alone {
                    self.confirm();
                }
                self.open(first, StartType::Call, to, Some(return_address.0), Some(function));
                if near && !alone {
                    let past = self.past.last_mut().expect("just put there");
                    past.doubted = Some(0);
                    past.call = step.before.pc.0;
                    for past in self.past.iter_mut().filter(|past| past.doubted.is_some()) {
                        past.doubted = Some(transition + DOUBT_MAX);
                    }
                }
            }
            Class::Return => {
                let top = self.top().expect("an active stack has a frame");
                let past = self.past[top];
                let bound =
                    past.return_address.is_none() && !past.base && from <= past.slot && past.slot < to;
                if past.base && from >= past.slot {
                    self.close(transition, EndType::Return);
                    let entered =
                        self.known.iter().find(|(stack, _)| *stack == self.active).expect("known").1;
                    self.open(entered, StartType::Unknown, to, None, Some(function));
                    self.past.last_mut().expect("just put there").frame.below = true;
                } else if !past.base && (past.slot == from || bound) {
                    if past.return_address.is_none_or(|address| address == function) {
                        self.close(transition, EndType::Return);
                    } else if past.doubted.is_some() {
                        self.retpolines.insert(past.call);
                        self.erase();
                        is_jump = true;
                    } else {
                        self.close(transition, EndType::ReturnElsewhere);
                    }
                } else if past.frame.start == StartType::Call
                    && from < past.slot
                    && past.return_address == Some(function)
                {
                    self.close(transition, EndType::Return);
                } else {
                    is_jump = true;
                }
            }
            Class::Interrupt { slot } => {
                self.interrupt();
                self.reach(transition, from, to);
                let slot = slot.0.max(to);
                self.overwrite(transition, slot);
                self.open(first, StartType::Interrupt, slot, Some(step.before.pc.0), Some(function));
                return;
            }
            Class::Signal { slot } => {
                self.interrupt();
                self.reach(transition, from, to);
                self.overwrite(transition, slot.0);
                let restorer = memory.get(&to).copied();
                self.open(first, StartType::Interrupt, slot.0, Some(step.before.pc.0), restorer);
                self.open(first, StartType::Manual, to, restorer, Some(function));
                return;
            }
            Class::InterruptReturn => {
                if let Some(top) = self.topmost().filter(|top| !top.base && top.slot == from) {
                    let end = match top.frame.start {
                        StartType::Interrupt => EndType::InterruptReturn,
                        _ if top.return_address == Some(function) => EndType::Return,
                        _ => EndType::ReturnElsewhere,
                    };
                    self.close(transition, end);
                }
                moves = self.reach(transition, from, to);
            }
            Class::Switch { .. } => {
                self.interrupt();
                moves = self.reach(transition, from, to);
            }
            Class::Dynamic | Class::System => moves = self.reach(transition, from, to),
            Class::Jump | Class::Static | Class::Other => {}
        }
        if !matches!(step.class, Class::Call { .. }) {
            self.rise(transition, to);
            let left = self.left.get(&self.active).copied().unwrap_or(0);
            if moves && self.top().is_some() && to < left {
                self.overwrite(transition, left - 1);
                self.open(first, StartType::Manual, left - 1, None, Some(function));
            } else {
                self.check(transition, function, memory);
            }
            self.ensure(first, function, to);
        }
        if is_jump {
            self.jump(transition, function, to);
        }
        if self.past.iter().any(|past| past.doubted.is_some_and(|until| until <= transition)) {
            self.confirm();
        }
    }
}

/// The next step, as numbers that are adapted to the state of the machine.
#[derive(Clone, Copy, Debug)]
struct Choice {
    action: u8,
    stack: u64,
    word: u64,
    some: u64,
    plausible: bool,
}

fn choice() -> impl Strategy<Value = Choice> {
    let flag = prop::bool::weighted(0.7);
    (0..32_u8, 0..STACKS, 2..WORDS, 0..8_u64, flag)
        .prop_map(|(action, stack, word, some, plausible)| Choice { action, stack, word, some, plausible })
}

/// Returns the next step of a machine at `at`, and applies its effects to memory.
fn next(choice: Choice, at: Point, memory: &mut HashMap<u64, u64>) -> Step {
    let Choice { action, stack, word, some, plausible } = choice;
    let (pc, sp) = (at.pc.0, at.sp.0);
    let here = stack_of(sp);
    let (low, top) = (high(here) - 8 * WORDS, high(here));
    let function = 0x40_0000 + 0x1000 * some;
    let anywhere = high(stack) - 8 * (WORDS - word);
    let near = |bytes: u64| pc + 5 + bytes;
    let (class, pc, sp) = match action {
        0..8 if sp > low + 8 => {
            memory.insert(sp - 8, pc + 5);
            let to = if plausible { function } else { near(some) };
            (Class::Call { return_address: Address(pc + 5) }, to, sp - 8)
        }
        8..16 if sp + 8 * (some % 2 + 1) <= top => {
            let target = memory.get(&sp).copied().filter(|_| plausible).unwrap_or(function);
            let arguments = if plausible { 0 } else { 8 * (some % 2) };
            (Class::Return, target, sp + 8 + arguments)
        }
        16..19 => (Class::Static, pc + 1, top - 8 * (WORDS - word)),
        19..21 => (Class::Dynamic, function, anywhere),
        21 => (Class::System, pc + 2, if plausible { sp } else { anywhere }),
        22 => (Class::Interrupt { slot: Address(anywhere + 8 * (some % 2)) }, function, anywhere),
        23 => {
            memory.insert(anywhere, 0x3f_0000);
            (Class::Signal { slot: Address(anywhere + 8) }, function, anywhere)
        }
        24..26 => (Class::InterruptReturn, function, anywhere),
        26 => (Class::Switch { to: Thread(some as u32 % 3) }, function, anywhere),
        27 => (Class::Jump, function, sp),
        28 => {
            memory.insert(anywhere, function);
            (Class::Other, pc + 3, sp)
        }
        _ => (Class::Other, pc + 3, sp),
    };
    let after = Point { pc: Address(pc), sp: Address(sp), ring: Ring::User };
    Step { class, before: at, after, space: Space(0) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_trackers_agree(choices in prop::collection::vec(choice(), 1..300)) {
        let mut tracker = Tracker::new(Thread(0));
        let mut found = Found::default();
        let mut literal = Literal::default();
        let mut memory = HashMap::new();
        let mut at = Point { pc: Address(0x40_0000), sp: Address(high(0) - 64), ring: Ring::User };
        for stack in 0..STACKS {
            let (low, high) = (Address(high(stack) - 8 * WORDS - 8), Address(high(stack)));
            tracker.declare(Space(0), low, high, StackKind::User, |item| found.take(item));
        }
        literal.start(at);
        for &choice in &choices {
            let step = next(choice, at, &mut memory);
            let transition = tracker.transition().0;
            let read = |address: Address| memory.get(&address.0).map(|&word| Address(word));
            tracker.step(&step, read, |item: Tracked| found.take(item));
            literal.step(transition, &step, &memory);
            at = step.after;
        }
        let last = ContextId(choices.len() as u64);
        tracker.finish(|item| found.take(item));
        found.end(last);
        for (location, (stack, _)) in literal.known.iter().enumerate() {
            let of_stack = literal.past.iter().filter(|past| past.stack == *stack && !past.erased);
            let expected: Vec<TrueFrame> = of_stack
                .map(|past| TrueFrame { last: if past.open { last } else { past.frame.last }, ..past.frame })
                .collect();
            prop_assert_eq!(&found.stacks[location], &expected, "stack {}", location);
        }
        prop_assert_eq!(found.stacks.len(), literal.known.len());
        let number = |stack| literal.known.iter().position(|(known, _)| *known == stack).expect("known");
        let jumps: Vec<TrueJump> =
            literal.jumps.iter().map(|&(stack, jump)| TrueJump { stack: number(stack), ..jump }).collect();
        prop_assert_eq!(&found.jumps, &jumps);
    }
}
