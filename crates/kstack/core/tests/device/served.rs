//! The answers for threads of each kind, as numbers that were computed by hand.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use stackhound_kstack_core::{
    Apc, Caller, Found, Kernel, Opener, Part, Refusal, Removal, Slot, ThreadRelation, Ticket, control,
};
use stackhound_kstack_proto::{Answer, Capture, Flags, Missing, Outcome, Request};

use crate::support::{Mock, Reaction, Settings, Thread, check_call, request, thread};

const OWN: u64 = 0xffff_f805_1000_0040;
const DISPATCHER: u64 = 0xffff_f803_0000_0100;
const WAIT: u64 = 0xffff_f803_0000_0200;
const SYSCALL: u64 = 0xffff_f803_0000_0300;
const NTDLL: u64 = 0x7ff8_0000_0400;
const MAIN: u64 = 0x7ff6_0000_0500;

fn waiting() -> Thread {
    Thread {
        kernel: Ok(vec![OWN, OWN + 16, DISPATCHER, WAIT, SYSCALL]),
        user: Ok(vec![NTDLL, MAIN]),
        ..thread(7)
    }
}

/// The kernel stack and the user stack of an answer.
type Parts = (Result<Vec<u64>, Missing>, Result<Vec<u64>, Missing>);

fn ask(settings: Settings, thread: Thread, change: impl FnOnce(&mut Capture)) -> (Outcome, Parts, [u16; 3]) {
    let mock = Mock::new(settings, vec![thread]);
    let call = request(&mock.threads[0], change);
    let bytes = check_call(&mock, &call).expect("an answer");
    let capture = Request::parse(&call.buffer[..48]).expect("a request");
    let answer = Answer::parse(&bytes, &capture).expect("an answer");
    let header = answer.header();
    let numbers = [header.flags.get(), header.machinery.get(), header.skipped.get()];
    let kernel = answer.kernel().map(|frames| frames.collect());
    (answer.outcome(), (kernel, answer.user().map(|frames| frames.collect())), numbers)
}

#[test]
fn an_answer_has_the_documented_bytes() {
    let mock = Mock::new(Settings::DRIVER, vec![Thread { reaction: Reaction::Soon, ..waiting() }]);
    let bytes = check_call(&mock, &request(&mock.threads[0], |_| {})).expect("an answer");
    #[rustfmt::skip]
    let header = [
        b'S', b'H', b'K', b'S', 2, 0, 64, 0,
        // Process 1012, thread 32, created at 0x01db000000000007.
        0xf4, 3, 0, 0, 32, 0, 0, 0,
        7, 0, 0, 0, 0, 0, 0xdb, 1,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        // Captured: two entries and two entries.
        0, 0, 0, 0, 2, 0, 2, 0,
        // Not its own, nothing cut; three frames of the capture, none skipped.
        0, 0, 3, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes[..48], header);
    // `Answer::parse` checks the hash. 1234 is 0x4d2.
    assert_eq!(bytes[56..64], [0xd2, 4, 0, 0, 0, 0, 0, 0]);
    let entries: Vec<u8> = [WAIT, SYSCALL, NTDLL, MAIN].into_iter().flat_map(u64::to_le_bytes).collect();
    assert_eq!(bytes[64..], entries);
}

#[test]
fn each_reaction_has_its_outcome() {
    let other = |reaction| Thread { reaction, ..waiting() };
    for (thread, outcome) in [
        (other(Reaction::AtOnce), Outcome::Captured),
        (other(Reaction::Soon), Outcome::Captured),
        (other(Reaction::Last), Outcome::Captured),
        (other(Reaction::Slow), Outcome::TimedOut),
        (other(Reaction::HangsInUser), Outcome::Captured),
        (other(Reaction::Late), Outcome::TimedOut),
        (other(Reaction::EndsAtOnce), Outcome::Terminating),
        (other(Reaction::EndsSoon), Outcome::Terminating),
        (other(Reaction::EndsLast), Outcome::Terminating),
        (other(Reaction::EndsLate), Outcome::TimedOut),
        (Thread { relation: ThreadRelation::Own, ..waiting() }, Outcome::Captured),
        (Thread { relation: ThreadRelation::Idle, ..waiting() }, Outcome::Idle),
    ] {
        for can_remove in [false, true] {
            let settings = Settings { can_remove, ..Settings::DRIVER };
            assert_eq!(ask(settings, thread.clone(), |_| {}).0, outcome, "{thread:?}");
        }
    }
}

