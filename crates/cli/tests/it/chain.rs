//! `top wait --chain`: all formats show the same path, and its parts fill the window.

use serde_json::Value;

use crate::program::{refused, stackhound, text};

fn printed(arguments: &[&str]) -> String {
    let output = stackhound(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn a_path_fills_the_window_in_all_formats() {
    let folder = tempfile::tempdir().unwrap();
    printed(&["demo", "-q", "--out", text(folder.path())]);
    let path = folder.path().join("stackhound-demo.etl");
    let top = |arguments: &[&str]| {
        let common = ["top", "wait", "-q", "--symbol-path", "", text(&path)];
        printed(&[&common[..], arguments].concat())
    };
    let threads: Value =
        serde_json::from_str(&top(&["--by", "thread", "--format", "json", "--all"])).unwrap();
    let threads: Vec<String> =
        threads["rows"].as_array().unwrap().iter().map(|row| row["tid"].to_string()).collect();
    let (mut followed, mut nested) = (0, 0);
    for (index, tid) in threads.iter().enumerate() {
        let path = |arguments: &[&str]| top(&[&["--chain", "--tid", tid], arguments].concat());
        let window: &[&str] = if index % 2 == 0 { &[] } else { &["--from", "+50ms", "--to", "+250ms"] };
        let read = |arguments: &[&str]| -> Value {
            serde_json::from_str(&path(&[&["--format", "json"], window, arguments].concat())).unwrap()
        };
        let document = read(&["--all"]);
        let segments = document["segments"].as_array().unwrap();
        let waits = document["waits"].as_array().unwrap();
        assert_eq!(number(&document["segment_count"]), segments.len() as u64);
        // Times are rounded down to nanoseconds, but the ticks of the demo are 100 ns.
        let mut end = 0;
        let mut totals: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
        for segment in segments {
            assert_eq!(number(&segment["from"]), end, "{tid}");
            end += number(&segment["duration"]);
            *totals.entry(segment["kind"].as_str().unwrap()).or_default() += number(&segment["duration"]);
            let (mut inner, mut wait) = (segment, &segment["wait"]);
            while let Some(index) = wait.as_u64() {
                let outer = &waits[index as usize];
                let until = |part: &Value| number(&part["from"]) + number(&part["duration"]);
                assert!(number(&outer["from"]) <= number(&inner["from"]) && until(inner) <= until(outer));
                nested += usize::from(!outer["within"].is_null());
                (inner, wait) = (outer, &outer["within"]);
            }
        }
        assert_eq!(end, number(&document["window"]["duration"]), "{tid}");
        for (kind, total) in document["total"].as_object().unwrap() {
            assert_eq!(number(total), totals.get(&**kind).copied().unwrap_or(0), "{tid}: {kind}");
        }
        followed += waits.len();
        let csv = path(&[&["--format", "csv", "--all"], window].concat());
        assert_eq!(csv.lines().count(), 1 + segments.len(), "{tid}");
        let table = path(&[&["--all"], window].concat());
        let rows = table.lines().skip_while(|line| !line.is_empty()).skip(2).count();
        assert_eq!(rows, segments.len(), "{tid}");
        // The longest segments, in the order of time.
        let longest = read(&["--top", "3"]);
        let longest = longest["segments"].as_array().unwrap();
        assert_eq!(longest.len(), segments.len().min(3));
        let length = |segment: &Value| number(&segment["duration"]);
        let least = longest.iter().map(length).min().unwrap();
        assert!(segments.iter().filter(|segment| length(segment) > least).count() < 3, "{tid}");
        assert!(longest.windows(2).all(|pair| number(&pair[0]["from"]) < number(&pair[1]["from"])));
    }
    assert!(followed > 20 && nested > 0, "{followed} {nested}");
}

#[test]
fn what_has_no_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    printed(&["demo", "-q", "--events", "8000", "--out", text(folder.path())]);
    let path = folder.path().join("stackhound-demo.etl");
    let chain = ["top", "wait", "-q", "--chain", "--tid", "4294967295", text(&path)];
    refused(
        &chain,
        "no context switch of thread 4294967295 is in the selected part of the trace; `stackhound top wait --by \
         thread` lists threads",
    );
    refused(
        &[&chain[..], &["--pid", "4"]].concat(),
        "--chain follows all threads; only --from and --to select a part of it",
    );
    refused(
        &[&chain[..], &["--preset", "modules"]].concat(),
        "--chain shows stacks as they are; leave out the patterns of frames",
    );
    for arguments in [&["--chain"][..], &["--tid", "4"], &["--chain", "--tid", "4", "--by", "thread"]] {
        let output = stackhound(&[&["top", "wait", text(&path)], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
