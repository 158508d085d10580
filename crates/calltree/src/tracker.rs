//! The exact tracker: derives frames and stacks from the class and the stack pointer of every
//! transition.
//!
//! It reads registers and a few words of memory. It does no I/O and is independent of the
//! processor: [`Step`]s classify the instructions. Functions are addresses, without names.
//!
//! # Rules
//!
//! - **Slot.** A call stores its return address in a slot. The frame ends when the stack pointer
//!   rises above the slot, for any reason. The end type is [`EndType::Return`] if a return consumed
//!   the address in the slot, [`EndType::ReturnElsewhere`] if that return led elsewhere,
//!   [`EndType::InterruptReturn`] for the return from an interrupt, and [`EndType::Unwound`]
//!   otherwise. `longjmp`, exceptions and lost returns therefore need no rules of their own.
//! - **Switch.** Only classes that load the stack pointer with an unrelated value can change the
//!   stack. The stack changes if the new pointer is in another region. Regions are declared
//!   ([`Tracker::declare`]) or grow with the observed pointers. A pointer less than
//!   [`MERGE_DISTANCE`], or [`KERNEL_MERGE_DISTANCE`], from observed pointers belongs to the same
//!   stack. Stacks that are closer to each other must be declared; otherwise they are treated as one.
//! - **Entry.** If the pointer is higher than when the stack was left, the frames below the pointer
//!   are `Unwound`. If it is lower, other code has created a frame there: [`StartType::Manual`], up
//!   to the pointer at which the stack was left. Otherwise the slots are read from the top down
//!   until one contains the expected address. Frames whose slots do not are [`EndType::Replaced`],
//!   and one [`StartType::Damaged`] frame replaces them. Frames further down are read when they
//!   become the top.
//! - **Interrupts and signals.** An interrupt opens a frame. A signal opens a frame and, inside it,
//!   a frame for its handler, which the system called: [`StartType::Manual`]. These frames explain
//!   a lower pointer.
//! - **Base.** An active stack always has an open frame. If nothing else is known, its start type
//!   is [`StartType::Unknown`]. A return from it shows that there was a frame below
//!   ([`Tracked::Below`]). Its slot cannot be lower than the highest stack pointer that was
//!   observed in it. A return from a lower address used an address that was pushed for it.
//! - **Moved return addresses.** A function can move its return address, as entry points do that save
//!   registers below it. A return from a lower address than the slot of the top frame ends this frame if
//!   it leads to the frame's return address.
//! - **Jumps by return.** Any other return whose slot belongs to no frame is a jump (`push …; ret`).
//! - **Tail calls.** A jump with the stack pointer at the slot of the top frame leads to another function,
//!   which returns in its place. The frame continues: [`Tracked::Jump`].
//! - **Doubtful calls.** A call to a target at most [`NEAR`] bytes after the call instruction may
//!   not start a function. It can be a retpoline (`call; mov [rsp], …; ret`), a way to read the
//!   instruction pointer (`call; pop`), or filling of the return predictor (`call; call; add rsp,
//!   16`). Its frame is reported only when another operation uses it, at most [`DOUBT_MAX`]
//!   transitions later. If a return leads elsewhere before that, or the pointer rises without a
//!   return, there was no frame: the retpoline was a jump, and the frame that jumped continues. If an
//!   interrupt follows a call at an address where there was no frame for this reason, there is none.
//!
//! Systems have rules of their own, for entries into the kernel: see `tracker/rings.rs`.
//!
//! # Limits
//!
//! At most [`FRAMES_MAX`] open frames, [`STACKS_MAX`] regions and [`THREADS_MAX`] threads are
//! tracked. Excess frames, stacks and threads are counted. After a switch to a stack that was
//! refused, the trace has no active stack.
//!
//! A step that changes no frame and no stack costs a few comparisons. Other steps cost a constant
//! number of operations, and one for each frame that they end. Only changes of stacks look up
//! regions, in a tree.

mod open;
mod regions;
mod rings;
mod step;

use std::collections::{HashMap, HashSet};

use stackhound_types::Address;

pub use self::regions::{KERNEL_MERGE_DISTANCE, MERGE_DISTANCE};
pub use self::step::{Class, Counts, Point, Ring, Space, Step, Thread, Tracked};

