use proptest::prelude::*;

use super::*;

/// Four flag bytes from the flags in reading order: `0` is a literal, `1` a match; the rest are
/// ones.
fn flags(elements: &str) -> [u8; 4] {
    let mut word = u32::MAX;
    for (at, element) in elements.bytes().enumerate() {
        if element == b'0' {
            word &= !(0x8000_0000 >> at);
        }
    }
    word.to_le_bytes()
}

#[track_caller]
fn check(elements: &str, rest: &[u8], expected: &[u8]) {
    let input = [&flags(elements), rest].concat();
    let mut output = vec![0xee; expected.len()];
    assert_eq!(decompress(&input, &mut output), Ok(()));
    assert_eq!(output, expected);
    oracle::decompress(&input, &mut output).unwrap();
    assert_eq!(output, expected);
}

#[test]
fn every_element_is_expanded() {
    check("", b"", b"");
    // The two examples of MS-XCA.
    check("00000000000000000000000000", b"abcdefghijklmnopqrstuvwxyz", b"abcdefghijklmnopqrstuvwxyz");
    check("0001", b"abc\x17\x00\x0f\xff\x26\x01", "abc".repeat(100).as_bytes());
    // Lengths of three bits, from the minimum to the maximum.
    check("0001", b"abc\x10\x00", b"abcabc");
    check("0001", b"abc\x16\x00", b"abcabcabcabc");
    // Two lengths share a byte, low nibble first. Other elements may be between them.
    check("01001", b"a\x07\x00\x21bc\x0f\x00", &[b"a".repeat(12), b"bc".repeat(7)].concat());
    // The minimum and the maximum length of the nibble, the byte and the 16-bit form.
    check("01", b"a\x07\x00\x00", &b"a".repeat(11));
    check("01", b"a\x07\x00\x0e", &b"a".repeat(25));
    check("01", b"a\x07\x00\x0f\x00", &b"a".repeat(26));
    check("01", b"a\x07\x00\x0f\xfe", &b"a".repeat(280));
    check("01", b"a\x07\x00\x0f\xff\x16\x00", &b"a".repeat(26));
    check("01", b"a\x07\x00\x0f\xff\xff\xff", &b"a".repeat(65_539));
    // The 32-bit form follows a zero.
    check("01", b"a\x07\x00\x0f\xff\x00\x00\x6d\x11\x01\x00", &b"a".repeat(70_001));
    // The maximum distance.
    let far: Vec<u8> = (0..8192u32).map(|at| ((at * at) >> 7) as u8).collect();
    let words: Vec<u8> =
        far.chunks(32).flat_map(|chunk| [0; 4].iter().chain(chunk)).copied().chain(flags("1")).collect();
    let expected = [&far[..], &far[..3]].concat();
    check(&"0".repeat(32), &[&words[4..], b"\xf8\xff"].concat(), &expected);
}

#[test]
fn short_patterns_overlap_their_copies() {
    for distance in 1..40u8 {
        for length in (3..80usize).chain([400]) {
            let pattern: Vec<u8> = (0..distance).collect();
            let expected: Vec<u8> = pattern.iter().copied().cycle().take(pattern.len() + length).collect();
            let mut output = expected.clone();
            output[pattern.len()..].fill(0xee);
            output.extend([0xee; 32]);
            repeat(&mut output, pattern.len(), pattern.len(), length);
            assert_eq!(output[..expected.len()], expected, "{distance} {length}");
        }
    }
}

#[track_caller]
fn check_damaged(elements: &str, rest: &[u8], size: usize, at: usize, expanded: &[u8], expected: Problem) {
    let input = [&flags(elements), rest].concat();
    let mut output = vec![0xee; size];
    let error = DecompressError { offset: at, written: expanded.len(), problem: expected };
    assert_eq!(decompress(&input, &mut output), Err(error));
    assert_eq!(&output[..expanded.len()], expanded);
}

