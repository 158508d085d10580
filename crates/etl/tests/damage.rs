//! Damage affects only the damaged buffer.
//!
//! `STACKHOUND_FLIPS` sets the number of bit flips over the corpus. The default is small enough for
//! a test run.

use std::collections::BTreeSet;
use std::io::Cursor;

use bytes::Bytes;
use stackhound_etl::compress::xpress;
use stackhound_etl::write::{EtlWriter, Form, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_etl::{BUFFER_HEADER_SIZE, Block, BufferRef, Damage, DamageReason, EtlFile};
use stackhound_types::{Pid, PointerSize, RawTime, Tid};

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
fn small_file(compressed: bool) -> Vec<u8> {
    let form = if compressed { Form::Merged } else { Form::Live };
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
            header: HeaderSpec::System { hook_id: 0x0f01, version: 2, issuer },
            payload: Payload::Bytes(&payload),
        };
        writer.write((tick % 2) as u16, &record).unwrap();
    }
    writer.finish().unwrap().0.into_inner()
}

/// Reads all properties of a buffer's records and returns a checksum of them.
fn exhaust(etl_file: &EtlFile, buffer: &BufferRef) -> u64 {
    let Ok((block, _)) = etl_file.block(buffer, None) else { return 0 };
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

/// The properties of a buffer that do not change while another buffer is damaged.
fn identity(buffer: &BufferRef) -> (u64, u32, i64, u16, bool) {
    (buffer.offset, buffer.size, buffer.sequence, buffer.processor, buffer.compressed)
}

#[test]
fn a_file_may_end_anywhere() {
    for compressed in [false, true] {
        let whole = Bytes::from(small_file(compressed));
        let etl_file = EtlFile::open(whole.clone()).unwrap();
        let index = etl_file.index();
        assert!(index.damage.is_empty() && index.buffers.len() > 15);
        let sums: Vec<_> = index.buffers.iter().map(|buffer| exhaust(&etl_file, buffer)).collect();
        let first = index.buffers[0].size as usize;
        for end in 0..whole.len() {
            let cut = match EtlFile::open(whole.slice(..end)) {
                Ok(cut) => cut,
                Err(_) => {
                    assert!(end < first, "opens once the first buffer is whole");
                    continue;
                }
            };
            let found = cut.index();
            let skipped: u64 = found.damage.iter().map(|damage| damage.skipped).sum();
            assert_eq!(found.bytes_read + skipped, end as u64, "cut at {end}: {:?}", found.damage);
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
            let is_whole = count == index.buffers.len();
            assert_eq!(found.damage.is_empty(), is_whole, "cut at {end}: {:?}", found.damage);
            for rest in &found.buffers[count..] {
                exhaust(&cut, rest);
            }
        }
    }
}

/// Flips one bit. All buffers except the one that contains the bit must be found unchanged.
///
/// Returns whether the file could be opened.
fn flip(bytes: &mut Vec<u8>, at: usize, bit: u8, before: &[BufferRef], name: &str) -> bool {
    bytes[at] ^= 1 << bit;
    let shared = Bytes::from(std::mem::take(bytes));
    let opened = EtlFile::open(shared.clone());
    let holds = |buffer: &&BufferRef| {
        (buffer.offset as usize..buffer.offset as usize + buffer.size as usize).contains(&at)
    };
    let first = before[0].size as usize;
    match &opened {
        Err(error) => assert!(at < first, "{name}: {error}"),
        Ok(etl_file) => {
            let index = etl_file.index();
            let mut found = index.buffers.iter().map(identity).collect::<Vec<_>>();
            found.sort_unstable();
            for buffer in before.iter().filter(|buffer| !holds(buffer)) {
                assert!(
                    found.binary_search(&identity(buffer)).is_ok(),
                    "{name}: byte {at:#x} bit {bit} cost the buffer at {:#x}: {:?}",
                    buffer.offset,
                    index.damage
                );
            }
            for buffer in index.buffers.iter().filter(holds) {
                exhaust(etl_file, buffer);
            }
        }
    }
    let is_open = opened.is_ok();
    drop(opened);
    *bytes = shared.try_into_mut().expect("the bytes have no other owner").into();
    bytes[at] ^= 1 << bit;
    is_open
}

#[test]
fn every_bit_of_every_header_of_a_small_file_may_flip() {
    for compressed in [false, true] {
        let mut bytes = small_file(compressed);
        let before = EtlFile::open(bytes.clone().into()).unwrap().index().buffers;
        for buffer in &before {
            for at in 0..stackhound_etl::BUFFER_HEADER_SIZE {
                for bit in 0..8 {
                    flip(&mut bytes, buffer.offset as usize + at, bit, &before, "small file");
                }
            }
        }
    }
}

#[test]
fn bits_may_flip_anywhere_in_real_traces() {
    let trace_files = stackhound_corpus::trace_files();
    let flips: usize = std::env::var("STACKHOUND_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let mut random = Random(2026);
    let (mut done, mut refused) = (0, 0);
    for (name, _) in &trace_files {
        let Some(mut bytes) = stackhound_corpus::etl_file(name) else { return };
        let before = EtlFile::open(bytes.clone().into()).unwrap().index().buffers;
        for round in 0..flips.div_ceil(trace_files.len()) {
            // Every other flip is in a buffer header, where it can do the most harm.
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

/// Processors and sequence numbers of the buffers that are read, and the damage.
fn numbers_and_damage(file: &[u8]) -> (Vec<(u16, i64)>, Vec<Damage>) {
    let index = EtlFile::open(Bytes::copy_from_slice(file)).unwrap().index();
    let numbers = index.buffers.iter().map(|buffer| (buffer.processor, buffer.sequence));
    (numbers.collect(), index.damage)
}

#[test]
fn a_repeated_buffer_is_read_once() {
    for compressed in [false, true] {
        let file = small_file(compressed);
        let buffers = EtlFile::open(file.clone().into()).unwrap().index().buffers;
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
                // The first copy is read; the different bytes of the other copy are skipped.
                (vec![&changed], vec![Damage { offset, skipped: size as u64, reason: repeated }]),
            ] {
                let found = numbers_and_damage(&[&file, &copies.concat()[..]].concat());
                assert_eq!(found, (numbers.clone(), expected));
            }
        }
        // The header buffer has no sequence number. A second header buffer begins another session
        // with its own numbers.
        let (appended, damage) = numbers_and_damage(&[&file[..], &file[..]].concat());
        assert_eq!((appended.len(), damage), (2 * numbers.len(), vec![]));
    }
}

#[test]
fn different_buffers_with_one_number_are_both_read() {
    let mut file = small_file(false);
    let buffers = EtlFile::open(file.clone().into()).unwrap().index().buffers;
    let (first, second) = (buffers[1], buffers[3]);
    assert_eq!(first.processor, second.processor);
    let number = second.offset as usize + 0x18;
    file[number..number + 8].copy_from_slice(&first.sequence.to_le_bytes());
    let (numbers, damage) = numbers_and_damage(&file);
    assert_eq!(numbers.len(), buffers.len());
    let reason = DamageReason::SameNumber { first: first.offset };
    assert_eq!(damage, [Damage { offset: second.offset, skipped: 0, reason }]);
}

/// The records of a block: the offset and the bytes of each.
fn records(block: &Block) -> Vec<(usize, Vec<u8>)> {
    block.entries().iter().map(|entry| (entry.offset(), block.record(entry).bytes().to_vec())).collect()
}

fn literals_as_lznt1(data: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    for chunk in data.chunks(4096) {
        let compressed: Vec<u8> = chunk.chunks(8).flat_map(|eight| [&[0][..], eight].concat()).collect();
        output.extend((0xb000 | (compressed.len() as u16 - 1)).to_le_bytes());
        output.extend(compressed);
    }
    output
}

/// All codes have nine bits, so that each code equals its symbol.
fn literals_as_xpress_huffman(data: &[u8]) -> Vec<u8> {
    assert!(data.len() <= 64 << 10);
    let bits: Vec<bool> =
        data.iter().flat_map(|&byte| (0..9).rev().map(move |bit| byte as u32 >> bit & 1 == 1)).collect();
    let word =
        |bits: &[bool]| (0..16).fold(0u16, |word, at| word << 1 | u16::from(bits.get(at) == Some(&true)));
    let words = bits.chunks(16).flat_map(|bits| word(bits).to_le_bytes());
    [0x99; 256].into_iter().chain(words).chain([0; 4]).collect()
}

/// The small file with its data buffers compressed by a function, and with the given state of the
/// first buffer.
fn packed(state: u32, compress: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let plain = small_file(false);
    let mut file = plain[..1024].to_vec();
    file[0x2c..0x30].copy_from_slice(&state.to_le_bytes());
    for buffer in plain[1024..].chunks(1024) {
        let end = u32::from_le_bytes(buffer[4..8].try_into().unwrap()) as usize;
        let chunk = compress(&buffer[BUFFER_HEADER_SIZE..end]);
        let start = file.len();
        file.extend(&buffer[..BUFFER_HEADER_SIZE]);
        file[start..start + 4].copy_from_slice(&((BUFFER_HEADER_SIZE + chunk.len()) as u32).to_le_bytes());
        file[start + 0x34] |= 0x40;
        file.extend(chunk);
    }
    file
}

/// Each algorithm with the state of the first buffer that selects it.
fn packings() -> [(&'static str, Vec<u8>); 5] {
    [
        ("XPRESS", packed(3, xpress::compress)),
        ("XPRESS-Huffman", packed(4, literals_as_xpress_huffman)),
        ("LZNT1", packed(2, literals_as_lznt1)),
        // The state of the first buffer is ambiguous.
        ("XPRESS-Huffman as 3", packed(3, literals_as_xpress_huffman)),
        ("LZNT1 as 3", packed(3, literals_as_lznt1)),
    ]
}

#[test]
fn a_compressed_buffer_that_is_cut_off_is_read_as_far_as_it_goes() {
    for (name, file) in packings() {
        let whole = EtlFile::open(file.clone().into()).unwrap();
        let index = whole.index();
        assert_eq!(index.damage, [], "{name}");
        let last = *index.buffers.iter().max_by_key(|buffer| buffer.offset).unwrap();
        let (block, damage) = whole.block(&last, None).unwrap();
        assert_eq!(damage, []);
        let expected = records(&block);
        assert!(expected.len() > 5, "{name}");
        let start = last.offset as usize;
        let mut delivered = 0;
        for end in start + BUFFER_HEADER_SIZE + 1..file.len() {
            let cut = EtlFile::open(file[..end].to_vec().into()).unwrap();
            let index = cut.index();
            let truncated =
                DamageReason::Truncated { found: (end - start) as u64, expected: last.size.into() };
            assert_eq!(
                index.damage,
                [Damage { offset: last.offset, skipped: 0, reason: truncated }],
                "{name}"
            );
            let found = index.buffers.iter().find(|buffer| buffer.offset == last.offset).unwrap();
            match cut.block(found, None) {
                Ok((block, damage)) => {
                    let found = records(&block);
                    assert!(found.len() >= delivered, "{name} cut at {end:#x}");
                    assert_eq!(found, expected[..found.len()], "{name} cut at {end:#x}");
                    let end_of = |(at, bytes): &(usize, Vec<u8>)| (at + bytes.len()).next_multiple_of(8);
                    if let [damage] = damage[..] {
                        let lost = end_of(expected.last().unwrap()) - end_of(found.last().unwrap());
                        // Padding after the last record may be missing.
                        assert!(damage.skipped.abs_diff(lost as u64) < 8, "{name}: {damage:?}, {lost}");
                        assert!(matches!(damage.reason, DamageReason::Inflate(_)), "{name}: {damage:?}");
                    }
                    delivered = found.len();
                }
                Err(damage) => {
                    assert_eq!((delivered, damage.skipped), (0, found.size.into()), "{name} cut at {end:#x}");
                }
            }
        }
        assert!(delivered + 2 > expected.len(), "{name}: {delivered} of {}", expected.len());
    }
}

#[test]
fn records_before_the_damage_of_a_compressed_buffer_are_delivered() {
    let mut random = Random(5);
    let (mut buffers, mut before, mut delivered, mut wrong) = (0, 0, 0, 0);
    for name in ["perfview-net452-x64.etl", "dotnetperf-vs-gconly.etl", "msbuild-PerfViewData.etl"] {
        let Some(bytes) = stackhound_corpus::etl_file(name) else { return };
        let etl_file = EtlFile::open(bytes.clone().into()).unwrap();
        let first = &bytes[..etl_file.index().buffers[0].size as usize];
        for buffer in etl_file.index().buffers.iter().filter(|buffer| buffer.compressed) {
            let expected = records(&etl_file.block(buffer, None).unwrap().0);
            let start = buffer.offset as usize;
            let mut damaged = bytes[start..start + buffer.size as usize].to_vec();
            let at = BUFFER_HEADER_SIZE + random.below(damaged.len() - BUFFER_HEADER_SIZE);
            damaged[at] ^= 1 << random.below(8);
            let alone = EtlFile::open([first, &damaged].concat().into()).unwrap();
            let found = alone.index().buffers[1];
            let (found, skipped) = match alone.block(&found, None) {
                Ok((block, damage)) => match damage[..] {
                    [Damage { skipped, reason: DamageReason::Inflate(_), .. }] => (records(&block), skipped),
                    // Other damage is not detected by the decompressor.
                    _ => continue,
                },
                Err(Damage { reason: DamageReason::Inflate(_), .. }) => (Vec::new(), 0),
                Err(_) => continue,
            };
            // The damaged element begins at most one group of flags and literals before the flipped
            // byte.
            let mut output = vec![0; 1 << 16];
            let valid = xpress::decompress(
                &damaged[BUFFER_HEADER_SIZE..at.max(BUFFER_HEADER_SIZE + 40) - 40],
                &mut output,
            );
            let valid = BUFFER_HEADER_SIZE + valid.unwrap_err().written;
            let whole = expected.iter().take_while(|(at, bytes)| at + bytes.len() <= valid).count();
            // The last of these may be damaged.
            let whole = whole.saturating_sub(1);
            assert!(found.len() >= whole && found[..whole] == expected[..whole], "{name} {start:#x}");
            let saved_offset = u32::from_le_bytes(damaged[4..8].try_into().unwrap());
            let end = found.last().map_or(0, |(at, bytes)| (at + bytes.len()).next_multiple_of(8) as u64);
            assert!(found.is_empty() || end + skipped == saved_offset.into(), "{end} {skipped}");
            (buffers, before, delivered) = (buffers + 1, before + whole, delivered + found.len());
            let genuine: BTreeSet<&[u8]> = expected.iter().map(|(_, bytes)| &bytes[..]).collect();
            wrong += found.iter().filter(|(_, bytes)| !genuine.contains(&bytes[..])).count();
        }
    }
    println!(
        "{buffers} buffers: {before} records before the damage, {delivered} delivered, {wrong} of them not in the undamaged buffer"
    );
    assert!(buffers > 100 && before > 10_000);
    // A few records of damaged bytes look valid.
    assert!(wrong * 200 < delivered);
}

/// The rules for times hold in every trace that Windows wrote, so that none of its records is
/// skipped. The time of the first record of a buffer is known without reading the buffer.
#[test]
fn times_of_genuine_traces_contradict_nothing() {
    for (name, _) in stackhound_corpus::trace_files() {
        let etl_file = EtlFile::open(stackhound_corpus::etl_file(&name).unwrap().into()).unwrap();
        let index = etl_file.index();
        let is_start_missing = |damage: &Damage| matches!(damage.reason, DamageReason::MissingStart { .. });
        assert!(!index.damage.iter().any(is_start_missing), "{name}: {:?}", index.damage);
        for stream in index.streams() {
            let mut last = None;
            for (number, buffer) in stream.iter().enumerate() {
                let (block, damage) = etl_file.block(buffer, None).unwrap();
                assert_eq!(damage, [], "{name}");
                let Some((first, end)) = block.extent().times else { continue };
                let is_of_data = number > 0 && stream[number - 1].sequence > 0;
                let is_shared = block.origin().processor.is_none();
                if is_of_data && !is_shared {
                    assert_eq!(stream[number - 1].next_time, Some(first), "{name}");
                    assert!(last <= Some(first), "{name}");
                }
                last = Some(end);
            }
        }
    }
}
