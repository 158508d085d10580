//! Raw session time and UTC time.

/// A timestamp exactly as a record stores it, in ticks of the session's clock.
///
/// Ordering and stack attribution use this value only: converted times round and collide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct RawTime(pub i64);

/// Units of 100 ns since 1601-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct FileTime(pub i64);
