//! Buffers that are dropped from files: which of them are reported, and when records may be missing.

use std::num::NonZeroU32;

use stackhound_etl::write::{Form, Session};
use stackhound_etl::{BufferRef, EtlFile};
use stackhound_trace::LossMap;

use crate::trace_files::{HOOK_IDS, Making, open, selection};

/// Offset of BuffersWritten in a file.
const BUFFERS_WRITTEN: usize = 0x68 + 0x24;

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Finished,
    /// The header was not updated.
    Unfinished,
}

/// What no reader can find out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Undetectable {
    /// Nothing if the count of buffers is right, otherwise the highest number.
    Highest,
    /// Also the lowest number if the count of buffers is wrong.
    Ends,
    /// Also the lowest number.
    Oldest,
}

fn trace_of(session: Session, end: End) -> Vec<u8> {
    let mut making = Making::new(0, session);
    for number in 0..200 {
        making.log((number % 2) as u16, number * 10);
    }
    match end {
        End::Finished => making.finish().0,
        End::Unfinished => making.leave_unfinished(0).0,
    }
}

/// The file without a buffer, whose header counts one buffer less if it is to agree.
fn without(file: &[u8], buffer: &BufferRef, agrees: bool) -> Vec<u8> {
    let (start, end) = (buffer.offset as usize, buffer.offset as usize + buffer.size as usize);
    let mut left = [&file[..start], &file[end..]].concat();
    let count: &mut [u8; 4] = (&mut left[BUFFERS_WRITTEN..BUFFERS_WRITTEN + 4]).try_into().unwrap();
    *count = (u32::from_le_bytes(*count) - u32::from(agrees)).to_le_bytes();
    left
}

#[test]
fn each_dropped_buffer_is_reported_or_cannot_be_noticed() {
    let plain = Session { processors: 2, buffer_size: 1024, ..Session::default() };
    let circular = |count| Session { circular: NonZeroU32::new(count), ..plain.clone() };
    let windows7 = |version, first_sequence_number| Session {
        form: Form::Windows7,
        windows_version: version,
        first_sequence_number,
        ..plain.clone()
    };
    let merged = Session { form: Form::Merged, compressed: true, ..plain.clone() };
    let series = Session { first_sequence_number: 908, ..plain.clone() };
    let cases = [
        ("plain", plain.clone(), Undetectable::Highest),
        ("Windows 7", windows7((6, 1), 1), Undetectable::Highest),
        ("Windows Vista", windows7((6, 0), 2), Undetectable::Ends),
        ("merged", merged, Undetectable::Highest),
        ("a file of a series", series, Undetectable::Ends),
        ("circular, and not full", circular(60), Undetectable::Highest),
        ("circular", circular(4), Undetectable::Oldest),
    ];
    for (name, session, undetectable) in cases {
        for end in [End::Finished, End::Unfinished] {
            if end == End::Unfinished && session.circular.is_some() {
                continue;
            }
            let file = trace_of(session.clone(), end);
            let etl_file = EtlFile::open(file.clone().into()).unwrap();
            let buffers = etl_file.index().buffers;
            let data: Vec<_> = buffers.iter().filter(|buffer| buffer.sequence > 0).collect();
            let lowest = data.iter().map(|buffer| buffer.sequence).min().unwrap();
            let highest = data.iter().map(|buffer| buffer.sequence).max().unwrap();
            for buffer in data {
                for agrees in [false, true] {
                    if end == End::Unfinished && agrees {
                        continue;
                    }
                    let is_counted = end == End::Finished && !agrees;
                    let is_hidden = match undetectable {
                        _ if buffer.sequence == highest => !is_counted,
                        Undetectable::Highest => false,
                        Undetectable::Ends => buffer.sequence == lowest && !is_counted,
                        Undetectable::Oldest => buffer.sequence == lowest,
                    };
                    let trace = open(&[without(&file, buffer, agrees)], 1);
                    let mut survey = trace.selected(selection(&HOOK_IDS[..1]));
                    while survey.next().is_some() {}
                    let losses = LossMap::surveyed(&trace, survey);
                    let mut ordered = trace.ordered();
                    while ordered.next().is_some() {}
                    let stats = ordered.into_stats();
                    let is_reported = stats.buffers_missing > 0 || !stats.damage.is_empty();
                    let case = format!("{name}, {end:?}, agrees {agrees}: {buffer:?}");
                    assert_eq!(is_reported, !is_hidden, "{case}");
                    // Nothing is certain about the time of the dropped records, except where
                    // nothing shows that a session wrote more.
                    let times = etl_file.block(buffer, None).unwrap().0.extent().times.unwrap();
                    let (first, last) = (times.0.0, times.1.0);
                    let is_covered = losses.on_processor(0, Some(buffer.processor), first, last);
                    let is_at_end = buffer.sequence == highest && end == End::Finished;
                    assert!(is_covered || (is_at_end && is_hidden), "{case}");
                }
            }
        }
    }
}

#[test]
fn a_complete_file_has_no_loss() {
    let plain = Session { processors: 2, buffer_size: 1024, ..Session::default() };
    let vista =
        Session { form: Form::Windows7, windows_version: (6, 0), first_sequence_number: 2, ..plain.clone() };
    for session in [plain, vista] {
        let trace = open(&[trace_of(session, End::Finished)], 1);
        let mut survey = trace.selected(selection(&HOOK_IDS[..1]));
        while survey.next().is_some() {}
        assert!(LossMap::surveyed(&trace, survey).is_lossless());
    }
}

/// The first buffers of a file are those after the last ones of the file before it.
#[test]
fn a_series_has_no_loss_between_its_files() {
    let file = |first_sequence_number: i64, start: i64| {
        let session = Session {
            buffer_size: 1024,
            first_sequence_number,
            mode: stackhound_etl::LogFileMode::NEW_FILE,
            ..Session::default()
        };
        let mut making = Making::new(0, session);
        for number in 0..30 {
            making.log(0, start + number);
        }
        making.finish().0
    };
    let first = file(1, 0);
    let next = EtlFile::open(first.clone().into()).unwrap().index().found() as i64;
    for (files, is_lossless) in [(vec![first, file(next, 100)], true), (vec![file(next, 100)], false)] {
        let trace = open(&files, 1);
        let mut survey = trace.selected(selection(&HOOK_IDS[..1]));
        while survey.next().is_some() {}
        assert_eq!(LossMap::surveyed(&trace, survey).is_lossless(), is_lossless);
    }
}
