//! A system of threads that react to captures in every possible way. It is simulated in one thread,
//! so each run is the same.
//!
//! It checks its use: objects in use are not initialized again, and all references are released.

use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use stackhound_kstack_core::{Apc, Found, Kernel, Part, Progress, Removal, Slot, ThreadRelation, Ticket};
use stackhound_kstack_proto::{Capture, Missing, Outcome};

/// The addresses of the driver's code.
pub const OWN_CODE: std::ops::Range<u64> = 0xffff_f805_1000_0000..0xffff_f805_1001_0000;

/// The duration until a thread answers during the wait, in 100 ns.
pub const SOON: u64 = 1234;

/// The reaction of a thread to an APC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// The APC runs before the queueing call returns.
    AtOnce,
    /// The APC runs during the wait.
    Soon,
    /// The APC starts during the wait, and ends after the request has ended.
    Slow,
    /// Like [`Self::Slow`], but the kernel stack is published in time: reading a page of the user
    /// stack takes long.
    HangsInUser,
    /// The APC runs at the last moment: when the request is about to remove it from the queue.
    Last,
    /// The APC runs after the request has ended.
    Late,
    /// The thread is terminating when the APC is queued.
    EndsAtOnce,
    /// The thread ends during the wait.
    EndsSoon,
    /// The thread ends when the request is about to remove the APC from its queue.
    EndsLast,
    /// The thread ends after the request has ended.
    EndsLate,
}

/// A thread with its stack. Walks return as many of the frames as there is space for.
#[derive(Clone, Debug)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    pub created: u64,
    pub relation: ThreadRelation,
    pub reaction: Reaction,
    /// Whether it is in a critical region when the APC runs.
    pub in_critical_region: bool,
    /// Whether the user stack may be walked, as known before the walk.
    pub may: Result<(), Missing>,
    pub kernel: Result<Vec<u64>, Missing>,
    pub user: Result<Vec<u64>, Missing>,
}

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub slots: usize,
    /// The number of frames of each slot.
    pub memory: usize,
    pub can_remove: bool,
    /// Whether the system reports the creation time of threads.
    pub reports_created: bool,
}

impl Settings {
    /// The settings of the driver.
    pub const DRIVER: Settings = Settings { slots: 64, memory: 272, can_remove: true, reports_created: true };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Out,
    Prepared(usize),
    Queued(usize),
    /// The APC left the queue to run, or to be run down.
    Left(usize),
}

#[derive(Debug)]
pub struct Objects {
    apc: Cell<Queue>,
    signaled: Cell<bool>,
}

/// The numbers of calls to the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub finds: u32,
    pub walks: u32,
    pub prepared: u32,
    pub queued: u32,
    pub waits: u32,
    pub removals: u32,
}

/// An APC that has not ended, although its request has.
#[derive(Debug)]
struct Outlasting {
    ticket: Ticket,
    thread: usize,
    apc: Apc,
}

#[derive(Debug)]
pub struct Mock {
    slots: Vec<Slot<Objects, Vec<AtomicU64>>>,
    pub threads: Vec<Thread>,
    pub settings: Settings,
    references: Vec<Cell<u32>>,
    running: Cell<usize>,
    /// The number of critical regions that the requesting thread has entered and not left.
    pub regions: Cell<u32>,
    outlasting: RefCell<Vec<Outlasting>>,
    clock: Cell<u64>,
    counts: Cell<Counts>,
}