use self::open::{Frame, OpenStack};
use self::regions::{RegionIndex, Regions};
use self::rings::Entries;
use crate::id::{ContextId, StackId, TransitionId};
use crate::kind::{EndType, StackKind, StartType};

/// Maximum number of open frames, on all stacks together.
pub const FRAMES_MAX: usize = 1 << 22;
/// Maximum number of known regions.
pub const STACKS_MAX: usize = 1 << 16;
/// Maximum number of known threads.
pub const THREADS_MAX: usize = 1 << 16;
/// Maximum distance in bytes from the return address of a doubtful call to its target. The target
/// of a retpoline is aligned to 16.
pub const NEAR: u64 = 32;
/// Maximum number of transitions for which a call is doubtful.
pub const DOUBT_MAX: u64 = 8;

/// Maximum number of nested doubtful calls. A retpoline is one; code that fills the return
/// predictor nests two.
const DOUBTED_MAX: usize = 4;
/// Maximum number of known retpolines. Kernels have one for each register.
const RETPOLINES_MAX: usize = 1 << 10;
/// Maximum number of frames that one `Damaged` frame replaces.
const DAMAGED_MAX: usize = 64;

/// Reads the word at an address of the step's space, as it is after the transition.
type Read<'a> = &'a mut dyn FnMut(Address) -> Option<Address>;
type Sink<'a> = &'a mut dyn FnMut(Tracked);

/// Tracks one sequence of transitions. See the [module](self) for the rules.
#[derive(Debug)]
pub struct Tracker {
    next: u64,
    started: bool,
    thread: Thread,
    threads: HashMap<Thread, Position>,
    regions: Regions,
    /// The region that contains the stack pointer, which has an open stack. `None` if it is
    /// unknown.
    active: Option<RegionIndex>,
    /// The limit of the active stack: see [`OpenStack::limit`].
    limit: u64,
    /// A stack pointer of this space, above the first address and at most the second, is on the
    /// active stack.
    window: (Space, u64, u64),
    /// The stack pointer after the last step.
    sp: u64,
    /// The top frames of the active stack that are not reported yet, outermost first.
    doubted: Vec<Doubted>,
    /// The transition at which they are reported.
    doubted_until: u64,
    /// The addresses of doubtful calls that turned out to be those of retpolines.
    retpolines: HashSet<Address>,
    entries: Entries,
    frames: usize,
    stacks: u32,
    counts: Counts,
}

/// The stacks of a thread that was switched out, and its last stack pointer.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// The first stack that the thread used.
    own: Option<(RegionIndex, StackId)>,
    last: Option<(RegionIndex, StackId)>,
    space: Space,
    sp: u64,
}

#[derive(Clone, Copy, Debug)]
struct Doubted {
    first: ContextId,
    function: Address,
    /// The address of the call.
    call: Address,
}

impl Tracker {
    /// Creates a tracker for a running thread. The first step opens the thread's stack and a frame
    /// on it.
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
            retpolines: HashSet::new(),
            entries: Entries::default(),
            frames: 0,
            stacks: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the number of the next step's transition, which is the number of transitions so far.
    pub fn transition(&self) -> TransitionId {
        TransitionId(self.next)
    }

    /// Returns the counts of events without frames, and of refused objects, so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Skips transitions that change no frame and no stack. They may have moved the stack pointer
    /// by `Static` steps; frames that they ended are closed at the next step.
    pub fn skip(&mut self, transitions: u32) {
        self.next += u64::from(transitions);
    }

    /// Skips transitions as [`skip`](Tracker::skip), up to one that is processed next. Does nothing if it
    /// has been processed.
    pub fn skip_to(&mut self, transition: TransitionId) {
        self.next = self.next.max(transition.0);
    }

