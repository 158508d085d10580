//! Call stacks and last-branch records: groups 0x18 and 0x0C.

use stackhound_etl::{Address, Pid, PointerSize, RawTime, Tid};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid, tid};
use crate::error::Error;

/// Addresses in a payload, innermost first: the first is where the thread was, the others are return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'a> {
    /// Whole addresses only.
    bytes: &'a [u8],
    pointer: PointerSize,
}

impl<'a> Frames<'a> {
    #[inline]
    fn new(bytes: &'a [u8], pointer: PointerSize) -> Frames<'a> {
        let whole = bytes.len() - bytes.len() % pointer.bytes();
        Frames { bytes: &bytes[..whole], pointer }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.pointer.bytes()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The addresses as they are stored, little-endian. Equal stacks of one pointer size have equal bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The outermost address.
    #[inline]
    pub fn last(&self) -> Option<Address> {
        self.iter().next_back()
    }

    /// From the innermost to the outermost.
    #[inline]
    pub fn iter(&self) -> FramesIter<'a> {
        FramesIter { frames: *self }
    }
}

impl<'a> IntoIterator for Frames<'a> {
    type Item = Address;
    type IntoIter = FramesIter<'a>;

    #[inline]
    fn into_iter(self) -> FramesIter<'a> {
        self.iter()
    }
}

/// Yields the addresses of a stack.
#[derive(Clone, Debug)]
pub struct FramesIter<'a> {
    frames: Frames<'a>,
}

impl Iterator for FramesIter<'_> {
    type Item = Address;

    #[inline]
    fn next(&mut self) -> Option<Address> {
        let (address, rest) = match self.frames.pointer {
            PointerSize::Eight => {
                let (bytes, rest) = self.frames.bytes.split_first_chunk()?;
                (u64::from_le_bytes(*bytes), rest)
            }
            PointerSize::Four => {
                let (bytes, rest) = self.frames.bytes.split_first_chunk()?;
                (u32::from_le_bytes(*bytes).into(), rest)
            }
        };
        self.frames.bytes = rest;
        Some(Address(address))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.frames.len(), Some(self.frames.len()))
    }
}

impl DoubleEndedIterator for FramesIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Address> {
        let (rest, address) = match self.frames.pointer {
            PointerSize::Eight => {
                let (rest, bytes) = self.frames.bytes.split_last_chunk()?;
                (rest, u64::from_le_bytes(*bytes))
            }
            PointerSize::Four => {
                let (rest, bytes) = self.frames.bytes.split_last_chunk()?;
                (rest, u32::from_le_bytes(*bytes).into())
            }
        };
        self.frames.bytes = rest;
        Some(Address(address))
    }
}

impl ExactSizeIterator for FramesIter<'_> {}

impl std::iter::FusedIterator for FramesIter<'_> {}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedStack {
    event_time_stamp: I64,
    process: U32,
    thread: U32,
}

/// A part of the stack of another event: the kernel's or the user's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack<'a> {
    /// The raw time of the event that it belongs to.
    pub event_time_stamp: RawTime,
    /// The process in which it was taken.
    pub process_id: Pid,
    /// The thread whose stack it is.
    pub thread_id: Tid,
    /// The addresses.
    pub frames: Frames<'a>,
}

impl<'a> Stack<'a> {
    /// Reads the payload of Stack.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<Stack<'a>, Error> {
        let mut reader = Reader::new("Stack", payload);
        let fixed = reader.fixed::<FixedStack>()?;
        Ok(Stack {
            event_time_stamp: RawTime(fixed.event_time_stamp.get()),
            process_id: pid(fixed.process),
            thread_id: tid(fixed.thread),
            frames: Frames::new(reader.rest(), pointer),
        })
    }
}

/// As [`Stack`], with a key in place of the frames. The next definition of the key, in time, has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackKeyReference {
    /// The raw time of the event that it belongs to.
    pub event_time_stamp: RawTime,
    /// The process in which it was taken.
    pub process_id: Pid,
    /// The thread whose stack it is.
    pub thread_id: Tid,
    /// Names the frames until the key is given to others.
    pub stack_key: u64,
}

impl StackKeyReference {
    /// Reads the payload of KeyKernel or KeyUser.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<StackKeyReference, Error> {
        let mut reader = Reader::new("StackKeyReference", payload);
        let fixed = reader.fixed::<FixedStack>()?;
        Ok(StackKeyReference {
            event_time_stamp: RawTime(fixed.event_time_stamp.get()),
            process_id: pid(fixed.process),
            thread_id: tid(fixed.thread),
            stack_key: key(&mut reader, pointer)?,
        })
    }
}

/// The frames that a key has stood for until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackKeyDefinition<'a> {
    /// The key. Kernel and user keys are two name spaces; the frames tell which one is meant.
    pub stack_key: u64,
    /// The addresses.
    pub frames: Frames<'a>,
}

impl<'a> StackKeyDefinition<'a> {
    /// Reads the payload of KeyCreate, KeyDelete or KeyRundown.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(
        payload: &'a [u8],
        _version: u8,
        pointer: PointerSize,
    ) -> Result<StackKeyDefinition<'a>, Error> {
        let mut reader = Reader::new("StackKeyDefinition", payload);
        let stack_key = key(&mut reader, pointer)?;
        Ok(StackKeyDefinition { stack_key, frames: Frames::new(reader.rest(), pointer) })
    }
}

#[inline]
fn key(reader: &mut Reader<'_>, pointer: PointerSize) -> Result<u64, Error> {
    match pointer {
        PointerSize::Four => reader.fixed::<U32>().map(|key| key.value()),
        PointerSize::Eight => reader.fixed::<U64>().map(|key| key.value()),
    }
}

/// The branches that a processor took last before an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBranch<'a> {
    /// The raw time of the event that they belong to.
    pub event_time_stamp: RawTime,
    /// The process that ran.
    pub process_id: Pid,
    /// The thread that ran.
    pub thread_id: Tid,
    /// Which kinds of branches were left out.
    pub filters: u32,
    /// From, to and a reserved number for each branch.
    words: Frames<'a>,
}

/// A branch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The address of the branch.
    pub from: Address,
    /// Where it went.
    pub to: Address,
}

impl<'a> LastBranch<'a> {
    /// Reads the payload of a last-branch record.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<LastBranch<'a>, Error> {
        let mut reader = Reader::new("LastBranch", payload);
        let fixed = reader.fixed::<FixedStack>()?;
        let filters = reader.fixed::<U32>()?.get();
        if pointer == PointerSize::Eight {
            reader.skip(4)?;
        }
        Ok(LastBranch {
            event_time_stamp: RawTime(fixed.event_time_stamp.get()),
            process_id: pid(fixed.process),
            thread_id: tid(fixed.thread),
            filters,
            words: Frames::new(reader.rest(), pointer),
        })
    }

    /// The branches, in the order of the processor's registers.
    pub fn branches(&self) -> impl Iterator<Item = Branch> + 'a {
        let mut words = self.words.iter();
        std::iter::from_fn(move || {
            let branch = Branch { from: words.next()?, to: words.next()? };
            words.next().map(|_reserved| branch)
        })
    }
}
