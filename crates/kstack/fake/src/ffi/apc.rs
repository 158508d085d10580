//! Asynchronous procedure calls: queued, delivered, removed, run down.
//!
//! The threads that the fake has made take their APCs at places of their own, see `targets.rs`; others take
//! none. As in Windows, an APC is in no queue any more when its kernel routine or its rundown routine is
//! called, and a thread that has run down its queue takes no more.

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
    /// The APCs that are queued, the oldest first, each with its thread.
    queued: Vec<(usize, u32)>,
    /// Threads that take no more.
    closed: Vec<u32>,
}

static QUEUES: Mutex<Queues> = Mutex::new(Queues { queued: Vec::new(), closed: Vec::new() });

/// The level at which special kernel APCs run.
const APC_LEVEL: u8 = 1;

thread_local! {
    static LEVEL: Cell<u8> = const { Cell::new(0) };
    /// Critical regions that the thread has entered and not left.
    static REGIONS: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread has left each critical region that it has entered. A thread that has not, stops Windows as it
/// goes back to its program.
pub(super) fn regions_are_left() -> bool {
    REGIONS.get() == 0
}

/// Does something with the queues.
fn with_queues<T>(what: impl FnOnce(&mut Queues) -> T) -> T {
    what(&mut QUEUES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl Queues {
    /// Takes the first that `is` out.
    fn take(&mut self, is: impl Fn(usize, u32) -> bool) -> Option<*mut Kapc> {
        let index = self.queued.iter().position(|&(apc, tid)| is(apc, tid))?;
        let apc = self.queued.remove(index).0 as *mut Kapc;
        // SAFETY: what is in the queue is an APC that the driver keeps until it is called for it or has
        // removed it; both begin here, and the queues are locked.
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
    // SAFETY: the caller's promise.
    unsafe { apc.write(new) };
}

/// # Safety
/// As KeInsertQueueApc: an initialized APC, which stays where it is until it was called for or removed.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_KeInsertQueueApc(
    apc: *mut Kapc,
    argument1: *mut c_void,
    argument2: *mut c_void,
    increment: i32,
) -> Boolean {
    // SAFETY: the caller's promise.
    let tid = threads::number(unsafe { (*apc).thread });
    let queued = with_queues(|queues| {
        // SAFETY: the caller's promise; once queued, it is changed only while the queues are locked.
        let apc_now = unsafe { &mut *apc };
        if !targets::takes(tid) || queues.closed.contains(&tid) || apc_now.inserted != 0 {
            return false;
        }
        apc_now.inserted = 1;
        apc_now.arguments = [argument1, argument2];
        queues.queued.push((apc as usize, tid));
        // While nobody else can write that it ran.
        log(format_args!("KeInsertQueueApc {tid} increment {increment} = 1"));
        true
    });
    if queued {
        targets::news();
    } else {
        log(format_args!("KeInsertQueueApc {tid} increment {increment} = 0"));
    }
    queued.into()
}

/// Takes the calling thread's APCs: what the kernel's dispatcher does.
#[inline(never)]
pub(super) extern "C" fn deliver() {
    // SAFETY: no pointers.
    let tid = unsafe { GetCurrentThreadId() };
    while let Some(apc) = with_queues(|queues| queues.take(|_, queued| queued == tid)) {
        // SAFETY: taken just now, so still the driver's promise.
        let of_driver = unsafe { &*apc };
        let kernel_routine = of_driver.kernel_routine;
        let mut normal_routine = of_driver.normal_routine;
        let mut normal_context = of_driver.normal_context;
        let [mut argument1, mut argument2] = of_driver.arguments;
        log(format_args!("runs {tid}"));
        LEVEL.set(APC_LEVEL);
        if let Some(routine) = kernel_routine {
            // SAFETY: the driver's routine, with what KKERNEL_ROUTINE takes. The APC is not touched
            // afterwards.
            unsafe { routine(apc, &mut normal_routine, &mut normal_context, &mut argument1, &mut argument2) };
        }
        LEVEL.set(0);
        log(format_args!("ran {tid}"));
    }
}

/// Ends the APCs of the calling thread, which is ending.
pub(super) fn run_down() {
    // SAFETY: no pointers.
    let tid = unsafe { GetCurrentThreadId() };
    let next = |queues: &mut Queues| {
        queues.closed.push(tid);
        queues.take(|_, queued| queued == tid)
    };
    while let Some(apc) = with_queues(next) {
        // SAFETY: taken just now, so still the driver's promise.
        let routine = unsafe { (*apc).rundown_routine };
        log(format_args!("runs down {tid}"));
        LEVEL.set(APC_LEVEL);
        if let Some(routine) = routine {
            // SAFETY: the driver's routine, with what KRUNDOWN_ROUTINE takes. The APC is not touched
            // afterwards.
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

/// The level of the calling thread.
#[unsafe(no_mangle)]
extern "system" fn fake_KeGetCurrentIrql() -> u8 {
    LEVEL.get()
}

/// The time since the start of the system, without sleep, in 100 ns.
#[unsafe(no_mangle)]
extern "system" fn fake_KeQueryUnbiasedInterruptTime() -> u64 {
    let mut time = 0;
    // SAFETY: there is room for the time.
    unsafe { QueryUnbiasedInterruptTime(&mut time) };
    time
}

/// Makes the calling thread one that cannot be suspended: that takes a normal kernel APC.
#[unsafe(no_mangle)]
extern "system" fn fake_KeEnterCriticalRegion() {
    REGIONS.set(REGIONS.get() + 1);
    log(format_args!("KeEnterCriticalRegion {}", REGIONS.get()));
}

/// Ends what KeEnterCriticalRegion began.
#[unsafe(no_mangle)]
extern "system" fn fake_KeLeaveCriticalRegion() {
    let left = REGIONS.get().checked_sub(1).expect("a critical region to leave");
    REGIONS.set(left);
    log(format_args!("KeLeaveCriticalRegion {left}"));
}

/// Whether the calling thread is in a critical region, which a test can wish for those that take APCs.
#[unsafe(no_mangle)]
extern "system" fn fake_KeAreApcsDisabled() -> Boolean {
    let inside = REGIONS.get() > 0 || LEVEL.get() == APC_LEVEL && Settings::current().region;
    log(format_args!("KeAreApcsDisabled = {}", u8::from(inside)));
    inside.into()
}

/// Whether the calling thread is attached to another process, which a test can wish.
#[unsafe(no_mangle)]
extern "system" fn fake_KeIsAttachedProcess() -> Boolean {
    Settings::current().attached.into()
}