    /// Processes the next transition. `read` returns the word at an address of the step's space, as
    /// it is after the step, or `None` if it cannot be read. Words that cannot be read change
    /// nothing. `read` is called when stacks are entered, for signals, and once for each older
    /// frame that becomes the top of a stack that was entered again.
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
        let same_stack = same_stack && step.before.ring == step.after.ring;
        if same_stack && sp <= self.limit && step.before.sp.0 <= self.limit && self.doubted.is_empty() {
            self.sp = sp;
            self.next += 1;
        } else {
            self.change(step, &mut read, &mut sink);
        }
    }

    /// Reports the remaining doubtful frames. Open frames stay open.
    pub fn finish(mut self, mut sink: impl FnMut(Tracked)) -> Counts {
        self.report_doubted(&mut sink);
        self.counts
    }

    #[inline(never)]
    fn change(&mut self, step: &Step, read: Read, sink: Sink) {
        let transition = TransitionId(self.next);
        self.next += 1;
        let now =
            Now { transition, class: step.class, before: step.before, after: step.after, space: step.space };
        if !self.started {
            self.started = true;
            // Otherwise, the space of the first pointer is unknown.
            if now.before.ring == now.after.ring {
                self.start(&now, sink);
            }
        }
        match (now.before.ring, now.after.ring) {
            (Ring::User, Ring::User) => self.advance(&now, read, sink),
            (Ring::User, Ring::Kernel) => self.enter_kernel(&now, sink),
            (Ring::Kernel, Ring::User) => self.leave_kernel(&now, read, sink),
            (Ring::Kernel, Ring::Kernel) => self.advance_in_kernel(&now, read, sink),
        }
        if !self.doubted.is_empty() && transition.0 >= self.doubted_until {
            self.report_doubted(sink);
        }
        self.renew_limit();
    }

    /// Opens the first stack and a frame on it. Skipped steps were on the same stack.
    fn start(&mut self, now: &Now, sink: Sink) {
        self.sp = now.before.sp.0;
        let kind = if now.before.ring == Ring::Kernel { StackKind::Kernel } else { StackKind::User };
        let index = self.locate(now.space, self.sp, kind, false);
        self.arrive(ContextId(0), index, sink);
        self.update_window();
        self.ensure_frame(ContextId(0), now.before.pc, sink);
        self.remember_own();
    }

    /// Processes a step without a change of the ring.
    fn advance(&mut self, now: &Now, read: Read, sink: Sink) {
        self.sp = now.after.sp.0;
        if self.active.is_some() {
            // Skipped steps may have raised the stack pointer.
            self.unwind(now, now.before.sp.0, sink);
        }
        match now.class {
            Class::Call { return_address } => self.call(now, return_address, sink),
            Class::Return => self.returned(now, read, sink),
            Class::Jump => {
                self.stay(now, read, sink);
                self.counts.tail_calls += u64::from(self.jumped(now, sink));
            }
            Class::Static | Class::Other => self.stay(now, read, sink),
            Class::Dynamic => self.go(now, None, read, sink),
            Class::System if now.after.sp != now.before.sp => self.go(now, None, read, sink),
            Class::System => self.stay(now, read, sink),
            Class::Interrupt { slot } => self.interrupt(now, slot, sink),
            Class::Signal { slot } => self.signal(now, slot, read, sink),
            Class::InterruptReturn => self.interrupt_returned(now, read, sink),
            Class::Switch { to } => self.switch(now, to, read, sink),
        }
    }

    fn call(&mut self, now: &Now, return_address: Address, sink: Sink) {
        if self.active.is_none() {
            return;
        }
        let near = now.after.pc.0.wrapping_sub(return_address.0) <= NEAR;
        if !near || self.doubted.len() >= DOUBTED_MAX {
            self.report_doubted(sink);
        }
        let slot = now.after.sp.0;
        self.overwrite(now, slot, sink);
        let function = now.after.pc;
        let frame = Frame {
            slot,
            return_address: Some(return_address),
            start: StartType::Call,
            function: Some(function),
        };
        // Without another frame, the stack would be empty until this frame is reported.
        if !near || self.stack().is_some_and(|stack| stack.is_empty()) {
            self.open(now, frame, sink);
        } else if self.push(frame) {
            self.doubted.push(Doubted { first: now.first(), function, call: now.before.pc });
            self.doubted_until = now.transition.0 + DOUBT_MAX;
        }
    }

    fn returned(&mut self, now: &Now, read: Read, sink: Sink) {
        let slot = now.before.sp.0;
        let Some(stack) = self.stack() else { return };
        let mut is_jump = false;
        match stack.frames.last().copied() {
            Some(frame) if frame.slot == slot || frame.holds(slot, now.after.sp.0) => {
                let back = frame.return_address.is_none_or(|address| address == now.after.pc);
                if !back && let Some(doubted) = self.doubted.last() {
                    if self.retpolines.len() < RETPOLINES_MAX {
                        self.retpolines.insert(doubted.call);
                    }
                    self.forget();
                    is_jump = true;
                } else {
                    self.close(now, if back { EndType::Return } else { EndType::ReturnElsewhere }, sink);
                }
            }
            // Code at a lower pointer than the slot of the top frame is code of this frame.
            Some(Frame { slot: highest, return_address: Some(address), start: StartType::Call, .. })
                if slot < highest && address == now.after.pc =>
            {
                self.close(now, EndType::Return, sink);
            }
            Some(_) => is_jump = true,
            None => match stack.base {
                Some(base) if slot >= base => {
                    let id = stack.id;
                    sink(Tracked::Close { stack: id, last: now.last(), end: EndType::Return });
                    sink(Tracked::Below { stack: id, function: now.after.pc });
                }
                _ => is_jump = true,
            },
        }
        self.stay(now, read, sink);
        if is_jump {
            self.counts.returns_as_jumps += 1;
            self.jumped(now, sink);
        }
    }

    /// Reports a jump if it leaves the function of the top frame: if the stack pointer is at the frame's
    /// return address. Returns whether it is.
    fn jumped(&mut self, now: &Now, sink: Sink) -> bool {
        let (sp, function) = (self.sp, now.after.pc);
        if !self.top().is_some_and(|top| top.slot == sp && top.checked().is_some()) {
            return false;
        }
        // A function that jumps to another one is not a retpoline.
        self.report_doubted(sink);
        if let Some(stack) = self.stack()
            && let Some(top) = stack.frames.last_mut()
        {
            let from = top.function.replace(function);
            sink(Tracked::Jump { stack: stack.id, first: now.first(), from, function });
        }
        true
    }

    fn interrupt(&mut self, now: &Now, slot: Address, sink: Sink) {
        self.interrupt_doubted(sink);
        if !self.reach(now, None, sink) {
            return;
        }
        let slot = slot.0.max(now.after.sp.0);
        self.overwrite(now, slot, sink);
        let return_address = Some(now.before.pc);
        let function = Some(now.after.pc);
        self.open(now, Frame { slot, return_address, start: StartType::Interrupt, function }, sink);
        self.ensure_frame(now.first(), now.after.pc, sink);
    }

    fn signal(&mut self, now: &Now, slot: Address, read: Read, sink: Sink) {
        self.interrupt_doubted(sink);
        if !self.reach(now, None, sink) {
            return;
        }
        let handler = now.after.sp.0;
        let slot = slot.0.max(handler.saturating_add(1));
        self.overwrite(now, slot, sink);
        let restorer = read(now.after.sp);
        let return_address = Some(now.before.pc);
        let interrupted = Frame { slot, return_address, start: StartType::Interrupt, function: restorer };
        self.open(now, interrupted, sink);
        let function = Some(now.after.pc);
        let handler = Frame { slot: handler, return_address: restorer, start: StartType::Manual, function };
        self.open(now, handler, sink);
        self.ensure_frame(now.first(), now.after.pc, sink);
    }

    fn interrupt_returned(&mut self, now: &Now, read: Read, sink: Sink) {
        self.end_interrupt(now, sink);
        self.go(now, None, read, sink);
    }

    fn end_interrupt(&mut self, now: &Now, sink: Sink) {
        if let Some(frame) = self.top().filter(|frame| frame.slot == now.before.sp.0) {
            self.report_doubted(sink);
            let end = match frame.start {
                StartType::Interrupt => EndType::InterruptReturn,
                _ if frame.return_address == Some(now.after.pc) => EndType::Return,
                _ => EndType::ReturnElsewhere,
            };
            self.close(now, end, sink);
        }
    }

    /// Processes a step that stays on its stack.
    fn stay(&mut self, now: &Now, read: Read, sink: Sink) {
        if self.active.is_none() {
            return;
        }
        self.unwind(now, now.after.sp.0, sink);
        self.check(now, read, sink);
        self.ensure_frame(now.first(), now.after.pc, sink);
    }

    /// Processes a step that may change the stack and is not an interrupt.
    fn go(&mut self, now: &Now, known: Option<RegionIndex>, read: Read, sink: Sink) {
        let from = self.active;
        if !self.reach(now, known, sink) {
            return;
        }
        if self.active == from {
            self.stay(now, read, sink);
        } else {
            self.entered_stack(now, read, sink);
        }
    }

    /// Compares the frames of the stack that has become active with the stack pointer.
    fn entered_stack(&mut self, now: &Now, read: Read, sink: Sink) {
        self.unwind(now, now.after.sp.0, sink);
        let lower = self.stack().filter(|stack| !stack.is_empty() && now.after.sp.0 < stack.left);
        if let Some(stack) = lower {
            let slot = stack.left - 1;
            self.overwrite(now, slot, sink);
            let function = Some(now.after.pc);
            self.open(now, Frame { slot, return_address: None, start: StartType::Manual, function }, sink);
        } else {
            self.check(now, read, sink);
        }
        self.ensure_frame(now.first(), now.after.pc, sink);
    }
}

