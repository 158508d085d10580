//! Reads call traces, lines of JSON, and chunks of event logs.

use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound_detect::{Binaries, Detector};
use stackhound_frames::Lists;
use stackhound_sysmon::call_trace::{self, Frame, Hex};
use stackhound_sysmon::json::{flat, winlogbeat};
use stackhound_sysmon::row::{Action, Actor, Aim, Row, StatedImage};
use stackhound_sysmon::{Found, Sysmon, detect_format};

use self::log::{Event, Value};

/// The writer of event logs from the tests of the reader.
#[path = "../../sysmon/tests/support/mod.rs"]
mod log;

const CHUNK: usize = 1 << 16;

/// Reads bytes as a chunk of an event log if they begin like one, otherwise as a file of JSON; and
/// as a call trace.
pub fn sysmon(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        trace(text);
    }
    if bytes.starts_with(b"ElfChnk\0") {
        let mut file = log::log(&[access("a+1")], 1);
        file.truncate(4096);
        file.extend(&bytes[..bytes.len().min(CHUNK)]);
        file.resize(4096 + CHUNK, 0);
        file.extend(&log::log(&[access("a+1")], 1)[4096..]);
        hunt(&file);
    } else {
        hunt(bytes);
    }
}

fn trace(text: &str) {
    let mut at = 0;
    for frame in call_trace::frames(text) {
        match frame {
            Ok(frame) => {
                let written = frame.to_string();
                assert!(text[at..].starts_with(&written));
                at += written.len();
            }
            Err(error) => {
                assert_eq!(error.offset, at);
                at += text[at..].find('|').unwrap_or(text.len() - at);
            }
        }
        at += 1;
    }
    assert!(text.is_empty() || at == text.len() + 1);
}

fn hunt(file: &[u8]) {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists());
    let mut delivered = 0;
    let totals = sysmon.hunt(Cursor::new(file), "x", &mut detector, |found| {
        delivered += 1;
        match found {
            Found::Evaluated(evaluated) => {
                let frames = evaluated.frames;
                let locations = evaluated.evaluation.iter().filter_map(|(_, outcome)| outcome.frame);
                assert!(locations.into_iter().all(|frame| usize::from(frame) < frames));
                assert_eq!(evaluated.event_context().stack.len(), frames);
                assert!(evaluated.row.count > 0);
            }
            Found::Unreadable(unreadable) => assert!(!unreadable.reason.contains('\n')),
        }
        ControlFlow::Continue(())
    });
    match totals {
        Ok(totals) => {
            let unreadable = totals.unreadable + totals.damaged_stacks + totals.damaged_parts;
            assert_eq!(delivered, totals.evaluated + unreadable);
            assert_eq!(totals.records, totals.evaluated + totals.unreadable + totals.context + totals.other);
        }
        Err(_) => assert!(detect_format(file).is_none_or(|_| file.starts_with(b"ElfFile\0"))),
    }
}

fn access(trace: &str) -> Event<'_> {
    let data = vec![
        ("SourceImage", Value::Text("a")),
        ("GrantedAccess", Value::Hex(16)),
        ("CallTrace", Value::Text(trace)),
    ];
    Event { provider: "Microsoft-Windows-Sysmon", id: 10, computer: "PC", data }
}

/// A call trace, rows of each kind in both forms, and a chunk of a log.
pub(crate) fn rows() -> Vec<Vec<u8>> {
    let frames = [
        Frame::module(r"C:\Windows\System32\ntdll.dll", 0x9d934),
        Frame::unknown(0x24f_64b7_b7a1),
        Frame::unknown(0xffff_f803_1234_5678),
        Frame::module(r"C:\Windows\SysWOW64\ntdll.dll", 0x1c).wow64(),
        Frame::unknown(0).wow64(),
    ];
    let trace = call_trace::text(frames);
    let target = Aim { pid: Some(7), image: r"C:\Windows\System32\lsass.exe" };
    let actor = Actor { pid: Some(8), tid: Some(9), guid: "{1}", image: r"C:\a.exe" };
    let actions = [
        Action::ProcessCreate { command_line: "a /b", parent_pid: Some(4), user: "u", integrity: "High" },
        Action::ProcessTerminate,
        Action::DriverLoad { path: r"C:\a.sys", sha256: None, signer: "S" },
        Action::FileCreate { path: r"C:\a.exe" },
        Action::ProcessTampering { kind: "Image is replaced" },
        Action::FileExecutableDetected { path: r"C:\a.exe", sha256: Some([3; 32]) },
        Action::ImageLoad {
            path: r"C:\a.exe",
            sha256: Some([3; 32]),
            stated: StatedImage { signature: "S", status: "Valid", company: "C", ..StatedImage::default() },
        },
        Action::ProcessAccess { target, access: Some(0x1410), call_trace: &trace },
        Action::RemoteThread {
            target,
            tid: Some(3),
            address: Hex::address(0x7fff_9f40_eb60, false),
            module: r"C:\Windows\System32\KERNEL32.DLL",
            function: "LoadLibraryA",
        },
    ];
    let rows = actions.map(|action| Row { count: 2, host: "PC", time: Some(10_000), actor, action });
    let file = |form: fn(&Row<'_>) -> String| rows.iter().map(|row| form(row) + "\n").collect::<String>();
    let mut chunk = log::log(&[access(&trace), access("b+2")], 2).split_off(4096);
    let end = chunk.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    chunk.truncate(end);
    vec![trace.clone().into_bytes(), file(flat).into_bytes(), file(winlogbeat).into_bytes(), chunk]
}
