//! The inverse of [`super::decompress`], for writing compressed traces.

use super::{BYTE_MAX, DISTANCE_MAX, MATCH_MIN, NIBBLE_MAX, SHORT_LENGTH_MAX};

/// Number of earlier positions with the same hash that are tried for a match.
const CHAIN_MAX: usize = 2;
/// A match of at least this length is used without a search for a longer one.
const GOOD_LENGTH: usize = 32;
const HASH_BITS: u32 = 13;

/// Compresses `input` into one chunk that ends with a set flag bit, as Windows ends its chunks.
///
/// Linear in the length of the input. Data without repetitions grows by at most an eighth of its
/// size plus 4 bytes.
pub fn compress(input: &[u8]) -> Vec<u8> {
    let mut output = Output::new(input.len() / 2);
    let mut matches = MatchFinder::new();
    let mut at = 0;
    while at < input.len() {
        match matches.find(input, at) {
            Some((distance, length)) => {
                output.push_match(distance, length);
                matches.insert(input, at..at + length);
                at += length;
            }
            None => {
                output.push_literal(input[at]);
                matches.insert(input, at..at + 1);
                at += 1;
            }
        }
    }
    output.finish()
}

/// Finds earlier occurrences of the bytes at a position, with hash chains over the window.
struct MatchFinder {
    /// The latest position plus one with each hash, 0 for none. Positions wrap at 32 bits; each
    /// candidate is compared anyway.
    heads: Vec<u32>,
    /// For each position of the window, the previous position plus one with the same hash.
    previous: Vec<u32>,
}

impl MatchFinder {
    fn new() -> MatchFinder {
        MatchFinder { heads: vec![0; 1 << HASH_BITS], previous: vec![0; DISTANCE_MAX] }
    }

    /// The bucket of the three bytes at `at`; `None` if fewer bytes are left.
    fn hash(input: &[u8], at: usize) -> Option<usize> {
        let [a, b, c] = *input.get(at..)?.first_chunk::<MATCH_MIN>()?;
        let key = u32::from_le_bytes([a, b, c, 0]);
        Some((key.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize)
    }

    fn insert(&mut self, input: &[u8], positions: std::ops::Range<usize>) {
        for at in positions {
            let Some(hash) = Self::hash(input, at) else { return };
            self.previous[at % DISTANCE_MAX] = self.heads[hash];
            self.heads[hash] = at as u32 + 1;
        }
    }

    /// Distance and length of the longest match found at `at`.
    fn find(&self, input: &[u8], at: usize) -> Option<(usize, usize)> {
        let mut next = self.heads[Self::hash(input, at)?];
        let mut best = None;
        let mut best_length = MATCH_MIN - 1;
        for _ in 0..CHAIN_MAX {
            let distance = (at as u32 + 1).wrapping_sub(next) as usize;
            if next == 0 || distance > DISTANCE_MAX.min(at) {
                break;
            }
            let candidate = at - distance;
            let length = common_length(&input[candidate..], &input[at..]);
            if length > best_length {
                best = Some((distance, length));
                best_length = length;
                if length >= GOOD_LENGTH {
                    break;
                }
            }
            next = self.previous[candidate % DISTANCE_MAX];
        }
        best
    }
}

/// Number of equal bytes at the start of both slices.
fn common_length(a: &[u8], b: &[u8]) -> usize {
    let mut length = 0;
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let difference =
            u64::from_le_bytes(a.try_into().unwrap()) ^ u64::from_le_bytes(b.try_into().unwrap());
        if difference != 0 {
            return length + difference.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length + a[length..].iter().zip(&b[length..]).take_while(|(a, b)| a == b).count()
}

/// The chunk so far, with the flag word and the length nibble that are still incomplete.
struct Output {
    bytes: Vec<u8>,
    flags: u32,
    flag_count: u32,
    flags_at: usize,
    /// Offset of a length byte whose high half is free.
    nibble_at: Option<usize>,
}

impl Output {
    fn new(capacity: usize) -> Output {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend([0; 4]);
        Output { bytes, flags: 0, flag_count: 0, flags_at: 0, nibble_at: None }
    }

    fn push_flag(&mut self, flag: bool) {
        self.flags = self.flags << 1 | u32::from(flag);
        self.flag_count += 1;
    }

    /// After 32 elements, reserves the next flag word.
    fn end_element(&mut self) {
        if self.flag_count == 32 {
            self.store_flags();
            self.flags_at = self.bytes.len();
            self.flag_count = 0;
            self.bytes.extend([0; 4]);
        }
    }

    fn store_flags(&mut self) {
        self.bytes[self.flags_at..self.flags_at + 4].copy_from_slice(&self.flags.to_le_bytes());
    }

    fn push_literal(&mut self, byte: u8) {
        self.push_flag(false);
        self.bytes.push(byte);
        self.end_element();
    }

    fn push_match(&mut self, distance: usize, length: usize) {
        debug_assert!((1..=DISTANCE_MAX).contains(&distance) && length >= MATCH_MIN);
        self.push_flag(true);
        let encoded = length - MATCH_MIN;
        let short = encoded.min(SHORT_LENGTH_MAX);
        self.bytes.extend(((distance as u16 - 1) << 3 | short as u16).to_le_bytes());
        if short == SHORT_LENGTH_MAX {
            self.push_length(encoded);
        }
        self.end_element();
    }

    /// The length forms beyond the three bits of the match word.
    fn push_length(&mut self, encoded: usize) {
        let rest = encoded - SHORT_LENGTH_MAX;
        let nibble = rest.min(NIBBLE_MAX) as u8;
        match self.nibble_at.take() {
            Some(at) => self.bytes[at] |= nibble << 4,
            None => {
                self.nibble_at = Some(self.bytes.len());
                self.bytes.push(nibble);
            }
        }
        if rest < NIBBLE_MAX {
            return;
        }
        let rest = rest - NIBBLE_MAX;
        if rest < BYTE_MAX {
            self.bytes.push(rest as u8);
            return;
        }
        self.bytes.push(BYTE_MAX as u8);
        match u16::try_from(encoded) {
            Ok(encoded) => self.bytes.extend(encoded.to_le_bytes()),
            Err(_) => {
                self.bytes.extend([0; 2]);
                self.bytes.extend((encoded as u32).to_le_bytes());
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        // A full flag word is always followed by a new one, so at least one flag is free.
        let free = 32 - self.flag_count;
        self.flags = if free == 32 { u32::MAX } else { self.flags << free | ((1 << free) - 1) };
        self.store_flags();
        self.bytes
    }
}
