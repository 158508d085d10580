//! Copies frames from a slot into an answer, without the frames of the capture itself, and with
//! sentinels for missing stacks.
//!
//! Slices are accessed with `get` where the compiler could not prove that the range exists: a panic
//! would stop the system, so the driver's image must contain no path to one.

use core::sync::atomic::Ordering::Relaxed;

use stackhound_kstack_proto::{Capture, Entry, Flags, Missing};

use crate::Slot;
use crate::slot::Walked;
use crate::sync::AtomicU64;

/// The maximum number of frames of the capture itself. A slot has space for these in addition to
/// the frames of an answer.
pub const MACHINERY: usize = 16;

/// The entries that were copied into an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Copied {
    /// The number of entries of the kernel stack.
    pub kernel: u16,
    /// The number of entries of the user stack.
    pub user: u16,
    /// The kernel stack was cut.
    pub kernel_cut: bool,
    /// The user stack was cut.
    pub user_cut: bool,
    /// The thread requested its own stack.
    pub own: bool,
    /// The number of frames of the capture itself that were omitted.
    pub machinery: u16,
    /// The number of frames that were omitted because the request skips them.
    pub skipped: u16,
}

/// Copies the kernel stack and the user stack from the slot. `user` is the result of the user walk
/// as far as it may be read. `is_own` returns whether an address is in the code of the driver.
/// `entries` has space for as many entries as the capture requests.
pub(crate) fn copy<Objects, Frames: AsRef<[AtomicU64]>>(
    is_own: impl Fn(u64) -> bool,
    slot: &Slot<Objects, Frames>,
    capture: &Capture,
    own: bool,
    user: Walked,
    entries: &mut [Entry],
) -> Copied {
    let mut copied = Copied { own, ..Copied::default() };
    let (wanted, frames) = (slot.wanted(), slot.frames());
    let room = usize::from(capture.max_frames).min(entries.len());
    // The user stack has at least one entry: a frame, or the reason why there is none.
    let for_kernel = room.saturating_sub(usize::from(capture.flags.has(Flags::USER)));
    let (walked, rest) = frames.split_at(slot.kernel().count().min(frames.len()));
    match slot.kernel() {
        Walked::Not => {}
        Walked::Missing(missing) => copied.kernel = put(first(entries, for_kernel), &[], Some(missing)).0,
        Walked::Frames(_) => {
            // A thread that walks its own stack was not called by the APC dispatcher.
            let machinery = match capture.flags.has(Flags::KEEP_MACHINERY) {
                true => 0,
                false => machinery(is_own, walked, !own),
            };
            let skipped = usize::from(capture.frames_to_skip).min(walked.len() - machinery);
            let left = walked.get(machinery + skipped..).unwrap_or_default();
            let kept = until(left, |address| address >> 63 == 1);
            (copied.kernel, copied.kernel_cut) = put(first(entries, for_kernel), kept, None);
            copied.kernel_cut |= wanted.kernel_room(frames.len()).is_some_and(|room| walked.len() >= room)
                && kept.len() == left.len();
            (copied.machinery, copied.skipped) = (machinery as u16, skipped as u16);
        }
    }
    let entries = entries.get_mut(usize::from(copied.kernel)..room).unwrap_or_default();
    match user {
        Walked::Not => {}
        Walked::Missing(missing) => copied.user = put(entries, &[], Some(missing)).0,
        Walked::Frames(count) => {
            let walked = rest.get(..usize::from(count)).unwrap_or(rest);
            // Kernel addresses are kept: during a callback from the kernel to user mode, the kernel
            // frames that made the callback are between two runs of user frames.
            let kept = until(walked, |address| Missing::from_sentinel(address).is_none());
            (copied.user, copied.user_cut) = put(entries, kept, None);
            let ended = kept.len() == walked.len() && walked.len() < wanted.user_room(rest.len());
            copied.user_cut |= !kept.is_empty() && !ended;
        }
    }
    copied
}

fn first(entries: &mut [Entry], count: usize) -> &mut [Entry] {
    entries.get_mut(..count).unwrap_or_default()
}

/// The number of innermost frames that belong to the capture: those in the code of the driver and,
/// if an APC walked the stack, the frame that called the APC, which is in the APC dispatcher. More
/// frames of the dispatcher may follow; they can only be recognized by name.
fn machinery(is_own: impl Fn(u64) -> bool, frames: &[AtomicU64], by_apc: bool) -> usize {
    let own = frames.iter().take_while(|frame| is_own(frame.load(Relaxed))).count();
    if own == 0 { 0 } else { (own + usize::from(by_apc)).min(frames.len()) }
}

/// The frames before the first one that is zero or does not belong to this stack.
fn until(frames: &[AtomicU64], belongs: impl Fn(u64) -> bool) -> &[AtomicU64] {
    let kept = frames.iter().map(|frame| frame.load(Relaxed));
    let kept = kept.take_while(|&address| address != 0 && belongs(address)).count();
    frames.get(..kept).unwrap_or_default()
}

/// Writes the frames, or a sentinel if there are none, also if all of them were omitted. Returns
/// the number of entries written, and whether the frames exceeded the space.
fn put(entries: &mut [Entry], frames: &[AtomicU64], missing: Option<Missing>) -> (u16, bool) {
    if frames.is_empty() {
        let Some(entry) = entries.first_mut() else { return (0, false) };
        *entry = missing.unwrap_or(Missing::Nothing).sentinel().into();
        return (1, false);
    }
    for (entry, frame) in entries.iter_mut().zip(frames) {
        *entry = frame.load(Relaxed).into();
    }
    (frames.len().min(entries.len()) as u16, frames.len() > entries.len())
}
