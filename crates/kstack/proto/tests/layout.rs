//! The structures against the page that documents them, and against numbers that were computed by
//! hand.

use std::mem::offset_of;

use stackhound_kstack_proto::{
    AnswerHeader, Capture, Code, DEVICE_NAME, Flags, LINK_NAME, MAGIC, MAX_FRAMES, MAX_OUTSTANDING,
    MAX_TIMEOUT_MS, Missing, Outcome, PATH, Request, VERSION, Version,
};
use zerocopy::IntoBytes;

const PAGE: &str = include_str!("../../../../docs/kstack-protocol.md");

/// A field: its name and its offset.
type Field = (&'static str, usize);

fn request() -> (&'static str, Vec<Field>, usize) {
    let fields = vec![
        ("magic", offset_of!(Request, magic)),
        ("version", offset_of!(Request, version)),
        ("size", offset_of!(Request, size)),
        ("pid", offset_of!(Request, pid)),
        ("tid", offset_of!(Request, tid)),
        ("created", offset_of!(Request, created)),
        ("max_frames", offset_of!(Request, max_frames)),
        ("flags", offset_of!(Request, flags)),
        ("timeout_ms", offset_of!(Request, timeout_ms)),
        ("id", offset_of!(Request, id)),
        ("frames_to_skip", offset_of!(Request, frames_to_skip)),
        ("reserved", offset_of!(Request, reserved)),
    ];
    ("Request", fields, size_of::<Request>())
}

fn version() -> (&'static str, Vec<Field>, usize) {
    let fields = vec![
        ("magic", offset_of!(Version, magic)),
        ("version", offset_of!(Version, version)),
        ("max_frames", offset_of!(Version, max_frames)),
        ("max_timeout_ms", offset_of!(Version, max_timeout_ms)),
        ("max_outstanding", offset_of!(Version, max_outstanding)),
        ("abilities", offset_of!(Version, abilities)),
    ];
    ("Version", fields, size_of::<Version>())
}

fn answer() -> (&'static str, Vec<Field>, usize) {
    let fields = vec![
        ("magic", offset_of!(AnswerHeader, magic)),
        ("version", offset_of!(AnswerHeader, version)),
        ("size", offset_of!(AnswerHeader, size)),
        ("pid", offset_of!(AnswerHeader, pid)),
        ("tid", offset_of!(AnswerHeader, tid)),
        ("created", offset_of!(AnswerHeader, created)),
        ("id", offset_of!(AnswerHeader, id)),
        ("outcome", offset_of!(AnswerHeader, outcome)),
        ("kernel_count", offset_of!(AnswerHeader, kernel_count)),
        ("user_count", offset_of!(AnswerHeader, user_count)),
        ("flags", offset_of!(AnswerHeader, flags)),
        ("machinery", offset_of!(AnswerHeader, machinery)),
        ("skipped", offset_of!(AnswerHeader, skipped)),
        ("reserved", offset_of!(AnswerHeader, reserved)),
        ("hash", offset_of!(AnswerHeader, hash)),
        ("waited", offset_of!(AnswerHeader, waited)),
    ];
    ("AnswerHeader", fields, size_of::<AnswerHeader>())
}

/// The cells of the table rows below a heading.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(&format!("{heading}\n")));
    let section = section.unwrap_or_else(|| panic!("the page has no heading {heading}"));
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    rows.map(cells).filter(|cells| !cells[0].starts_with("---")).collect()
}

fn number(text: &str) -> u64 {
    let text = text.trim_matches('`');
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|_| panic!("{text} is not a number"))
}

#[test]
fn the_page_documents_the_offset_of_each_field() {
    for (name, fields, size) in [request(), version(), answer()] {
        let rows = rows(name);
        assert_eq!(rows[0][..3], ["offset", "bytes", "field"]);
        let mut end = 0;
        for ((field, offset), row) in fields.iter().zip(&rows[1..]) {
            assert_eq!((number(row[0]), row[2]), (*offset as u64, format!("`{field}`").as_str()), "{name}");
            assert_eq!(number(row[0]), end, "{name}: a gap before {field}");
            end += number(row[1]);
        }
        assert_eq!((fields.len(), end), (rows.len() - 1, size as u64), "{name}");
    }
}

#[test]
fn fields_have_the_offsets_of_version_2() {
    let request_offsets = [0, 4, 6, 8, 12, 16, 24, 26, 28, 32, 40, 42];
    let version_offsets = [0, 4, 6, 8, 12, 14];
    let answer_offsets = [0, 4, 6, 8, 12, 16, 24, 32, 36, 38, 40, 42, 44, 46, 48, 56];
    for ((name, fields, size), offsets, length) in [
        (request(), &request_offsets[..], 48),
        (version(), &version_offsets[..], 16),
        (answer(), &answer_offsets[..], 64),
    ] {
        assert_eq!(fields.iter().map(|field| field.1).collect::<Vec<_>>(), offsets, "{name}");
        assert_eq!(size, length, "{name}");
    }
    assert_eq!((Request::LENGTH, AnswerHeader::LENGTH), (48, 64));
    assert_eq!((AnswerHeader::length_with(0), AnswerHeader::length_with(256)), (64, 64 + 2048));
}

