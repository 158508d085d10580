//! The session of a trace, and its logfile header.

use std::num::{NonZeroU32, NonZeroU64};

use stackhound_types::{FileTime, Pid, PointerSize, RawTime, Tid};

use super::{Issuer, WriteError};
use crate::buffer::BufferFlags;
use crate::{Clock, ClockKind, LogFileMode, LogfileHeader};

/// Windows 8, the first version whose kernel uses 16-bit processor numbers.
const WINDOWS_8: (u8, u8) = (6, 2);

/// The description of the session that writes a trace. Start from [`Session::default`] and change
/// individual fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Pointer size of the system, and of the logfile header.
    pub pointer_size: PointerSize,
    /// Number of processors. Each has its own stream of buffers.
    pub processors: u16,
    /// Size of a buffer in bytes: whole KiB, at most 16 MiB.
    pub buffer_size: u32,
    /// The clock of raw timestamps.
    pub clock: ClockKind,
    /// Raw timestamp of the first record, which corresponds to `start_time`. Both are equal with
    /// the system time clock.
    pub start: RawTime,
    /// Start time of the session.
    pub start_time: FileTime,
    /// End time of the session; `None` for one clock interrupt of 15.625 ms after the last record.
    /// Live sessions always end after their last record.
    pub end_time: Option<FileTime>,
    /// Boot time of the machine.
    pub boot_time: FileTime,
    /// Performance counter ticks per second.
    pub perf_frequency: NonZeroU64,
    /// Processor speed in MHz.
    pub cpu_mhz: NonZeroU32,
    /// Clock interrupt period in units of 100 ns; the unit of processor times in record headers.
    pub timer_resolution: u32,
    /// Minutes to add to local time to get UTC.
    pub utc_bias: i32,
    /// Windows version, major and minor.
    pub windows_version: (u8, u8),
    /// Windows build.
    pub build: u32,
    /// Logging mode. Bits that follow from `form`, `compressed`, `circular` and
    /// `first_sequence_number` are added.
    pub mode: LogFileMode,
    /// The thread that started the session. The logfile header names it.
    pub issuer: Issuer,
    /// Number of the session on its machine.
    pub logger_id: u16,
    /// Name of the session.
    pub name: String,
    /// The file to which the session writes, as the session names it.
    pub file_name: String,
    /// The writer whose conventions the file follows.
    pub form: Form,
    /// Whether buffers are compressed, with XPRESS. All known files of this kind are merged files.
    ///
    /// The header buffer then ends at the next multiple of 512 bytes, instead of having the common
    /// buffer size. A buffer that compression does not make smaller is stored uncompressed, which
    /// no known file contains.
    pub compressed: bool,
    /// Number of data buffers that a circular file keeps, the latest ones; `None` for a file that
    /// keeps all.
    ///
    /// They are held in memory until the file is finished.
    pub circular: Option<NonZeroU32>,
    /// Sequence number of the first data buffer; greater than 1 in all but the first file of a
    /// series.
    pub first_sequence_number: i64,
}

/// The writer whose conventions a file follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The kernel of Windows 8 or later.
    Live,
    /// The kernel of Windows 7: processor numbers have 8 bits, and the header buffer states only
    /// one of its two ends. The Windows version must be at most 6.1, because readers depend on it.
    Windows7,
    /// A tool that merges or relogs: no session number, and buffers have UTC time stamps.
    Merged,
}

impl Default for Session {
    /// A 64-bit system with one processor and 64 KiB buffers. Its performance counter has ticks of
    /// 100 ns.
    fn default() -> Session {
        Session {
            pointer_size: PointerSize::Eight,
            processors: 1,
            buffer_size: 64 << 10,
            clock: ClockKind::PerformanceCounter,
            start: RawTime(1_000_000_000),
            start_time: FileTime(133_485_408_000_000_000),
            end_time: None,
            boot_time: FileTime(133_485_407_000_000_000),
            perf_frequency: const { NonZeroU64::new(10_000_000).unwrap() },
            cpu_mhz: const { NonZeroU32::new(2_400).unwrap() },
            timer_resolution: 156_250,
            utc_bias: 0,
            windows_version: (10, 0),
            build: 19_045,
            mode: LogFileMode(1),
            issuer: Issuer::new(Pid::SYSTEM, Tid(8)),
            logger_id: 1,
            name: String::from("stackhound"),
            file_name: String::from("stackhound.etl"),
            form: Form::Live,
            compressed: false,
            circular: None,
            first_sequence_number: 1,
        }
    }
}

