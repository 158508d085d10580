//! Elements of the Distinguished Encoding Rules, and limits for everything that is decoded.
//!
//! The parts that are signed must be hashed as they are in the file, so they are located with
//! [`Element`] before their contents are decoded.

use der::Decode;
use der::asn1::ObjectIdentifier;

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
/// The tags `[0]` and `[1]`, constructed.
pub(super) const CONTEXT_0: u8 = 0xa0;
pub(super) const CONTEXT_1: u8 = 0xa1;

/// Maximum size of a signature with its certificates, in bytes.
const SIZE_MAX: usize = 4 << 20;
/// Maximum nesting of elements.
const DEPTH_MAX: usize = 48;
/// Maximum number of elements.
const ELEMENTS_MAX: usize = 1 << 17;
/// Maximum number of elements in a set. Sets are sorted when they are decoded, in quadratic time.
const SET_MAX: usize = 128;

/// An element: tag, length and contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub tag: u8,
    /// The element as a whole.
    pub whole: &'a [u8],
    /// Its contents.
    pub contents: &'a [u8],
}

impl<'a> Element<'a> {
    /// Takes the first element of some bytes.
    pub fn take(bytes: &mut &'a [u8]) -> Option<Element<'a>> {
        let (tag, length) = (*bytes.first()?, *bytes.get(1)?);
        // Tags of several bytes do not occur here.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (start, length) = match length {
            0..=0x7f => (2, usize::from(length)),
            0x81..=0x84 => {
                let digits = bytes.get(2..2 + usize::from(length & 0x0f))?;
                let value = digits.iter().fold(0_usize, |value, digit| value << 8 | usize::from(*digit));
                (2 + digits.len(), value)
            }
            // An indefinite length is not allowed in this encoding.
            _ => return None,
        };
        let end = start.checked_add(length)?;
        let whole = bytes.get(..end)?;
        *bytes = &bytes[end..];
        Some(Element { tag, whole, contents: &whole[start..] })
    }

    /// Takes the first element, which must have this tag.
    pub fn expect(bytes: &mut &'a [u8], tag: u8) -> Option<Element<'a>> {
        Element::take(bytes).filter(|element| element.tag == tag)
    }

    /// Takes the first element if it has this tag.
    pub fn optional(bytes: &mut &'a [u8], tag: u8) -> Option<Element<'a>> {
        if bytes.first() == Some(&tag) { Element::take(bytes) } else { None }
    }

    /// The elements in its contents. Ends at the first invalid one.
    pub fn children(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let mut rest = self.contents;
        std::iter::from_fn(move || Element::take(&mut rest))
    }

    /// The object identifier that it encodes.
    pub fn oid(&self) -> Option<ObjectIdentifier> {
        ObjectIdentifier::from_der(self.whole).ok()
    }
}

/// The first element of the bytes, if its size, nesting and numbers of elements are within the
/// limits. Bytes after it are padding.
pub(super) fn limited(bytes: &[u8]) -> Option<Element<'_>> {
    let element = Element::take(&mut &*bytes).filter(|element| element.whole.len() <= SIZE_MAX)?;
    // The unread rest of each open element, and the number of elements that it may still contain.
    let mut open = vec![(element.contents, SET_MAX)];
    let mut elements = 0;
    while let Some((rest, left)) = open.last_mut() {
        if rest.is_empty() {
            open.pop();
            continue;
        }
        let child = Element::take(rest)?;
        *left = left.checked_sub(1)?;
        elements += 1;
        if elements > ELEMENTS_MAX {
            return None;
        }
        const CONSTRUCTED: u8 = 0x20;
        if child.tag & CONSTRUCTED != 0 {
            if open.len() >= DEPTH_MAX {
                return None;
            }
            // Sequences of any length occur, in lists of revoked certificates.
            let max = if child.tag == SEQUENCE { ELEMENTS_MAX } else { SET_MAX };
            open.push((child.contents, max));
        }
    }
    Some(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = contents.len() as u32;
        [&[tag, 0x84], &length.to_be_bytes()[..], contents].concat()
    }

    #[test]
    fn limits_hold() {
        let null: &[u8] = &[5, 0];
        let nested = |depth| (0..depth).fold(null.to_vec(), |inner, _| element(SEQUENCE, &inner));
        for (name, bytes, is_within) in [
            ("a sequence", element(SEQUENCE, &null.repeat(1000)), false),
            ("a sequence in a sequence", element(SEQUENCE, &element(SEQUENCE, &null.repeat(1000))), true),
            ("a set", element(SEQUENCE, &element(SET, &null.repeat(SET_MAX))), true),
            ("a large set", element(SEQUENCE, &element(SET, &null.repeat(SET_MAX + 1))), false),
            ("many elements", element(SEQUENCE, &element(SEQUENCE, &null.repeat(ELEMENTS_MAX + 1))), false),
            ("nested", nested(DEPTH_MAX), true),
            ("nested deeply", nested(DEPTH_MAX + 1), false),
            ("truncated", element(SEQUENCE, null)[..7].to_vec(), false),
            ("indefinite length", vec![SEQUENCE, 0x80, 0, 0], false),
            ("with padding", [element(SEQUENCE, null), vec![0; 7]].concat(), true),
        ] {
            assert_eq!(limited(&bytes).is_some(), is_within, "{name}");
        }
    }
}
