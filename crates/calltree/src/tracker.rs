//! The exact tracker: from every transition's class and stack pointer to frames and stacks.
//!
//! It knows registers and, where it asks for them, words of memory. It does no input or output, knows no machine but what
//! its [`Step`]s say, and no names: functions are addresses.
//!
//! # Rules
//!
//! - **Slot.** A call leaves its return address in a slot; the frame is over once the stack pointer is above the slot,
//!   for whatever reason. A return that took the address from the slot makes it [`EndType::Return`], or
//!   [`EndType::ReturnElsewhere`] if it led elsewhere; the return from an interrupt, [`EndType::InterruptReturn`]; all
//!   else [`EndType::Unwound`]. So `longjmp`, exceptions and lost returns need no rule of their own.
//! - **Switch.** Only classes that give the stack pointer a value from elsewhere can change the stack, and do so if it
//!   then lies in another region. Regions are declared ([`Tracker::declare`]) or grow with what is seen; a pointer less
//!   than [`MERGE_DISTANCE`] from what was seen belongs to the same stack. Stacks closer to each other than that must be
//!   declared to be told apart.
//! - **Entering.** Where the pointer is higher than the stack was left with, frames below it are `Unwound`; where it is
//!   lower, somebody else has put a frame there: [`StartType::Manual`], up to where the stack was left. Otherwise the
//!   slots are read from the top on until one holds what it should; those that do not are [`EndType::Replaced`] and one
//!   [`StartType::Damaged`] frame stands for them. Frames further down are read when they become the top.
//! - **Interrupts and signals.** An interrupt opens a frame. A signal opens a frame, and in it one for its handler, which
//!   the system called: [`StartType::Manual`]. They explain a lower pointer by themselves.
//! - **Base.** An active stack has an open frame at any time. If nothing else is known, that is one of start
//!   [`StartType::Unknown`]. A return from it shows that there was a frame below ([`Tracked::Below`]). Its slot cannot be
//!   lower than the highest stack pointer seen in it: a return from below that used an address pushed for it.
//! - **Jumps by return.** A return whose slot is no frame's is a jump (`push …; ret`).
//! - **Doubtful calls.** A call to at most [`NEAR`] bytes behind itself may be none: a retpoline (`call; mov [rsp], …;
//!   ret`), a question for the own address (`call; pop`) or a filling of the return predictor (`call; call; add rsp,
//!   16`). Its frame is announced only when something else is done with it, at most [`DOUBT_MAX`] transitions later. If
//!   before that a return leads elsewhere or the pointer rises without a return, there was no frame at all: the retpoline
//!   was a jump, and the frame that jumped goes on.
//!
//! # Bounds
//!
//! [`FRAMES_MAX`] open frames, [`STACKS_MAX`] regions, [`THREADS_MAX`] threads. What is beyond them is counted and not
//! tracked; a stack that is refused leaves the trace without an active stack. A step that changes nothing costs a few
//! comparisons, others a constant number of operations besides the frames they end; only changes of stacks look regions
//! up, in a tree.

mod frames;
mod open;
mod places;
mod regions;
mod step;

use std::collections::HashMap;

use stackhound_types::Address;

pub use self::regions::MERGE_DISTANCE;
pub use self::step::{Class, Counts, Point, Space, Step, Thread, Tracked};

use self::open::Frame;
use self::regions::{RegionIndex, Regions};
use crate::id::{ContextId, StackId, TransitionId};
use crate::kind::{EndType, StackKind, StartType};

/// How many frames can be open at a time, on all stacks together.
pub const FRAMES_MAX: usize = 1 << 22;
/// How many regions can be known at a time.
pub const STACKS_MAX: usize = 1 << 16;
/// How many threads can be known at a time.
pub const THREADS_MAX: usize = 1 << 16;
/// How far behind a call the target lies, in bytes, for it to be doubted. A retpoline's is aligned to 16.
pub const NEAR: u64 = 32;
/// For how many transitions a call is doubted.
pub const DOUBT_MAX: u64 = 8;

/// So many doubted calls one above the other. A retpoline is one, code that fills the return predictor does two at once.
const DOUBTED_MAX: usize = 4;
/// So many frames one Damaged frame can stand for.
const DAMAGED_MAX: usize = 64;

/// Reads the word at an address, as it is after the transition, in the space of the step.
type Read<'a> = &'a mut dyn FnMut(Address) -> Option<Address>;
type Sink<'a> = &'a mut dyn FnMut(Tracked);

/// Follows one sequence of transitions. See the [module](self) for the rules.
#[derive(Debug)]
pub struct Tracker {
    /// The number of the next transition.
    next: u64,
    started: bool,
    thread: Thread,
    threads: HashMap<Thread, Position>,
    regions: Regions,
    /// Where the stack pointer is; there is an open stack in that region. `None` if it is not known.
    active: Option<RegionIndex>,
    /// The active stack's limit: see [`OpenStack::limit`].
    limit: u64,
    /// A stack pointer of that space, above the first address and up to the second, is on the active stack.
    window: (Space, u64, u64),
    /// After the last step.
    sp: u64,
    /// The top frames of the active stack that are not announced yet, the outermost first.
    doubted: Vec<Doubted>,
    /// The transition that announces them.
    doubted_until: u64,
    frames: usize,
    stacks: u32,
    counts: Counts,
}