/// The current step.
#[derive(Clone, Copy)]
struct Now {
    transition: TransitionId,
    class: Class,
    before: Point,
    after: Point,
    space: Space,
}

impl Now {
    /// Returns the last context of frames that end at this step.
    fn last(&self) -> ContextId {
        self.transition.context_before()
    }

    /// Returns the first context of frames that start at this step.
    fn first(&self) -> ContextId {
        self.transition.context_after()
    }
}

impl Frame {
    /// Whether a return that consumed the words from `from` to `to` consumed the return address.
    /// For frames whose slot is only a bound.
    fn holds(&self, from: u64, to: u64) -> bool {
        self.return_address.is_none() && from <= self.slot && self.slot < to
    }
}

/// Frames of the active stack.
impl Tracker {
    /// Closes the frames whose slots are below a stack pointer that rose without a return.
    fn unwind(&mut self, now: &Now, sp: u64, sink: Sink) {
        while self.top().is_some_and(|frame| frame.slot < sp) {
            if self.doubted.is_empty() {
                self.close(now, EndType::Unwound, sink);
            } else {
                self.counts.calls_without_frame += 1;
                self.forget();
            }
        }
        if let Some(stack) = self.stack()
            && stack.frames.is_empty()
            && let Some(base) = &mut stack.base
        {
            *base = (*base).max(sp);
        }
    }

