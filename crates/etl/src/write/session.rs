//! The session that a recording comes from, and the logfile header that states it.

use std::num::{NonZeroU32, NonZeroU64};

use stackhound_types::{FileTime, Pid, PointerSize, RawTime, Tid};

use super::{Issuer, WriteError};
use crate::buffer::BufferFlags;
use crate::{Clock, ClockKind, LogFileMode, LogfileHeader};

/// The first Windows whose kernel numbers processors with 16 bits: Windows 8.
const WINDOWS_8: (u8, u8) = (6, 2);

/// What a recording says of the session that wrote it. Start from [`Session::default`] and change what matters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Pointer size of the system, and of the logfile header.
    pub pointer_size: PointerSize,
    /// Number of processors; each has a stream of buffers of its own.
    pub processors: u16,
    /// Size of a buffer in bytes: whole KiB, 16 MiB at most.
    pub buffer_size: u32,
    /// What raw timestamps count.
    pub clock: ClockKind,
    /// Raw timestamp of the first record, which goes with `start_time`. Both are equal under the system time clock.
    pub start: RawTime,
    /// When the session started.
    pub start_time: FileTime,
    /// When the session ended; `None` for one clock interrupt of 15.625 ms after the last record. The end of live
    /// sessions is always later than their last record.
    pub end_time: Option<FileTime>,
    /// When the machine was started.
    pub boot_time: FileTime,
    /// Performance counter ticks in a second.
    pub perf_frequency: NonZeroU64,
    /// Processor speed in MHz.
    pub cpu_mhz: NonZeroU32,
    /// Clock interrupt period in 100 ns; the unit of processor times in record headers.
    pub timer_resolution: u32,
    /// Minutes to add to local time to get UTC.
    pub utc_bias: i32,
    /// Windows version, major and minor.
    pub windows_version: (u8, u8),
    /// Windows build.
    pub build: u32,
    /// Logging mode. The bits that follow from `form`, `compressed` and `circular` are added.
    pub mode: LogFileMode,
    /// The thread that started the session; the logfile header names it.
    pub issuer: Issuer,
    /// The session's number on its machine.
    pub logger_id: u16,
    /// The session's name.
    pub name: String,
    /// The file the session writes to, as the session knows it.
    pub file_name: String,
    /// Which writer's habits the file has.
    pub form: Form,
    /// Whether buffers are compressed, with XPRESS. All known files of this kind are merged ones.
    ///
    /// The header buffer ends at the next multiple of 512 bytes then, instead of having the size of all buffers. A buffer
    /// that compression does not make smaller stays as it is, which no known file has.
    pub compressed: bool,
    /// How many data buffers a circular file keeps, the latest ones; `None` for a file that keeps all.
    ///
    /// They are held in memory until the file is finished.
    pub circular: Option<NonZeroU32>,
    /// Sequence number of the first data buffer; greater than 1 in all but the first file of a series.
    pub first_sequence_number: i64,
}

/// Which writer's habits a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The kernel of Windows 8 or later.
    Live,
    /// The kernel of Windows 7: processor numbers have 8 bits, and the header buffer states one of its two ends only.
    /// The Windows version must be 6.1 at most, since readers go by it.
    Windows7,
    /// A tool that merges or relogs: no session number, buffers stamped in UTC.
    Merged,
}

impl Default for Session {
    /// A 64-bit system with one processor and 64 KiB buffers; its performance counter ticks in 100 ns.
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

/// What is known only when the session has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    /// 0 while the session runs.
    pub(super) end_time: FileTime,
    /// Header buffer included.
    pub(super) buffers_written: u32,
    pub(super) events_lost: u32,
    pub(super) buffers_lost: u32,
}

impl Closing {
    /// As long as the session runs.
    pub(super) const RUNNING: Closing =
        Closing { end_time: FileTime(0), buffers_written: 1, events_lost: 0, buffers_lost: 0 };
}

impl Session {
    /// The session that a recording or a live session states, so that its records can be written again as they are.
    /// What nothing is stated of is as in [`Session::default`].
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
            "the buffer size is not a number of whole KiB up to 16 MiB"
        } else if self.processors == 0 {
            "there is no processor"
        } else if self.form == Form::Windows7 && self.processors > 256 {
            "Windows 7 numbers processors with 8 bits"
        } else if self.form == Form::Windows7 && self.windows_version >= WINDOWS_8 {
            "a file of Windows 7 that states a later version"
        } else if self.clock == ClockKind::SystemTime && self.start.0 != self.start_time.0 {
            "the system time clock starts at another time than the session"
        } else if self.compressed && self.circular.is_some() {
            "compressed buffers differ in size and cannot be overwritten in place"
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

    /// The number that buffer headers give a processor.
    pub(super) fn processor_field(&self, processor: u16) -> u16 {
        match self.form {
            // The high byte is the alignment of records.
            Form::Windows7 => 8 << 8 | processor,
            Form::Live | Form::Merged => processor,
        }
    }

    /// The session's number as buffer headers state it; merged files have none.
    pub(super) fn file_logger_id(&self) -> u16 {
        match self.form {
            Form::Live | Form::Windows7 => self.logger_id,
            Form::Merged => 0,
        }
    }

    fn mode_bits(&self) -> u32 {
        let bit = |on: bool, mode: LogFileMode| if on { mode.0 } else { 0 };
        let circular = LogFileMode(LogFileMode::CIRCULAR.0 | LogFileMode::USE_KBYTES_FOR_SIZE.0);
        let added = bit(self.form == Form::Merged, LogFileMode::RELOG)
            | bit(self.compressed, LogFileMode::COMPRESSED)
            | bit(self.circular.is_some(), circular);
        self.mode.0 | added
    }

    /// The size limit in KiB that a circular file has: that of its buffers, exactly.
    fn maximum_file_size(&self) -> u32 {
        self.circular
            .map_or(0, |slots| (slots.get().saturating_add(1)).saturating_mul(self.buffer_size >> 10))
    }

    fn layout_version(&self) -> [u8; 2] {
        if self.compressed || self.buffer_size > 1 << 20 || self.processors > 256 { [2, 0] } else { [1, 5] }
    }

    /// TIME_ZONE_INFORMATION without daylight saving time: the bias, then name, date and bias of either time.
    fn time_zone(&self) -> [u8; 172] {
        const NAMES: [usize; 2] = [4, 88];
        let mut zone = [0; 172];
        zone[..4].copy_from_slice(&self.utc_bias.to_le_bytes());
        let names = match self.utc_bias {
            // UTC as Windows refers to it.
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
        // StartBuffers, 1 in every known recording.
        out.extend(1u32.to_le_bytes());
        out.extend((pointer as u32).to_le_bytes());
        out.extend(closing.events_lost.to_le_bytes());
        out.extend(self.cpu_mhz.get().to_le_bytes());
        // Where the structure has pointers to names, live sessions have two small numbers of an unknown meaning.
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
