//! The implementation of [`Kernel`] with functions of the system.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::fmt;
use core::mem::transmute;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU64};

use stackhound_kstack_core::{Apc, Found, Kernel, MACHINERY, Part, Removal, Slot, ThreadRelation, Ticket};
use stackhound_kstack_proto::{Capture, MAX_FRAMES, MAX_OUTSTANDING, Missing, Outcome};

use crate::wide::wide;
use crate::{guard, nt};

/// The system in which the driver runs, and the memory of all captures.
pub static SYSTEM: System = System {
    slots: [const { Slot::new(Objects::new(), Frames::new()) }; MAX_OUTSTANDING],
    remove_queue_apc: AtomicPtr::new(null_mut()),
    get_thread_create_time: AtomicPtr::new(null_mut()),
};

/// See [`SYSTEM`].
#[derive(Debug)]
pub struct System {
    slots: [Slot<Objects, Frames>; MAX_OUTSTANDING],
    /// A [`RemoveQueueApc`], or null.
    remove_queue_apc: AtomicPtr<c_void>,
    /// A [`GetThreadCreateTime`], or null.
    get_thread_create_time: AtomicPtr<c_void>,
}

/// `KeRemoveQueueApc`, which is not documented. Returns true if the APC was still queued.
type RemoveQueueApc = unsafe extern "system" fn(*mut nt::Apc) -> u8;
/// `PsGetThreadCreateTime`. Returns the time in 100 ns since 1601.
type GetThreadCreateTime = unsafe extern "system" fn(*mut nt::Thread) -> u64;

/// Looks up the functions that not every system has. Called once, before the device exists.
pub fn look_up() {
    static REMOVE_QUEUE_APC: [u16; 16] = wide("KeRemoveQueueApc");
    static GET_THREAD_CREATE_TIME: [u16; 21] = wide("PsGetThreadCreateTime");
    let address = |name: &'static [u16]| {
        // SAFETY: the name is static.
        unsafe { nt::MmGetSystemRoutineAddress(&nt::UnicodeString::new(name)) }
    };
    SYSTEM.remove_queue_apc.store(address(&REMOVE_QUEUE_APC), Relaxed);
    SYSTEM.get_thread_create_time.store(address(&GET_THREAD_CREATE_TIME), Relaxed);
}

impl System {
    fn remove_queue_apc(&self) -> Option<RemoveQueueApc> {
        // SAFETY: null, or the function of that name.
        unsafe { transmute::<*mut c_void, Option<RemoveQueueApc>>(self.remove_queue_apc.load(Relaxed)) }
    }

    fn get_thread_create_time(&self) -> Option<GetThreadCreateTime> {
        let address = self.get_thread_create_time.load(Relaxed);
        // SAFETY: null, or the function of that name.
        unsafe { transmute::<*mut c_void, Option<GetThreadCreateTime>>(address) }
    }

    /// The objects of a ticket's slot, or `None` for an invalid ticket.
    fn objects(&self, ticket: Ticket) -> Option<&Objects> {
        self.slots.get(ticket.index as usize).map(Slot::objects)
    }
}

/// The system's objects for one capture. The driver uses only their addresses; the system reads and
/// writes them.
pub struct Objects {
    apc: UnsafeCell<nt::Apc>,
    event: UnsafeCell<nt::Event>,
}

impl Objects {
    const fn new() -> Self {
        Self { apc: UnsafeCell::new(nt::Apc::new()), event: UnsafeCell::new(nt::Event::new()) }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

// SAFETY: the driver does not access their content while the system may: the request initializes
// both before it queues the APC, while it is the only user of the slot, and the rundown routine
// reads an APC that the system has returned.
unsafe impl Sync for Objects {}

/// The frames of one capture.
#[derive(Debug)]
pub struct Frames([AtomicU64; MAX_FRAMES as usize + MACHINERY]);

impl Frames {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_FRAMES as usize + MACHINERY])
    }
}

impl AsRef<[AtomicU64]> for Frames {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// A referenced thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread(*mut nt::Thread);

impl Kernel for System {
    type Objects = Objects;
    type Frames = Frames;
    type Thread = Thread;

    fn slots(&self) -> &[Slot<Objects, Frames>] {
        &self.slots
    }

    fn find(&self, capture: &Capture) -> Result<Found<Thread>, Outcome> {
        // The threads of the idle process cannot be looked up.
        if capture.pid == 0 {
            return Err(Outcome::Idle);
        }
        let mut thread = null_mut();
        // SAFETY: `thread` is a variable. If it is set, the thread is referenced.
        let found = unsafe { nt::PsLookupThreadByThreadId(capture.tid as usize, &mut thread) };
        found.check().map_err(|_| Outcome::NoThread)?;
        // SAFETY: the thread is referenced.
        let found = unsafe { self.identify(thread, capture) };
        if found.is_err() {
            self.release_thread(Thread(thread));
        }
        found
    }

