//! The system's calls for tracing, with types.
//!
//! Knows `ptrace` and `waitpid`; must not know instructions or stacks. All calls must come from the thread that took hold
//! of the program with [`seize`]. A thread of the program can be killed at any time; then calls fail with `ESRCH`
//! ([`is_gone`]) and [`wait`] tells its end.

use std::io;
use std::mem::MaybeUninit;

/// A thread of the traced program, by the system's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tid(pub i32);

/// The registers that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    /// The address of the next instruction.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The number of a system call, later its result.
    pub rax: u64,
    /// What repeated instructions count down.
    pub rcx: u64,
    /// The arguments of a system call, the first three.
    pub arguments: [u64; 3],
}

/// Why a thread is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// After a step, at the delivery of a signal to its handler, or because of a `SIGTRAP`: see [`trap_cause`].
    Trap,
    /// A signal other than `SIGTRAP` is about to be delivered.
    Signal(i32),
    /// Inside a system call that made a new thread, or a process that shares its memory.
    Clone,
    /// Inside a system call that replaced the program.
    Exec,
    /// It is new, or was interrupted, or its process goes on after it was stopped.
    Pause,
    /// Its process was stopped, as by ctrl-Z.
    Suspended,
    /// It is no more: exit code.
    Exited(i32),
    /// It is no more: signal.
    Killed(i32),
    /// It is no more, and nothing is told of its end: another thread replaced the program.
    Vanished,
}

/// Why a thread stopped with [`Stop::Trap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrapCause {
    /// An instruction was executed.
    Step,
    /// A system call came to its end.
    SystemCall,
    /// A signal was delivered: the next instruction is the first of its handler.
    Delivery,
    /// A `SIGTRAP` is about to be delivered: a breakpoint of the program's own, or sent by somebody.
    Signal,
}

/// Whether an error says that the thread has been killed.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A request that reads and writes no memory of ours.
fn request(request: libc::c_uint, tid: Tid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers below pass requests that take address and data as plain numbers.
    check(unsafe { libc::ptrace(request, tid.0, address, data) })
}

/// Takes hold of a running thread of a child. If this program ends in any way, the traced one is killed.
pub(crate) fn seize(tid: Tid) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// Lets a stopped thread execute one instruction, or be delivered a signal.
pub(crate) fn step(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize)
}

/// Lets a stopped thread run until it is about to execute the instruction at `target`. Whatever else stops it, the
/// breakpoint must be taken away by [`clear_breakpoint`] before it runs again.
///
/// # Errors
/// Also where the system has no breakpoints to give; then the thread is as it was.
pub(crate) fn run_to(tid: Tid, target: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEUSER, tid, debug_register(0), target as usize)?;
    request(libc::PTRACE_POKEUSER, tid, debug_register(7), ENABLE_FIRST)?;
    request(libc::PTRACE_CONT, tid, 0, 0).inspect_err(|_| clear_breakpoint(tid))
}

/// Takes the breakpoint of [`run_to`] away. If this fails, the thread is gone.
pub(crate) fn clear_breakpoint(tid: Tid) {
    let _ = request(libc::PTRACE_POKEUSER, tid, debug_register(7), 0);
}

/// In the control register: the first breakpoint counts, at execution.
const ENABLE_FIRST: usize = 1;

fn debug_register(number: usize) -> usize {
    std::mem::offset_of!(libc::user, u_debugreg) + number * 8
}

/// Leaves a thread suspended together with its process; [`wait`] tells when it goes on.
pub(crate) fn listen(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Asks a running thread to stop with [`Stop::Pause`].
pub(crate) fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread run on by itself, with a signal.
pub(crate) fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The registers of a stopped thread.
pub(crate) fn registers(tid: Tid) -> io::Result<Registers> {
    let mut all = MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the request writes one such structure to where data points, which is large enough and ours.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid.0, 0, all.as_mut_ptr()) };
    check(result)?;
    // SAFETY: the request succeeded, so the system has filled it; it consists of integers.
    let all = unsafe { all.assume_init() };
    Ok(Registers {
        pc: all.rip,
        sp: all.rsp,
        rax: all.rax,
        rcx: all.rcx,
        arguments: [all.rdi, all.rsi, all.rdx],
    })
}

/// The number of the thread that [`Stop::Clone`] is about.
pub(crate) fn event_thread(tid: Tid) -> io::Result<Tid> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the request writes one such integer to where data points.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid.0, 0, &raw mut message) };
    check(result)?;
    Ok(Tid(message as i32))
}

/// Why a thread stopped with [`Stop::Trap`].
pub(crate) fn trap_cause(tid: Tid) -> io::Result<TrapCause> {
    let mut information = MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: the request writes one such structure to where data points, which is large enough and ours.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, tid.0, 0, information.as_mut_ptr()) };
    check(result)?;
    // SAFETY: the request succeeded, so the system has filled it; it consists of integers.
    let information = unsafe { information.assume_init() };
    Ok(match information.si_code {
        libc::TRAP_TRACE | libc::TRAP_HWBKPT => TrapCause::Step,
        libc::TRAP_BRKPT => TrapCause::SystemCall,
        // What the kernel gives for stops that it makes for tracers only.
        libc::SIGTRAP => TrapCause::Delivery,
        _ => TrapCause::Signal,
    })
}

/// What has become of a thread, or of any thread traced by the calling one; `None` if nothing has and `block` is not
/// set, or if no thread is left.
pub(crate) fn wait(tid: Option<Tid>, block: bool) -> io::Result<Option<(Tid, Stop)>> {
    // Only those of this thread, so that several recorders can be at work in one program.
    let options = libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG };
    let which = tid.map_or(-1, |tid| tid.0);
    let mut status = 0;
    loop {
        // SAFETY: the call writes one integer to where its second argument points.
        let found = unsafe { libc::waitpid(which, &raw mut status, options) };
        match found {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::ECHILD) => return Ok(tid.map(|tid| (tid, Stop::Vanished))),
                    _ => return Err(error),
                }
            }
            found => return Ok(Some((Tid(found), stop(status)))),
        }
    }
}

/// Kills a traced process and waits for its end.
pub(crate) fn kill(process: Tid) {
    // SAFETY: takes plain numbers. The process is a child whose end was not waited for, so the number is still its own.
    let _ = unsafe { libc::kill(process.0, libc::SIGKILL) };
    while let Ok(Some((_, stop))) = wait(Some(process), true) {
        if matches!(stop, Stop::Exited(_) | Stop::Killed(_) | Stop::Vanished) {
            break;
        }
    }
}

/// Waits for the end of a process that is no longer traced: how it ended.
pub(crate) fn wait_for_end(process: Tid) -> io::Result<Stop> {
    let mut status = 0;
    loop {
        // SAFETY: the call writes one integer to where its second argument points.
        let found = unsafe { libc::waitpid(process.0, &raw mut status, 0) };
        if found == process.0 {
            return Ok(stop(status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn stop(status: i32) -> Stop {
    if libc::WIFEXITED(status) {
        return Stop::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Stop::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    match (status >> 16, signal) {
        (0, libc::SIGTRAP) => Stop::Trap,
        (0, signal) => Stop::Signal(signal),
        (libc::PTRACE_EVENT_CLONE, _) => Stop::Clone,
        (libc::PTRACE_EVENT_EXEC, _) => Stop::Exec,
        (libc::PTRACE_EVENT_STOP, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => {
            Stop::Suspended
        }
        _ => Stop::Pause,
    }
}
