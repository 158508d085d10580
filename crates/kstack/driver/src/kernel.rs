//! What a capture needs of the system, by functions of the system.

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

/// The system the driver runs in, and the memory of all captures.
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

/// `KeRemoveQueueApc`, which is not documented: true if the APC was still queued.
type RemoveQueueApc = unsafe extern "system" fn(*mut nt::Apc) -> u8;
/// `PsGetThreadCreateTime`: in 100 ns since 1601.
type GetThreadCreateTime = unsafe extern "system" fn(*mut nt::Thread) -> u64;

/// Finds the functions that not every system has. Once, before there is a device.
pub fn look_up() {
    static REMOVE_QUEUE_APC: [u16; 16] = wide("KeRemoveQueueApc");
    static GET_THREAD_CREATE_TIME: [u16; 21] = wide("PsGetThreadCreateTime");
    let address = |name: &'static [u16]| {
        // SAFETY: the name is a text that lives on.
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

    /// The objects of a ticket's slot; none for a ticket that never was one.
    fn objects(&self, ticket: Ticket) -> Option<&Objects> {
        self.slots.get(ticket.index as usize).map(Slot::objects)
    }
}

/// The system's objects for one capture. Only their addresses are ever used here: they are the system's to read and write.
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

// SAFETY: nothing here reads or writes their insides while the system may: the requester initializes both before it queues the APC,
// as the only one who has the slot, and the run-down routine reads what the system left it.
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

