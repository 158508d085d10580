//! The traced program as a machine that executes one instruction after another.
//!
//! One thread runs at a time, for a number of steps or until the system makes it wait, so all
//! events have one order. This module handles processes and threads, but not stacks or names.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::affinity::{Affinity, is_about_affinity};
use crate::asleep::wait_unless_asleep;
use crate::code::CodeCache;
use crate::control::{self, Registers, Stop, Tid, TrapCause};
use crate::error::Error;
use crate::event::{Ending, Event};
use crate::instruction::{Class, Instruction};
use crate::launch;

/// The number of steps of a thread before other threads may run.
const SLICE: u32 = 5_000;
/// The maximum number of iterations of a repeated instruction that are single-stepped. With more,
/// it runs to a breakpoint, because all its iterations are one transition. Setting a breakpoint
/// costs as much as a few steps.
const ITERATIONS_STEPPED: u64 = 4;

/// A program under control. If this is dropped before the program ends or is released, the program
/// is killed.
#[derive(Debug)]
pub(crate) struct Machine {
    process: Tid,
    /// In the order of their creation.
    threads: Vec<Thread>,
    /// The thread that runs.
    current: Option<Tid>,
    /// The number of steps that it may still make.
    slice: u32,
    /// Stops of threads that are not known yet.
    early: Vec<(Tid, Stop)>,
    events: VecDeque<Event>,
    code: CodeCache,
    affinity: Affinity,
    ending: Ending,
}

#[derive(Debug)]
struct Thread {
    tid: Tid,
    state: State,
    /// The registers at its last context.
    registers: Registers,
    /// The current or last instruction.
    instruction: Instruction,
    /// The signal to deliver with the next step.
    signal: i32,
    /// The signal that was delivered with the last step.
    delivering: i32,
    /// Whether it runs to a breakpoint.
    breakpoint: bool,
    /// The program has just been replaced.
    replaced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The thread can make a step.
    Ready,
    /// The thread is in a step that has not ended.
    Running,
    /// The thread has a stop that was not processed yet.
    Stopped(Stop),
}

impl Thread {
    fn new(tid: Tid, registers: Registers) -> Thread {
        Thread {
            tid,
            state: State::Ready,
            registers,
            instruction: Instruction::UNKNOWN,
            signal: 0,
            delivering: 0,
            breakpoint: false,
            replaced: false,
        }
    }
}

impl Machine {
    /// Takes over a program that [`launch`](crate::launch::launch) has started. Its first event is
    /// the start of its thread.
    pub(crate) fn new(process: Tid) -> Result<Machine, Error> {
        let code = CodeCache::open(process).map_err(Error::control("read its memory"))?;
        let mut thread = Thread::new(process, Registers::default());
        thread.replaced = true;
        let mut machine = Machine {
            process,
            threads: vec![thread],
            current: Some(process),
            slice: SLICE,
            early: Vec::new(),
            events: VecDeque::new(),
            code,
            affinity: Affinity::new(),
            ending: Ending::Running,
        };
        machine.affinity.keep(process);
        machine.step(0)?;
        while machine.threads.first().is_some_and(|thread| thread.replaced)
            && machine.advance(&AtomicBool::new(false))?
        {}
        for event in &mut machine.events {
            if let Event::Replaced { after } = *event {
                *event = Event::Started { at: after, stack: None };
            }
        }
        Ok(machine)
    }

    pub(crate) fn process(&self) -> Tid {
        self.process
    }

    /// The code of the program, while it is stopped.
    pub(crate) fn code(&mut self) -> &mut CodeCache {
        &mut self.code
    }

    /// The file name of the program that runs.
    pub(crate) fn program_name(&self) -> Option<String> {
        let path = std::fs::read_link(format!("/proc/{}/exe", self.process.0)).ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    }