/// Where a thread is, or was when another one went on.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// The stack it was first seen on.
    own: Option<(RegionIndex, StackId)>,
    last: Option<(RegionIndex, StackId)>,
    space: Space,
    sp: u64,
}

#[derive(Clone, Copy, Debug)]
struct Doubted {
    first: ContextId,
    function: Address,
}

impl Tracker {
    /// Starts with a thread that runs. The stack it is on and a frame for what it does are opened by the first step.
    pub fn new(thread: Thread) -> Tracker {
        Tracker {
            next: 0,
            started: false,
            thread,
            threads: HashMap::new(),
            regions: Regions::default(),
            active: None,
            limit: 0,
            window: (Space::default(), 0, 0),
            sp: 0,
            doubted: Vec::new(),
            doubted_until: 0,
            frames: 0,
            stacks: 0,
            counts: Counts::default(),
        }
    }

    /// The transition that the next step will be: as many as were told.
    pub fn transition(&self) -> TransitionId {
        TransitionId(self.next)
    }

    /// What was seen and refused so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// So many transitions change nothing that concerns stacks and are not told one by one. They may have moved the
    /// stack pointer by `Static` steps; frames that ended by this are closed at the next step.
    pub fn skip(&mut self, transitions: u32) {
        self.next += u64::from(transitions);
    }

    /// The next transition. `read` gives the word at an address of the step's space, as it is after the step; `None`
    /// means that it cannot be read, and then nothing is concluded. It is called where stacks are entered, for signals,
    /// and once for each older frame that becomes the top of a stack that was entered again.
    #[inline]
    pub fn step(
        &mut self,
        step: &Step,
        mut read: impl FnMut(Address) -> Option<Address>,
        mut sink: impl FnMut(Tracked),
    ) {
        let sp = step.after.sp.0;
        let same_stack = match step.class {
            Class::Static | Class::Other => true,
            Class::Dynamic | Class::System => {
                let (space, low, high) = self.window;
                step.space == space && low < sp && sp <= high
            }
            _ => false,
        };
        if same_stack && sp <= self.limit && step.before.sp.0 <= self.limit && self.doubted.is_empty() {
            self.sp = sp;
            self.next += 1;
        } else {
            self.change(step, &mut read, &mut sink);
        }
    }

    /// Announces the last frames. Those still open stay so.
    pub fn finish(mut self, mut sink: impl FnMut(Tracked)) -> Counts {
        self.announce(&mut sink);
        self.counts
    }

    #[inline(never)]
    fn change(&mut self, step: &Step, read: Read, sink: Sink) {
        let transition = TransitionId(self.next);
        self.next += 1;
        if !self.started {
            self.started = true;
            self.sp = step.before.sp.0;
            let index = self.locate(step.space, self.sp, StackKind::User, false);
            // Steps that were skipped were on the same stack.
            self.arrive(ContextId(0), index, sink);
            self.look_around();
            self.ensure_frame(ContextId(0), step.before.pc, sink);
            self.remember_own();
        }
        let now =
            Now { transition, class: step.class, before: step.before, after: step.after, space: step.space };
        self.sp = step.after.sp.0;
        if self.active.is_some() {
            // What rose unseen.
            self.unwind(&now, now.before.sp.0, sink);
        }
        match step.class {
            Class::Call { return_address } => self.call(&now, return_address, sink),
            Class::Return => self.returned(&now, read, sink),
            Class::Jump => {
                if self.active.is_some() && now.after.sp.0 == self.limit && self.top().is_some() {
                    self.counts.tail_calls += 1;
                }
                self.stay(&now, read, sink);
            }
            Class::Static | Class::Other => self.stay(&now, read, sink),
            Class::Dynamic => self.go(&now, None, read, sink),
            Class::System if now.after.sp != now.before.sp => self.go(&now, None, read, sink),
            Class::System => self.stay(&now, read, sink),
            Class::Interrupt { slot } => self.interrupt(&now, slot, sink),
            Class::Signal { slot } => self.signal(&now, slot, read, sink),
            Class::InterruptReturn => self.interrupt_returned(&now, read, sink),
            Class::Switch { to } => self.switch(&now, to, read, sink),
        }
        if !self.doubted.is_empty() && transition.0 >= self.doubted_until {
            self.announce(sink);
        }
        self.renew_limit();
    }