    /// Closes the frames whose slots are at or below a slot that is about to be written.
    fn overwrite(&mut self, now: &Now, slot: u64, sink: Sink) {
        if self.top().is_some_and(|frame| frame.slot <= slot) {
            self.report_doubted(sink);
            while self.top().is_some_and(|frame| frame.slot <= slot) {
                self.close(now, EndType::Unwound, sink);
            }
        }
    }

    /// Compares the slots of the top frames with their values from when the stack was left.
    fn check(&mut self, now: &Now, read: Read, sink: Sink) {
        let mut damaged = None;
        for _ in 0..DAMAGED_MAX {
            let Some(stack) = self.stack() else { return };
            let count = stack.frames.len();
            let Some(frame) = stack.frames.last().filter(|_| count <= stack.doubtful).copied() else { break };
            let found = frame.checked().and_then(|address| Some((address, read(Address(frame.slot))?)));
            match found {
                Some((expected, found)) if expected != found => {
                    self.close(now, EndType::Replaced, sink);
                    damaged = Some((frame.slot, found));
                }
                _ => {
                    stack.doubtful = count - 1;
                    break;
                }
            }
        }
        let Some((slot, found)) = damaged else { return };
        let (return_address, function) = (Some(found), Some(now.after.pc));
        self.open(now, Frame { slot, return_address, start: StartType::Damaged, function }, sink);
    }

    /// Opens a frame if the active stack has none.
    fn ensure_frame(&mut self, first: ContextId, function: Address, sink: Sink) {
        let sp = self.sp;
        let Some(region) = self.active.and_then(|index| self.regions.get_mut(index)) else { return };
        let start = if region.is_of_processor() { StartType::Manual } else { StartType::Unknown };
        if let Some(stack) = &mut region.stack
            && stack.is_empty()
        {
            stack.base = Some(sp);
            sink(Tracked::Open { stack: stack.id, first, start, function: Some(function) });
        }
    }

