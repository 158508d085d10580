//! The output of the writer differs from that of Windows only in known ways.

use std::io::Cursor;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, Form, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_types::{Guid, Pid, PointerSize, RawTime, Tid};
use stackhound_validator::Rule::*;
use stackhound_validator::{KnownViolation, assert_known};

#[path = "../examples/write_sample.rs"]
#[allow(dead_code)]
mod write_sample;

const SAMPLES: &[&str] = &[
    "live",
    "odd-frequency",
    "compressed",
    "merged-plain",
    "merged-compressed",
    "windows7-32bit",
    "cycles",
    "system-time",
];
const SAMPLES_64_BIT: &[&str] =
    &["live", "odd-frequency", "compressed", "merged-plain", "merged-compressed", "cycles", "system-time"];

/// All violations are intentional.
const SAMPLES_EXPECTED: &[KnownViolation] = &[
    KnownViolation {
        files: SAMPLES,
        rules: &[R01, R03, R13],
        reason: "intentional: samples have every header kind, counters and every extended item",
    },
    KnownViolation {
        files: SAMPLES,
        rules: &[R17, K01],
        reason: "intentional: payloads are placeholders and name neither a process nor a triggering event",
    },
    KnownViolation {
        files: SAMPLES_64_BIT,
        rules: &[R14],
        reason: "intentional: samples have stacks of both pointer sizes",
    },
    KnownViolation {
        files: &["odd-frequency"],
        rules: &[L14],
        reason: "intentional: with 10 MHz, ticks and units of 100 ns could be confused",
    },
    KnownViolation {
        files: &["cycles", "system-time"],
        rules: &[L08],
        reason: "intentional: samples use all clocks",
    },
];

const FORMS_WINDOWS_8: &[&str] =
    &["plain", "large", "circular", "series", "losses", "flushed", "flushed-empty", "unfinished"];

/// All violations are intentional.
const FORMS_EXPECTED: &[KnownViolation] = &[
    KnownViolation {
        files: &["circular"],
        rules: &[D11, D12, D19, F04, L12, L13],
        reason: "intentional: the latest buffers replaced the oldest ones, so the order is not kept",
    },
    KnownViolation {
        files: &["unfinished"],
        rules: &[F01, F02, F07, L03, L12, L13],
        reason: "intentional: the logfile header has no end time and no count of buffers, and zeros follow the last buffer",
    },
    KnownViolation {
        files: &["flushed-empty"],
        rules: &[D04, D17],
        reason: "intentional: the test writes a buffer without records",
    },
    KnownViolation {
        files: FORMS_WINDOWS_8,
        rules: &[H19],
        reason: "intentional: the caller writes no further records to the header buffer",
    },
];

type Writer = EtlWriter<Cursor<Vec<u8>>>;

#[test]
fn samples_have_only_known_violations() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("samples");
    write_sample::write_all(&folder).unwrap();
    let read = |name: &&'static str| (*name, std::fs::read(folder.join(name).with_extension("etl")).unwrap());
    assert_known(&SAMPLES.iter().map(read).collect::<Vec<_>>(), SAMPLES_EXPECTED);
}

#[test]
fn forms_have_only_known_violations() {
    let plain = Session { processors: 2, buffer_size: 4096, ..Session::default() };
    let windows7 = Session { form: Form::Windows7, windows_version: (6, 1), build: 7601, ..plain.clone() };
    let large = Session { buffer_size: 4 << 20, ..plain.clone() };
    let circular = Session { circular: NonZeroU32::new(3), ..plain.clone() };
    let series = Session { first_sequence_number: 908, ..plain.clone() };
    let losses = |writer: &mut Writer| {
        log(writer, 0..10);
        writer.lose_buffer(0).unwrap();
        log(writer, 10..500);
    };
    let flush = |writer: &mut Writer| {
        log(writer, 0..10);
        writer.flush(0).unwrap();
        log(writer, 10..500);
    };
    let flush_empty = |writer: &mut Writer| {
        flush(writer);
        writer.flush(0).unwrap();
        writer.flush(0).unwrap();
    };
    let log = |writer: &mut Writer| log(writer, 0..500);
    let mut unfinished = EtlWriter::new(plain.clone(), Cursor::new(Vec::new())).unwrap();
    log(&mut unfinished);
    let unfinished = unfinished.leave_unfinished(8192).unwrap().0.into_inner();
    let files = [
        ("plain", finished(&plain, log)),
        ("windows7", finished(&windows7, log)),
        ("large", finished(&large, log)),
        ("circular", finished(&circular, log)),
        ("series", finished(&series, log)),
        ("losses", finished(&plain, losses)),
        ("flushed", finished(&plain, flush)),
        ("flushed-empty", finished(&plain, flush_empty)),
        ("unfinished", unfinished),
    ];
    assert_known(&files, FORMS_EXPECTED);
}

/// The bytes of a file to which `write` wrote.
fn finished(session: &Session, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = EtlWriter::new(session.clone(), Cursor::new(Vec::new())).unwrap();
    write(&mut writer);
    writer.finish().unwrap().0.into_inner()
}

/// Writes a record for each number, to the processors in turn.
fn log(writer: &mut Writer, numbers: Range<i64>) {
    let start = writer.session().start.0 + 1;
    let processors = i64::from(writer.session().processors);
    for number in numbers {
        let header = HeaderSpec::Event {
            provider: Guid::new(1, 2, 3, [4; 8]),
            descriptor: Descriptor {
                id: 1,
                version: 0,
                channel: 0,
                level: 4,
                opcode: 0,
                task: 0,
                keyword: 0,
            },
            property: 0,
            issuer: Issuer::new(Pid(1000), Tid(1004)),
            activity: Guid::ZERO,
            items: &[],
        };
        let record = RecordSpec {
            time: RawTime(start + number),
            pointer_size: PointerSize::Eight,
            header,
            payload: Payload::Bytes(&[7; 40]),
        };
        writer.write((number % processors) as u16, &record).unwrap();
    }
}
