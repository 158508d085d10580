//! Forms of output, files, limits of memory, and several directories.

use std::fs;
use std::process::{Command, Stdio};

use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};

use crate::program::{convert, demo, error, lake, rows, text};

const LOSSES: &str = "SELECT kind, CAST(\"count\" AS INT) AS n, file FROM losses WHERE kind = 'buffers-lost'";

#[test]
fn tables_and_csv_have_the_same_cells() {
    let tables = demo().tables();
    assert_eq!(text(lake(&["query", LOSSES, &tables])), "kind          n  file\nbuffers-lost  1  NULL\n");
    assert_eq!(
        text(lake(&["query", LOSSES, &tables, "--format", "csv"])),
        "kind,n,file\r\nbuffers-lost,1,\r\n"
    );
    assert_eq!(
        text(lake(&["query", LOSSES, &tables, "--format", "ndjson"])),
        "{\"kind\":\"buffers-lost\",\"n\":1,\"file\":null}\n"
    );
}

#[test]
fn names_cannot_move_the_cursor_or_be_formulas() {
    let tables = demo().tables();
    let sql = "SELECT chr(27) || '[2J' AS a, '=1' || chr(10) || '2' AS b, -1 AS c";
    assert_eq!(text(lake(&["query", sql, &tables])), "a     b    c\n\u{fffd}[2J  =1  -1\n      2\n");
    assert_eq!(
        text(lake(&["query", sql, &tables, "--format", "csv"])),
        "a,b,c\r\n\u{fffd}[2J,'=1\u{fffd}2,-1\r\n"
    );
    assert_eq!(rows(sql, &[&tables])[0]["a"], "\u{1b}[2J");
}

#[test]
fn files_appear_when_they_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let tables = demo().tables();
    let sql = "SELECT number, event FROM events ORDER BY number";
    for name in ["x.ndjson", "x.csv", "x.txt"] {
        assert_eq!(text(lake(&["query", sql, &tables, "-o", &path(name)])), "");
        let lines = fs::read_to_string(path(name)).unwrap().lines().count();
        let heading = usize::from(name != "x.ndjson");
        assert_eq!(
            (lines - heading) as u64,
            rows("SELECT count(*) AS n FROM events", &[&tables])[0]["n"],
            "{name}"
        );
    }
    text(lake(&["query", sql, &tables, "-o", &path("x.parquet")]));
    let reader = SerializedFileReader::new(fs::File::open(path("x.parquet")).unwrap()).unwrap();
    let events = rows("SELECT count(*) AS n FROM events", &[&tables]);
    assert_eq!(reader.metadata().file_metadata().num_rows(), events[0]["n"]);

    // The error comes after the first rows.
    let fails = "SELECT 1 / (number - 9000) AS x FROM events ORDER BY number";
    let old = fs::read(path("x.csv")).unwrap();
    error(&lake(&["query", fails, &tables, "-o", &path("x.csv")]));
    assert_eq!(fs::read(path("x.csv")).unwrap(), old);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["x.csv", "x.ndjson", "x.parquet", "x.txt"]);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut running = Command::new(env!("CARGO_BIN_EXE_stackhound-lake"))
        .args(["query", "SELECT * FROM events a, losses b", &demo().tables(), "--format", "csv"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(running.stdout.take());
    let output = running.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
}

#[test]
fn sorts_beyond_the_memory_limit_use_files() {
    let tables = demo().tables();
    let folder = tempfile::tempdir().unwrap();
    let spill = folder.path().to_str().unwrap();
    let sql = "SELECT fields, number FROM events ORDER BY fields, number";
    let expected = text(lake(&["query", sql, &tables, "--format", "csv"]));
    let limited = [
        "query",
        sql,
        &tables,
        "--format",
        "csv",
        "--threads",
        "1",
        "--spill-dir",
        spill,
        "--memory-limit",
        "5M",
    ];
    assert!(text(lake(&limited)) == expected);
    let plan = format!("EXPLAIN ANALYZE {sql}");
    let limited = ["query", &plan, &tables, "--threads", "1", "--spill-dir", spill, "--memory-limit", "5M"];
    let plan = text(lake(&limited));
    assert!(plan.contains("spill_count=") && !plan.contains("spill_count=0,"), "{plan}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "temporary files are removed");
}

#[test]
fn the_memory_limit_is_stated_in_the_error() {
    let tables = demo().tables();
    let sorted =
        error(&lake(&["query", "SELECT * FROM events ORDER BY fields", &tables, "--memory-limit", "10K"]));
    assert!(sorted.contains("the query needs more memory than --memory-limit allows"), "{sorted}");
    let named =
        error(&lake(&["query", "SELECT symbol(stack_id) FROM stacks", &tables, "--memory-limit", "10K"]));
    assert!(named.contains("the names of frames do not fit into the memory limit"), "{named}");
}

#[test]
fn directories_are_joined_and_names_of_hosts_decoded() {
    let first = demo().tables();
    let folder = tempfile::tempdir().unwrap();
    let utf16 = |name: &str| -> Vec<u8> { name.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let (of_demo, other) = (utf16("DESKTOP-CONTOSO"), utf16("a/b ä\0\0\0\0\0\0\0\0\0\0"));
    let mut trace = fs::read(demo().trace()).unwrap();
    let at = trace.windows(of_demo.len()).position(|bytes| bytes == of_demo).expect("the name");
    trace[at..at + other.len()].copy_from_slice(&other);
    let path = folder.path().join("stackhound-demo.etl");
    fs::write(&path, trace).unwrap();
    let second = folder.path().join("lake").to_str().unwrap().to_owned();
    convert(&second);
    let found = rows(
        "SELECT host, count(*) AS n, min(symbol(stack_id)) AS s FROM events GROUP BY host ORDER BY host",
        &[&first, &second],
    );
    let hosts: Vec<_> = found.iter().map(|row| row["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["DESKTOP-CONTOSO", "a/b ä"]);
    assert_eq!(found[0]["n"], found[1]["n"]);
    let one = rows("SELECT count(*) AS n FROM events WHERE host = 'a/b ä'", &[&first, &second]);
    assert_eq!(one[0]["n"], found[0]["n"]);

    // A table that only one directory has.
    fs::remove_dir_all(folder.path().join("lake/symbols")).unwrap();
    fs::remove_dir_all(folder.path().join("lake/losses")).unwrap();
    assert_eq!(
        rows("SELECT count(*) AS n FROM losses WHERE kind = 'buffers-lost'", &[&first, &second])[0]["n"],
        1
    );
    let error = error(&lake(&["query", "SELECT * FROM losses", &second]));
    assert!(error.contains("losses' not found"), "{error}");
    let unnamed = rows("SELECT count(*) AS n FROM stacks WHERE folded(stack_id) LIKE '%!%'", &[&second]);
    assert_eq!(unnamed[0]["n"], 0, "without symbols");
}
