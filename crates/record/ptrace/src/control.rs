//! Typed wrappers of the system calls for tracing, `ptrace` and `waitpid`.
//!
//! All calls must come from the thread that attached to the program with [`seize`]. A thread of the
//! program can be killed at any time; then calls fail with `ESRCH` ([`is_gone`]) and [`wait`]
//! reports its end.

use std::io;
use std::mem::MaybeUninit;

/// The id of a thread of the traced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tid(pub i32);

/// The registers that the recorder uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    /// The address of the next instruction.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The number of a system call, or its result.
    pub rax: u64,
    /// The counter of repeated instructions.
    pub rcx: u64,
    /// The first three arguments of a system call.
    pub arguments: [u64; 3],
}

/// The reason why a thread is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A step has ended, a signal was delivered to its handler, or the program got a `SIGTRAP`: see
    /// [`trap_cause`].
    Trap,
    /// A signal other than `SIGTRAP` is about to be delivered.
    Signal(i32),
    /// Inside a system call that created a thread, or a process that shares its memory.
    Clone,
    /// Inside a system call that replaced the program.
    Exec,
    /// The thread is new, was interrupted, or its process continues after it was stopped.
    Pause,
    /// Its process was stopped, for example by Ctrl-Z.
    Suspended,
    /// The thread has exited with this code.
    Exited(i32),
    /// The thread was killed by this signal.
    Killed(i32),
    /// The thread has ended without a report, because another thread replaced the program.
    Vanished,
}

/// The cause of a [`Stop::Trap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrapCause {
    /// An instruction was executed.
    Step,
    /// A system call has ended.
    SystemCall,
    /// A signal was delivered: the next instruction is the first of its handler.
    Delivery,
    /// A `SIGTRAP` is about to be delivered, from a breakpoint of the program or from a sender.
    Signal,
}

/// Whether an error means that the thread has been killed.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A request that does not access memory of the recorder.
fn request(request: libc::c_uint, tid: Tid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers below pass requests that take address and data as plain numbers.
    check(unsafe { libc::ptrace(request, tid.0, address, data) })
}

/// Attaches to a running thread of a child. If the recorder ends in any way, the traced program is
/// killed.
pub(crate) fn seize(tid: Tid) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// Lets a stopped thread execute one instruction, or delivers a signal to it.
pub(crate) fn step(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize)
}

/// Lets a stopped thread run until it is about to execute the instruction at `target`. After any
/// stop, the breakpoint must be removed with [`clear_breakpoint`] before the thread runs again.
///
/// # Errors
/// Also if the system has no free breakpoint; then the thread is unchanged.
pub(crate) fn run_to(tid: Tid, target: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEUSER, tid, debug_register(0), target as usize)?;
    request(libc::PTRACE_POKEUSER, tid, debug_register(7), ENABLE_FIRST)?;
    request(libc::PTRACE_CONT, tid, 0, 0).inspect_err(|_| clear_breakpoint(tid))
}

/// Removes the breakpoint of [`run_to`]. If this fails, the thread has ended.
pub(crate) fn clear_breakpoint(tid: Tid) {
    let _ = request(libc::PTRACE_POKEUSER, tid, debug_register(7), 0);
}

/// Bit of the debug control register: the first breakpoint is enabled, for execution.
const ENABLE_FIRST: usize = 1;

fn debug_register(number: usize) -> usize {
    std::mem::offset_of!(libc::user, u_debugreg) + number * 8
}

/// Leaves a thread suspended together with its process. [`wait`] reports when it continues.
pub(crate) fn listen(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Makes a running thread stop with [`Stop::Pause`].
pub(crate) fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Detaches from a stopped thread, which continues with a signal.
pub(crate) fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The registers of a stopped thread.
pub(crate) fn registers(tid: Tid) -> io::Result<Registers> {
    let mut all = MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the request writes one such structure through the data pointer, which points to a
    // variable of this type.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid.0, 0, all.as_mut_ptr()) };
    check(result)?;
    // SAFETY: the request succeeded, so the system has initialized the structure, which consists of
    // integers.
    let all = unsafe { all.assume_init() };
    Ok(Registers {
        pc: all.rip,
        sp: all.rsp,
        rax: all.rax,
        rcx: all.rcx,
        arguments: [all.rdi, all.rsi, all.rdx],
    })
}

/// The new thread of a [`Stop::Clone`].
pub(crate) fn event_thread(tid: Tid) -> io::Result<Tid> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the request writes one such integer through the data pointer.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid.0, 0, &raw mut message) };
    check(result)?;
    Ok(Tid(message as i32))
}

/// The cause of a [`Stop::Trap`].
pub(crate) fn trap_cause(tid: Tid) -> io::Result<TrapCause> {
    let mut information = MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: the request writes one such structure through the data pointer, which points to a
    // variable of this type.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, tid.0, 0, information.as_mut_ptr()) };
    check(result)?;
    // SAFETY: the request succeeded, so the system has initialized the structure, which consists of
    // integers.
    let information = unsafe { information.assume_init() };
    Ok(match information.si_code {
        libc::TRAP_TRACE | libc::TRAP_HWBKPT => TrapCause::Step,
        libc::TRAP_BRKPT => TrapCause::SystemCall,
        // The code of stops that the kernel makes only for tracers.
        libc::SIGTRAP => TrapCause::Delivery,
        _ => TrapCause::Signal,
    })
}

/// Waits for a stop of a thread, or of any thread traced by the calling one. Returns `None` if
/// there is no stop and `block` is not set, or if no thread is left.
pub(crate) fn wait(tid: Option<Tid>, block: bool) -> io::Result<Option<(Tid, Stop)>> {
    // Only children of this thread, so that several recorders can work in one program.
    let options = libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG };
    let which = tid.map_or(-1, |tid| tid.0);
    let mut status = 0;
    loop {
        // SAFETY: the call writes one integer through its second argument.
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
    // SAFETY: takes plain numbers. The process is a child that was not waited for, so its id was
    // not reused.
    let _ = unsafe { libc::kill(process.0, libc::SIGKILL) };
    while let Ok(Some((_, stop))) = wait(Some(process), true) {
        if matches!(stop, Stop::Exited(_) | Stop::Killed(_) | Stop::Vanished) {
            break;
        }
    }
}

/// Waits for the end of a process that is no longer traced.
pub(crate) fn wait_for_end(process: Tid) -> io::Result<Stop> {
    let mut status = 0;
    loop {
        // SAFETY: the call writes one integer through its second argument.
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
