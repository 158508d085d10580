//! Arbitrary bytes as payloads of every kernel class.

use proptest::prelude::*;
use stackhound_schema::fuzz;

/// Splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn payloads_from_fixed_seeds_do_not_panic() {
    for seed in 0..200 {
        let mut state = seed;
        let length = (random(&mut state) % 1000) as usize;
        let mut data: Vec<u8> = (0..length).map(|_| random(&mut state) as u8).collect();
        // Existing versions, and many zeros, which end texts.
        data.iter_mut().take(1).for_each(|version| *version %= 7);
        let every = 1 + (random(&mut state) % 4) as usize;
        data.iter_mut().skip(2).step_by(every).for_each(|byte| *byte = 0);
        fuzz::kernel(&data);
    }
}

#[test]
fn equal_bytes_of_any_length_do_not_panic() {
    for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
        for length in 0..150 {
            fuzz::kernel(&vec![byte; length]);
        }
        fuzz::kernel(&vec![byte; 0xFFFF]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_payload_does_not_panic(data in prop::collection::vec(prop_oneof![2 => any::<u8>(), 1 => Just(0)], 0..300)) {
        fuzz::kernel(&data);
    }
}
