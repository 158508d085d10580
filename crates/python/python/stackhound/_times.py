"""Times of recordings, which count 100 ns since 1601, as Python has them."""

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1601, 1, 1, tzinfo=timezone.utc)


def of_ticks(ticks: int) -> datetime:
    """The time so many 100 ns after 1601 began, in UTC, without what is smaller than a microsecond."""
    return _EPOCH + timedelta(microseconds=ticks // 10)


def ticks(time: datetime) -> int:
    """How many 100 ns after 1601 began a time is."""
    if not isinstance(time, datetime):
        raise TypeError(f"a datetime or an int expected, not {type(time).__name__}")
    if time.tzinfo is None:
        raise ValueError("the time needs a time zone, as in datetime(..., tzinfo=timezone.utc)")
    return (time - _EPOCH) // timedelta(microseconds=1) * 10
