//! Rules about the header buffer (H) and the logfile header in it (L).

use crate::buffer::{
    BUFFER_HEADER_SIZE, Buffer, FILLER, FLUSH_MARKER, PROCESSOR_INDEX, TRACE_HEADER, kind, records,
};
use crate::bytes::{pointer, u16, u32, u64};
use crate::{Report, Rule};

/// Offset of the logfile header in the header buffer.
const LOGFILE_HEADER: usize = BUFFER_HEADER_SIZE + 0x20;
/// Offset of the two pointers in the logfile header.
const POINTERS: usize = 0x38;
const TIME_ZONE_SIZE: usize = 172;
/// Size of the fields after the aligned time zone: boot time, frequency, start time, clock, lost
/// buffers.
const TAIL_SIZE: usize = 32;

/// Bits of the logging mode.
const ADD_HEADER: u32 = 0x1000;
const RELOGGED: u32 = 0x1_0000;
const SYSTEM_LOGGER: u32 = 0x200_0000;
const MODE_COMPRESSED: u32 = 0x400_0000;
const NO_PER_PROCESSOR_BUFFERING: u32 = 0x1000_0000;

/// Hook ids of the header buffer.
const GROUP_MASKS: u16 = 0x0005;
const HEADER_EXTENSION: u16 = 0x0050;

pub(crate) const WINDOWS_7: (u8, u8) = (6, 1);
pub(crate) const WINDOWS_8: (u8, u8) = (6, 2);
const WINDOWS_8_1: (u8, u8) = (6, 3);
const QPC: u32 = 1;

/// The contents of the header buffer that other rules depend on.
#[derive(Debug)]
pub(crate) struct Session {
    /// Nominal buffer size in bytes.
    pub buffer_size: u32,
    /// Pointer size in bytes: 4 or 8.
    pub pointer: usize,
    /// Major and minor version.
    pub windows: (u8, u8),
    pub processors: u32,
    pub relogged: bool,
    pub compressed: bool,
    pub logger: u16,
    /// Raw time stamp of the logfile header.
    pub first_time: u64,
    /// FILETIME.
    pub start: u64,
    /// FILETIME.
    pub end: u64,
    /// Ticks per second; `None` if raw time stamps are not ticks of one clock for all processors.
    pub frequency: Option<u64>,
}

impl Session {
    /// Checks the header buffer of a file with `buffers` buffers and `file_size` bytes. Returns
    /// `None` if it has no logfile header.
    pub fn check(
        report: &mut Report,
        buffer: &Buffer<'_>,
        buffers: usize,
        file_size: usize,
    ) -> Option<Session> {
        let bytes = buffer.bytes;
        let record = &bytes[BUFFER_HEADER_SIZE..];
        let pointer_size = if record.get(2) == Some(&kind::SYSTEM32) { 4 } else { 8 };
        let zone = POINTERS + 2 * pointer_size;
        let boot = (zone + TIME_ZONE_SIZE).next_multiple_of(8);
        let fixed = LOGFILE_HEADER + boot + TAIL_SIZE;
        let record_size = usize::from(u16(record, 4));
        let is_header = u16(record, 0) == 2
            && matches!(record.get(2), Some(&kind::SYSTEM32 | &kind::SYSTEM64))
            && record.get(3) == Some(&TRACE_HEADER)
            && u16(record, 6) == 0
            && bytes.len() >= fixed;
        report.check(Rule::H02, BUFFER_HEADER_SIZE, is_header, || format!("{:02x?}", record.get(..8)));
        let logfile = bytes.get(LOGFILE_HEADER..).filter(|logfile| logfile.len() >= boot + TAIL_SIZE)?;

        let mode = u32(logfile, 0x20);
        let clock = u32(logfile, boot + 24);
        let per_processor = mode & NO_PER_PROCESSOR_BUFFERING == 0;
        let session = Session {
            buffer_size: u32(logfile, 0),
            pointer: pointer_size,
            windows: (logfile[4], logfile[5]),
            processors: u32(logfile, 12),
            relogged: mode & (RELOGGED | ADD_HEADER) != 0,
            compressed: mode & MODE_COMPRESSED != 0,
            logger: buffer.logger,
            first_time: u64(record, 0x10),
            start: u64(logfile, boot + 16),
            end: u64(logfile, 16),
            frequency: (clock == QPC && per_processor).then(|| u64(logfile, boot + 8)),
        };
        session.check_buffer_header(report, buffer);
        session.check_records(report, buffer, u32(logfile, 8), mode);
        let strings = bytes.get(fixed..BUFFER_HEADER_SIZE + record_size).unwrap_or_default();
        let names = utf16(strings).map(|text| text.split('\0').map(str::to_owned).collect::<Vec<_>>());
        let two = names.as_ref().is_some_and(|names| names.len() == 3 && names[2].is_empty());
        report.check(Rule::H18, fixed, two, || format!("{names:?}"));
        let known = !matches!(u32(record, 8), 0 | u32::MAX) && u32(record, 12) != u32::MAX;
        report.check(Rule::H17, BUFFER_HEADER_SIZE, known, || {
            format!("thread {:#x}, process {:#x}", u32(record, 8), u32(record, 12))
        });
        session.check_logfile_header(report, logfile, zone, boot);

        let written = u32(logfile, 0x24) as usize;
        let mut check = |rule, holds: bool, found: &dyn Fn() -> String| {
            report.check(rule, LOGFILE_HEADER, holds, found);
        };
        check(Rule::L08, clock == QPC, &|| clock.to_string());
        check(Rule::L12, written == buffers, &|| format!("{written} stated, {buffers} found"));
        if !session.compressed {
            let length = u64::from(session.buffer_size) * written as u64;
            check(Rule::L13, length == file_size as u64, &|| format!("{length} stated, {file_size} found"));
        }
        Some(session)
    }

