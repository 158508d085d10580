//! The logfile header: the settings and totals of a session in the first record of a trace.
//!
//! The layout is described in `docs/format/logfile-header.md`.

use std::num::NonZeroU64;

use stackhound_types::{FileTime, PointerSize, RawTime};

use crate::Clock;
use crate::record::{HeaderKind, Record};

/// Bits of the logging mode that matter to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFileMode(pub u32);

impl LogFileMode {
    /// Data buffers form a ring.
    pub const CIRCULAR: LogFileMode = LogFileMode(0x0000_0002);
    /// The file contains several sessions.
    pub const APPEND: LogFileMode = LogFileMode(0x0000_0004);
    /// The file is one of a series. Sequence numbers continue from the previous file.
    pub const NEW_FILE: LogFileMode = LogFileMode(0x0000_0008);
    /// The file has its maximum size from the start.
    pub const PREALLOCATE: LogFileMode = LogFileMode(0x0000_0020);
    /// The session keeps its buffers in memory, and writes a file when it is asked to.
    pub const BUFFERING: LogFileMode = LogFileMode(0x0000_0400);
    /// A private session: the process itself writes the file.
    pub const PRIVATE: LogFileMode = LogFileMode(0x0000_0800);
    /// The size limit is in KiB, not in MiB.
    pub const USE_KBYTES_FOR_SIZE: LogFileMode = LogFileMode(0x0000_2000);
    /// The file was written by relogging or merging.
    pub const RELOG: LogFileMode = LogFileMode(0x0001_0000);
    /// Data buffers are compressed.
    pub const COMPRESSED: LogFileMode = LogFileMode(0x0400_0000);
    /// One stream for all processors. The processor number is lost.
    pub const NO_PER_PROCESSOR_BUFFERING: LogFileMode = LogFileMode(0x1000_0000);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: LogFileMode) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The settings and totals of a session, as its trace states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogfileHeader {
    /// Buffer size of the session in bytes.
    pub buffer_size: u32,
    /// Windows version, major and minor.
    pub windows_version: (u8, u8),
    /// Log layout version; 2.0 for compressed sessions, buffers above 1 MiB and more than 256
    /// processors.
    pub layout_version: (u8, u8),
    /// Windows build of the machine that recorded the trace.
    pub build: u32,
    /// Number of processors; 1 if the session did not have separate buffers for them.
    pub processors: u32,
    /// End of the session; `None` in an unfinished trace.
    pub end_time: Option<FileTime>,
    /// Clock interrupt period in units of 100 ns; the unit of processor times in record headers.
    pub timer_resolution: u32,
    /// Size limit in MiB, or in KiB with [`LogFileMode::USE_KBYTES_FOR_SIZE`].
    pub maximum_file_size: u32,
    /// Logging mode.
    pub mode: LogFileMode,
    /// Number of buffers written, including the header buffer. Circular traces continue to count.
    pub buffers_written: u32,
    /// Pointer size of the session.
    pub pointer_size: PointerSize,
    /// Number of events that were lost because no buffer was free.
    pub events_lost: u32,
    /// Processor speed in MHz.
    pub cpu_mhz: u32,
    /// Boot time of the machine (rounded by Windows).
    pub boot_time: FileTime,
    /// Performance counter ticks per second.
    pub perf_freq: u64,
    /// UTC time of the first record.
    pub start_time: FileTime,
    /// Raw timestamp of the first record.
    pub reference: RawTime,
    /// The clock of raw timestamps: 1 performance counter, 2 system time, 3 processor cycles.
    pub clock_type: u32,
    /// Number of lost buffers.
    pub buffers_lost: u32,
    /// Minutes to add to local time to get UTC.
    pub utc_bias: i32,
    /// Name of the session.
    pub session_name: String,
    /// The file to which the session wrote.
    pub file_name: String,
}

/// The reason why the first record is not a logfile header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogfileHeaderError {
    /// The record is of another kind.
    #[error("the first record is not a logfile header")]
    NotALogfileHeader,
    /// The record is shorter than the fixed part.
    #[error("the logfile header has {found} bytes, expected at least {expected}")]
    TooShort {
        /// Payload size in bytes.
        found: usize,
        /// Size of the fixed part in bytes.
        expected: usize,
    },
    /// Written by a system before Windows Vista, whose buffers have another layout.
    #[error("log layout {0}.{1} of Windows before Vista is not supported")]
    TooOld(u8, u8),
}

