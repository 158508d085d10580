//! Threads and scheduling: group 0x05.

use stackhound_types::{Address, Pid, PointerSize, Tid};
use zerocopy::byteorder::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid, tid};
use crate::error::Error;
use crate::text::Utf16;

/// A thread that starts, ends, or exists at the start or the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread<'a> {
    /// The process. If another process created the thread, it differs from the process in the
    /// record's header.
    pub process_id: Pid,
    /// The thread.
    pub thread_id: Tid,
    /// The other fields. They are missing in version 0, and for the end of a thread in version 1.
    pub detail: Option<ThreadDetail<'a>>,
}

/// The stacks, start address and scheduling of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadDetail<'a> {
    /// Upper end of the kernel stack.
    pub stack_base: Address,
    /// Lower end of the kernel stack.
    pub stack_limit: Address,
    /// Upper end of the user stack; zero for threads without a user stack.
    pub user_stack_base: Address,
    /// Lower end of the user stack.
    pub user_stack_limit: Address,
    /// The address at which the kernel starts the thread. Present in versions 1 and 2.
    pub start_address: Option<Address>,
    /// The processors that the thread may run on. Present from version 3 on.
    pub affinity: Option<u64>,
    /// The start address that was passed when the thread was created.
    pub win32_start_address: Address,
    /// The wait mode. Present in version 1.
    pub wait_mode: Option<i8>,
    /// The thread's environment block. Present from version 2 on.
    pub teb_base: Option<Address>,
    /// The service that the thread works for. Present from version 2 on.
    pub sub_process_tag: Option<u32>,
    /// Present from version 3 on.
    pub priorities: Option<ThreadPriorities>,
    /// The name of the thread. Present only on newer systems; often empty.
    pub thread_name: Option<Utf16<'a>>,
}

