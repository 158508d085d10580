//! Pseudonyms for the names of people and computers in the records of a trace.
//!
//! Names are learned from the trace: the folders of user profiles, in any text, and the fields that name
//! a user, an account, a domain or a computer. Each name is then replaced wherever it is a word of its
//! own, in UTF-16 and in UTF-8, whatever the case of its letters. Security identifiers of users and
//! domains (S-1-5-21-…) are replaced as bytes and as texts.
//!
//! A pseudonym has the size of the name, so that no record changes its layout. Equal names have equal
//! pseudonyms. They follow from a random key, which is never written. Names that many machines have, such as
//! `Public`, and numbers of groups and built-in accounts stay.
//!
//! This module does not find names that the trace states nowhere as names, parts of names, and texts in
//! other encodings or in compressed or encrypted data.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::ops::Range;

use stackhound_schema::{Item, Value};
use stackhound_trace::Event;

use crate::event_view::EventView;
use crate::trace_state::{SchemaRef, TraceState};

/// Names that many machines have, and that identify no person or computer, in lower case.
const GENERIC: [&str; 32] = [
    "admin",
    "administrator",
    "all users",
    "anonymous logon",
    "builtin",
    "default",
    "default user",
    "defaultaccount",
    "defaultuser0",
    "font driver host",
    "guest",
    "gast",
    "local",
    "local service",
    "localhost",
    "localsystem",
    "network service",
    "networkservice",
    "localservice",
    "nt authority",
    "nt service",
    "none",
    "owner",
    "public",
    "root",
    "service",
    "system",
    "user",
    "users",
    "window manager",
    "windows",
    "workgroup",
];

/// The names of fields that name a user, an account, a domain or a computer, in lower case.
const FIELDS: [&str; 20] = [
    "accountdomain",
    "accountname",
    "clientname",
    "computer",
    "computername",
    "domain",
    "domainname",
    "hostname",
    "machinename",
    "samaccountname",
    "servername",
    "subjectdomainname",
    "subjectusername",
    "targetdomainname",
    "targetusername",
    "user",
    "userdomain",
    "username",
    "userprincipalname",
    "workstation",
];

/// The folders of user profiles, in lower case, up to the name.
const PROFILES: [&str; 2] = ["\\users\\", "\\documents and settings\\"];

/// A name of one letter cannot be distinguished from other texts.
const NAME_MIN: usize = 2;
/// The longest names of accounts and computers that are learned, in UTF-16 units.
const NAME_MAX: usize = 256;
/// Maximum number of names, and of numbers in security identifiers.
const LEARNED_MAX: usize = 1 << 16;

/// The beginning of a security identifier of a user or a domain, after the revision and the number of
/// its parts: authority 5, part 21.
const SID_START: [u8; 10] = [0, 0, 0, 0, 0, 5, 21, 0, 0, 0];
const SID_TEXT: &str = "s-1-5-21-";
/// Relative numbers below belong to built-in accounts and groups.
const FIRST_USER: u32 = 1000;

/// A name in lower case, and its pseudonym, in both encodings.
#[derive(Debug)]
struct Name {
    wide: [Vec<u16>; 2],
    narrow: [Vec<u8>; 2],
}

/// Learns names, and replaces them.
#[derive(Debug, Default)]
pub struct Pseudonyms {
    key: RandomState,
    names: Vec<Name>,
    /// All names and all pseudonyms.
    known: HashSet<Vec<u16>>,
    /// The names that begin with a unit, longest first.
    by_unit: HashMap<u16, Vec<usize>>,
    by_byte: HashMap<u8, Vec<usize>>,
    numbers: HashMap<u32, u32>,
    given: HashSet<u32>,
    is_full: bool,
    undescribed: u64,
}

