//! Entries into the kernel and returns to user mode, in the trace of a whole system.
//!
//! # Rules
//!
//! - **Entry.** An entry from user mode opens one frame on a stack of the kernel, with the entry point
//!   as function. It is [`StartType::Call`] for a system call, because the thread requested it by an
//!   instruction, as in event traces; and [`StartType::Interrupt`] for interrupts, exceptions and
//!   faults. It has no slot: no value of the stack pointer ends it. If the stack had frames, they were
//!   lost and are `Unwound`.
//! - **System call.** It does not change the stack pointer. The user stack stays active until the
//!   kernel loads a pointer of its own space. Other values are not stack pointers: with separate page
//!   tables, the entry point uses the register for computations.
//! - **Copy.** While an entry has no open call, loading another stack pointer continues the entry on
//!   another stack: entry points copy the registers from the processor's entry stack to the stack of
//!   the thread, and back. A frame of the same type and function is opened there, unless there is one.
//! - **Return.** Any return to user mode ends all frames on the kernel stack, and those that entries
//!   left on other stacks: the outermost one of each stack as [`EndType::InterruptReturn`], whatever
//!   its start was. Before the return from a system call, the kernel loads the user's pointer. The
//!   user stack is active from then on. Its frames are compared with the pointer in user mode.
//! - **Visit.** A stack that kernel code leaves by a load, without an open call and with the pointer at
//!   which it was entered, is empty afterwards: `mov rsp, …; call; pop rsp`, as for the stack of
//!   interrupts.
//! - **Program.** If a return to user mode leads to another address space than that of its entry, the
//!   system has started another program in a new space. Stacks that an earlier program had in this space
//!   are abandoned.
//! - **Thread.** A return to user mode without an entry is the start of a thread. If it continues on a
//!   known stack, at another pointer than that at which the stack was left, an earlier thread has used
//!   the memory; its stack is abandoned. (A thread that shares the stack of its creator continues at the
//!   same pointer.)
//! - **Interrupts** in kernel mode follow the general rules. They may use a stack of their own.
//! - **Signals.** [`Class::Signal`] may be the return to user mode. At a system call with the pointer
//!   at the slot of the signal's frame, the return to another pointer is the return from the signal.
//!
//! # Limits
//!
//! Windows runs user code while a system call is in progress (callbacks). The frames of such system
//! calls end too early, with the entry into user mode.

use stackhound_types::Address;

use super::open::{Entry, Frame, NO_SLOT};
use super::regions::{Region, RegionIndex};
use super::step::{Class, Point, Ring, Space, Tracked};
use super::{Now, Read, Sink, Tracker};
use crate::id::{ContextId, StackId};
use crate::kind::{EndType, StartType};

/// Maximum number of stacks with frames that one entry left. Linux has one, the entry stack.
const LEFT_MAX: usize = 8;

/// The current entry into the kernel.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// The stack of the kernel that was active last, since the entry.
    pub kernel: Option<(RegionIndex, StackId)>,
    /// Other stacks with frames of entries.
    left: Vec<(RegionIndex, StackId)>,
    /// A system call for which no stack of the kernel was loaded yet.
    entering: Option<Entering>,
    /// The address space of the user stack that was active before the entry.
    space: Option<Space>,
    /// The user stack that was active before the entry.
    user: Option<(RegionIndex, StackId)>,
    /// In kernel mode, the stack pointer is not on a stack of the kernel.
    pub foreign: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entering {
    function: Address,
    /// The user's stack pointer.
    sp: Address,
    space: Space,
}

impl Tracker {
    /// Processes a step from user mode to kernel mode.
    pub(super) fn enter_kernel(&mut self, now: &Now, sink: Sink) {
        self.interrupt_doubted(sink);
        if let Some(active) = self.active {
            // Skipped steps may have raised the stack pointer.
            self.unwind(now, now.before.sp.0, sink);
            self.regions.extend(active, now.before.sp.0);
        }
        self.entries.user = self.position();
        self.entries.space = self.active.and_then(|active| Some(self.regions.get(active)?.space));
        self.entries.kernel = None;
        let function = now.after.pc;
        let start = if now.class == Class::System { StartType::Call } else { StartType::Interrupt };
        if now.space == Space::KERNEL {
            self.open_entry(now, start, function, sink);
        } else {
            self.sp = now.before.sp.0;
            self.ensure_frame(now.first(), now.before.pc, sink);
            self.entries.entering = Some(Entering { function, sp: now.before.sp, space: now.space });
            self.entries.foreign = true;
        }
    }