/// Priorities of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPriorities {
    /// Scheduling priority.
    pub base_priority: i8,
    /// Page priority.
    pub page_priority: u8,
    /// I/O priority.
    pub io_priority: u8,
    /// Bit 0: the thread waits for registry changes.
    pub thread_flags: u8,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ids {
    first: U32,
    second: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedDetail<P> {
    stack_base: P,
    stack_limit: P,
    user_stack_base: P,
    user_stack_limit: P,
    /// The affinity from version 3 on.
    start_address: P,
    win32_start_address: P,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedTeb<P> {
    teb_base: P,
    sub_process_tag: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedPriorities {
    base_priority: i8,
    page_priority: u8,
    io_priority: u8,
    thread_flags: u8,
}

impl<'a> Thread<'a> {
    /// Reads the payload of Start, End, DCStart or DCEnd.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short for its version.
    pub fn parse(payload: &'a [u8], version: u8, pointer: PointerSize) -> Result<Thread<'a>, Error> {
        match pointer {
            PointerSize::Four => Thread::with::<U32>(payload, version),
            PointerSize::Eight => Thread::with::<U64>(payload, version),
        }
    }

    fn with<P: Word>(payload: &'a [u8], version: u8) -> Result<Thread<'a>, Error> {
        let mut reader = Reader::new("Thread", payload);
        let ids = reader.fixed::<Ids>()?;
        if version == 0 {
            return Ok(Thread { process_id: pid(ids.second), thread_id: tid(ids.first), detail: None });
        }
        let (process_id, thread_id) = (pid(ids.first), tid(ids.second));
        if version == 1 && reader.rest().len() < size_of::<FixedDetail<P>>() {
            return Ok(Thread { process_id, thread_id, detail: None });
        }
        let fixed = reader.fixed::<FixedDetail<P>>()?;
        let mut detail = ThreadDetail {
            stack_base: fixed.stack_base.address(),
            stack_limit: fixed.stack_limit.address(),
            user_stack_base: fixed.user_stack_base.address(),
            user_stack_limit: fixed.user_stack_limit.address(),
            start_address: (version < 3).then(|| fixed.start_address.address()),
            affinity: (version >= 3).then(|| fixed.start_address.value()),
            win32_start_address: fixed.win32_start_address.address(),
            wait_mode: None,
            teb_base: None,
            sub_process_tag: None,
            priorities: None,
            thread_name: None,
        };
        if version == 1 {
            detail.wait_mode = reader.optional::<i8>().copied();
        } else {
            let teb = reader.fixed::<FixedTeb<P>>()?;
            detail.teb_base = Some(teb.teb_base.address());
            detail.sub_process_tag = Some(teb.sub_process_tag.get());
        }
        if version >= 3 {
            let fixed = reader.fixed::<FixedPriorities>()?;
            detail.priorities = Some(ThreadPriorities {
                base_priority: fixed.base_priority,
                page_priority: fixed.page_priority,
                io_priority: fixed.io_priority,
                thread_flags: fixed.thread_flags,
            });
            detail.thread_name = reader.utf16();
        }
        Ok(Thread { process_id, thread_id, detail: Some(detail) })
    }
}

/// The naming of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSetName<'a> {
    /// The process.
    pub process_id: Pid,
    /// The thread.
    pub thread_id: Tid,
    /// Its new name.
    pub thread_name: Utf16<'a>,
}

impl<'a> ThreadSetName<'a> {
    /// Reads the payload of SetName.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<ThreadSetName<'a>, Error> {
        let mut reader = Reader::new("ThreadSetName", payload);
        let ids = reader.fixed::<Ids>()?;
        let thread_name = reader.utf16().unwrap_or_default();
        Ok(ThreadSetName { process_id: pid(ids.first), thread_id: tid(ids.second), thread_name })
    }
}

/// A switch of a processor from one thread to another.
///
/// The record belongs to the processor of its buffer and has no thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CSwitch {
    /// The thread that runs from now on; zero is the idle thread.
    pub new_thread_id: Tid,
    /// The thread that ran until now.
    pub old_thread_id: Tid,
    /// The priority of the new thread.
    pub new_thread_priority: i8,
    /// The priority of the old thread.
    pub old_thread_priority: i8,
    /// The C-state that the processor was in. In version 1, the new thread's quantum.
    pub previous_c_state: u8,
    /// Undocumented. In version 1, the old thread's quantum.
    pub spare_byte: i8,
    /// The reason for which the old thread waits, if it does; see the map `WaitReason`.
    pub old_thread_wait_reason: u8,
    /// Bit 0 is the wait mode; the other bits depend on the version.
    pub thread_flags: u8,
    /// The new state of the old thread; see the map `ThreadState`.
    pub old_thread_state: u8,
    /// The ideal processor of the old thread.
    pub old_thread_wait_ideal_processor: u8,
    /// The number of timer ticks that the new thread has waited. Present from version 2 on,
    /// otherwise zero.
    pub new_thread_wait_time: u32,
    /// The remaining quantum of the old thread. Present from version 2 on, otherwise zero.
    pub reserved: i32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedSwitch {
    new_thread_id: U32,
    old_thread_id: U32,
    new_thread_priority: i8,
    old_thread_priority: i8,
    previous_c_state: u8,
    spare_byte: i8,
    old_thread_wait_reason: u8,
    thread_flags: u8,
    old_thread_state: u8,
    old_thread_wait_ideal_processor: u8,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedSwitchV2 {
    base: FixedSwitch,
    new_thread_wait_time: U32,
    reserved: I32,
}

impl CSwitch {
    /// Whether the old thread waits, or its kernel stack is paged in for it. Otherwise it is ready to
    /// run, or has ended.
    #[inline]
    pub fn old_thread_waits(&self) -> bool {
        /// See the map `ThreadState`.
        const WAITING: u8 = 5;
        const TRANSITION: u8 = 6;
        matches!(self.old_thread_state, WAITING | TRANSITION)
    }

    /// Whether the old thread has ended.
    #[inline]
    pub fn old_thread_ends(&self) -> bool {
        /// See the map `ThreadState`.
        const TERMINATED: u8 = 4;
        self.old_thread_state == TERMINATED
    }

    /// Reads the payload of CSwitch.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], version: u8, _pointer: PointerSize) -> Result<CSwitch, Error> {
        let mut reader = Reader::new("CSwitch", payload);
        let (base, new_thread_wait_time, reserved) = if version >= 2 {
            let fixed = reader.fixed::<FixedSwitchV2>()?;
            (&fixed.base, fixed.new_thread_wait_time.get(), fixed.reserved.get())
        } else {
            (reader.fixed::<FixedSwitch>()?, 0, 0)
        };
        Ok(CSwitch {
            new_thread_id: tid(base.new_thread_id),
            old_thread_id: tid(base.old_thread_id),
            new_thread_priority: base.new_thread_priority,
            old_thread_priority: base.old_thread_priority,
            previous_c_state: base.previous_c_state,
            spare_byte: base.spare_byte,
            old_thread_wait_reason: base.old_thread_wait_reason,
            thread_flags: base.thread_flags,
            old_thread_state: base.old_thread_state,
            old_thread_wait_ideal_processor: base.old_thread_wait_ideal_processor,
            new_thread_wait_time,
            reserved,
        })
    }
}

/// A thread becomes ready to run. It was readied by the thread that runs on the record's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyThread {
    /// The readied thread.
    pub thread_id: Tid,
    /// The reason for a change of its priority: 0 no change, 1 end of a wait, 2 boost.
    pub adjust_reason: u8,
    /// The change of its priority.
    pub adjust_increment: i8,
    /// 1 readied by a DPC, 2 kernel stack swapped out, 4 process swapped out, 8 attempt to switch
    /// directly.
    pub flags: u8,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedReady {
    thread_id: U32,
    adjust_reason: u8,
    adjust_increment: i8,
    flags: u8,
    reserved: u8,
}

impl ReadyThread {
    /// Reads the payload of ReadyThread.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, _pointer: PointerSize) -> Result<ReadyThread, Error> {
        let fixed = Reader::new("ReadyThread", payload).fixed::<FixedReady>()?;
        Ok(ReadyThread {
            thread_id: tid(fixed.thread_id),
            adjust_reason: fixed.adjust_reason,
            adjust_increment: fixed.adjust_increment,
            flags: fixed.flags,
        })
    }
}