impl LogfileHeader {
    /// Reads the header from the first record of a trace.
    pub fn parse(record: &Record<'_>) -> Result<LogfileHeader, LogfileHeaderError> {
        let pointer_size = match record.kind() {
            HeaderKind::System32 => PointerSize::Four,
            HeaderKind::System64 => PointerSize::Eight,
            _ => return Err(LogfileHeaderError::NotALogfileHeader),
        };
        if record.hook_id() != Some(0) {
            return Err(LogfileHeaderError::NotALogfileHeader);
        }
        let payload = record.payload();
        // The two pointers at 0x38 are followed by a time zone of 172 bytes. The rest is aligned to
        // 8 bytes, which adds 4 bytes of padding in both layouts.
        let zone = 0x38 + 2 * pointer_size.bytes();
        let tail = (zone + 172).next_multiple_of(8);
        let fixed = tail + 0x20;
        if payload.len() < fixed {
            return Err(LogfileHeaderError::TooShort { found: payload.len(), expected: fixed });
        }
        let u32_at = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
        let layout_version = (payload[6], payload[7]);
        if layout_version < (1, 4) {
            return Err(LogfileHeaderError::TooOld(layout_version.0, layout_version.1));
        }
        let (session_name, rest) = utf16_until_nul(&payload[fixed..]);
        let (file_name, _) = utf16_until_nul(rest);
        let end_time = u64_at(0x10) as i64;
        Ok(LogfileHeader {
            buffer_size: u32_at(0),
            windows_version: (payload[4], payload[5]),
            layout_version,
            build: u32_at(8),
            processors: u32_at(0xc),
            end_time: (end_time != 0).then_some(FileTime(end_time)),
            timer_resolution: u32_at(0x18),
            maximum_file_size: u32_at(0x1c),
            mode: LogFileMode(u32_at(0x20)),
            buffers_written: u32_at(0x24),
            pointer_size,
            events_lost: u32_at(0x30),
            cpu_mhz: u32_at(0x34),
            boot_time: FileTime(u64_at(tail) as i64),
            perf_freq: u64_at(tail + 8),
            start_time: FileTime(u64_at(tail + 0x10) as i64),
            reference: record.time(),
            clock_type: u32_at(tail + 0x18),
            buffers_lost: u32_at(tail + 0x1c),
            utc_bias: u32_at(zone) as i32,
            session_name,
            file_name,
        })
    }

    /// The clock of the session. A clock without a usable frequency is treated as system time.
    pub fn clock(&self) -> Clock {
        let of = |frequency: u64| NonZeroU64::new(frequency);
        match (self.clock_type, of(self.perf_freq), of(self.cpu_mhz.into())) {
            (1, Some(frequency), _) => Clock::performance_counter(frequency, self.reference, self.start_time),
            (3, _, Some(mhz)) => Clock::cpu_cycles(mhz, self.reference, self.start_time),
            _ => Clock::system_time(),
        }
    }

    /// The size limit of the file in bytes; 0 if there is none.
    pub fn maximum_file_bytes(&self) -> u64 {
        let unit = if self.mode.has(LogFileMode::USE_KBYTES_FOR_SIZE) { 10 } else { 20 };
        u64::from(self.maximum_file_size) << unit
    }

    /// The buffer size of the session if it is usable: whole KiB up to the limit.
    pub fn nominal_size(&self) -> Option<u32> {
        let usable = self.buffer_size >= 1024
            && self.buffer_size <= crate::buffer::BUFFER_SIZE_MAX
            && self.buffer_size.is_multiple_of(1024);
        usable.then_some(self.buffer_size)
    }
}

/// The text up to its zero unit, and the bytes after it. An unterminated text takes all bytes.
fn utf16_until_nul(bytes: &[u8]) -> (String, &[u8]) {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let text: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    let rest = bytes.get(text.len() * 2 + 2..).unwrap_or_default();
    (String::from_utf16_lossy(&text), rest)
}
