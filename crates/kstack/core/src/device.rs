//! Access to the device, and the dispatch of its requests: everything between the system's request
//! packet and a capture.
//!
//! Requests are buffered: input and output share one system buffer, so an answer overwrites its
//! request, and the caller's memory is never touched. `docs/kstack-protocol.md` specifies the bytes
//! of both, and the order of the checks.

use core::num::NonZeroU32;

use stackhound_kstack_proto::{
    AnswerHeader, Capture, Code, Entry, MAGIC, MAX_FRAMES, MAX_OUTSTANDING, MAX_TIMEOUT_MS, Outcome, Request,
    VERSION, Version, hash,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Copied, End, Kernel, Requester};

/// The caller, as reported by the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The call comes from a program, not from another driver.
    pub from_user_mode: bool,
    /// The process id.
    pub pid: u32,
}

/// The process that opened the device. The driver stores its id with the open file, and passes it
/// with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opener(NonZeroU32);

impl Opener {
    /// The number to store: the process id.
    pub const fn number(self) -> NonZeroU32 {
        self.0
    }

    /// The opener with a stored [`Self::number`]. Only [`open`] checks whether a process may be an
    /// opener.
    pub const fn kept(number: NonZeroU32) -> Self {
        Self(number)
    }
}

/// The reason why a request is refused. No capture was made, and nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The caller is not allowed to do this.
    AccessDenied,
    /// The control code is unknown.
    UnknownRequest,
    /// The input is not a valid request.
    InvalidParameter,
    /// The output buffer is too small for the answer.
    BufferTooSmall,
    /// The maximum number of captures is in progress, or one of this thread is.
    Busy,
    /// A condition that cannot occur: a slot no longer belonged to the capture, or the buffer is
    /// shorter than the system states.
    Internal,
}

/// Checks whether a caller may open the device: it must be a program that holds `SeDebugPrivilege`
/// and has enabled it.
///
/// # Errors
/// [`Refusal::AccessDenied`] for all other callers.
pub fn open(caller: Caller, debug_privilege: bool) -> Result<Opener, Refusal> {
    let opener = NonZeroU32::new(caller.pid).filter(|_| caller.from_user_mode && debug_privilege);
    opener.map(Opener).ok_or(Refusal::AccessDenied)
}

/// Answers one request to the device. `buffer` is the system buffer for input and output: its first
/// `input` bytes are the request, and its first `output` bytes receive the answer. After the input
/// it is zero. Returns the number of bytes written, counted from the first byte. May wait until the
/// timeout of the request, see [`Requester`].
///
/// The checks are made in this order: the caller; the code; the lengths against the buffer; the
/// input, first its length, then the fields in the order of [`Request::parse`]; the space for the
/// output; the thread and a free slot.
///
/// # Errors
/// The first check that fails. The buffer is then unchanged.
pub fn control<K: Kernel>(
    kernel: &K,
    opener: Opener,
    caller: Caller,
    code: u32,
    buffer: &mut [u8],
    input: usize,
    output: usize,
) -> Result<usize, Refusal> {
    if !caller.from_user_mode || caller.pid != opener.0.get() {
        return Err(Refusal::AccessDenied);
    }
    let code = Code::from_number(code).ok_or(Refusal::UnknownRequest)?;
    if input > buffer.len() || output > buffer.len() {
        return Err(Refusal::Internal);
    }
    match code {
        Code::Version if input != 0 => Err(Refusal::InvalidParameter),
        Code::Version => {
            version(kernel).write_to_prefix(&mut buffer[..output]).map_err(|_| Refusal::BufferTooSmall)?;
            Ok(size_of::<Version>())
        }
        Code::Capture => {
            let capture = Request::parse(&buffer[..input]).map_err(|_| Refusal::InvalidParameter)?;
            answer(kernel, capture, &mut buffer[..output])
        }
    }
}

fn version<K: Kernel>(kernel: &K) -> Version {
    Version {
        magic: MAGIC.into(),
        version: VERSION.into(),
        max_frames: MAX_FRAMES.into(),
        max_timeout_ms: MAX_TIMEOUT_MS.into(),
        max_outstanding: (MAX_OUTSTANDING as u16).into(),
        abilities: if kernel.can_remove() { Version::CAN_REMOVE } else { 0 }.into(),
    }
}

/// Captures, and writes the answer: the entries at their offset after the header, and last the
/// header, over the request.
fn answer<K: Kernel>(kernel: &K, capture: Capture, output: &mut [u8]) -> Result<usize, Refusal> {
    let room = AnswerHeader::length_with(usize::from(capture.max_frames));
    let output = output.get_mut(..room).ok_or(Refusal::BufferTooSmall)?;
    let (header, entries) = output.split_at_mut(AnswerHeader::LENGTH);
    let entries = <[Entry]>::mut_from_bytes(entries).map_err(|_| Refusal::Internal)?;
    let Ok(end) = Requester::new(capture).finish(kernel, entries) else {
        // Frames may already have been copied. They must not be returned.
        entries.as_mut_bytes().fill(0);
        return Err(Refusal::Internal);
    };
    let End::Answered { outcome, created, waited, copied } = end else { return Err(Refusal::Busy) };
    let count = usize::from(copied.kernel) + usize::from(copied.user);
    let completed =
        complete(&capture, outcome, created, waited, &copied, entries.get(..count).ok_or(Refusal::Internal)?);
    completed.write_to(header).map_err(|_| Refusal::Internal)?;
    Ok(AnswerHeader::length_with(count))
}

fn complete(
    capture: &Capture,
    outcome: Outcome,
    created: u64,
    waited: u64,
    copied: &Copied,
    entries: &[Entry],
) -> AnswerHeader {
    let flags = [
        (copied.own, AnswerHeader::OWN),
        (copied.kernel_cut, AnswerHeader::KERNEL_CUT),
        (copied.user_cut, AnswerHeader::USER_CUT),
    ];
    let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
    AnswerHeader {
        created: created.into(),
        waited: waited.into(),
        kernel_count: copied.kernel.into(),
        user_count: copied.user.into(),
        flags: flags.into(),
        machinery: copied.machinery.into(),
        skipped: copied.skipped.into(),
        hash: hash(entries.iter().map(|entry| entry.get())).into(),
        ..AnswerHeader::new(capture, outcome)
    }
}
