//! Every order of memory accesses that the memory model allows, of requests, APCs and the next user of the slot; tried by loom. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p stackhound-kstack-core --test loom --release`; without that there is nothing here.
//!
//! What a kernel orders by itself is ordered here, too: an APC begins after it was queued. All else must come from the slot: signalling and
//! waiting order nothing in this model.
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

/// Where threads take no APCs: one that keeps its APC, and one from which it is taken back.
const KEPT: u32 = 4;
const GIVEN_BACK: u32 = 8;

/// Memory without a value of which loom sees who uses it: uses that nothing orders, one of them a writer's, are a failure.
type Memory = Arc<UnsafeCell<()>>;

struct Objects {
    /// The event and the APC themselves.
    memory: Memory,
    signalled: AtomicBool,
    /// Of the frames of the kernel part; those of the user part may be written while the kernel part is read.
    walked: Memory,
}

struct Frames([AtomicU64; 2], Memory);

impl AsRef<[AtomicU64]> for Frames {
    fn as_ref(&self) -> &[AtomicU64] {
        self.1.with(|_| ());
        &self.0
    }
}

/// What all share.
struct Shared {
    slots: Vec<Slot<Objects, Frames>>,
    /// Whether threads take APCs.
    delivers: bool,
    /// APCs that were queued, and never ran.
    kept: Counter,
}

impl Shared {
    fn new(slots: usize, delivers: bool) -> Arc<Self> {
        let memory = || Arc::new(UnsafeCell::new(()));
        let slot = |_| {
            let walked = memory();
            let frames = Frames([AtomicU64::new(0), AtomicU64::new(0)], walked.clone());
            Slot::new(Objects { memory: memory(), signalled: AtomicBool::new(false), walked }, frames)
        };
        Arc::new(Self { slots: (0..slots).map(slot).collect(), delivers, kept: Counter::new(0) })
    }
}

/// The system, as one request and its APC see it.
#[derive(Clone)]
struct Model {
    shared: Arc<Shared>,
    /// Which request: its frames are told by it.
    request: u64,
    parts: Flags,
    tid: u32,
    /// For the APC: its slot.
    ticket: Option<Ticket>,
}

impl Model {
    fn objects(&self, ticket: Ticket) -> &Objects {
        self.slots()[ticket.index as usize].objects()
    }

    fn frame(&self, number: u64) -> u64 {
        0xffff_8000_0000_0000 | self.request << 8 | number
    }

    /// Asks for the kernel part of a thread's stack, and looks at the answer.
    fn ask(shared: &Arc<Shared>, request: u64, tid: u32) -> Option<Outcome> {
        let model = Model { shared: shared.clone(), request, parts: Flags::KERNEL, tid, ticket: None };
        let (outcome, entries) = model.capture()?;
        if outcome == Outcome::Captured {
            assert_eq!(entries, [1, 2].map(|number| model.frame(number)));
        }
        Some(outcome)
    }

    /// Asks for both parts, a frame of each, and says whether the user part is there.
    fn ask_for_both(shared: &Arc<Shared>, request: u64, tid: u32) -> Option<(Outcome, bool)> {
        let parts = Flags::KERNEL.and(Flags::USER);
        let model = Model { shared: shared.clone(), request, parts, tid, ticket: None };
        let (outcome, [kernel, user]) = model.capture()?;
        let is_there = user != Missing::Unfinished.sentinel();
        if outcome == Outcome::Captured {
            assert_eq!(kernel, model.frame(1), "the kernel part is there before it is said to be");
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
            location: ThreadRelation::Other,
            created: 0,
            user: Ok(()),
        })
    }

    fn release_thread(&self, _: u32) {}

    fn prepare(&self, ticket: Ticket, _: u32) {
        let objects = self.objects(ticket);
        objects.memory.with_mut(|_| ());
        objects.signalled.store(false, Relaxed);
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
        !self.shared.delivers && self.tid == GIVEN_BACK
    }

    fn remove(&self, ticket: Ticket) -> Removal {
        self.objects(ticket).memory.with(|_| ());
        if self.can_remove() { Removal::Removed } else { Removal::Unsupported }
    }

    fn wait(&self, ticket: Ticket, _: u32) -> bool {
        let objects = self.objects(ticket);
        objects.memory.with(|_| ());
        objects.signalled.load(Relaxed)
    }

    fn signal(&self, ticket: Ticket) {
        let objects = self.objects(ticket);
        objects.memory.with(|_| ());
        objects.signalled.store(true, Relaxed);
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

/// Which ends were reached in any order.
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
            Some(other) => panic!("{other} cannot be"),
        };
        counter.fetch_add(1, SeqCst);
    }

    fn all(&self) -> [usize; 3] {
        [&self.captured, &self.timed_out, &self.busy].map(|counter| counter.load(SeqCst))
    }
}

/// Tries every order in which threads are interrupted four times in all; where they wait for one another they change as often as they
/// like. Without this bound it takes minutes, and hours with four threads.
fn bounded(execution: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(execution);
}

#[test]
fn a_slot_that_is_used_again_has_nothing_of_the_last_capture() {
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
fn a_slot_goes_from_one_to_another_who_waits_for_it() {
    let ends = Arc::new(Ends::default());
    let counted = ends.clone();
    bounded(move || {
        let shared = Shared::new(1, true);
        let (other, other_counted) = (shared.clone(), counted.clone());
        let asked = thread::spawn(move || other_counted.count(Model::ask(&other, 2, 8)));
        counted.count(Model::ask(&shared, 1, 4));
        asked.join().unwrap();
    });
    println!("captured, timed out, busy: {:?}", ends.all());
    assert!(ends.all().iter().all(|&count| count > 0));
}

#[test]
fn a_kernel_part_is_there_whatever_becomes_of_the_user_part() {
    let (whole, kernel_only, timed_out) = (Counter::new(0), Counter::new(0), Counter::new(0));
    let counts = Arc::new([whole, kernel_only, timed_out]);
    let counted = counts.clone();
    loom::model(move || {
        let shared = Shared::new(1, true);
        let index = match Model::ask_for_both(&shared, 1, 4) {
            Some((Outcome::Captured, true)) => 0,
            Some((Outcome::Captured, false)) => 1,
            Some((Outcome::TimedOut, _)) => 2,
            other => panic!("{other:?} cannot be"),
        };
        counted[index].fetch_add(1, SeqCst);
    });
    let counts = counts.each_ref().map(|count| count.load(SeqCst));
    println!("whole, kernel part only, timed out: {counts:?}");
    assert!(counts.iter().all(|&count| count > 0));
}

#[test]
fn of_two_who_ask_for_one_thread_one_goes_on_at_most() {
    let ends = Arc::new(Ends::default());
    let counted = ends.clone();
    bounded(move || {
        // The first slot is given back while the other looks for one: so each may hold the slot that the other looked at before.
        let shared = Shared::new(2, false);
        let (other, other_counted) = (shared.clone(), counted.clone());
        let asked = thread::spawn(move || other_counted.count(Model::ask(&other, 2, KEPT)));
        Model::ask(&shared, 1, GIVEN_BACK);
        counted.count(Model::ask(&shared, 3, KEPT));
        asked.join().unwrap();
        assert!(shared.kept.load(SeqCst) <= 1, "one thread is captured twice at once");
    });
    println!("captured, timed out, busy: {:?}", ends.all());
    let [captured, timed_out, busy] = ends.all();
    assert!(captured == 0 && timed_out > 0 && busy > 0);
}
