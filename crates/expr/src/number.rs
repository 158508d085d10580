//! Numerals and how numbers of different kinds compare.
//!
//! The same numerals are read in the filter and in text fields, so that an address written as `0x…`
//! by either side means the same number.

use std::cmp::Ordering;

/// A number from a filter or from a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// Wide enough for every u64 and every i64.
    Integer(i128),
    /// Finite when it was parsed; whatever the event holds when it comes from a field.
    Float(f64),
}

impl Number {
    /// Reads a numeral. `None` if `text` is not one, or if its number is out of range.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !is_numeral(text) {
            return None;
        }
        let (negative, magnitude) = split_sign(text);
        if magnitude.contains('.') {
            return text.parse().ok().filter(|float: &f64| float.is_finite()).map(Self::Float);
        }
        let integer = match strip_hex_prefix(magnitude) {
            Some(digits) => i128::from_str_radix(digits, 16),
            None => magnitude.parse(),
        };
        integer.ok().map(|integer| Self::Integer(if negative { -integer } else { integer }))
    }

    /// Whether there are fields that have numbers this large: integers have 64 bits, with or
    /// without a sign.
    pub(crate) fn fits_fields(&self) -> bool {
        match self {
            Self::Integer(integer) => (i64::MIN.into()..=u64::MAX.into()).contains(integer),
            Self::Float(_) => true,
        }
    }

    /// Compares exactly, without rounding either side. `None` if one side is not a number (NaN).
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => Some(left.cmp(&right)),
            (Self::Float(left), Self::Float(right)) => left.partial_cmp(&right),
            (Self::Integer(left), Self::Float(right)) => compare_mixed(left, right),
            (Self::Float(left), Self::Integer(right)) => compare_mixed(right, left).map(Ordering::reverse),
        }
    }
}

/// Rounding an integer to a float keeps the order, so only a tie needs the exact integers. A float
/// that ties with an integer is whole.
fn compare_mixed(integer: i128, float: f64) -> Option<Ordering> {
    match (integer as f64).partial_cmp(&float) {
        // 2^127, to which the largest integers round, is itself beyond them all.
        Some(Ordering::Equal) if float == i128::MAX as f64 => Some(Ordering::Less),
        Some(Ordering::Equal) => Some(integer.cmp(&(float as i128))),
        order => order,
    }
}

/// Whether `text` has the form of a number: digits, `0x` and hexadecimal digits, or digits with a
/// fraction, each with an optional `-`.
pub(crate) fn is_numeral(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (_, magnitude) = split_sign(text);
    if let Some(hex) = strip_hex_prefix(magnitude) {
        return !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    match magnitude.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(magnitude),
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text),
    }
}

fn strip_hex_prefix(magnitude: &str) -> Option<&str> {
    magnitude.strip_prefix("0x").or_else(|| magnitude.strip_prefix("0X"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numerals() {
        let integer = |value| Some(Number::Integer(value));
        let float = |value| Some(Number::Float(value));
        let check =
            |text: &str, expected: Option<Number>| assert_eq!(Number::parse(text), expected, "{text:?}");
        check("0", integer(0));
        check("007", integer(7));
        check("-12", integer(-12));
        check("18446744073709551615", integer(u64::MAX.into()));
        check("-9223372036854775808", integer(i64::MIN.into()));
        check("0x10", integer(16));
        check("0Xff", integer(255));
        check("-0x10", integer(-16));
        check("0xFFFFF80000000000", integer(0xffff_f800_0000_0000));
        check("1.5", float(1.5));
        check("-0.25", float(-0.25));
        for text in
            ["", "-", "0x", "-0x", "1.", ".5", "1.2.3", "+1", " 1", "1 ", "1e5", "0x1g", "--1", "1_000", "١"]
        {
            assert!(!is_numeral(text), "{text:?}");
            check(text, None);
        }
        for text in ["9".repeat(40), format!("0x{}", "f".repeat(40)), format!("{}.0", "9".repeat(400))] {
            assert!(is_numeral(&text), "{text:?}");
            check(&text, None);
        }
    }

    #[test]
    fn mixed_kinds_compare_exactly() {
        use Number::{Float, Integer};
        let check = |left: Number, right: Number, expected: Option<Ordering>| {
            assert_eq!(left.compare(right), expected, "{left:?} {right:?}");
            assert_eq!(right.compare(left), expected.map(Ordering::reverse), "{right:?} {left:?}");
        };
        check(Integer(-1), Integer(u64::MAX.into()), Some(Ordering::Less));
        check(Integer(1), Float(1.0), Some(Ordering::Equal));
        check(Integer(1), Float(1.5), Some(Ordering::Less));
        check(Integer(-1), Float(-1.5), Some(Ordering::Greater));
        check(Integer(0), Float(-0.0), Some(Ordering::Equal));
        // 2^53 + 1 has no float of its own; a comparison of floats would call it equal to 2^53.
        check(Integer((1 << 53) + 1), Float(9_007_199_254_740_992.0), Some(Ordering::Greater));
        check(Integer(u64::MAX.into()), Float(18_446_744_073_709_551_616.0), Some(Ordering::Less));
        check(Integer(i128::MAX), Float(2_f64.powi(127)), Some(Ordering::Less));
        check(Integer(i128::MIN), Float(-2_f64.powi(127)), Some(Ordering::Equal));
        check(Integer(5), Float(f64::INFINITY), Some(Ordering::Less));
        check(Integer(5), Float(f64::NEG_INFINITY), Some(Ordering::Greater));
        check(Integer(5), Float(f64::NAN), None);
        check(Float(1.0), Float(f64::NAN), None);
    }

    proptest! {
        #[test]
        fn written_integers_read_back(value: i64, unsigned: u64) {
            prop_assert_eq!(Number::parse(&value.to_string()), Some(Number::Integer(value.into())));
            prop_assert_eq!(Number::parse(&format!("{unsigned:#x}")), Some(Number::Integer(unsigned.into())));
        }

        #[test]
        fn halves_compare_like_doubled_integers(integer in -1_000_000_i64..1_000_000, halves in -2_000_000_i64..2_000_000) {
            let float = Number::Float(halves as f64 / 2.0);
            let order = Number::Integer(integer.into()).compare(float);
            prop_assert_eq!(order, Some((integer * 2).cmp(&halves)));
        }

        #[test]
        fn any_text_is_read_without_panic(text: String) {
            prop_assert!(is_numeral(&text) || Number::parse(&text).is_none());
        }
    }
}
