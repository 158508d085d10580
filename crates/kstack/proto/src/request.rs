//! What a capture is asked for with.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{MAGIC, MAX_FRAMES, MAX_TIMEOUT_MS, VERSION};

/// A request as bytes, 48 of them. [`Request::parse`] makes a [`Capture`] of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Request {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U16,
    /// The length of this structure in bytes.
    pub size: U16,
    /// The process of the thread.
    pub pid: U32,
    /// The thread.
    pub tid: U32,
    /// When the thread was created, in 100 ns since 1601; 0 if that is not to be checked. Windows gives
    /// numbers of threads again.
    pub created: U64,
    /// Addresses at most in the answer, both parts and sentinels together: at least one for each part, at
    /// most [`MAX_FRAMES`].
    pub max_frames: U16,
    /// See [`Flags`].
    pub flags: U16,
    /// How long to wait for the thread, 1 to [`MAX_TIMEOUT_MS`] milliseconds.
    pub timeout_ms: U32,
    /// Comes back in the answer.
    pub id: U64,
    /// Innermost frames of the kernel part to leave out, after those of the capture itself.
    pub frames_to_skip: U16,
    /// Zeros.
    pub reserved: [U16; 3],
}

/// The bits of [`Request::flags`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// The kernel part of the stack.
    pub const KERNEL: Flags = Flags(1);
    /// The user part of the stack.
    pub const USER: Flags = Flags(2);
    /// Keep the frames of the capture itself, which otherwise are left out.
    pub const KEEP_MACHINERY: Flags = Flags(4);
    /// The user part also of a thread that is in a critical region, where reading in a page of its stack can deadlock.
    pub const USER_IN_CRITICAL_REGION: Flags = Flags(8);
    const ALL: u16 = 15;

    /// The flags of a number; `None` if it has others.
    pub fn from_bits(bits: u16) -> Option<Flags> {
        (bits & !Self::ALL == 0).then_some(Flags(bits))
    }

    /// The number.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `other` are among these.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// How many parts of the stack these ask for, 0 to 2.
    pub const fn parts(self) -> u16 {
        (self.0 & (Self::KERNEL.0 | Self::USER.0)).count_ones() as u16
    }

    /// These and `other`.
    #[must_use]
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// What is wrong with a request. Nothing was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The input is not as long as a request; how long it is, in bytes.
    Length(usize),
    /// It does not begin with [`MAGIC`].
    Magic(u32),
    /// It is of another version.
    Version(u16),
    /// It says another length of itself.
    Size(u16),
    /// Flags that do not exist, or neither the kernel's part nor the user's.
    Flags(u16),
    /// No addresses, or more than [`MAX_FRAMES`].
    Frames(u16),
    /// No time, or more than [`MAX_TIMEOUT_MS`].
    Timeout(u32),
    /// More to skip than there can be.
    Skip(u16),
    /// Reserved bytes that are not zero.
    Reserved,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length(length) => write!(f, "a request has {} bytes, this one {length}", Request::LENGTH),
            Self::Magic(magic) => write!(f, "a request begins with {MAGIC:#x}, this one with {magic:#x}"),
            Self::Version(version) => write!(f, "the version is {VERSION}, that of the request {version}"),
            Self::Size(size) => write!(f, "a request has {} bytes, this one says {size}", Request::LENGTH),
            Self::Flags(flags) => write!(f, "flags {flags:#x} ask for nothing, or for what does not exist"),
            Self::Frames(frames) => {
                write!(f, "one frame for each part to {MAX_FRAMES} can be had, not {frames}")
            }
            Self::Timeout(limit) => write!(f, "a capture takes 1 to {MAX_TIMEOUT_MS} ms, not {limit}"),
            Self::Skip(skip) => write!(f, "0 to {MAX_FRAMES} frames can be skipped, not {skip}"),
            Self::Reserved => f.write_str("reserved bytes are not zero"),
        }
    }
}

impl core::error::Error for RequestError {}

/// A request that was checked: every number is within its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The process of the thread.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When the thread was created, in 100 ns since 1601, if that is to be checked.
    pub created: Option<u64>,
    /// Addresses at most, both parts and sentinels together: at least one for each part, at most
    /// [`MAX_FRAMES`].
    pub max_frames: u16,
    /// What of the stack; at least one of [`Flags::KERNEL`] and [`Flags::USER`].
    pub flags: Flags,
    /// How long to wait for the thread, 1 to [`MAX_TIMEOUT_MS`] milliseconds.
    pub timeout_ms: u32,
    /// Comes back in the answer.
    pub id: u64,
    /// Innermost frames of the kernel part to leave out, 0 to [`MAX_FRAMES`].
    pub frames_to_skip: u16,
}

impl Request {
    /// Bytes of a request.
    pub const LENGTH: usize = size_of::<Request>();

    /// What the bytes ask for.
    ///
    /// # Errors
    /// The first thing that is wrong with them. Unknown flags and reserved bytes are refused, so that later
    /// versions can use them.
    pub fn parse(bytes: &[u8]) -> Result<Capture, RequestError> {
        let request = Request::read_from_bytes(bytes).map_err(|_| RequestError::Length(bytes.len()))?;
        let flags = request.flags.get();
        match (request.magic.get(), request.version.get(), request.size.get()) {
            (magic, ..) if magic != MAGIC => return Err(RequestError::Magic(magic)),
            (_, version, _) if version != VERSION => return Err(RequestError::Version(version)),
            (.., size) if usize::from(size) != Request::LENGTH => return Err(RequestError::Size(size)),
            _ => {}
        }
        let (max_frames, timeout_ms) = (request.max_frames.get(), request.timeout_ms.get());
        let known = Flags::from_bits(flags).filter(|&flags| flags.parts() > 0);
        let flags = known.ok_or(RequestError::Flags(flags))?;
        if !(flags.parts()..=MAX_FRAMES).contains(&max_frames) {
            return Err(RequestError::Frames(max_frames));
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&timeout_ms) {
            return Err(RequestError::Timeout(timeout_ms));
        }
        if request.frames_to_skip > MAX_FRAMES {
            return Err(RequestError::Skip(request.frames_to_skip.get()));
        }
        if request.reserved != [U16::ZERO; 3] {
            return Err(RequestError::Reserved);
        }
        Ok(Capture {
            pid: request.pid.get(),
            tid: request.tid.get(),
            created: Some(request.created.get()).filter(|&time| time != 0),
            max_frames,
            flags,
            timeout_ms,
            id: request.id.get(),
            frames_to_skip: request.frames_to_skip.get(),
        })
    }
}

impl From<Capture> for Request {
    fn from(capture: Capture) -> Self {
        Self {
            magic: MAGIC.into(),
            version: VERSION.into(),
            size: (Self::LENGTH as u16).into(),
            pid: capture.pid.into(),
            tid: capture.tid.into(),
            created: capture.created.unwrap_or(0).into(),
            max_frames: capture.max_frames.into(),
            flags: capture.flags.bits().into(),
            timeout_ms: capture.timeout_ms.into(),
            id: capture.id.into(),
            frames_to_skip: capture.frames_to_skip.into(),
            reserved: [U16::ZERO; 3],
        }
    }
}
