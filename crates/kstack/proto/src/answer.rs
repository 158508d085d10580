//! What comes back of a capture.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Capture, Entry, Flags, MAGIC, Missing, VERSION, hash};

/// How a capture that was begun ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Outcome {
    /// There are frames, or sentinels that say why not.
    Captured = 0,
    /// No such thread in that process, or one created at another time.
    NoThread,
    /// The thread is ending.
    Terminating,
    /// The thread did not answer in time.
    TimedOut,
    /// The thread is an idle one: they take no requests.
    Idle,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 5] =
        [Outcome::Captured, Outcome::NoThread, Outcome::Terminating, Outcome::TimedOut, Outcome::Idle];
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Captured => "captured",
            Outcome::NoThread => "there is no such thread in that process",
            Outcome::Terminating => "the thread is ending",
            Outcome::TimedOut => "the thread did not answer in time",
            Outcome::Idle => "idle threads cannot be asked",
        })
    }
}

/// The fixed part of an answer, 64 bytes; as many addresses follow as `kernel_count` and `user_count` say
/// together, the innermost first, the kernel's before the user's. A part that was asked for and is missing is
/// one sentinel, see [`Missing`]; one that was not asked for has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnswerHeader {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U16,
    /// The length of this header in bytes.
    pub size: U16,
    /// Of the request.
    pub pid: U32,
    /// Of the request.
    pub tid: U32,
    /// When the thread was created, in 100 ns since 1601; 0 if the system does not tell.
    pub created: U64,
    /// Of the request.
    pub id: U64,
    /// An [`Outcome`].
    pub outcome: U32,
    /// Entries of the kernel part.
    pub kernel_count: U16,
    /// Entries of the user part.
    pub user_count: U16,
    /// Bit 0: the capture was made by the thread that asked. Bit 1: the kernel part was cut. Bit 2: the user
    /// part was cut.
    pub flags: U16,
    /// Frames of the capture itself that were left out.
    pub machinery: U16,
    /// Frames left out as [`Capture::frames_to_skip`] asks.
    pub skipped: U16,
    /// Zero.
    pub reserved: U16,
    /// [`hash`] of all entries.
    pub hash: U64,
    /// How long the requester waited, in 100 ns.
    pub waited: U64,
}

impl AnswerHeader {
    /// Bytes of the header.
    pub const LENGTH: usize = size_of::<AnswerHeader>();
    /// In `flags`: the thread asked for its own stack.
    pub const OWN: u16 = 1;
    /// In `flags`: there were more kernel frames than room.
    pub const KERNEL_CUT: u16 = 2;
    /// In `flags`: there were more user frames than room.
    pub const USER_CUT: u16 = 4;

    /// Bytes of an answer with so many entries.
    pub const fn length_with(entries: usize) -> usize {
        Self::LENGTH + entries * size_of::<u64>()
    }

    /// The answer to a capture without frames.
    pub fn new(capture: &Capture, outcome: Outcome) -> Self {
        Self {
            magic: MAGIC.into(),
            version: VERSION.into(),
            size: (Self::LENGTH as u16).into(),
            pid: capture.pid.into(),
            tid: capture.tid.into(),
            created: U64::ZERO,
            id: capture.id.into(),
            outcome: (outcome as u32).into(),
            kernel_count: U16::ZERO,
            user_count: U16::ZERO,
            flags: U16::ZERO,
            machinery: U16::ZERO,
            skipped: U16::ZERO,
            reserved: U16::ZERO,
            hash: hash([]).into(),
            waited: U64::ZERO,
        }
    }

