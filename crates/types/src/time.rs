//! Raw timestamps of records, and UTC time.

/// A timestamp exactly as a record stores it, in ticks of the session's clock.
///
/// Ordering and stack attribution use only this value, because converted times are rounded and can
/// collide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct RawTime(pub i64);

/// A UTC time in units of 100 ns since 1601-01-01.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct FileTime(pub i64);

/// Units of 100 ns per second.
pub const TICKS_PER_SECOND: i64 = 10_000_000;

/// 1970-01-01 as [`FileTime`].
const UNIX_EPOCH: i64 = 116_444_736_000_000_000;

impl FileTime {
    /// The time a number of seconds after 1970-01-01 UTC; the nearest one if it is out of range.
    pub fn from_unix(seconds: i64) -> FileTime {
        FileTime(seconds.saturating_mul(TICKS_PER_SECOND).saturating_add(UNIX_EPOCH))
    }

    /// Seconds and nanoseconds since 1970-01-01 UTC. The nanoseconds are never negative.
    pub fn to_unix(self) -> (i64, u32) {
        let since = i128::from(self.0) - i128::from(UNIX_EPOCH);
        let seconds = since.div_euclid(i128::from(TICKS_PER_SECOND));
        let rest = since.rem_euclid(i128::from(TICKS_PER_SECOND));
        (seconds as i64, rest as u32 * 100)
    }

    /// Nanoseconds since 1970-01-01 UTC; `None` before 1677 and after 2262.
    pub fn to_unix_nanoseconds(self) -> Option<i64> {
        let (seconds, nanoseconds) = self.to_unix();
        seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_has_no_negative_fraction() {
        assert_eq!(FileTime(UNIX_EPOCH).to_unix(), (0, 0));
        assert_eq!(FileTime(UNIX_EPOCH - 1).to_unix(), (-1, 999_999_900));
        assert_eq!(FileTime::from_unix(-1).to_unix(), (-1, 0));
        assert_eq!(FileTime::from_unix(i64::MAX), FileTime(i64::MAX));
    }
}