    fn open(&mut self, now: &Now, frame: Frame, sink: Sink) {
        let Frame { start, function, .. } = frame;
        if self.push(frame)
            && let Some(stack) = self.stack()
        {
            sink(Tracked::Open { stack: stack.id, first: now.first(), start, function });
        }
    }

    fn push(&mut self, frame: Frame) -> bool {
        if self.frames >= FRAMES_MAX {
            self.counts.frames_refused += 1;
            return false;
        }
        let Some(stack) = self.stack() else { return false };
        stack.frames.push(frame);
        self.frames += 1;
        true
    }

    fn close(&mut self, now: &Now, end: EndType, sink: Sink) {
        self.report_doubted(sink);
        let Some(stack) = self.stack() else { return };
        if stack.pop() {
            sink(Tracked::Close { stack: stack.id, last: now.last(), end });
            self.frames -= 1;
        }
    }

    /// Removes the top frame, which was not reported.
    fn forget(&mut self) {
        self.doubted.pop();
        if let Some(stack) = self.stack()
            && stack.pop()
        {
            self.frames -= 1;
        }
    }

    /// Reports the doubtful frames at an interrupt, except those of known retpolines.
    fn interrupt_doubted(&mut self, sink: Sink) {
        while self.doubted.last().is_some_and(|doubted| self.retpolines.contains(&doubted.call)) {
            self.forget();
        }
        self.report_doubted(sink);
    }

    fn report_doubted(&mut self, sink: Sink) {
        if self.doubted.is_empty() {
            return;
        }
        let Some(stack) = self.stack().map(|stack| stack.id) else { return };
        for Doubted { first, function, .. } in self.doubted.drain(..) {
            sink(Tracked::Open { stack, first, start: StartType::Call, function: Some(function) });
        }
    }

    fn stack(&mut self) -> Option<&mut OpenStack> {
        self.regions.stack_mut(self.active?)
    }

    fn top(&mut self) -> Option<Frame> {
        self.stack()?.frames.last().copied()
    }
}

/// The active stack: declared and released regions, threads, and switches between stacks.
impl Tracker {
    /// Declares memory that the next transition sets up as a stack: that of a thread, an alternate
    /// stack for signals, or that of a coroutine. Other stacks in this memory end. However, an
    /// undeclared region, or a region with the same end address, continues with the new bounds. If
    /// a larger region contains the memory, the memory is removed from it.
    pub fn declare(
        &mut self,
        space: Space,
        low: Address,
        high: Address,
        kind: StackKind,
        mut sink: impl FnMut(Tracked),
    ) {
        let (low, high) = (low.0, high.0);
        if low >= high {
            return;
        }
        let known = self.regions.within(space, low, high);
        let inside = |tracker: &Tracker, index: RegionIndex| {
            tracker.regions.get(index).is_some_and(|region| low <= region.low && region.high <= high)
        };
        let grown = known.iter().copied().find(|&index| {
            let region = self.regions.get(index);
            inside(self, index)
                && region.is_some_and(|region| region.high == high || (known.len() == 1 && !region.declared))
        });
        if let Some(index) = grown {
            self.regions.adopt(index, low, high, kind);
            self.update_window();
            return;
        }
        for &index in &known {
            if inside(self, index) {
                self.discard(index, ContextId(self.next), &mut sink);
            }
        }
        if self.regions.len() >= STACKS_MAX {
            self.counts.stacks_refused += 1;
            return;
        }
        self.regions.declare(space, low, high, kind);
        for index in known {
            if self.regions.is_covered(index) {
                self.discard(index, ContextId(self.next), &mut sink);
            }
        }
        self.update_window();
    }

    /// Declares that the next transition releases memory. A stack whose frames are all above the
    /// memory only loses free memory; other stacks are abandoned.
    pub fn release(&mut self, space: Space, low: Address, high: Address, mut sink: impl FnMut(Tracked)) {
        self.release_after(ContextId(self.next), space, (low.0, high.0), &mut sink);
    }

