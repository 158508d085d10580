use std::io::Cursor;

use proptest::prelude::*;
use stackhound_detect::{Binaries, Verdict};
use stackhound_facts::ProcessFact;
use stackhound_images::FactSource;

use super::*;
use crate::blocks::LINE_MAX;
use crate::json;
use crate::row::{Actor, Aim, StatedImage};

/// Reads a file. Returns its counts, the event contexts of its rows, and the messages about
/// unreadable items.
fn hunt(file: &[u8]) -> (Totals, Vec<EventContext>, Vec<String>) {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists());
    let (mut event_contexts, mut unreadable) = (Vec::new(), Vec::new());
    let totals = sysmon.hunt(Cursor::new(file), "rows.json", &mut detector, |found| {
        match found {
            Found::Evaluated(evaluated) => event_contexts.push(evaluated.event_context()),
            Found::Unreadable(line) => unreadable.push(line.to_string()),
        }
        ControlFlow::Continue(())
    });
    (totals.expect("a file"), event_contexts, unreadable)
}

const ACCESS: &str = r#"{"event_id":10,"host":"PC","source_image":"C:\\a.exe","target_image":"b","count":3,"calltrace":"C:\\Windows\\System32\\ntdll.dll+1|C:\\a.exe+2|c:\\A.exe+3"}"#;

#[test]
fn formats_are_recognized_by_content() {
    for (start, expected) in [
        (&b"ElfFile\0\0\0"[..], Some(Format::Evtx)),
        (b"{", Some(Format::Json)),
        (b"\xef\xbb\xbf \r\n{\"", Some(Format::Json)),
        (b"[{", None),
        (b"<Event>", None),
        (b"\0\0\x04\0", None),
        (b"", None),
    ] {
        assert_eq!(detect_format(start), expected, "{start:?}");
    }
}

#[test]
fn each_line_is_evaluated_or_counted() {
    let file = format!(
        "\u{feff}{ACCESS}\r\n\n{{\"a\":\n  {}\n{}\n{}\n{}",
        r#"{"event_id":3,"host":"PC"}"#,
        r#"{"event_id":8,"target_image":"b","start_address":"?"}"#,
        r#"{"event_id":10,"target_image":"b","calltrace":"C:\\x.dll+1|C:\\y.d"}"#,
        r#"{"event_id":10,"target_image":"b"}"#,
    );
    let (totals, event_contexts, unreadable) = hunt(file.as_bytes());
    let expected = Totals {
        records: 6,
        evaluated: 3,
        events: 5,
        without_stack: 1,
        damaged_stacks: 1,
        context: 0,
        other: 1,
        unreadable: 2,
        damaged_parts: 0,
        late: 0,
    };
    assert_eq!(totals, expected);
    let locations: Vec<_> = event_contexts
        .iter()
        .map(|event_context| (event_context.location.record, event_context.count))
        .collect();
    assert_eq!(locations, [(1, 3), (6, 1), (7, 1)]);
    assert_eq!(event_contexts[0].location.file, "rows.json");
    assert_eq!(unreadable.len(), 3);
    assert!(
        unreadable[0].starts_with("rows.json:3: expected one JSON object per line: EOF"),
        "{unreadable:?}"
    );
    assert_eq!(
        unreadable[1..],
        [
            "rows.json:5: event 8: expected a valid StartAddress",
            "rows.json:6: byte 11 of the call trace: expected path+offset or UNKNOWN(address)",
        ]
    );
}

#[test]
fn stacks_keep_the_spelling_of_modules() {
    let (_, event_contexts, _) = hunt(ACCESS.as_bytes());
    let event_context = &event_contexts[0];
    let labels: Vec<String> = event_context.stack.iter().map(|frame| frame.label()).collect();
    assert_eq!(labels, ["ntdll.dll+0x1", "a.exe+0x2", "A.exe+0x3"]);
    assert_eq!(event_context.summary, "ntdll.dll|a.exe");
    assert_eq!(event_context.final_user_module.as_deref(), Some("a.exe"));
    assert_eq!((event_context.process.name(), event_context.process.path()), ("a.exe", r"C:\a.exe"));
    assert_eq!((event_context.host.as_str(), event_context.event.name.as_str()), ("PC", "ProcessAccess"));
}

#[test]
fn lines_beyond_the_limit_are_skipped() {
    let limit = LINE_MAX as usize;
    for (length, is_read) in [(limit - 1, true), (limit, true), (limit + 1, false), (3 * limit + 7, false)] {
        let mut file = ACCESS.as_bytes().to_vec();
        file.resize(length, b' ');
        for end in [&b""[..], b"\n", b"\n{}"] {
            let (totals, event_contexts, _) = hunt(&[&file[..], end].concat());
            let others = u64::from(end.len() > 1);
            assert_eq!((totals.unreadable, totals.other), (u64::from(!is_read), others), "{length}");
            assert_eq!(event_contexts.len(), usize::from(is_read));
        }
    }
}

