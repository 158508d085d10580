//! The model of a kernel. It tracks the state of the system and the actions of the state machines
//! under test, and records the first violation.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use stackhound_kstack_core::{Apc, Found, Kernel, MACHINERY, Part, Removal, Slot, ThreadRelation, Ticket};
use stackhound_kstack_proto::{Capture, Flags, Missing, Outcome};

use crate::defects::{Defect, Violation};
use crate::scenario::{Kind, MAX_FRAMES, Scenario, Walks};
use crate::tape::Tape;

/// The return address in the code of the driver.
pub const OWN: u64 = 0xffff_f800_0000_1000;
/// The return address in the APC dispatcher.
pub const DISPATCHER: u64 = 0xffff_f800_0000_2000;

/// The frames of a slot. Models with a defect may write them at any time.
#[derive(Clone)]
pub struct Frames(Rc<[AtomicU64; MAX_FRAMES as usize + MACHINERY]>);

impl AsRef<[AtomicU64]> for Frames {
    fn as_ref(&self) -> &[AtomicU64] {
        &*self.0
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .map(|frame| frame.load(Relaxed))
            .filter(|&frame| frame != 0)
            .try_for_each(|frame| write!(f, "{frame:x},"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    Running,
    /// It takes no more APCs, and runs down those in its queue.
    Ending,
    Ended,
}

/// The APC that a thread runs.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Running {
    pub apc: Apc,
    pub ticket: Ticket,
    /// It started after the request had ended.
    pub late: bool,
    /// It waits forever for a page.
    pub hung: bool,
}

#[derive(Debug, Hash)]
pub struct Thread {
    pub life: Life,
    /// The references of requests, and one that the thread holds until it ends.
    pub references: u32,
    pub queue: VecDeque<Ticket>,
    pub running: Option<Running>,
}

/// The state of the system for a slot, and the last observed state of the slot.
#[derive(Debug, Default, Hash)]
pub struct Kept {
    /// The capture and the thread for which the APC and the event were prepared.
    ready: Option<(Ticket, usize)>,
    /// The capture that signaled the event.
    signaled: Option<Ticket>,
    /// Whether the slot had an owner at the last check.
    owned: bool,
    frees: u32,
}

/// The state of a request.
#[derive(Debug, Default, Hash)]
pub struct Request {
    /// The thread to which it holds a reference.
    pub thread: Option<usize>,
    pub ticket: Option<Ticket>,
    /// It waits, or is about to wait.
    pub waits: bool,
    /// The wait ended without its event.
    pub timed_out: bool,
    /// Whether the thread was in a critical region, if the APC checked this.
    pub in_region: Option<bool>,
    pub copied: bool,
    pub outcome: Option<Outcome>,
    pub ended: bool,
    /// The results of its walks, and the threads in which they ran.
    pub kernel: Option<(usize, Result<usize, Missing>)>,
    pub user: Option<(usize, Result<usize, Missing>)>,
}

/// The state machine that takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    Request(usize),
    /// The APC that a thread runs.
    Apc(usize),
}

#[derive(Debug, Hash)]
pub struct AccessLog {
    pub threads: Vec<Thread>,
    pub slots: Vec<Kept>,
    pub requests: Vec<Request>,
    pub unloaded: bool,
}

pub struct World {
    pub scenario: Scenario,
    slots: Vec<Slot<(), Frames>>,
    /// The frames of all slots.
    frames: Vec<Frames>,
    pub log: RefCell<AccessLog>,
    pub tape: RefCell<Tape>,
    pub actor: Cell<Actor>,
    pub violation: Cell<Option<Violation>>,
}

impl World {
    pub fn new(scenario: Scenario, tape: Tape) -> Self {
        let frames = || Frames(Rc::new([const { AtomicU64::new(0) }; MAX_FRAMES as usize + MACHINERY]));
        let frames: Vec<Frames> = (0..scenario.slots).map(|_| frames()).collect();
        let thread = || Thread { life: Life::Running, references: 1, queue: VecDeque::new(), running: None };
        let log = AccessLog {
            threads: scenario.threads.iter().map(|_| thread()).collect(),
            slots: (0..scenario.slots).map(|_| Kept::default()).collect(),
            requests: scenario.asks.iter().map(|_| Request::default()).collect(),
            unloaded: false,
        };
        Self {
            slots: frames.iter().map(|frames| Slot::new((), frames.clone())).collect(),
            frames,
            log: RefCell::new(log),
            tape: RefCell::new(tape),
            actor: Cell::new(Actor::Request(0)),
            violation: Cell::new(None),
            scenario,
        }
    }

