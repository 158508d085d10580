//! Spans of time such as `2m` or `1m30s`.

use std::time::Duration;

/// Units with their nanoseconds. A unit that starts with another one comes first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// The duration that a word spells: numbers, each with a unit. `None` for other words, and beyond
/// 64 bits of nanoseconds.
pub(crate) fn parse(word: &str) -> Option<Duration> {
    let (mut rest, mut nanoseconds) = (word, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let (name, factor) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
        nanoseconds = nanoseconds.checked_add(number.checked_mul(*factor)?)?;
        rest = &unit[name.len()..];
    }
    (!word.is_empty()).then(|| Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (word, seconds) in [
            ("40s", Some(40.0)),
            ("1m30s", Some(90.0)),
            ("2h", Some(7200.0)),
            ("1w", Some(604_800.0)),
            ("1d", Some(86_400.0)),
            ("5ms10us", Some(0.00501)),
            ("10ns", Some(1e-8)),
            ("", None),
            ("1", None),
            ("m", None),
            ("1y", None),
            ("99999999999999999999s", None),
            ("9999999999999w", None),
        ] {
            assert_eq!(parse(word).map(|duration| duration.as_secs_f64()), seconds, "{word}");
        }
    }
}