    /// Whether the numbers can stand together in an answer to `capture` that has this outcome.
    fn fits(&self, outcome: Outcome, capture: &Capture) -> bool {
        let captured = outcome == Outcome::Captured;
        let has = |flag| self.flags.get() & flag != 0;
        let (kernel, user) = (usize::from(self.kernel_count.get()), usize::from(self.user_count.get()));
        let created = match outcome {
            Outcome::NoThread => 0,
            _ => capture.created.unwrap_or(self.created.get()),
        };
        let frames_to_skip = if kernel == 0 { 0 } else { capture.frames_to_skip };
        let keeps = kernel == 0 || capture.flags.has(Flags::KEEP_MACHINERY);
        self.created == created
            && self.reserved == U16::ZERO
            && self.flags.get() & !(Self::OWN | Self::KERNEL_CUT | Self::USER_CUT) == 0
            && (kernel > 0) == (captured && capture.flags.has(Flags::KERNEL))
            && (user > 0) == (captured && capture.flags.has(Flags::USER))
            && kernel + user <= usize::from(capture.max_frames)
            && (captured || !has(Self::OWN))
            && (kernel > 0 || !has(Self::KERNEL_CUT))
            && (user > 0 || !has(Self::USER_CUT))
            && self.skipped <= frames_to_skip
            && (self.machinery == 0 || !keeps)
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// It has another length than its header says; how many bytes there are.
    Length(usize),
    /// It is none of ours, or of another version.
    Layout,
    /// An outcome, flags, counts or a time of creation that cannot be in an answer to this request.
    Value,
    /// It answers another request.
    Other,
    /// Its hash is not that of its entries.
    Hash,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "the driver's answer of {length} bytes is not as long as it says")
            }
            Self::Layout => f.write_str("the driver's answer is not laid out as this version expects"),
            Self::Value => f.write_str("the driver's answer has a value that cannot be"),
            Self::Other => f.write_str("the driver answers another request"),
            Self::Hash => f.write_str("the driver's answer is damaged: its hash does not fit"),
        }
    }
}

impl core::error::Error for AnswerError {}

/// An answer that was checked, over the bytes it came in.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'bytes> {
    header: AnswerHeader,
    outcome: Outcome,
    entries: &'bytes [Entry],
}

impl<'bytes> Answer<'bytes> {
    /// Reads what came back for `capture`.
    ///
    /// # Errors
    /// If the bytes are no answer to it.
    pub fn parse(bytes: &'bytes [u8], capture: &Capture) -> Result<Self, AnswerError> {
        let (header, rest) =
            AnswerHeader::read_from_prefix(bytes).map_err(|_| AnswerError::Length(bytes.len()))?;
        let layout = (header.magic.get(), header.version.get(), usize::from(header.size.get()));
        if layout != (MAGIC, VERSION, AnswerHeader::LENGTH) {
            return Err(AnswerError::Layout);
        }
        if (header.id.get(), header.pid.get(), header.tid.get()) != (capture.id, capture.pid, capture.tid) {
            return Err(AnswerError::Other);
        }
        let number = header.outcome.get();
        let outcome = Outcome::ALL.into_iter().find(|&outcome| outcome as u32 == number);
        let outcome = outcome.ok_or(AnswerError::Value)?;
        if !header.fits(outcome, capture) {
            return Err(AnswerError::Value);
        }
        let count = usize::from(header.kernel_count.get()) + usize::from(header.user_count.get());
        let entries = <[Entry]>::ref_from_bytes(rest).ok().filter(|entries| entries.len() == count);
        let entries = entries.ok_or(AnswerError::Length(bytes.len()))?;
        if hash(entries.iter().map(|entry| entry.get())) != header.hash.get() {
            return Err(AnswerError::Hash);
        }
        Ok(Self { header, outcome, entries })
    }

    /// How the capture ended.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The fixed part.
    pub fn header(&self) -> &AnswerHeader {
        &self.header
    }

    /// The kernel part, the innermost frame first, or why it is missing. Empty if it was not asked for.
    ///
    /// # Errors
    /// Why it is missing.
    pub fn kernel(&self) -> Result<impl ExactSizeIterator<Item = u64> + use<'bytes>, Missing> {
        part(&self.entries[..usize::from(self.header.kernel_count.get())])
    }

    /// The user part, the innermost frame first; kernel frames of callbacks to user mode lie in it as well. Empty if it was not asked for.
    ///
    /// # Errors
    /// Why it is missing.
    pub fn user(&self) -> Result<impl ExactSizeIterator<Item = u64> + use<'bytes>, Missing> {
        part(&self.entries[usize::from(self.header.kernel_count.get())..])
    }
}

fn part(entries: &[Entry]) -> Result<impl ExactSizeIterator<Item = u64>, Missing> {
    match entries {
        [one] if Missing::from_sentinel(one.get()).is_some() => {
            Err(Missing::from_sentinel(one.get()).expect("just seen"))
        }
        entries => Ok(entries.iter().map(|entry| entry.get())),
    }
}