impl Pseudonyms {
    /// Learns the names that an event states.
    pub fn learn(&mut self, view: &EventView<'_>) {
        let payload = view.payload();
        for parity in 0..2 {
            let units: Vec<u16> = units(payload.get(parity..).unwrap_or_default()).collect();
            self.learn_profiles(&units);
        }
        let narrow: Vec<u16> = payload.iter().map(|&byte| byte.into()).collect();
        self.learn_profiles(&narrow);
        for decoded in view.fields().into_iter().flatten().map_while(Result::ok) {
            let name = decoded.field.name.to_ascii_lowercase();
            if FIELDS.contains(&&*name)
                && let Some(text) =
                    decoded.item.value().and_then(|value| value.text().map(|t| t.into_owned()))
            {
                text.split(['\\', '@', '\0', '/']).for_each(|part| self.learn_name(part));
            }
        }
    }

    /// Learns the names of the profile folders in a text.
    fn learn_profiles(&mut self, text: &[u16]) {
        for start in 0..text.len() {
            if !is_unit(text[start], b'\\') && !is_unit(text[start], b'/') {
                continue;
            }
            for folder in PROFILES {
                if starts_with(&text[start..], folder) {
                    let name = &text[start + folder.len()..];
                    let is_end = |unit: &u16| {
                        *unit < 0x20 || u8::try_from(*unit).is_ok_and(|unit| b"\\/:*?\"<>|".contains(&unit))
                    };
                    let end = name.iter().position(is_end).unwrap_or(name.len());
                    self.learn_name(&String::from_utf16_lossy(&name[..end]));
                }
            }
        }
    }

    /// Learns a name, unless it is known or one that many machines have.
    pub fn learn_name(&mut self, name: &str) {
        let lower = name.trim().to_lowercase();
        let wide: Vec<u16> = lower.encode_utf16().collect();
        let is_word = lower.chars().any(char::is_alphabetic) && !lower.contains('\u{fffd}');
        if !(NAME_MIN..=NAME_MAX).contains(&wide.len()) || !is_word || GENERIC.contains(&&*lower) {
            return;
        }
        if self.known.contains(&wide) {
            return;
        }
        if self.names.len() >= LEARNED_MAX {
            self.is_full = true;
            return;
        }
        let pseudonym = (0..u32::MAX).map(|attempt| self.pseudonym(&wide, attempt));
        let Some(pseudonym) = pseudonym.take(1 << 10).find(|new| !self.known.contains(new)) else { return };
        let narrow = lower.into_bytes();
        let letters: Vec<u8> = pseudonym.iter().map(|&unit| unit as u8).collect();
        // Of a name that is not ASCII, each byte becomes a letter.
        let replaced = match narrow.len() == letters.len() {
            true => letters,
            false => letters.iter().copied().cycle().take(narrow.len()).collect(),
        };
        let (first_unit, first_byte, number) = (wide[0], narrow[0], self.names.len());
        self.known.extend([wide.clone(), pseudonym.clone()]);
        self.names.push(Name { wide: [wide, pseudonym], narrow: [narrow, replaced] });
        let Pseudonyms { names, by_unit, by_byte, .. } = self;
        for list in [by_unit.entry(first_unit).or_default(), by_byte.entry(first_byte).or_default()] {
            list.push(number);
            list.sort_by_key(|&name| std::cmp::Reverse(names[name].wide[0].len()));
        }
    }

