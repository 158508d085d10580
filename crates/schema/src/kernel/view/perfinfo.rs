//! Profile samples, system calls and deferred procedure calls: group 0x0F.

use stackhound_types::{Address, PointerSize, RawTime, Tid};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, tid};
use crate::error::Error;

/// The entry of a thread into the kernel. The record belongs to a processor; only its stack
/// identifies the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysCallEnter {
    /// The kernel routine of the system call.
    pub sys_call_address: Address,
}

impl SysCallEnter {
    /// Reads the payload of SysCallEnter.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<SysCallEnter, Error> {
        let mut reader = Reader::new("SysCallEnter", payload);
        let sys_call_address = match pointer {
            PointerSize::Four => reader.fixed::<U32>()?.address(),
            PointerSize::Eight => reader.fixed::<U64>()?.address(),
        };
        Ok(SysCallEnter { sys_call_address })
    }
}

/// A deferred procedure call, or a timer of a driver. The time of the record is its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpc {
    /// The time of its start, in raw ticks.
    pub initial_time: RawTime,
    /// The routine that ran.
    pub routine: Address,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedRoutine<P> {
    initial_time: I64,
    routine: P,
}

impl Dpc {
    /// Reads the payload of DPC, ThreadedDPC, TimerDPC or IOTimer.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<Dpc, Error> {
        let mut reader = Reader::new("Dpc", payload);
        match pointer {
            PointerSize::Four => routine::<U32>(&mut reader),
            PointerSize::Eight => routine::<U64>(&mut reader),
        }
    }
}

#[inline]
fn routine<P: Word>(reader: &mut Reader<'_>) -> Result<Dpc, Error> {
    let fixed = reader.fixed::<FixedRoutine<P>>()?;
    Ok(Dpc { initial_time: RawTime(fixed.initial_time.get()), routine: fixed.routine.address() })
}

/// A sample of what a processor executes. The record belongs to a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledProfile {
    /// The instruction.
    pub instruction_pointer: Address,
    /// The thread that ran; zero is the idle thread.
    pub thread_id: Tid,
    /// The number of samples that the record stands for.
    pub count: u16,
    /// Bit 0: a deferred procedure call was running. Bit 1: an interrupt service routine was running.
    /// Zero before version 2.
    pub flags: u8,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedSample<P> {
    instruction_pointer: P,
    thread_id: U32,
    count: U16,
}

impl SampledProfile {
    /// Reads the payload of SampledProfile or SampledProfileNmi.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<SampledProfile, Error> {
        let mut reader = Reader::new("SampledProfile", payload);
        let mut sample = match pointer {
            PointerSize::Four => sample::<U32>(&mut reader)?,
            PointerSize::Eight => sample::<U64>(&mut reader)?,
        };
        if version >= 2 {
            sample.flags = *reader.fixed::<u8>()?;
        }
        Ok(sample)
    }
}

#[inline]
fn sample<P: Word>(reader: &mut Reader<'_>) -> Result<SampledProfile, Error> {
    let fixed = reader.fixed::<FixedSample<P>>()?;
    Ok(SampledProfile {
        instruction_pointer: fixed.instruction_pointer.address(),
        thread_id: tid(fixed.thread_id),
        count: fixed.count.get(),
        flags: 0,
    })
}

/// The interval of a source of samples, in units of 100 ns for the timer, and a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileInterval {
    /// The source: 0 is the timer, others count events of the processor.
    pub source: u32,
    /// The interval from now on.
    pub new_interval: u32,
    /// The interval until now.
    pub old_interval: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedInterval {
    source: U32,
    new_interval: U32,
    old_interval: U32,
}

impl ProfileInterval {
    /// Reads the payload of SetInterval, or of the interval at the start or the end of a session.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, _pointer: PointerSize) -> Result<ProfileInterval, Error> {
        let fixed = Reader::new("ProfileInterval", payload).fixed::<FixedInterval>()?;
        Ok(ProfileInterval {
            source: fixed.source.get(),
            new_interval: fixed.new_interval.get(),
            old_interval: fixed.old_interval.get(),
        })
    }
}
