//! What recorded stacks show of a thread's two stacks, and for which contexts they hold.

use stackhound_calltree::{ContextId, Evidence};

use super::Tracker;
use crate::happening::{Happening, Part, SeenFrame, Snapshot};
use crate::side::Interval;
use crate::thread::Mode;

impl Tracker {
    pub(super) fn wanted<'h>(&self, happening: &'h Happening) -> Option<&'h Snapshot> {
        happening.stack.as_deref().filter(|_| self.snapshots_wanted)
    }

    /// A user stack that does not go on from what it was at a thread's entry into the kernel shows that the system call
    /// was over before context `at`.
    pub(super) fn calls_may_be_over(&mut self, thread: usize, stack: &Snapshot, at: u64) {
        let thread = &mut self.threads[thread];
        let (Some(frames), Some(user)) = (stack.user.frames(), &thread.user) else { return };
        if !user.has_seen() || user.shows(frames) {
            return;
        }
        let last = ContextId(at.saturating_sub(1));
        let is_over = thread.calls() > 0 && thread.user_is_seen && !user.is_extended_by(frames);
        if let (true, Some(kernel)) = (is_over, &mut thread.kernel) {
            self.counts.calls_without_return += 1;
            kernel.give_up_exact(thread.alive.min(last.0), last, &mut self.steps);
            (thread.entered, thread.user_is_seen) = (None, false);
        }
    }

    /// Whether a thread with a user part but no kernel part is in user mode: not if a system call is open, in which it
    /// logs an event of its own, unless the kernel has called it back.
    pub(super) fn left_kernel(&self, thread: usize, frames: &[SeenFrame]) -> bool {
        let thread = &self.threads[thread];
        let is_callback = || {
            let user = thread.user.as_ref().filter(|_| thread.user_is_seen);
            user.is_some_and(|user| user.is_extended_by(frames) && !user.shows(frames))
        };
        thread.calls() == 0 || is_callback()
    }

    /// Merges the user part of a stack that holds for some contexts.
    pub(super) fn see_user(&mut self, thread: usize, stack: &Snapshot, during: Interval) -> bool {
        let Some(frames) = stack.user.frames() else { return false };
        let entered = self.threads[thread].entered.filter(|_| self.is_as_entered(thread, stack));
        if entered.is_none() {
            // Where the kernel called back, there is more on the user stack than at the entry.
            self.threads[thread].entered = None;
            self.threads[thread].user_is_seen = false;
        }
        let during = Interval { first: entered.map_or(during.first, |at| at.min(during.first)), ..during };
        self.ensure(thread, Mode::User, during.first);
        let of = &mut self.threads[thread];
        of.user_is_seen |= entered.is_some();
        let Some(user) = &mut of.user else { return false };
        if user.has_other_root(frames) {
            self.counts.unaligned += 1;
            user.forget_seen(&mut self.steps);
        }
        let is_stitched = stack.kernel != Part::Absent;
        let evidence = if is_stitched { Evidence::Stitched } else { Evidence::Snapshot };
        let is_merged = user.merge((None, frames), during, evidence, &mut self.steps);
        self.counts.contradicting += u64::from(!is_merged);
        is_merged
    }

    /// Whether the user part of a stack is what it was at the entry into the kernel, rather than that of a callback.
    pub(super) fn is_as_entered(&self, thread: usize, stack: &Snapshot) -> bool {
        let thread = &self.threads[thread];
        let user = thread.user.as_ref().filter(|_| thread.user_is_seen);
        let above = match (stack.kernel.frames(), &thread.kernel) {
            (Some(frames), Some(kernel)) => kernel.above_anchor(frames),
            _ => None,
        };
        match (above, user, stack.user.frames()) {
            (Some((_, above)), _, _) => !above.iter().any(|frame| frame.calls_back),
            (None, Some(user), Some(frames)) => user.shows(frames),
            _ => false,
        }
    }

    /// Merges the kernel part of a stack that holds for some contexts.
    pub(super) fn see_kernel(&mut self, thread: usize, stack: &Snapshot, during: Interval) -> bool {
        let Some(frames) = stack.kernel.frames() else { return false };
        self.ensure(thread, Mode::Kernel, during.first);
        let Some(kernel) = &mut self.threads[thread].kernel else { return false };
        let Some(above) = kernel.above_anchor(frames) else {
            self.counts.without_routine += 1;
            return false;
        };
        let is_merged = kernel.merge(above, during, Evidence::Snapshot, &mut self.steps);
        self.counts.contradicting += u64::from(!is_merged);
        is_merged
    }
}