    /// As [`release`](Tracker::release), after a context.
    fn release_after(&mut self, last: ContextId, space: Space, (low, high): (u64, u64), sink: Sink) {
        for index in self.regions.within(space, low, high) {
            let Some(region) = self.regions.get(index) else { continue };
            let sp = match &region.stack {
                Some(_) if self.active == Some(index) => Some(self.sp),
                Some(stack) => Some(stack.left),
                None => None,
            };
            if sp.is_none_or(|sp| high <= sp) {
                self.regions.trim(index, high);
                if self.regions.is_covered(index) {
                    self.discard(index, last, sink);
                }
            } else {
                self.discard(index, last, sink);
            }
        }
        self.update_window();
    }

    /// Declares that a thread ends by the next transition. Its current stack and its first stack
    /// are abandoned. Declared memory stays declared, for the stack of another thread.
    pub fn exit(&mut self, thread: Thread, mut sink: impl FnMut(Tracked)) {
        let active = self.active.filter(|_| thread == self.thread);
        let mut ended: Vec<RegionIndex> = active.into_iter().collect();
        if let Some(position) = self.threads.remove(&thread) {
            let last = position.last.filter(|_| thread != self.thread);
            let stacks = [position.own, last].into_iter().flatten().filter(|&(index, id)| {
                self.stack_id(index) == Some(id) && (self.active != Some(index) || active.is_some())
            });
            ended.extend(stacks.map(|(index, _)| index));
        }
        for index in ended {
            if self.regions.get(index).is_some_and(|region| region.declared) {
                self.abandon(index, ContextId(self.next), &mut sink);
            } else {
                self.discard(index, ContextId(self.next), &mut sink);
            }
        }
    }

    fn switch(&mut self, now: &Now, to: Thread, read: Read, sink: Sink) {
        self.interrupt_doubted(sink);
        let current = self.position();
        if self.threads.len() < THREADS_MAX || self.threads.contains_key(&self.thread) {
            let space = self
                .active
                .and_then(|index| self.regions.get(index))
                .map_or(now.space, |region| region.space);
            let position =
                self.threads.entry(self.thread).or_insert(Position { own: None, last: None, space, sp: 0 });
            (position.last, position.space, position.sp) = (current, space, now.before.sp.0);
        } else {
            self.counts.stacks_refused += 1;
        }
        self.thread = to;
        let known = self.threads.get(&to).copied();
        // The thread continues on the stack where it stopped, even if its pointer is no longer in
        // the region.
        let known_stack = known
            .filter(|position| position.space == now.space && position.sp == now.after.sp.0)
            .and_then(|position| position.last)
            .filter(|&(index, id)| self.stack_id(index) == Some(id))
            .map(|(index, _)| index);
        self.go(now, known_stack, read, sink);
        if known.is_none() {
            self.remember_own();
        }
    }

    /// Stores the active stack as the first stack of the thread.
    fn remember_own(&mut self) {
        let own = self.position();
        if self.threads.len() < THREADS_MAX {
            let space = Space::default();
            self.threads.entry(self.thread).or_insert(Position { own, last: None, space, sp: 0 });
        }
    }

    /// Activates the stack of the new pointer. Returns `false` if that stack is unknown.
    fn reach(&mut self, now: &Now, known: Option<RegionIndex>, sink: Sink) -> bool {
        if let Some(active) = self.active {
            // Static steps cannot have left this stack.
            self.regions.extend(active, now.before.sp.0);
        }
        let (kind, pushes) = match now.class {
            Class::Interrupt { .. } => (StackKind::Kernel, true),
            _ if now.after.ring == Ring::Kernel => (StackKind::Kernel, false),
            Class::Signal { .. } => (StackKind::Alternate, true),
            Class::Dynamic => (StackKind::Alternate, false),
            _ => (StackKind::User, false),
        };
        let index = known.or_else(|| self.locate(now.space, now.after.sp.0, kind, pushes));
        if index.is_none() || index != self.active {
            self.leave_stack(now, sink);
            self.arrive(now.first(), index, sink);
        }
        self.update_window();
        self.active.is_some()
    }

