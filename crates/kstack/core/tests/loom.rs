//! Explores with loom every order of memory accesses that the memory model allows, for requests,
//! APCs and the next user of the slot. Run it with `RUSTFLAGS="--cfg loom" cargo test -p
//! stackhound-kstack-core --test loom --release`; without that flag this file is empty.
//!
//! Orderings that a kernel guarantees are modeled: an APC starts after it was queued. All other
//! orderings must come from the slot. In this model, signaling and waiting do not order anything.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::thread;
use stackhound_kstack_core::{
    Apc, End, Found, Kernel, Part, Removal, Requester, Slot, ThreadRelation, Ticket,
};
use stackhound_kstack_proto::{Capture, Entry, Flags, Missing, Outcome};

/// The first user frame.
const USER: u64 = 0x7ff6_0000_0000;

/// Threads in a system that delivers no APCs: one keeps its APC, and the APC of the other is
/// removed.
const KEPT: u32 = 4;
const REMOVED: u32 = 8;

/// Memory without a value. Loom tracks its uses and fails if two of them are not ordered and one is
/// a write.
type Memory = Arc<UnsafeCell<()>>;

struct Objects {
    /// The memory of the event and the APC.
    memory: Memory,
    signaled: AtomicBool,
    /// The memory of the kernel frames. The user frames may be written while the kernel frames are
    /// read.
    walked: Memory,
}

struct Frames([AtomicU64; 2], Memory);

impl AsRef<[AtomicU64]> for Frames {
    fn as_ref(&self) -> &[AtomicU64] {
        self.1.with(|_| ());
        &self.0
    }
}

/// The state that all threads share.
struct Shared {
    slots: Vec<Slot<Objects, Frames>>,
    /// Whether threads take APCs.
    delivers: bool,
    /// The number of APCs that were queued and never ran.
    kept: Counter,
}

impl Shared {
    fn new(slots: usize, delivers: bool) -> Arc<Self> {
        let memory = || Arc::new(UnsafeCell::new(()));
        let slot = |_| {
            let walked = memory();
            let frames = Frames([AtomicU64::new(0), AtomicU64::new(0)], walked.clone());
            Slot::new(Objects { memory: memory(), signaled: AtomicBool::new(false), walked }, frames)
        };
        Arc::new(Self { slots: (0..slots).map(slot).collect(), delivers, kept: Counter::new(0) })
    }
}

/// The system for one request and its APC.
#[derive(Clone)]
struct Model {
    shared: Arc<Shared>,
    /// The number of the request, which is part of its frames.
    request: u64,
    parts: Flags,
    tid: u32,
    /// The ticket of the APC.
    ticket: Option<Ticket>,
}

impl Model {
    fn objects(&self, ticket: Ticket) -> &Objects {
        self.slots()[ticket.index as usize].objects()
    }

    fn frame(&self, number: u64) -> u64 {
        0xffff_8000_0000_0000 | self.request << 8 | number
    }

    /// Requests the kernel stack of a thread, and checks the answer.
    fn ask(shared: &Arc<Shared>, request: u64, tid: u32) -> Option<Outcome> {
        let model = Model { shared: shared.clone(), request, parts: Flags::KERNEL, tid, ticket: None };
        let (outcome, entries) = model.capture()?;
        if outcome == Outcome::Captured {
            assert_eq!(entries, [1, 2].map(|number| model.frame(number)));
        }
        Some(outcome)
    }

    /// Requests both stacks, with one frame each. Returns whether the answer has the user stack.
    fn ask_for_both(shared: &Arc<Shared>, request: u64, tid: u32) -> Option<(Outcome, bool)> {
        let parts = Flags::KERNEL.and(Flags::USER);
        let model = Model { shared: shared.clone(), request, parts, tid, ticket: None };
        let (outcome, [kernel, user]) = model.capture()?;
        let is_there = user != Missing::Unfinished.sentinel();
        if outcome == Outcome::Captured {
            assert_eq!(kernel, model.frame(1), "the kernel stack was published before its frame");
            assert!(!is_there || user == USER | request, "{user:x}");
        }
        Some((outcome, is_there))
    }

    /// The outcome and the entries, unless the driver is busy.
    fn capture(&self) -> Option<(Outcome, [u64; 2])> {
        let Model { request, parts, tid, .. } = *self;
        let mut entries = [Entry::ZERO; 2];
        let capture = Capture {
            pid: 4,
            tid,
            created: None,
            max_frames: 2,
            flags: parts,
            timeout_ms: 1,
            id: request,
            frames_to_skip: 0,
        };
        match Requester::new(capture).finish(self, &mut entries).expect("the slot is the request's") {
            End::Busy => None,
            End::Answered { outcome, copied, .. } => {
                let expected = if outcome == Outcome::Captured { 2 } else { 0 };
                assert_eq!(copied.kernel + copied.user, expected);
                Some((outcome, entries.map(|entry| entry.get())))
            }
        }
    }
}

impl Kernel for Model {
    type Objects = Objects;
    type Frames = Frames;
    type Thread = u32;

    fn slots(&self) -> &[Slot<Objects, Frames>] {
        &self.shared.slots
    }

    fn find(&self, capture: &Capture) -> Result<Found<u32>, Outcome> {
        Ok(Found {
            thread: capture.tid,
            tid: capture.tid,
            relation: ThreadRelation::Other,
            created: 0,
            user: Ok(()),
        })
    }

    fn release_thread(&self, _: u32) {}

    fn prepare(&self, ticket: Ticket, _: u32) {
        let objects = self.objects(ticket);
        objects.memory.with_mut(|_| ());
        objects.signaled.store(false, Relaxed);
    }

