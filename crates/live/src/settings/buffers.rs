//! The buffers in which ETW collects events until they are delivered: their number, their size and
//! their flush time.
//!
//! The limits are those of Microsoft's page "EVENT_TRACE_PROPERTIES structure". `docs/live.md`
//! describes how to choose values.

use std::time::Duration;

use crate::Error;

const SIZE_KIB: std::ops::RangeInclusive<u32> = 4..=16_384;
/// A limit of this library. Larger values are useless and probably in a wrong unit.
const MEMORY_KIB_MAX: u64 = 4 << 20;
const FLUSH_MAX: Duration = Duration::from_secs(3600);

/// The buffers of a session. The values are checked, so ETW accepts every `Buffers`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    size_kib: u32,
    minimum: u32,
    maximum: u32,
    flush: Duration,
    per_processor: bool,
}

/// The logging mode for flush times in milliseconds (`EVENT_TRACE_USE_MS_FLUSH_TIMER`). Not all
/// kits have it in `evntrace.h`.
const MS_FLUSH_TIMER: u32 = 0x0000_0010;

/// The time after which a buffer that is not full is delivered, in units of ETW.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushTimer {
    /// Whole seconds.
    Seconds(u32),
    /// Milliseconds, which the logging mode must announce (`EVENT_TRACE_USE_MS_FLUSH_TIMER`).
    Milliseconds(u32),
}

impl FlushTimer {
    /// The timer of a session with these values of `FlushTimer` and `LogFileMode`.
    pub fn of_numbers(timer: u32, mode: u32) -> FlushTimer {
        if mode & MS_FLUSH_TIMER == 0 { FlushTimer::Seconds(timer) } else { FlushTimer::Milliseconds(timer) }
    }

    /// The value of `FlushTimer`, and the flags to add to `LogFileMode`.
    pub fn to_numbers(self) -> (u32, u32) {
        match self {
            FlushTimer::Seconds(seconds) => (seconds, 0),
            FlushTimer::Milliseconds(ms) => (ms, MS_FLUSH_TIMER),
        }
    }

    /// The duration. In a session that delivers events, 0 means one second.
    pub fn duration(self) -> Duration {
        match self {
            FlushTimer::Seconds(0) | FlushTimer::Milliseconds(0) => Duration::from_secs(1),
            FlushTimer::Seconds(seconds) => Duration::from_secs(seconds.into()),
            FlushTimer::Milliseconds(ms) => Duration::from_millis(ms.into()),
        }
    }
}

impl Buffers {
    /// `minimum` to `maximum` buffers of `size_kib` KiB each for the whole session. Their content
    /// is delivered after `flush` at the latest. Windows raises the minimum to two buffers for each
    /// processor.
    ///
    /// # Errors
    /// Sizes outside of 4 to 16,384 KiB, no buffers, more than 4 GiB of them; flush times of 0,
    /// above one hour, or with fractions that ETW has no unit for: whole milliseconds are possible
    /// below one second, and whole seconds from one second on.
    pub fn new(size_kib: u32, minimum: u32, maximum: u32, flush: Duration) -> Result<Buffers, Error> {
        if !SIZE_KIB.contains(&size_kib) {
            return Err(Error::BufferSize(size_kib));
        }
        if minimum == 0 || maximum < minimum {
            return Err(Error::BufferCount { minimum, maximum });
        }
        let memory = u64::from(size_kib) * u64::from(maximum);
        if memory > MEMORY_KIB_MAX {
            return Err(Error::BufferMemory(memory));
        }
        let unit = if flush < Duration::from_secs(1) { 1_000_000 } else { 1_000_000_000 };
        if flush.is_zero() || flush > FLUSH_MAX || !flush.as_nanos().is_multiple_of(unit) {
            return Err(Error::Flush(flush.as_millis().try_into().unwrap_or(u64::MAX)));
        }
        Ok(Buffers { size_kib, minimum, maximum, flush, per_processor: true })
    }

    /// For many events: 64 to 512 buffers of 64 KiB, delivered every second. Bursts fit, and an
    /// event can be a second old when it arrives. According to Microsoft, larger buffers are for
    /// diagnosis and tests only.
    pub const fn throughput() -> Buffers {
        Buffers {
            size_kib: 64,
            minimum: 64,
            maximum: 512,
            flush: Duration::from_secs(1),
            per_processor: true,
        }
    }

