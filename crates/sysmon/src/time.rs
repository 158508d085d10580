//! Sysmon's times as text: `2020-10-20 11:50:56.473`, always UTC, or the form of RFC 3339 that shippers of logs write.

/// Units of 100 ns in a day.
const DAY: i64 = 24 * 60 * 60 * 10_000_000;
/// Days from 1601 to 1970.
const DAYS_TO_1970: i64 = 134_774;

/// The units of 100 ns since 1601; `None` for other texts, times before that, and other zones than UTC.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let time = time.strip_suffix('Z').unwrap_or(time);
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.splitn(3, ':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let in_range = (1601..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61
        && !fraction.is_empty();
    if !in_range {
        return None;
    }
    let mut ticks = 0;
    for place in 0..fraction.len().max(7) {
        let digit = fraction.as_bytes().get(place).map_or(Some(0), |digit| (*digit as char).to_digit(10))?;
        if place < 7 {
            ticks = ticks * 10 + i64::from(digit);
        }
    }
    let seconds = (hour * 60 + minute) * 60 + second;
    let days = days_since_1970(year, month, day) + DAYS_TO_1970;
    u64::try_from(days * DAY + seconds * 10_000_000 + ticks).ok()
}

/// As Sysmon writes it, to the millisecond.
pub(crate) fn text(time: u64) -> String {
    let (days, ticks) = (time as i64 / DAY - DAYS_TO_1970, time as i64 % DAY);
    let (year, month, day) = date(days);
    let seconds = ticks / 10_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let millisecond = ticks / 10_000 % 1000;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millisecond:03}")
}

/// A number without a sign.
fn number(text: &str) -> Option<i64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Days of the calendar of today, in which a year begins with March so that the leap day is its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_from_1601() {
        for (text, expected) in [
            ("1601-01-01 00:00:00.000", Some(0)),
            ("1601-01-02T00:00:00Z", Some(DAY as u64)),
            // As `w32tm /ntte` and the documentation of FILETIME give it.
            ("1970-01-01 00:00:00.000", Some(116_444_736_000_000_000)),
            ("2000-03-01T00:00:00.0000001Z", Some(125_963_424_000_000_001)),
            ("2020-10-20 11:50:56.473", Some(132_476_682_564_730_000)),
            ("2020-10-20T11:50:56.4731234567Z", Some(132_476_682_564_731_234)),
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
    fn each_day_is_written_as_it_is_read() {
        for day in (0..800_000).step_by(37) {
            let time = day * DAY as u64 + 43_210_000 * 1000;
            let text = text(time);
            assert_eq!(parse(&text), Some(time), "{text}");
        }
    }
}
