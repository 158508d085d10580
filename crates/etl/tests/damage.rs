//! Damage costs the damaged buffer and nothing else.
//!
//! `STACKHOUND_FLIPS` sets the number of bit flips over the corpus; the default suits a test run.

use std::io::Cursor;

use bytes::Bytes;
use stackhound_etl::write::{EtlWriter, Form, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_etl::{BufferRef, Damage, DamageReason, Pid, PointerSize, RawTime, Recording, Tid};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// About 24 buffers of 1 KiB from two processors.
fn small_recording(compressed: bool) -> Vec<u8> {
    let form = if compressed { Form::Merged { header_buffer_size: 512 } } else { Form::Live };
    let session = Session { processors: 2, buffer_size: 1024, compressed, form, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    let mut random = Random(7);
    for tick in 1..=400 {
        let payload: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8 & 0x1f).collect();
        let issuer = Issuer::new(Pid(5), Tid(tick));
        let record = RecordSpec {
            time: RawTime(start + i64::from(tick)),
            pointer_size: PointerSize::Eight,
            header: HeaderSpec::System { hook: 0x0f01, version: 2, issuer },
            payload: Payload::Bytes(&payload),
        };
        writer.write((tick % 2) as u16, &record).unwrap();
    }
    writer.finish().unwrap().0.into_inner()
}

/// Everything that can be asked of a buffer's records.
fn exhaust(recording: &Recording, buffer: &BufferRef) -> u64 {
    let Ok((block, _)) = recording.block(buffer, None) else { return 0 };
    let mut sum = 0u64;
    for entry in block.entries() {
        let record = block.record(entry);
        sum = sum.wrapping_mul(31).wrapping_add(entry.time.0 as u64);
        sum = record.payload().iter().fold(sum, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        sum = sum.wrapping_add(record.extended_items().map(|item| item.data.len() as u64).sum());
        sum = sum.wrapping_add(record.counters().count() as u64);
        let ids = (record.pid(), record.tid(), record.guid(), record.instance(), record.activity());
        sum = sum.wrapping_add(u64::from(ids.0.is_some()) + u64::from(ids.2.is_some()));
        std::hint::black_box((
            ids,
            record.message_sequence(),
            record.message_component(),
            record.pebs_index(),
        ));
    }
    sum
}

/// What does not change in a buffer while another one is damaged.
fn identity(buffer: &BufferRef) -> (u64, u32, i64, u16, bool) {
    (buffer.offset, buffer.size, buffer.sequence, buffer.processor, buffer.compressed)
}

#[test]
fn a_file_may_end_anywhere() {
    for compressed in [false, true] {
        let whole = Bytes::from(small_recording(compressed));
        let recording = Recording::open(whole.clone()).unwrap();
        let index = recording.index();
        assert!(index.damage.is_empty() && index.buffers.len() > 15);
        let sums: Vec<_> = index.buffers.iter().map(|buffer| exhaust(&recording, buffer)).collect();
        let first = index.buffers[0].size as usize;
        for end in 0..whole.len() {
            let cut = match Recording::open(whole.slice(..end)) {
                Ok(cut) => cut,
                Err(_) => {
                    assert!(end < first, "opens once the first buffer is whole");
                    continue;
                }
            };
            let found = cut.index();
            let expected = index
                .buffers
                .iter()
                .zip(&sums)
                .take_while(|(b, _)| b.offset as usize + b.size as usize <= end);
            let mut count = 0;
            for ((before, sum), after) in expected.zip(&found.buffers) {
                assert_eq!(identity(before), identity(after), "cut at {end}");
                assert_eq!(exhaust(&cut, after), *sum, "cut at {end}");
                count += 1;
            }
            // A few zeros behind a whole buffer look like the unused end of a file.
            let last = index.buffers[count - 1];
            let rest = &whole[last.offset as usize + last.size as usize..end];
            let nothing_lost = rest.iter().all(|&byte| byte == 0);
            assert_eq!(found.damage.is_empty(), nothing_lost, "cut at {end}: {:?}", found.damage);
            for rest in &found.buffers[count..] {
                exhaust(&cut, rest);
            }
        }
    }
}

/// Flips one bit; all buffers but the one that holds it must be found as before.
///
/// Gives whether the recording could be opened.
fn flip(bytes: &mut Vec<u8>, at: usize, bit: u8, before: &[BufferRef], what: &str) -> bool {
    bytes[at] ^= 1 << bit;
    let shared = Bytes::from(std::mem::take(bytes));
    let opened = Recording::open(shared.clone());
    let holds = |buffer: &&BufferRef| {
        (buffer.offset as usize..buffer.offset as usize + buffer.size as usize).contains(&at)
    };
    let first = before[0].size as usize;
    match &opened {
        Err(error) => assert!(at < first, "{what}: {error}"),
        Ok(recording) => {
            let index = recording.index();
            let mut found = index.buffers.iter().map(identity).collect::<Vec<_>>();
            found.sort_unstable();
            for buffer in before.iter().filter(|buffer| !holds(buffer)) {
                assert!(
                    found.binary_search(&identity(buffer)).is_ok(),
                    "{what}: byte {at:#x} bit {bit} cost the buffer at {:#x}: {:?}",
                    buffer.offset,
                    index.damage
                );
            }
            for buffer in index.buffers.iter().filter(holds) {
                exhaust(recording, buffer);
            }
        }
    }
    let is_open = opened.is_ok();
    drop(opened);
    *bytes = shared.try_into_mut().expect("nobody else holds the bytes").into();
    bytes[at] ^= 1 << bit;
    is_open
}

#[test]
fn every_bit_of_every_header_of_a_small_file_may_flip() {
    for compressed in [false, true] {
        let mut bytes = small_recording(compressed);
        let before = Recording::open(bytes.clone().into()).unwrap().index().buffers;
        for buffer in &before {
            for at in 0..stackhound_etl::BUFFER_HEADER_SIZE {
                for bit in 0..8 {
                    flip(&mut bytes, buffer.offset as usize + at, bit, &before, "small recording");
                }
            }
        }
    }
}

#[test]
fn bits_may_flip_anywhere_in_real_recordings() {
    let recordings = stackhound_corpus::recordings();
    let flips: usize = std::env::var("STACKHOUND_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let mut random = Random(2026);
    let (mut done, mut refused) = (0, 0);
    for (name, _) in &recordings {
        let Some(mut bytes) = stackhound_corpus::recording(name) else { return };
        let before = Recording::open(bytes.clone().into()).unwrap().index().buffers;
        for round in 0..flips.div_ceil(recordings.len()) {
            // Every other flip hits a buffer header, where it can do most harm.
            let at = if round % 2 == 0 {
                random.below(bytes.len())
            } else {
                let buffer = &before[random.below(before.len())];
                buffer.offset as usize + random.below(stackhound_etl::BUFFER_HEADER_SIZE)
            };
            let bit = random.below(8) as u8;
            refused += usize::from(!flip(&mut bytes, at, bit, &before, name));
            done += 1;
        }
    }
    println!("{done} flips, {refused} of them in the first buffer so that the file could not be opened");
}

/// What the index of `file` says: numbers of the buffers that are read, and the damage.
fn numbers_and_damage(file: &[u8]) -> (Vec<(u16, i64)>, Vec<Damage>) {
    let index = Recording::open(Bytes::copy_from_slice(file)).unwrap().index();
    let numbers = index.buffers.iter().map(|buffer| (buffer.processor, buffer.sequence));
    (numbers.collect(), index.damage)
}

#[test]
fn a_repeated_buffer_is_read_once() {
    for compressed in [false, true] {
        let file = small_recording(compressed);
        let buffers = Recording::open(file.clone().into()).unwrap().index().buffers;
        let (numbers, damage) = numbers_and_damage(&file);
        assert_eq!(damage, []);
        for first in &buffers[1..] {
            let (start, size) = (first.offset as usize, first.size as usize);
            let copy = &file[start..start + size];
            let mut changed = copy.to_vec();
            *changed.last_mut().unwrap() ^= 1;
            let offset = file.len() as u64;
            let repeated = DamageReason::Repeated { first: first.offset };
            for (copies, expected) in [
                (vec![copy], vec![Damage { offset, skipped: 0, reason: repeated }]),
                (
                    vec![copy, copy],
                    vec![
                        Damage { offset, skipped: 0, reason: repeated },
                        Damage { offset: offset + size as u64, skipped: 0, reason: repeated },
                    ],
                ),
                // The first one counts, and what the other one has of its own is given up.
                (vec![&changed], vec![Damage { offset, skipped: size as u64, reason: repeated }]),
            ] {
                let found = numbers_and_damage(&[&file, &copies.concat()[..]].concat());
                assert_eq!(found, (numbers.clone(), expected));
            }
        }
        // The header buffer has no number: a second one begins another session, whose numbers are its own.
        let (appended, damage) = numbers_and_damage(&[&file[..], &file[..]].concat());
        assert_eq!((appended.len(), damage), (2 * numbers.len(), vec![]));
    }
}

#[test]
fn different_buffers_with_one_number_are_both_read() {
    let mut file = small_recording(false);
    let buffers = Recording::open(file.clone().into()).unwrap().index().buffers;
    let (first, second) = (buffers[1], buffers[3]);
    assert_eq!(first.processor, second.processor);
    let number = second.offset as usize + 0x18;
    file[number..number + 8].copy_from_slice(&first.sequence.to_le_bytes());
    let (numbers, damage) = numbers_and_damage(&file);
    assert_eq!(numbers.len(), buffers.len());
    let reason = DamageReason::SameNumber { first: first.offset };
    assert_eq!(damage, [Damage { offset: second.offset, skipped: 0, reason }]);
}