    pub fn choose(&self, of: usize) -> usize {
        self.tape.borrow_mut().choose(of)
    }

    pub fn has(&self, defect: Defect) -> bool {
        self.scenario.defect == Some(defect)
    }

    /// Records a violation. Only the first counts.
    pub fn violate(&self, violation: Violation) {
        self.violation.set(self.violation.get().or(Some(violation)));
    }

    pub fn check(&self, holds: bool, violation: Violation) {
        if !holds {
            self.violate(violation);
        }
    }

    /// The request of a capture.
    pub fn request_of(&self, ticket: Ticket) -> usize {
        let log = self.log.borrow();
        log.requests.iter().position(|request| request.ticket == Some(ticket)).expect("a ticket of a request")
    }

    fn is_live(&self, ticket: Ticket) -> bool {
        let index = ticket.index as usize;
        self.slots[index].owner().is_some() && self.log.borrow().slots[index].frees == ticket.generation
    }

    /// Checks the preconditions of every system call for a slot. Returns the thread for which the
    /// slot was prepared.
    fn check_call(&self, ticket: Ticket) -> usize {
        self.check(self.is_live(ticket), Violation::NotLive);
        let ready = self.log.borrow().slots[ticket.index as usize].ready;
        self.check(ready.is_some_and(|(of, _)| of == ticket), Violation::NotLive);
        let thread = ready.map_or(0, |(_, thread)| thread);
        if self.actor.get() != Actor::Apc(thread) {
            self.check_thread(thread);
        }
        thread
    }

    fn check_thread(&self, thread: usize) {
        self.check(self.log.borrow().threads[thread].references > 0, Violation::ThreadGone);
    }

    /// Whether a request waits, and its event is not signaled.
    pub fn is_unanswered(&self, request: usize) -> bool {
        self.log.borrow().requests[request].waits && !self.is_signaled(request)
    }

    /// Whether the event of a request is signaled, by any capture.
    pub fn is_signaled(&self, request: usize) -> bool {
        let log = self.log.borrow();
        log.requests[request].ticket.is_some_and(|ticket| {
            let Kept { ready, signaled, .. } = log.slots[ticket.index as usize];
            ready.is_some_and(|(of, _)| of == ticket) && signaled.is_some()
        })
    }

    /// Releases a reference to a thread.
    pub fn dereference(&self, thread: usize) {
        let mut log = self.log.borrow_mut();
        match log.threads[thread].references.checked_sub(1) {
            Some(left) => log.threads[thread].references = left,
            None => self.violate(Violation::Unbalanced),
        }
    }

    /// Checks all slots after a step: each is freed once for each claim, by its last user, and no
    /// thread is captured twice at the same time.
    pub fn check_slots(&self) {
        let mut log = self.log.borrow_mut();
        let mut captured = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let owned = slot.owner().is_some();
            if log.slots[index].owned && !owned {
                log.slots[index].frees += 1;
                self.check(slot.references() == 0, Violation::Unbalanced);
                let in_use = |ticket: &Ticket| ticket.index as usize == index;
                let by_apc = log.threads.iter().any(|thread| {
                    thread.queue.iter().any(in_use)
                        || thread.running.is_some_and(|running| in_use(&running.ticket))
                });
                let by_wait = log
                    .requests
                    .iter()
                    .any(|request| request.waits && request.ticket.as_ref().is_some_and(in_use));
                self.check(!by_apc && !by_wait, Violation::FreedInUse);
            }
            log.slots[index].owned = owned;
            if slot.references() > 0 {
                captured.push(slot.owner().unwrap_or(0) / 4);
            }
        }
        captured.sort_unstable();
        self.check(captured.windows(2).all(|pair| pair[0] != pair[1]), Violation::TwoCaptures);
        let apcs = |thread: &Thread| thread.queue.len() + usize::from(thread.running.is_some());
        self.check(log.threads.iter().all(|thread| apcs(thread) <= 1), Violation::TwoCaptures);
    }

