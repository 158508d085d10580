//! The boundary to the emulator of one program: its calls into the plugin, and the turns of threads.
//!
//! Each thread of the program is a virtual processor with a thread of its own. They take turns, so that
//! the records have one order, in which the program could have run: a thread executes until it calls the
//! system, or until it has executed some instructions and another one waits. A word for each processor
//! makes translated code ask for the turn at the next block. The emulator can stop the thread whose turn
//! it is for a short time, which the plugin cannot observe; then, the next one begins.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::api::{self, Api, Array, Block, Counter, Id, Scoreboard};
use crate::channel::Channel;
use crate::decode::{self, Effect, Target};
use crate::emulator::{self, Registers, View};
use crate::program::{Instruction, Program};
use crate::protocol::{Kind, Ring};

/// The number of instructions after which another thread may have the turn.
const TURN: u64 = 5_000;
/// How long a thread waits for one that executes nothing.
const PATIENCE: Duration = Duration::from_millis(10);
/// The value of the word of a thread that need not ask.
const MAY_EXECUTE: u64 = 1;
/// The lowest descriptor for records, out of the way of the program.
const DESCRIPTOR: c_int = 1000;
/// The result of system calls that failed is at least this.
const ERRORS: u64 = -4095_i64 as u64;
/// Executable memory.
const EXECUTABLE: u64 = 4;

/// The numbers of system calls.
mod number {
    pub const CLOSE: i64 = 3;
    pub const MMAP: i64 = 9;
    pub const MPROTECT: i64 = 10;
    pub const MUNMAP: i64 = 11;
    pub const SIGACTION: i64 = 13;
    pub const MREMAP: i64 = 25;
    pub const DUP2: i64 = 33;
    pub const CLONE: i64 = 56;
    pub const FORK: i64 = 57;
    pub const VFORK: i64 = 58;
    pub const EXECVE: i64 = 59;
    pub const EXIT: i64 = 60;
    pub const SIGALTSTACK: i64 = 131;
    pub const EXIT_GROUP: i64 = 231;
    pub const DUP3: i64 = 292;
    pub const EXECVEAT: i64 = 322;
    pub const PKEY_MPROTECT: i64 = 329;
    pub const CLONE3: i64 = 435;
    pub const CLOSE_RANGE: i64 = 436;
}

/// The state of the plugin. It is set once, before the emulator calls anything else.
static USER: OnceLock<User> = OnceLock::new();

struct User {
    api: Api,
    /// For each processor: the number of instructions that have begun, and whether it may execute.
    scoreboard: AtomicPtr<Scoreboard>,
    descriptor: c_int,
    stopped: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    program: Program,
    turns: Turns,
    /// The number of processors.
    cpus: u32,
    /// All blocks are checked for handlers of signals, because one was translated before it was a handler.
    checks_blocks: bool,
}

#[derive(Default)]
struct Turns {
    holder: Option<u32>,
    waiting: VecDeque<u32>,
    /// The number of instructions of the holder when its turn began.
    since: u64,
}

/// The access of a thread to its processor.
struct Access {
    registers: Registers,
    buffer: *mut Array,
}

thread_local! {
    /// It is read when the thread first needs it, and exists as long as the thread.
    static ACCESS: Cell<Option<&'static Access>> = const { Cell::new(None) };
    /// The first arguments of the system call that the thread executes.
    static ARGUMENTS: Cell<[u64; 3]> = const { Cell::new([0; 3]) };
}

unsafe extern "C" {
    fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
}

const F_DUPFD_CLOEXEC: c_int = 1030;
const F_SETFD: c_int = 2;
const FD_CLOEXEC: c_int = 1;