/// The fields that are known only when the session has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    /// 0 while the session runs.
    pub(super) end_time: FileTime,
    /// Including the header buffer.
    pub(super) buffers_written: u32,
    pub(super) events_lost: u32,
    pub(super) buffers_lost: u32,
}

impl Closing {
    /// The values while the session runs.
    pub(super) const RUNNING: Closing =
        Closing { end_time: FileTime(0), buffers_written: 1, events_lost: 0, buffers_lost: 0 };
}

impl Session {
    /// The session that a trace or a live session describes, so that its records can be written
    /// again unchanged. Fields that are not described have the values of [`Session::default`].
    pub fn of(header: &LogfileHeader) -> Session {
        let otherwise = Session::default();
        let clock = header.clock();
        Session {
            pointer_size: header.pointer_size,
            processors: u16::try_from(header.processors).unwrap_or(u16::MAX).max(1),
            clock: clock.kind(),
            start: header.reference,
            start_time: header.start_time,
            boot_time: header.boot_time,
            perf_frequency: NonZeroU64::new(header.perf_freq).unwrap_or(otherwise.perf_frequency),
            cpu_mhz: NonZeroU32::new(header.cpu_mhz).unwrap_or(otherwise.cpu_mhz),
            timer_resolution: header.timer_resolution,
            utc_bias: header.utc_bias,
            windows_version: header.windows_version,
            build: header.build,
            name: header.session_name.clone(),
            ..otherwise
        }
    }

    pub(super) fn check(&self) -> Result<(), WriteError> {
        let buffer_sizes = 1024..=16 << 20;
        let fault = if !self.buffer_size.is_multiple_of(1024) || !buffer_sizes.contains(&self.buffer_size) {
            "the buffer size must be whole KiB, at most 16 MiB"
        } else if self.processors == 0 {
            "it needs at least one processor"
        } else if self.form == Form::Windows7 && self.processors > 256 {
            "Windows 7 has at most 256 processors"
        } else if self.form == Form::Windows7 && self.windows_version >= WINDOWS_8 {
            "a file in the form of Windows 7 must not have a later Windows version"
        } else if self.clock == ClockKind::SystemTime && self.start.0 != self.start_time.0 {
            "with the system time clock, the raw and the UTC start time must be equal"
        } else if self.compressed && self.circular.is_some() {
            "a circular file cannot be compressed, because its buffers must have equal sizes"
        } else {
            return Ok(());
        };
        Err(WriteError::Session(fault))
    }

    /// The session's clock.
    pub fn clock(&self) -> Clock {
        match self.clock {
            ClockKind::PerformanceCounter => {
                Clock::performance_counter(self.perf_frequency, self.start, self.start_time)
            }
            ClockKind::SystemTime => Clock::system_time(),
            ClockKind::CpuCycles => Clock::cpu_cycles(self.cpu_mhz.into(), self.start, self.start_time),
        }
    }

    pub(super) fn header_buffer_flags(&self) -> u16 {
        let index = if self.form == Form::Live { BufferFlags::PROCESSOR_INDEX.0 } else { 0 };
        BufferFlags::FLUSH_MARKER.0 | index
    }

    /// The processor number as buffer headers store it.
    pub(super) fn processor_field(&self, processor: u16) -> u16 {
        match self.form {
            // The high byte is the alignment of records.
            Form::Windows7 => 8 << 8 | processor,
            Form::Live | Form::Merged => processor,
        }
    }

    /// The session number as buffer headers store it. Merged files have none.
    pub(super) fn file_logger_id(&self) -> u16 {
        match self.form {
            Form::Live | Form::Windows7 => self.logger_id,
            Form::Merged => 0,
        }
    }

    /// Whether the file is not the first of a series. Windows Vista begins every file with number 2.
    fn continues_series(&self) -> bool {
        self.first_sequence_number > if self.windows_version < (6, 1) { 2 } else { 1 }
    }