/// A thread that is referenced.
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
        // Threads of the idle process are in no table.
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
        // SAFETY: `find` has referenced it, and its reference ends here.
        unsafe { nt::ObfDereferenceObject(thread.0.cast()) };
    }

    fn prepare(&self, ticket: Ticket, thread: Thread) {
        let Some(objects) = self.objects(ticket) else { return };
        // A special APC: it has no normal routine, so that only a guarded region or a raised IRQL keep it waiting. It is for the
        // thread's own process: while the thread is attached to another one it waits, and may time out. An APC for the other process
        // could still be queued when the thread leaves it from within a guarded region, and the system stops at that.
        //
        // SAFETY: the slot is the requester's alone, so the objects are not in use. The thread is referenced until the requester has
        // ended; an APC that is queued longer is run by the thread before the thread is gone.
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
        // The thread gets no more priority than it has.
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
        // Negative: from now on, in 100 ns.
        let timeout = -i64::from(milliseconds) * 10_000;
        // Neither alerts nor APCs of user mode end it, so that it ends by the event or by the time alone.
        //
        // SAFETY: `prepare` has initialized the event; a request comes at `PASSIVE_LEVEL`, where waiting is allowed.
        let waited = unsafe {
            let event = objects.event.get().cast();
            nt::KeWaitForSingleObject(event, nt::EXECUTIVE, nt::KERNEL_MODE, 0, &timeout)
        };
        waited == nt::Status::SUCCESS
    }

    fn signal(&self, ticket: Ticket) {
        if let Some(objects) = self.objects(ticket) {
            // SAFETY: `prepare` has initialized the event. The slot is not given to others before the caller has ended its reference.
            unsafe { nt::KeSetEvent(objects.event.get(), 0, 0) };
        }
    }

    /// From here on, the routine by which the system suspends a thread, a normal kernel APC, does not run in the calling thread; special
    /// ones do.
    fn enter_critical_region(&self) {
        nt::KeEnterCriticalRegion();
    }

    fn leave_critical_region(&self) {
        nt::KeLeaveCriticalRegion();
    }

    /// A special kernel APC runs in critical regions, too, and leaves their count as it is.
    fn in_critical_region(&self) -> bool {
        nt::KeAreApcsDisabled() != 0
    }

    /// At `APC_LEVEL` in an APC, at `PASSIVE_LEVEL` in the thread that asks: never above, where user memory could not be touched.
    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        let (part, stack) = match part {
            Part::Kernel => (guard::Part::Kernel, STACK_FOR_KERNEL_PART),
            Part::User if nt::KeIsAttachedProcess() != 0 => return Err(Missing::Attached),
            Part::User => (guard::Part::User, STACK_FOR_USER_PART),
        };
        if remaining_stack() < stack {
            return Err(Missing::NotNow);
        }
        guard::walk(frames, part).ok_or(Missing::Faulted)
    }

    fn is_own(&self, address: u64) -> bool {
        // SAFETY: the linker puts the image's header there, and the driver is never unloaded.
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

/// What must be left of a thread's kernel stack, in bytes, for its kernel part to be walked: a processor context and the unwinder's
/// calls. A thread may be interrupted anywhere; one whose stack overflows stops the system.
const STACK_FOR_KERNEL_PART: usize = 6 << 10;

/// What must be left for the user part: a page that has to be read in takes the way through the file system.
const STACK_FOR_USER_PART: usize = 12 << 10;

/// How many bytes of the calling thread's kernel stack are left.
fn remaining_stack() -> usize {
    let (mut low, mut high) = (0, 0);
    // SAFETY: both are variables.
    unsafe { nt::IoGetStackLimits(&mut low, &mut high) };
    (&raw const low).addr().saturating_sub(low)
}

/// In an image's first bytes: where the rest of its header is.
const OFFSET_OF_PE_HEADER: usize = 0x3c;
/// In that header: `SizeOfImage`, behind signature and file header, at 56 of the optional header.
const OFFSET_OF_IMAGE_SIZE: usize = 4 + 20 + 56;

unsafe extern "C" {
    /// The image's first byte; defined by the linker.
    static __ImageBase: [u8; 64];
}

impl System {
    /// What is to be known of a thread, if it is the one that is wanted.
    ///
    /// # Safety
    /// The thread is referenced.
    unsafe fn identify(&self, thread: *mut nt::Thread, capture: &Capture) -> Result<Found<Thread>, Outcome> {
        // SAFETY: the thread is referenced, for this and what follows.
        let (pid, tid, created) = unsafe {
            let ids = (nt::PsGetThreadProcessId(thread), nt::PsGetThreadId(thread) as u32);
            (ids.0, ids.1, self.get_thread_create_time().map(|get| get(thread)))
        };
        // Where the time is not known, nothing is the thread that was created then.
        if pid != capture.pid as usize || capture.created.is_some_and(|time| created != Some(time)) {
            return Err(Outcome::NoThread);
        }
        // A thread that was told to end is asked as any other: it takes APCs until almost its last step, and one that hangs before that
        // is what people look for.
        //
        // SAFETY: as above.
        let user = unsafe { user_part(thread) };
        let location = if nt::PsGetCurrentThreadId() == tid as usize {
            ThreadRelation::Own
        } else {
            ThreadRelation::Other
        };
        Ok(Found { thread: Thread(thread), tid, location, created: created.unwrap_or(0), user })
    }
}

/// Whether a thread has a user part that may be shown.
///
/// # Safety
/// The thread is referenced.
unsafe fn user_part(thread: *mut nt::Thread) -> Result<(), Missing> {
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

/// What the system calls in the thread, at `APC_LEVEL`.
unsafe extern "system" fn kernel_routine(
    _apc: *mut nt::Apc,
    _normal_routine: *mut *mut c_void,
    _normal_context: *mut *mut c_void,
    argument1: *mut *mut c_void,
    argument2: *mut *mut c_void,
) {
    // SAFETY: the system gives the arguments that the APC was queued with.
    let ticket = unsafe { ticket(*argument1, *argument2) };
    // A ticket that opens nothing leaves nothing to do.
    let _ = Apc::ran(ticket).finish(&SYSTEM);
}

/// What the system calls instead, when the thread ends before. A precaution: a thread that ends runs what is in its queue of kernel APCs
/// before it looks for what is left, and stops the system if something is.
unsafe extern "system" fn rundown_routine(apc: *mut nt::Apc) {
    // SAFETY: the system gives the APC that was queued; it is in its slot.
    let ticket = unsafe { ticket((*apc).system_argument1, (*apc).system_argument2) };
    let _ = Apc::run_down(ticket).finish(&SYSTEM);
}

/// The ticket that [`Kernel::queue`] made these of.
fn ticket(argument1: *mut c_void, argument2: *mut c_void) -> Ticket {
    Ticket { index: argument1.addr() as u32, generation: argument2.addr() as u32 }
}