    fn queue(&self, ticket: Ticket) -> bool {
        self.objects(ticket).memory.with(|_| ());
        if self.shared.delivers {
            let model = Model { ticket: Some(ticket), ..self.clone() };
            thread::spawn(move || Apc::ran(ticket).finish(&model).expect("the slot is the APC's"));
        } else if self.tid == KEPT {
            self.shared.kept.fetch_add(1, SeqCst);
        }
        true
    }

    fn can_remove(&self) -> bool {
        !self.shared.delivers && self.tid == REMOVED
    }

    fn remove(&self, ticket: Ticket) -> Removal {
        self.objects(ticket).memory.with(|_| ());
        if self.can_remove() { Removal::Removed } else { Removal::Unsupported }
    }

    fn wait(&self, ticket: Ticket, _: u32) -> bool {
        let objects = self.objects(ticket);
        objects.memory.with(|_| ());
        objects.signaled.load(Relaxed)
    }

    fn signal(&self, ticket: Ticket) {
        let objects = self.objects(ticket);
        objects.memory.with(|_| ());
        objects.signaled.store(true, Relaxed);
    }

    fn enter_critical_region(&self) {}

    fn leave_critical_region(&self) {}

    fn in_critical_region(&self) -> bool {
        false
    }

    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        if part == Part::User {
            frames[0].store(USER | self.request, Relaxed);
            return Ok(1);
        }
        self.objects(self.ticket.expect("an APC's")).walked.with_mut(|_| ());
        if self.parts.has(Flags::USER) {
            frames[0].store(self.frame(1), Relaxed);
            return Ok(1);
        }
        for (number, frame) in (1..).zip(frames) {
            frame.store(self.frame(number), Relaxed);
        }
        Ok(frames.len())
    }

    fn is_own(&self, _: u64) -> bool {
        false
    }

    fn now(&self) -> u64 {
        0
    }
}

/// The number of times that each result was reached.
#[derive(Default)]
struct Ends {
    captured: Counter,
    timed_out: Counter,
    busy: Counter,
}

impl Ends {
    fn count(&self, end: Option<Outcome>) {
        let counter = match end {
            None => &self.busy,
            Some(Outcome::Captured) => &self.captured,
            Some(Outcome::TimedOut) => &self.timed_out,
            Some(other) => panic!("unexpected outcome: {other}"),
        };
        counter.fetch_add(1, SeqCst);
    }

    fn all(&self) -> [usize; 3] {
        [&self.captured, &self.timed_out, &self.busy].map(|counter| counter.load(SeqCst))
    }
}

/// Explores every order with at most four preemptions in total. Switches between waiting threads do
/// not count. Without this bound, the exploration takes minutes, and with four threads hours.
fn bounded(execution: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(execution);
}

#[test]
fn a_reused_slot_has_nothing_of_the_last_capture() {
    let ends = Arc::new(Ends::default());
    let counted = ends.clone();
    loom::model(move || {
        let shared = Shared::new(1, true);
        counted.count(Model::ask(&shared, 1, 4));
        counted.count(Model::ask(&shared, 2, 8));
    });
    println!("captured, timed out, busy: {:?}", ends.all());
    assert!(ends.all().iter().all(|&count| count > 0));
}

#[test]
fn a_slot_is_reused_by_a_concurrent_request() {
    let ends = Arc::new(Ends::default());
    let counted = ends.clone();
    bounded(move || {
        let shared = Shared::new(1, true);
        let (other, other_counted) = (shared.clone(), counted.clone());
        let request = thread::spawn(move || other_counted.count(Model::ask(&other, 2, 8)));
        counted.count(Model::ask(&shared, 1, 4));
        request.join().unwrap();
    });
    println!("captured, timed out, busy: {:?}", ends.all());
    assert!(ends.all().iter().all(|&count| count > 0));
}

#[test]
fn the_kernel_stack_is_complete_without_the_user_stack() {
    let (whole, kernel_only, timed_out) = (Counter::new(0), Counter::new(0), Counter::new(0));
    let counts = Arc::new([whole, kernel_only, timed_out]);
    let counted = counts.clone();
    loom::model(move || {
        let shared = Shared::new(1, true);
        let index = match Model::ask_for_both(&shared, 1, 4) {
            Some((Outcome::Captured, true)) => 0,
            Some((Outcome::Captured, false)) => 1,
            Some((Outcome::TimedOut, _)) => 2,
            other => panic!("unexpected result: {other:?}"),
        };
        counted[index].fetch_add(1, SeqCst);
    });
    let counts = counts.each_ref().map(|count| count.load(SeqCst));
    println!("both stacks, kernel stack only, timed out: {counts:?}");
    assert!(counts.iter().all(|&count| count > 0));
}

#[test]
fn at_most_one_of_two_requests_for_a_thread_continues() {
    let ends = Arc::new(Ends::default());
    let counted = ends.clone();
    bounded(move || {
        // The first slot is freed while the other request looks for one, so each may hold the slot
        // that the other checked before.
        let shared = Shared::new(2, false);
        let (other, other_counted) = (shared.clone(), counted.clone());
        let request = thread::spawn(move || other_counted.count(Model::ask(&other, 2, KEPT)));
        Model::ask(&shared, 1, REMOVED);
        counted.count(Model::ask(&shared, 3, KEPT));
        request.join().unwrap();
        assert!(shared.kept.load(SeqCst) <= 1, "one thread is captured twice at the same time");
    });
    println!("captured, timed out, busy: {:?}", ends.all());
    let [captured, timed_out, busy] = ends.all();
    assert!(captured == 0 && timed_out > 0 && busy > 0);
}