    fn release_thread(&self, thread: Thread) {
        // SAFETY: `find` has referenced the thread; this releases that reference.
        unsafe { nt::ObfDereferenceObject(thread.0.cast()) };
    }

    fn prepare(&self, ticket: Ticket, thread: Thread) {
        let Some(objects) = self.objects(ticket) else { return };
        // A special APC has no normal routine, so only a guarded region or a raised IRQL delays it.
        // It is for the thread's own process: while the thread is attached to another process, it
        // waits, and the capture may time out. An APC for the other process could still be queued
        // when the thread leaves that process within a guarded region, and the system stops in this
        // case.
        //
        // SAFETY: only the request uses the slot, so the objects are not in use. The thread is
        // referenced until the request has ended; a thread runs an APC that is queued longer before
        // it is deleted.
        unsafe {
            nt::KeInitializeEvent(objects.event.get(), nt::NOTIFICATION_EVENT, 0);
            nt::KeInitializeApc(
                objects.apc.get(),
                thread.0,
                nt::ORIGINAL_APC_ENVIRONMENT,
                kernel_routine,
                Some(rundown_routine),
                null_mut(),
                nt::KERNEL_MODE,
                null_mut(),
            );
        }
    }

    fn queue(&self, ticket: Ticket) -> bool {
        let Some(objects) = self.objects(ticket) else { return false };
        let index = without_provenance_mut(ticket.index as usize);
        let generation = without_provenance_mut(ticket.generation as usize);
        // The thread gets no priority boost.
        //
        // SAFETY: `prepare` has initialized the APC, and it is queued once.
        unsafe { nt::KeInsertQueueApc(objects.apc.get(), index, generation, 0) != 0 }
    }

    fn can_remove(&self) -> bool {
        self.remove_queue_apc().is_some()
    }

    fn remove(&self, ticket: Ticket) -> Removal {
        match (self.remove_queue_apc(), self.objects(ticket)) {
            // SAFETY: `prepare` has initialized the APC.
            (Some(remove), Some(objects)) => match unsafe { remove(objects.apc.get()) } {
                0 => Removal::NotQueued,
                _ => Removal::Removed,
            },
            _ => Removal::Unsupported,
        }
    }

    fn wait(&self, ticket: Ticket, milliseconds: u32) -> bool {
        let Some(objects) = self.objects(ticket) else { return false };
        // Negative: relative to now, in 100 ns.
        let timeout = -i64::from(milliseconds) * 10_000;
        // Neither alerts nor user-mode APCs end the wait; only the event and the timeout do.
        //
        // SAFETY: `prepare` has initialized the event; a request runs at `PASSIVE_LEVEL`, where
        // waiting is allowed.
        let waited = unsafe {
            let event = objects.event.get().cast();
            nt::KeWaitForSingleObject(event, nt::EXECUTIVE, nt::KERNEL_MODE, 0, &timeout)
        };
        waited == nt::Status::SUCCESS
    }

    fn signal(&self, ticket: Ticket) {
        if let Some(objects) = self.objects(ticket) {
            // SAFETY: `prepare` has initialized the event. The slot is not reused before the caller
            // has released its reference.
            unsafe { nt::KeSetEvent(objects.event.get(), 0, 0) };
        }
    }

    /// The system suspends a thread with a normal kernel APC, which does not run in a critical
    /// region. Special kernel APCs do.
    fn enter_critical_region(&self) {
        nt::KeEnterCriticalRegion();
    }

    fn leave_critical_region(&self) {
        nt::KeLeaveCriticalRegion();
    }

    /// A special kernel APC also runs in critical regions, and does not change their count.
    fn in_critical_region(&self) -> bool {
        nt::KeAreApcsDisabled() != 0
    }

    /// Runs at `APC_LEVEL` in an APC, and at `PASSIVE_LEVEL` in the requesting thread, but never
    /// above, where user memory cannot be accessed.
    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        let (part, stack) = match part {
            Part::Kernel => (guard::Part::Kernel, STACK_FOR_KERNEL_WALK),
            Part::User if nt::KeIsAttachedProcess() != 0 => return Err(Missing::Attached),
            Part::User => (guard::Part::User, STACK_FOR_USER_WALK),
        };
        if remaining_stack() < stack {
            return Err(Missing::NotNow);
        }
        guard::walk(frames, part).ok_or(Missing::Faulted)
    }

    fn is_own(&self, address: u64) -> bool {
        // SAFETY: the linker places the image header at this symbol, and the driver is never
        // unloaded.
        let (start, length) = unsafe {
            let start = (&raw const __ImageBase).cast::<u8>();
            let header = start.add(OFFSET_OF_PE_HEADER).cast::<u32>().read();
            let length = start.add(header as usize + OFFSET_OF_IMAGE_SIZE).cast::<u32>().read_unaligned();
            (start.addr() as u64, u64::from(length))
        };
        address.wrapping_sub(start) < length
    }

