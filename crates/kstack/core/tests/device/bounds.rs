//! Every length, every flag and every bound. The oracle checks each result; these tests count the
//! kinds of results.

use std::collections::BTreeMap;

use stackhound_kstack_core::Refusal;

use crate::support::{Call, KINDS, Mock, Settings, check_call, kind, request, thread, threads};

/// The number of calls with each kind of result.
#[derive(Default)]
struct Outcomes(BTreeMap<&'static str, u32>);

impl Outcomes {
    fn check_call(&mut self, mock: &Mock, call: &Call) {
        *self.0.entry(KINDS[kind(&check_call(mock, call))]).or_default() += 1;
    }
}

fn one_thread() -> Mock {
    Mock::new(Settings::DRIVER, vec![thread(1)])
}

#[test]
fn every_length_of_input_and_output() {
    let mock = one_thread();
    for (code, max_frames) in [(0x22_e000, 2), (0x22_e004, 2), (0x22_e004, 3), (0x22_e004, 30)] {
        let mut seen = Outcomes::default();
        let mut call = request(&mock.threads[0], |capture| capture.max_frames = max_frames);
        call.code = code;
        let request = call.buffer[..48].to_vec();
        for input in 0..=64 {
            for output in 0..=400 {
                call.buffer.resize(input.max(output), 0xa5);
                call.buffer.fill(0xa5);
                let length = request.len().min(input).min(call.buffer.len());
                call.buffer[..length].copy_from_slice(&request[..length]);
                (call.input, call.output) = (input, output);
                seen.check_call(&mock, &call);
            }
        }
        let served = if code == 0x22_e000 { "version" } else { "captured, cut" };
        let space = if code == 0x22_e000 { 16 } else { 64 + 8 * u32::from(max_frames) };
        let served = if max_frames == 30 { "captured, other" } else { served };
        let expected = [("buffer too small", space), ("invalid parameter", 64 * 401), (served, 401 - space)];
        assert_eq!(seen.0, BTreeMap::from(expected), "{code:#x}, {max_frames} frames");
    }
}

#[test]
fn the_longest_answer_needs_its_whole_length() {
    let mock = Mock::new(Settings::DRIVER, threads());
    let long = mock.threads.iter().find(|thread| thread.kernel.as_ref().is_ok_and(|stack| stack.len() > 256));
    let mut call = request(long.expect("a deep stack"), |capture| capture.max_frames = 256);
    for output in [0, 1, 47, 48, 63, 64, 2111, 2112, 2113, 4096, 1 << 16] {
        call.buffer.resize(output.max(48), 0xa5);
        call.output = output;
        let verdict = check_call(&mock, &call);
        let length = verdict.map(|bytes| bytes.len());
        assert_eq!(length, if output < 2112 { Err(Refusal::BufferTooSmall) } else { Ok(2112) }, "{output}");
    }
}

/// Lengths that exceed the buffer. The system never passes such lengths; if it did, the request
/// would be refused.
#[test]
fn lengths_beyond_the_buffer() {
    let mock = one_thread();
    let valid = request(&mock.threads[0], |_| {});
    let lengths = [0, 1, 16, 47, 48, 49, 575, 576, 577, usize::MAX / 8, usize::MAX - 1, usize::MAX];
    for code in [0x22_e000, 0x22_e004] {
        for length in [0, 1, 15, 16, 47, 48, 49, 575, 576, 577] {
            for (input, output) in lengths.iter().flat_map(|input| lengths.map(|output| (*input, output))) {
                let mut call = Call { code, input, output, ..valid.clone() };
                call.buffer.resize(length, 0xa5);
                check_call(&mock, &call).ok();
            }
        }
    }
}

#[test]
fn every_combination_of_flags() {
    let mock = Mock::new(Settings::DRIVER, threads());
    for max_frames in [1, 2, 64] {
        let mut seen = Outcomes::default();
        let mut call = request(&mock.threads[1], |capture| capture.max_frames = max_frames);
        for flags in 0..=u16::MAX {
            call.buffer[26..28].copy_from_slice(&flags.to_le_bytes());
            seen.check_call(&mock, &call);
        }
        let served = if max_frames == 1 { 8 } else { 12 };
        assert_eq!(seen.0["invalid parameter"], 65_536 - served);
        assert_eq!(seen.0.values().sum::<u32>(), 65_536);
    }
}

#[test]
fn every_value_of_each_small_field() {
    let mock = one_thread();
    for (offset, served) in [(4, 1), (6, 1), (24, 255), (40, 257), (42, 1), (44, 1), (46, 1)] {
        let mut seen = Outcomes::default();
        let mut call = request(&mock.threads[0], |_| {});
        call.buffer.resize(64 + 8 * 256, 0xa5);
        call.output = call.buffer.len();
        for value in 0..=u16::MAX {
            call.buffer[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
            seen.check_call(&mock, &call);
        }
        assert_eq!(seen.0["invalid parameter"], 65_536 - served, "at {offset}");
    }
}

#[test]
fn the_bounds_of_each_large_field() {
    let mock = one_thread();
    let valid = request(&mock.threads[0], |_| {});
    let created = mock.threads[0].created;
    let near = |number: u64| [number.wrapping_sub(1), number, number.wrapping_add(1)];
    let powers = (0..64).map(|bit| 1 << bit);
    let bounds =
        powers.chain([0, 1000, 0x534b_4853, 0x5348_4b53, u64::from(u32::MAX), created, 1000 << 32 | 1]);
    let values: Vec<u64> = bounds.flat_map(near).collect();
    // Offset, length in bytes, and the number of values that are served: any process, thread,
    // creation time and id is valid.
    for (offset, length, served) in [(0, 4, None), (8, 4, Some(values.len())), (12, 4, Some(values.len()))]
        .into_iter()
        .chain([(16, 8, Some(values.len())), (28, 4, None), (32, 8, Some(values.len()))])
    {
        let mut refused = 0;
        for value in &values {
            let mut call = valid.clone();
            call.buffer[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
            refused += usize::from(check_call(&mock, &call) == Err(Refusal::InvalidParameter));
        }
        match served {
            Some(served) => assert_eq!(refused, values.len() - served, "at {offset}"),
            None => assert!(refused > 100 && refused < values.len(), "at {offset}: {refused}"),
        }
    }
}