    fn check_buffer_header(&self, report: &mut Report, buffer: &Buffer<'_>) {
        let Buffer { saved_offset: saved, current_offset: current, offset, flags, state, .. } = *buffer;
        let windows_8 = self.windows >= WINDOWS_8;
        let mut check = |rule, holds: bool, found: &dyn Fn() -> String| {
            report.check(rule, buffer.at, holds, found);
        };
        check(Rule::H01, buffer.kind == 4, &|| buffer.kind.to_string());
        let zero = buffer.references == 0 && buffer.clock == 0 && buffer.links == [0, 0];
        check(Rule::H03, zero, &|| format!("{} {:#x} {:x?}", buffer.references, buffer.clock, buffer.links));
        check(Rule::H04, buffer.sequence == 0, &|| buffer.sequence.to_string());
        if self.windows >= WINDOWS_7 {
            check(Rule::H05, buffer.timestamp == 0, &|| buffer.timestamp.to_string());
        }
        let processor = if windows_8 { 0 } else { 0x0800 };
        check(Rule::H06, buffer.processor == processor, &|| format!("{:#x}", buffer.processor));
        let indexes = if windows_8 && !self.relogged { PROCESSOR_INDEX } else { 0 };
        check(Rule::H07, flags == FLUSH_MARKER | indexes, &|| format!("{flags:#x}"));
        let expected = if self.relogged && !self.compressed { 0 } else { 3 };
        check(Rule::H08, state == expected, &|| state.to_string());
        let aligned = saved > 0 && saved.is_multiple_of(8);
        check(Rule::H09, if windows_8 { aligned } else { saved == 0 }, &|| saved.to_string());
        let end = match saved {
            _ if self.relogged => 0,
            0 => offset,
            saved => saved,
        };
        check(Rule::H10, current == end, &|| format!("{current}, not {end}"));
        check(Rule::H11, offset >= saved, &|| format!("{offset} before {saved}"));
        let size = buffer.bytes.len() as u64;
        let expected = if self.compressed {
            u64::from(offset).next_multiple_of(512)
        } else {
            u64::from(self.buffer_size)
        };
        check(Rule::H12, size == expected, &|| format!("{size}, not {expected}"));
        check(Rule::H13, (buffer.logger == 0) == self.relogged, &|| buffer.logger.to_string());
    }

