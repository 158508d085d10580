//! What an answer has of what was walked: the capture's own frames are left out, no part is longer than it may be, and what is no
//! frame of a part is not taken for one.

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

/// Two addresses in the code that captures, and one of the dispatcher of APCs.
const OWN: u64 = 0xffff_f800_0000_1000;
const OWN_TOO: u64 = 0xffff_f800_0000_1040;
const DISPATCHER: u64 = 0xffff_f807_0000_0000;
/// What stands in an entry before.
const UNTOUCHED: u64 = 0x0123_4567_89ab_cdef;

/// A frame of the kernel part.
fn k(number: u64) -> u64 {
    0xffff_8000_0000_0000 + number
}

/// A frame of the user part.
fn u(number: u64) -> u64 {
    0x7ff6_0000_0000 + number
}

/// Asks for the kernel part of a thread.
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

/// A thread with these frames. Its APC runs before queueing it is over.
struct Thread {
    slots: [Slot<(), Frames>; 1],
    own: bool,
    kernel: Result<Vec<u64>, Missing>,
    user: Result<Vec<u64>, Missing>,
    /// Whether there is a user part, as the system says beforehand.
    user_allowed: Result<(), Missing>,
    /// Its number, if the system finds it by others as well.
    tid: Option<u32>,
    /// References to it.
    references: Cell<u32>,
    /// By how many frames walks say more than there is room for.
    exaggerates: usize,
    /// Whether the system says that the APC was taken out of its queue, though it ran.
    takes_back_what_ran: bool,
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
            exaggerates: 0,
            takes_back_what_ran: false,
        }
    }

    fn asks_itself(self) -> Self {
        Self { own: true, ..self }
    }

    /// The entries of the kernel part and of the user part.
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
        let end = Requester::new(capture).finish(self, &mut entries).expect("nobody else uses the slot");
        let End::Answered { outcome: Outcome::Captured, copied, .. } = end else { panic!("{end:?}") };
        let mut entries = entries.iter().map(|entry| entry.get());
        let kernel = entries.by_ref().take(copied.kernel.into()).collect();
        let user = entries.by_ref().take(copied.user.into()).collect();
        assert!(copied.kernel + copied.user <= max_frames, "{copied:?}");
        assert!(entries.all(|entry| entry == UNTOUCHED), "more was written than is said");
        assert_eq!(self.references.get(), 0, "the thread is let go");
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
        let location = if self.own { ThreadRelation::Own } else { ThreadRelation::Other };
        self.references.update(|references| references + 1);
        Ok(Found {
            thread: (),
            tid: self.tid.unwrap_or(capture.tid),
            location,
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
        if self.takes_back_what_ran { Removal::Removed } else { Removal::NotQueued }
    }

    fn wait(&self, _: Ticket, _: u32) -> bool {
        !self.takes_back_what_ran
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
        Ok(walked.len().min(frames.len()) + self.exaggerates)
    }

    fn is_own(&self, address: u64) -> bool {
        (OWN..OWN + 0x1000).contains(&address)
    }

    fn now(&self) -> u64 {
        0
    }
}