#[test]
fn callbacks_can_stop_reading() {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists());
    let file = [ACCESS; 5].join("\n");
    let mut calls = 0;
    let totals = sysmon.hunt(Cursor::new(&file), "x", &mut detector, |_| {
        calls += 1;
        if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((calls, totals.unwrap().evaluated), (2, 2));
    assert!(matches!(
        sysmon.hunt(Cursor::new(b"<xml>"), "x", &mut detector, |_| ControlFlow::Continue(())),
        Err(Error::UnknownFormat)
    ));
    assert!(matches!(
        sysmon.hunt(Cursor::new(b"ElfFile\0cut"), "x", &mut detector, |_| ControlFlow::Continue(())),
        Err(Error::Evtx(_))
    ));
}

#[test]
fn other_events_supply_signers_and_command_lines() {
    let actor = Actor { pid: Some(5), guid: "{g}", image: r"C:\a.exe", tid: None };
    let row = |action| Row { count: 1, host: "PC", time: Some(10_000), actor, action };
    let target = Aim { pid: Some(7), image: "b.exe" };
    let ntdll = r"C:\Windows\System32\ntdll.dll";
    let caller = r"C:\Program Files\Steam\steamservice.exe";
    let call_trace = format!("{caller}+5|{ntdll}+1");
    let rows = |signer| {
        let stated = StatedImage { original_file_name: "service.exe", ..StatedImage::signed_by(signer) };
        [
            row(Action::ProcessCreate {
                command_line: "a /b",
                parent_pid: Some(4),
                user: r"PC\u",
                integrity: "High",
            }),
            row(Action::ImageLoad { path: caller, sha256: Some([9; 32]), stated }),
            row(Action::ProcessAccess { target, access: Some(1), call_trace: &call_trace }),
        ]
    };
    for (signer, expected) in [("", "medium"), ("Valve Corp.", "low"), ("Somebody", "high")] {
        for form in [json::flat, json::winlogbeat] {
            let file = rows(signer).iter().map(|row| form(row) + "\n").collect::<String>();
            let mut detector = Detector::new(Lists::default(), Binaries::none());
            let mut sysmon = Sysmon::new(detector.lists());
            let mut severities = Vec::new();
            let totals = sysmon.hunt(Cursor::new(&file), "x", &mut detector, |found| {
                let Found::Evaluated(evaluated) = found else { panic!("{found:?}") };
                let event_context = evaluated.event_context();
                assert_eq!(event_context.process.command_line(), "a /b");
                let image = &event_context.stack[0].image;
                assert_eq!(image.original_file_name(), Some(("service.exe", FactSource::Sysmon)));
                assert_eq!(
                    (
                        event_context.process.facts.number(ProcessFact::ParentPid),
                        event_context.process.started()
                    ),
                    (Some(4), Some(10_000))
                );
                let direct = evaluated.evaluation.iter().find(|(id, _)| id.name() == "CS02").unwrap().1;
                assert_eq!(direct.verdict, Verdict::Yes);
                severities.push(direct.severity.name());
                ControlFlow::Continue(())
            });
            assert_eq!(totals.unwrap().context, 2);
            assert_eq!(severities, [expected], "{signer}");
        }
    }
}

const NTDLL: &str = r"C:\Windows\System32\ntdll.dll";

/// Rows of one kind of activity: a program is created, started and ended; its library is created,
/// loaded and accesses a process; its image is replaced. `second` replaces the library for another
/// process.
fn rows(second: bool) -> Vec<String> {
    let library = r"C:\Program Files\Steam\steamservice.exe";
    let trace = format!("{library}+5|{NTDLL}+1");
    let mut rows = Vec::new();
    for (pid, sum, signer) in
        [(5, 1, "Valve Corp."), (6, 2, "Somebody")].into_iter().take(1 + usize::from(second))
    {
        let guid = format!("{{{pid}}}");
        let actor = Actor { pid: Some(pid), tid: None, guid: &guid, image: r"C:\a.exe" };
        let mut row = |seconds: u64, action| {
            let time = Some(132_476_682_560_000_000 + seconds * 10_000_000);
            rows.push(json::winlogbeat(&Row { count: 1, host: "PC", time, actor, action }));
        };
        let target = Aim { pid: Some(7), image: r"C:\Windows\System32\lsass.exe" };
        row(1, Action::FileCreate { path: r"C:\a.exe" });
        row(
            2,
            Action::ProcessCreate { command_line: "a /b", parent_pid: Some(4), user: "u", integrity: "High" },
        );
        row(3, Action::FileExecutableDetected { path: library, sha256: Some([sum; 32]) });
        let stated = StatedImage::signed_by;
        row(4, Action::ImageLoad { path: library, sha256: Some([sum; 32]), stated: stated(signer) });
        row(5, Action::ImageLoad { path: NTDLL, sha256: Some([9; 32]), stated: stated("Microsoft Windows") });
        row(6, Action::ProcessAccess { target, access: Some(0x1410), call_trace: &trace });
        row(7, Action::ProcessAccess { target, access: Some(0x1fffff), call_trace: &trace });
        row(8, Action::ProcessTampering { kind: "Image is replaced" });
        row(9, Action::ProcessTerminate);
        row(10, Action::DriverLoad { path: r"C:\x.sys", sha256: None, signer: "S" });
    }
    rows
}

/// The findings of files in two passes, without their locations and in an order of their own.
fn findings(files: &[Vec<String>], threads: usize) -> Vec<String> {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists()).with_threads(threads);
    let files: Vec<String> = files.iter().map(|rows| rows.join("\n")).collect();
    files.iter().for_each(|file| sysmon.learn_json(file.as_bytes()).expect("rows"));
    let mut findings = Vec::new();
    for file in &files {
        let totals = sysmon.hunt_json(file.as_bytes(), "x", &mut detector, |found| {
            let Found::Evaluated(evaluated) = found else { panic!("{found:?}") };
            let location = SourceLocation::default();
            let event_context = EventContext { location, ..evaluated.event_context() };
            findings.push(format!("{event_context:?} {:?}", evaluated.evaluation));
            ControlFlow::Continue(())
        });
        assert_eq!(totals.expect("rows").late, 0);
    }
    findings.sort();
    findings
}