#[test]
fn a_request_has_the_documented_bytes() {
    let capture = Capture {
        pid: 0x0403_0201,
        tid: 0x0807_0605,
        created: Some(0x100f_0e0d_0c0b_0a09),
        max_frames: 0x0100,
        flags: Flags::KERNEL.and(Flags::USER).and(Flags::KEEP_MACHINERY),
        timeout_ms: 0x0000_03e8,
        id: 0x1817_1615_1413_1211,
        frames_to_skip: 0x00ff,
    };
    #[rustfmt::skip]
    let bytes = [
        b'S', b'H', b'K', b'S', 2, 0, 48, 0,
        1, 2, 3, 4, 5, 6, 7, 8,
        9, 10, 11, 12, 13, 14, 15, 16,
        0x00, 0x01, 7, 0, 0xe8, 0x03, 0, 0,
        17, 18, 19, 20, 21, 22, 23, 24,
        0xff, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(Request::from(capture).as_bytes(), bytes);
    assert_eq!(Request::parse(&bytes), Ok(capture));
}

/// `CTL_CODE` is `device << 16 | access << 14 | function << 2 | method`: 0x22 is
/// `FILE_DEVICE_UNKNOWN`, 3 is reading and writing, 0 is buffered.
#[test]
fn control_codes_are_those_of_the_page() {
    assert_eq!(Code::Version.number(), 0x0022_e000);
    assert_eq!(Code::Capture.number(), 0x0022_e004);
    for (code, row) in Code::ALL.into_iter().zip(&rows("Codes")[1..]) {
        let number_of = |column: usize| number(row[column]) as u32;
        assert_eq!(number_of(2), code.number());
        let parts = |code: u32| (code >> 16, code >> 14 & 3, code >> 2 & 0xfff, code & 3);
        assert_eq!(parts(code.number()), (0x22, 3, number_of(1), 0));
        assert_eq!(Code::from_number(code.number()), Some(code));
        for bit in 0..32 {
            let other = code.number() ^ 1 << bit;
            assert_eq!(Code::from_number(other).is_some(), bit == 2, "{other:#x}");
        }
    }
}

#[test]
fn limits_and_names_are_those_of_the_page() {
    assert_eq!((MAGIC, VERSION), (0x534b_4853, 2));
    assert_eq!((MAX_FRAMES, MAX_TIMEOUT_MS, MAX_OUTSTANDING), (256, 1000, 64));
    let values: Vec<&str> = rows("Version")[1..].iter().map(|row| row[3]).collect();
    assert_eq!(values[..5], ["`SHKS`, 0x534b4853", "2", "256", "1000", "64"]);
    let names: Vec<&str> = rows("The device")[1..3].iter().map(|row| row[1]).collect();
    assert_eq!(names, [format!("`{DEVICE_NAME}`"), format!("`{LINK_NAME}`")]);
    assert!(rows("The device")[3][1].starts_with(&format!("`{PATH}`")));
}

#[test]
fn outcomes_are_those_of_the_page() {
    let rows = rows("Outcomes");
    assert_eq!(rows.len() - 1, Outcome::ALL.len());
    for (outcome, row) in Outcome::ALL.into_iter().zip(&rows[1..]) {
        assert_eq!(number(row[0]), outcome as u64);
        assert_eq!(outcome == Outcome::Captured, row[2] != "none");
    }
}

#[test]
fn sentinels_are_those_of_the_page_and_not_addresses() {
    let rows = rows("Sentinels");
    assert_eq!(rows.len() - 1, Missing::ALL.len());
    for (missing, row) in Missing::ALL.into_iter().zip(&rows[1..]) {
        let sentinel = missing.sentinel();
        assert_eq!(number(row[0]), sentinel);
        assert_eq!(Missing::from_sentinel(sentinel), Some(missing));
        for width in [48, 57] {
            let unused = 64 - width;
            let canonical = (sentinel as i64) << unused >> unused;
            assert_ne!(canonical as u64, sentinel, "an address of {width} bits");
        }
        // An entry that differs in one bit is an address or another sentinel.
        for bit in 0..64 {
            assert_ne!(Missing::from_sentinel(sentinel ^ 1 << bit), Some(missing));
        }
    }
    for address in [0, 1, 7, 8, u64::MAX, 0x5d00_0bad_0000_0000, 0x5d00_0bad_0000_000a] {
        assert_eq!(Missing::from_sentinel(address), None, "{address:#x}");
    }
}
