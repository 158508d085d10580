//! From a slot into an answer: frames of the capture itself are left out, missing parts are told.
//!
//! Parts of slices are taken by `get` where the compiler would not see that they exist: a panic would stop the whole system, so the
//! driver's image has no code for one.

use core::sync::atomic::Ordering::Relaxed;

use stackhound_kstack_proto::{Capture, Entry, Flags, Missing};

use crate::slot::Walked;
use crate::sync::AtomicU64;
use crate::{Kernel, Slot};

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

/// Copies what is in the slot. `entries` has room for as many as the capture asks for.
pub(crate) fn copy<K: Kernel>(
    kernel: &K,
    slot: &Slot<K::Objects, K::Frames>,
    capture: &Capture,
    own: bool,
    entries: &mut [Entry],
) -> Copied {
    let mut copied = Copied { own, ..Copied::default() };
    let room = usize::from(capture.max_frames).min(entries.len());
    // The user part has at least one entry: a frame, or why there is none.
    let for_kernel = room.saturating_sub(usize::from(capture.flags.has(Flags::USER)));
    let walked = match slot.kernel() {
        Walked::Frames(count) => usize::from(count),
        Walked::Not | Walked::Missing(_) => 0,
    };
    let (of_kernel, rest) = slot.frames().split_at(walked.min(slot.frames().len()));
    match slot.kernel() {
        Walked::Not => {}
        Walked::Missing(missing) => {
            copied.kernel = put(entries.get_mut(..for_kernel).unwrap_or_default(), &[], Some(missing)).0
        }
        Walked::Frames(_) => {
            // A thread that walks its own stack has no dispatcher of APCs above it.
            let machinery = machinery(kernel, of_kernel, !own);
            let machinery = if capture.flags.has(Flags::KEEP_MACHINERY) { 0 } else { machinery };
            let skipped = usize::from(capture.frames_to_skip).min(of_kernel.len() - machinery);
            let kept =
                until(of_kernel.get(machinery + skipped..).unwrap_or_default(), |address| address >> 63 == 1);
            (copied.kernel, copied.kernel_cut) =
                put(entries.get_mut(..for_kernel).unwrap_or_default(), kept, None);
            // A walk that filled its room may have ended early.
            copied.kernel_cut |=
                walked >= (usize::from(capture.max_frames) + MACHINERY).min(slot.frames().len());
            (copied.machinery, copied.skipped) = (machinery as u16, skipped as u16);
        }
    }
    let entries = entries.get_mut(usize::from(copied.kernel)..room).unwrap_or_default();
    match slot.user() {
        Walked::Not => {}
        Walked::Missing(missing) => copied.user = put(entries, &[], Some(missing)).0,
        Walked::Frames(count) => {
            let frames = &rest[..usize::from(count).min(rest.len())];
            let kept =
                until(frames, |address| address >> 63 == 0 && Missing::from_sentinel(address).is_none());
            (copied.user, copied.user_cut) = put(entries, kept, None);
            copied.user_cut |= usize::from(count) >= usize::from(capture.max_frames).min(rest.len());
        }
    }
    copied
}

/// How many of the innermost frames are the capture's: those in its own code, and, where an APC made it, the one who called it,
/// which is the system's dispatcher of APCs. Others of the dispatcher may follow; they can be told by name only.
fn machinery<K: Kernel>(kernel: &K, frames: &[AtomicU64], by_apc: bool) -> usize {
    let own = frames.iter().take_while(|frame| kernel.is_own(frame.load(Relaxed))).count();
    if own == 0 { 0 } else { (own + usize::from(by_apc)).min(frames.len()) }
}

/// The frames before the first that is none of this part: of a kernel stack, those of user code; of both, zeros and what only looks
/// like an address.
fn until(frames: &[AtomicU64], belongs: impl Fn(u64) -> bool) -> &[AtomicU64] {
    let kept = frames.iter().map(|frame| frame.load(Relaxed));
    let kept = kept.take_while(|&address| address != 0 && belongs(address)).count();
    frames.get(..kept).unwrap_or_default()
}

/// Writes frames, or why there are none. Gives how many entries were written, and whether there was more than room.
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