/// A refused APC is not waited for, and an APC that has answered is not removed.
#[test]
fn each_reaction_makes_only_the_required_calls() {
    let other = |reaction| Thread { reaction, ..waiting() };
    // The numbers of APCs that are queued, waited for and removed.
    for (thread, expected) in [
        (other(Reaction::AtOnce), (1, 1, 0)),
        (other(Reaction::Soon), (1, 1, 0)),
        (other(Reaction::EndsSoon), (1, 1, 0)),
        (other(Reaction::Last), (1, 1, 1)),
        (other(Reaction::Slow), (1, 1, 1)),
        (other(Reaction::HangsInUser), (1, 1, 1)),
        (other(Reaction::Late), (1, 1, 1)),
        (other(Reaction::EndsAtOnce), (1, 0, 0)),
        (Thread { relation: ThreadRelation::Own, ..waiting() }, (0, 0, 0)),
        (Thread { relation: ThreadRelation::Idle, ..waiting() }, (0, 0, 0)),
    ] {
        let mock = Mock::new(Settings::DRIVER, vec![thread]);
        check_call(&mock, &request(&mock.threads[0], |_| {})).expect("an answer");
        let counts = mock.counts();
        assert_eq!((counts.queued, counts.waits, counts.removals), expected, "{:?}", mock.threads[0]);
    }
}

#[test]
fn flags_select_the_stacks_and_the_omitted_frames() {
    let all = [OWN, OWN + 16, DISPATCHER, WAIT, SYSCALL];
    let (own, other) = (ThreadRelation::Own, ThreadRelation::Other);
    for (relation, flags, skip, kernel, user, expected) in [
        (other, 1, 0, &all[3..], &[][..], [0, 3, 0]),
        (other, 2, 0, &[], &[NTDLL, MAIN], [0, 0, 0]),
        (other, 3, 0, &all[3..], &[NTDLL, MAIN], [0, 3, 0]),
        (other, 3, 1, &all[4..], &[NTDLL, MAIN], [0, 3, 1]),
        (other, 5, 0, &all[..], &[], [0, 0, 0]),
        (other, 7, 2, &all[2..], &[NTDLL, MAIN], [0, 0, 2]),
        (other, 6, 1, &[], &[NTDLL, MAIN], [0, 0, 0]),
        // A thread that walks its own stack was not called by the dispatcher.
        (own, 3, 0, &all[2..], &[NTDLL, MAIN], [1, 2, 0]),
        (own, 7, 0, &all[..], &[NTDLL, MAIN], [1, 0, 0]),
    ] {
        let (_, parts, numbers) = ask(Settings::DRIVER, Thread { relation, ..waiting() }, |capture| {
            capture.flags = Flags::from_bits(flags).expect("flags that exist");
            capture.frames_to_skip = skip;
        });
        assert_eq!(parts, (Ok(kernel.to_vec()), Ok(user.to_vec())), "{relation:?}, {flags}, {skip}");
        assert_eq!(numbers, expected, "{relation:?}, {flags}, {skip}");
    }
    let (_, parts, numbers) = ask(Settings::DRIVER, waiting(), |capture| capture.frames_to_skip = 256);
    assert_eq!((parts.0, numbers), (Err(Missing::Nothing), [0, 3, 2]));
}

#[test]
fn frames_beyond_the_space_are_cut() {
    for (space, kernel, user, flags) in [
        (2, &[WAIT][..], &[NTDLL][..], 6),
        (3, &[WAIT, SYSCALL], &[NTDLL], 4),
        (4, &[WAIT, SYSCALL], &[NTDLL, MAIN], 0),
    ] {
        let (_, parts, numbers) = ask(Settings::DRIVER, waiting(), |capture| capture.max_frames = space);
        assert_eq!((parts, numbers[0]), ((Ok(kernel.to_vec()), Ok(user.to_vec())), flags), "{space} entries");
    }
    // A walk that filled its buffer may not have reached the end of the stack.
    for (memory, user, flags) in [
        (5, Err(Missing::NoRoom), 2),
        (6, Ok(vec![NTDLL]), 4),
        (7, Ok(vec![NTDLL, MAIN]), 4),
        (8, Ok(vec![NTDLL, MAIN]), 0),
    ] {
        let (_, parts, numbers) = ask(Settings { memory, ..Settings::DRIVER }, waiting(), |_| {});
        assert_eq!((parts.0, parts.1, numbers[0]), (Ok(vec![WAIT, SYSCALL]), user, flags), "{memory} frames");
    }
}

