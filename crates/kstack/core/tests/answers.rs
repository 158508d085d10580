//! The entries of an answer: the frames of the capture itself are omitted, no stack exceeds its
//! limit, and invalid addresses do not count as frames.

#![cfg(not(loom))]

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use stackhound_kstack_core::{
    Apc, Copied, End, Found, Kernel, MACHINERY, Part, Removal, Requester, Slot, Stale, ThreadRelation, Ticket,
};
use stackhound_kstack_proto::{Capture, Entry, Flags, MAX_FRAMES, Missing, Outcome};

const BOTH: Flags = Flags::KERNEL.and(Flags::USER);

/// Two addresses in the code of the driver, and one in the APC dispatcher.
const OWN: u64 = 0xffff_f800_0000_1000;
const OWN_TOO: u64 = 0xffff_f800_0000_1040;
const DISPATCHER: u64 = 0xffff_f807_0000_0000;
/// The value of an entry before a capture.
const UNTOUCHED: u64 = 0x0123_4567_89ab_cdef;

/// A frame of the kernel stack.
fn k(number: u64) -> u64 {
    0xffff_8000_0000_0000 + number
}

/// A frame of the user stack.
fn u(number: u64) -> u64 {
    0x7ff6_0000_0000 + number
}

/// A request for the kernel stack of a thread.
fn capture() -> Capture {
    let (flags, max_frames) = (Flags::KERNEL, MAX_FRAMES);
    Capture { pid: 4, tid: 8, created: None, max_frames, flags, timeout_ms: 1, id: 0, frames_to_skip: 0 }
}

struct Frames(Vec<AtomicU64>);

impl AsRef<[AtomicU64]> for Frames {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// A thread with these frames. Its APC runs before the queueing call returns.
struct Thread {
    slots: [Slot<(), Frames>; 1],
    own: bool,
    kernel: Result<Vec<u64>, Missing>,
    user: Result<Vec<u64>, Missing>,
    /// The field `user` of [`Found`].
    user_allowed: Result<(), Missing>,
    /// The thread id, if the system also finds the thread by other ids.
    tid: Option<u32>,
    references: Cell<u32>,
    /// The number of frames by which walks exceed the space.
    exaggeration: usize,
    /// Whether the system reports that the APC was removed from its queue, although it ran.
    removes_after_run: bool,
}

impl Thread {
    fn new(kernel: &[u64], user: &[u64]) -> Self {
        let frames = (0..usize::from(MAX_FRAMES) + MACHINERY).map(|_| AtomicU64::new(k(0xdead)));
        Self {
            slots: [Slot::new((), Frames(frames.collect()))],
            own: false,
            kernel: Ok(kernel.to_vec()),
            user: Ok(user.to_vec()),
            user_allowed: Ok(()),
            tid: None,
            references: Cell::new(0),
            exaggeration: 0,
            removes_after_run: false,
        }
    }

    fn requests_itself(self) -> Self {
        Self { own: true, ..self }
    }

    /// The entries of the kernel stack and of the user stack.
    fn ask(&self, flags: Flags, max_frames: u16, frames_to_skip: u16) -> (Copied, Vec<u64>, Vec<u64>) {
        let capture = Capture {
            pid: 4,
            tid: 8,
            created: None,
            max_frames,
            flags,
            timeout_ms: 1,
            id: 0,
            frames_to_skip,
        };
        let mut entries = [Entry::new(UNTOUCHED); MAX_FRAMES as usize + 1];
        let end = Requester::new(capture).finish(self, &mut entries).expect("the slot is not shared");
        let End::Answered { outcome: Outcome::Captured, copied, .. } = end else { panic!("{end:?}") };
        let mut entries = entries.iter().map(|entry| entry.get());
        let kernel = entries.by_ref().take(copied.kernel.into()).collect();
        let user = entries.by_ref().take(copied.user.into()).collect();
        assert!(copied.kernel + copied.user <= max_frames, "{copied:?}");
        assert!(entries.all(|entry| entry == UNTOUCHED), "more was written than reported");
        assert_eq!(self.references.get(), 0, "the thread was not released");
        (copied, kernel, user)
    }
}

impl Kernel for Thread {
    type Objects = ();
    type Frames = Frames;
    type Thread = ();

