//! The table of symbols in the image of a Linux kernel (`kernel/kallsyms.c`, `scripts/kallsyms.c`).
//!
//! Nothing states where it is. It is found by the table of the 256 tokens that names are composed of:
//! the tokens of the digits are the digits, because all kernels have names with digits. The other parts
//! are around it, in one of two orders:
//!
//! - until Linux 6.3: offsets, relative base, number, names, markers, \[sequence], tokens, token index
//! - since Linux 6.4: number, names, markers, tokens, token index, offsets, relative base, \[sequence]
//!
//! Every part begins at a multiple of 8. The base is relocated with the kernel, so that addresses are
//! right also if the kernel chose a random one.

use memchr::memmem;
use stackhound_types::Address;

use crate::memory::Image;
use crate::symbols::Symbols;

/// The token of `0`.
const DIGIT: usize = b'0' as usize;
const TOKENS: usize = 256;
/// The number of names between two markers.
const BETWEEN_MARKERS: usize = 256;
/// Bounds of the number of symbols.
const COUNT: std::ops::Range<usize> = 64..1 << 24;
/// Bounds of the mean length of a compressed name in bytes.
const MEAN: std::ops::Range<usize> = 2..64;
/// Maximum length of a name.
const NAME_MAX: usize = 1024;

/// Finds and reads the table.
pub(super) fn find(image: &Image) -> Option<Symbols> {
    let digits: Vec<u8> = (b'0'..=b'9').flat_map(|digit| [digit, 0]).collect();
    memmem::find_iter(&image.bytes, &digits).find_map(|digits| {
        let tokens = Tokens::around(image, digits)?;
        (0..tokens.start / 8).rev().find_map(|number| read(image, &tokens, 8 * number))
    })
}

/// The table of tokens.
struct Tokens {
    start: usize,
    /// The offset after its index.
    end: usize,
    /// The start of each token.
    index: [usize; TOKENS],
}

impl Tokens {
    /// Reads the table that contains the tokens of the digits at an offset.
    fn around(image: &Image, digits: usize) -> Option<Tokens> {
        // The ends of the tokens before the digits. The first token can begin at any multiple of 8
        // before the first end; the index decides.
        let before = image.bytes.get(..digits)?;
        let first_end = memchr::memrchr_iter(0, before).nth(DIGIT - 1)?;
        let last_end = memchr::memchr_iter(0, &image.bytes[digits..]).nth(TOKENS - DIGIT - 1)? + digits;
        let index_at = (last_end + 1).next_multiple_of(8);
        let distance = usize::from(image.short(index_at + 2 * DIGIT)?);
        let start = digits.checked_sub(distance).filter(|&start| start <= first_end)?;
        let mut index = [0; TOKENS];
        for (number, entry) in index.iter_mut().enumerate() {
            *entry = start + usize::from(image.short(index_at + 2 * number)?);
            if number > 0 && image.bytes.get(*entry - 1) != Some(&0) {
                return None;
            }
        }
        (index.is_sorted() && index[0] == start).then_some(Tokens {
            start,
            end: index_at + 2 * TOKENS,
            index,
        })
    }

    fn text<'i>(&self, image: &'i Image, token: u8) -> &'i [u8] {
        let rest = image.bytes.get(self.index[usize::from(token)]..).unwrap_or_default();
        rest.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

/// Reads the table if the number of symbols is at an offset.
fn read(image: &Image, tokens: &Tokens, at: usize) -> Option<Symbols> {
    let count = usize::try_from(image.word(at)?).ok().filter(|count| COUNT.contains(count))?;
    let length = tokens.start - at;
    if !(count * MEAN.start..count * MEAN.end).contains(&length) {
        return None;
    }
    let names = at + 8;
    let mut ends = Vec::with_capacity(count + 1);
    let mut end = names;
    for _ in 0..count {
        ends.push(end);
        let (_, following) = name_at(image, end).filter(|&(_, following)| following <= tokens.start)?;
        end = following;
    }
    let markers = end.next_multiple_of(8);
    let is_marked = ends.iter().step_by(BETWEEN_MARKERS).enumerate().all(|(number, &start)| {
        image.half(markers + 4 * number).is_some_and(|marker| marker as usize == start - names)
    });
    if !is_marked {
        return None;
    }
    let length = (4 * count).next_multiple_of(8);
    let before = at.checked_sub(8 + length).map(|offsets| (offsets, at - 8));
    let (offsets, base) = [Some((tokens.end, tokens.end + length)), before]
        .into_iter()
        .flatten()
        .filter_map(|(offsets, base)| Some((offsets, image.word(base)?)))
        // The base is the start of the kernel's code.
        .find(|(_, base)| base.checked_sub(image.base).is_some_and(|at| at < image.bytes.len() as u64))?;
    let values: Vec<u32> = (0..count).map_while(|number| image.half(offsets + 4 * number)).collect();
    // Values that are not negative are addresses themselves, of variables of each processor, if there
    // are negative ones: CONFIG_KALLSYMS_ABSOLUTE_PERCPU.
    let has_absolute = values.iter().filter(|&&value| value >> 31 != 0).count() > count / 2;
    let mut symbols = Symbols::default();
    let mut name = Vec::new();
    for (value, start) in values.into_iter().zip(ends) {
        name.clear();
        let (compressed, _) = name_at(image, start)?;
        for &token in compressed {
            name.extend_from_slice(tokens.text(image, token));
        }
        name.truncate(NAME_MAX);
        let Some((&kind, text)) = name.split_first() else { continue };
        let address = match value.cast_signed() {
            offset @ 0.. if has_absolute => offset as u64,
            offset if has_absolute => base.wrapping_sub(1).wrapping_sub(i64::from(offset) as u64),
            _ => base.wrapping_add(u64::from(value)),
        };
        let is_function = matches!(kind, b't' | b'T' | b'w' | b'W' | b'i');
        symbols.push(Address(address), &String::from_utf8_lossy(text), is_function);
    }
    symbols.sort();
    Some(symbols)
}

/// Returns a compressed name, and the offset after it. A length of 128 or more has two bytes.
fn name_at(image: &Image, at: usize) -> Option<(&[u8], usize)> {
    let first = usize::from(*image.bytes.get(at)?);
    let (start, length) = if first & 0x80 == 0 {
        (at + 1, first)
    } else {
        (at + 2, first & 0x7f | usize::from(*image.bytes.get(at + 1)?) << 7)
    };
    let end = start.checked_add(length).filter(|_| length > 0)?;
    Some((image.bytes.get(start..end)?, end))
}
