//! Random requests: valid ones, damaged ones and random bytes, on systems with different settings.
//!
//! The number of requests is 200,000, or the value of `STACKHOUND_KSTACK_REQUESTS`.

use std::thread;
use std::time::Instant;

use stackhound_kstack_core::Caller;
use stackhound_kstack_proto::Flags;

use crate::support::{Call, KINDS, Mock, Random, Settings, check_call, kind, request, threads};

const SYSTEMS: [Settings; 6] = [
    Settings::DRIVER,
    Settings { can_remove: false, ..Settings::DRIVER },
    Settings { reports_created: false, ..Settings::DRIVER },
    Settings { slots: 3, memory: 24, can_remove: false, reports_created: false },
    Settings { slots: 1, memory: 5, can_remove: false, reports_created: true },
    Settings { slots: 5, memory: 100, can_remove: true, reports_created: true },
];

/// A request that is served, unless the device is busy.
fn valid(random: &mut Random, mock: &Mock) -> Call {
    let thread = &mock.threads[random.below(mock.threads.len() as u64) as usize];
    request(thread, |capture| {
        capture.created = match random.below(8) {
            0 | 1 => Some(thread.created),
            2 => Some(1 + random.next() / 2),
            _ => None,
        };
        capture.flags = Flags::from_bits(random.one_of(&[1, 2, 3, 3, 3, 5, 6, 7, 9, 10, 11, 15]))
            .expect("flags that exist");
        let least = u64::from(capture.flags.parts());
        capture.max_frames = match random.below(8) {
            0 => random.one_of(&[2, 3, 255, 256]),
            1 => (least + random.below(257 - least)) as u16,
            _ => (least + random.below(40)) as u16,
        };
        capture.timeout_ms = match random.below(4) {
            0 => random.one_of(&[1, 1000]),
            _ => 1 + random.below(1000) as u32,
        };
        capture.frames_to_skip = match random.below(8) {
            0 => random.below(257) as u16,
            1 | 2 => random.below(12) as u16,
            _ => 0,
        };
        capture.id = random.next();
    })
}

/// A number near a bound of a field or a length.
fn number(random: &mut Random) -> u64 {
    let bound = match random.below(3) {
        0 => random.one_of(&[0, 1, 2, 4, 7, 16, 48, 64, 256, 1000, 2112, 0xffff, 0xffff_ffff, u64::MAX]),
        1 => 1 << random.below(64),
        _ => return random.next(),
    };
    bound.wrapping_add(random.below(3)).wrapping_sub(1)
}

fn damage(random: &mut Random, call: &mut Call) {
    match random.below(8) {
        0 | 1 => {
            let bit = random.below(48 * 8) as usize;
            if let Some(byte) = call.buffer.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        2 | 3 => {
            let (offset, length) = random.one_of(&[
                (0, 4),
                (4, 2),
                (6, 2),
                (8, 4),
                (12, 4),
                (16, 8),
                (24, 2),
                (26, 2),
                (28, 4),
                (32, 8),
                (40, 2),
                (42, 2),
                (44, 4),
            ]);
            let value = number(random).to_le_bytes();
            if let Some(field) = call.buffer.get_mut(offset..offset + length) {
                field.copy_from_slice(&value[..length]);
            }
        }
        4 => {
            let length = |random: &mut Random, length: usize| match random.below(3) {
                0 => length.min(4096),
                1 => (length.min(4096) + 2).saturating_sub(random.below(5) as usize),
                _ => random.below(400) as usize,
            };
            (call.input, call.output) = (length(random, call.input), length(random, call.output));
            call.buffer.resize(call.input.max(call.output), 0xa5);
        }
        5 => {
            call.code = match random.below(4) {
                0 => random.next() as u32,
                1 => 0x22_e000 ^ 1 << random.below(32),
                _ => 0x22_e000,
            };
            call.input = random.one_of(&[0, 0, 0, 1, 48]);
        }
        6 => {
            let pid = if random.below(2) == 0 { call.opener } else { number(random) as u32 };
            call.caller = Caller { from_user_mode: random.below(4) != 0, pid };
        }
        // Lengths that exceed the buffer.
        _ => match random.below(3) {
            0 => call.input = number(random) as usize,
            1 => call.output = number(random) as usize,
            _ => call.buffer.truncate(random.below(call.buffer.len() as u64 + 1) as usize),
        },
    }
}

fn any(random: &mut Random, mock: &Mock) -> Call {
    let mut call = valid(random, mock);
    match random.below(16) {
        0 => {
            (call.input, call.output) = (random.below(100) as usize, random.below(300) as usize);
            call.buffer.clear();
            call.buffer.resize_with(call.input.max(call.output), || random.next() as u8);
        }
        1..=7 => {}
        8..=13 => damage(random, &mut call),
        _ => (0..4).for_each(|_| damage(random, &mut call)),
    }
    call
}

/// Makes `count` requests, and counts the kinds of results.
fn run(seed: u64, count: u64) -> [u64; KINDS.len()] {
    let mut random = Random(seed);
    let mocks = SYSTEMS.map(|settings| Mock::new(settings, threads()));
    let mut seen = [0; KINDS.len()];
    for _ in 0..count {
        let mock = &mocks[random.below(mocks.len() as u64) as usize];
        let call = any(&mut random, mock);
        seen[kind(&check_call(mock, &call))] += 1;
        let outstanding = mock.outstanding() as u64;
        if outstanding > 0 && random.below(4) == 0 {
            mock.end_one(random.below(outstanding) as usize);
            mock.check();
        }
    }
    for mock in &mocks {
        while mock.outstanding() > 0 {
            mock.end_one(0);
        }
        mock.check();
    }
    seen
}

#[test]
fn random_requests_are_served_or_refused_as_documented() {
    let count =
        std::env::var("STACKHOUND_KSTACK_REQUESTS").map_or(200_000, |text| text.parse().expect("a number"));
    let workers = thread::available_parallelism().map_or(1, |workers| workers.get() as u64);
    let start = Instant::now();
    let seen = thread::scope(|scope| {
        let share = |worker: u64| count / workers + u64::from(worker < count % workers);
        let running: Vec<_> =
            (0..workers).map(|worker| scope.spawn(move || run(worker, share(worker)))).collect();
        running.into_iter().map(|one| one.join().expect("a worker that ends")).fold(
            [0; KINDS.len()],
            |mut sum, seen| {
                sum.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
                sum
            },
        )
    });
    println!("{count} requests in {:.1} s", start.elapsed().as_secs_f64());
    for (kind, seen) in KINDS.iter().zip(seen) {
        println!("{seen:>9} {kind}");
    }
    assert_eq!(seen.iter().sum::<u64>(), count);
    assert!(count < 100_000 || seen.iter().all(|seen| *seen > count / 1000), "some kind of result was rare");
}