/// The kernel frames that called back into the program are between two runs of user frames.
#[test]
fn kernel_frames_of_a_callback_stay_in_the_user_stack() {
    let chain = vec![NTDLL, MAIN, SYSCALL, WAIT, NTDLL + 1, MAIN + 1];
    let thread = || Thread { user: Ok(chain.clone()), ..waiting() };
    let (_, parts, numbers) = ask(Settings::DRIVER, thread(), |_| {});
    assert_eq!((parts.1, numbers[0]), (Ok(chain.clone()), 0));
    let (_, parts, numbers) = ask(Settings::DRIVER, thread(), |capture| capture.max_frames = 5);
    assert_eq!((parts.1, numbers[0]), (Ok(chain[..3].to_vec()), 4));
}

/// A page of the user stack that is read late, or never, does not delay the kernel stack.
#[test]
fn the_kernel_stack_does_not_wait_for_the_user_stack() {
    let hangs = || Thread { reaction: Reaction::HangsInUser, ..waiting() };
    let kernel = Ok(vec![WAIT, SYSCALL]);
    let (outcome, parts, numbers) = ask(Settings::DRIVER, hangs(), |_| {});
    assert_eq!(
        (outcome, parts, numbers),
        (Outcome::Captured, (kernel.clone(), Err(Missing::Unfinished)), [0, 3, 0])
    );
    let (outcome, parts, _) = ask(Settings::DRIVER, hangs(), |capture| capture.flags = Flags::USER);
    assert_eq!((outcome, parts), (Outcome::Captured, (Ok(vec![]), Err(Missing::Unfinished))));
    let (_, parts, _) = ask(Settings::DRIVER, hangs(), |capture| capture.flags = Flags::KERNEL);
    assert_eq!(parts, (kernel.clone(), Ok(vec![])));
    // A reason that is known before the walk takes precedence.
    let system = Thread { may: Err(Missing::System), ..hangs() };
    assert_eq!(ask(Settings::DRIVER, system, |_| {}).1, (kernel, Err(Missing::System)));
}

/// The thread may hold a file system lock for which reading in a page of its stack may wait.
#[test]
fn no_user_stack_is_walked_in_a_critical_region_unless_requested() {
    let inside = || Thread { in_critical_region: true, ..waiting() };
    let user = Ok(vec![NTDLL, MAIN]);
    let always = Flags::KERNEL.and(Flags::USER).and(Flags::USER_IN_CRITICAL_REGION);
    for (thread, flags, expected, walks) in [
        (inside(), Flags::KERNEL.and(Flags::USER), Err(Missing::CriticalRegion), 1),
        (inside(), always, user.clone(), 2),
        // A thread that requests its own stack called the driver, and holds no lock.
        (Thread { relation: ThreadRelation::Own, ..waiting() }, Flags::KERNEL.and(Flags::USER), user, 2),
    ] {
        let mock = Mock::new(Settings::DRIVER, vec![thread]);
        let call = request(&mock.threads[0], |capture| capture.flags = flags);
        let bytes = check_call(&mock, &call).expect("an answer");
        let capture = Request::parse(&call.buffer[..48]).expect("a request");
        let answer = Answer::parse(&bytes, &capture).expect("an answer");
        assert_eq!(answer.user().map(|frames| frames.collect()), expected, "{flags:?}");
        assert_eq!((answer.kernel().map(|frames| frames.len() > 1), mock.counts().walks), (Ok(true), walks));
    }
}

