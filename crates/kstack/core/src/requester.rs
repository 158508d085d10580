//! The request, which runs in the requesting thread.

use stackhound_kstack_proto::{Capture, Entry, Outcome};

use crate::apc::{walk_kernel, walk_user};
use crate::copy::{Copied, copy};
use crate::slot::{Phase, Wanted, open};
use crate::{Found, Kernel, Progress, Removal, Stale, ThreadRelation, Ticket};

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The request has an answer.
    Answered {
        /// The outcome of the capture.
        outcome: Outcome,
        /// The creation time of the thread, in 100 ns since 1601; 0 if not known.
        created: u64,
        /// The duration of the capture, in 100 ns.
        waited: u64,
        /// The entries that were copied; none unless the outcome is [`Outcome::Captured`].
        copied: Copied,
    },
    /// The maximum number of captures is in progress, or one of this thread is. No capture was
    /// started.
    Busy,
}

/// The state machine of one request for a stack, from finding the thread to the answer. It must be
/// stepped to its end, which it reaches after at most 13 steps plus two for each slot. One of the
/// steps waits, at most for the timeout of the request.
#[derive(Clone, Debug)]
pub struct Requester<Thread> {
    capture: Capture,
    stage: Stage,
    found: Option<Found<Thread>>,
    begun: u64,
    outcome: Option<Outcome>,
    copied: Copied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Find,
    /// The slot to try next.
    Claim(u32),
    /// The slot to compare next.
    Compare(Ticket, u32),
    Begin(Ticket),
    WalkKernel(Ticket),
    WalkUser(Ticket),
    Prepare(Ticket),
    Refer(Ticket),
    Queue(Ticket),
    Wait(Ticket),
    Remove(Ticket),
    Abandon(Ticket),
    /// Copies both stacks, or only the kernel stack.
    Copy(Ticket, Complete),
    /// The APC will neither run nor be run down, so the request releases the APC's reference.
    ReleaseApc(Ticket),
    Release(Ticket),
    Free(Ticket),
    ReleaseThread,
}

/// Whether both stacks are complete, or the APC is still walking the user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complete {
    Yes,
    KernelOnly,
}

impl<Thread: Copy> Requester<Thread> {
    /// A request that has not started.
    pub fn new(capture: Capture) -> Self {
        Self { capture, stage: Stage::Find, found: None, begun: 0, outcome: None, copied: Copied::default() }
    }