    fn check_records(&self, report: &mut Report, buffer: &Buffer<'_>, build: u32, mode: u32) {
        let bytes = buffer.bytes;
        let (saved, offset) = (buffer.saved_offset as usize, buffer.offset as usize);
        let stated = saved.max(offset);
        let (records, end) = records(bytes, if stated <= bytes.len() { stated } else { bytes.len() });
        for record in &records {
            let allowed = matches!(record.kind, kind::SYSTEM32 | kind::SYSTEM64 | kind::PERF_INFO64);
            let holds = record.marker == TRACE_HEADER && allowed && record.hook_id() >> 8 == 0;
            report.check(Rule::H14, buffer.at + record.at, holds, || describe(record.kind, record.hook_id()));
        }
        let ends = end == saved || end as u64 == (offset as u64).next_multiple_of(8);
        report.check(Rule::H15, buffer.at + end, ends, || format!("{end}, not {saved} or {offset}"));
        let rest = bytes.get(end..).unwrap_or_default();
        let filled = rest.iter().all(|byte| *byte == FILLER);
        report.check(Rule::H16, buffer.at + end, filled, || String::from("other bytes"));

        let system = if self.pointer == 4 { kind::SYSTEM32 } else { kind::SYSTEM64 };
        let has = |hook_id| records.iter().any(|record| record.kind == system && record.hook_id() == hook_id);
        let hook_ids =
            || records.iter().map(|record| describe(record.kind, record.hook_id())).collect::<String>();
        if !self.relogged && build >= 16299 {
            report.check(Rule::H19, buffer.at, has(HEADER_EXTENSION), hook_ids);
        }
        if !self.relogged && mode & SYSTEM_LOGGER != 0 {
            report.check(Rule::H20, buffer.at, has(GROUP_MASKS), hook_ids);
        }
    }

    fn check_logfile_header(&self, report: &mut Report, logfile: &[u8], zone: usize, boot: usize) {
        let (size, build) = (self.buffer_size, u32(logfile, 8));
        let mut check = |rule, holds: bool, found: &dyn Fn() -> String| {
            report.check(rule, LOGFILE_HEADER, holds, found);
        };
        check(Rule::L01, size > 0 && size.is_multiple_of(1024), &|| size.to_string());
        let layout = match () {
            () if self.compressed || size > 1 << 20 => [2, 0],
            () if self.windows >= WINDOWS_7 => [1, 5],
            () => [1, 4],
        };
        check(Rule::L02, logfile[6..8] == layout, &|| format!("{:?}, not {layout:?}", &logfile[6..8]));
        let times = [u64(logfile, boot), self.start, self.end];
        check(Rule::L03, times.is_sorted_by(|one, next| one < next), &|| format!("{times:?}"));
        let resolution = u32(logfile, 0x18);
        check(Rule::L04, matches!(resolution, 156_250 | 156_001), &|| resolution.to_string());
        check(Rule::L05, u32(logfile, 0x28) == 1, &|| u32(logfile, 0x28).to_string());
        check(Rule::L06, u32(logfile, 0x2c) as usize == self.pointer, &|| u32(logfile, 0x2c).to_string());
        let (speed, frequency) = (u32(logfile, 0x34), u64(logfile, boot + 8));
        check(Rule::L07, speed > 0 && frequency > 0, &|| format!("{speed} MHz, {frequency} Hz"));
        if !self.relogged {
            let names = [POINTERS, POINTERS + self.pointer].map(|at| pointer(logfile, at, self.pointer));
            check(Rule::L09, !names.contains(&0), &|| format!("{names:?}"));
        }
        let named = [4, 88].iter().all(|name| u16(logfile, zone + name) != 0);
        check(Rule::L10, named, &|| String::from("an empty name"));
        let padding = &logfile[zone + TIME_ZONE_SIZE..boot];
        check(Rule::L11, padding.iter().all(|byte| *byte == 0), &|| format!("{padding:?}"));
        if build >= 17763 {
            check(Rule::L14, frequency == 10_000_000, &|| frequency.to_string());
        }
        let agree =
            (build >= 10240) == (self.windows.0 >= 10) && (build < 9600 || self.windows >= WINDOWS_8_1);
        check(Rule::L15, agree, &|| format!("{:?} with build {build}", self.windows));
    }
}

fn describe(kind: u8, hook_id: u16) -> String {
    format!("header kind {kind} with hook id {hook_id:#06x} ")
}

/// Decodes UTF-16; `None` if it is invalid.
pub(crate) fn utf16(bytes: &[u8]) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks();
    let units: Vec<u16> = pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    String::from_utf16(&units).ok().filter(|_| rest.is_empty())
}