    fn slots(&self) -> &[Slot<(), Frames>] {
        &self.slots
    }

    fn find(&self, capture: &Capture) -> Result<Found<()>, Outcome> {
        let relation = if self.own { ThreadRelation::Own } else { ThreadRelation::Other };
        self.references.update(|references| references + 1);
        Ok(Found {
            thread: (),
            tid: self.tid.unwrap_or(capture.tid),
            relation,
            created: 0,
            user: self.user_allowed,
        })
    }

    fn release_thread(&self, (): ()) {
        self.references.update(|references| references - 1);
    }

    fn prepare(&self, _: Ticket, (): ()) {}

    fn queue(&self, ticket: Ticket) -> bool {
        let earlier = Ticket { generation: ticket.generation.wrapping_sub(1), ..ticket };
        assert_eq!(Apc::ran(earlier).finish(self), Err(Stale), "the ticket of an earlier capture");
        Apc::ran(ticket).finish(self).expect("the slot is the APC's");
        true
    }

    fn can_remove(&self) -> bool {
        true
    }

    fn remove(&self, _: Ticket) -> Removal {
        if self.removes_after_run { Removal::Removed } else { Removal::NotQueued }
    }

    fn wait(&self, _: Ticket, _: u32) -> bool {
        !self.removes_after_run
    }

    fn signal(&self, _: Ticket) {}

    fn enter_critical_region(&self) {}

    fn leave_critical_region(&self) {}

    fn in_critical_region(&self) -> bool {
        false
    }

    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        let walked = match part {
            Part::Kernel => self.kernel.as_ref(),
            Part::User => self.user.as_ref(),
        };
        let walked = walked.map_err(|&missing| missing)?;
        frames.iter().zip(walked).for_each(|(frame, &address)| frame.store(address, Relaxed));
        Ok(walked.len().min(frames.len()) + self.exaggeration)
    }

    fn is_own(&self, address: u64) -> bool {
        (OWN..OWN + 0x1000).contains(&address)
    }

    fn now(&self) -> u64 {
        0
    }
}

#[test]
fn frames_of_the_capture_are_omitted() {
    // The walked frames, whether the thread walks its own stack, the frames that remain, and the
    // number of omitted frames.
    let cases: &[(&[u64], bool, &[u64], u16)] = &[
        (&[OWN, OWN_TOO, DISPATCHER, k(1), k(2)], false, &[k(1), k(2)], 3),
        (&[OWN, DISPATCHER, k(1)], false, &[k(1)], 2),
        // A thread that walks its own stack was not called by the dispatcher.
        (&[OWN, OWN_TOO, k(1), k(2)], true, &[k(1), k(2)], 2),
        // The thread was in the code of the driver itself, waiting for another thread.
        (&[OWN, DISPATCHER, k(1), OWN_TOO, k(2)], false, &[k(1), OWN_TOO, k(2)], 2),
        // If the innermost frame is not in the code of the driver, nothing is omitted.
        (&[DISPATCHER, k(1)], false, &[DISPATCHER, k(1)], 0),
        (&[k(1), OWN, k(2)], false, &[k(1), OWN, k(2)], 0),
        (&[k(1), k(2)], true, &[k(1), k(2)], 0),
        (&[OWN, OWN_TOO], false, &[Missing::Nothing.sentinel()], 2),
        (&[OWN, DISPATCHER], false, &[Missing::Nothing.sentinel()], 2),
    ];
    for &(walked, own, left, machinery) in cases {
        let thread = Thread { own, ..Thread::new(walked, &[]) };
        let (copied, kernel, _) = thread.ask(Flags::KERNEL, 256, 0);
        assert_eq!((&kernel[..], copied.machinery), (left, machinery), "{walked:x?}");
        assert_eq!((copied.own, copied.kernel_cut, copied.skipped), (own, false, 0), "{walked:x?}");
        let (copied, kernel, _) = thread.ask(Flags::KERNEL.and(Flags::KEEP_MACHINERY), 256, 0);
        assert_eq!((&kernel[..], copied.machinery), (walked, 0), "kept");
    }
}