    /// The next event; `None` if the program has ended or `stop` is set.
    pub(crate) fn next(&mut self, stop: &AtomicBool) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if stop.load(Ordering::Relaxed) || !self.advance(stop)? {
                return Ok(None);
            }
        }
    }

    /// Makes progress that may lead to events. Returns false if nothing is left to do.
    fn advance(&mut self, stop: &AtomicBool) -> Result<bool, Error> {
        let current = self.threads.iter().position(|thread| Some(thread.tid) == self.current);
        match current.map(|index| (index, self.threads[index].state)) {
            Some((index, State::Ready)) if self.slice > 0 => self.step(index)?,
            Some((index, State::Stopped(stop))) => self.resolve(index, stop)?,
            _ => return self.choose(stop),
        }
        Ok(true)
    }

    /// Makes one step of a thread, and waits for its end unless the thread sleeps in a system call.
    fn step(&mut self, index: usize) -> Result<(), Error> {
        let thread = &mut self.threads[index];
        self.slice = self.slice.saturating_sub(1);
        if !thread.replaced {
            thread.instruction = self.code.instruction(thread.registers.pc);
        }
        thread.delivering = std::mem::take(&mut thread.signal);
        if thread.instruction.class == Class::SystemCall {
            if thread.registers.rax == libc::SYS_sched_yield as u64 {
                self.slice = 0;
            }
            if is_about_affinity(thread.registers.rax) {
                self.affinity.release();
            }
        }
        self.resume(index)
    }

    /// Lets a thread continue with its current instruction.
    fn resume(&mut self, index: usize) -> Result<(), Error> {
        let thread = &mut self.threads[index];
        thread.state = State::Running;
        let long = thread.instruction.repeated
            && thread.registers.rcx > ITERATIONS_STEPPED
            && thread.delivering == 0;
        let next = thread.registers.pc.wrapping_add(u64::from(thread.instruction.length));
        thread.breakpoint = long && control::run_to(thread.tid, next).is_ok();
        let result = if thread.breakpoint { Ok(()) } else { control::step(thread.tid, thread.delivering) };
        match result {
            // The thread was killed; its end will be reported.
            Err(error) if control::is_gone(&error) => return Ok(()),
            result => result.map_err(Error::control("step"))?,
        }
        let may_wait =
            thread.replaced || thread.delivering != 0 || thread.instruction.class == Class::SystemCall;
        let stop = if may_wait {
            wait_unless_asleep(self.process, thread.tid)?
        } else {
            control::wait(Some(thread.tid), true).map_err(Error::control("wait"))?.map(|(_, stop)| stop)
        };
        if let Some(stop) = stop {
            thread.state = State::Stopped(stop);
        }
        Ok(())
    }

    /// Finds a thread that can continue, and waits for one if necessary. Returns false if there is
    /// none.
    fn choose(&mut self, stop: &AtomicBool) -> Result<bool, Error> {
        let mut delay = Duration::from_micros(20);
        loop {
            self.collect()?;
            if self.threads.is_empty() {
                return Ok(false);
            }
            let after = self
                .threads
                .iter()
                .position(|thread| Some(thread.tid) == self.current)
                .map_or(0, |at| at + 1);
            let count = self.threads.len();
            let ready = (0..count)
                .map(|distance| (after + distance) % count)
                .find(|&index| self.threads[index].state != State::Running);
            if let Some(index) = ready {
                let Thread { tid: to, registers: at, .. } = self.threads[index];
                self.slice = SLICE;
                if self.current != Some(to) {
                    self.current = Some(to);
                    self.events.push_back(Event::Switched { to, at });
                }
                return Ok(true);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            std::thread::sleep(delay);
            delay = (delay * 2).min(Duration::from_millis(2));
        }
    }

    /// Collects the stops of threads in system calls, and processes those that do not need the
    /// thread to run.
    fn collect(&mut self) -> Result<(), Error> {
        while self.threads.iter().any(|thread| thread.state == State::Running) {
            let Some((tid, stop)) = control::wait(None, false).map_err(Error::control("wait"))? else {
                break;
            };
            match self.threads.iter_mut().find(|thread| thread.tid == tid) {
                Some(thread) => thread.state = State::Stopped(stop),
                None => self.early.push((tid, stop)),
            }
        }
        let mut index = 0;
        while index < self.threads.len() {
            let count = self.threads.len();
            if let State::Stopped(stop) = self.threads[index].state
                && !matches!(stop, Stop::Trap | Stop::Signal(_) | Stop::Pause | Stop::Clone)
            {
                self.resolve(index, stop)?;
            }
            index = if self.threads.len() < count { 0 } else { index + 1 };
        }
        Ok(())
    }

    /// Processes the end of a step.
    fn resolve(&mut self, index: usize, stop: Stop) -> Result<(), Error> {
        match stop {
            Stop::Trap | Stop::Signal(_) | Stop::Pause => match self.stepped(index, stop) {
                Err(error) if control::is_gone(&error) => self.threads[index].state = State::Running,
                result => result.map_err(Error::control("read its registers"))?,
            },
            Stop::Clone => self.cloned(index)?,
            Stop::Exec => self.replaced(index)?,
            Stop::Suspended => {
                let thread = &mut self.threads[index];
                thread.state = State::Running;
                match control::listen(thread.tid) {
                    Err(error) if control::is_gone(&error) => {}
                    result => result.map_err(Error::control("keep it suspended"))?,
                }
            }
            Stop::Exited(_) | Stop::Killed(_) | Stop::Vanished => {
                let thread = self.threads.remove(index);
                match stop {
                    Stop::Exited(code) if thread.tid == self.process => self.ending = Ending::Exited(code),
                    Stop::Killed(signal) if thread.tid == self.process => {
                        self.ending = Ending::Killed(signal)
                    }
                    _ => {}
                }
                self.affinity.forget(thread.tid);
                let executing = thread.instruction.class == Class::SystemCall
                    && Some(thread.tid) == self.current
                    && matches!(stop, Stop::Exited(_));
                self.events.push_back(Event::Ended { thread: thread.tid, executing });
            }
        }
        Ok(())
    }

    /// Processes a stop of a thread between instructions.
    fn stepped(&mut self, index: usize, stop: Stop) -> std::io::Result<()> {
        let thread = &mut self.threads[index];
        let tid = thread.tid;
        if std::mem::take(&mut thread.breakpoint) {
            control::clear_breakpoint(tid);
        }
        let now = control::registers(tid)?;
        let before = std::mem::replace(&mut thread.registers, now);
        let instruction = thread.instruction;
        thread.state = State::Ready;
        if std::mem::take(&mut thread.replaced) {
            self.events.push_back(Event::Replaced { after: now });
            return Ok(());
        }
        let moved = now.pc != before.pc;
        let plain = thread.delivering == 0
            && (moved || instruction.repeated)
            && !matches!(instruction.class, Class::SystemCall | Class::Breakpoint);
        let cause = match stop {
            Stop::Trap if plain => TrapCause::Step,
            Stop::Trap => control::trap_cause(tid)?,
            _ => TrapCause::Signal,
        };
        let executed = match cause {
            TrapCause::Delivery => {
                self.events.push_back(Event::Delivered { before, after: now });
                return Ok(());
            }
            TrapCause::Step => moved || !instruction.repeated,
            // A call that was interrupted by a signal without a handler is restarted, and was
            // already reported.
            TrapCause::SystemCall => instruction.class == Class::SystemCall,
            TrapCause::Signal => {
                match stop {
                    Stop::Signal(signal) => thread.signal = signal,
                    Stop::Trap => thread.signal = libc::SIGTRAP,
                    _ => {}
                }
                moved || instruction.repeated && now.rcx != before.rcx
            }
        };
        if !executed {
            // Further iterations belong to the same transition.
            if instruction.repeated {
                thread.registers = before;
            }
            return Ok(());
        }
        if instruction.class == Class::SystemCall {
            self.note_mappings(before, now);
            if is_about_affinity(before.rax) {
                self.threads.iter().for_each(|thread| self.affinity.keep(thread.tid));
            }
        }
        self.events.push_back(Event::Executed { instruction, before, after: now });
        Ok(())
    }

    /// Discards decoded code that a system call may have remapped.
    fn note_mappings(&mut self, before: Registers, after: Registers) {
        let [first, second, third] = before.arguments;
        // The highest 4096 values are errors.
        if after.rax > u64::MAX - 4096 {
            return;
        }
        let range = |start: u64, length: u64| start..start.saturating_add(length);
        match before.rax as i64 {
            libc::SYS_mmap => self.code.forget(range(after.rax, second)),
            libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                self.code.forget(range(first, second));
            }
            libc::SYS_mremap => {
                self.code.forget(range(first, second));
                self.code.forget(range(after.rax, third));
            }
            libc::SYS_brk => self.code.forget(0..0),
            libc::SYS_shmat | libc::SYS_shmdt => self.code.forget(0..u64::MAX),
            _ => {}
        }
    }

    /// Processes a stop of a thread inside the system call that created another thread.
    fn cloned(&mut self, index: usize) -> Result<(), Error> {
        let stack = self.stack_of_clone(self.threads[index].registers);
        let created =
            control::event_thread(self.threads[index].tid).map_err(Error::control("query its new thread"))?;
        let known = self.early.iter().position(|(tid, _)| *tid == created);
        let stop = match known {
            Some(at) => Some(self.early.remove(at)),
            None => control::wait(Some(created), true).map_err(Error::control("wait for its new thread"))?,
        };
        let alive = matches!(stop, Some((_, Stop::Pause)));
        let ours = std::path::Path::new(&format!("/proc/{}/task/{}", self.process.0, created.0)).exists();
        if alive && !ours {
            // Another process with the same memory runs untraced, like all children.
            let _ = control::detach(created, 0);
        } else if alive {
            match control::registers(created) {
                Ok(registers) => {
                    self.threads.push(Thread::new(created, registers));
                    self.events.push_back(Event::Started { at: registers, stack });
                }
                Err(error) if control::is_gone(&error) => {}
                Err(error) => return Err(Error::control("read its registers")(error)),
            }
        }
        self.threads[index].delivering = 0;
        self.resume(index)
    }

    /// The stack that a call of `clone3` specifies for the new thread. Older calls do not specify
    /// its size.
    fn stack_of_clone(&self, call: Registers) -> Option<Range<u64>> {
        const STACK: u64 = std::mem::offset_of!(libc::clone_args, stack) as u64;
        const STACK_SIZE: u64 = std::mem::offset_of!(libc::clone_args, stack_size) as u64;
        let arguments = (call.rax as i64 == libc::SYS_clone3).then_some(call.arguments[0])?;
        let start = self.code.read_word(arguments.checked_add(STACK)?)?;
        let size = self.code.read_word(arguments.checked_add(STACK_SIZE)?)?;
        Some(start..start.checked_add(size)?)
    }

    /// Processes a stop inside the system call that replaced the program. The thread that called it
    /// is the main thread now.
    fn replaced(&mut self, index: usize) -> Result<(), Error> {
        let mut main = Thread::new(self.threads[index].tid, Registers::default());
        main.replaced = true;
        if !launch::is_for_this_machine(self.process) {
            // The new program cannot be decoded, so it continues untraced.
            self.affinity.release();
            self.threads.clear();
            let _ = control::detach(main.tid, 0);
            return Ok(());
        }
        for thread in self.threads.drain(..).filter(|thread| thread.tid != main.tid) {
            self.events.push_back(Event::Ended { thread: thread.tid, executing: false });
        }
        self.current = Some(main.tid);
        self.threads.push(main);
        self.code = CodeCache::open(self.process).map_err(Error::control("read its memory"))?;
        self.resume(0)
    }

    /// Lets the program continue untraced.
    pub(crate) fn release(&mut self) -> Result<Ending, Error> {
        self.affinity.release();
        for thread in std::mem::take(&mut self.threads) {
            let stop = match thread.state {
                State::Ready => None,
                State::Stopped(stop) => Some(stop),
                State::Running => self.halt(thread.tid)?,
            };
            let signal = match stop {
                None => thread.signal,
                Some(Stop::Signal(signal)) => signal,
                Some(Stop::Clone) => {
                    if let Ok(created) = control::event_thread(thread.tid) {
                        control::wait(Some(created), true).map_err(Error::control("release it"))?;
                        let _ = control::detach(created, 0);
                    }
                    0
                }
                Some(Stop::Exited(code)) if thread.tid == self.process => {
                    self.ending = Ending::Exited(code);
                    continue;
                }
                Some(Stop::Killed(signal)) if thread.tid == self.process => {
                    self.ending = Ending::Killed(signal);
                    continue;
                }
                _ => 0,
            };
            // Fails if the thread has ended.
            let _ = control::detach(thread.tid, signal);
        }
        Ok(self.ending)
    }

    /// Stops a thread that is in a system call.
    fn halt(&self, thread: Tid) -> Result<Option<Stop>, Error> {
        // Fails if the thread has ended, which will be reported.
        let _ = control::interrupt(thread);
        let mut stop = control::wait(Some(thread), true).map_err(Error::control("stop it"))?;
        if matches!(stop, Some((_, Stop::Pause))) {
            // The current step ends with a SIGTRAP, which would kill the thread once it is not
            // traced. It arrives with the next step, before an instruction is executed.
            let _ = control::step(thread, 0);
            stop = match wait_unless_asleep(self.process, thread)? {
                Some(stop) => Some((thread, stop)),
                None => {
                    let _ = control::interrupt(thread);
                    control::wait(Some(thread), true).map_err(Error::control("stop it"))?
                }
            };
        }
        Ok(stop.map(|(_, stop)| stop))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.affinity.release();
            control::kill(self.process);
        }
    }
}

/// Waits for the end of a released program.
pub(crate) fn wait_for_end(process: Tid) -> std::io::Result<Ending> {
    Ok(match control::wait_for_end(process)? {
        Stop::Exited(code) => Ending::Exited(code),
        Stop::Killed(signal) => Ending::Killed(signal),
        _ => Ending::Running,
    })
}
