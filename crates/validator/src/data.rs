//! Rules about data buffers (D), and about the whole file (F).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use crate::buffer::{BUFFER_HEADER_SIZE, Buffer, COMPRESSED, FILLER, FLUSH_MARKER, PROCESSOR_INDEX, records};
use crate::header::{Session, WINDOWS_8};
use crate::kernel::Kernel;
use crate::{Report, Rule, record, xpress};

/// The state of a buffer that was flushed.
const FLUSHED: u32 = 3;
/// The largest buffer of a session.
const BUFFER_SIZE_MAX: usize = 16 << 20;
/// The bytes that may remain at the end of a chunk: a flag word that was not needed.
const UNUSED_FLAGS: [u8; 4] = [0xff; 4];
/// A FILETIME of the year 1981. Tick counters are less than this.
const FILE_TIME_MIN: i64 = 120_000_000_000_000_000;

/// The previous buffer of a processor.
struct Previous {
    sequence: i64,
    timestamp: i64,
    /// Time of the latest record.
    time: u64,
}

/// Checks all data buffers.
pub(crate) fn check(report: &mut Report, session: &Session, buffers: &[Buffer<'_>]) {
    let mut processors = HashMap::new();
    let mut kernel = Kernel::default();
    let mut latest = session.first_time;
    for buffer in buffers {
        let start = Previous { sequence: 0, timestamp: -1, time: 0 };
        let previous = processors.entry(processor(buffer)).or_insert(start);
        check_header(report, session, buffer);
        let ascends = buffer.sequence > previous.sequence;
        report.check(Rule::D11, buffer.at, ascends, || {
            format!("{} after {}", buffer.sequence, previous.sequence)
        });
        previous.sequence = buffer.sequence;
        let ascends = buffer.timestamp >= previous.timestamp;
        report.check(Rule::D12, buffer.at, ascends, || {
            format!("{} after {}", buffer.timestamp, previous.timestamp)
        });
        previous.timestamp = buffer.timestamp;

        let Some(bytes) = expand(report, buffer) else { continue };
        let Some((first, last)) = check_records(report, session, &mut kernel, buffer, &bytes) else {
            continue;
        };
        report.check(Rule::D19, buffer.at, first >= previous.time, || {
            format!("{first} after {}", previous.time)
        });
        previous.time = last;
        latest = latest.max(last);
        if session.relogged {
            let is_file_time = buffer.timestamp > FILE_TIME_MIN;
            report.check(Rule::D21, buffer.at, is_file_time, || buffer.timestamp.to_string());
        } else {
            let later = i128::from(buffer.timestamp) > i128::from(last);
            report.check(Rule::D20, buffer.at, later, || {
                format!("{}, and a record at {last}", buffer.timestamp)
            });
        }
    }
    check_file(report, session, buffers, latest);
    kernel.check(report, session);
}

fn processor(buffer: &Buffer<'_>) -> u16 {
    if buffer.has(PROCESSOR_INDEX) { buffer.processor } else { buffer.processor & 0xff }
}

fn check_header(report: &mut Report, session: &Session, buffer: &Buffer<'_>) {
    let Buffer { saved_offset: saved, current_offset: current, offset, flags, .. } = *buffer;
    let nominal = session.buffer_size;
    let mut check = |rule, holds: bool, found: &dyn Fn() -> String| {
        report.check(rule, buffer.at, holds, found);
    };
    check(Rule::D01, buffer.kind == 0, &|| buffer.kind.to_string());
    check(Rule::D02, buffer.state == FLUSHED, &|| buffer.state.to_string());
    check(Rule::D03, buffer.references == 0, &|| buffer.references.to_string());
    let used = saved > BUFFER_HEADER_SIZE as u32 && saved <= nominal && saved.is_multiple_of(8);
    check(Rule::D04, used && saved == offset, &|| format!("{saved} and {offset} of {nominal}"));
    let beyond = current > nominal && current.is_multiple_of(8);
    check(Rule::D05, beyond, &|| format!("{current}, and a size of {nominal}"));
    check(Rule::D06, buffer.has(COMPRESSED) == session.compressed, &|| format!("flags {flags:#x}"));
    let size = buffer.bytes.len();
    check(Rule::D07, buffer.has(COMPRESSED) || size == nominal as usize, &|| {
        format!("{size} bytes, not {nominal}")
    });
    let known = FLUSH_MARKER | PROCESSOR_INDEX | COMPRESSED;
    check(Rule::D08, flags & !known == 0, &|| format!("{flags:#x}"));
    let is_index = buffer.has(PROCESSOR_INDEX);
    let expected = session.windows >= WINDOWS_8;
    check(Rule::D09, is_index == expected && (is_index || buffer.processor >> 8 == 8), &|| {
        format!("flags {flags:#x}, processor {:#x}", buffer.processor)
    });
    check(Rule::D10, u32::from(processor(buffer)) < session.processors, &|| {
        format!("processor {} of {}", processor(buffer), session.processors)
    });
}

/// The expanded buffer.
fn expand<'a>(report: &mut Report, buffer: &Buffer<'a>) -> Option<Cow<'a, [u8]>> {
    if !buffer.has(COMPRESSED) {
        return Some(Cow::Borrowed(buffer.bytes));
    }
    let (header, chunk) = buffer.bytes.split_at(BUFFER_HEADER_SIZE);
    let saved = buffer.saved_offset as usize;
    let size = saved.checked_sub(BUFFER_HEADER_SIZE).filter(|size| *size <= BUFFER_SIZE_MAX);
    let expanded = size.and_then(|size| xpress::expand(chunk, size));
    let holds = expanded.as_ref().is_some_and(|expanded| {
        let rest = &chunk[chunk.len() - expanded.left_over..];
        buffer.bytes.len() < saved && (rest.is_empty() || rest == UNUSED_FLAGS)
    });
    report.check(Rule::D13, buffer.at, holds, || {
        let left_over = expanded.as_ref().map(|expanded| expanded.left_over);
        format!("{} bytes for {saved}, left over {left_over:?}", buffer.bytes.len())
    });
    Some(Cow::Owned([header, &expanded?.bytes].concat()))
}

