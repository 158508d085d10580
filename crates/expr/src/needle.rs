//! Text that is looked for in text of any encoding, with or without case.

use crate::encoding::Text;
use crate::syntax::Case;

/// A literal, prepared for the encodings in which events carry text. Nothing is allocated per
/// comparison.
///
/// Nearly all comparisons are of whole units (bytes or UTF-16 units) with units. The rest goes
/// character by character.
#[derive(Clone, Debug)]
pub(crate) struct Needle {
    /// In the form of `case`, so that only the event's text is folded per event.
    text: Box<str>,
    case: Case,
    is_ascii: bool,
    /// Its UTF-16LE units, if equal text has equal units: not if U+FFFD also represents ill-formed
    /// units.
    units: Option<Box<[[u8; 2]]>>,
}

/// Which part of the text the needle has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Whole,
    Start,
    End,
    Anywhere,
}

impl Needle {
    pub(crate) fn new(literal: &str, case: Case) -> Self {
        let text = case.prepare(literal);
        let units = || text.encode_utf16().map(u16::to_le_bytes).collect();
        let comparable = case == Case::Sensitive && !text.contains(char::REPLACEMENT_CHARACTER);
        Self { is_ascii: text.is_ascii(), units: comparable.then(units), case, text }
    }

    /// The literal in the form of its case.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether and how case counts.
    pub(crate) fn case(&self) -> Case {
        self.case
    }

    /// Whether the needle is this part of `text`. Time is at most the product of both lengths.
    pub(crate) fn is_in(&self, part: Part, text: Text<'_>) -> bool {
        let ascii = self.text.as_bytes();
        match (text, self.case) {
            (Text::Utf8(text), Case::Sensitive) => match part {
                Part::Whole => *text == *self.text,
                Part::Start => text.starts_with(&*self.text),
                Part::End => text.ends_with(&*self.text),
                Part::Anywhere => text.contains(&*self.text),
            },
            (Text::Utf16(units), Case::Sensitive) if let Some(own) = &self.units => {
                part.is(units, own, |unit, own| unit == own)
            }
            (Text::Latin1(bytes), Case::Sensitive) if self.is_ascii => {
                part.is(bytes, ascii, |byte, own| byte == own)
            }
            // Nothing outside ASCII is folded into it, and the bytes of other characters in UTF-8
            // are outside.
            (Text::Utf8(text), Case::Ignored) if self.is_ascii => {
                part.is(text.as_bytes(), ascii, |byte, own| byte.to_ascii_uppercase() == *own)
            }
            (Text::Latin1(bytes), Case::Ignored) if self.is_ascii => {
                part.is(bytes, ascii, |byte, own| byte.to_ascii_uppercase() == *own)
            }
            (Text::Utf16(units), Case::Ignored) if self.is_ascii => {
                part.is(units, ascii, |[low, high], own| *high == 0 && low.to_ascii_uppercase() == *own)
            }
            _ => self.is_in_characters(part, text),
        }
    }

    fn is_in_characters(&self, part: Part, text: Text<'_>) -> bool {
        let case = self.case;
        part.is_of(text.characters().map(|character| case.fold(character)), self.text.chars())
    }
}

/// Whether one text of an event is this part of another.
pub(crate) fn is_part(part: Part, case: Case, text: Text<'_>, own: Text<'_>) -> bool {
    let fold = |character| case.fold(character);
    part.is_of(text.characters().map(fold), own.characters().map(fold))
}

impl Part {
    /// Whether `own` is this part of `text`, both as characters.
    fn is_of<T, O>(self, mut text: T, own: O) -> bool
    where
        T: DoubleEndedIterator<Item = char> + Clone,
        O: DoubleEndedIterator<Item = char> + Clone,
    {
        match self {
            Self::Whole => text.eq(own),
            Self::Start => starts_with(text, own),
            Self::End => starts_with(text.rev(), own.rev()),
            Self::Anywhere => loop {
                if starts_with(text.clone(), own.clone()) {
                    break true;
                }
                if text.next().is_none() {
                    break false;
                }
            },
        }
    }

    /// Whether `own` is this part of `text`, both as units.
    fn is<T, O>(self, text: &[T], own: &[O], same: impl Fn(&T, &O) -> bool) -> bool {
        let all_same = |text: &[T], own: &[O]| text.iter().zip(own).all(|(text, own)| same(text, own));
        let Some(spare) = text.len().checked_sub(own.len()) else { return false };
        match self {
            Self::Whole => spare == 0 && all_same(text, own),
            Self::Start => all_same(text, own),
            Self::End => all_same(&text[spare..], own),
            Self::Anywhere => {
                let Some((first, rest)) = own.split_first() else { return true };
                let mut starts = text[..=spare].iter().enumerate().filter(|(_, unit)| same(unit, first));
                starts.any(|(at, _)| all_same(&text[at + 1..], rest))
            }
        }
    }
}

fn starts_with(mut text: impl Iterator<Item = char>, mut prefix: impl Iterator<Item = char>) -> bool {
    prefix.all(|expected| text.next() == Some(expected))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTS: [Part; 4] = [Part::Whole, Part::Start, Part::End, Part::Anywhere];

    fn by_definition(part: Part, text: &str, own: &str) -> bool {
        match part {
            Part::Whole => text == own,
            Part::Start => text.starts_with(own),
            Part::End => text.ends_with(own),
            Part::Anywhere => text.contains(own),
        }
    }

    fn fold(text: &str) -> String {
        Case::Ignored.prepare(text).into()
    }

    proptest! {
        #[test]
        fn all_encodings_agree_with_copies(own in "[aAäÄßb\u{1f600}\u{fffd}]{0,3}", text in "[aAäÄßb\u{1f600}]{0,8}") {
            let units: Vec<[u8; 2]> = text.encode_utf16().map(u16::to_le_bytes).collect();
            let bytes: Vec<u8> = text.chars().map(|character| u32::from(character) as u8).collect();
            let latin1: String = bytes.iter().map(|&byte| char::from(byte)).collect();
            for part in PARTS {
                let sensitive = Needle::new(&own, Case::Sensitive);
                let ignoring = Needle::new(&own, Case::Ignored);
                for (text, copy) in [
                    (Text::Utf8(&text), &text),
                    (Text::Utf16(&units), &text),
                    (Text::Latin1(&bytes), &latin1),
                ] {
                    prop_assert_eq!(sensitive.is_in(part, text), by_definition(part, copy, &own), "{:?}", text);
                    let expected = by_definition(part, &fold(copy), &fold(&own));
                    prop_assert_eq!(ignoring.is_in(part, text), expected, "{:?}", text);
                }
            }
        }

        #[test]
        fn ill_formed_units_read_as_the_replacement_character(
            own in "[a\u{fffd}\u{1f600}]{0,2}",
            source in prop::collection::vec(prop_oneof![Just(0x61_u16), Just(0xd83d), Just(0xde00), Just(0xfffd)], 0..6),
        ) {
            let units: Vec<[u8; 2]> = source.iter().map(|unit| unit.to_le_bytes()).collect();
            let copy = String::from_utf16_lossy(&source);
            for part in PARTS {
                let needle = Needle::new(&own, Case::Sensitive);
                prop_assert_eq!(needle.is_in(part, Text::Utf16(&units)), by_definition(part, &copy, &own), "{:?}", part);
            }
        }
    }
}