    fn now(&self) -> u64 {
        nt::KeQueryUnbiasedInterruptTime()
    }
}

/// The minimum number of bytes of kernel stack that must be left for a walk of the kernel stack: a
/// processor context and the frames of the unwinder. The thread may be interrupted at any point,
/// and an overflow of its stack stops the system.
const STACK_FOR_KERNEL_WALK: usize = 6 << 10;

/// The minimum for a walk of the user stack: reading in a page needs the path through the file
/// system.
const STACK_FOR_USER_WALK: usize = 12 << 10;

/// The number of bytes that are left of the calling thread's kernel stack.
fn remaining_stack() -> usize {
    let (mut low, mut high) = (0, 0);
    // SAFETY: both are variables.
    unsafe { nt::IoGetStackLimits(&mut low, &mut high) };
    (&raw const low).addr().saturating_sub(low)
}

/// `e_lfanew`: the offset of the PE header.
const OFFSET_OF_PE_HEADER: usize = 0x3c;
/// The offset of `SizeOfImage` in the PE header: after the signature and the file header, at 56 of
/// the optional header.
const OFFSET_OF_IMAGE_SIZE: usize = 4 + 20 + 56;

unsafe extern "C" {
    /// The first bytes of the image; defined by the linker.
    static __ImageBase: [u8; 64];
}

impl System {
    /// The properties of a thread, if it is the requested one.
    ///
    /// # Safety
    /// The thread is referenced.
    unsafe fn identify(&self, thread: *mut nt::Thread, capture: &Capture) -> Result<Found<Thread>, Outcome> {
        // SAFETY: the thread is referenced, also for the calls below.
        let (pid, tid, created) = unsafe {
            let ids = (nt::PsGetThreadProcessId(thread), nt::PsGetThreadId(thread) as u32);
            (ids.0, ids.1, self.get_thread_create_time().map(|get| get(thread)))
        };
        // If the creation time is not known, no thread matches a requested one.
        if pid != capture.pid as usize || capture.created.is_some_and(|time| created != Some(time)) {
            return Err(Outcome::NoThread);
        }
        // A terminating thread is requested like others: it takes APCs until almost its last step,
        // and a thread that hangs before that is a common subject of investigation.
        //
        // SAFETY: as above.
        let user = unsafe { user_stack(thread) };
        let relation = if nt::PsGetCurrentThreadId() == tid as usize {
            ThreadRelation::Own
        } else {
            ThreadRelation::Other
        };
        Ok(Found { thread: Thread(thread), tid, relation, created: created.unwrap_or(0), user })
    }
}

/// Whether a thread has a user stack that may be shown.
///
/// # Safety
/// The thread is referenced.
unsafe fn user_stack(thread: *mut nt::Thread) -> Result<(), Missing> {
    // SAFETY: the thread is referenced, and holds its process.
    unsafe {
        if nt::PsIsSystemThread(thread) != 0 {
            return Err(Missing::System);
        }
        let process = nt::IoThreadToProcess(thread);
        match nt::PsIsProtectedProcess(process) != 0 || nt::PsIsProtectedProcessLight(process) != 0 {
            true => Err(Missing::Protected),
            false => Ok(()),
        }
    }
}

/// The kernel routine of the APC. The system calls it in the thread, at `APC_LEVEL`.
unsafe extern "system" fn kernel_routine(
    _apc: *mut nt::Apc,
    _normal_routine: *mut *mut c_void,
    _normal_context: *mut *mut c_void,
    argument1: *mut *mut c_void,
    argument2: *mut *mut c_void,
) {
    // SAFETY: the system passes the arguments with which the APC was queued.
    let ticket = unsafe { ticket(*argument1, *argument2) };
    // With a stale ticket, there is nothing to do.
    let _ = Apc::ran(ticket).finish(&SYSTEM);
}

/// The rundown routine of the APC. The system calls it instead if the thread ends first. It is a
/// precaution: a terminating thread runs its queued kernel APCs before it checks the queue, and the
/// system stops if an APC is left.
unsafe extern "system" fn rundown_routine(apc: *mut nt::Apc) {
    // SAFETY: the system passes the APC that was queued; it is in its slot.
    let ticket = unsafe { ticket((*apc).system_argument1, (*apc).system_argument2) };
    let _ = Apc::run_down(ticket).finish(&SYSTEM);
}

/// The ticket that [`Kernel::queue`] passed in these arguments.
fn ticket(argument1: *mut c_void, argument2: *mut c_void) -> Ticket {
    Ticket { index: argument1.addr() as u32, generation: argument2.addr() as u32 }
}
