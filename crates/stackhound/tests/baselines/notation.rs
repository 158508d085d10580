//! The notation of values in TraceEvent's output. `docs/baselines.md` describes which values count
//! as equal.

use stackhound::schema::{Field, Item, Map, MapKind, OutType, Value};

/// Values are truncated after this number of UTF-16 units.
const MAX_UNITS: usize = 20;

/// Whether a text of TraceEvent is one of these, truncated.
pub fn shows(text: &str, notations: &[String]) -> bool {
    notations.iter().any(|whole| cut(whole) == text)
}

/// A text as printed in a line: truncated, and with escaped line ends.
fn cut(text: &str) -> String {
    let units: Vec<u16> = text.encode_utf16().collect();
    let shown = match units.get(..MAX_UNITS) {
        Some(start) if units.len() > MAX_UNITS => format!("{}...", String::from_utf16_lossy(start)),
        _ => text.to_owned(),
    };
    shown.replace('\n', "\\n").replace('\r', "\\r")
}

/// The possible notations of a field, our own last. Empty for arrays and structures.
pub fn of(field: &Field, item: &Item<'_>) -> Vec<String> {
    let Some(value) = item.value() else { return Vec::new() };
    let mut all = match value {
        Value::Unsigned(number) | Value::Hex(number) | Value::Pointer(number) => match field.out_type {
            OutType::Boolean => vec![truth(number != 0)],
            OutType::Port => vec![grouped(u64::from((number as u16).swap_bytes()))],
            _ => of_number(number),
        },
        Value::Bool(value) => vec![truth(value)],
        Value::Signed(number) => {
            let sign = if number < 0 { "-" } else { "" };
            vec![format!("{sign}{}", grouped(number.unsigned_abs()))]
        }
        Value::FileTime(_) | Value::SystemTime(_) => vec![date(&field.render(value).to_string())],
        _ => Vec::new(),
    };
    if let (Some(map), Some(number)) = (&field.map, value.as_u64()) {
        all.extend(names(map, number));
    }
    all.push(field.render(value).to_string());
    all
}

/// Plain, in groups of three digits, or as an address.
pub fn of_number(number: u64) -> Vec<String> {
    vec![grouped(number), format!("0x{number:08x}"), number.to_string()]
}

pub fn truth(value: bool) -> String {
    if value { "True".to_owned() } else { "False".to_owned() }
}

/// With a comma between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// From `2020-07-29T00:07:10.6935923Z` to `20/07/29 00:07:10.693592`.
pub fn date(rfc3339: &str) -> String {
    let end = rfc3339.len().saturating_sub(2);
    rfc3339.get(2..end).unwrap_or_default().replace('-', "/").replace('T', " ")
}

/// The name of a number, or the names of its bits in ascending order if all set bits have one.
/// Names of several bits do not repeat bits that are already named. Bits of manifests are joined
/// with a bar, those of Microsoft's own classes with a comma.
fn names(map: &Map, number: u64) -> Vec<String> {
    if map.kind == MapKind::Values {
        return map.value_name(number).map(str::to_owned).into_iter().collect();
    }
    if number == 0 {
        return vec!["None".to_owned()];
    }
    let mut entries: Vec<_> = map.entries.iter().map(|(mask, name)| (u64::from(*mask), &**name)).collect();
    entries.sort();
    let mut unnamed = number;
    entries.retain(|(mask, _)| {
        let adds_bits = number & mask == *mask && unnamed & mask != 0;
        if adds_bits {
            unnamed &= !mask;
        }
        adds_bits
    });
    if unnamed != 0 {
        return Vec::new();
    }
    let names: Vec<_> = entries.into_iter().map(|(_, name)| name).collect();
    vec![names.join("|"), names.join(", ")]
}

#[test]
fn values_are_cut() {
    for (text, expected) in [
        ("12345678901234567890", "12345678901234567890"),
        ("123456789012345678901", "12345678901234567890..."),
        ("a\r\nb", "a\\r\\nb"),
        ("ä2345678901234567890", "ä2345678901234567890"),
    ] {
        assert_eq!(cut(text), expected);
    }
}

#[test]
fn numbers_and_dates() {
    for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (83_951_626, "83,951,626")] {
        assert_eq!(grouped(number), expected);
    }
    assert_eq!(date("2020-07-29T00:07:10.6935923Z"), "20/07/29 00:07:10.693592");
}

#[test]
fn flags_by_rising_value() {
    let entries = [(7, "All"), (4, "C"), (1, "A"), (2, "B")].map(|(mask, name)| (mask, name.into())).into();
    let map = Map { name: "Flags".into(), kind: MapKind::Bits, entries };
    for (number, expected) in [(0, Some("None")), (5, Some("A, C")), (7, Some("A, B, C")), (12, None)] {
        assert_eq!(names(&map, number).last().map(String::as_str), expected);
    }
}