/// Called when the plugin is loaded.
pub fn install(id: Id, api: Api, ring: &'static Ring, output: File) {
    // Programs that the program starts do not inherit it.
    // SAFETY: these commands take a number, and the descriptor is open.
    let output = match unsafe { fcntl(output.as_raw_fd(), F_DUPFD_CLOEXEC, DESCRIPTOR) } {
        -1 => {
            // SAFETY: as above.
            unsafe { fcntl(output.as_raw_fd(), F_SETFD, FD_CLOEXEC) };
            output
        }
        // SAFETY: the system has returned a new descriptor.
        higher => unsafe { File::from_raw_fd(higher) },
    };
    let maps = || std::fs::read("/proc/self/maps").unwrap_or_default();
    let user = User {
        api,
        scoreboard: AtomicPtr::new((api.scoreboard_new)(size_of::<[u64; 2]>())),
        descriptor: output.as_raw_fd(),
        stopped: AtomicBool::new(false),
        state: Mutex::new(State {
            program: Program::new(Channel::new(ring, output), maps),
            turns: Turns::default(),
            cpus: 0,
            checks_blocks: false,
        }),
        changed: Condvar::new(),
    };
    if USER.set(user).is_err() {
        return;
    }
    (api.register_vcpu_init_cb)(id, thread_started);
    (api.register_vcpu_tb_trans_cb)(id, block_translated);
    (api.register_vcpu_syscall_cb)(id, system_called);
    (api.register_vcpu_syscall_ret_cb)(id, system_returned);
    (api.register_atexit_cb)(id, exited, std::ptr::null_mut());
}

impl User {
    /// Returns the state, unless the recording has ended.
    fn active() -> Option<&'static User> {
        USER.get().filter(|user| !user.stopped.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn words(&self, cpu: u32) -> *mut [u64; 2] {
        (self.api.scoreboard_find)(self.scoreboard.load(Ordering::Relaxed), cpu).cast()
    }

    /// The number of instructions of a processor that have begun.
    fn executed(&self, cpu: u32) -> u64 {
        // SAFETY: the emulator has the element of each processor that has started, and moves it only
        // while no processor executes. Translated code changes aligned words.
        unsafe { (&raw const (*self.words(cpu))[0]).read_volatile() }
    }

    fn allow(&self, cpu: u32, word: u64) {
        // SAFETY: as above.
        unsafe { (&raw mut (*self.words(cpu))[1]).write_volatile(word) };
    }

    /// Calls the observation with the processor of this thread.
    fn with<R>(&self, state: &mut State, call: impl FnOnce(&mut Program, &mut View) -> R) -> R {
        let access = ACCESS.get().unwrap_or_else(|| {
            let registers = emulator::registers(self.api);
            let buffer = (self.api.byte_array_new)();
            let access: &Access = Box::leak(Box::new(Access { registers, buffer }));
            ACCESS.set(Some(access));
            access
        });
        let executed: u64 = (0..state.cpus).map(|cpu| self.executed(cpu)).sum();
        let Access { registers, buffer } = access;
        let mut view = View { api: &self.api, registers, buffer: *buffer, executed: &raw const executed };
        call(&mut state.program, &mut view)
    }

    /// Waits for the turn of a thread.
    fn wait<'a>(&'a self, cpu: u32, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.turns.holder != Some(cpu) && !self.stopped.load(Ordering::Relaxed) {
            let turns = &mut state.turns;
            if turns.holder.is_none() && turns.is_next(cpu) {
                turns.take(cpu, self.executed(cpu));
                break;
            }
            if !turns.waiting.contains(&cpu) {
                turns.waiting.push_back(cpu);
            }
            let holder = turns.holder;
            let progress = |holder: Option<u32>| holder.map(|holder| self.executed(holder));
            if let Some(holder) = holder {
                self.allow(holder, 0);
            }
            let before = progress(holder);
            let waited = self.changed.wait_timeout(state, PATIENCE);
            let (again, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            let turns = &mut state.turns;
            let is_stopped = turns.holder == holder && progress(holder) == before;
            if result.timed_out() && is_stopped && turns.is_next(cpu) {
                turns.take(cpu, self.executed(cpu));
            }
        }
        let alone = state.turns.waiting.is_empty() && !state.checks_blocks;
        self.allow(cpu, if alone { MAY_EXECUTE } else { 0 });
        state
    }

    /// Ends the turn of a thread.
    fn release(&self, cpu: u32, state: &mut State) {
        self.allow(cpu, 0);
        if state.turns.holder == Some(cpu) {
            state.turns.holder = None;
            self.changed.notify_all();
        }
    }

    /// Ends the recording.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// A thread is about to execute a block, and has to ask.
    fn block_begins(&self, cpu: u32, address: u64, is_handler: bool) {
        let mut state = self.lock();
        let turns = &state.turns;
        let is_over = self.executed(cpu).wrapping_sub(turns.since) >= TURN;
        if turns.holder == Some(cpu) && !turns.waiting.is_empty() && is_over {
            self.with(&mut state, |program, view| program.completed(cpu, view));
            self.release(cpu, &mut state);
        }
        let mut state = self.wait(cpu, state);
        // A handler has a call of its own.
        if !is_handler {
            self.with(&mut state, |program, view| program.handler_begins(cpu, address, view));
        }
    }
}

impl Turns {
    fn is_next(&self, cpu: u32) -> bool {
        self.waiting.front().is_none_or(|&next| next == cpu)
    }