#[test]
fn frames_are_skipped_after_those_of_the_capture() {
    let walked = [OWN, DISPATCHER, k(1), k(2), k(3)];
    let cases: &[(u16, Flags, &[u64], u16)] = &[
        (1, Flags::KERNEL, &[k(2), k(3)], 1),
        (2, Flags::KERNEL, &[k(3)], 2),
        (3, Flags::KERNEL, &[Missing::Nothing.sentinel()], 3),
        (256, Flags::KERNEL, &[Missing::Nothing.sentinel()], 3),
        (1, Flags::KERNEL.and(Flags::KEEP_MACHINERY), &[DISPATCHER, k(1), k(2), k(3)], 1),
    ];
    for &(skip, flags, left, skipped) in cases {
        let (copied, kernel, _) = Thread::new(&walked, &[]).ask(flags, 256, skip);
        assert_eq!((&kernel[..], copied.skipped, copied.kernel_cut), (left, skipped, false), "{skip}");
    }
    // The walk is longer by the number of skipped frames.
    let deep: Vec<u64> = [OWN, DISPATCHER].into_iter().chain((0..200).map(k)).collect();
    let (copied, kernel, _) = Thread::new(&deep, &[]).ask(Flags::KERNEL, 2, 100);
    assert_eq!((kernel, copied.skipped, copied.kernel_cut), (vec![k(100), k(101)], 100, true));
}

#[test]
fn both_stacks_share_the_entries_and_each_has_one() {
    let deep: Vec<u64> = [OWN, DISPATCHER].into_iter().chain((0..300).map(k)).collect();
    let few = [OWN, DISPATCHER, k(0), k(1)];
    let program: Vec<u64> = (0..300).map(u).collect();
    // The walked frames, the requested stacks, the maximum number of entries, and the expected
    // lengths and cuts of both stacks.
    type Case<'a> = (&'a [u64], &'a [u64], Flags, u16, (usize, usize, bool, bool));
    let cases: &[Case] = &[
        (&few, &program[..2], BOTH, 256, (2, 2, false, false)),
        (&few, &program[..2], BOTH, 4, (2, 2, false, false)),
        (&few, &program[..2], BOTH, 3, (2, 1, false, true)),
        (&few, &program[..2], BOTH, 2, (1, 1, true, true)),
        (&deep, &program, BOTH, 2, (1, 1, true, true)),
        (&deep, &program, BOTH, 100, (99, 1, true, true)),
        (&few, &[], Flags::KERNEL, 2, (2, 0, false, false)),
        (&few, &[], Flags::KERNEL, 1, (1, 0, true, false)),
        (&deep, &[], Flags::KERNEL, 256, (256, 0, true, false)),
        (&[], &program, Flags::USER, 256, (0, 256, false, true)),
        (&[], &program[..255], Flags::USER, 256, (0, 255, false, false)),
        (&[], &program, Flags::USER, 1, (0, 1, false, true)),
    ];
    for &(kernel, user, flags, max_frames, expected) in cases {
        let (copied, kernel, user) = Thread::new(kernel, user).ask(flags, max_frames, 0);
        assert_eq!((kernel.len(), user.len(), copied.kernel_cut, copied.user_cut), expected, "{max_frames}");
        assert!(kernel.iter().copied().eq((0..).map(k).take(kernel.len())), "{kernel:x?}");
        assert!(user.iter().copied().eq((0..).map(u).take(user.len())), "{user:x?}");
    }
    // A kernel stack that fills the buffer leaves no space for the user stack.
    let (copied, _, user) = Thread::new(&deep, &program).ask(BOTH, 256, 0);
    assert_eq!((copied.kernel, user, copied.user_cut), (255, vec![Missing::NoRoom.sentinel()], false));
}