#[test]
fn frames_of_the_capture_are_left_out() {
    // What was walked, who walks, what is left, and how many were left out.
    let cases: &[(&[u64], bool, &[u64], u16)] = &[
        (&[OWN, OWN_TOO, DISPATCHER, k(1), k(2)], false, &[k(1), k(2)], 3),
        (&[OWN, DISPATCHER, k(1)], false, &[k(1)], 2),
        // Who walks by itself has no dispatcher.
        (&[OWN, OWN_TOO, k(1), k(2)], true, &[k(1), k(2)], 2),
        // The thread itself was in the code that captures, waiting for another.
        (&[OWN, DISPATCHER, k(1), OWN_TOO, k(2)], false, &[k(1), OWN_TOO, k(2)], 2),
        // Whatever begins with other frames is not what is known.
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
fn frames_are_skipped_behind_those_of_the_capture() {
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
    // The walk goes on for as many as are skipped.
    let deep: Vec<u64> = [OWN, DISPATCHER].into_iter().chain((0..200).map(k)).collect();
    let (copied, kernel, _) = Thread::new(&deep, &[]).ask(Flags::KERNEL, 2, 100);
    assert_eq!((kernel, copied.skipped, copied.kernel_cut), (vec![k(100), k(101)], 100, true));
}

#[test]
fn parts_share_the_room_and_each_has_some() {
    let deep: Vec<u64> = [OWN, DISPATCHER].into_iter().chain((0..300).map(k)).collect();
    let few = [OWN, DISPATCHER, k(0), k(1)];
    let program: Vec<u64> = (0..300).map(u).collect();
    // What is walked, entries, and how many of the kernel and the user part there are, and whether each was cut.
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
    // A kernel part without end leaves none.
    let (copied, _, user) = Thread::new(&deep, &program).ask(BOTH, 256, 0);
    assert_eq!((copied.kernel, user, copied.user_cut), (255, vec![Missing::NoRoom.sentinel()], false));
}

#[test]
fn what_is_no_frame_of_a_part_ends_it() {
    let sentinel = Missing::Protected.sentinel();
    for end in [0, u(9), sentinel, 0x5d00_0000_0000_0000] {
        let walked = [OWN, DISPATCHER, k(1), end, k(2)];
        let (copied, kernel, _) = Thread::new(&walked, &[]).ask(Flags::KERNEL, 256, 0);
        assert_eq!((kernel, copied.kernel_cut), (vec![k(1)], false), "{end:x}");
        // Nor does a full walk mean that there was more.
        let walked: Vec<u64> = walked.into_iter().chain((0..300).map(k)).collect();
        let (copied, ..) = Thread::new(&walked, &[]).ask(Flags::KERNEL, 256, 0);
        assert_eq!((copied.kernel, copied.kernel_cut), (1, false), "{end:x}");
    }
    // A program writes on its stack what it likes. What is left out then is said to be.
    for end in [0, sentinel, Missing::Nothing.sentinel()] {
        let (copied, _, user) = Thread::new(&[], &[u(1), end, u(2)]).ask(Flags::USER, 256, 0);
        assert_eq!((user, copied.user_cut), (vec![u(1)], true), "{end:x}");
        let (copied, kernel, user) = Thread::new(&[k(1)], &[end, u(2)]).ask(BOTH, 256, 0);
        assert_eq!((kernel, user), (vec![k(1)], vec![Missing::Nothing.sentinel()]), "{end:x}");
        assert!(!copied.user_cut, "no frames, so none are missing: {end:x}");
    }
}

/// In a callback to user mode, as window procedures are called, the walk of the user part goes through the kernel frames that made the
/// callback.
#[test]
fn a_user_part_goes_on_through_callbacks_from_the_kernel() {
    for chain in [
        vec![u(1), u(2), k(3), k(4), u(5), u(6)],
        vec![u(1), k(2), u(3), k(4), k(5), u(6)],
        vec![u(1), k(2)],
        vec![k(1), u(2)],
        vec![u(1), u64::MAX, u(2)],
    ] {
        let (copied, kernel, user) = Thread::new(&[k(9)], &chain).ask(BOTH, 256, 0);
        assert_eq!((kernel, user, copied.user_cut), (vec![k(9)], chain.clone(), false));
        // Cut like any other frames.
        let room = chain.len() as u16 - 1;
        let (copied, _, user) = Thread::new(&[], &chain).ask(Flags::USER, room, 0);
        assert_eq!((&user[..], copied.user_cut), (&chain[..chain.len() - 1], true));
    }
}

#[test]
fn a_missing_part_says_why() {
    for missing in Missing::ALL {
        let sentinel = vec![missing.sentinel()];
        let thread = Thread { kernel: Err(missing), ..Thread::new(&[], &[u(1)]) };
        let (copied, kernel, user) = thread.ask(BOTH, 256, 5);
        assert_eq!((kernel, user, copied.machinery, copied.skipped), (sentinel.clone(), vec![u(1)], 0, 0));
        let thread = Thread { user: Err(missing), ..Thread::new(&[k(1)], &[]) };
        assert_eq!(thread.ask(BOTH, 2, 0).2, sentinel);
        // What may not be looked at is not.
        let thread = Thread { user_allowed: Err(missing), ..Thread::new(&[k(1)], &[u(1)]) };
        assert_eq!(thread.ask(BOTH, 2, 0).2, sentinel);
    }
    let (_, kernel, user) = Thread::new(&[], &[]).asks_itself().ask(BOTH, 2, 0);
    assert_eq!((kernel, user), (vec![Missing::Nothing.sentinel()], vec![Missing::Nothing.sentinel()]));
}

#[test]
fn a_walk_that_says_too_much_is_not_believed() {
    let thread = Thread { exaggerates: 1_000_000, ..Thread::new(&[OWN, DISPATCHER, k(1)], &[u(1)]) };
    let (copied, kernel, _) = thread.ask(Flags::KERNEL, 1, 0);
    assert_eq!((kernel, copied.kernel_cut), (vec![k(1)], true));
    let (copied, _, user) = thread.ask(Flags::USER, 1, 0);
    assert_eq!((user, copied.user_cut), (vec![u(1)], true));
}

#[test]
fn a_system_that_takes_back_what_ran_is_found_out() {
    let thread = Thread { takes_back_what_ran: true, ..Thread::new(&[k(1)], &[]) };
    let end = Requester::new(capture()).finish(&thread, &mut [Entry::ZERO; 256]);
    assert_eq!(end, Err(Stale));
}

#[test]
fn a_thread_is_found_by_its_own_number_only() {
    // As Windows does, which finds a thread also by its number and one to three more.
    for (asked, outcome) in [(8, Outcome::Captured), (9, Outcome::NoThread), (11, Outcome::NoThread)] {
        let thread = Thread { tid: Some(8), ..Thread::new(&[k(1)], &[]) };
        let asking = Requester::new(Capture { tid: asked, ..capture() });
        let end = asking.finish(&thread, &mut [Entry::ZERO; 256]).expect("nobody else uses the slot");
        assert!(matches!(end, End::Answered { outcome: came, .. } if came == outcome), "{asked}: {end:?}");
        assert_eq!(thread.references.get(), 0, "{asked}");
    }
}

#[test]
fn a_free_slot_is_nobodys() {
    let thread = Thread::new(&[k(1)], &[]);
    for ticket in [Ticket { index: 0, generation: 0 }, Ticket { index: 1, generation: 0 }] {
        assert_eq!(Apc::ran(ticket).finish(&thread), Err(Stale));
        assert_eq!(Apc::run_down(ticket).finish(&thread), Err(Stale));
    }
}

#[test]
fn a_thread_without_a_number_takes_no_slot() {
    let thread = Thread::new(&[k(1)], &[]);
    let asking = Requester::new(Capture { tid: 0, ..capture() });
    let end = asking.finish(&thread, &mut [Entry::ZERO; 256]).expect("nobody else uses the slot");
    assert!(matches!(end, End::Answered { outcome: Outcome::Idle, .. }), "{end:?}");
    assert_eq!(thread.references.get(), 0);
}

/// Anything that may lie on a stack.
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
    fn an_answer_is_a_piece_of_what_was_walked(
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
        let is_missing = |part: &[u64]| part.len() == 1 && Missing::from_sentinel(part[0]).is_some();
        if !is_missing(&of_kernel) {
            let from = usize::from(copied.machinery + copied.skipped);
            prop_assert_eq!(&kernel[..][from.min(kernel.len())..][..of_kernel.len()], &of_kernel[..]);
            prop_assert!(of_kernel.iter().all(|&address| address >> 63 == 1));
            // What comes next is no frame, or is said to be left out.
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
