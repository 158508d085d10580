//! Asynchronous procedure calls: queued, delivered, removed, run down.
//!
//! The threads of the fake take their APCs at fixed points, see `targets.rs`; other threads take
//! none. As on Windows, an APC has left its queue when its kernel routine or rundown routine is
//! called, and a thread that has run down its queue takes no more APCs.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Mutex;

use windows_sys::Win32::System::Threading::GetCurrentThreadId;
use windows_sys::Win32::System::WindowsProgramming::QueryUnbiasedInterruptTime;

use super::kapc::{Kapc, KernelRoutine, RundownRoutine};
use super::log::log;
use super::{Boolean, Object, targets, threads};
use crate::settings::Settings;

/// The queues of all threads.
struct Queues {
    /// The queued APCs, oldest first, each with its thread.
    queued: Vec<(usize, u32)>,
    /// Threads that take no more APCs.
    closed: Vec<u32>,
}

static QUEUES: Mutex<Queues> = Mutex::new(Queues { queued: Vec::new(), closed: Vec::new() });

/// The IRQL at which special kernel APCs run.
const APC_LEVEL: u8 = 1;

thread_local! {
    static LEVEL: Cell<u8> = const { Cell::new(0) };
    /// The number of critical regions that the thread has entered and not left.
    static REGIONS: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread has left each critical region that it has entered. Otherwise, Windows
/// would stop when the thread returns to user mode.
pub(super) fn has_left_regions() -> bool {
    REGIONS.get() == 0
}

/// Calls a function with the locked queues.
fn with_queues<T>(run: impl FnOnce(&mut Queues) -> T) -> T {
    run(&mut QUEUES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl Queues {
    /// Removes the first APC that matches.
    fn take(&mut self, matches: impl Fn(usize, u32) -> bool) -> Option<*mut Kapc> {
        let index = self.queued.iter().position(|&(apc, tid)| matches(apc, tid))?;
        let apc = self.queued.remove(index).0 as *mut Kapc;
        // SAFETY: the driver keeps a queued APC until a routine was called for it or it was
        // removed; both begin here, and the queues are locked.
        unsafe { (*apc).inserted = 0 };
        Some(apc)
    }
}

/// Whether a thread has APCs in its queue.
pub(super) fn is_queued(tid: u32) -> bool {
    with_queues(|queues| queues.queued.iter().any(|&(_, queued)| queued == tid))
}

/// # Safety
/// As KeInitializeApc: `apc` is memory for an APC.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_KeInitializeApc(
    apc: *mut Kapc,
    thread: Object,
    environment: i8,
    kernel_routine: Option<KernelRoutine>,
    rundown_routine: Option<RundownRoutine>,
    normal_routine: *mut c_void,
    mode: i8,
    normal_context: *mut c_void,
) {
    log(format_args!(
        "KeInitializeApc {} environment {environment} rundown {} normal {} mode {mode}",
        threads::number(thread),
        rundown_routine.is_some(),
        !normal_routine.is_null(),
    ));
    let new =
        Kapc::new(thread, environment, kernel_routine, rundown_routine, normal_routine, mode, normal_context);
    // SAFETY: the contract of the caller.
    unsafe { apc.write(new) };
}

/// # Safety
/// As KeInsertQueueApc: an initialized APC, which is not moved until it has run, was run down or
/// removed.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_KeInsertQueueApc(
    apc: *mut Kapc,
    argument1: *mut c_void,
    argument2: *mut c_void,
    increment: i32,
) -> Boolean {
    // SAFETY: the contract of the caller.
    let tid = threads::number(unsafe { (*apc).thread });
    let queued = with_queues(|queues| {
        // SAFETY: the contract of the caller; once queued, the APC is changed only while the queues
        // are locked.
        let apc_now = unsafe { &mut *apc };
        if !targets::takes(tid) || queues.closed.contains(&tid) || apc_now.inserted != 0 {
            return false;
        }
        apc_now.inserted = 1;
        apc_now.arguments = [argument1, argument2];
        queues.queued.push((apc as usize, tid));
        // Logged under the lock, so that this line comes before that of its run.
        log(format_args!("KeInsertQueueApc {tid} increment {increment} = 1"));
        true
    });
    if queued {
        targets::apc_queued();
    } else {
        log(format_args!("KeInsertQueueApc {tid} increment {increment} = 0"));
    }
    queued.into()
}

/// Runs the APCs of the calling thread, as the APC dispatcher of the kernel does.
#[inline(never)]
pub(super) extern "C" fn deliver() {
    // SAFETY: no pointers.
    let tid = unsafe { GetCurrentThreadId() };
    while let Some(apc) = with_queues(|queues| queues.take(|_, queued| queued == tid)) {
        // SAFETY: just removed from the queue, so the contract of the driver still holds.
        let of_driver = unsafe { &*apc };
        let kernel_routine = of_driver.kernel_routine;
        let mut normal_routine = of_driver.normal_routine;
        let mut normal_context = of_driver.normal_context;
        let [mut argument1, mut argument2] = of_driver.arguments;
        log(format_args!("runs {tid}"));
        LEVEL.set(APC_LEVEL);
        if let Some(routine) = kernel_routine {
            // SAFETY: the driver's routine, with the arguments of KKERNEL_ROUTINE. The APC is not
            // used afterwards.
            unsafe { routine(apc, &mut normal_routine, &mut normal_context, &mut argument1, &mut argument2) };
        }
        LEVEL.set(0);
        log(format_args!("ran {tid}"));
    }
}

/// Runs down the APCs of the calling thread, which is terminating.
pub(super) fn run_down() {
    // SAFETY: no pointers.
    let tid = unsafe { GetCurrentThreadId() };
    let next = |queues: &mut Queues| {
        queues.closed.push(tid);
        queues.take(|_, queued| queued == tid)
    };
    while let Some(apc) = with_queues(next) {
        // SAFETY: just removed from the queue, so the contract of the driver still holds.
        let routine = unsafe { (*apc).rundown_routine };
        log(format_args!("runs down {tid}"));
        LEVEL.set(APC_LEVEL);
        if let Some(routine) = routine {
            // SAFETY: the driver's routine, with the arguments of KRUNDOWN_ROUTINE. The APC is not
            // used afterwards.
            unsafe { routine(apc) };
        }
        LEVEL.set(0);
        log(format_args!("run down {tid}"));
    }
}

/// # Safety
/// As KeRemoveQueueApc: an initialized APC.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_KeRemoveQueueApc(apc: *mut Kapc) -> Boolean {
    let removed = with_queues(|queues| queues.take(|queued, _| queued == apc as usize)).is_some();
    log(format_args!("KeRemoveQueueApc = {}", u8::from(removed)));
    removed.into()
}