#[test]
fn invalid_addresses_end_a_stack() {
    let sentinel = Missing::Protected.sentinel();
    for end in [0, u(9), sentinel, 0x5d00_0000_0000_0000] {
        let walked = [OWN, DISPATCHER, k(1), end, k(2)];
        let (copied, kernel, _) = Thread::new(&walked, &[]).ask(Flags::KERNEL, 256, 0);
        assert_eq!((kernel, copied.kernel_cut), (vec![k(1)], false), "{end:x}");
        // A walk that fills the buffer does not count as cut if the stack ended before.
        let walked: Vec<u64> = walked.into_iter().chain((0..300).map(k)).collect();
        let (copied, ..) = Thread::new(&walked, &[]).ask(Flags::KERNEL, 256, 0);
        assert_eq!((copied.kernel, copied.kernel_cut), (1, false), "{end:x}");
    }
    // A program can write any value to its stack. The frames that are omitted then are reported as
    // cut.
    for end in [0, sentinel, Missing::Nothing.sentinel()] {
        let (copied, _, user) = Thread::new(&[], &[u(1), end, u(2)]).ask(Flags::USER, 256, 0);
        assert_eq!((user, copied.user_cut), (vec![u(1)], true), "{end:x}");
        let (copied, kernel, user) = Thread::new(&[k(1)], &[end, u(2)]).ask(BOTH, 256, 0);
        assert_eq!((kernel, user), (vec![k(1)], vec![Missing::Nothing.sentinel()]), "{end:x}");
        assert!(!copied.user_cut, "a stack without frames is not cut: {end:x}");
    }
}

/// During a callback from the kernel to user mode, as for window procedures, the walk of the user
/// stack passes the kernel frames that made the callback.
#[test]
fn a_user_stack_continues_through_callbacks_from_the_kernel() {
    for chain in [
        vec![u(1), u(2), k(3), k(4), u(5), u(6)],
        vec![u(1), k(2), u(3), k(4), k(5), u(6)],
        vec![u(1), k(2)],
        vec![k(1), u(2)],
        vec![u(1), u64::MAX, u(2)],
    ] {
        let (copied, kernel, user) = Thread::new(&[k(9)], &chain).ask(BOTH, 256, 0);
        assert_eq!((kernel, user, copied.user_cut), (vec![k(9)], chain.clone(), false));
        // Kernel frames are cut like others.
        let room = chain.len() as u16 - 1;
        let (copied, _, user) = Thread::new(&[], &chain).ask(Flags::USER, room, 0);
        assert_eq!((&user[..], copied.user_cut), (&chain[..chain.len() - 1], true));
    }
}

#[test]
fn a_missing_stack_has_a_reason() {
    for missing in Missing::ALL {
        let sentinel = vec![missing.sentinel()];
        let thread = Thread { kernel: Err(missing), ..Thread::new(&[], &[u(1)]) };
        let (copied, kernel, user) = thread.ask(BOTH, 256, 5);
        assert_eq!((kernel, user, copied.machinery, copied.skipped), (sentinel.clone(), vec![u(1)], 0, 0));
        let thread = Thread { user: Err(missing), ..Thread::new(&[k(1)], &[]) };
        assert_eq!(thread.ask(BOTH, 2, 0).2, sentinel);
        // A user stack that must not be walked is not walked.
        let thread = Thread { user_allowed: Err(missing), ..Thread::new(&[k(1)], &[u(1)]) };
        assert_eq!(thread.ask(BOTH, 2, 0).2, sentinel);
    }
    let (_, kernel, user) = Thread::new(&[], &[]).requests_itself().ask(BOTH, 2, 0);
    assert_eq!((kernel, user), (vec![Missing::Nothing.sentinel()], vec![Missing::Nothing.sentinel()]));
}

#[test]
fn an_exaggerated_frame_count_is_not_trusted() {
    let thread = Thread { exaggeration: 1_000_000, ..Thread::new(&[OWN, DISPATCHER, k(1)], &[u(1)]) };
    let (copied, kernel, _) = thread.ask(Flags::KERNEL, 1, 0);
    assert_eq!((kernel, copied.kernel_cut), (vec![k(1)], true));
    let (copied, _, user) = thread.ask(Flags::USER, 1, 0);
    assert_eq!((user, copied.user_cut), (vec![u(1)], true));
}

#[test]
fn removal_of_an_apc_that_ran_is_detected() {
    let thread = Thread { removes_after_run: true, ..Thread::new(&[k(1)], &[]) };
    let end = Requester::new(capture()).finish(&thread, &mut [Entry::ZERO; 256]);
    assert_eq!(end, Err(Stale));
}

