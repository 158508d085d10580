//! A device that answers with the logic of the driver, on a table of threads instead of a system.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use stackhound_kstack_client::{Device, Refused};
use stackhound_kstack_core::{
    Apc, Caller, Found, Kernel, MACHINERY, Opener, Part, Refusal, Removal, Slot, ThreadRelation, Ticket,
    control,
};
use stackhound_kstack_proto::{Capture, Code, MAX_FRAMES, Missing, Outcome};

const SLOTS: usize = 2;
const CLIENT: u32 = 1234;
/// An address in the driver's code, and one in the system routine that calls it.
const OWN: u64 = 0xffff_f800_0000_1000;
const DISPATCHER: u64 = 0xffff_f800_7000_0000;

/// The kernel frames of a thread, innermost first.
pub fn kernel_frames(tid: u32, count: usize) -> Vec<u64> {
    (0..count as u64).map(|index| 0xffff_f800_1000_0000 + u64::from(tid) * 0x1000 + index * 0x10).collect()
}

/// The user frames of a thread, innermost first.
pub fn user_frames(tid: u32, count: usize) -> Vec<u64> {
    (0..count as u64).map(|index| 0x7ff6_1000_0000 + u64::from(tid) * 0x1000 + index * 0x10).collect()
}

struct Row {
    created: u64,
    /// Whether an APC can be queued to the thread.
    takes_apcs: bool,
    answers: bool,
    kernel: Result<Vec<u64>, Missing>,
    user: Result<Vec<u64>, Missing>,
}

/// A system with one process.
pub struct Threads {
    pid: u32,
    rows: HashMap<u32, Row>,
    slots: Vec<Slot<(), Vec<AtomicU64>>>,
    /// The thread whose APC is prepared or runs.
    current: AtomicU64,
    time: AtomicU64,
}

impl Threads {
    pub fn new(pid: u32) -> Threads {
        let frames = || (0..usize::from(MAX_FRAMES) + MACHINERY).map(|_| AtomicU64::new(0)).collect();
        Threads {
            pid,
            rows: HashMap::new(),
            slots: (0..SLOTS).map(|_| Slot::new((), frames())).collect(),
            current: AtomicU64::new(0),
            time: AtomicU64::new(0),
        }
    }

    /// Adds a thread that answers with these numbers of frames.
    pub fn with(
        self,
        tid: u32,
        created: u64,
        kernel: Result<usize, Missing>,
        user: Result<usize, Missing>,
    ) -> Self {
        let kernel = kernel.map(|count| [vec![OWN, DISPATCHER], kernel_frames(tid, count)].concat());
        let user = user.map(|count| user_frames(tid, count));
        self.add(tid, Row { created, takes_apcs: true, answers: true, kernel, user })
    }

    /// Adds a thread that does not react.
    pub fn hung(self, tid: u32, created: u64) -> Self {
        self.add(tid, Row { created, takes_apcs: true, answers: false, kernel: Ok(vec![]), user: Ok(vec![]) })
    }

    /// Adds a thread that is terminating.
    pub fn ending(self, tid: u32, created: u64) -> Self {
        let (kernel, user) = (Ok(vec![]), Ok(vec![]));
        self.add(tid, Row { created, takes_apcs: false, answers: false, kernel, user })
    }

    fn add(mut self, tid: u32, row: Row) -> Self {
        assert!(self.rows.insert(tid, row).is_none());
        self
    }

    fn current(&self) -> &Row {
        &self.rows[&(self.current.load(Relaxed) as u32)]
    }
}

impl Kernel for Threads {
    type Objects = ();
    type Frames = Vec<AtomicU64>;
    type Thread = u32;

    fn slots(&self) -> &[Slot<(), Vec<AtomicU64>>] {
        &self.slots
    }

    fn find(&self, capture: &Capture) -> Result<Found<u32>, Outcome> {
        let row = self.rows.get(&capture.tid).filter(|_| capture.pid == self.pid);
        let row = row.filter(|row| capture.created.is_none_or(|created| created == row.created));
        let row = row.ok_or(Outcome::NoThread)?;
        Ok(Found {
            thread: capture.tid,
            tid: capture.tid,
            relation: ThreadRelation::Other,
            created: row.created,
            user: Ok(()),
        })
    }

    fn release_thread(&self, _: u32) {}

    fn prepare(&self, _: Ticket, thread: u32) {
        self.current.store(thread.into(), Relaxed);
    }

    fn queue(&self, ticket: Ticket) -> bool {
        if self.current().answers {
            Apc::ran(ticket).finish(self).expect("the slot is the APC's");
        }
        self.current().takes_apcs
    }

    fn can_remove(&self) -> bool {
        false
    }

    fn remove(&self, _: Ticket) -> Removal {
        Removal::Unsupported
    }

    fn wait(&self, _: Ticket, milliseconds: u32) -> bool {
        if !self.current().answers {
            self.time.fetch_add(u64::from(milliseconds) * 10_000, Relaxed);
        }
        self.current().answers
    }

    fn signal(&self, _: Ticket) {}

    fn enter_critical_region(&self) {}

    fn leave_critical_region(&self) {}

    fn in_critical_region(&self) -> bool {
        false
    }

    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        let row = self.current();
        let walked = match part {
            Part::Kernel => row.kernel.as_ref(),
            Part::User => row.user.as_ref(),
        };
        let walked = walked.map_err(|missing| *missing)?;
        for (frame, &address) in frames.iter().zip(walked) {
            frame.store(address, Relaxed);
        }
        Ok(walked.len().min(frames.len()))
    }

    fn is_own(&self, address: u64) -> bool {
        address == OWN
    }

    fn now(&self) -> u64 {
        self.time.load(Relaxed)
    }
}

/// A device on these threads, opened by this client.
pub struct Driver {
    threads: Threads,
    opener: Opener,
    /// The id of the last request.
    last: u64,
}

impl Driver {
    pub fn over(threads: Threads) -> Driver {
        Driver { threads, opener: Opener::kept(NonZeroU32::new(CLIENT).expect("not 0")), last: 0 }
    }
}

impl Device for Driver {
    fn control(&mut self, code: Code, input: &[u8], output: &mut [u8]) -> Result<usize, Refused> {
        if let Ok(capture) = stackhound_kstack_proto::Request::parse(input) {
            // Retries have the same id, other requests a greater one.
            assert!(capture.id >= self.last.max(1), "{} after {}", capture.id, self.last);
            self.last = capture.id;
        }
        let caller = Caller { from_user_mode: true, pid: CLIENT };
        let mut buffer = vec![0; input.len().max(output.len())];
        buffer[..input.len()].copy_from_slice(input);
        let (from, to) = (input.len(), output.len());
        match control(&self.threads, self.opener, caller, code.number(), &mut buffer, from, to) {
            Ok(written) => {
                output[..written].copy_from_slice(&buffer[..written]);
                Ok(written)
            }
            Err(refusal) => Err(refused(refusal)),
        }
    }
}

/// The error of `DeviceIoControl` for a refusal.
fn refused(refusal: Refusal) -> Refused {
    let code = match refusal {
        Refusal::AccessDenied => 5,
        Refusal::UnknownRequest => 1,
        Refusal::InvalidParameter => 87,
        Refusal::BufferTooSmall => 122,
        Refusal::Busy => 170,
        Refusal::Internal => 1359,
    };
    Refused { function: "DeviceIoControl", code, text: format!("{refusal:?}") }
}
