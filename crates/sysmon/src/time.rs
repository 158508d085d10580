//! Times of Sysmon events as text: `2020-10-20 11:50:56.473`, always UTC, or RFC 3339 as log
//! shippers write it.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Units of 100 ns from 1601 to 1970.
const UNIX_EPOCH: i128 = 116_444_736_000_000_000;

/// Parses a time in units of 100 ns since 1601. `None` for other texts, earlier times, and time
/// zones other than UTC.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (_, time) = text.split_once([' ', 'T'])?;
    // The parser below would accept and ignore a time zone.
    if !time.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b':' | b'.')) {
        return None;
    }
    let time: DateTime = text.parse().ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    u64::try_from(time.as_nanosecond().div_euclid(100) + UNIX_EPOCH).ok()
}

/// Formats a time as Sysmon does, with milliseconds. Times after the year 9999 become the last time
/// of that year.
pub(crate) fn text(time: u64) -> String {
    let time = Timestamp::from_nanosecond((i128::from(time) - UNIX_EPOCH) * 100);
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of 100 ns in a day.
    const DAY: u64 = 24 * 60 * 60 * 10_000_000;

    #[test]
    fn times_are_counted_from_1601() {
        for (text, expected) in [
            ("1601-01-01 00:00:00.000", Some(0)),
            ("1601-01-02T00:00:00Z", Some(DAY)),
            // From `w32tm /ntte` and the documentation of FILETIME.
            ("1970-01-01 00:00:00.000", Some(116_444_736_000_000_000)),
            ("2000-03-01T00:00:00.0000001Z", Some(125_963_424_000_000_001)),
            ("2020-10-20 11:50:56.473", Some(132_476_682_564_730_000)),
            ("2020-10-20T11:50:56.473123456Z", Some(132_476_682_564_731_234)),
            ("2020-10-20T11:50:56.473+02:00", None),
            ("2020-10-20", None),
            ("1600-12-31 23:59:59", None),
            ("2020-13-01 00:00:00", None),
            ("2020-10-20 24:00:00", None),
            ("2020-10-20 11:50:56.", None),
            ("2020-10-20 11:50:56.4x3", None),
            ("2020-10--2 11:50:56", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn formatted_times_are_parsed_back() {
        for day in (0..800_000).step_by(37) {
            let time = day * DAY + 43_210_000 * 1000;
            let text = text(time);
            assert_eq!(parse(&text), Some(time), "{text}");
        }
    }
}