/// The IRQL of the calling thread.
#[unsafe(no_mangle)]
extern "system" fn fake_KeGetCurrentIrql() -> u8 {
    LEVEL.get()
}

/// The time since the start of the system, without sleep, in 100 ns.
#[unsafe(no_mangle)]
extern "system" fn fake_KeQueryUnbiasedInterruptTime() -> u64 {
    let mut time = 0;
    // SAFETY: `time` is a variable.
    unsafe { QueryUnbiasedInterruptTime(&mut time) };
    time
}

/// Prevents the suspension of the calling thread, which needs a normal kernel APC.
#[unsafe(no_mangle)]
extern "system" fn fake_KeEnterCriticalRegion() {
    REGIONS.set(REGIONS.get() + 1);
    log(format_args!("KeEnterCriticalRegion {}", REGIONS.get()));
}

/// Reverts one call of KeEnterCriticalRegion.
#[unsafe(no_mangle)]
extern "system" fn fake_KeLeaveCriticalRegion() {
    let left = REGIONS.get().checked_sub(1).expect("a critical region to leave");
    REGIONS.set(left);
    log(format_args!("KeLeaveCriticalRegion {left}"));
}

/// Whether the calling thread is in a critical region. A test can set this for threads that take
/// APCs.
#[unsafe(no_mangle)]
extern "system" fn fake_KeAreApcsDisabled() -> Boolean {
    let inside = REGIONS.get() > 0 || LEVEL.get() == APC_LEVEL && Settings::current().region;
    log(format_args!("KeAreApcsDisabled = {}", u8::from(inside)));
    inside.into()
}

/// Whether the calling thread is attached to another process. A test can set this.
#[unsafe(no_mangle)]
extern "system" fn fake_KeIsAttachedProcess() -> Boolean {
    Settings::current().attached.into()
}
