//! CSV, read by a parser.

use proptest::prelude::*;
use stackhound_detect::{Totals, Verdict};
use stackhound_export::findings::FindingsFormat::Csv;

use crate::event_contexts::{access, events, nothing};
use crate::written;

type Row = std::collections::BTreeMap<String, String>;

fn rows(text: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.expect("a row")).collect()
}

#[test]
fn each_finding_is_a_row() {
    let rows = rows(&written(Csv, false, &[access(), nothing()], &[], &Totals::default()));
    assert_eq!(rows.len(), 4);
    let first = &rows[0];
    for (column, expected) in [
        ("time", "2023-01-01T00:00:00.0000001Z"),
        ("verdict", "yes"),
        ("severity", "high"),
        ("id", "CS07"),
        ("reasons", "sensitive-operation caller-unbacked"),
        ("process.name", "tool.exe"),
        ("pid", "4021"),
        ("access", "0x1410"),
        ("frame", "2"),
        ("frame_label", "unbacked 0x24f64b7b7a1"),
        ("stack", "ntdll.dll!NtOpenProcess+0x14 | KERNELBASE.dll+0x2c13e | unbacked 0x24f64b7b7a1"),
        ("attack", "T1055 T1620"),
        ("count", "3"),
        ("input", "events.evtx:17"),
        ("alert", "00000000deadbeef"),
    ] {
        assert_eq!(first[column], expected, "{column}");
    }
    let last = &rows[3];
    assert_eq!((&*last["verdict"], &*last["inputs_missing"]), ("undetermined", "stack"));
    assert_eq!((&*last["pid"], &*last["time"], &*last["frame"], &*last["alert"]), ("", "", "", ""));
}

#[test]
fn tables_without_findings_have_a_header() {
    let text = written(Csv, false, &[], &[], &Totals::default());
    assert_eq!(text.lines().count(), 1);
    assert!(text.starts_with("time,verdict,severity,id,title,"));
}

proptest! {
    #[test]
    fn findings_are_lines_without_formulas(events in events()) {
        let text = written(Csv, false, &events, &[], &Totals::default());
        let count = events.iter().flat_map(|(_, findings)| findings);
        let count = count.filter(|finding| finding.outcome.verdict != Verdict::No).count();
        assert_eq!((text.lines().count(), rows(&text).len()), (count + 1, count));
        for cell in rows(&text).iter().flat_map(|row| row.values()) {
            let first = cell.trim_start().chars().next().unwrap_or('a');
            assert!(!"=+-@＝＋－＠".contains(first) && !cell.contains(char::is_control), "{cell:?}");
        }
    }
}
