//! Stack records: group 0x18. Their frames and keys are read by the crate that joins stacks.

use stackhound_types::{Pid, PointerSize, Tid};
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::Reader;
use crate::error::Error;

/// The thread whose stack a record of `StackWalk/Stack`, `KeyKernel` or `KeyUser` contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOwner {
    /// The process of the thread; `None` if it is not known.
    pub process_id: Option<Pid>,
    /// The thread; `None` if it is not known.
    pub thread_id: Option<Tid>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedStack {
    _time: [u8; 8],
    process_id: U32,
    thread_id: U32,
}

impl StackOwner {
    /// Reads the first fields of the payload.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, _pointer: PointerSize) -> Result<StackOwner, Error> {
        let fixed = Reader::new("StackWalk", payload).fixed::<FixedStack>()?;
        Ok(StackOwner {
            process_id: Pid::known(fixed.process_id.get()),
            thread_id: Tid::known(fixed.thread_id.get()),
        })
    }
}
