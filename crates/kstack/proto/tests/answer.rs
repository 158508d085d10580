//! Valid answers are parsed; all others are refused.

use proptest::prelude::*;
use stackhound_kstack_proto::{
    Answer, AnswerError, AnswerHeader, Capture, Flags, MAX_FRAMES, Missing, Outcome, hash,
};
use zerocopy::IntoBytes;

const KERNEL: [u64; 3] = [0xffff_f803_1111_0000, 0xffff_f803_2222_0000, 0xffff_f803_3333_0000];
const USER: [u64; 2] = [0x7ff8_1111_0000, 0x7ff8_2222_0000];

fn capture() -> Capture {
    Capture {
        pid: 0x1234,
        tid: 0x5678,
        created: None,
        max_frames: 8,
        flags: Flags::KERNEL.and(Flags::USER),
        timeout_ms: 300,
        id: 0x0123_4567_89ab_cdef,
        frames_to_skip: 3,
    }
}

fn header(capture: &Capture, outcome: Outcome) -> AnswerHeader {
    let created =
        if outcome == Outcome::NoThread { 0 } else { capture.created.unwrap_or(0x01db_0000_0000_0001) };
    AnswerHeader { created: created.into(), waited: 70_000.into(), ..AnswerHeader::new(capture, outcome) }
}