    fn take(&mut self, cpu: u32, executed: u64) {
        self.waiting.retain(|&waiting| waiting != cpu);
        self.holder = Some(cpu);
        self.since = executed;
    }
}

/// Calls the observation, unless the recording has ended.
fn with<R>(call: impl FnOnce(&mut Program, &mut View) -> R) -> Option<R> {
    let user = User::active()?;
    let mut state = user.lock();
    Some(user.with(&mut state, call))
}

extern "C" fn thread_started(_: Id, cpu: c_uint) {
    let Some(user) = User::active() else { return };
    // A link such as `123/task/456`.
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    let mut state = user.lock();
    state.cpus = state.cpus.max(cpu + 1);
    state.program.start(cpu, number.unwrap_or_default());
    user.allow(cpu, 0);
}

extern "C" fn block_translated(_: Id, block: *mut Block) {
    let Some(user) = User::active() else { return };
    let api = user.api;
    let scoreboard = user.scoreboard.load(Ordering::Relaxed);
    let executed = Counter { scoreboard, offset: 0 };
    let count = (api.tb_n_insns)(block);
    let mut after_load = false;
    // Instructions that cannot stop the block are counted with the next one that can.
    let mut uncounted = 0;
    for index in 0..count {
        let instruction = (api.tb_get_insn)(block, index);
        let address = (api.insn_vaddr)(instruction);
        if index == 0 {
            let userdata = address as usize as *mut c_void;
            let is_handler = user.lock().program.block(address);
            let asks = if is_handler { handler_asks } else { block_asks };
            let word = Counter { scoreboard, offset: size_of::<u64>() };
            let (flags, unless) = (api::READS_REGISTERS, api::NOT_EQUAL);
            (api.register_vcpu_tb_exec_cond_cb)(block, asks, flags, unless, word, MAY_EXECUTE, userdata);
            if is_handler {
                (api.register_vcpu_insn_exec_cb)(instruction, handler_begins, flags, userdata);
            }
        } else if after_load {
            let nothing = std::ptr::null_mut();
            (api.register_vcpu_insn_exec_cb)(instruction, completed, api::READS_REGISTERS, nothing);
        }
        let mut bytes = [0_u8; 16];
        let length = (api.insn_size)(instruction).min(bytes.len());
        let read = (api.insn_data)(instruction, bytes.as_mut_ptr().cast(), length).min(length);
        let bytes = &bytes[..read];
        let effect = decode::effect(bytes).or_else(|| decode::indirect_jump(bytes).map(Effect::Jump));
        uncounted += 1;
        if effect.is_some() || index + 1 == count || !decode::completes(bytes) {
            (api.register_vcpu_insn_exec_inline_per_vcpu)(instruction, api::ADD, executed, uncounted);
            uncounted = 0;
        }
        after_load = effect == Some(Effect::LoadsStackPointer);
        let Some(effect) = effect else { continue };
        let known = user.lock().program.keep(Instruction { address, length: length as u8, effect });
        let userdata = known as usize as *mut c_void;
        let accesses = match effect {
            Effect::Repeated => {
                (api.register_vcpu_insn_exec_cb)(instruction, repeated, api::NO_REGISTERS, userdata);
                continue;
            }
            Effect::Call(_) => api::READS_AND_WRITES,
            Effect::Return { .. } | Effect::Jump(Target::Memory) => api::READS,
            _ => {
                (api.register_vcpu_insn_exec_cb)(instruction, begins, api::READS_REGISTERS, userdata);
                continue;
            }
        };
        let flags = match effect {
            Effect::Call(Target::Register(_)) | Effect::Jump(_) => api::READS_REGISTERS,
            _ => api::NO_REGISTERS,
        };
        (api.register_vcpu_mem_cb)(instruction, accessed, flags, accesses, userdata);
    }
}

extern "C" fn block_asks(cpu: c_uint, address: *mut c_void) {
    if let Some(user) = User::active() {
        user.block_begins(cpu, address as u64, false);
    }
}

extern "C" fn handler_asks(cpu: c_uint, address: *mut c_void) {
    if let Some(user) = User::active() {
        user.block_begins(cpu, address as u64, true);
    }
}

extern "C" fn handler_begins(cpu: c_uint, address: *mut c_void) {
    with(|program, view| program.handler_begins(cpu, address as u64, view));
}

extern "C" fn begins(cpu: c_uint, instruction: *mut c_void) {
    with(|program, view| program.begins(cpu, instruction as usize as u32, view));
}

extern "C" fn completed(cpu: c_uint, _: *mut c_void) {
    with(|program, view| program.completed(cpu, view));
}

extern "C" fn repeated(cpu: c_uint, instruction: *mut c_void) {
    with(|program, view| program.repeated(cpu, instruction as usize as u32, view));
}

extern "C" fn accessed(cpu: c_uint, access: u32, address: u64, instruction: *mut c_void) {
    with(|program, view| {
        let is_store = (view.api.mem_is_store)(access);
        let value = (view.api.mem_get_value)(access).low;
        program.accessed(cpu, instruction as usize as u32, (is_store, address, value), view);
    });
}

#[allow(clippy::too_many_arguments, reason = "the interface of the emulator")]
extern "C" fn system_called(
    _: Id,
    cpu: c_uint,
    number: i64,
    first: u64,
    second: u64,
    third: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    let Some(user) = User::active() else { return };
    ARGUMENTS.set([first, second, third]);
    let mut state = user.lock();
    let descriptor = user.descriptor as u64;
    let closes = match number {
        number::CLOSE => first == descriptor,
        number::DUP2 | number::DUP3 => second == descriptor,
        number::CLOSE_RANGE => (first..=second).contains(&descriptor),
        _ => false,
    };
    if closes {
        user.with(&mut state, |program, view| program.end(1, view));
        return user.stop();
    }
    match number {
        // These do not wait, and their results are recorded in order. A copy of the process is made
        // while no other thread records.
        number::MMAP
        | number::MPROTECT
        | number::MUNMAP
        | number::MREMAP
        | number::CLONE
        | number::FORK
        | number::VFORK
        | number::SIGALTSTACK
        | number::PKEY_MPROTECT
        | number::CLONE3 => return,
        number::SIGACTION => {
            let known = user.with(&mut state, |program, view| program.register(second, view));
            state.checks_blocks |= known;
        }
        number::EXECVE | number::EXECVEAT => state.program.flush(),
        number::EXIT | number::EXIT_GROUP => user.with(&mut state, |program, view| program.thread_ends(view)),
        _ => {}
    }
    user.release(cpu, &mut state);
}

extern "C" fn system_returned(_: Id, _: c_uint, number: i64, result: i64) {
    let Some(user) = User::active() else { return };
    let [first, second, third] = ARGUMENTS.get();
    let failed = result as u64 >= ERRORS;
    match number {
        number::MMAP | number::MPROTECT | number::PKEY_MPROTECT if !failed && third & EXECUTABLE != 0 => {
            with(|program, view| program.send_maps(1, view));
        }
        number::MUNMAP | number::MREMAP if !failed && result as u64 != first => {
            let end = first.saturating_add(second);
            with(|program, view| program.memory(Kind::Released, first, end, view));
        }
        number::SIGALTSTACK if !failed && first != 0 => {
            with(|program, view| program.signal_stack(first, view));
        }
        number::CLONE | number::FORK | number::VFORK | number::CLONE3 if result == 0 => {
            user.lock().program.abandon();
            user.stop();
        }
        _ => {}
    }
}

extern "C" fn exited(_: Id, _: *mut c_void) {
    with(|program, view| program.end(0, view));
}
