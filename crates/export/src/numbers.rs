//! Numbers in texts for people.

use stackhound_profile::Unit;

/// A number with thousands separators.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun, such as `1 event` or `1,200 events`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Nanoseconds as seconds with microseconds, without the unit.
pub fn seconds_with_micros(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000_000, nanos / 1_000 % 1_000_000)
}

/// A weight of samples with its unit.
pub fn weight(unit: Unit, weight: u64) -> String {
    match unit {
        Unit::Samples => counted(weight, "sample", "samples"),
        Unit::Transitions => counted(weight, "transition", "transitions"),
        Unit::Nanoseconds => format!("{} s", seconds_with_micros(weight)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), expected);
        }
    }

    #[test]
    fn weights_have_their_units() {
        for (unit, expected) in [
            (Unit::Samples, "1,234,567,890 samples"),
            (Unit::Transitions, "1,234,567,890 transitions"),
            (Unit::Nanoseconds, "1.234567 s"),
        ] {
            assert_eq!(weight(unit, 1_234_567_890), expected);
        }
    }

    #[test]
    fn numbers_agree_with_their_nouns() {
        for (number, expected) in [(0, "0 events"), (1, "1 event"), (1_200, "1,200 events")] {
            assert_eq!(counted(number, "event", "events"), expected);
        }
    }
}
