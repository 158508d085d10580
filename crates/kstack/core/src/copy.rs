//! From a slot into an answer: frames of the capture itself are left out, missing parts are told.
//!
//! Parts of slices are taken by `get` where the compiler would not see that they exist: a panic would stop the whole system, so the
//! driver's image has no code for one.

use core::sync::atomic::Ordering::Relaxed;

use stackhound_kstack_proto::{Capture, Entry, Flags, Missing};

use crate::Slot;
use crate::slot::Walked;
use crate::sync::AtomicU64;

/// Frames that the capture itself has at most: a slot has room for so many beside those that are answered.
pub const MACHINERY: usize = 16;

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Copied {
    /// Entries of the kernel part.
    pub kernel: u16,
    /// Entries of the user part.
    pub user: u16,
    /// There were more kernel frames than room.
    pub kernel_cut: bool,
    /// There were more user frames than room.
    pub user_cut: bool,
    /// The thread asked for its own stack.
    pub own: bool,
    /// Frames of the capture itself that were left out.
    pub machinery: u16,
    /// Frames that were left out because the request asks for it.
    pub skipped: u16,
}

/// Copies what is in the slot: the kernel part, and what is known of the user part. `user` is that part as far as it may be read.
/// `is_own` says of an address whether it lies in the code that captures, `entries` has room for as many as the capture asks for.
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
    // The user part has at least one entry: a frame, or why there is none.
    let for_kernel = room.saturating_sub(usize::from(capture.flags.has(Flags::USER)));
    let (walked, rest) = frames.split_at(slot.kernel().count().min(frames.len()));
    match slot.kernel() {
        Walked::Not => {}
        Walked::Missing(missing) => copied.kernel = put(first(entries, for_kernel), &[], Some(missing)).0,
        Walked::Frames(_) => {
            // A thread that walks its own stack has no dispatcher of APCs above it.
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
            // Kernel addresses belong to it: in a callback from the kernel to user mode, the kernel frames that made the callback
            // lie between two runs of user frames.
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

/// How many of the innermost frames are the capture's: those in its own code, and, where an APC made it, the one who called it,
/// which is the system's dispatcher of APCs. Others of the dispatcher may follow; they can be told by name only.
fn machinery(is_own: impl Fn(u64) -> bool, frames: &[AtomicU64], by_apc: bool) -> usize {
    let own = frames.iter().take_while(|frame| is_own(frame.load(Relaxed))).count();
    if own == 0 { 0 } else { (own + usize::from(by_apc)).min(frames.len()) }
}

/// The frames before the first that is zero or does not belong to this part.
fn until(frames: &[AtomicU64], belongs: impl Fn(u64) -> bool) -> &[AtomicU64] {
    let kept = frames.iter().map(|frame| frame.load(Relaxed));
    let kept = kept.take_while(|&address| address != 0 && belongs(address)).count();
    frames.get(..kept).unwrap_or_default()
}

/// Writes frames, or why there are none, which is also said where all were left out. Gives how many entries were written, and whether
/// there was more than room.
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