    fn call(&mut self, now: &Now, return_address: Address, sink: Sink) {
        if self.active.is_none() {
            return;
        }
        let near = now.after.pc.0.wrapping_sub(return_address.0) <= NEAR;
        if !near || self.doubted.len() >= DOUBTED_MAX {
            self.announce(sink);
        }
        let slot = now.after.sp.0;
        self.overwrite(now, slot, sink);
        let frame = Frame { slot, return_address: Some(return_address), start: StartType::Call };
        // Without another frame, this one would leave its stack empty until it is announced.
        if !near || self.stack().is_some_and(|stack| stack.is_empty()) {
            self.open(now, frame, Some(now.after.pc), sink);
        } else if self.push(frame) {
            self.doubted.push(Doubted { first: now.first(), function: now.after.pc });
            self.doubted_until = now.transition.0 + DOUBT_MAX;
        }
    }

    fn returned(&mut self, now: &Now, read: Read, sink: Sink) {
        let slot = now.before.sp.0;
        let Some(stack) = self.stack() else { return };
        match stack.frames.last().copied() {
            Some(frame) if frame.slot == slot || frame.holds(slot, now.after.sp.0) => {
                let back = frame.return_address.is_none_or(|address| address == now.after.pc);
                if !back && !self.doubted.is_empty() {
                    self.counts.returns_as_jumps += 1;
                    self.forget();
                } else {
                    self.close(now, if back { EndType::Return } else { EndType::ReturnElsewhere }, sink);
                }
            }
            Some(_) => self.counts.returns_as_jumps += 1,
            None => match stack.base {
                Some(base) if slot >= base => {
                    let id = stack.id;
                    sink(Tracked::Close { stack: id, last: now.last(), end: EndType::Return });
                    sink(Tracked::Below { stack: id, function: now.after.pc });
                }
                _ => self.counts.returns_as_jumps += 1,
            },
        }
        self.stay(now, read, sink);
    }

    fn interrupt(&mut self, now: &Now, slot: Address, sink: Sink) {
        self.announce(sink);
        if !self.reach(now, None, sink) {
            return;
        }
        let slot = slot.0.max(now.after.sp.0);
        self.overwrite(now, slot, sink);
        let frame = Frame { slot, return_address: Some(now.before.pc), start: StartType::Interrupt };
        self.open(now, frame, Some(now.after.pc), sink);
        self.ensure_frame(now.first(), now.after.pc, sink);
    }

    fn signal(&mut self, now: &Now, slot: Address, read: Read, sink: Sink) {
        self.announce(sink);
        if !self.reach(now, None, sink) {
            return;
        }
        let handler = now.after.sp.0;
        let slot = slot.0.max(handler.saturating_add(1));
        self.overwrite(now, slot, sink);
        let restorer = read(now.after.sp);
        let frame = Frame { slot, return_address: Some(now.before.pc), start: StartType::Interrupt };
        self.open(now, frame, restorer, sink);
        let frame = Frame { slot: handler, return_address: restorer, start: StartType::Manual };
        self.open(now, frame, Some(now.after.pc), sink);
        self.ensure_frame(now.first(), now.after.pc, sink);
    }

    fn interrupt_returned(&mut self, now: &Now, read: Read, sink: Sink) {
        if let Some(frame) = self.top().filter(|frame| frame.slot == now.before.sp.0) {
            self.announce(sink);
            let end = match frame.start {
                StartType::Interrupt => EndType::InterruptReturn,
                _ if frame.return_address == Some(now.after.pc) => EndType::Return,
                _ => EndType::ReturnElsewhere,
            };
            self.close(now, end, sink);
        }
        self.go(now, None, read, sink);
    }

    /// A step that stays on its stack.
    fn stay(&mut self, now: &Now, read: Read, sink: Sink) {
        if self.active.is_none() {
            return;
        }
        self.unwind(now, now.after.sp.0, sink);
        self.check(now, read, sink);
        self.ensure_frame(now.first(), now.after.pc, sink);
    }

    /// A step that may change the stack, and is no interrupt.
    fn go(&mut self, now: &Now, known: Option<RegionIndex>, read: Read, sink: Sink) {
        let from = self.active;
        if !self.reach(now, known, sink) {
            return;
        }
        if self.active == from {
            self.stay(now, read, sink);
            return;
        }
        self.unwind(now, now.after.sp.0, sink);
        let lower = self.stack().filter(|stack| !stack.is_empty() && now.after.sp.0 < stack.left);
        if let Some(stack) = lower {
            let slot = stack.left - 1;
            self.overwrite(now, slot, sink);
            let frame = Frame { slot, return_address: None, start: StartType::Manual };
            self.open(now, frame, Some(now.after.pc), sink);
        } else {
            self.check(now, read, sink);
        }
        self.ensure_frame(now.first(), now.after.pc, sink);
    }
}

/// The step at hand.
struct Now {
    transition: TransitionId,
    class: Class,
    before: Point,
    after: Point,
    space: Space,
}

impl Now {
    /// The last context of what ends.
    fn last(&self) -> ContextId {
        self.transition.context_before()
    }

    /// The first context of what starts.
    fn first(&self) -> ContextId {
        self.transition.context_after()
    }
}

impl Frame {
    /// Whether a return that took these words took the return address, for a frame whose slot is a bound only.
    fn holds(&self, from: u64, to: u64) -> bool {
        self.return_address.is_none() && from <= self.slot && self.slot < to
    }
}
