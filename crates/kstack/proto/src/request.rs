//! Capture requests.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{MAGIC, MAX_FRAMES, MAX_TIMEOUT_MS, VERSION};

/// A request as it is sent, 48 bytes. [`Request::parse`] validates it and returns a [`Capture`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Request {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U16,
    /// The length of this structure in bytes.
    pub size: U16,
    /// The process id of the thread.
    pub pid: U32,
    /// The thread id.
    pub tid: U32,
    /// The creation time of the thread, in 100 ns since 1601; 0 for a thread of any age. Windows
    /// reuses thread ids.
    pub created: U64,
    /// The maximum number of entries in the answer, both stacks and sentinels together: at least
    /// one for each requested stack, at most [`MAX_FRAMES`].
    pub max_frames: U16,
    /// See [`Flags`].
    pub flags: U16,
    /// The timeout, 1 to [`MAX_TIMEOUT_MS`] milliseconds.
    pub timeout_ms: U32,
    /// Returned in the answer.
    pub id: U64,
    /// The number of innermost frames of the kernel stack to omit, after those of the capture
    /// itself.
    pub frames_to_skip: U16,
    /// Zeros.
    pub reserved: [U16; 3],
}

/// The bits of [`Request::flags`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// Capture the kernel stack.
    pub const KERNEL: Flags = Flags(1);
    /// Capture the user stack.
    pub const USER: Flags = Flags(2);
    /// Keep the frames of the capture itself, which are otherwise omitted.
    pub const KEEP_MACHINERY: Flags = Flags(4);
    /// Walk the user stack also if the thread is in a critical region, where reading in a page of
    /// its stack can deadlock.
    pub const USER_IN_CRITICAL_REGION: Flags = Flags(8);
    const ALL: u16 = 15;

    /// The flags with these bits, or `None` if an undefined bit is set.
    pub fn from_bits(bits: u16) -> Option<Flags> {
        (bits & !Self::ALL == 0).then_some(Flags(bits))
    }

    /// The bits, as in [`Request::flags`].
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The number of stacks that these flags request, 0 to 2.
    pub const fn parts(self) -> u16 {
        (self.0 & (Self::KERNEL.0 | Self::USER.0)).count_ones() as u16
    }

    /// The flags of both.
    #[must_use]
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// The reason why a request was rejected. No capture was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The length of the input in bytes, which is not that of a request.
    Length(usize),
    /// The first four bytes, which are not [`MAGIC`].
    Magic(u32),
    /// The version, which is not [`VERSION`].
    Version(u16),
    /// The value of the size field, which is not [`Request::LENGTH`].
    Size(u16),
    /// The flags, of which one is undefined, or which request no stack.
    Flags(u16),
    /// The number of entries, which is less than one for each requested stack, or more than
    /// [`MAX_FRAMES`].
    Frames(u16),
    /// The timeout, which is 0 or more than [`MAX_TIMEOUT_MS`].
    Timeout(u32),
    /// The number of frames to skip, which is more than [`MAX_FRAMES`].
    Skip(u16),
    /// A reserved byte is not zero.
    Reserved,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length(length) => write!(f, "expected {} bytes, found {length}", Request::LENGTH),
            Self::Magic(magic) => write!(f, "expected the magic {MAGIC:#x}, found {magic:#x}"),
            Self::Version(version) => write!(f, "expected version {VERSION}, found {version}"),
            Self::Size(size) => write!(f, "expected the size {}, found {size}", Request::LENGTH),
            Self::Flags(flags) => write!(f, "the flags {flags:#x} are undefined or request no stack"),
            Self::Frames(frames) => {
                write!(f, "expected 1 frame for each stack up to {MAX_FRAMES} frames, found {frames}")
            }
            Self::Timeout(limit) => {
                write!(f, "expected a timeout of 1 to {MAX_TIMEOUT_MS} ms, found {limit}")
            }
            Self::Skip(skip) => write!(f, "expected 0 to {MAX_FRAMES} frames to skip, found {skip}"),
            Self::Reserved => f.write_str("expected zeros in the reserved bytes"),
        }
    }
}

impl core::error::Error for RequestError {}

/// A request for one capture. [`Request::parse`] returns only captures whose fields are within
/// their bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The process id of the thread.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The required creation time of the thread, in 100 ns since 1601; `None` for a thread of any
    /// age.
    pub created: Option<u64>,
    /// The maximum number of entries, both stacks and sentinels together: at least one for each
    /// requested stack, at most [`MAX_FRAMES`].
    pub max_frames: u16,
    /// The requested stacks, at least one of [`Flags::KERNEL`] and [`Flags::USER`], and other
    /// flags.
    pub flags: Flags,
    /// The timeout, 1 to [`MAX_TIMEOUT_MS`] milliseconds.
    pub timeout_ms: u32,
    /// Returned in the answer.
    pub id: u64,
    /// The number of innermost frames of the kernel stack to omit, 0 to [`MAX_FRAMES`].
    pub frames_to_skip: u16,
}

impl Request {
    /// The length of a request in bytes.
    pub const LENGTH: usize = size_of::<Request>();

    /// Parses and validates a request.
    ///
    /// # Errors
    /// The first field that is not valid. Undefined flags and reserved bytes are refused, so that
    /// later versions can define them.
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