    /// Checks the end of an execution: all slots are free and all references released, except those
    /// of an APC that hangs.
    pub fn check_end(&self) {
        let log = self.log.borrow();
        let hung = |thread: &Thread| thread.running.filter(|running| running.hung);
        let held = |index: usize| {
            let of_it = |running: Running| running.ticket.index as usize == index;
            log.threads.iter().filter_map(hung).any(of_it)
        };
        for (index, slot) in self.slots.iter().enumerate() {
            let expected = u32::from(held(index));
            let left = (slot.references(), slot.owner().is_some());
            self.check(left == (expected, expected > 0), Violation::SlotLost);
        }
        for (thread, kind) in log.threads.iter().zip(&self.scenario.threads) {
            let own = u32::from(!matches!(kind, Kind::Mortal) || hung(thread).is_some());
            self.check(thread.references == own && thread.queue.is_empty(), Violation::Unbalanced);
        }
        self.check(log.requests.iter().all(|request| request.ended), Violation::EndlessWait);
    }

    /// The frame that is unique to this walk: this stack, this thread and this request.
    pub fn frame(part: Part, thread: usize, request: usize) -> u64 {
        let base = match part {
            Part::Kernel => 0xffff_8000_0000_0000,
            Part::User => 0x7f00_0000_0000,
        };
        base | (thread as u64) << 16 | (request as u64) << 8 | 1
    }
}

impl Kernel for World {
    type Objects = ();
    type Frames = Frames;
    type Thread = usize;

    fn slots(&self) -> &[Slot<(), Frames>] {
        &self.slots
    }

    fn find(&self, capture: &Capture) -> Result<Found<usize>, Outcome> {
        let Actor::Request(request) = self.actor.get() else { unreachable!("an APC finds no thread") };
        let thread = self.scenario.asks[request].of;
        let (life, references) = {
            let log = self.log.borrow();
            (log.threads[thread].life, log.threads[thread].references)
        };
        let relation = match (life, self.scenario.threads[thread]) {
            (_, Kind::Idle) => Some(ThreadRelation::Idle),
            _ if self.has(Defect::TakenForOwn) => Some(ThreadRelation::Own),
            (Life::Running, _) if self.scenario.asks[request].by == thread => Some(ThreadRelation::Own),
            (Life::Running, _) => Some(ThreadRelation::Other),
            // The system only detects this when an APC is queued.
            (Life::Ending, _) => Some(ThreadRelation::Other),
            (Life::Ended, _) if references > 0 => [Some(ThreadRelation::Other), None][self.choose(2)],
            (Life::Ended, _) => None,
        };
        let relation = relation.ok_or(Outcome::NoThread)?;
        let mut log = self.log.borrow_mut();
        log.threads[thread].references += 1;
        log.requests[request].thread = Some(thread);
        let tid = if self.has(Defect::NumbersRounded) { capture.tid } else { self.scenario.tid(thread) };
        Ok(Found { thread, tid, relation, created: 0, user: self.scenario.user })
    }

    fn release_thread(&self, thread: usize) {
        let Actor::Request(request) = self.actor.get() else { unreachable!("an APC has no reference") };
        if self.has(Defect::ThreadReleasedEarly) && self.log.borrow().requests[request].thread.is_none() {
            return;
        }
        let held = self.log.borrow_mut().requests[request].thread.take();
        self.check(held == Some(thread), Violation::Unbalanced);
        self.dereference(thread);
    }