/// Checks the records of an expanded buffer; returns the first time and the latest.
fn check_records(
    report: &mut Report,
    session: &Session,
    kernel: &mut Kernel,
    buffer: &Buffer<'_>,
    bytes: &[u8],
) -> Option<(u64, u64)> {
    let saved = buffer.saved_offset as usize;
    let (records, end) = records(bytes, saved);
    let mut times = None;
    for record in &records {
        let at = buffer.at + record.at;
        if !record::check_header(report, at, record) {
            continue;
        }
        let time = record.time();
        let (first, latest) = times.unwrap_or((time, 0));
        report.check(Rule::D14, at, time >= latest, || format!("{time} after {latest}"));
        report.check(Rule::D15, at, time >= session.first_time, || {
            format!("{time}, and {} in the logfile header", session.first_time)
        });
        times = Some((first, latest.max(time)));
        kernel.times.insert(time);
        record::check(report, session, kernel, at, record);
    }
    report.check(Rule::D16, buffer.at + end, end == saved, || format!("{end}, not {saved}"));
    report.check(Rule::D17, buffer.at, !records.is_empty(), || String::from("none"));
    if !buffer.has(COMPRESSED) {
        let rest = bytes.get(end..).unwrap_or_default();
        let other = rest.iter().position(|byte| *byte != FILLER);
        report.check(Rule::D18, buffer.at + end, other.is_none(), || format!("other bytes, first {other:?}"));
    }
    times
}

fn check_file(report: &mut Report, session: &Session, buffers: &[Buffer<'_>], latest: u64) {
    let sequences: BTreeSet<i64> = buffers.iter().map(|buffer| buffer.sequence).collect();
    let unique = sequences.len() == buffers.len() && sequences.first().is_none_or(|first| *first >= 1);
    report.check(Rule::F03, 0, unique, || {
        format!("{} numbers from {:?} in {} buffers", sequences.len(), sequences.first(), buffers.len())
    });
    let flushed: Vec<usize> =
        buffers.iter().filter(|buffer| buffer.has(FLUSH_MARKER)).map(|buffer| buffer.at).collect();
    let last = buffers.last().map(|buffer| buffer.at);
    report.check(Rule::F04, 0, last.is_some_and(|last| flushed == [last]), || {
        format!("in the buffers at {flushed:#x?}")
    });
    let loggers: BTreeSet<u16> = buffers.iter().map(|buffer| buffer.logger).collect();
    let one = loggers.len() == 1 && (session.relogged || loggers.contains(&session.logger));
    report.check(Rule::F05, 0, one, || format!("{loggers:?}, and {} in the header buffer", session.logger));
    if let Some(frequency) = session.frequency.filter(|_| !session.relogged) {
        let ticks = u128::from(latest - session.first_time);
        // A frequency of 0 violates L07.
        let duration = (ticks * 10_000_000).checked_div(u128::from(frequency)).unwrap_or(u128::MAX);
        let last = u128::from(session.start).saturating_add(duration);
        report.check(Rule::F07, 0, u128::from(session.end) > last, || {
            format!("the end at {}, a record at {last}", session.end)
        });
    }
}
