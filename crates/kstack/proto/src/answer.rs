//! The answer to a capture request.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Capture, Entry, Flags, MAGIC, Missing, VERSION, hash};

/// The result of a capture that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Outcome {
    /// The answer has frames, or sentinels with the reason why there are none.
    Captured = 0,
    /// The process has no such thread, or the thread was created at another time.
    NoThread,
    /// The thread is terminating.
    Terminating,
    /// The thread did not answer in time.
    TimedOut,
    /// The thread is an idle thread. Idle threads cannot be captured.
    Idle,
}

impl Outcome {
    /// All outcomes, by number.
    pub const ALL: [Outcome; 5] =
        [Outcome::Captured, Outcome::NoThread, Outcome::Terminating, Outcome::TimedOut, Outcome::Idle];
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Captured => "captured",
            Outcome::NoThread => "the process has no such thread",
            Outcome::Terminating => "the thread is terminating",
            Outcome::TimedOut => "the thread did not answer in time",
            Outcome::Idle => "idle threads cannot be captured",
        })
    }
}

/// The header of an answer, 64 bytes. `kernel_count` and then `user_count` entries follow, each
/// stack with its innermost frame first. A requested stack that is missing has one entry, a
/// sentinel (see [`Missing`]). A stack that was not requested has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnswerHeader {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U16,
    /// The length of this header in bytes.
    pub size: U16,
    /// The process id of the request.
    pub pid: U32,
    /// The thread id of the request.
    pub tid: U32,
    /// The creation time of the thread, in 100 ns since 1601. It is 0 if the thread was not found,
    /// or if the system does not report it.
    pub created: U64,
    /// The id of the request.
    pub id: U64,
    /// An [`Outcome`].
    pub outcome: U32,
    /// The number of entries of the kernel stack.
    pub kernel_count: U16,
    /// The number of entries of the user stack.
    pub user_count: U16,
    /// Bit 0: the thread requested its own stack. Bit 1: the kernel stack was cut. Bit 2: the user
    /// stack was cut.
    pub flags: U16,
    /// The number of frames of the capture itself that were omitted.
    pub machinery: U16,
    /// The number of frames that were omitted due to [`Capture::frames_to_skip`].
    pub skipped: U16,
    /// Zero.
    pub reserved: U16,
    /// The [`hash`] of all entries.
    pub hash: U64,
    /// The duration of the capture, in 100 ns.
    pub waited: U64,
}

impl AnswerHeader {
    /// The length of the header in bytes.
    pub const LENGTH: usize = size_of::<AnswerHeader>();
    /// Flag: the thread requested its own stack.
    pub const OWN: u16 = 1;
    /// Flag: the kernel stack was cut.
    pub const KERNEL_CUT: u16 = 2;
    /// Flag: the user stack was cut.
    pub const USER_CUT: u16 = 4;

    /// The length in bytes of an answer with this number of entries.
    pub const fn length_with(entries: usize) -> usize {
        Self::LENGTH + entries * size_of::<u64>()
    }

    /// A header for an answer without entries.
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

    /// Whether the fields are consistent with each other, with the outcome and with the request.
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

/// The reason why an answer was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// The length in bytes, which does not match the counts in the header.
    Length(usize),
    /// The magic, version or size of the header is wrong.
    Layout,
    /// The outcome, a flag, a count or the creation time is not possible in an answer to this
    /// request.
    Value,
    /// The answer has the process, thread or id of another request.
    Other,
    /// The hash does not match the entries.
    Hash,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "the driver's answer has {length} bytes, which does not match its header")
            }
            Self::Layout => f.write_str("the driver's answer does not have the layout of this version"),
            Self::Value => {
                f.write_str("the driver's answer has a value that is not possible for this request")
            }
            Self::Other => f.write_str("the driver's answer belongs to another request"),
            Self::Hash => f.write_str("the driver's answer is damaged: its hash does not match its frames"),
        }
    }
}

impl core::error::Error for AnswerError {}

/// A validated answer. It borrows the bytes of its entries.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'bytes> {
    header: AnswerHeader,
    outcome: Outcome,
    entries: &'bytes [Entry],
}

impl<'bytes> Answer<'bytes> {
    /// Parses and validates the answer to `capture`. The cost is linear in the number of entries,
    /// which are hashed.
    ///
    /// # Errors
    /// If the bytes are not a valid answer to `capture`.
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

    /// The outcome of the capture.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The header.
    pub fn header(&self) -> &AnswerHeader {
        &self.header
    }

    /// The addresses of the kernel stack, innermost first. Empty if the kernel stack was not
    /// requested.
    ///
    /// # Errors
    /// The reason why the kernel stack is missing.
    pub fn kernel(&self) -> Result<impl ExactSizeIterator<Item = u64> + use<'bytes>, Missing> {
        part(&self.entries[..usize::from(self.header.kernel_count.get())])
    }

    /// The addresses of the user stack, innermost first. They include the kernel frames of
    /// callbacks from the kernel to user mode. Empty if the user stack was not requested.
    ///
    /// # Errors
    /// The reason why the user stack is missing.
    pub fn user(&self) -> Result<impl ExactSizeIterator<Item = u64> + use<'bytes>, Missing> {
        part(&self.entries[usize::from(self.header.kernel_count.get())..])
    }
}

fn part(entries: &[Entry]) -> Result<impl ExactSizeIterator<Item = u64>, Missing> {
    match entries {
        [one] if Missing::from_sentinel(one.get()).is_some() => {
            Err(Missing::from_sentinel(one.get()).expect("checked by the guard"))
        }
        entries => Ok(entries.iter().map(|entry| entry.get())),
    }
}