    fn mode_bits(&self) -> u32 {
        let bit = |on: bool, mode: LogFileMode| if on { mode.0 } else { 0 };
        let circular = LogFileMode(LogFileMode::CIRCULAR.0 | LogFileMode::USE_KBYTES_FOR_SIZE.0);
        let added = bit(self.form == Form::Merged, LogFileMode::RELOG)
            | bit(self.compressed, LogFileMode::COMPRESSED)
            | bit(self.circular.is_some(), circular)
            | bit(self.continues_series(), LogFileMode::NEW_FILE);
        self.mode.0 | added
    }

    /// The size limit of a circular file in KiB: exactly that of its buffers.
    fn maximum_file_size(&self) -> u32 {
        self.circular
            .map_or(0, |slots| (slots.get().saturating_add(1)).saturating_mul(self.buffer_size >> 10))
    }

    fn layout_version(&self) -> [u8; 2] {
        if self.compressed || self.buffer_size > 1 << 20 || self.processors > 256 { [2, 0] } else { [1, 5] }
    }

    /// TIME_ZONE_INFORMATION without daylight saving time: the bias, then name, date and bias of
    /// standard time and daylight time.
    fn time_zone(&self) -> [u8; 172] {
        const NAMES: [usize; 2] = [4, 88];
        let mut zone = [0; 172];
        zone[..4].copy_from_slice(&self.utc_bias.to_le_bytes());
        let names = match self.utc_bias {
            // UTC as Windows names it.
            0 => ["@tzres.dll,-932", "@tzres.dll,-931"].map(String::from),
            bias => {
                let (sign, minutes) = (if bias < 0 { '+' } else { '-' }, bias.unsigned_abs());
                std::array::from_fn(|_| format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60))
            }
        };
        for (at, name) in NAMES.into_iter().zip(names) {
            let units = name.encode_utf16().take(31).flat_map(u16::to_le_bytes);
            zone[at..].iter_mut().zip(units).for_each(|(byte, value)| *byte = value);
        }
        zone
    }

    /// The payload of the first record.
    pub(super) fn logfile_header(&self, closing: &Closing) -> Vec<u8> {
        let mut out = Vec::with_capacity(0x200);
        let pointer = self.pointer_size.bytes();
        out.extend(self.buffer_size.to_le_bytes());
        out.extend([self.windows_version.0, self.windows_version.1]);
        out.extend(self.layout_version());
        out.extend(self.build.to_le_bytes());
        out.extend(u32::from(self.processors).to_le_bytes());
        out.extend(closing.end_time.0.to_le_bytes());
        out.extend(self.timer_resolution.to_le_bytes());
        out.extend(self.maximum_file_size().to_le_bytes());
        out.extend(self.mode_bits().to_le_bytes());
        out.extend(closing.buffers_written.to_le_bytes());
        // StartBuffers, 1 in every known trace.
        out.extend(1u32.to_le_bytes());
        out.extend((pointer as u32).to_le_bytes());
        out.extend(closing.events_lost.to_le_bytes());
        out.extend(self.cpu_mhz.get().to_le_bytes());
        // The structure has pointers to names here. Live sessions store two small numbers of
        // unknown meaning.
        let in_place_of_names: [u64; 2] = match self.form {
            Form::Live => [10, 7],
            Form::Windows7 => [5, 6],
            Form::Merged => [0, 0],
        };
        in_place_of_names.iter().for_each(|number| out.extend(&number.to_le_bytes()[..pointer]));
        out.extend(self.time_zone());
        out.resize(out.len().next_multiple_of(8), 0);
        out.extend(self.boot_time.0.to_le_bytes());
        out.extend(self.perf_frequency.get().to_le_bytes());
        out.extend(self.start_time.0.to_le_bytes());
        let clock: u32 = match self.clock {
            ClockKind::PerformanceCounter => 1,
            ClockKind::SystemTime => 2,
            ClockKind::CpuCycles => 3,
        };
        out.extend(clock.to_le_bytes());
        out.extend(closing.buffers_lost.to_le_bytes());
        for text in [&self.name, &self.file_name] {
            out.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        }
        out
    }
}