proptest! {
    #[test]
    fn the_order_of_rows_and_files_does_not_matter(
        second in any::<bool>(),
        order in Just((0..20_usize).collect::<Vec<_>>()).prop_shuffle(),
        split in 0..20_usize,
        threads in 1..4_usize,
    ) {
        let rows = rows(second);
        let expected = findings(std::slice::from_ref(&rows), 1);
        let order: Vec<String> = order.into_iter().filter_map(|index| rows.get(index).cloned()).collect();
        let (one, other) = order.split_at(split.min(order.len()));
        prop_assert_eq!(findings(&[one.to_vec(), other.to_vec()], threads), expected);
    }
}

#[test]
fn evidence_is_about_its_process() {
    let file = rows(true).join("\n");
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists());
    sysmon.learn_json(file.as_bytes()).unwrap();
    let mut found = Vec::new();
    let totals = sysmon.hunt_json(file.as_bytes(), "x", &mut detector, |item| {
        let Found::Evaluated(evaluated) = item else { panic!("{item:?}") };
        let context = evaluated.event_context();
        let severity = |name: &str| {
            let (_, outcome) = evaluated.evaluation.iter().find(|(id, _)| id.name() == name).unwrap();
            if outcome.verdict == Verdict::Yes { outcome.severity.name() } else { "" }
        };
        let files: Vec<_> =
            context.created_files.iter().map(|file| (file.pid, file.sha256.map(|sum| sum[0]))).collect();
        let [user, integrity] =
            [ProcessFact::UserName, ProcessFact::Integrity].map(|fact| context.process.facts.text(fact));
        assert_eq!((user, integrity), ("u", "high"));
        found.push((context.process.pid, severity("CS02"), severity("CS30"), files, context.tampering.len()));
        ControlFlow::Continue(())
    });
    assert_eq!((totals.unwrap().evaluated, found.len()), (6, 6));
    // Both processes create the same files at the same time; of these, the order of ids decides.
    let program = (Some(6), None);
    let library = (Some(6), Some(2));
    for (index, pid, severity) in [(0, 5, "low"), (3, 6, "high")] {
        assert_eq!(found[index], (Some(pid), severity, "", vec![program, library], 1));
        assert_eq!(found[index + 2], (Some(pid), "", "high", vec![program], 0));
    }
}

#[test]
fn pipes_state_evidence_that_came_too_late() {
    let rows = rows(false);
    for (order, expected) in [(vec![1, 3, 4, 5], 0), (vec![5, 1, 3, 4], 3), (vec![3, 4, 5, 1], 1)] {
        let file: String = order.into_iter().map(|index: usize| format!("{}\n", rows[index])).collect();
        let mut detector = Detector::new(Lists::default(), Binaries::none());
        let mut sysmon = Sysmon::new(detector.lists());
        let totals =
            sysmon.hunt_pipe(file.as_bytes(), "-", &mut detector, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((totals.late, totals.evaluated), (expected, 1));
    }
}

#[test]
fn threads_change_nothing() {
    let line = format!("{ACCESS}\n{{\n{}\n", r#"{"event_id":3,"host":"PC"}"#);
    let file = line.repeat(6_000);
    let read = |threads| {
        let mut detector = Detector::new(Lists::default(), Binaries::none());
        let mut sysmon = Sysmon::new(detector.lists()).with_threads(threads);
        let mut items = Vec::new();
        let totals = sysmon.hunt_json(file.as_bytes(), "x", &mut detector, |found| {
            items.push(match found {
                Found::Evaluated(evaluated) => (evaluated.record(), format!("{:?}", evaluated.evaluation)),
                Found::Unreadable(unreadable) => (unreadable.location.record, unreadable.to_string()),
            });
            ControlFlow::Continue(())
        });
        (totals.unwrap(), items)
    };
    let one = read(1);
    assert_eq!((one.0.records, one.0.evaluated, one.1.len()), (18_000, 6_000, 12_000));
    assert!(read(3) == one);
}
