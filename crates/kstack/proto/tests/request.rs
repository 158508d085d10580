//! Valid requests are parsed; others are refused with an error.

use proptest::prelude::*;
use stackhound_kstack_proto::{Capture, Flags, Request, RequestError};
use zerocopy::IntoBytes;

fn capture() -> Capture {
    Capture {
        pid: 4,
        tid: 8,
        created: None,
        max_frames: 100,
        flags: Flags::KERNEL,
        timeout_ms: 300,
        id: 1,
        frames_to_skip: 0,
    }
}

fn parse(capture: Capture, offset: usize, bytes: &[u8]) -> Result<Capture, RequestError> {
    let mut request = Request::from(capture).as_bytes().to_vec();
    request[offset..offset + bytes.len()].copy_from_slice(bytes);
    Request::parse(&request)
}

#[test]
fn each_field_has_the_documented_bounds() {
    let with_u16 =
        |offset: usize| move |number: u32| parse(capture(), offset, &(number as u16).to_le_bytes());
    let with_u32 = |offset: usize| move |number: u32| parse(capture(), offset, &number.to_le_bytes());
    let magic: u32 = 0x534b_4853;
    for number in [magic - 1, magic + 1, 0, magic.swap_bytes()] {
        assert_eq!(with_u32(0)(number), Err(RequestError::Magic(number)));
    }
    for number in [0, 1, 3, 0xffff] {
        assert_eq!(with_u16(4)(number), Err(RequestError::Version(number as u16)));
    }
    for number in [0, 47, 49, 64, 0xffff] {
        assert_eq!(with_u16(6)(number), Err(RequestError::Size(number as u16)));
    }
    for number in [0, 257, 0x8000, 0xffff] {
        assert_eq!(with_u16(24)(number), Err(RequestError::Frames(number as u16)));
    }
    for number in [0, 4, 8, 12, 16, 17, 0x8001, 0xffff] {
        assert_eq!(with_u16(26)(number), Err(RequestError::Flags(number as u16)));
    }
    for number in [0, 1001, 0x8000_0001, u32::MAX] {
        assert_eq!(with_u32(28)(number), Err(RequestError::Timeout(number)));
    }
    for number in [257, 0xffff] {
        assert_eq!(with_u16(40)(number), Err(RequestError::Skip(number as u16)));
    }
    for byte in 42..48 {
        assert_eq!(parse(capture(), byte, &[1]), Err(RequestError::Reserved));
    }
    for (offset, numbers) in [(24, [1, 256]), (26, [1, 2]), (26, [3, 5]), (26, [6, 7]), (40, [0, 256])] {
        assert!(
            numbers.into_iter().all(|number| with_u16(offset)(number).is_ok()),
            "at {offset}: {numbers:?}"
        );
    }
    assert!([1, 1000].into_iter().all(|number| with_u32(28)(number).is_ok()));
}

#[test]
fn each_requested_stack_needs_one_entry() {
    for (flags, least) in [(1, 1), (2, 1), (5, 1), (6, 1), (9, 1), (14, 1), (3, 2), (7, 2), (11, 2), (15, 2)]
    {
        let flags = Flags::from_bits(flags).expect("flags that exist");
        let with = |max_frames| Request::from(Capture { flags, max_frames, ..capture() });
        assert!(Request::parse(with(least).as_bytes()).is_ok());
        let error = RequestError::Frames(least - 1);
        assert_eq!(Request::parse(with(least - 1).as_bytes()), Err(error));
    }
}

#[test]
fn the_first_error_is_reported() {
    let mut bytes = [0xff; 49];
    let mut wrong = Vec::new();
    let steps: [(usize, &[u8]); 8] = [
        (0, b"SHKS"),
        (4, &[2, 0]),
        (6, &[48, 0]),
        (26, &[1, 0]),
        (24, &[1, 0]),
        (28, &[1, 0, 0, 0]),
        (40, &[0, 0]),
        (42, &[0; 6]),
    ];
    assert_eq!(Request::parse(&bytes), Err(RequestError::Length(49)));
    for (offset, right) in steps {
        wrong.push(Request::parse(&bytes[..48]).expect_err("still wrong"));
        bytes[offset..offset + right.len()].copy_from_slice(right);
    }
    let expected = [
        RequestError::Magic(u32::MAX),
        RequestError::Version(u16::MAX),
        RequestError::Size(u16::MAX),
        RequestError::Flags(u16::MAX),
        RequestError::Frames(u16::MAX),
        RequestError::Timeout(u32::MAX),
        RequestError::Skip(u16::MAX),
        RequestError::Reserved,
    ];
    assert_eq!(wrong, expected);
    assert!(Request::parse(&bytes[..48]).is_ok());
    // Each error has its own text, in one line.
    let texts: std::collections::BTreeSet<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), expected.len());
    assert!(texts.iter().all(|text| !text.is_empty() && !text.contains('\n')));
}

fn captures() -> impl Strategy<Value = Capture> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
    let bounded = (1..=256u16, 1..=15u16, 1..=1000u32, 0..=256u16);
    (numbers, bounded).prop_filter_map(
        "requests no stack, or more stacks than entries",
        |((pid, tid, created, id), (max_frames, flags, timeout_ms, frames_to_skip))| {
            let flags = Flags::from_bits(flags)?;
            let created = Some(created).filter(|&created| created != 0);
            let capture = Capture { pid, tid, created, max_frames, flags, timeout_ms, id, frames_to_skip };
            (flags.parts() > 0 && max_frames >= flags.parts()).then_some(capture)
        },
    )
}

proptest! {
    #[test]
    fn a_capture_is_parsed_from_its_bytes(capture in captures()) {
        prop_assert_eq!(Request::parse(Request::from(capture).as_bytes()), Ok(capture));
    }

    /// Each request has one encoding: accepted bytes are those that would have been sent.
    #[test]
    fn accepted_bytes_are_encoded_as_before(
        capture in captures(),
        changes in prop::collection::vec((0..48usize, any::<u8>()), 0..3),
    ) {
        let mut bytes = Request::from(capture).as_bytes().to_vec();
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        if let Ok(capture) = Request::parse(&bytes) {
            let request = Request::from(capture);
            prop_assert_eq!(request.as_bytes(), &bytes);
        }
    }

    #[test]
    fn other_lengths_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        capture in captures(),
    ) {
        let mut longer = Request::from(capture).as_bytes().to_vec();
        longer.extend(&bytes);
        let shorter = &longer[..bytes.len().min(47)];
        prop_assert_eq!(Request::parse(shorter), Err(RequestError::Length(shorter.len())));
        if !bytes.is_empty() {
            prop_assert_eq!(Request::parse(&longer), Err(RequestError::Length(longer.len())));
        }
    }
}
