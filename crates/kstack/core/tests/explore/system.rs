//! The state machines under test in the model of a kernel: the possible steps, and their effects.

use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use stackhound_kstack_core::{Apc, Copied, End, Kernel, Part, Progress, Requester, Ticket};
use stackhound_kstack_proto::{Entry, Flags, Missing, Outcome};

use crate::defects::{Defect, Violation};
use crate::scenario::{Ask, Kind, MAX_FRAMES, Scenario};
use crate::tape::Tape;
use crate::world::{Actor, Life, Running, World};

/// The value of an entry before anything is copied.
const UNTOUCHED: u64 = 0x0123_4567_89ab_cdef;

/// A step of a state machine or of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// The next step of a request.
    Request(usize),
    /// The next step of the APC that a thread runs.
    Apc(usize),
    /// A thread starts the APC in its queue.
    Deliver(usize),
    /// A thread takes no APCs from now on.
    BeginToEnd(usize),
    /// A thread that ends runs down the APC in its queue.
    RunDown(usize),
    /// The APC that a thread runs waits forever for a page of the user stack.
    Hang(usize),
    /// A thread has ended.
    End(usize),
    /// The driver is unloaded.
    Unload,
}

impl Move {
    /// Whether the step is certain to happen.
    fn is_certain(self) -> bool {
        matches!(self, Move::Request(_) | Move::Apc(_))
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ended {
    Captured,
    NoThread,
    Terminating,
    TimedOut,
    Idle,
    Busy,
}

pub struct System {
    pub world: World,
    machines: Vec<Requester<usize>>,
    entries: Vec<[Entry; MAX_FRAMES as usize]>,
    /// The result of the request that the last step ended, if any.
    pub ended: Option<Ended>,
}

impl System {
    pub fn new(scenario: &Scenario, tape: Tape) -> Self {
        let asks = 0..scenario.asks.len();
        Self {
            machines: asks.clone().map(|ask| Requester::new(scenario.capture(ask))).collect(),
            entries: asks.map(|_| [UNTOUCHED.into(); MAX_FRAMES as usize]).collect(),
            world: World::new(scenario.clone(), tape),
            ended: None,
        }
    }

    /// The possible next steps.
    pub fn moves(&self) -> Vec<Move> {
        let log = self.world.log.borrow();
        let scenario = &self.world.scenario;
        let mut moves = Vec::new();
        let busy = |thread: usize| {
            scenario.asks.iter().zip(&log.requests).any(|(ask, request)| ask.by == thread && !request.ended)
        };
        for (number, ask) in scenario.asks.iter().enumerate() {
            // A thread makes its requests one after another, and does nothing else while it runs an
            // APC.
            let first = scenario
                .asks
                .iter()
                .zip(&log.requests)
                .position(|(other, request)| other.by == ask.by && !request.ended);
            if first == Some(number) && log.threads[ask.by].running.is_none() && !self.is_stuck(number) {
                moves.push(Move::Request(number));
            }
        }
        for (number, (thread, kind)) in log.threads.iter().zip(&scenario.threads).enumerate() {
            let ends = matches!(kind, Kind::Mortal) && !busy(number);
            match (thread.running, thread.queue.is_empty(), thread.life) {
                (Some(running), ..) if running.hung => {}
                (Some(running), ..) => {
                    moves.push(Move::Apc(number));
                    // The stage of an APC is private, but visible in its debug output.
                    let walks_user = format!("{:?}", running.apc).contains("stage: User");
                    moves.extend((scenario.hangs && walks_user).then_some(Move::Hang(number)));
                }
                (None, _, Life::Ended) => {}
                (None, true, Life::Ending) => moves.push(Move::End(number)),
                (None, false, Life::Ending) => moves.extend([Move::Deliver(number), Move::RunDown(number)]),
                (None, empty, Life::Running) => {
                    moves.extend((!empty).then_some(Move::Deliver(number)));
                    moves.extend(ends.then_some(Move::BeginToEnd(number)));
                }
            }
        }
        let all_ended = log.requests.iter().all(|request| request.ended);
        if self.world.has(Defect::Unloadable) && all_ended && !log.unloaded {
            moves.push(Move::Unload);
        }
        // Threads that take no APC and never end are possible. A request must not depend on them.
        if !all_ended && !moves.iter().any(|step| step.is_certain()) {
            self.world.violate(Violation::EndlessWait);
        }
        moves
    }

    /// Whether a request waits without timeout for an event that is not signaled.
    fn is_stuck(&self, request: usize) -> bool {
        self.world.has(Defect::EndlessWait) && self.world.is_unanswered(request)
    }

    /// Takes a step, and checks its effects.
    pub fn take(&mut self, step: Move) {
        self.ended = None;
        match step {
            Move::Request(request) => self.step_request(request),
            Move::Apc(thread) => self.step_apc(thread),
            Move::Deliver(thread) => self.begin(thread, Apc::ran),
            Move::RunDown(thread) => self.begin(thread, Apc::run_down),
            Move::BeginToEnd(thread) => self.world.log.borrow_mut().threads[thread].life = Life::Ending,
            Move::End(thread) => {
                self.world.log.borrow_mut().threads[thread].life = Life::Ended;
                self.world.dereference(thread);
            }
            Move::Hang(thread) => {
                if let Some(running) = &mut self.world.log.borrow_mut().threads[thread].running {
                    running.hung = true;
                }
            }
            Move::Unload => self.world.log.borrow_mut().unloaded = true,
        }
        self.world.check_slots();
    }

    /// A thread removes the APC from its queue and starts it.
    fn begin(&self, thread: usize, apc: fn(Ticket) -> Apc) {
        let mut log = self.world.log.borrow_mut();
        self.world.check(!log.unloaded, Violation::CodeGone);
        let ticket = log.threads[thread].queue.pop_front().expect("there is one");
        let late = log.requests.iter().any(|request| request.ticket == Some(ticket) && request.ended);
        let silent = self.world.has(Defect::NoRunDown) && log.threads[thread].life == Life::Ending;
        if !silent {
            log.threads[thread].running = Some(Running { apc: apc(ticket), ticket, late, hung: false });
        }
    }

    fn step_apc(&self, thread: usize) {
        self.world.actor.set(Actor::Apc(thread));
        self.world.check(!self.world.log.borrow().unloaded, Violation::CodeGone);
        let mut running = self.world.log.borrow().threads[thread].running.expect("it runs");
        let progress = running.apc.step(&self.world);
        let left = match progress {
            Ok(Progress::Again) => Some(running),
            Ok(Progress::Done(())) => {
                let waits = self.world.is_unanswered(self.world.request_of(running.ticket));
                self.world.check(!waits, Violation::NotWoken);
                None
            }
            Err(_) => {
                self.world.violate(Violation::Stale);
                None
            }
        };
        self.world.log.borrow_mut().threads[thread].running = left;
    }

    fn step_request(&mut self, request: usize) {
        self.world.actor.set(Actor::Request(request));
        let progress = self.machines[request].step(&self.world, &mut self.entries[request]);
        let copied = self.entries[request].iter().any(|entry| entry.get() != UNTOUCHED);
        self.world.log.borrow_mut().requests[request].copied = copied;
        match progress {
            Ok(Progress::Again) => {}
            Ok(Progress::Done(end)) => self.end(request, end),
            Err(_) => self.world.violate(Violation::Stale),
        }
    }

    /// Checks the end of a request: its answer is correct, and it holds no reference.
    fn end(&mut self, request: usize, end: End) {
        let Ask { by, of, .. } = self.world.scenario.asks[request];
        let (outcome, copied) = match end {
            End::Busy => (None, Copied::default()),
            End::Answered { outcome, copied, .. } => (Some(outcome), copied),
        };
        let life = self.world.log.borrow().threads[of].life;
        let idle = matches!(self.world.scenario.threads[of], Kind::Idle);
        self.ended = Some(match outcome {
            None => Ended::Busy,
            Some(Outcome::Captured) => Ended::Captured,
            Some(Outcome::NoThread) => Ended::NoThread,
            Some(Outcome::Terminating) => Ended::Terminating,
            Some(Outcome::TimedOut) => Ended::TimedOut,
            Some(Outcome::Idle) => Ended::Idle,
        });
        let possible = match outcome {
            // A single request cannot meet another capture.
            None => self.world.scenario.asks.len() > 1,
            Some(Outcome::Captured) => !idle,
            Some(Outcome::NoThread) => life == Life::Ended,
            Some(Outcome::Terminating) => life != Life::Running,
            // Everything that was published in time is answered, also a kernel stack without the
            // user stack.
            Some(Outcome::TimedOut) => {
                let user = self.world.log.borrow().requests[request].user;
                by != of && !idle && !self.world.is_signaled(request) && user.is_none()
            }
            Some(Outcome::Idle) => idle,
        };
        self.world.check(possible, Violation::FalseOutcome);
        match outcome {
            Some(Outcome::Captured) => self.check_answer(request, copied),
            _ => {
                let untouched = self.entries[request].iter().all(|entry| entry.get() == UNTOUCHED);
                self.world.check(untouched && copied == Copied::default(), Violation::FalseOutcome);
            }
        }
        let mut log = self.world.log.borrow_mut();
        log.requests[request].outcome = outcome;
        log.requests[request].ended = true;
        self.world.check(log.requests[request].thread.is_none(), Violation::Unbalanced);
        if let (true, Some(ticket)) = (self.world.has(Defect::OnTheStack), log.requests[request].ticket) {
            let used = log.threads.iter().any(|thread| {
                thread.queue.contains(&ticket)
                    || thread.running.is_some_and(|running| running.ticket == ticket)
            });
            self.world.check(!used, Violation::FreedInUse);
        }
    }

    /// Checks that the answer has exactly the results of this request's walks, from the requested
    /// thread.
    fn check_answer(&self, request: usize, copied: Copied) {
        let Ask { by, of, parts } = self.world.scenario.asks[request];
        let log = self.world.log.borrow();
        let known = &log.requests[request];
        let unfinished = parts.has(Flags::USER)
            && self.entries[request][usize::from(copied.kernel)].get() == Missing::Unfinished.sentinel();
        let part = |part: Part, walked: Option<(usize, Result<usize, Missing>)>| match walked {
            None => Missing::Nothing.sentinel(),
            Some((thread, result)) => {
                self.world.check(thread == of, Violation::WrongThread);
                match result {
                    Ok(0) => Missing::Nothing.sentinel(),
                    Ok(_) => World::frame(part, of, request),
                    Err(missing) => missing.sentinel(),
                }
            }
        };
        let mut expected = Vec::new();
        if parts.has(Flags::KERNEL) {
            self.world.check(known.kernel.is_some(), Violation::ForeignFrames);
            expected.push(part(Part::Kernel, known.kernel));
        }
        if parts.has(Flags::USER) {
            // The user stack of a thread in a critical region is not walked unless the request
            // allows it. A thread that requests its own stack is in the critical region of the
            // driver.
            let withheld = by != of && known.in_region == Some(true);
            expected.push(match self.world.scenario.user {
                Err(missing) => {
                    self.world.check(known.user.is_none(), Violation::ForeignFrames);
                    missing.sentinel()
                }
                // Only for a request that timed out before the user stack was complete.
                Ok(()) if unfinished => {
                    let possible = known.timed_out && !self.world.is_signaled(request);
                    self.world.check(possible, Violation::FalseOutcome);
                    Missing::Unfinished.sentinel()
                }
                Ok(()) if withheld && known.user.is_none() => Missing::CriticalRegion.sentinel(),
                Ok(()) => {
                    self.world.check(known.user.is_some(), Violation::ForeignFrames);
                    part(Part::User, known.user)
                }
            });
        }
        let counts = (u16::from(parts.has(Flags::KERNEL)), u16::from(parts.has(Flags::USER)));
        self.world.check((copied.kernel, copied.user) == counts, Violation::ForeignFrames);
        self.world.check(copied.own == (by == of), Violation::WrongThread);
        expected.resize(MAX_FRAMES as usize, UNTOUCHED);
        let entries = self.entries[request].iter().map(|entry| entry.get());
        self.world.check(entries.eq(expected), Violation::ForeignFrames);
    }

    /// A hash that identifies this state.
    pub fn fingerprint(&self) -> u128 {
        let mut hashers = Hashers([DefaultHasher::new(), DefaultHasher::new()]);
        hashers.0[1].write_u8(1);
        self.world.log.borrow().hash(&mut hashers);
        write!(hashers, "{:?}{:?}", self.world.slots(), self.machines).expect("hashing does not fail");
        self.entries.iter().flatten().for_each(|entry| hashers.write_u64(entry.get()));
        u128::from(hashers.0[0].finish()) << 64 | u128::from(hashers.0[1].finish())
    }
}

/// Two hashes of the same data: 128 bits, so that two states are never confused.
struct Hashers([DefaultHasher; 2]);

impl Hasher for Hashers {
    fn finish(&self) -> u64 {
        self.0[0].finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|hasher| hasher.write(bytes));
    }
}

impl Write for Hashers {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes());
        Ok(())
    }
}
