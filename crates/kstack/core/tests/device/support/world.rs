//! Threads of every kind, and requests for them.

use stackhound_kstack_core::{Caller, ThreadRelation};
use stackhound_kstack_proto::{Capture, Flags, Missing, Request};

use super::mock::{Reaction, Thread};
use super::oracle::Call;

/// The process that opened the device.
pub const OPENER: u32 = 4711;

const REACTIONS: [Reaction; 10] = [
    Reaction::AtOnce,
    Reaction::Soon,
    Reaction::Slow,
    Reaction::HangsInUser,
    Reaction::Last,
    Reaction::Late,
    Reaction::EndsAtOnce,
    Reaction::EndsSoon,
    Reaction::EndsLast,
    Reaction::EndsLate,
];

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A thread that answers at once. Its stack begins with the frames of the capture and their caller.
pub fn thread(number: u32) -> Thread {
    let own = (0..3).map(|frame| 0xffff_f805_1000_1000 + frame * 16);
    let system = (0..12).map(|frame| 0xffff_f803_4400_0000 + u64::from(number) * 4096 + frame * 16);
    Thread {
        pid: 1000 + number % 4 * 4,
        tid: 4 + number * 4,
        created: 0x01db_0000_0000_0000 + u64::from(number),
        relation: ThreadRelation::Other,
        reaction: Reaction::AtOnce,
        in_critical_region: false,
        may: Ok(()),
        kernel: Ok(own.chain(system).collect()),
        user: Ok((0..9).map(|frame| 0x7ff8_1000_0000 + u64::from(number) * 4096 + frame * 16).collect()),
    }
}

/// Threads that do not answer before the timeout.
pub fn all_late(count: u32) -> Vec<Thread> {
    (0..count).map(|number| Thread { reaction: Reaction::Late, ..thread(number) }).collect()
}

/// Every reaction with every kind of kernel stack and user stack, and the threads that take no
/// requests.
pub fn threads() -> Vec<Thread> {
    let mut all = Vec::new();
    let kernel_stacks = kernel_stacks();
    let user_stacks = user_stacks();
    for number in 0..63u32 {
        let index = number as usize;
        let plain = thread(number);
        let (may, user) = user_stacks[index / 3 % user_stacks.len()].clone();
        all.push(Thread {
            reaction: REACTIONS[index % REACTIONS.len()],
            kernel: kernel_stacks[index / REACTIONS.len() % kernel_stacks.len()].clone(),
            in_critical_region: index % 7 == 3,
            may,
            user,
            ..plain
        });
    }
    all.push(Thread { relation: ThreadRelation::Own, pid: OPENER, ..thread(100) });
    all.push(Thread { in_critical_region: true, ..thread(101) });
    all.push(Thread { relation: ThreadRelation::Idle, pid: 0, tid: 0, ..thread(102) });
    // The id of the process is also the id of a thread of another process.
    all.push(Thread { pid: 4, tid: 1000, may: Err(Missing::System), ..thread(103) });
    all
}

fn kernel_stacks() -> Vec<Result<Vec<u64>, Missing>> {
    let frames = |count: u64| (0..count).map(|frame| 0xffff_f803_0000_0000 + frame * 16);
    let own = |count: u64| (0..count).map(|frame| 0xffff_f805_1000_2000 + frame * 16);
    vec![
        Ok(own(4).chain(frames(20)).collect()),
        // More frames than any answer.
        Ok(own(2).chain(frames(400)).collect()),
        // The walk continues into the program.
        Ok(own(3).chain(frames(5)).chain([0x7ff8_0000_1000, 0x7ff8_0000_2000]).collect()),
        // No unwind data: no frames, or not even those of the capture.
        Ok(Vec::new()),
        Err(Missing::Nothing),
        Ok(frames(3).collect()),
        // Only the frames of the capture, with or without their caller.
        Ok(own(2).chain(frames(1)).collect()),
        Ok(own(2).collect()),
        // A zero in the middle.
        Ok(own(1).chain(frames(4)).chain([0]).chain(frames(4)).collect()),
        // Frames of the capture again, further out.
        Ok(own(2).chain(frames(3)).chain(own(2)).chain(frames(3)).collect()),
    ]
}

/// Whether the user stack may be walked, and the result of the walk.
type UserStack = (Result<(), Missing>, Result<Vec<u64>, Missing>);

fn user_stacks() -> Vec<UserStack> {
    let frames = |count: u64| (0..count).map(|frame| 0x7ff6_0000_0000 + frame * 16);
    vec![
        (Ok(()), Ok(frames(15).collect())),
        (Ok(()), Ok(frames(500).collect())),
        (Err(Missing::System), Err(Missing::System)),
        (Err(Missing::Protected), Ok(frames(5).collect())),
        (Ok(()), Err(Missing::Attached)),
        (Ok(()), Err(Missing::Faulted)),
        (Ok(()), Err(Missing::NotNow)),
        (Ok(()), Ok(Vec::new())),
        // A callback from the kernel.
        (
            Ok(()),
            Ok(frames(4).chain([0xffff_f803_1234_0000, 0xffff_f803_1235_0000]).chain(frames(3)).collect()),
        ),
        // Values that a program can write to its stack: a sentinel, a zero, and a kernel address.
        (Ok(()), Ok(frames(2).chain([Missing::Protected.sentinel()]).chain(frames(2)).collect())),
        (Ok(()), Ok(frames(3).chain([0]).chain(frames(2)).collect())),
        (Ok(()), Ok(frames(1).chain([0xffff_f803_1234_0000]).collect())),
        (Ok(()), Ok(vec![0])),
    ]
}

/// A request of the opener for a thread, with exactly the required output length. After the input,
/// the buffer is not zero, so that writes are visible.
pub fn request(thread: &Thread, change: impl FnOnce(&mut Capture)) -> Call {
    let mut capture = Capture {
        pid: thread.pid,
        tid: thread.tid,
        created: None,
        max_frames: 64,
        flags: Flags::KERNEL.and(Flags::USER),
        timeout_ms: 300,
        id: 0x1122_3344_5566_7788,
        frames_to_skip: 0,
    };
    change(&mut capture);
    let output = 64 + 8 * usize::from(capture.max_frames);
    let mut buffer = zerocopy::IntoBytes::as_bytes(&Request::from(capture)).to_vec();
    let input = buffer.len();
    buffer.resize(output.max(input), 0xa5);
    let caller = Caller { from_user_mode: true, pid: OPENER };
    Call { opener: OPENER, caller, code: 0x22_e004, buffer, input, output }
}
