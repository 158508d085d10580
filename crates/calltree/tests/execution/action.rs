//! Random actions of the machine. Each action is defined in terms of programs, together with its
//! effect on frames.

use stackhound_calltree::ContextId;
use stackhound_calltree::tracker::{Class, DOUBT_MAX};
use stackhound_calltree::{EndType, StackKind, StartType};
use stackhound_types::Address;

use super::Event;
use super::machine::{Kind, Machine, SPACE, Shadow, State};
use super::truth::{Active, TrueJump};

/// Memory below the stack pointer that a signal must not overwrite.
const RED_ZONE: u64 = 128;
const SIGNAL_FRAME: u64 = 0x240;
/// The return address of signal handlers.
const RESTORER: u64 = 0x3f_0000;
/// Maximum number of stacks and threads, so that the same ones occur again.
const STACKS: usize = 14;
const THREADS: usize = 4;

impl Machine<'_> {
    pub fn act(&mut self) {
        let stack = &self.stacks[self.active];
        let deep = stack.frames.len() > 24 || self.sp < stack.low + 0x2000;
        if deep && self.random.one_in(2) {
            match self.random.below(6) {
                0 => self.long_jump(),
                _ => self.end_function(),
            }
            return;
        }
        match self.random.below(64) {
            _ if deep => self.plain(),
            0..10 => self.push_or_pop(),
            10..24 => self.call(),
            24..32 => self.end_function(),
            32 => self.long_jump(),
            33 => self.drop_return_address(),
            34 => self.overwrite_return_address(),
            35 => self.tail_call(),
            36 => self.return_to_pushed(),
            37 => self.retpoline(),
            38 => self.read_own_address(),
            39 => self.fill_return_predictor(),
            40 => self.call_near(),
            41..45 => self.change_coroutine(),
            45..47 => self.change_thread(),
            47..50 => self.interrupt(),
            50..53 => self.signal(),
            53 => self.jump_out_of_signal(),
            54..56 => self.damage(),
            56 => self.give_memory_back(),
            57 => self.end_thread(),
            58 => self.declare_known(),
            59..61 => {
                let skipped = self.random.between(1, 20) as u32;
                self.transition += u64::from(skipped);
                self.emit(Event::Skip(skipped));
            }
            61 => self.step(Class::System, self.next_pc(), self.sp),
            62 => {
                // Within a function.
                let pc = self.next_pc();
                self.step(Class::Other, pc, self.sp);
            }
            _ => self.plain(),
        }
    }

    // Ordinary functions.

    fn free_space(&self) -> u64 {
        self.top().map_or(0, |top| top.ceiling - self.sp)
    }

    fn push_or_pop(&mut self) {
        let bytes = 8 * self.random.between(1, 6);
        let pc = self.next_pc();
        match self.random.below(4) {
            0 if self.free_space() >= bytes => self.step(Class::Static, pc, self.sp + bytes),
            // A local variable of variable size: the stack pointer comes from a register.
            1 => self.step(Class::Dynamic, pc, self.sp - bytes),
            _ => self.step(Class::Static, pc, self.sp - bytes),
        }
    }

    /// Frees local variables.
    fn free(&mut self) {
        if let Some(top) = self.top()
            && self.sp < top.ceiling
        {
            let class = if self.random.one_in(2) { Class::Static } else { Class::Dynamic };
            self.step(class, self.next_pc(), top.ceiling);
        }
    }

    fn call(&mut self) {
        let function = self.any_function();
        self.call_function(function);
    }

    fn call_function(&mut self, function: u64) {
        let (slot, back) = (self.sp - 8, self.pc + 5);
        self.poke(slot, back);
        self.step(Class::Call { return_address: Address(back) }, function, slot);
        let first = ContextId(self.transition);
        self.open(first, StartType::Call, Some(function), Shadow::new(slot, Some(back), Kind::Function));
    }

    /// Ends the function's frame in the usual way of its kind.
    fn end_function(&mut self) {
        let Some(top) = self.top() else { return self.plain() };
        match top.kind {
            Kind::Older { outermost: true } => self.plain(),
            Kind::Function | Kind::Older { .. } => {
                self.free();
                self.return_instruction(top);
            }
            Kind::Foreign => self.end_foreign(top),
            Kind::Interrupt { stack, sp, pc } => {
                self.free();
                self.return_from_interrupt(stack, sp, pc);
            }
        }
    }

    fn return_instruction(&mut self, top: Shadow) {
        let target = self.peek(top.ceiling);
        let frames = &self.stacks[self.active].frames;
        let arguments = match frames.len().checked_sub(2).map(|below| frames[below]) {
            // A return into an unknown frame limits the possible position of that frame's return
            // address.
            Some(below) if self.random.one_in(4) => {
                (below.ceiling - top.gone()).min(8 * self.random.below(4))
            }
            _ => 0,
        };
        let last = ContextId(self.transition);
        self.step(Class::Return, target, top.gone() + arguments);
        let older = top.kind == Kind::Older { outermost: false };
        let end = match top.back {
            Some(back) if back != target && !older => EndType::ReturnElsewhere,
            _ => EndType::Return,
        };
        self.close(self.active, last, end);
        if older {
            self.find_below(target);
        } else {
            self.uncover(last);
        }
    }

    fn end_foreign(&mut self, top: Shadow) {
        let last = ContextId(self.transition);
        if self.random.one_in(2) {
            self.free();
            let last = ContextId(self.transition);
            let target = self.any_function();
            self.poke(top.ceiling, target);
            self.step(Class::Return, target, top.gone());
            self.close(self.active, last, EndType::Return);
            self.uncover(last);
        } else {
            self.step(Class::Dynamic, self.next_pc(), top.gone());
            self.close(self.active, last, EndType::Unwound);
            self.uncover(last);
        }
    }

    fn tail_call(&mut self) {
        if self.top().is_some_and(|top| top.kind == Kind::Function) {
            self.free();
            let function = self.any_function();
            self.step(Class::Jump, function, self.sp);
            self.truth.counts.tail_calls += u64::from(self.jumped());
        }
    }

    // Other ways to leave functions.

    /// `longjmp`, or an exception that is caught further out.
    fn long_jump(&mut self) {
        let Some(location) = self.any_outer(self.active) else { return self.plain() };
        if self.random.one_in(2) {
            // The unwinder has frames of its own.
            self.call();
            self.call();
        }
        let sp = self.any_pointer(self.active, location);
        let last = ContextId(self.transition);
        let pc = self.any_function() + 0x20;
        self.step(Class::Dynamic, pc, sp);
        self.unwind_from(location + 1, last);
        self.uncover(last);
    }

    /// Returns a known frame of a stack that is not the top frame: a possible target of jumps and
    /// unwinding.
    fn any_outer(&mut self, stack: usize) -> Option<usize> {
        let frames = &self.stacks[stack].frames;
        let lowest = frames.iter().position(|frame| frame.known.is_some())?;
        let outer = frames.len().checked_sub(lowest + 1).filter(|&count| count > 0)?;
        Some(frames.len() - 2 - self.random.below(outer.min(4) as u64) as usize)
    }

    /// Returns a stack pointer at which a frame that is not the top frame becomes the top.
    fn any_pointer(&mut self, stack: usize, location: usize) -> u64 {
        let frames = &self.stacks[stack].frames;
        let (low, high) = (frames[location + 1].gone(), frames[location].ceiling);
        low + 8 * self.random.below(((high - low) / 8).min(4) + 1)
    }

    /// `add rsp, 8; jmp`: continues in the caller's frame.
    fn drop_return_address(&mut self) {
        let frames = self.stacks[self.active].frames.len();
        if let Some(top) = self.top()
            && top.kind == Kind::Function
            && frames > 1
        {
            let last = ContextId(self.transition);
            self.step(Class::Static, self.next_pc(), top.gone());
            self.close(self.active, last, EndType::Unwound);
            self.uncover(last);
        }
    }

    fn overwrite_return_address(&mut self) {
        if let Some(top) = self.top()
            && top.kind == Kind::Function
        {
            self.free();
            let target = self.any_function() + 0x30;
            self.poke(top.ceiling, target);
            self.plain();
            self.return_instruction(top);
        }
    }

    // Calls and returns without frames.

    fn return_to_pushed(&mut self) {
        let (sp, target) = (self.sp, self.any_function());
        self.poke(sp - 8, target);
        self.step(Class::Static, self.next_pc(), sp - 8);
        self.step(Class::Return, target, sp);
        self.truth.counts.returns_as_jumps += 1;
        self.jumped();
    }

    fn call_at_distance(&mut self, distance: u64) {
        let (slot, back) = (self.sp - 8, self.pc + 5);
        self.poke(slot, back);
        self.step(Class::Call { return_address: Address(back) }, back + distance, slot);
    }

    fn retpoline(&mut self) {
        self.call_at_distance(7);
        let (sp, target) = (self.sp, self.any_function());
        self.poke(sp, target);
        self.plain();
        self.step(Class::Return, target, sp + 8);
        self.truth.counts.returns_as_jumps += 1;
        self.jumped();
    }

    /// The last step was a jump to a function. It returns in place of the current one if nothing of that is on
    /// the stack. Returns whether it does.
    fn jumped(&mut self) -> bool {
        let function = Address(self.pc);
        let (first, sp) = (ContextId(self.transition), self.sp);
        let stack = &mut self.stacks[self.active];
        if let Some(number) = stack.known
            && let Some(top) = stack.frames.last_mut()
            && (top.kind, top.ceiling) == (Kind::Function, sp)
            // Otherwise, the return address is not known.
            && top.back.is_some()
            && let Some(known) = top.known
        {
            let started = self.truth.stacks[number].frames[known].function;
            let from = top.jumped_to.replace(function).or(started);
            self.truth.jumps.push(TrueJump { stack: number, first, from, function });
            return true;
        }
        false
    }

    fn read_own_address(&mut self) {
        self.call_at_distance(0);
        self.step(Class::Static, self.next_pc(), self.sp + 8);
        self.truth.counts.calls_without_frame += 1;
    }

    fn fill_return_predictor(&mut self) {
        self.call_at_distance(1);
        self.call_at_distance(1);
        self.step(Class::Static, self.next_pc(), self.sp + 16);
        self.truth.counts.calls_without_frame += 2;
    }

    /// A function directly after its caller.
    fn call_near(&mut self) {
        let (slot, back) = (self.sp - 8, self.pc + 5);
        self.call_at_distance(16);
        let first = ContextId(self.transition);
        let frame = Shadow::new(slot, Some(back), Kind::Function);
        self.open(first, StartType::Call, Some(self.pc), frame);
        match self.random.below(3) {
            0 => self.end_function(),
            1 => self.call(),
            _ => (0..=DOUBT_MAX).for_each(|_| self.plain()),
        }
    }

    // Other stacks.

    /// Whether the program runs on a stack that it may leave by itself.
    fn on_program_stack(&self) -> bool {
        let thread = self.thread();
        self.active != self.interrupts && Some(self.active) != thread.alternate
    }

    fn change_coroutine(&mut self) {
        if !self.on_program_stack() {
            return self.plain();
        }
        let thread = self.thread();
        let may_resume = |state| match state {
            State::Parked { owner } => owner.is_none_or(|owner| owner == thread.thread),
            _ => false,
        };
        let parked: Vec<usize> =
            (0..self.stacks.len()).filter(|&stack| may_resume(self.stacks[stack].state)).collect();
        let own = (self.active == thread.own).then_some(thread.thread);
        let from = self.active;
        if parked.is_empty() || (self.stacks.len() < STACKS && self.random.one_in(3)) {
            let declared = self.random.one_in(2);
            let to = self.new_stack(StackKind::Alternate, declared);
            self.call();
            self.enter_fresh(Class::Dynamic, to, 1);
        } else {
            let to = self.random.pick(&parked);
            if self.random.one_in(2) {
                self.call();
            }
            let class = self.random.pick(&[Class::Dynamic, Class::Dynamic, Class::System]);
            self.enter_known(class, to);
        }
        self.stacks[from].state = State::Parked { owner: own };
        let to = self.active;
        self.stacks[to].state = State::Used;
    }

    /// Switches to a stack that was never active.
    fn enter_fresh(&mut self, class: Class, to: usize, inner: u64) {
        let from = self.active;
        self.stacks[from].left = self.sp;
        self.start_older(to, inner);
        let sp = self.stacks[to].frames.last().expect("just put there").ceiling;
        let pc = self.any_function();
        self.step(class, pc, sp);
        let first = ContextId(self.transition);
        self.enter(first, to);
        self.find_older(first, pc);
    }

    /// Switches to a stack that was active: to the point where it was left, further in or further
    /// out.
    fn enter_known(&mut self, class: Class, to: usize) {
        let left = self.stacks[to].left;
        let outer = self.any_outer(to).filter(|_| self.random.one_in(6));
        let lower = self.random.one_in(5);
        let sp = match outer {
            Some(location) => self.any_pointer(to, location),
            None if lower => left - 8 * self.random.between(1, 12),
            None => left,
        };
        let from = self.active;
        self.stacks[from].left = self.sp;
        let last = ContextId(self.transition);
        let pc = self.any_function() + 0x10;
        self.step(class, pc, sp);
        let first = ContextId(self.transition);
        self.enter(first, to);
        if let Some(location) = outer {
            self.unwind_from(location + 1, last);
        }
        if sp < left {
            self.open(first, StartType::Manual, Some(pc), Shadow::new(left - 8, None, Kind::Foreign));
        } else {
            self.uncover(last);
        }
    }

    fn change_thread(&mut self) {
        if self.active == self.interrupts {
            return self.plain();
        }
        let (running, active) = (self.running, self.active);
        self.threads[running].stack = active;
        self.run_another_thread(Some(running));
    }

    fn run_another_thread(&mut self, but: Option<usize>) {
        let others: Vec<usize> = (0..self.threads.len()).filter(|&thread| Some(thread) != but).collect();
        let room = self.threads.len() < THREADS && self.stacks.len() < 2 * STACKS;
        if others.is_empty() || (room && self.random.one_in(3)) {
            let gone = self.stacks.iter().rposition(|stack| {
                stack.state == State::Gone && stack.declared && stack.kind == StackKind::User
            });
            // Operating systems often reuse the memory of a thread's stack.
            let own = match gone.filter(|_| self.random.one_in(2)) {
                Some(gone) => {
                    self.stacks[gone].declared = false;
                    let (low, high) = (self.stacks[gone].low, self.stacks[gone].high);
                    self.put_stack(low, high, StackKind::User, true)
                }
                None => {
                    let declared = self.random.one_in(2);
                    self.new_stack(StackKind::User, declared)
                }
            };
            self.running = self.add_thread(own);
            let inner = self.random.below(3);
            let class = Class::Switch { to: self.thread().thread };
            self.enter_fresh(class, own, inner);
        } else {
            self.running = self.random.pick(&others);
            let thread = self.thread();
            self.enter_known(Class::Switch { to: thread.thread }, thread.stack);
        }
    }

    fn end_thread(&mut self) {
        if self.active == self.interrupts || self.threads.len() < 2 {
            return self.plain();
        }
        let ended = self.random.below(self.threads.len() as u64) as usize;
        let running = ended == self.running;
        let (state, active) = (self.threads[ended], self.active);
        self.emit(Event::Exit(state.thread));
        self.abandon(state.own);
        self.abandon(if running { active } else { state.stack });
        let now = self.thread().thread;
        self.threads.remove(ended);
        if running {
            self.truth.active.push(Active { first: ContextId(self.transition + 1), stack: None });
            self.run_another_thread(None);
        } else {
            self.running = self.threads.iter().position(|thread| thread.thread == now).expect("it runs");
        }
    }

    // Interrupts and signals.

    fn interrupt(&mut self) {
        let to = if self.random.one_in(2) { self.interrupts } else { self.active };
        let (from, sp, pc) = (self.active, self.sp, self.pc);
        let from_sp = if to == from { sp - RED_ZONE } else { self.stacks[to].high };
        let slot = (from_sp & !15) - 40;
        let code = 8 * self.random.below(2);
        self.poke(slot, pc);
        self.stacks[from].left = sp;
        let handler = self.any_function();
        self.step(Class::Interrupt { slot: Address(slot) }, handler, slot - code);
        let first = ContextId(self.transition);
        if to != from {
            self.enter(first, to);
        }
        let kind = Kind::Interrupt { stack: from, sp, pc };
        self.open(first, StartType::Interrupt, Some(handler), Shadow::new(slot, None, kind));
    }

    fn signal(&mut self) {
        if self.active == self.interrupts {
            return self.plain();
        }
        let (from, sp, pc) = (self.active, self.sp, self.pc);
        let to = self.thread().alternate.filter(|_| self.random.one_in(2)).unwrap_or(from);
        let from_sp = if to == from { sp - RED_ZONE } else { self.stacks[to].high };
        let handler_sp = ((from_sp - SIGNAL_FRAME) & !15) - 8;
        self.poke(handler_sp, RESTORER);
        self.stacks[from].left = sp;
        let handler = self.any_function();
        let last = ContextId(self.transition);
        self.step(Class::Signal { slot: Address(handler_sp + 8) }, handler, handler_sp);
        let first = ContextId(self.transition);
        if to != from {
            self.enter(first, to);
            // Anything that a jump left there is overwritten.
            self.unwind_from(0, last);
        }
        let restorer = self.execution.readable.then_some(RESTORER);
        let kind = Kind::Interrupt { stack: from, sp, pc };
        self.open(first, StartType::Interrupt, restorer, Shadow::new(handler_sp + 8, None, kind));
        let frame = Shadow::new(handler_sp, restorer, Kind::Function);
        self.open(first, StartType::Manual, Some(handler), frame);
    }

    fn return_from_interrupt(&mut self, to: usize, sp: u64, pc: u64) {
        let (from, last) = (self.active, ContextId(self.transition));
        self.stacks[from].left = self.sp;
        self.step(Class::InterruptReturn, pc, sp);
        self.close(from, last, EndType::InterruptReturn);
        if to != from {
            self.enter(ContextId(self.transition), to);
        }
        self.uncover(last);
    }

    /// `siglongjmp` out of a handler on the alternate stack, whose frames do not end.
    fn jump_out_of_signal(&mut self) {
        if Some(self.active) != self.thread().alternate {
            return self.signal();
        }
        let outermost = self.stacks[self.active].frames[0].kind;
        let Kind::Interrupt { stack: to, .. } = outermost else { return self.plain() };
        let Some(location) = self.any_outer(to) else { return self.plain() };
        let sp = self.any_pointer(to, location);
        let from = self.active;
        self.stacks[from].left = self.sp;
        let last = ContextId(self.transition);
        self.step(Class::Dynamic, self.next_pc(), sp);
        self.enter(ContextId(self.transition), to);
        self.unwind_from(location + 1, last);
        self.uncover(last);
    }

    // Changes of stacks that are not active.

    fn damage(&mut self) {
        let victims: Vec<usize> = (0..self.stacks.len())
            .filter(|&stack| stack != self.active && self.stacks[stack].frames.len() > 1)
            .collect();
        if victims.is_empty() {
            return self.plain();
        }
        let stack = self.random.pick(&victims);
        let count = self.random.between(1, 3);
        // From the top, or further down.
        let from = if self.random.one_in(2) { 0 } else { self.random.below(5) };
        for location in from..from + count {
            let frames = &self.stacks[stack].frames;
            let Some(location) = frames.len().checked_sub(1 + location as usize) else { break };
            let frame = frames[location];
            if frame.kind == Kind::Function && !frame.changed {
                let address = self.any_function() + 0x50;
                self.poke(frame.ceiling, address);
                self.stacks[stack].frames[location].changed = frame.back != Some(address);
            }
        }
    }

    fn parked_coroutine(&mut self) -> Option<usize> {
        let parked = |&stack: &usize| self.stacks[stack].state == State::Parked { owner: None };
        let stacks: Vec<usize> = (0..self.stacks.len()).filter(parked).collect();
        (!stacks.is_empty()).then(|| self.random.pick(&stacks))
    }

    fn give_memory_back(&mut self) {
        if self.random.one_in(2) {
            // The memory below the stack pointer is unused.
            let stack = &self.stacks[self.active];
            let (low, high) = (stack.low, self.sp - 0x4000);
            if low < high {
                self.emit(Event::Release { space: SPACE, low: Address(low), high: Address(high) });
                self.stack().low = high;
            }
        } else if let Some(stack) = self.parked_coroutine() {
            let (low, high) = (self.stacks[stack].low, self.stacks[stack].high);
            self.emit(Event::Release { space: SPACE, low: Address(low), high: Address(high) });
            self.abandon(stack);
            let declared = self.stacks[stack].declared;
            if self.random.one_in(2) && self.on_program_stack() {
                // The same memory is reused for another coroutine.
                if declared {
                    let kind = StackKind::Alternate;
                    self.emit(Event::Declare { space: SPACE, low: Address(low), high: Address(high), kind });
                }
                let to = self.put_stack(low, high, StackKind::Alternate, declared);
                let from = self.active;
                let own = (from == self.thread().own).then_some(self.thread().thread);
                self.enter_fresh(Class::Dynamic, to, 1);
                self.stacks[from].state = State::Parked { owner: own };
            }
        }
    }

    /// Declares the bounds of a stack that is already in use.
    fn declare_known(&mut self) {
        let stack = &self.stacks[self.active];
        let (low, high) = (Address(stack.low), Address(stack.high));
        if !stack.declared {
            self.emit(Event::Declare { space: SPACE, low, high, kind: stack.kind });
        }
    }
}
