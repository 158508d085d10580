//! Timestamps as text.

use std::fmt;

use crate::time::{FileTime, TICKS_PER_SECOND};

/// A time as RFC 3339 text in UTC with seven fractional digits, such as
/// `2012-10-29T16:13:09.0312500Z`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rfc3339(pub FileTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECONDS_PER_DAY: i64 = 86_400;
        let seconds = self.0.0.div_euclid(TICKS_PER_SECOND);
        let (year, month, day) = civil_date(seconds.div_euclid(SECONDS_PER_DAY));
        let second = seconds.rem_euclid(SECONDS_PER_DAY);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:07}Z",
            second / 3600,
            second / 60 % 60,
            second % 60,
            self.0.0.rem_euclid(TICKS_PER_SECOND)
        )
    }
}

/// Converts days since 1601-01-01 to year, month and day of the Gregorian calendar.
///
/// Years are counted from 1 March, so that the leap day is the last day of its year.
fn civil_date(days_since_1601: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    /// From 1600-03-01, where an era of 400 years begins, to 1601-01-01.
    const DAYS_TO_1601: i64 = 306;
    let days = days_since_1601 + DAYS_TO_1601;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    // Every 4 years there is a leap day (1,461 days), except every 100 years, but not every 400
    // years.
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, the lengths of months repeat every five months, which have 153 days.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (1600 + 400 * era + year_of_era + i64::from(month <= 2), month, day)
}

/// The start of a day in UTC, from a date such as `2027-01-31`; `None` if the text is not a date of
/// the years 1601 to 9999.
pub fn start_of_day(date: &str) -> Option<FileTime> {
    let mut parts = date.split('-');
    let mut number = |length: usize| {
        let part = parts.next().filter(|part| part.len() == length)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok())?
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    if parts.next().is_some() || year < 1601 {
        return None;
    }
    // Dates that do not exist, such as 30 February, are no day of the year.
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let new_year = (year - 1601) * 365 + leap_days(year - 1) - leap_days(1600);
    let days = (new_year..new_year + 366).find(|days| civil_date(*days) == (year, month, day))?;
    Some(FileTime(days * 86_400 * TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month_lengths(year: i64) -> [i64; 12] {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    }

    #[test]
    fn every_day_of_eight_centuries() {
        let mut day = 0;
        for year in 1601..2401 {
            for (month, length) in (1..).zip(month_lengths(year)) {
                for day_of_month in 1..=length {
                    assert_eq!(civil_date(day), (year, month, day_of_month));
                    day += 1;
                }
            }
        }
    }

    #[test]
    fn dates_are_days_that_exist() {
        for day in (0..400_000).step_by(37) {
            let (year, month, of_month) = civil_date(day);
            let date = format!("{year:04}-{month:02}-{of_month:02}");
            assert_eq!(start_of_day(&date), Some(FileTime(day * 86_400 * TICKS_PER_SECOND)), "{date}");
        }
        for date in
            ["", "2027", "2027-02-29", "2027-13-01", "2027-1-31", "1600-12-31", "2027-01-31-01", "+027-01-31"]
        {
            assert_eq!(start_of_day(date), None, "{date}");
        }
        assert!(start_of_day("2028-02-29").is_some());
    }
}