#[test]
fn a_thread_is_found_only_by_its_own_id() {
    // Windows also finds a thread by its id plus one to three.
    for (tid, outcome) in [(8, Outcome::Captured), (9, Outcome::NoThread), (11, Outcome::NoThread)] {
        let thread = Thread { tid: Some(8), ..Thread::new(&[k(1)], &[]) };
        let requester = Requester::new(Capture { tid, ..capture() });
        let end = requester.finish(&thread, &mut [Entry::ZERO; 256]).expect("the slot is not shared");
        assert!(matches!(end, End::Answered { outcome: found, .. } if found == outcome), "{tid}: {end:?}");
        assert_eq!(thread.references.get(), 0, "{tid}");
    }
}

#[test]
fn a_free_slot_refuses_tickets() {
    let thread = Thread::new(&[k(1)], &[]);
    for ticket in [Ticket { index: 0, generation: 0 }, Ticket { index: 1, generation: 0 }] {
        assert_eq!(Apc::ran(ticket).finish(&thread), Err(Stale));
        assert_eq!(Apc::run_down(ticket).finish(&thread), Err(Stale));
    }
}

#[test]
fn a_thread_with_the_id_zero_claims_no_slot() {
    let thread = Thread::new(&[k(1)], &[]);
    let requester = Requester::new(Capture { tid: 0, ..capture() });
    let end = requester.finish(&thread, &mut [Entry::ZERO; 256]).expect("the slot is not shared");
    assert!(matches!(end, End::Answered { outcome: Outcome::Idle, .. }), "{end:?}");
    assert_eq!(thread.references.get(), 0);
}

/// Any value that a walk may return.
fn frame() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(OWN),
        Just(OWN_TOO),
        Just(DISPATCHER),
        Just(0),
        any::<u64>(),
        (0..1000_u64).prop_map(k),
        (0..1000_u64).prop_map(k),
        (0..1000_u64).prop_map(u),
        (0..1000_u64).prop_map(u),
        prop::sample::select(&Missing::ALL[..]).prop_map(Missing::sentinel),
    ]
}

proptest! {
    #[test]
    fn an_answer_is_a_slice_of_the_walked_frames(
        kernel in prop::collection::vec(frame(), 0..300),
        user in prop::collection::vec(frame(), 0..300),
        own: bool,
        keep: bool,
        flags in prop::sample::select(&[Flags::KERNEL, Flags::USER, BOTH][..]),
        max_frames in prop_oneof![2..8_u16, 2..=256_u16],
        skip in prop_oneof![0..8_u16, 0..=256_u16],
    ) {
        let thread = Thread { own, ..Thread::new(&kernel, &user) };
        let flags = if keep { flags.and(Flags::KEEP_MACHINERY) } else { flags };
        let (copied, of_kernel, of_user) = thread.ask(flags, max_frames, skip);
        prop_assert_eq!(!of_kernel.is_empty(), flags.has(Flags::KERNEL));
        prop_assert_eq!(!of_user.is_empty(), flags.has(Flags::USER));
        let is_missing = |stack: &[u64]| stack.len() == 1 && Missing::from_sentinel(stack[0]).is_some();
        if !is_missing(&of_kernel) {
            let from = usize::from(copied.machinery + copied.skipped);
            prop_assert_eq!(&kernel[..][from.min(kernel.len())..][..of_kernel.len()], &of_kernel[..]);
            prop_assert!(of_kernel.iter().all(|&address| address >> 63 == 1));
            // The next value is not a kernel address, or the stack is marked as cut.
            if let Some(next) = kernel.get(from + of_kernel.len()).filter(|_| flags.has(Flags::KERNEL)) {
                prop_assert!(next >> 63 == 0 || copied.kernel_cut);
            }
        }
        if !is_missing(&of_user) {
            prop_assert_eq!(&user[..of_user.len()], &of_user[..]);
            prop_assert!(of_user.iter().all(|&address| address != 0 && Missing::from_sentinel(address).is_none()));
            prop_assert!(of_user.len() == user.len() || copied.user_cut || !flags.has(Flags::USER));
        }
        prop_assert!(!keep || copied.machinery == 0);
        let machinery = &kernel[..usize::from(copied.machinery)];
        let ours = machinery.len() - usize::from(!own && machinery.last().is_some_and(|&last| !thread.is_own(last)));
        prop_assert!(machinery[..ours].iter().all(|&address| thread.is_own(address)));
        prop_assert!(copied.skipped <= skip);
    }
}