#[test]
fn errors_are_specific_and_keep_the_expanded_data() {
    let input_ended = Problem::InputEnded;
    check_damaged("000", b"ab", 10, 6, b"ab", input_ended);
    check_damaged("001", b"ab", 10, 6, b"ab", input_ended);
    check_damaged("001", b"ab\x00", 10, 6, b"ab", input_ended);
    check_damaged("001", b"ab\x07\x00", 50, 6, b"ab", input_ended);
    check_damaged("001", b"ab\x07\x00\x0f", 50, 6, b"ab", input_ended);
    check_damaged("001", b"ab\x07\x00\x0f\xff\x00", 50, 6, b"ab", input_ended);
    check_damaged("001", b"ab\x07\x00\x0f\xff\x00\x00\x00", 50, 6, b"ab", input_ended);
    let before = Problem::DistanceBeforeStart { distance: 3 };
    check_damaged("001", b"ab\x10\x00", 50, 6, b"ab", before);
    check_damaged("001", b"ab\x08\x00", 4, 6, b"ab", Problem::MatchBeyondEnd { length: 3 });
    let extended = b"ab\x0f\x00\x0f\xff\x00\x00\xff\xff\xff\xff";
    check_damaged("001", extended, 99, 6, b"ab", Problem::MatchBeyondEnd { length: 0xffff_ffff + 3 });
    let form = Problem::LengthForm { encoded: 21, least: 22 };
    check_damaged("001", b"ab\x07\x00\x0f\xff\x15\x00", 50, 6, b"ab", form);
    assert_eq!(
        decompress(&[0; 3], &mut [0]),
        Err(DecompressError { offset: 0, written: 0, problem: input_ended })
    );
}

#[test]
fn compressed_data_has_the_specified_form() {
    for (data, expected) in [
        (&b""[..], &b"\xff\xff\xff\xff"[..]),
        (b"abcdefghijklmnopqrstuvwxyz", b"\x3f\x00\x00\x00abcdefghijklmnopqrstuvwxyz"),
        (&b"abc".repeat(100), b"\xff\xff\xff\x1fabc\x17\x00\x0f\xff\x26\x01"),
        (&b"a".repeat(70_001), b"\xff\xff\xff\x7fa\x07\x00\x0f\xff\x00\x00\x6d\x11\x01\x00"),
        // A full flag word is followed by another one, which ends the data.
        (b"abcdefghijklmnopqrstuvwxyz012345", b"\0\0\0\0abcdefghijklmnopqrstuvwxyz012345\xff\xff\xff\xff"),
    ] {
        assert_eq!(compress(data), expected, "{} bytes", data.len());
    }
}

/// Data with repetitions that cause every form of match: literal bytes, and copies of earlier
/// bytes.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 1..40).prop_map(|bytes| (bytes, 0, 0));
    let copy = (1..9000usize, prop_oneof![3..30usize, 3..400usize, 60_000..70_000usize])
        .prop_map(|(distance, length)| (Vec::new(), distance, length));
    prop::collection::vec(prop_oneof![4 => bytes, 5 => copy], 0..40).prop_map(|parts| {
        let mut data = Vec::new();
        for (bytes, distance, length) in parts {
            data.extend(bytes);
            let distance = distance.min(data.len());
            if distance > 0 {
                for _ in 0..length {
                    data.push(data[data.len() - distance]);
                }
            }
        }
        data
    })
}

fn assert_equal_results(input: &[u8], size: usize) -> Result<(), TestCaseError> {
    let mut fast = vec![0xee; size];
    let mut slow = vec![0xdd; size];
    let result = decompress(input, &mut fast);
    prop_assert_eq!(result, oracle::decompress(input, &mut slow));
    let valid = match result {
        Ok(()) => size,
        Err(DecompressError { written, .. }) => written,
    };
    prop_assert_eq!(&fast[..valid], &slow[..valid]);
    Ok(())
}

proptest! {
    #[test]
    fn decompress_inverts_compress(data in data()) {
        let compressed = compress(&data);
        let mut expanded = vec![0; data.len()];
        prop_assert_eq!(decompress(&compressed, &mut expanded), Ok(()));
        prop_assert_eq!(&expanded, &data);
        prop_assert!(compressed.len() <= data.len() + data.len() / 8 + 4);
    }

    #[test]
    fn any_bytes_match_the_oracle(input in prop::collection::vec(any::<u8>(), 0..600), size in 0..5000usize) {
        assert_equal_results(&input, size)?;
    }

    #[test]
    fn changed_data_matches_the_oracle(
        data in data(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(), size in -40i64..40,
    ) {
        let mut input = compress(&data);
        for (at, byte) in changes {
            let at = at.index(input.len());
            input[at] = byte;
        }
        let size = (data.len() as i64 + size).max(0) as usize;
        assert_equal_results(&input, size)?;
        assert_equal_results(&input[..cut.index(input.len() + 1)], size)?;
    }
}