    fn leave_stack(&mut self, now: &Now, sink: Sink) {
        self.report_doubted(sink);
        self.end_visit(now, sink);
        if let Some(stack) = self.stack() {
            stack.left = now.before.sp.0;
        }
    }

    /// Activates the stack in a region, if a limit allows it.
    fn arrive(&mut self, first: ContextId, index: Option<RegionIndex>, sink: Sink) {
        let number = self.stacks;
        let region = index.and_then(|index| self.regions.get_mut(index));
        let Some(region) = region.filter(|region| region.stack.is_some() || number < u32::MAX) else {
            self.counts.stacks_refused += 1;
            if self.active.take().is_some() {
                sink(Tracked::Leave { last: ContextId(first.0.saturating_sub(1)) });
            }
            return;
        };
        let (kind, space) = (region.kind, region.space);
        let bounds = region.declared.then_some((Address(region.low), Address(region.high)));
        let thread = (!region.is_of_processor()).then_some(self.thread);
        let stack = region.stack.get_or_insert_with(|| {
            self.stacks += 1;
            let stack = StackId(number);
            sink(Tracked::Stack { stack, kind, thread, space, region: bounds });
            OpenStack::new(stack)
        });
        stack.doubtful = stack.frames.len();
        sink(Tracked::Enter { stack: stack.id, first });
        let id = stack.id;
        self.active = index;
        if space == Space::KERNEL {
            self.entries.kernel = index.map(|index| (index, id));
        }
    }

    /// Returns the region of a stack pointer: a known region, the nearest one, or a new one of this
    /// kind. Declared bounds are exact, except that a system that `pushes` may continue below them
    /// on the active stack.
    fn locate(&mut self, space: Space, sp: u64, kind: StackKind, pushes: bool) -> Option<RegionIndex> {
        // A hostile pointer can be 0, but no memory is below address 0.
        let sp = sp.max(1);
        if let Some((index, ..)) = self.regions.find(space, sp) {
            return Some(index);
        }
        let active = self.active;
        let near = self
            .regions
            .near(space, sp, |index, region| Some(index) == active && (pushes || !region.declared))
            .or_else(|| self.regions.near(space, sp, |_, region| !region.declared));
        if let Some(index) = near {
            self.regions.extend(index, sp);
            return Some(index);
        }
        (self.regions.len() < STACKS_MAX).then(|| self.regions.observe(space, sp, kind))
    }

    /// Removes a region and ends its stack.
    fn discard(&mut self, index: RegionIndex, last: ContextId, sink: Sink) {
        self.abandon(index, last, sink);
        self.regions.remove(index);
    }

    /// Ends a region's stack after a context.
    fn abandon(&mut self, index: RegionIndex, last: ContextId, sink: Sink) {
        self.end_frames(index, last, EndType::Abandoned, EndType::Abandoned, sink);
        if self.regions.get_mut(index).and_then(|region| region.stack.take()).is_none() {
            return;
        }
        if self.active == Some(index) {
            sink(Tracked::Leave { last });
            self.active = None;
            self.update_window();
        }
    }

    fn stack_id(&self, index: RegionIndex) -> Option<StackId> {
        Some(self.regions.get(index)?.stack.as_ref()?.id)
    }

    /// Returns the active stack. The stack id distinguishes it from later stacks in the same
    /// region.
    fn position(&self) -> Option<(RegionIndex, StackId)> {
        let index = self.active?;
        Some((index, self.stack_id(index)?))
    }

    /// Updates the limit and the window of fast steps, after the regions or the active stack have
    /// changed.
    fn update_window(&mut self) {
        self.renew_limit();
        self.window = match self.active.and_then(|index| Some((index, self.regions.get(index)?))) {
            Some((index, region)) => match self.regions.find(region.space, self.sp) {
                Some((found, low, high)) if found == index => (region.space, low, high),
                _ => Default::default(),
            },
            None => Default::default(),
        };
    }

    fn renew_limit(&mut self) {
        // Without an active stack, static steps have no effect. The first step activates a stack. In
        // kernel mode, pointers of user stacks need the rules of rings.
        let none = if self.started && !self.entries.foreign { u64::MAX } else { 0 };
        let foreign = self.entries.foreign;
        self.limit = self.stack().filter(|_| !foreign).map_or(none, |stack| stack.limit());
    }
}
