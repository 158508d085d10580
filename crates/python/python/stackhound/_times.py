"""Conversions between trace times, in units of 100 ns since 1601, and ``datetime``."""

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1601, 1, 1, tzinfo=timezone.utc)


def of_ticks(ticks: int) -> datetime:
    """The UTC time for a number of 100 ns since 1601, truncated to microseconds."""
    return _EPOCH + timedelta(microseconds=ticks // 10)


def ticks(time: datetime) -> int:
    """The number of 100 ns from 1601 to a time."""
    if not isinstance(time, datetime):
        raise TypeError(f"a datetime or an int expected, not {type(time).__name__}")
    if time.tzinfo is None:
        raise ValueError("the time needs a time zone, as in datetime(..., tzinfo=timezone.utc)")
    return (time - _EPOCH) // timedelta(microseconds=1) * 10