#[test]
fn missing_stacks_have_a_reason() {
    let all = Ok(vec![WAIT, SYSCALL]);
    for missing in Missing::ALL {
        for (thread, kernel, user) in [
            (Thread { may: Err(missing), ..waiting() }, all.clone(), Err(missing)),
            (Thread { user: Err(missing), ..waiting() }, all.clone(), Err(missing)),
            (Thread { kernel: Err(missing), ..waiting() }, Err(missing), Ok(vec![NTDLL, MAIN])),
        ] {
            assert_eq!(ask(Settings::DRIVER, thread, |_| {}).1, (kernel, user), "{missing:?}");
        }
    }
    let nothing = Thread { kernel: Ok(vec![]), user: Ok(vec![]), ..waiting() };
    let parts = ask(Settings::DRIVER, nothing, |_| {}).1;
    assert_eq!(parts, (Err(Missing::Nothing), Err(Missing::Nothing)));
}

#[test]
fn a_reused_id_is_another_thread() {
    let birth = waiting().created;
    for (reports_created, created, outcome) in [
        (true, None, Outcome::Captured),
        (true, Some(birth), Outcome::Captured),
        (true, Some(birth + 1), Outcome::NoThread),
        (false, None, Outcome::Captured),
        (false, Some(birth), Outcome::NoThread),
    ] {
        let settings = Settings { reports_created, ..Settings::DRIVER };
        let found = ask(settings, waiting(), |capture| capture.created = created).0;
        assert_eq!(found, outcome, "{reports_created} {created:?}");
    }
    for change in [|capture: &mut Capture| capture.pid += 1, |capture: &mut Capture| capture.tid += 4] {
        assert_eq!(ask(Settings::DRIVER, waiting(), change).0, Outcome::NoThread);
    }
}

/// A system that violates the contract: it runs each APC again, while the request reads the frames
/// of the first run.
struct RunsTwice {
    mock: Mock,
    queued: Cell<Option<Ticket>>,
}

impl Kernel for RunsTwice {
    type Objects = <Mock as Kernel>::Objects;
    type Frames = <Mock as Kernel>::Frames;
    type Thread = usize;

    fn slots(&self) -> &[Slot<Self::Objects, Self::Frames>] {
        self.mock.slots()
    }

    fn find(&self, capture: &Capture) -> Result<Found<usize>, Outcome> {
        self.mock.find(capture)
    }

    fn release_thread(&self, thread: usize) {
        self.mock.release_thread(thread);
    }

    fn prepare(&self, ticket: Ticket, thread: usize) {
        self.mock.prepare(ticket, thread);
    }

    fn queue(&self, ticket: Ticket) -> bool {
        self.queued.set(Some(ticket));
        self.mock.queue(ticket)
    }

    fn can_remove(&self) -> bool {
        self.mock.can_remove()
    }

    fn remove(&self, ticket: Ticket) -> Removal {
        self.mock.remove(ticket)
    }

    fn wait(&self, ticket: Ticket, milliseconds: u32) -> bool {
        self.mock.wait(ticket, milliseconds)
    }

    fn signal(&self, ticket: Ticket) {
        self.mock.signal(ticket);
    }

    fn enter_critical_region(&self) {
        self.mock.enter_critical_region();
    }

    fn leave_critical_region(&self) {
        self.mock.leave_critical_region();
    }

    fn in_critical_region(&self) -> bool {
        self.mock.in_critical_region()
    }

    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing> {
        self.mock.walk(part, frames)
    }

    fn is_own(&self, address: u64) -> bool {
        if let Some(ticket) = self.queued.take() {
            Apc::ran(ticket).finish(&self.mock).expect("the slot is still taken");
        }
        self.mock.is_own(address)
    }

    fn now(&self) -> u64 {
        self.mock.now()
    }
}

#[test]
fn frames_of_a_lost_slot_are_not_returned() {
    let mock = Mock::new(Settings::DRIVER, vec![waiting()]);
    let mut call = request(&mock.threads[0], |_| {});
    call.buffer[48..].fill(0);
    let mut buffer = call.buffer.clone();
    let kernel = RunsTwice { mock, queued: Cell::new(None) };
    let caller = Caller { from_user_mode: true, pid: call.opener };
    let opener = Opener::kept(call.opener.try_into().expect("a process"));
    let result = control(&kernel, opener, caller, call.code, &mut buffer, call.input, call.output);
    assert_eq!(result, Err(Refusal::Internal));
    assert_eq!(buffer, call.buffer);
    assert_eq!(kernel.mock.regions.get(), 0, "the region is left also after an error");
}
