//! The three projects: the formats of their files and of their values.

use serde_json::Value as Json;
use stackhound_types::Guid;

use super::decoded::DecodedValue;
use super::readings::{Reading, catapult, fibratus, snail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// Values as JavaScript literals.
    Catapult,
    /// Values as C++ literals.
    Snail,
    /// Values as Go literals.
    Fibratus,
}

/// One payload.
pub struct Record {
    /// The name of the record in the project.
    pub name: String,
    pub payload: Vec<u8>,
    /// Class, opcode, version, and whether the system has 64 bits, if the file contains them.
    pub event: Option<(Guid, u8, u8, bool)>,
    pub expectations: Vec<Expectation>,
}

/// A value that the project expects.
#[derive(Debug)]
pub struct Expectation {
    /// The expression that the project tests.
    pub name: String,
    /// The value as it is written in the test.
    pub text: String,
}

impl Upstream {
    pub const ALL: [Upstream; 3] = [Upstream::Catapult, Upstream::Snail, Upstream::Fibratus];

    pub fn file(self) -> &'static str {
        match self {
            Upstream::Catapult => "catapult.json",
            Upstream::Snail => "snail.json",
            Upstream::Fibratus => "fibratus.json",
        }
    }

    pub fn readings(self) -> &'static [Reading] {
        match self {
            Upstream::Catapult => catapult::READINGS,
            Upstream::Snail => snail::READINGS,
            Upstream::Fibratus => fibratus::READINGS,
        }
    }

    pub fn records(self, text: &str) -> Vec<Record> {
        let file: Json = serde_json::from_str(text).expect("a JSON file");
        file.as_array().expect("a list").iter().map(|record| self.record(record)).collect()
    }

    fn record(self, record: &Json) -> Record {
        let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
        let small = |key: &str| record[key].as_u64().unwrap_or_default() as u8;
        match self {
            Upstream::Catapult => Record {
                name: text("payload_name"),
                payload: hex(&text("payload_hex")),
                event: Some((
                    text("guid").parse().expect("a GUID"),
                    small("opcode"),
                    small("version"),
                    small("is64") != 0,
                )),
                expectations: record["expected"]
                    .as_object()
                    .expect("an object")
                    .iter()
                    .map(|(name, value)| Expectation { name: name.clone(), text: plain(value) })
                    .collect(),
            },
            Upstream::Snail | Upstream::Fibratus => Record {
                name: [text("test"), text("case")].join(" ").trim_end().to_owned(),
                payload: hex(&text("bytes_hex")),
                event: None,
                expectations: record["expected"].as_array().expect("a list").iter().map(pair).collect(),
            },
        }
    }

    /// The value in the form of this crate. The decoded value decides whether digits are a number
    /// or a text.
    pub fn value(self, expectation: &Expectation, ours: &DecodedValue) -> Option<DecodedValue> {
        let text = &*expectation.text;
        match (self, ours) {
            (Upstream::Catapult, DecodedValue::Text(_)) => Some(DecodedValue::Text(unescape(text))),
            // Numbers of 64 bits are written as 16 hexadecimal digits.
            (Upstream::Catapult, _) if text.len() == 16 => {
                i128::from_str_radix(text, 16).ok().map(DecodedValue::Number)
            }
            (Upstream::Catapult, _) => number(text),
            (Upstream::Snail, DecodedValue::List(_)) => list(between(text, "{", "})")?),
            (Upstream::Snail, DecodedValue::Text(_)) => quoted(text),
            (Upstream::Snail, _) => number(&text.replace('\'', "")),
            (Upstream::Fibratus, DecodedValue::List(_)) => list(between(text, "{", "}")?),
            (Upstream::Fibratus, DecodedValue::Text(_)) => match between(text, "`", "`") {
                Some(raw) => Some(DecodedValue::Text(raw.to_owned())),
                None => quoted(text),
            },
            (Upstream::Fibratus, _) => number(between(text, "(", ")")?),
        }
    }
}

/// Actual and expected value, in this order unless the actual one is a Boolean.
fn pair(pair: &Json) -> Expectation {
    let [first, second] = [&pair[0], &pair[1]].map(plain);
    match &*first {
        "true" => Expectation { name: second, text: first },
        _ => Expectation { name: first, text: second },
    }
}

fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn hex(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let (_, text) = text.split_once(start)?;
    text.strip_suffix(end)
}

/// A decimal number, or a hexadecimal one with `0x`. A suffix contains the type. `true` is 1.
fn number(text: &str) -> Option<DecodedValue> {
    if text == "true" {
        return Some(DecodedValue::Number(1));
    }
    let text = text.trim_end_matches("ULL");
    let value = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    value.ok().map(DecodedValue::Number)
}

fn list(text: &str) -> Option<DecodedValue> {
    let elements = text.split(", ").map(|element| number(&element.replace('\'', "")));
    elements.collect::<Option<Vec<_>>>().map(DecodedValue::List)
}

/// The text between the first and the last quotation mark.
fn quoted(text: &str) -> Option<DecodedValue> {
    let (_, text) = text.split_once('"')?;
    let (text, _) = text.rsplit_once('"')?;
    Some(DecodedValue::Text(unescape(text)))
}

/// Removes the backslash before backslashes and quotation marks.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        plain.extend(if char == '\\' { chars.next() } else { Some(char) });
    }
    plain
}