/// A valid answer.
fn answer(capture: &Capture, kernel: &[u64], user: &[u64]) -> Vec<u8> {
    let entries = kernel.iter().chain(user).copied();
    let header = AnswerHeader {
        kernel_count: (kernel.len() as u16).into(),
        user_count: (user.len() as u16).into(),
        hash: hash(entries.clone()).into(),
        ..header(capture, Outcome::Captured)
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(entries.flat_map(u64::to_le_bytes));
    bytes
}

/// The answer with some of its bytes replaced.
fn with(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut changed = answer(&capture(), &KERNEL, &USER);
    changed[offset..offset + bytes.len()].copy_from_slice(bytes);
    changed
}

#[test]
fn kernel_and_user_stacks_are_separated() {
    let bytes = answer(&capture(), &KERNEL, &USER);
    let answer = Answer::parse(&bytes, &capture()).expect("an answer");
    assert_eq!(answer.outcome(), Outcome::Captured);
    assert_eq!(answer.kernel().expect("frames").collect::<Vec<_>>(), KERNEL);
    assert_eq!(answer.user().expect("frames").collect::<Vec<_>>(), USER);
    assert_eq!((answer.header().waited.get(), answer.header().id.get()), (70_000, 0x0123_4567_89ab_cdef));
}

#[test]
fn a_missing_stack_has_a_reason() {
    for missing in Missing::ALL {
        let bytes = answer(&capture(), &KERNEL, &[missing.sentinel()]);
        let parsed = Answer::parse(&bytes, &capture()).expect("an answer");
        assert_eq!(parsed.user().err(), Some(missing));
        assert_eq!(parsed.kernel().map(|frames| frames.len()), Ok(3));
        let bytes = answer(&capture(), &[missing.sentinel()], &USER);
        let parsed = Answer::parse(&bytes, &capture()).expect("an answer");
        assert_eq!(parsed.kernel().err(), Some(missing));
        assert_eq!(parsed.user().map(|frames| frames.len()), Ok(2));
    }
}

#[test]
fn outcomes_without_frames_are_answers() {
    for outcome in Outcome::ALL {
        let header = header(&capture(), outcome);
        let parsed = Answer::parse(header.as_bytes(), &capture());
        if outcome == Outcome::Captured {
            assert_eq!(parsed.err(), Some(AnswerError::Value), "captured, but without any stack");
        } else {
            let parsed = parsed.expect("an answer");
            assert_eq!(parsed.outcome(), outcome);
            assert_eq!(parsed.kernel().map(|frames| frames.len()), Ok(0));
            assert_eq!(parsed.user().map(|frames| frames.len()), Ok(0));
        }
    }
}

#[test]
fn every_other_length_is_refused() {
    let bytes = answer(&capture(), &KERNEL, &USER);
    for length in 0..bytes.len() {
        let error = Answer::parse(&bytes[..length], &capture()).err();
        assert_eq!(error, Some(AnswerError::Length(length)));
    }
    for more in 1..=16 {
        let longer = [&bytes[..], &vec![0; more]].concat();
        assert_eq!(Answer::parse(&longer, &capture()).err(), Some(AnswerError::Length(longer.len())));
    }
}

/// Counts that exceed the present entries, the request, or the maximum.
#[test]
fn too_many_entries_are_refused() {
    let small = capture();
    let large = Capture { max_frames: MAX_FRAMES, ..small };
    let length = Some(AnswerError::Length(answer(&small, &KERNEL, &USER).len()));
    for (kernel, user, of_small, of_large) in [
        (4u16, 2u16, length, length),
        (3, 3, length, length),
        (6, 2, length, length),
        (6, 3, Some(AnswerError::Value), length),
        (254, 2, Some(AnswerError::Value), length),
        (255, 2, Some(AnswerError::Value), Some(AnswerError::Value)),
        (u16::MAX, 6, Some(AnswerError::Value), Some(AnswerError::Value)),
        (u16::MAX, u16::MAX, Some(AnswerError::Value), Some(AnswerError::Value)),
    ] {
        let bytes = with(36, &[kernel.to_le_bytes(), user.to_le_bytes()].concat());
        assert_eq!(Answer::parse(&bytes, &small).err(), of_small, "{kernel} and {user}");
        assert_eq!(Answer::parse(&bytes, &large).err(), of_large, "{kernel} and {user}");
    }
    // All entries are present, but more than requested.
    let bytes = answer(&small, &[KERNEL[0]; 7], &USER);
    assert_eq!(Answer::parse(&bytes, &small).err(), Some(AnswerError::Value));
    assert!(Answer::parse(&bytes, &large).is_ok());
}

#[test]
fn each_kind_of_damage_has_its_error() {
    for (bytes, error) in [
        (with(0, b"SHKT"), AnswerError::Layout),
        (with(4, &[1, 0]), AnswerError::Layout),
        (with(6, &[48, 0]), AnswerError::Layout),
        (with(8, &[0]), AnswerError::Other),
        (with(12, &[0]), AnswerError::Other),
        (with(24, &[0]), AnswerError::Other),
        (with(32, &[5]), AnswerError::Value),
        (with(32, &[0, 0, 0, 1]), AnswerError::Value),
        // Frames with an outcome without frames.
        (with(32, &[3]), AnswerError::Value),
        // Counts that match the length, but not the request.
        (with(36, &[5, 0, 0, 0]), AnswerError::Value),
        (with(36, &[0, 0, 5, 0]), AnswerError::Value),
        (with(40, &[8]), AnswerError::Value),
        (with(44, &[4]), AnswerError::Value),
        (with(46, &[1]), AnswerError::Value),
        (with(48, &[0]), AnswerError::Hash),
        (with(64, &[1]), AnswerError::Hash),
        (answer(&capture(), &KERNEL, &[]), AnswerError::Value),
        (answer(&capture(), &[], &USER), AnswerError::Value),
    ] {
        assert_eq!(Answer::parse(&bytes, &capture()).err(), Some(error));
    }
    let texts = [
        AnswerError::Length(3),
        AnswerError::Layout,
        AnswerError::Value,
        AnswerError::Other,
        AnswerError::Hash,
    ]
    .map(|error| error.to_string());
    assert!(texts.iter().enumerate().all(|(number, text)| !texts[..number].contains(text)));
}

#[test]
fn an_answer_fits_its_request_only() {
    let bytes = answer(&capture(), &KERNEL, &USER);
    let kernel = Capture { flags: Flags::KERNEL, ..capture() };
    let user = Capture { flags: Flags::USER, ..capture() };
    let created_at = |time| Capture { created: Some(time), ..capture() };
    for (other, error) in [
        (Capture { pid: 1, ..capture() }, AnswerError::Other),
        (Capture { tid: 1, ..capture() }, AnswerError::Other),
        (Capture { id: 1, ..capture() }, AnswerError::Other),
        (Capture { max_frames: 4, ..capture() }, AnswerError::Value),
        (kernel, AnswerError::Value),
        (user, AnswerError::Value),
        (created_at(1), AnswerError::Value),
    ] {
        assert_eq!(Answer::parse(&bytes, &other).err(), Some(error), "{other:?}");
    }
    assert!(Answer::parse(&bytes, &created_at(0x01db_0000_0000_0001)).is_ok());
    // A thread that was not found has no creation time.
    let gone = AnswerHeader { created: 1.into(), ..header(&capture(), Outcome::NoThread) };
    assert_eq!(Answer::parse(gone.as_bytes(), &capture()).err(), Some(AnswerError::Value));
    // Fields of the kernel stack must be clear without it.
    let only_user = answer(&user, &[], &USER);
    assert!(Answer::parse(&only_user, &user).is_ok());
    for (offset, byte) in [(40, 2), (42, 1), (44, 1)] {
        let mut changed = only_user.clone();
        changed[offset] = byte;
        assert_eq!(Answer::parse(&changed, &user).err(), Some(AnswerError::Value), "at {offset}");
    }
    let keeps = Capture { flags: Flags::KERNEL.and(Flags::KEEP_MACHINERY), ..capture() };
    let mut bytes = answer(&keeps, &KERNEL, &[]);
    assert!(Answer::parse(&bytes, &keeps).is_ok());
    bytes[42] = 1;
    assert_eq!(Answer::parse(&bytes, &keeps).err(), Some(AnswerError::Value));
}

/// The bits of an answer that can be flipped undetected are exactly those that the page lists, and
/// none of them changes a frame.
#[test]
fn only_the_documented_bits_can_be_flipped_undetected() {
    /// Bits of the bytes from an offset on.
    fn bits(offset: usize, bits: impl IntoIterator<Item = usize>) -> Vec<usize> {
        bits.into_iter().map(|bit| offset * 8 + bit).collect()
    }
    let (created, machinery, waited) = (bits(16, 0..64), bits(42, 0..16), bits(56, 0..64));
    let both = capture();
    let named = Capture { created: Some(0x01db_0000_0000_0001), ..both };
    let kernel = Capture { flags: Flags::KERNEL, frames_to_skip: 256, ..both };
    let user = Capture { flags: Flags::USER, ..both };
    let keeps = Capture { flags: Flags::KERNEL.and(Flags::KEEP_MACHINERY), frames_to_skip: 0, ..both };
    let skip_to_3 = bits(44, 0..2);
    let cases = [
        (
            both,
            answer(&both, &KERNEL, &USER),
            [&created[..], &bits(40, 0..3), &machinery, &skip_to_3, &waited],
        ),
        (named, answer(&named, &KERNEL, &USER), [&[], &bits(40, 0..3)[..], &machinery, &skip_to_3, &waited]),
        (
            kernel,
            answer(&kernel, &KERNEL, &[]),
            [&created, &bits(40, 0..2), &machinery, &bits(44, 0..9), &waited],
        ),
        (keeps, answer(&keeps, &KERNEL, &[]), [&created, &bits(40, 0..2), &[], &[], &waited]),
        (user, answer(&user, &[], &USER), [&created, &bits(40, [0, 2]), &[], &[], &waited]),
        // No thread (1) and timed out (3) differ in one bit, and so do terminating (2) and timed
        // out.
        (
            both,
            header(&both, Outcome::NoThread).as_bytes().to_vec(),
            [&[], &bits(32, [1]), &[], &[], &waited],
        ),
        (
            both,
            header(&both, Outcome::Terminating).as_bytes().to_vec(),
            [&created, &bits(32, [0]), &[], &[], &waited],
        ),
        (
            both,
            header(&both, Outcome::TimedOut).as_bytes().to_vec(),
            [&created, &bits(32, [0]), &[], &[], &waited],
        ),
        (both, header(&both, Outcome::Idle).as_bytes().to_vec(), [&created, &[], &[], &[], &waited]),
    ];
    for (number, (capture, bytes, undetected)) in cases.iter().enumerate() {
        let whole = Answer::parse(bytes, capture).expect("an answer");
        let frames = |answer: &Answer<'_>| {
            let kernel = answer.kernel().map(|frames| frames.collect::<Vec<_>>());
            (kernel, answer.user().map(|frames| frames.collect::<Vec<_>>()))
        };
        let accepted: Vec<usize> = (0..bytes.len() * 8)
            .filter(|bit| {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let parsed = Answer::parse(&changed, capture);
                parsed.is_ok_and(|parsed| {
                    assert_eq!(frames(&parsed), frames(&whole));
                    true
                })
            })
            .collect();
        assert_eq!(accepted, undetected.concat(), "case {number}");
    }
}

