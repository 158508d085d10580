//! Requests to the device for kernel stacks, and its responses.

use stackhound_kstack_core::Caller;
use stackhound_kstack_proto::{Answer, Missing, Outcome, Request};

use self::device::oracle::expected;
use self::device::{Call, Mock, Settings, check_call, request, threads};

/// The simulated system of the device's own tests, with the rules for its answers.
#[path = "../../kstack/core/tests/device/support/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
#[allow(unused_imports, reason = "the tests use more of it")]
mod device;

const REQUEST: usize = 48;
const HEADER: usize = 64;
const ROOM: usize = 4096;

/// Interprets the bytes as a sequence of requests to a device, and checks each answer. Earlier
/// requests may still be pending.
///
/// The first byte selects the system. Each request begins with a byte for the caller and the code,
/// see `call`; then come lengths, if that byte has them, and the input.
pub fn kstack_request(bytes: &[u8]) {
    let mut rest = bytes;
    let Some(choice) = take(&mut rest, 1).first().copied() else { return };
    let mock = Mock::new(
        Settings {
            slots: [64, 3, 1, 5][usize::from(choice & 3)],
            memory: [272, 24, 5, 100][usize::from(choice >> 2 & 3)],
            can_remove: choice & 16 != 0,
            reports_created: choice & 32 != 0,
        },
        threads(),
    );
    while !rest.is_empty() {
        let (call, endings) = call(&mut rest);
        check_call(&mock, &call).ok();
        for _ in 0..endings.min(mock.outstanding()) {
            mock.end_one(0);
            mock.check();
        }
    }
    while mock.outstanding() > 0 {
        mock.end_one(mock.outstanding() - 1);
    }
    mock.check();
}

/// Reads a call, and the number of pending captures that end after it.
///
/// Bits of the first byte: 0 and 1 select the code (capture, version, or four bytes that follow);
/// 2: the call comes from the kernel; 3: it comes from another process; 4: the lengths of input,
/// output and buffer follow; 5 and 6: number of captures that end.
fn call(rest: &mut &[u8]) -> (Call, usize) {
    let choice = number(rest, 1);
    let code = match choice & 3 {
        0 | 1 => 0x22_e004,
        2 => 0x22_e000,
        _ => number(rest, 4) as u32,
    };
    let lengths = (choice & 16 != 0).then(|| [(); 3].map(|()| number(rest, 2) as usize));
    let input = match (lengths, choice & 3) {
        (Some(lengths), _) => lengths[0] % 100,
        (None, 2) => 0,
        _ => REQUEST,
    };
    let mut buffer = take(rest, input).to_vec();
    buffer.resize(input, 0);
    let max_frames = buffer.get(24..26).map_or(0, |bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
    let output = lengths.map_or((HEADER + 8 * max_frames).min(ROOM), |lengths| lengths[1] % ROOM);
    buffer.resize(lengths.map_or(input.max(output), |lengths| lengths[2] % ROOM), 0xa5);
    let caller = Caller { from_user_mode: choice & 4 == 0, pid: device::OPENER + u32::from(choice & 8 != 0) };
    (Call { opener: device::OPENER, caller, code, buffer, input, output }, (choice >> 5 & 3) as usize)
}

fn take<'bytes>(rest: &mut &'bytes [u8], length: usize) -> &'bytes [u8] {
    let (taken, remaining) = rest.split_at(length.min(rest.len()));
    *rest = remaining;
    taken
}

fn number(rest: &mut &[u8], length: usize) -> u64 {
    take(rest, length).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Interprets the first 48 bytes as a request, and the others as its answer.
pub fn kstack_answer(bytes: &[u8]) {
    let (request, bytes) = bytes.split_at(bytes.len().min(REQUEST));
    let Ok(capture) = Request::parse(request) else { return };
    assert!(capture.max_frames >= capture.flags.parts() && capture.max_frames <= 256);
    assert!(capture.timeout_ms - 1 < 1000 && capture.frames_to_skip <= 256);
    let answer = match Answer::parse(bytes, &capture) {
        Ok(answer) => answer,
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            return;
        }
    };
    // Every entry belongs to the kernel stack or to the user stack, in this order.
    let entries: Vec<u64> = bytes[HEADER..].chunks(8).map(|mut entry| number(&mut entry, 8)).collect();
    assert!(entries.len() <= usize::from(capture.max_frames));
    let of = |part: Result<Vec<u64>, Missing>| part.unwrap_or_else(|missing| vec![missing.sentinel()]);
    let kernel = of(answer.kernel().map(Iterator::collect));
    let user = of(answer.user().map(Iterator::collect));
    assert_eq!([&kernel[..], &user[..]].concat(), entries);
    let parts = usize::from(!kernel.is_empty()) + usize::from(!user.is_empty());
    let requested = if answer.outcome() == Outcome::Captured { capture.flags.parts() } else { 0 };
    assert_eq!(parts, usize::from(requested));
}

fn requests() -> Vec<Call> {
    let of_thread = |number: usize| request(&threads()[number], |capture| capture.max_frames = 10);
    (0..67).step_by(3).map(of_thread).collect()
}

/// Calls of each kind, and sequences of calls.
pub(crate) fn calls() -> Vec<Vec<u8>> {
    let captures: Vec<Vec<u8>> =
        requests().iter().map(|call| [&[0x20], &call.buffer[..REQUEST]].concat()).collect();
    let with_lengths = [&[0x10, 48, 0, 144, 0, 144, 0], &captures[0][1..]].concat();
    let other_code = [&[3, 4, 0xe0, 0x22, 0], &captures[1][1..]].concat();
    let mut seeds: Vec<Vec<u8>> = (0..64)
        .step_by(7)
        .map(|system| [&[system][..], &captures.concat(), &[2], &captures[..9].concat()].concat())
        .collect();
    seeds.extend(captures.iter().map(|capture| [&[0x20][..], capture, capture].concat()));
    seeds.extend([vec![0, 2, 2 | 4, 2 | 8], [&[0][..], &with_lengths, &other_code].concat()]);
    seeds
}

/// Requests with valid answers.
pub(crate) fn answers() -> Vec<Vec<u8>> {
    let mock = Mock::new(Settings::DRIVER, threads());
    let answer =
        |call: &Call| [call.buffer[..REQUEST].to_vec(), expected(&mock, call).expect("served")].concat();
    requests().iter().map(answer).collect()
}
