//! The hash against published values and against its required properties.

use proptest::prelude::*;
use stackhound_kstack_proto::hash;

fn of_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "only whole entries can be hashed");
    hash(words.iter().map(|word| u64::from_le_bytes(*word)))
}

/// The hash by its definition, with a multiplication by shifts: the prime is 2^40 + 2^8 + 0xb3.
fn by_definition(bytes: &[u8]) -> u64 {
    let mut hash = 14_695_981_039_346_656_037u64;
    for byte in bytes {
        hash ^= u64::from(*byte);
        let low = [0, 1, 4, 5, 7, 8, 40].map(|shift| hash << shift);
        hash = low.into_iter().fold(0u64, u64::wrapping_add);
    }
    hash
}

/// The test vectors of the hash's authors whose length is a multiple of eight, and the shortest
/// input whose hash is zero, from their page.
#[test]
fn published_values() {
    let vectors: [(&[u8], u64); 4] = [
        (b"", 0xcbf2_9ce4_8422_2325),
        (b"feedfacedeadbeef", 0xcac5_4572_bb1a_6fc8),
        (br"chongo <Landon Curt Noll> /\../\", 0x2c8f_4c9a_f81b_cf06),
        (&[0xd5, 0x6b, 0xb9, 0x53, 0x42, 0x87, 0x08, 0x36], 0),
    ];
    for (bytes, value) in vectors {
        assert_eq!(of_bytes(bytes), value);
        assert_eq!(by_definition(bytes), value);
    }
    // Vectors of other lengths confirm the hash by definition.
    assert_eq!(by_definition(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(by_definition(b"foobar"), 0x8594_4171_f739_67e8);
}

proptest! {
    #[test]
    fn both_ways_of_computing_agree(frames in prop::collection::vec(any::<u64>(), 0..300)) {
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_le_bytes()).collect();
        prop_assert_eq!(hash(frames), by_definition(&bytes));
    }

    /// Each step is invertible, so two inputs that differ in one byte have different hashes.
    #[test]
    fn a_change_of_one_byte_changes_it(
        frames in prop::collection::vec(any::<u64>(), 1..40),
        index in any::<prop::sample::Index>(),
        byte in 0..8,
        change in 1..=255u64,
    ) {
        let mut changed = frames.clone();
        changed[index.index(frames.len())] ^= change << (8 * byte);
        prop_assert_ne!(hash(frames), hash(changed));
    }

    /// This is not certain for a hash, but the probability of a collision is 1 in 2^64.
    #[test]
    fn the_order_counts(
        frames in prop::collection::vec(any::<u64>(), 2..40),
        indexes in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let mut swapped = frames.clone();
        swapped.swap(indexes.0.index(frames.len()), indexes.1.index(frames.len()));
        prop_assert_eq!(frames == swapped, hash(frames) == hash(swapped));
    }
}

#[test]
fn stacks_with_equal_sums_have_different_hashes() {
    let stacks: [&[u64]; 6] = [&[1, 2], &[2, 1], &[3], &[3, 0], &[0, 3], &[1, 1, 1]];
    for (number, stack) in stacks.iter().enumerate() {
        for other in &stacks[..number] {
            assert_ne!(hash(stack.iter().copied()), hash(other.iter().copied()), "{stack:?} and {other:?}");
        }
    }
}