    /// For events that cannot wait: 64 to 512 buffers of 32 KiB, delivered every 5 ms.
    pub const fn low_latency() -> Buffers {
        Buffers {
            size_kib: 32,
            minimum: 64,
            maximum: 512,
            flush: Duration::from_millis(5),
            per_processor: true,
        }
    }

    /// For system-call sensors: 20 to 128 buffers of 64 KiB, delivered every second.
    pub const fn syscalls() -> Buffers {
        Buffers {
            size_kib: 64,
            minimum: 20,
            maximum: 128,
            flush: Duration::from_secs(1),
            per_processor: true,
        }
    }

    /// One stream for all processors. It slows writers down and removes the processor number from
    /// events.
    pub fn shared_by_processors(self) -> Buffers {
        Buffers { per_processor: false, ..self }
    }

    /// The size of one buffer in KiB.
    pub fn size_kib(&self) -> u32 {
        self.size_kib
    }

    /// The minimum number of buffers, which exist from the start.
    pub fn minimum(&self) -> u32 {
        self.minimum
    }

    /// The maximum number of buffers.
    pub fn maximum(&self) -> u32 {
        self.maximum
    }

    /// The maximum number of buffers on a machine with this number of processors. Windows allocates
    /// two for each processor at the start, and a burst needs as many again.
    pub fn maximum_on(&self, processors: u32) -> u32 {
        self.maximum.max(4 * processors)
    }

    /// Whether each processor has its own buffers.
    pub fn per_processor(&self) -> bool {
        self.per_processor
    }

    /// The flush time in units of ETW.
    pub fn flush_timer(&self) -> FlushTimer {
        if self.flush < Duration::from_secs(1) {
            FlushTimer::Milliseconds(self.flush.as_millis() as u32)
        } else {
            FlushTimer::Seconds(self.flush.as_secs() as u32)
        }
    }
}

impl Default for Buffers {
    /// [`Buffers::throughput`].
    fn default() -> Buffers {
        Buffers::throughput()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_pass_their_own_checks() {
        let rows = [
            (Buffers::throughput(), 64, 64, 512, FlushTimer::Seconds(1)),
            (Buffers::low_latency(), 32, 64, 512, FlushTimer::Milliseconds(5)),
            (Buffers::syscalls(), 64, 20, 128, FlushTimer::Seconds(1)),
        ];
        for (buffers, size_kib, minimum, maximum, flush) in rows {
            assert_eq!(Buffers::new(size_kib, minimum, maximum, buffers.flush), Ok(buffers));
            assert_eq!(buffers.flush_timer(), flush);
            assert_eq!(flush.duration(), buffers.flush);
            let (timer, mode) = flush.to_numbers();
            assert_eq!(FlushTimer::of_numbers(timer, mode), flush);
            assert!(buffers.per_processor());
            assert_eq!((buffers.maximum_on(2), buffers.maximum_on(256)), (maximum, 1024));
        }
    }

    #[test]
    fn invalid_buffers_are_refused() {
        let second = Duration::from_secs(1);
        let ms = Duration::from_millis;
        let rows = [
            ((3, 2, 4, second), Error::BufferSize(3)),
            ((16_385, 2, 4, second), Error::BufferSize(16_385)),
            ((64, 0, 4, second), Error::BufferCount { minimum: 0, maximum: 4 }),
            ((64, 5, 4, second), Error::BufferCount { minimum: 5, maximum: 4 }),
            ((16_384, 2, 257, second), Error::BufferMemory(16_384 * 257)),
            ((64, 2, 4, ms(0)), Error::Flush(0)),
            ((64, 2, 4, ms(1500)), Error::Flush(1500)),
            ((64, 2, 4, Duration::from_micros(1500)), Error::Flush(1)),
            ((64, 2, 4, Duration::from_secs(3601)), Error::Flush(3_601_000)),
        ];
        for ((size, minimum, maximum, flush), expected) in rows {
            assert_eq!(Buffers::new(size, minimum, maximum, flush), Err(expected));
        }
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        for (size, maximum, flush) in [
            (4, 2, Duration::from_millis(1)),
            (16_384, 256, Duration::from_secs(3600)),
            (64, 2, Duration::from_millis(999)),
        ] {
            assert!(Buffers::new(size, 2, maximum, flush).is_ok(), "{size} {maximum} {flush:?}");
        }
    }
}
