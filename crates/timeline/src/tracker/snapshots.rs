//! What recorded stacks show of a thread's stacks, and for which contexts they hold.

use stackhound_calltree::{ContextId, Evidence};

use super::Tracker;
use crate::happening::{Happening, Part, Snapshot};
use crate::side::Interval;
use crate::thread::{Mode, UserMode};

impl Tracker {
    pub(super) fn wanted<'h>(&self, happening: &'h Happening) -> Option<&'h Snapshot> {
        happening.stack.as_deref().filter(|_| self.snapshots_wanted)
    }

    /// User stacks that do not go on from what they were at a thread's entry into the kernel show that the system call was
    /// over before context `at`.
    pub(super) fn calls_may_be_over(&mut self, thread: usize, stack: &Snapshot, at: u64) {
        let thread = &mut self.threads[thread];
        // Of two walks that end at different places, one ended early.
        let goes_on = thread
            .shown_in_call(stack)
            .all(|(side, frames)| side.is_extended_by(frames) || side.has_other_root(frames));
        if goes_on || thread.calls() == 0 {
            return;
        }
        let last = ContextId(at.saturating_sub(1));
        if let Some(kernel) = &mut thread.kernel {
            self.counts.calls_without_return += 1;
            kernel.give_up_exact(thread.alive.min(last.0), last, &mut self.steps);
            thread.is_out_of_call();
        }
    }

    /// Whether a thread with a user part but no kernel part is in user mode: not if a system call is open, in which it
    /// logs an event of its own, unless the kernel has called it back.
    pub(super) fn left_kernel(&self, thread: usize, stack: &Snapshot) -> bool {
        let thread = &self.threads[thread];
        let is_callback = || {
            thread.shown_in_call(stack).all(|(side, frames)| side.is_extended_by(frames))
                && thread.shown_in_call(stack).any(|(side, frames)| !side.shows(frames))
        };
        thread.calls() == 0 || is_callback()
    }

    /// Merges the user parts of a stack that holds for some contexts.
    pub(super) fn see_user(&mut self, thread: usize, stack: &Snapshot, during: Interval) -> bool {
        if stack.innermost_user_mode().is_none() {
            return false;
        }
        let entered = self.threads[thread].entered.filter(|_| self.is_as_entered(thread, stack));
        if entered.is_none() {
            // Where the kernel called back, there is more on the user stacks than at the entry.
            self.threads[thread].is_out_of_call();
        }
        let during = Interval { first: entered.map_or(during.first, |at| at.min(during.first)), ..during };
        let evidence = if stack.kernel != Part::Absent { Evidence::Stitched } else { Evidence::Snapshot };
        if stack.wow64 == Part::Absent
            && let Some(side) = self.threads[thread].side(Mode::User(UserMode::Wow64))
        {
            // 32-bit code runs: some of what was seen of 64-bit code has returned, but not its outermost functions.
            side.forget_seen(&mut self.steps);
        }
        let mut is_merged = true;
        for mode in UserMode::ALL {
            let Some(frames) = stack.in_user_mode(mode) else { continue };
            self.ensure(thread, Mode::User(mode), during.first);
            let of = &mut self.threads[thread];
            of.user_is_seen[mode as usize] |= entered.is_some();
            let Some(side) = of.side(Mode::User(mode)) else { continue };
            if side.has_other_root(frames) {
                self.counts.unaligned += 1;
                side.forget_seen(&mut self.steps);
            }
            let is_this = side.merge((None, frames), during, evidence, &mut self.steps);
            self.counts.contradicting += u64::from(!is_this);
            is_merged &= is_this;
        }
        is_merged
    }

    /// Whether the user parts of a stack are what they were at the entry into the kernel, rather than those of a callback.
    pub(super) fn is_as_entered(&self, thread: usize, stack: &Snapshot) -> bool {
        let thread = &self.threads[thread];
        let above = match (stack.kernel.frames(), &thread.kernel) {
            (Some(frames), Some(kernel)) => kernel.above_anchor(frames),
            _ => None,
        };
        let mut shown = thread.shown_in_call(stack).peekable();
        match above {
            Some((_, above)) => !above.iter().any(|frame| frame.calls_back),
            None => shown.peek().is_some() && shown.all(|(side, frames)| side.shows(frames)),
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