    fn prepare(&self, ticket: Ticket, thread: usize) {
        let Actor::Request(request) = self.actor.get() else { unreachable!("an APC prepares nothing") };
        self.check(self.is_live(ticket), Violation::NotLive);
        self.check_thread(thread);
        let used = {
            let log = self.log.borrow();
            let here = |other: &Ticket| other.index == ticket.index;
            let queued = log.threads.iter().any(|thread| thread.queue.iter().any(here));
            queued || log.requests.iter().any(|other| other.waits && other.ticket.as_ref().is_some_and(here))
        };
        self.check(!used, Violation::InitializedInUse);
        {
            let mut log = self.log.borrow_mut();
            log.requests[request].ticket = Some(ticket);
            let kept = &mut log.slots[ticket.index as usize];
            kept.ready = Some((ticket, thread));
            if !self.has(Defect::EventKept) {
                kept.signaled = None;
            }
        }
        if self.has(Defect::ReferredLate) {
            self.insert(ticket, thread);
        }
    }

    fn queue(&self, ticket: Ticket) -> bool {
        let Actor::Request(request) = self.actor.get() else { unreachable!("an APC queues nothing") };
        let thread = self.check_call(ticket);
        let queued = self.has(Defect::ReferredLate) || self.insert(ticket, thread);
        self.log.borrow_mut().requests[request].waits = queued;
        if self.has(Defect::ThreadReleasedEarly) {
            self.log.borrow_mut().requests[request].thread = None;
            self.dereference(thread);
        }
        queued
    }

    fn can_remove(&self) -> bool {
        self.scenario.removal
    }

    fn remove(&self, ticket: Ticket) -> Removal {
        let thread = self.check_call(ticket);
        if self.has(Defect::FreedOnTimeOut) {
            return Removal::Removed;
        }
        if !self.scenario.removal {
            return Removal::Unsupported;
        }
        let queue = &mut self.log.borrow_mut().threads[thread].queue;
        let Some(index) = queue.iter().position(|&queued| queued == ticket) else {
            return Removal::NotQueued;
        };
        queue.remove(index);
        if self.has(Defect::RemovalForgotten) { Removal::NotQueued } else { Removal::Removed }
    }

    fn wait(&self, ticket: Ticket, _: u32) -> bool {
        let Actor::Request(request) = self.actor.get() else { unreachable!("an APC waits for nothing") };
        self.check_call(ticket);
        let mut log = self.log.borrow_mut();
        log.requests[request].waits = false;
        let signaled = log.slots[ticket.index as usize].signaled;
        log.requests[request].timed_out = signaled.is_none();
        self.check(signaled.is_none_or(|of| of == ticket), Violation::StaleEvent);
        signaled.is_some()
    }

    fn signal(&self, ticket: Ticket) {
        self.check_call(ticket);
        let request = self.request_of(ticket);
        let mut log = self.log.borrow_mut();
        self.check(log.requests[request].outcome != Some(Outcome::TimedOut), Violation::SignaledAbandoned);
        log.slots[ticket.index as usize].signaled = Some(ticket);
    }

    fn enter_critical_region(&self) {}

    fn leave_critical_region(&self) {}