    /// Processes a step within kernel mode.
    pub(super) fn advance_in_kernel(&mut self, now: &Now, read: Read, sink: Sink) {
        let loads = matches!(now.class, Class::Dynamic | Class::InterruptReturn | Class::Switch { .. });
        if self.entries.foreign {
            self.advance_on_foreign_pointer(now, loads, read, sink);
        } else if loads && now.space != Space::KERNEL && self.entries.kernel.is_some() {
            self.load_user_pointer(now, sink);
        } else if now.class == Class::Dynamic
            && now.space == Space::KERNEL
            && let Some(entry) = self.entry_without_calls()
        {
            self.continue_entry(now, entry, read, sink);
        } else {
            self.advance(now, read, sink);
        }
        if matches!(now.class, Class::Switch { .. }) {
            self.entries.user = None;
        }
    }

    /// Processes a step from kernel mode to user mode.
    pub(super) fn leave_kernel(&mut self, now: &Now, read: Read, sink: Sink) {
        let now = &self.on_known_pointer(now);
        self.report_doubted(sink);
        let kernel = self.entries.kernel.take();
        let left = std::mem::take(&mut self.entries.left);
        let of_kernel = kernel.and_then(|(index, _)| self.regions.get(index)?.stack.as_ref());
        let is_new_thread = of_kernel.is_some_and(|stack| stack.entry.is_none() && !stack.is_empty());
        let entered_from = of_kernel.and_then(|stack| stack.entry?.space);
        for (index, id) in kernel.into_iter().chain(left.into_iter().rev()) {
            if self.stack_id(index) == Some(id) {
                self.end_frames(index, now.last(), EndType::Unwound, EndType::InterruptReturn, sink);
            }
        }
        self.entries.entering = None;
        self.entries.foreign = false;
        self.sp = now.after.sp.0;
        self.return_from_signal(now, sink);
        if entered_from.is_some_and(|space| space != now.space) {
            self.release_after(now.last(), now.space, (0, u64::MAX), sink);
        } else if is_new_thread {
            self.abandon_earlier_thread(now, sink);
        }
        if let Class::Signal { slot } = now.class {
            self.signal(now, slot, read, sink);
        } else if self.reach(now, None, sink) {
            self.entered_stack(now, read, sink);
        }
    }

    fn advance_on_foreign_pointer(&mut self, now: &Now, loads: bool, read: Read, sink: Sink) {
        let now = &self.on_known_pointer(now);
        match self.entries.entering {
            _ if matches!(now.class, Class::Interrupt { .. }) => {
                // The system call is in progress on the stack that was active last.
                if let Some(kernel) = self.entries.kernel.filter(|_| self.entries.entering.is_none()) {
                    self.keep_for_return(kernel);
                }
                self.entries.foreign = false;
                self.advance(now, read, sink);
            }
            Some(entering) if loads && now.space == Space::KERNEL => {
                self.open_entry(now, StartType::Call, entering.function, sink);
            }
            None if loads && now.space == Space::KERNEL => {
                self.entries.foreign = false;
                self.advance(now, read, sink);
            }
            _ => {}
        }
    }

    /// Processes the load of a pointer that is not on a stack of the kernel: that of a user stack,
    /// which becomes active if it is known.
    fn load_user_pointer(&mut self, now: &Now, sink: Sink) {
        if now.class == Class::InterruptReturn {
            self.end_interrupt(now, sink);
        }
        self.report_doubted(sink);
        let (space, sp) = match self.entries.entering {
            Some(entering) => (entering.space, entering.sp),
            None => (now.space, now.after.sp),
        };
        let known = self.regions.find(space, sp.0).map(|(index, ..)| index).filter(|&index| {
            let stack = self.regions.get(index).and_then(|region| region.stack.as_ref());
            Some(index) != self.active && stack.is_some_and(|stack| !stack.is_empty())
        });
        if known.is_some() {
            self.leave_stack(now, sink);
            self.arrive(now.first(), known, sink);
            self.sp = sp.0;
        } else {
            self.ensure_frame(now.first(), now.after.pc, sink);
        }
        self.entries.foreign = true;
        self.update_window();
    }

    /// Returns the step with the last stack pointer that was on a stack.
    fn on_known_pointer(&self, now: &Now) -> Now {
        let sp = if self.entries.foreign { Address(self.sp) } else { now.before.sp };
        Now { before: Point { sp, ..now.before }, ..*now }
    }

