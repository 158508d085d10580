use std::io::Cursor;

use stackhound_detect::{Binaries, Verdict};
use stackhound_images::FactSource;

use super::*;
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
    assert_eq!(
        (event_context.process.name.as_str(), event_context.process.path.as_str()),
        ("a.exe", r"C:\a.exe")
    );
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
fn earlier_events_supply_signers_and_command_lines() {
    let actor = Actor { pid: Some(5), guid: "{g}", image: r"C:\a.exe", tid: None };
    let row = |action| Row { count: 1, host: "PC", time: Some(10_000), actor, action };
    let target = Aim { pid: Some(7), image: "b.exe" };
    let ntdll = r"C:\Windows\System32\ntdll.dll";
    let caller = r"C:\Program Files\Steam\steamservice.exe";
    let call_trace = format!("{caller}+5|{ntdll}+1");
    let rows = |signer| {
        let stated = StatedImage { original_file_name: "service.exe", ..StatedImage::default() };
        [
            row(Action::ProcessCreate { command_line: "a /b", parent_pid: Some(4) }),
            row(Action::ImageLoad { path: caller, sha256: Some([9; 32]), signer, stated }),
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
                assert_eq!(event_context.process.command_line, "a /b");
                let image = &event_context.stack[0].image;
                assert_eq!(image.original_file_name(), Some(("service.exe", FactSource::Sysmon)));
                assert_eq!(
                    (event_context.process.parent_pid, event_context.process.started),
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