impl Mock {
    pub fn new(settings: Settings, threads: Vec<Thread>) -> Self {
        let objects = || Objects { apc: Cell::new(Queue::Out), signaled: Cell::new(false) };
        let frames = || (0..settings.memory).map(|_| AtomicU64::new(0xdead)).collect();
        let own = threads.iter().position(|thread| thread.relation == ThreadRelation::Own);
        Self {
            slots: (0..settings.slots).map(|_| Slot::new(objects(), frames())).collect(),
            references: threads.iter().map(|_| Cell::new(0)).collect(),
            running: Cell::new(own.unwrap_or(usize::MAX)),
            regions: Cell::new(0),
            threads,
            settings,
            outlasting: RefCell::default(),
            clock: Cell::new(1 << 40),
            counts: Cell::default(),
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// The number of captures whose request has ended.
    pub fn outstanding(&self) -> usize {
        self.outlasting.borrow().len()
    }

    /// Whether one of these captures is of this thread.
    pub fn is_outstanding(&self, thread: usize) -> bool {
        self.outlasting.borrow().iter().any(|one| one.thread == thread)
    }

    /// Ends one of the captures whose request has ended: its APC runs, or is run down.
    pub fn end_one(&self, which: usize) {
        let one = self.outlasting.borrow_mut().swap_remove(which);
        self.run(one.ticket, one.thread, one.apc);
    }

    /// Checks that all references and slots are held by captures in progress.
    pub fn check(&self) {
        assert!(self.references.iter().all(|count| count.get() == 0), "a thread is still referenced");
        assert_eq!(self.regions.get(), 0, "a requesting thread is still in a critical region");
        let outlasting = self.outlasting.borrow();
        for (index, slot) in self.slots.iter().enumerate() {
            match outlasting.iter().find(|one| one.ticket.index as usize == index) {
                None => {
                    assert_eq!((slot.references(), slot.owner()), (0, None), "slot {index} was not freed");
                    assert!(!matches!(slot.objects().apc.get(), Queue::Queued(_)), "slot {index} is queued");
                }
                Some(one) => {
                    let owner = self.threads[one.thread].tid;
                    assert_eq!((slot.references(), slot.owner()), (1, Some(owner)), "slot {index}");
                }
            }
        }
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        count(&mut counts);
        self.counts.set(counts);
    }

    /// A thread that was suspended now would keep its slot and its reference.
    fn check_region(&self) {
        assert_eq!(self.regions.get(), 1, "a requesting thread can be suspended");
    }

    fn objects(&self, ticket: Ticket) -> &Objects {
        self.slots[ticket.index as usize].objects()
    }

    fn run(&self, ticket: Ticket, thread: usize, apc: Apc) {
        self.objects(ticket).apc.set(Queue::Left(thread));
        let interrupted = self.running.replace(thread);
        apc.finish(self).expect("the slot is the APC's");
        self.running.set(interrupted);
    }

    /// The thread to which the APC is queued, if it has this reaction.
    fn queued(&self, ticket: Ticket, reaction: Reaction) -> Option<usize> {
        match self.objects(ticket).apc.get() {
            Queue::Queued(thread) if self.threads[thread].reaction == reaction => Some(thread),
            _ => None,
        }
    }
}

impl Kernel for Mock {
    type Objects = Objects;
    type Frames = Vec<AtomicU64>;
    type Thread = usize;

    fn slots(&self) -> &[Slot<Objects, Vec<AtomicU64>>] {
        &self.slots
    }

    fn find(&self, capture: &Capture) -> Result<Found<usize>, Outcome> {
        self.check_region();
        self.count(|counts| counts.finds += 1);
        // As on Windows, the two lowest bits of a thread id are ignored.
        let is_it = |thread: &Thread| {
            (thread.pid, thread.tid) == (capture.pid, capture.tid & !3)
                && capture.created.is_none_or(|time| self.settings.reports_created && time == thread.created)
        };
        let index = self.threads.iter().position(is_it).ok_or(Outcome::NoThread)?;
        let count = &self.references[index];
        count.set(count.get() + 1);
        let thread = &self.threads[index];
        let created = if self.settings.reports_created { thread.created } else { 0 };
        Ok(Found { thread: index, tid: thread.tid, relation: thread.relation, created, user: thread.may })
    }

    fn release_thread(&self, thread: usize) {
        self.check_region();
        let count = &self.references[thread];
        count.set(count.get().checked_sub(1).expect("a reference to release"));
    }

    fn prepare(&self, ticket: Ticket, thread: usize) {
        self.count(|counts| counts.prepared += 1);
        assert!(self.references[thread].get() > 0, "a thread without a reference");
        let objects = self.objects(ticket);
        assert!(!matches!(objects.apc.get(), Queue::Queued(_)), "initialized while it is queued");
        assert!(self.outlasting.borrow().iter().all(|one| one.ticket.index != ticket.index), "still in use");
        objects.apc.set(Queue::Prepared(thread));
        objects.signaled.set(false);
    }

    fn queue(&self, ticket: Ticket) -> bool {
        self.count(|counts| counts.queued += 1);
        let objects = self.objects(ticket);
        let Queue::Prepared(thread) = objects.apc.get() else { panic!("queued without being prepared") };
        match self.threads[thread].reaction {
            Reaction::EndsAtOnce => objects.apc.set(Queue::Out),
            Reaction::AtOnce => self.run(ticket, thread, Apc::ran(ticket)),
            _ => objects.apc.set(Queue::Queued(thread)),
        }
        objects.apc.get() != Queue::Out
    }

    fn can_remove(&self) -> bool {
        self.settings.can_remove
    }

    fn remove(&self, ticket: Ticket) -> Removal {
        self.count(|counts| counts.removals += 1);
        if let Some(thread) = self.queued(ticket, Reaction::Last) {
            self.run(ticket, thread, Apc::ran(ticket));
        }
        if let Some(thread) = self.queued(ticket, Reaction::EndsLast) {
            self.run(ticket, thread, Apc::run_down(ticket));
        }
        match self.objects(ticket).apc.get() {
            Queue::Queued(_) if self.settings.can_remove => {
                self.objects(ticket).apc.set(Queue::Out);
                Removal::Removed
            }
            Queue::Queued(thread) => {
                let ends = self.threads[thread].reaction == Reaction::EndsLate;
                let apc = if ends { Apc::run_down(ticket) } else { Apc::ran(ticket) };
                self.outlasting.borrow_mut().push(Outlasting { ticket, thread, apc });
                Removal::Unsupported
            }
            _ if self.settings.can_remove => Removal::NotQueued,
            _ => Removal::Unsupported,
        }
    }

    fn wait(&self, ticket: Ticket, milliseconds: u32) -> bool {
        self.check_region();
        self.count(|counts| counts.waits += 1);
        assert!((1..=1000).contains(&milliseconds), "a timeout of {milliseconds} ms");
        let before = self.clock.get();
        if let Some(thread) = self.queued(ticket, Reaction::Soon) {
            self.clock.set(before + SOON);
            self.run(ticket, thread, Apc::ran(ticket));
        }
        if let Some(thread) = self.queued(ticket, Reaction::EndsSoon) {
            self.clock.set(before + SOON);
            self.run(ticket, thread, Apc::run_down(ticket));
        }
        // The APC starts and walks the kernel stack (2 steps), then publishes it (3 steps).
        for (reaction, steps) in [(Reaction::Slow, 2), (Reaction::HangsInUser, 3)] {
            let Some(thread) = self.queued(ticket, reaction) else { continue };
            self.objects(ticket).apc.set(Queue::Left(thread));
            let mut apc = Apc::ran(ticket);
            let interrupted = self.running.replace(thread);
            for _ in 0..steps {
                assert_eq!(apc.step(self), Ok(Progress::Again));
            }
            self.running.set(interrupted);
            self.outlasting.borrow_mut().push(Outlasting { ticket, thread, apc });
        }
        let signaled = self.objects(ticket).signaled.get();
        if !signaled {
            self.clock.set(before + u64::from(milliseconds) * 10_000);
        }
        signaled
    }

    fn signal(&self, ticket: Ticket) {
        self.objects(ticket).signaled.set(true);
    }

    fn enter_critical_region(&self) {
        self.regions.update(|regions| regions + 1);
    }

    fn leave_critical_region(&self) {
        self.regions.set(self.regions.get().checked_sub(1).expect("a region to leave"));
    }

    /// The requesting thread is in the region that it has entered.
    fn in_critical_region(&self) -> bool {
        let thread = &self.threads[self.running.get()];
        thread.in_critical_region || thread.relation == ThreadRelation::Own && self.regions.get() > 0
    }

    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        self.count(|counts| counts.walks += 1);
        let thread = &self.threads[self.running.get()];
        let stack = match part {
            Part::Kernel => &thread.kernel,
            Part::User => {
                assert_eq!(thread.may, Ok(()), "walked a user stack that must not be walked");
                &thread.user
            }
        };
        let stack = stack.as_ref().map_err(|missing| *missing)?;
        for (frame, address) in frames.iter().zip(stack) {
            frame.store(*address, Relaxed);
        }
        Ok(frames.len().min(stack.len()))
    }

    fn is_own(&self, address: u64) -> bool {
        OWN_CODE.contains(&address)
    }

    fn now(&self) -> u64 {
        self.clock.get()
    }
}