    /// Returns the entry if its frame is the only one of the active
    /// stack.
    fn entry_without_calls(&mut self) -> Option<Entry> {
        self.stack().filter(|stack| stack.frames.len() == 1 && stack.base.is_none())?.entry
    }

    fn continue_entry(&mut self, now: &Now, entry: Entry, read: Read, sink: Sink) {
        let from = self.position();
        self.sp = now.after.sp.0;
        if !self.reach(now, None, sink) {
            return;
        }
        match from {
            Some(from) if Some(from) != self.position() => self.keep_for_return(from),
            _ => return,
        }
        if self.stack().is_some_and(|stack| stack.entry.is_some()) {
            self.entered_stack(now, read, sink);
        } else {
            self.open_entry_frame(now, entry, sink);
        }
    }

    fn open_entry(&mut self, now: &Now, start: StartType, function: Address, sink: Sink) {
        self.entries.entering = None;
        self.entries.foreign = false;
        self.sp = now.after.sp.0;
        if self.reach(now, None, sink) {
            let space = self.entries.space;
            self.open_entry_frame(now, Entry { start, function, space }, sink);
        }
    }

    fn open_entry_frame(&mut self, now: &Now, entry: Entry, sink: Sink) {
        let Entry { start, function, .. } = entry;
        let Some(active) = self.active else { return };
        self.end_frames(active, now.last(), EndType::Unwound, EndType::Unwound, sink);
        let frame = Frame { slot: NO_SLOT, return_address: None, start, function: Some(function) };
        self.open(now, frame, sink);
        if let Some(stack) = self.stack().filter(|stack| !stack.is_empty()) {
            stack.entry = Some(entry);
        }
        self.ensure_frame(now.first(), function, sink);
    }

    /// Ends the frames of the stack, at the next return to user mode.
    fn keep_for_return(&mut self, stack: (RegionIndex, StackId)) {
        if !self.entries.left.contains(&stack) && self.entries.left.len() < LEFT_MAX {
            self.entries.left.push(stack);
        }
    }

    /// Abandons the stack that a new thread enters if another thread has left it.
    fn abandon_earlier_thread(&mut self, now: &Now, sink: Sink) {
        let sp = now.after.sp.0;
        let Some((index, ..)) = self.regions.find(now.space, sp) else { return };
        let left = self.regions.get(index).and_then(|region| region.stack.as_ref()).map(|stack| stack.left);
        if self.active != Some(index) && left.is_some_and(|left| left != sp) {
            self.abandon(index, now.last(), sink);
        }
    }

    /// Ends the frame of a signal if the system call of this return to user mode was its return.
    fn return_from_signal(&mut self, now: &Now, sink: Sink) {
        let Some((index, id)) = self.entries.user.take() else { return };
        let Some(stack) = self.regions.stack_mut(index).filter(|stack| stack.id == id) else { return };
        let returned = stack.frames.last().is_some_and(|top| {
            top.start == StartType::Interrupt && top.slot == stack.left && now.after.sp.0 != stack.left
        });
        if returned {
            stack.pop();
            self.frames -= 1;
            sink(Tracked::Close { stack: id, last: now.last(), end: EndType::InterruptReturn });
        }
    }

    /// Ends all frames of a stack, active or not, innermost first.
    pub(super) fn end_frames(
        &mut self,
        index: RegionIndex,
        last: ContextId,
        inner: EndType,
        outermost: EndType,
        sink: Sink,
    ) {
        if self.active == Some(index) {
            self.report_doubted(sink);
        }
        let Some(stack) = self.regions.stack_mut(index) else { return };
        self.frames -= stack.frames.len();
        let id = stack.id;
        for outer in (0..stack.clear()).rev() {
            let end = if outer == 0 { outermost } else { inner };
            sink(Tracked::Close { stack: id, last, end });
        }
    }

    /// Ends the frames of the active stack if it was only visited.
    pub(super) fn end_visit(&mut self, now: &Now, sink: Sink) {
        if now.class != Class::Dynamic || now.before.ring != Ring::Kernel {
            return;
        }
        let of_kernel = |&index: &RegionIndex| self.regions.get(index).is_some_and(Region::is_of_kernel);
        let Some(active) = self.active.filter(of_kernel) else { return };
        let before = now.before.sp.0;
        if self.stack().is_some_and(|stack| stack.frames.is_empty() && stack.base == Some(before)) {
            self.end_frames(active, now.last(), EndType::Unwound, EndType::Unwound, sink);
        }
    }
}
