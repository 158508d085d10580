//! Questions about traces have the same answers as those about their tables.

use crate::program::{demo, error, lake, rows, stackhound, text};

/// The answers about the demo trace and about its tables to a question, in the arguments.
fn both_to(question: &[&str]) -> [String; 2] {
    let demo = demo();
    let answer =
        |sources: &[&str]| text(lake(&[&["query"], question, sources, &["--format", "ndjson"]].concat()));
    [answer(&[&demo.trace(), "--symbol-path", &demo.symbols()]), answer(&[&demo.tables()])]
}

fn both(sql: &str) -> [String; 2] {
    both_to(&[sql])
}

#[test]
fn all_tables_have_the_same_rows() {
    let names = [
        "events",
        "stacks",
        "frames",
        "modules",
        "symbols",
        "processes",
        "threads",
        "regions",
        "findings",
        "alerts",
        "losses",
        "traces",
    ];
    for table in names {
        let answers = both(&format!("SELECT * FROM {table}"));
        let [of_trace, of_tables] = answers.each_ref().map(|answer| {
            let mut rows: Vec<&str> = answer.lines().collect();
            rows.sort_unstable();
            rows
        });
        assert!(!of_tables.is_empty(), "{table}");
        let differences = of_trace.iter().zip(&of_tables).find(|(one, other)| one != other);
        assert!(of_trace == of_tables, "{table}: {differences:?}");
    }
}

#[test]
fn the_twenty_questions_have_the_same_answers() {
    let questions = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("questions");
    let (mut asked, mut answered) = (0, 0);
    for entry in std::fs::read_dir(questions).unwrap() {
        let path = entry.unwrap().path();
        let path = path.to_str().unwrap();
        let [of_trace, of_tables] = both_to(&["-f", path]);
        assert!(of_trace == of_tables, "{path}");
        asked += 1;
        answered += u32::from(!of_tables.is_empty());
    }
    // Some ask about several machines.
    assert!(asked == 20 && answered >= 15, "{asked} {answered}");
}

#[test]
fn conditions_that_are_passed_down_select_the_same_events() {
    for condition in [
        "event = 'PerfInfo/SysCallEnter'",
        "event IN ('Process/Start', 'Image/Load', 'Thread/Start') AND provider IN ('Process', 'Thread')",
        "event LIKE 'Registry/%'",
        "event <> 'PerfInfo/SysCallEnter' AND cpu = 1",
        "provider = 'nothing'",
        "pid = 1860 AND tid IN (404, 408) AND opcode = 51",
        "id = 0 AND version = 2 AND 3 < opcode",
        "pid = -1",
        "pid IS NULL",
        "NOT pid = 1860",
        "pid = 4 OR pid = 1860",
        "time >= TIMESTAMP '2024-01-01T00:00:00.1Z' AND time < TIMESTAMP '2024-01-01T00:00:00.2Z'",
        "time BETWEEN '2024-01-01T00:00:00.05Z' AND '2024-01-01T00:00:00.06Z' AND pid = 1860",
        "TIMESTAMP '2024-01-01T00:00:00.3Z' < time",
        "time = (SELECT min(time) FROM events)",
        "host = 'DESKTOP-CONTOSO' AND date = '2024-01-01' AND cpu = 0",
        "host = 'another'",
        "service = 'NtCreateFile' AND stack_id IS NOT NULL",
    ] {
        let [of_trace, of_tables] =
            both(&format!("SELECT number, tid FROM events WHERE {condition} ORDER BY 1"));
        assert!(of_trace == of_tables, "{condition}");
        let [of_trace, of_tables] = both(&format!("SELECT count(*) AS n FROM events WHERE {condition}"));
        assert_eq!(of_trace, of_tables, "{condition}");
    }
}

#[test]
fn columns_come_in_any_order_and_number() {
    for sql in [
        "SELECT host, event, date, time, trace FROM events ORDER BY trace, number LIMIT 3",
        "SELECT count(*) AS n FROM events",
        "SELECT DISTINCT host FROM events",
        "SELECT a.number, b.number AS other FROM events a JOIN events b ON a.number = b.number + 1 ORDER BY 1 LIMIT 5",
    ] {
        let [of_trace, of_tables] = both(sql);
        assert_eq!(of_trace, of_tables, "{sql}");
    }
    assert_eq!(rows("SELECT event FROM events LIMIT 2", &[&demo().trace()]).len(), 2);
}

#[test]
fn traces_and_directories_are_asked_together() {
    let demo = demo();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    text(stackhound(&["demo", "-q", "--out", path, "--seed", "2"]));
    let other = format!("{path}/stackhound-demo.etl");
    let count = |sources: &[&str]| {
        let rows = rows("SELECT count(*) AS n, count(DISTINCT trace) AS traces FROM events", sources);
        (rows[0]["n"].as_u64().unwrap(), rows[0]["traces"].as_u64().unwrap())
    };
    let (first, second) = (count(&[&demo.tables()]), count(&[&other]));
    assert_eq!((first.1, second.1), (1, 1));
    assert_eq!(count(&[&demo.tables(), &other]), (first.0 + second.0, 2));
    // A folder of traces that is not a directory of tables.
    assert_eq!(count(&[path]), second);
    let names = rows(
        "SELECT count(*) AS n FROM events WHERE has_frame(stack_id, 'ntdll') AND event = 'PerfInfo/SysCallEnter'",
        &[&demo.tables(), &other],
    );
    assert!(names[0]["n"].as_u64().unwrap() > 100, "{names:?}");
}

#[test]
fn unusable_traces_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.etl");
    std::fs::write(&path, "no trace").unwrap();
    let path = path.to_str().unwrap();
    let found = error(&lake(&["query", "SELECT 1", path]));
    assert!(found.contains("text.etl"), "{found}");
    #[cfg(feature = "cluster")]
    {
        let trace = demo().trace();
        let found = error(&lake(&["query", "SELECT 1", &trace, "--scheduler", "df://127.0.0.1:1"]));
        assert!(found.contains("a cluster reads directories of tables; convert the traces first"), "{found}");
    }
}