    /// Letters instead of letters and digits. Other characters of ASCII stay.
    fn pseudonym(&self, name: &[u16], attempt: u32) -> Vec<u16> {
        let letter = |(at, &unit): (usize, &u16)| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() && !byte.is_ascii_alphanumeric() => unit,
            _ => u16::from(b'a') + (self.key.hash_one((name, attempt, at)) % 26) as u16,
        };
        name.iter().enumerate().map(letter).collect()
    }

    /// Whether there were more names than can be kept.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The number of names.
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// The number of records without a description, of which all bytes were searched.
    pub fn undescribed(&self) -> u64 {
        self.undescribed
    }

    /// Replaces all names in the bytes of a record of a trace, from its header on.
    pub fn replace(&mut self, known: &TraceState, event: &Event<'_>, bytes: &mut [u8]) {
        let record = event.record();
        self.replace_sids(bytes);
        let (whole, payload) = (record.bytes(), record.payload());
        let start = payload.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
        let Some(bytes) = bytes.get_mut(start..start + payload.len()) else { return };
        for range in self.texts(known, event, payload) {
            if let Some(text) = bytes.get_mut(range) {
                self.replace_text(text);
            }
        }
    }

    /// The ranges of a payload that can contain texts: all bytes but numbers.
    fn texts(&mut self, known: &TraceState, event: &Event<'_>, payload: &[u8]) -> Vec<Range<usize>> {
        let schema = known.schema_of(event);
        let mut texts = Vec::new();
        let Some(plan) = schema.as_ref().and_then(SchemaRef::plan) else {
            self.undescribed += u64::from(!payload.is_empty());
            texts.push(0..payload.len());
            return texts;
        };
        let mut decoder = plan.decode(payload, event.record().pointer_size());
        let mut start = decoder.offset();
        while let Some(Ok(decoded)) = decoder.next() {
            let end = decoder.offset();
            let is_number = match &decoded.item {
                Item::Value(value) => is_number(value),
                Item::Array(array) => array
                    .into_iter()
                    .next()
                    .is_some_and(|first| first.value().is_some_and(|value| is_number(&value))),
                Item::Struct(_) => false,
            };
            if !is_number {
                texts.push(start..end);
            }
            start = end;
        }
        texts.push(start..payload.len());
        texts
    }

    /// Replaces the names in a text that is not part of a record.
    pub fn replaced(&mut self, text: &str) -> String {
        let mut bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        self.replace_text(&mut bytes);
        String::from_utf16_lossy(&units(&bytes).collect::<Vec<u16>>())
    }

    fn replace_text(&mut self, bytes: &mut [u8]) {
        for parity in 0..2 {
            if let Some(bytes) = bytes.get_mut(parity..) {
                self.replace_units(bytes, 2);
            }
        }
        self.replace_units(bytes, 1);
    }

    /// Replaces names and identifiers in text of units of one or two bytes.
    fn replace_units(&mut self, bytes: &mut [u8], size: usize) {
        let unit = |bytes: &[u8], at: usize| match size {
            1 => bytes.get(at).map(|&byte| u16::from(byte)),
            _ => bytes.get(at..at + 2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])),
        };
        let is_word = |unit: Option<u16>| {
            unit.is_some_and(|unit| u8::try_from(unit).is_ok_and(|unit| unit.is_ascii_alphanumeric()))
        };
        // Bytes of letters that are not ASCII depend on the encoding.
        let lower_of =
            |unit: u16| if size == 1 { u16::from((unit as u8).to_ascii_lowercase()) } else { lower(unit) };
        let mut at = 0;
        let mut is_inside = false;
        while let Some(current) = unit(bytes, at) {
            let was_inside = std::mem::replace(&mut is_inside, is_word(Some(current)));
            if was_inside {
                at += size;
                continue;
            }
            if is_unit(current, b'S') || is_unit(current, b's') {
                self.replace_sid_text(&mut bytes[at..], size);
            }
            let lower = lower_of(current);
            let candidates = match size {
                1 => self.by_byte.get(&(lower as u8)),
                _ => self.by_unit.get(&lower),
            };
            let fits = |name: &&usize| {
                let name = &self.names[**name];
                let length = if size == 1 { name.narrow[0].len() } else { name.wide[0].len() };
                let of_name = |at: usize| match size {
                    1 => u16::from(name.narrow[0][at]),
                    _ => name.wide[0][at],
                };
                let is_equal = |index: usize| {
                    unit(bytes, at + index * size).is_some_and(|unit| lower_of(unit) == of_name(index))
                };
                (0..length).all(is_equal) && !is_word(unit(bytes, at + length * size))
            };
            if let Some(&name) = candidates.and_then(|candidates| candidates.iter().find(fits)) {
                let name = &self.names[name];
                let length = if size == 1 { name.narrow[1].len() } else { name.wide[1].len() };
                for index in 0..length {
                    let place = at + index * size;
                    let is_upper = unit(bytes, place).is_some_and(|unit| lower_of(unit) != unit);
                    let letter = if size == 1 { name.narrow[1][index] } else { name.wide[1][index] as u8 };
                    bytes[place] = if is_upper { letter.to_ascii_uppercase() } else { letter };
                    if size == 2 {
                        bytes[place + 1] = 0;
                    }
                }
                at += length * size;
                is_inside = false;
                continue;
            }
            at += size;
        }
    }

    /// Replaces the numbers of a security identifier as text, if one begins here.
    fn replace_sid_text(&mut self, bytes: &mut [u8], size: usize) {
        let byte = |bytes: &[u8], index: usize| {
            let unit = bytes.get(index * size..(index + 1) * size)?;
            (size == 1 || unit[1] == 0).then_some(unit[0])
        };
        let is_sid = SID_TEXT.bytes().enumerate();
        if !is_sid.into_iter().all(|(at, c)| byte(bytes, at).is_some_and(|b| b.to_ascii_lowercase() == c)) {
            return;
        }
        let mut index = SID_TEXT.len();
        for part in 0..4 {
            let digits: Vec<u8> =
                (index..index + 10).map_while(|at| byte(bytes, at)).take_while(u8::is_ascii_digit).collect();
            let text = std::str::from_utf8(&digits).unwrap_or_default();
            let Ok(number) = text.parse::<u32>() else { return };
            // Numbers are written without zeros in front.
            let new = self.number(number, part).to_string();
            if new.len() == digits.len() {
                for (at, digit) in new.bytes().enumerate() {
                    bytes[(index + at) * size] = digit;
                }
            }
            index += digits.len();
            if byte(bytes, index) != Some(b'-') {
                return;
            }
            index += 1;
        }
    }

    /// Replaces security identifiers of users and domains, wherever they are.
    fn replace_sids(&mut self, bytes: &mut [u8]) {
        let mut from = 0;
        while let Some(found) = bytes[from..].windows(SID_START.len()).position(|start| start == SID_START) {
            let start = from + found;
            from = start + SID_START.len();
            // Revision 1, and the number of parts.
            let Some(&[1, count @ 4..=5]) = start.checked_sub(2).and_then(|head| bytes.get(head..start))
            else {
                continue;
            };
            for part in 0..usize::from(count) - 1 {
                let at = from + 4 * part;
                let Some(number) = bytes.get(at..at + 4).and_then(|number| number.try_into().ok()) else {
                    break;
                };
                let new = self.number(u32::from_le_bytes(number), part);
                bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
            }
        }
    }

    /// The pseudonym of a part of a security identifier, with as many digits.
    fn number(&mut self, number: u32, part: usize) -> u32 {
        if part == 3 && number < FIRST_USER {
            return number;
        }
        if let Some(&new) = self.numbers.get(&number) {
            return new;
        }
        let digits = number.checked_ilog10().unwrap_or(0);
        let least = 10_u32.pow(digits);
        let most = u32::try_from(10_u64.pow(digits + 1) - 1).unwrap_or(u32::MAX);
        let attempts = (0..1_u32 << 10).map(|attempt| {
            least + (self.key.hash_one((number, attempt)) % u64::from(most - least + 1)) as u32
        });
        let new = attempts.clone().find(|new| !self.given.contains(new)).or_else(|| attempts.clone().next());
        let new = new.unwrap_or(least);
        if self.numbers.len() < LEARNED_MAX {
            self.numbers.insert(number, new);
            self.given.insert(new);
        }
        new
    }
}