proptest! {
    #[test]
    fn an_answer_is_parsed_from_its_bytes(
        kernel in prop::collection::vec(any::<u64>(), 2..128),
        user in prop::collection::vec(any::<u64>(), 2..128),
    ) {
        let large = Capture { max_frames: MAX_FRAMES, ..capture() };
        let bytes = answer(&large, &kernel, &user);
        let answer = Answer::parse(&bytes, &large).expect("an answer");
        prop_assert_eq!(answer.kernel().expect("frames").collect::<Vec<_>>(), kernel);
        prop_assert_eq!(answer.user().expect("frames").collect::<Vec<_>>(), user);
    }

    /// Any bytes are refused, or their values are within the bounds.
    #[test]
    fn any_bytes_can_be_parsed(
        changes in prop::collection::vec((0..104usize, any::<u8>()), 0..4),
        length in 0..120usize,
        cut: bool,
    ) {
        let mut bytes = answer(&capture(), &KERNEL, &USER);
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        if cut {
            bytes.resize(length, 0);
        }
        if let Ok(answer) = Answer::parse(&bytes, &capture()) {
            let count = |stack: Result<usize, Missing>| stack.unwrap_or(1);
            let kernel = count(answer.kernel().map(|frames| frames.len()));
            let user = count(answer.user().map(|frames| frames.len()));
            prop_assert_eq!(bytes.len(), AnswerHeader::length_with(kernel + user));
            prop_assert!(kernel + user <= 8);
        }
    }
}
