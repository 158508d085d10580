//! System calls and deferred procedure calls: group 0x0F.

use stackhound_types::{Address, PointerSize, RawTime};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word};
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
