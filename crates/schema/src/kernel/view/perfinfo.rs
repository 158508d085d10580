//! Samples, system calls and interrupts: group 0x0F.

use stackhound_etl::{Address, PointerSize, RawTime, Tid};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, tid};
use crate::error::Error;

/// What a processor did when its timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledProfile {
    /// The instruction that was about to run.
    pub instruction_pointer: Address,
    /// The thread that ran; zero is the idle thread.
    pub thread_id: Tid,
    /// How many samples the record stands for.
    pub count: u16,
    /// 1 in a DPC, 2 in an interrupt; newer systems have the thread's priority in the upper five bits. From version 2
    /// on, else zero.
    pub flags: u8,
    /// From version 2 on, else zero.
    pub rank: u8,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedSample<P> {
    instruction_pointer: P,
    thread_id: U32,
    /// In records of a counter, its source.
    count: U16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedSampleV2<P> {
    base: FixedSample<P>,
    flags: u8,
    rank: u8,
}

impl SampledProfile {
    /// Reads the payload of SampledProfile.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<SampledProfile, Error> {
        match pointer {
            PointerSize::Four => SampledProfile::with::<U32>(payload, version),
            PointerSize::Eight => SampledProfile::with::<U64>(payload, version),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &[u8], version: u8) -> Result<SampledProfile, Error> {
        let mut reader = Reader::new("SampledProfile", payload);
        let (base, flags, rank) = if version >= 2 {
            let fixed = reader.fixed::<FixedSampleV2<P>>()?;
            (&fixed.base, fixed.flags, fixed.rank)
        } else {
            (reader.fixed::<FixedSample<P>>()?, 0, 0)
        };
        Ok(SampledProfile {
            instruction_pointer: base.instruction_pointer.address(),
            thread_id: tid(base.thread_id),
            count: base.count.get(),
            flags,
            rank,
        })
    }
}

/// What a processor did when one of its counters overflowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmcSample {
    /// The instruction that was about to run.
    pub instruction_pointer: Address,
    /// The thread that ran; zero is the idle thread.
    pub thread_id: Tid,
    /// What is counted.
    pub profile_source: u16,
}

impl PmcSample {
    /// Reads the payload of PmcCounterProfile.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<PmcSample, Error> {
        match pointer {
            PointerSize::Four => PmcSample::with::<U32>(payload),
            PointerSize::Eight => PmcSample::with::<U64>(payload),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &[u8]) -> Result<PmcSample, Error> {
        let FixedSampleV2 { base, .. } = Reader::new("PmcSample", payload).fixed::<FixedSampleV2<P>>()?;
        Ok(PmcSample {
            instruction_pointer: base.instruction_pointer.address(),
            thread_id: tid(base.thread_id),
            profile_source: base.count.get(),
        })
    }
}

/// A thread enters the kernel. The record belongs to its processor; only its stack names the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysCallEnter {
    /// The kernel's routine for the call.
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

/// A thread leaves the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysCallExit {
    /// What the call returns: an NTSTATUS.
    pub nt_status: u32,
}

impl SysCallExit {
    /// Reads the payload of SysCallExit.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, _pointer: PointerSize) -> Result<SysCallExit, Error> {
        Ok(SysCallExit { nt_status: Reader::new("SysCallExit", payload).fixed::<U32>()?.get() })
    }
}

/// A deferred procedure call, or a timer of a driver, that has ended at the time of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpc {
    /// When it began, in raw ticks.
    pub initial_time: RawTime,
    /// What ran.
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
        routine(&mut Reader::new("Dpc", payload), pointer)
    }
}

#[inline]
fn routine(reader: &mut Reader<'_>, pointer: PointerSize) -> Result<Dpc, Error> {
    match pointer {
        PointerSize::Four => routine_with::<U32>(reader),
        PointerSize::Eight => routine_with::<U64>(reader),
    }
}

#[inline]
fn routine_with<P: Word>(reader: &mut Reader<'_>) -> Result<Dpc, Error> {
    let fixed = reader.fixed::<FixedRoutine<P>>()?;
    Ok(Dpc { initial_time: RawTime(fixed.initial_time.get()), routine: fixed.routine.address() })
}

/// An interrupt that has been served at the time of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isr {
    /// When it began, in raw ticks.
    pub initial_time: RawTime,
    /// What ran.
    pub routine: Address,
    /// Whether the routine recognised the interrupt as its own; 32 bits wide before version 2.
    pub return_value: u32,
    /// The interrupt's number. From version 2 on.
    pub vector: Option<u16>,
    /// Interrupts that are signalled by messages only.
    pub message_number: Option<u32>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedIsr {
    return_value: u8,
    vector: U16,
    reserved: u8,
}

impl Isr {
    /// Reads the payload of ISR or ISR-PASS.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<Isr, Error> {
        Isr::read(&mut Reader::new("Isr", payload), version, pointer)
    }

    /// Reads the payload of ISR-MSI.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse_message(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<Isr, Error> {
        let mut reader = Reader::new("Isr", payload);
        let isr = Isr::read(&mut reader, 2, pointer)?;
        Ok(Isr { message_number: Some(reader.fixed::<U32>()?.get()), ..isr })
    }

    #[inline]
    fn read(reader: &mut Reader<'_>, version: u8, pointer: PointerSize) -> Result<Isr, Error> {
        let Dpc { initial_time, routine } = routine(reader, pointer)?;
        let (return_value, vector) = if version >= 2 {
            let fixed = reader.fixed::<FixedIsr>()?;
            (fixed.return_value.into(), Some(fixed.vector.get()))
        } else {
            (reader.fixed::<U32>()?.get(), None)
        };
        Ok(Isr { initial_time, routine, return_value, vector, message_number: None })
    }
}