    /// Takes all steps, in a critical region of the system: the requesting thread is not suspended
    /// while it holds a slot and a reference. The frames are written to `entries`.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn finish<K: Kernel<Thread = Thread>>(
        mut self,
        kernel: &K,
        entries: &mut [Entry],
    ) -> Result<End, Stale> {
        kernel.enter_critical_region();
        let end = loop {
            match self.step(kernel, entries) {
                Ok(Progress::Again) => {}
                Ok(Progress::Done(end)) => break Ok(end),
                Err(stale) => break Err(stale),
            }
        };
        kernel.leave_critical_region();
        end
    }

    /// Takes the next step.
    ///
    /// # Errors
    /// If the slot no longer belongs to the request, which cannot happen.
    pub fn step<K: Kernel<Thread = Thread>>(
        &mut self,
        kernel: &K,
        entries: &mut [Entry],
    ) -> Result<Progress<End>, Stale> {
        self.stage = match self.stage {
            Stage::Find => {
                self.begun = kernel.now();
                match kernel.find(&self.capture) {
                    Err(outcome) => return Ok(Progress::Done(self.answer(kernel, outcome))),
                    // The system also finds the thread by other ids, which would bypass the limit
                    // of one capture for each thread.
                    Ok(found) if found.tid != self.capture.tid => {
                        kernel.release_thread(found.thread);
                        return Ok(Progress::Done(self.answer(kernel, Outcome::NoThread)));
                    }
                    Ok(found) => {
                        self.found = Some(found);
                        match found.relation {
                            // Only idle threads have the id that marks a free slot.
                            _ if found.tid == 0 => self.end_with(Outcome::Idle),
                            ThreadRelation::Own | ThreadRelation::Other => Stage::Claim(0),
                            ThreadRelation::Idle => self.end_with(Outcome::Idle),
                        }
                    }
                }
            }
            Stage::Claim(index) => match kernel.slots().get(index as usize) {
                None => Stage::ReleaseThread,
                Some(slot) => match slot.claim(index, self.capture.tid) {
                    None => Stage::Claim(index + 1),
                    Some(ticket) => Stage::Compare(ticket, 0),
                },
            },
            // If two requests claim slots for the same thread, at least one of them sees the other.
            // Both may withdraw, but never do both continue.
            Stage::Compare(ticket, index) => match kernel.slots().get(index as usize) {
                None => Stage::Begin(ticket),
                Some(slot) if index != ticket.index && slot.is_of(self.capture.tid) => Stage::Free(ticket),
                Some(_) => Stage::Compare(ticket, index + 1),
            },
            Stage::Begin(ticket) => {
                let found = self.found.as_ref().ok_or(Stale)?;
                let wanted = Wanted::new(&self.capture, found.user, found.relation == ThreadRelation::Own);
                open(kernel, ticket)?.begin(wanted);
                match found.relation {
                    ThreadRelation::Own => Stage::WalkKernel(ticket),
                    _ => Stage::Prepare(ticket),
                }
            }
            Stage::WalkKernel(ticket) => {
                let slot = open(kernel, ticket)?;
                slot.set_kernel(walk_kernel(kernel, slot));
                Stage::WalkUser(ticket)
            }
            Stage::WalkUser(ticket) => {
                let slot = open(kernel, ticket)?;
                slot.set_user(walk_user(kernel, slot));
                Stage::Copy(ticket, Complete::Yes)
            }
            Stage::Prepare(ticket) => {
                open(kernel, ticket)?;
                kernel.prepare(ticket, self.found.as_ref().ok_or(Stale)?.thread);
                Stage::Refer(ticket)
            }
            // Before the APC is queued, because it may have run when the queueing call returns.
            Stage::Refer(ticket) => {
                open(kernel, ticket)?.refer();
                Stage::Queue(ticket)
            }
            Stage::Queue(ticket) => {
                open(kernel, ticket)?;
                if kernel.queue(ticket) {
                    Stage::Wait(ticket)
                } else {
                    self.outcome = Some(Outcome::Terminating);
                    Stage::ReleaseApc(ticket)
                }
            }
            Stage::Wait(ticket) => {
                open(kernel, ticket)?;
                match kernel.wait(ticket, self.capture.timeout_ms) {
                    true => Stage::Abandon(ticket),
                    false => Stage::Remove(ticket),
                }
            }
            Stage::Remove(ticket) => {
                open(kernel, ticket)?;
                match kernel.remove(ticket) {
                    Removal::Removed => {
                        self.outcome = Some(Outcome::TimedOut);
                        Stage::ReleaseApc(ticket)
                    }
                    Removal::NotQueued | Removal::Unsupported => Stage::Abandon(ticket),
                }
            }
            // The phase that the APC has reached by now decides, whatever ended the wait. Later
            // phases are ignored.
            Stage::Abandon(ticket) => self.after(open(kernel, ticket)?.abandon(), ticket),
            Stage::Copy(ticket, complete) => {
                let slot = open(kernel, ticket)?;
                let own = self.found.as_ref().is_some_and(|found| found.relation == ThreadRelation::Own);
                let user = match complete {
                    Complete::Yes => slot.user(),
                    Complete::KernelOnly => slot.wanted().unfinished(),
                };
                let is_own = |address| kernel.is_own(address);
                self.copied = copy(is_own, slot, &self.capture, own, user, entries);
                self.outcome = Some(Outcome::Captured);
                Stage::Release(ticket)
            }
            // Never the last reference, because the request still has its own.
            Stage::ReleaseApc(ticket) => match open(kernel, ticket)?.end_reference() {
                true => return Err(Stale),
                false => Stage::Release(ticket),
            },
            Stage::Release(ticket) => match open(kernel, ticket)?.end_reference() {
                true => Stage::Free(ticket),
                false => Stage::ReleaseThread,
            },
            Stage::Free(ticket) => {
                open(kernel, ticket)?.free();
                Stage::ReleaseThread
            }
            Stage::ReleaseThread => {
                kernel.release_thread(self.found.as_ref().ok_or(Stale)?.thread);
                let end = match self.outcome {
                    None => End::Busy,
                    Some(outcome) => self.answer(kernel, outcome),
                };
                return Ok(Progress::Done(end));
            }
        };
        Ok(Progress::Again)
    }

    fn end_with(&mut self, outcome: Outcome) -> Stage {
        self.outcome = Some(outcome);
        Stage::ReleaseThread
    }

    fn after(&mut self, phase: Phase, ticket: Ticket) -> Stage {
        match phase {
            Phase::Captured => Stage::Copy(ticket, Complete::Yes),
            Phase::KernelDone => Stage::Copy(ticket, Complete::KernelOnly),
            Phase::RunDown => {
                self.outcome = Some(Outcome::Terminating);
                Stage::Release(ticket)
            }
            Phase::Waiting | Phase::Running | Phase::Abandoned => {
                self.outcome = Some(Outcome::TimedOut);
                Stage::Release(ticket)
            }
        }
    }

    fn answer<K: Kernel>(&self, kernel: &K, outcome: Outcome) -> End {
        End::Answered {
            outcome,
            created: self.found.as_ref().map_or(0, |found| found.created),
            waited: kernel.now().saturating_sub(self.begun),
            copied: self.copied,
        }
    }
}
