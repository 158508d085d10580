//! Runs every target with valid inputs, and with valid inputs that were damaged.
//!
//! `PROPTEST_CASES` sets the number of damaged inputs, as for all property tests.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use stackhound_fuzzing::{TARGETS, Target};

/// One change to an input.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    /// A number of one, two, four or eight bytes: small, at a limit, or arbitrary.
    Number(Index, u8, u64),
    Truncate(Index),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    /// A part of the same input is copied to another offset.
    Move(Index, Index, u16),
    /// A part of another seed is copied.
    Splice(Index, Index, Index, u16),
}

fn changes() -> impl Strategy<Value = Change> {
    let number = prop_oneof![
        0..16u64,
        Just(u64::MAX),
        Just(1 << 31),
        Just((1 << 31) - 1),
        Just(i64::MAX as u64),
        Just(1 << 63),
        any::<u64>(),
    ];
    prop_oneof![
        4 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        4 => any::<(Index, u8)>().prop_map(|(at, byte)| Change::Set(at, byte)),
        4 => (any::<Index>(), 0..4u8, number).prop_map(|(at, width, number)| Change::Number(at, width, number)),
        1 => any::<Index>().prop_map(Change::Truncate),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => any::<(Index, u8)>().prop_map(|(at, length)| Change::Remove(at, length)),
        2 => any::<(Index, Index, u16)>().prop_map(|(from, to, length)| Change::Move(from, to, length)),
        2 => any::<(Index, Index, Index, u16)>()
            .prop_map(|(seed, from, to, length)| Change::Splice(seed, from, to, length)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        let at = |index: &Index| index.index(last + 1);
        match self {
            Change::Flip(index, bit) => bytes[at(index)] ^= 1 << bit,
            Change::Set(index, byte) => bytes[at(index)] = *byte,
            Change::Number(index, width, number) => {
                // Fields are aligned.
                let width = 1 << width;
                let start = at(index) / width * width;
                let end = (start + width).min(bytes.len());
                bytes[start..end].copy_from_slice(&number.to_le_bytes()[..end - start]);
            }
            Change::Truncate(index) => bytes.truncate(at(index)),
            Change::Insert(index, inserted) => {
                let index = at(index);
                bytes.splice(index..index, inserted.iter().copied());
            }
            Change::Remove(index, length) => {
                let index = at(index);
                bytes.drain(index..(index + usize::from(*length)).min(last + 1));
            }
            Change::Move(from, to, length) => {
                let part = part(bytes, at(from), *length);
                overwrite(bytes, at(to), &part);
            }
            Change::Splice(seed, from, to, length) => {
                let seed = &seeds[seed.index(seeds.len())];
                let part = part(seed, from.index(seed.len()), *length);
                overwrite(bytes, at(to), &part);
            }
        }
    }
}

fn part(bytes: &[u8], from: usize, length: u16) -> Vec<u8> {
    bytes[from..].iter().copied().take(length.into()).collect()
}

fn overwrite(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    let end = (at + part.len()).min(bytes.len());
    bytes.splice(at..end, part.iter().copied());
}

static SEEDS: LazyLock<Vec<Vec<Vec<u8>>>> =
    LazyLock::new(|| TARGETS.iter().map(|target| (target.seeds)()).collect());

fn inputs(target: usize) -> impl Strategy<Value = Vec<u8>> {
    let seeds = &SEEDS[target];
    (any::<Index>(), prop::collection::vec(changes(), 0..12)).prop_map(|(seed, changes)| {
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        changes.iter().for_each(|change| change.apply(&mut bytes, seeds));
        bytes
    })
}

#[test]
fn every_target_accepts_its_seeds() {
    for Target { name, run, seeds } in TARGETS {
        for (number, seed) in seeds().iter().enumerate() {
            println!("{name}, seed {number}");
            run(seed);
        }
    }
}

#[test]
fn every_target_accepts_prefixes_of_seeds() {
    for (Target { run, .. }, seeds) in TARGETS.iter().zip(&*SEEDS) {
        for seed in seeds {
            // All short prefixes, which end in headers, then larger and larger steps.
            let mut end = 0;
            while end < seed.len() {
                run(&seed[..end]);
                end += 1 + end / 64;
            }
        }
    }
}

#[track_caller]
fn check(target: usize, bytes: &[u8]) {
    (TARGETS[target].run)(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn container(bytes in inputs(0)) {
        check(0, &bytes);
    }

    #[test]
    fn records(bytes in inputs(1)) {
        check(1, &bytes);
    }

    #[test]
    fn decompression(bytes in inputs(2)) {
        check(2, &bytes);
    }

    #[test]
    fn metadata(bytes in inputs(3)) {
        check(3, &bytes);
    }

    #[test]
    fn payloads(bytes in prop_oneof![inputs(4), prop::collection::vec(any::<u8>(), 0..400)]) {
        check(4, &bytes);
    }

    #[test]
    fn pipeline(bytes in prop_oneof![inputs(5), prop::collection::vec(any::<u8>(), 0..3000)]) {
        check(5, &bytes);
    }

    #[test]
    fn etl_file(bytes in inputs(6)) {
        check(6, &bytes);
    }

    #[test]
    fn image(bytes in inputs(7)) {
        check(7, &bytes);
    }

    #[test]
    fn journal(bytes in inputs(8)) {
        check(8, &bytes);
    }

    #[test]
    fn sysmon(bytes in inputs(9)) {
        check(9, &bytes);
    }

    #[test]
    fn kstack_request(bytes in prop_oneof![inputs(10), prop::collection::vec(any::<u8>(), 0..1000)]) {
        check(10, &bytes);
    }

    #[test]
    fn kstack_answer(bytes in inputs(11)) {
        check(11, &bytes);
    }

    #[test]
    fn signatures(bytes in inputs(12)) {
        check(12, &bytes);
    }

    #[test]
    fn rules(bytes in inputs(13)) {
        check(13, &bytes);
    }
}
