//! Times on the command line and in output.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use stackhound::types::Rfc3339;
use stackhound::{Clock, FileTime, RawTime, TICKS_PER_SECOND};

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum TimeFormat {
    /// UTC as RFC 3339, with seven fractional digits
    Utc,
    /// Seconds since the start of the trace
    Relative,
    /// Ticks of the session's clock
    Raw,
}

/// A point in time: absolute, or relative to the start of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// UTC.
    Absolute(FileTime),
    /// Units of 100 ns since the start.
    SinceStart(i64),
}

impl Point {
    /// The raw time of the point on a clock that read `reference` at `start`.
    pub fn to_raw(self, clock: &Clock, start: FileTime) -> RawTime {
        match self {
            Point::Absolute(time) => clock.to_raw(time),
            Point::SinceStart(span) => clock.to_raw(FileTime(start.0.saturating_add(span))),
        }
    }
}

impl fmt::Display for Point {
    /// RFC 3339, or the seconds since the start such as `+0.25s`, which are read as the same point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Point::Absolute(time) => write!(f, "{}", Rfc3339(time)),
            Point::SinceStart(units) => {
                let fraction = format!("{:07}", units % TICKS_PER_SECOND);
                let (whole, fraction) = (units / TICKS_PER_SECOND, fraction.trim_end_matches('0'));
                let point = if fraction.is_empty() { "" } else { "." };
                write!(f, "+{whole}{point}{fraction}s")
            }
        }
    }
}

/// Units of 100 ns between 1601 and 1970.
const UNIX_EPOCH: i128 = 116_444_736_000_000_000;

impl std::str::FromStr for Point {
    type Err = anyhow::Error;

    /// `+5s`, `+250ms`, `+1.5` (seconds), or RFC 3339 with or without a zone (UTC then).
    fn from_str(text: &str) -> Result<Point> {
        if let Some(span) = text.strip_prefix('+') {
            return Ok(Point::SinceStart(parse_span(span)?));
        }
        let zoned = text.parse::<jiff::Timestamp>();
        let stamp = match zoned {
            Ok(stamp) => stamp,
            Err(_) => {
                let civil: jiff::civil::DateTime = text.parse().with_context(|| {
                    format!(
                        "`{text}` is not a valid time; write 2026-01-31T12:00:00Z, or +5s for a time since the start"
                    )
                })?;
                civil.to_zoned(jiff::tz::TimeZone::UTC)?.timestamp()
            }
        };
        let units = stamp.as_nanosecond().div_euclid(100) + UNIX_EPOCH;
        Ok(Point::Absolute(FileTime(units.clamp(0, i64::MAX as i128) as i64)))
    }
}

/// Parses a duration greater than 0, such as `30s`.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let units = parse_span(text)?;
    if units <= 0 {
        bail!("`{text}` is not a valid duration: expected more than 0; write 30s, 500ms or 5min");
    }
    Ok(Duration::from_nanos(u64::try_from(units)?.saturating_mul(100)))
}

/// Parses a duration such as `5s`, `2.5ms`, `10us` or `3` (seconds), in units of 100 ns.
fn parse_span(text: &str) -> Result<i64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let value: f64 = number
        .parse()
        .with_context(|| format!("`{text}` is not a valid duration; write 5s, 250ms or 10us"))?;
    let factor = match unit {
        "" | "s" => TICKS_PER_SECOND as f64,
        "ms" => 10_000.0,
        "us" | "µs" => 10.0,
        "m" | "min" => 60.0 * TICKS_PER_SECOND as f64,
        _ => bail!("`{unit}` is not a unit of time; write s, ms, us or min"),
    };
    Ok((value * factor) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read() {
        for (text, expected) in [
            ("+5s", Point::SinceStart(50_000_000)),
            ("+2.5ms", Point::SinceStart(25_000)),
            ("+3", Point::SinceStart(30_000_000)),
            ("+1min", Point::SinceStart(600_000_000)),
            ("1970-01-01T00:00:00Z", Point::Absolute(FileTime(UNIX_EPOCH as i64))),
            ("1970-01-01T00:00:00.0000001Z", Point::Absolute(FileTime(UNIX_EPOCH as i64 + 1))),
            ("1970-01-01T01:00:00+01:00", Point::Absolute(FileTime(UNIX_EPOCH as i64))),
            ("1970-01-01T00:00:01", Point::Absolute(FileTime(UNIX_EPOCH as i64 + 10_000_000))),
        ] {
            assert_eq!(text.parse::<Point>().unwrap(), expected, "{text}");
            assert_eq!(expected.to_string().parse::<Point>().unwrap(), expected, "{expected}");
        }
        for (point, expected) in [
            (Point::SinceStart(50_000_000), "+5s"),
            (Point::SinceStart(2_500_000), "+0.25s"),
            (Point::Absolute(FileTime(UNIX_EPOCH as i64)), "1970-01-01T00:00:00.0000000Z"),
        ] {
            assert_eq!(point.to_string(), expected);
        }
        for text in ["", "yesterday", "+", "+5 parsecs", "+5h5"] {
            assert!(text.parse::<Point>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, expected) in [("30s", 30_000), ("1.5", 1_500), ("250ms", 250), ("2min", 120_000)] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(expected), "{text}");
        }
        for text in ["", "0", "0s", "ever", "-1s", "5h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
