//! Who may open the device, and what it answers: everything between the system's request packet and a
//! capture.
//!
//! Requests are buffered: input and output are one buffer of the system's, so an answer is written over its
//! request, and nothing of the caller's memory is touched. The bytes of both are told in
//! `docs/kstack-protocol.md`, with the order in which they are checked.

use core::num::NonZeroU32;

use stackhound_kstack_proto::{
    AnswerHeader, Capture, Code, Entry, MAGIC, MAX_FRAMES, MAX_OUTSTANDING, MAX_TIMEOUT_MS, Outcome, Request,
    VERSION, Version, hash,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Copied, End, Kernel, Requester};

/// Who calls, as the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The call comes from a program, not from another driver.
    pub from_user_mode: bool,
    /// The process.
    pub pid: u32,
}

/// The process that opened the device. The driver keeps its number with the open file, and gives it back with
/// each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opener(NonZeroU32);

impl Opener {
    /// The number to keep: the process.
    pub const fn number(self) -> NonZeroU32 {
        self.0
    }

    /// The opener of whom [`Self::number`] was kept. Only [`open`] says who may be one.
    pub const fn kept(number: NonZeroU32) -> Self {
        Self(number)
    }
}

/// Why a request is refused. Nothing was begun, and nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The caller may not do this.
    AccessDenied,
    /// There is no such request.
    UnknownRequest,
    /// The request is not as it must be.
    InvalidParameter,
    /// There is no room for the answer.
    BufferTooSmall,
    /// As many captures as there may be are under way, or one of this thread is.
    Busy,
    /// Something happened that cannot be: a slot was not its owner's any more, or the buffer is shorter than
    /// the system says.
    Internal,
}

/// Whether a caller may open the device: a program that holds `SeDebugPrivilege` and has switched it on.
///
/// # Errors
/// [`Refusal::AccessDenied`] for everybody else.
pub fn open(caller: Caller, debug_privilege: bool) -> Result<Opener, Refusal> {
    let opener = NonZeroU32::new(caller.pid).filter(|_| caller.from_user_mode && debug_privilege);
    opener.map(Opener).ok_or(Refusal::AccessDenied)
}

/// Answers one request to the device. `buffer` is what the system gave for input and output: its first
/// `input` bytes are the request, and its first `output` bytes take the answer; behind the input it is zero.
/// Gives the number of bytes that were written, from the first on. May wait as long as the request allows,
/// see [`Requester`].
///
/// Checked in this order: the caller, the code, the lengths against the buffer, the input (its length, then
/// the fields in the order of [`Request::parse`]), the room for the output, and only then whether there is
/// such a thread and a free slot.
///
/// # Errors
/// The first of these that fails; the buffer is as it was.
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

/// Captures, and writes the answer: the entries at their place behind the header, and last the header, over
/// the request.
fn answer<K: Kernel>(kernel: &K, capture: Capture, output: &mut [u8]) -> Result<usize, Refusal> {
    let room = AnswerHeader::length_with(usize::from(capture.max_frames));
    let output = output.get_mut(..room).ok_or(Refusal::BufferTooSmall)?;
    let (header, entries) = output.split_at_mut(AnswerHeader::LENGTH);
    let entries = <[Entry]>::mut_from_bytes(entries).map_err(|_| Refusal::Internal)?;
    let Ok(end) = Requester::new(capture).finish(kernel, entries) else {
        // It may have come so far that there are frames. Nobody is to see them.
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