fn units(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit))
}

fn is_unit(unit: u16, byte: u8) -> bool {
    unit == u16::from(byte)
}

/// Whether a text begins with a text in lower case. Both kinds of slashes are equal.
fn starts_with(text: &[u16], start: &str) -> bool {
    let same = |(unit, expected): (&u16, u8)| {
        let unit = if is_unit(*unit, b'/') { b'\\'.into() } else { lower(*unit) };
        is_unit(unit, expected)
    };
    text.len() >= start.len() && text.iter().zip(start.bytes()).all(same)
}

/// A unit in lower case, if that is one unit.
fn lower(unit: u16) -> u16 {
    let Some(letter) = char::from_u32(unit.into()) else { return unit };
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => u16::try_from(u32::from(lower)).unwrap_or(unit),
        _ => unit,
    }
}

fn is_number(value: &Value<'_>) -> bool {
    !matches!(value, Value::Utf16(_) | Value::Ansi(_) | Value::Binary(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn names_are_replaced_where_they_are_words() {
        let mut pseudonyms = Pseudonyms::default();
        let path: Vec<u16> =
            r"\Device\X\Users\Ada Byron\a.txt \Users\Public\b c:/users/ada/c".encode_utf16().collect();
        pseudonyms.learn_profiles(&path);
        assert_eq!(pseudonyms.names(), 2);
        let ada = pseudonyms.replaced("ada");
        assert!(ada != "ada" && ada.len() == 3 && ada.bytes().all(|byte| byte.is_ascii_lowercase()));
        let upper = ada.to_uppercase();
        for (text, expected) in [
            (r"C:\Users\ADA\x", format!(r"C:\Users\{upper}\x")),
            ("metadata adam ada.txt ada_1", format!("metadata adam {ada}.txt {ada}_1")),
            (r"C:\Users\Public\Documents", r"C:\Users\Public\Documents".to_owned()),
            ("", String::new()),
        ] {
            assert_eq!(pseudonyms.replaced(text), expected);
            let mut narrow = text.as_bytes().to_vec();
            pseudonyms.replace_text(&mut narrow);
            assert_eq!(narrow, expected.as_bytes());
            // At an odd offset.
            let mut shifted = [&[7][..], &utf16(text)].concat();
            pseudonyms.replace_text(&mut shifted);
            assert_eq!(shifted[1..], utf16(&expected));
        }
        let whole = pseudonyms.replaced("Ada Byron");
        assert!(!whole.to_lowercase().contains(&ada) && whole.as_bytes()[3] == b' ', "{whole}");
    }

    #[test]
    fn identifiers_of_users_are_replaced_as_bytes_and_as_texts() {
        let mut pseudonyms = Pseudonyms::default();
        let text = "S-1-5-21-1004336348-1177238915-682003330-1001";
        let new = pseudonyms.replaced(text);
        assert!(new.len() == text.len() && new != text && new.starts_with("S-1-5-21-"), "{new}");
        let parts =
            |text: &str| -> Vec<u32> { text.split('-').skip(4).map(|part| part.parse().unwrap()).collect() };
        let bytes = |text: &str| {
            let parts = parts(text).into_iter().flat_map(u32::to_le_bytes);
            [1, 5].into_iter().chain(SID_START).chain(parts).collect::<Vec<u8>>()
        };
        let mut binary = bytes(text);
        pseudonyms.replace_sids(&mut binary);
        assert_eq!(binary, bytes(&new));
        for (old, new) in parts(text).into_iter().zip(parts(&new)) {
            assert_ne!(old, new);
        }
        // Groups of the domain, and accounts of Windows.
        let group = pseudonyms.replaced("S-1-5-21-1004336348-1177238915-682003330-513");
        assert_eq!(parts(&group)[..3], parts(&new)[..3]);
        assert!(group.ends_with("-513"));
        for other in ["S-1-5-18", "S-1-5-32-544", "S-1-5-21-", "S-1-5-21-99999999999-1"] {
            assert_eq!(pseudonyms.replaced(other), other);
        }
    }
}
