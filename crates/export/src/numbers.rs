//! Numbers in texts for people.

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
    fn numbers_agree_with_their_nouns() {
        for (number, expected) in [(0, "0 events"), (1, "1 event"), (1_200, "1,200 events")] {
            assert_eq!(counted(number, "event", "events"), expected);
        }
    }
}