    /// A requesting thread is in one, because [`Requester::finish`] enters one first.
    fn in_critical_region(&self) -> bool {
        let Actor::Apc(thread) = self.actor.get() else { return true };
        let ticket = self.log.borrow().threads[thread].running.expect("it runs").ticket;
        let inside = self.scenario.regions && self.choose(2) == 1;
        let request = self.request_of(ticket);
        self.log.borrow_mut().requests[request].in_region = Some(inside);
        inside && !self.has(Defect::RegionIgnored)
    }

    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        let (thread, request, machinery): (_, _, &[u64]) = match self.actor.get() {
            Actor::Request(request) => (self.scenario.asks[request].by, request, &[OWN]),
            Actor::Apc(thread) => {
                let Running { ticket, late, .. } =
                    self.log.borrow().threads[thread].running.expect("it runs");
                self.check_call(ticket);
                self.check(!late, Violation::WalkedAbandoned);
                (thread, self.request_of(ticket), &[OWN, DISPATCHER])
            }
        };
        {
            let log = self.log.borrow();
            let request = &log.requests[request];
            // A request that timed out may have copied the kernel stack, and does not read the
            // frames after it. If there had been no kernel stack by then, the APC would not have
            // continued with the user stack.
            let follows = part == Part::User && request.timed_out;
            self.check(!request.copied || follows, Violation::WrittenAfterCopy);
            let wanted = part == Part::Kernel || request.outcome != Some(Outcome::TimedOut);
            self.check(wanted, Violation::WalkedAbandoned);
        }
        if let (Part::User, Actor::Apc(_)) = (part, self.actor.get()) {
            let in_region = self.log.borrow().requests[request].in_region;
            let forced = self.scenario.asks[request].parts.has(Flags::USER_IN_CRITICAL_REGION);
            self.check(forced || in_region == Some(false), Violation::PagedInRegion);
        }
        let chosen = self.choose(if self.scenario.walks == Walks::MayFail { 3 } else { 1 });
        let result = match chosen {
            0 => {
                let machinery = if part == Part::Kernel { machinery } else { &[] };
                let walked = machinery.iter().copied().chain([World::frame(part, thread, request)]);
                let walked: Vec<u64> = walked.collect();
                assert!(walked.len() <= frames.len(), "room for {}", frames.len());
                let write = |frames: &[AtomicU64], walked: &[u64]| {
                    frames.iter().zip(walked).for_each(|(frame, &address)| frame.store(address, Relaxed));
                };
                match (self.scenario.defect, part, self.actor.get()) {
                    (Some(Defect::FramesKept), ..) => {}
                    (Some(Defect::KernelStackLate), Part::Kernel, Actor::Apc(_)) => {}
                    (Some(Defect::KernelStackLate), Part::User, Actor::Apc(_)) => {
                        let kernel = World::frame(Part::Kernel, thread, request);
                        write(self.frames_of(request).as_ref(), &[OWN, DISPATCHER, kernel]);
                        write(frames, &walked);
                    }
                    (Some(Defect::UserOverKernel), Part::User, _) => {
                        write(self.frames_of(request).as_ref(), &walked)
                    }
                    _ => write(frames, &walked),
                }
                Ok(walked.len())
            }
            1 => Ok(0),
            _ => Err(Missing::Faulted),
        };
        let earlier = {
            let log = &mut self.log.borrow_mut().requests[request];
            let walk = if part == Part::Kernel { &mut log.kernel } else { &mut log.user };
            walk.replace((thread, result))
        };
        self.check(earlier.is_none(), Violation::TwoCaptures);
        if let (true, Actor::Apc(thread)) = (self.has(Defect::AbandonmentIgnored), self.actor.get()) {
            let ticket = self.log.borrow().threads[thread].running.expect("it runs").ticket;
            self.signal(ticket);
        }
        result
    }

    fn is_own(&self, address: u64) -> bool {
        address == OWN
    }

    fn now(&self) -> u64 {
        0
    }
}

impl World {
    /// The frames of the slot in which a request is captured.
    fn frames_of(&self, request: usize) -> Frames {
        let ticket = self.log.borrow().requests[request].ticket.expect("prepared");
        self.frames[ticket.index as usize].clone()
    }

    /// Inserts the APC into the queue of the thread, if it takes APCs.
    fn insert(&self, ticket: Ticket, thread: usize) -> bool {
        let mut log = self.log.borrow_mut();
        let thread = &mut log.threads[thread];
        let takes = thread.life == Life::Running;
        if takes {
            thread.queue.push_back(ticket);
        }
        takes
    }
}
