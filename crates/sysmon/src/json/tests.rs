use proptest::prelude::*;

use super::*;
use crate::call_trace::Hex;
use crate::row::{Action, Actor, Aim, Row, StatedImage};

/// Reads the row in a text and passes it to `check`.
fn with_row(json: &str, check: impl FnOnce(Option<Row<'_>>)) {
    let mut reader = Reader::new(true);
    // Fields of an earlier event must not remain.
    reader
        .read(br#"{"count": 7, "host": "old", "calltrace": "old+1", "event_id": 8, "GrantedAccess": "0x2"}"#)
        .unwrap();
    let fields = reader.read(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"));
    check(Row::of(&fields, &reader.texts).unwrap_or_else(|error| panic!("{json}: {error}")));
}

#[test]
fn each_form_has_the_same_row() {
    for json in [
        // Winlogbeat.
        r#"{"@timestamp":"2020-10-20T11:50:56.473Z","host":{"name":"collector"},"winlog":{"provider_name":"Microsoft-Windows-Sysmon",
            "channel":"x","computer_name":"PC","event_id":10,"process":{"pid":1},"event_data":{"SourceProcessId":"6896",
            "SourceThreadId":"1084","SourceImage":"C:\\a.exe","TargetImage":"C:\\b.exe","GrantedAccess":"0x1410","CallTrace":"x+1|y+2"}}}"#,
        // The same with its Sysmon module.
        r#"{"@timestamp":"2020-10-20T11:50:56.473Z","event":{"code":"10","provider":"Microsoft-Windows-Sysmon"},
            "process":{"pid":6896,"executable":"C:\\a.exe","thread":{"id":1084}},"host":{"name":"collector"},
            "winlog":{"computer_name":"PC","event_data":{"TargetImage":"C:\\b.exe","GrantedAccess":"0x1410","CallTrace":"x+1|y+2"}}}"#,
        // The same out of a search.
        r#"{"_index":"i","_source":{"@timestamp":"2020-10-20T11:50:56.473Z","winlog.provider_name":["Microsoft-Windows-Sysmon"],"winlog.event_id":["10"],
            "winlog.computer_name":"PC","winlog.event_data.SourceProcessId":6896,"winlog.event_data.SourceThreadId":1084,
            "winlog.event_data.SourceImage":"C:\\a.exe","winlog.event_data.TargetImage":["C:\\b.exe"],
            "winlog.event_data.GrantedAccess":"0x1410","winlog.event_data.CallTrace":"x+1|y+2"}}"#,
        // Older versions.
        r#"{"source_name":"Microsoft-Windows-Sysmon","log_name":"x","event_id":10,"computer_name":"PC","beat":{"name":"z"},"process_id":3,
            "event_data":{"UtcTime":"2020-10-20 11:50:56.473","SourceProcessId":"6896","SourceThreadId":"1084","SourceImage":"C:\\a.exe",
            "TargetImage":"C:\\b.exe","GrantedAccess":"0x1410","CallTrace":"x+1|y+2"}}"#,
        // Flat.
        r#"{"SourceName":"Microsoft-Windows-Sysmon","EventID":10,"Hostname":"PC","host":"collector","ProcessID":"3","ThreadID":4,
            "UtcTime":"2020-10-20 11:50:56.473","SourceProcessId":"6896","SourceThreadId":"1084","SourceImage":"C:\\a.exe",
            "TargetImage":"C:\\b.exe","GrantedAccess":"0x1410","CallTrace":"x+1|y+2","tags":["a",{"b":1}]}"#,
        // Output of evtx_dump, with and without attributes.
        r##"{"Event":{"#attributes":{"xmlns":"u"},"System":{"Provider":{"#attributes":{"Name":"Microsoft-Windows-Sysmon","Guid":"g"}},
            "EventID":{"#attributes":{"Qualifiers":7},"#text":10},"Computer":"PC","Execution":{"#attributes":{"ProcessID":3}}},
            "EventData":{"UtcTime":"2020-10-20 11:50:56.473","SourceProcessId":6896,"SourceThreadId":1084,"SourceImage":"C:\\a.exe",
            "TargetImage":"C:\\b.exe","GrantedAccess":"0x1410","CallTrace":"x+1|y+2"}}}"##,
        r#"{"Event":{"System":{"Provider_attributes":{"Name":"Microsoft-Windows-Sysmon"},"EventID":10,"Computer":"PC"},
            "EventData":{"UtcTime":"2020-10-20 11:50:56.473","SourceProcessId":6896,"SourceThreadId":1084,"SourceImage":"C:\\a.exe",
            "TargetImage":"C:\\b.exe","GrantedAccess":"0x1410","CallTrace":"x+1|y+2"}}}"#,
        // Chainsaw, of an event that a rule found.
        r#"{"group":"Sigma","kind":"individual","document":{"kind":"evtx","path":"a.evtx","data":{"Event":{"System":{"Provider_attributes":
            {"Name":"Microsoft-Windows-Sysmon"},"EventID":10,"Computer":"PC"},"EventData":{"UtcTime":"2020-10-20 11:50:56.473",
            "SourceProcessId":6896,"SourceThreadId":1084,"SourceImage":"C:\\a.exe","TargetImage":"C:\\b.exe","GrantedAccess":"0x1410",
            "CallTrace":"x+1|y+2"}}}}}"#,
        // Sentinel's WindowsEvent, and its Event.
        r#"{"TimeGenerated":"2020-10-20T11:51:03Z","Computer":"PC","Provider":"Microsoft-Windows-Sysmon","EventID":10,"EventData":
            "{\"UtcTime\":\"2020-10-20 11:50:56.473\",\"SourceProcessId\":\"6896\",\"SourceThreadId\":\"1084\",\"SourceImage\":\"C:\\\\a.exe\",\"TargetImage\":\"C:\\\\b.exe\",\"GrantedAccess\":\"0x1410\",\"CallTrace\":\"x+1|y+2\"}"}"#,
        r#"{"TimeGenerated":"2020-10-20T11:51:03Z","Source":"Microsoft-Windows-Sysmon","EventID":10,"Computer":"PC","EventData":
            "<DataItem type=\"System.XmlData\"><EventData xmlns=\"u\"><Data Name=\"UtcTime\">2020-10-20 11:50:56.473</Data><Data Name=\"SourceProcessId\">6896</Data><Data Name=\"SourceThreadId\">1084</Data><Data Name=\"SourceImage\">C:\\a.exe</Data><Data Name=\"TargetImage\">C:\\b.exe</Data><Data Name=\"GrantedAccess\">0x1410</Data><Data Name=\"CallTrace\">x+1|y+2</Data></EventData></DataItem>"}"#,
        // Velociraptor, both of its forms.
        r#"{"System":{"Provider":{"Name":"Microsoft-Windows-Sysmon","Guid":"g"},"EventID":{"Value":10},"TimeCreated":{"SystemTime":1603194656.4},
            "Computer":"PC"},"EventData":{"UtcTime":"2020-10-20 11:50:56.473","SourceProcessId":6896,"SourceThreadId":1084,
            "SourceImage":"C:\\a.exe","TargetImage":"C:\\b.exe","GrantedAccess":5136,"CallTrace":"x+1|y+2"},"Message":"m"}"#,
        r#"{"EventTime":"2020-10-20T11:50:56Z","Computer":"PC","Channel":"Microsoft-Windows-Sysmon/Operational","Provider":"Microsoft-Windows-Sysmon",
            "EventID":10,"EventData":{"UtcTime":"2020-10-20 11:50:56.473","SourceProcessId":6896,"SourceThreadId":1084,"SourceImage":"C:\\a.exe",
            "TargetImage":"C:\\b.exe","GrantedAccess":5136,"CallTrace":"x+1|y+2"}}"#,
        // Wazuh.
        r#"{"timestamp":"2020-10-20T11:51:00.000+0000","rule":{"level":12},"agent":{"name":"other"},"data":{"win":{"system":{"providerName":
            "Microsoft-Windows-Sysmon","eventID":"10","computer":"PC","systemTime":"2020-10-20T11:50:57.1Z"},"eventdata":{"utcTime":
            "2020-10-20 11:50:56.473","sourceProcessId":"6896","sourceThreadId":"1084","sourceImage":"C:\\a.exe","targetImage":"C:\\b.exe",
            "grantedAccess":"0x1410","callTrace":"x+1|y+2"}}}}"#,
        // Splunk.
        r#"{"preview":false,"offset":0,"result":{"_time":"2020-10-20T11:50:56.000+00:00","source":"XmlWinEventLog:Microsoft-Windows-Sysmon/Operational",
            "EventCode":"10","Computer":"PC","UtcTime":"2020-10-20 11:50:56.473","SourceProcessId":"6896","SourceThreadId":"1084",
            "SourceImage":"C:\\a.exe","TargetImage":"C:\\b.exe","GrantedAccess":"0x1410","CallTrace":"x+1|y+2"}}"#,
        // Folded rows.
        r#"{"repo":"r","files":["f"],"event_id":10,"record":369,"utc":"2020-10-20 11:50:56.473","host":"PC","pid":6896,"tid":1084,
            "source_image":"C:\\a.exe","target_image":"C:\\b.exe","granted_access":"0x1410","count":1,"calltrace":"x+1|y+2","truth":{"count":9}}"#,
    ] {
        with_row(json, |row| {
            let expected = Row {
                count: 1,
                host: "PC",
                time: Some(132_476_682_564_730_000),
                actor: Actor { pid: Some(6896), tid: Some(1084), guid: "", image: r"C:\a.exe" },
                action: Action::ProcessAccess {
                    target: Aim { pid: None, image: r"C:\b.exe" },
                    access: Some(0x1410),
                    call_trace: "x+1|y+2",
                },
            };
            assert_eq!(row, Some(expected), "{json}");
        });
    }
}

#[test]
fn other_events_have_no_row() {
    for json in [
        "{}",
        r#"{"event_id":10}"#,
        r#"{"event_id":10,"target_image":"a","Channel":"System"}"#,
        r#"{"winlog":{"event_id":10,"provider_name":"Microsoft-Windows-Winlogon","channel":"Microsoft-Windows-Sysmon/Operational"}}"#,
        r#"{"winlog":{"event_id":3,"provider_name":"Microsoft-Windows-Sysmon"}}"#,
        r#"{"EventID":"ten","SourceName":"Microsoft-Windows-Sysmon"}"#,
        r#"{"EventID":4656,"Hostname":"a","TargetImage":"b"}"#,
        r#"{"EventID":1,"Hostname":"a","CommandLine":"b"}"#,
        r#"{"data":7,"result":"x","document":[{"EventID":10}],"win":{"system":null}}"#,
        r#"{"winlog":7,"event":[1,{"code":10}],"host":null,"process":true,"file":1.5,"Event":-1,"System":"x"}"#,
    ] {
        with_row(json, |row| assert_eq!(row, None, "{json}"));
    }
}

#[test]
fn invalid_events_are_reported() {
    for json in ["", "[]", "7", "{", r#"{"a":1}x"#, r#"{"count":"\ud800"}"#, "{\"a\":\"\u{1}\"}"] {
        let read = Reader::new(true).read(json.as_bytes());
        assert!(read.is_err(), "{json}");
    }
    for json in [
        r#"{"event_id":8,"target_image":"a"}"#,
        r#"{"event_id":8,"target_image":"a","start_address":"-"}"#,
        r#"{"event_id":7,"SourceName":"Microsoft-Windows-Sysmon"}"#,
    ] {
        let mut reader = Reader::new(true);
        let fields = reader.read(json.as_bytes()).unwrap();
        assert!(Row::of(&fields, &reader.texts).is_err(), "{json}");
    }
}

#[test]
fn only_valid_signatures_count() {
    for (signed, signature, status, expected, state) in [
        ("true", "S", "Valid", "S", Some("valid")),
        ("true", "S", "Expired", "", Some("invalid")),
        ("true", "S", "Revoked", "", Some("invalid")),
        ("false", "", "Valid", "", Some("unsigned")),
        ("false", "", "Unavailable", "", Some("unsigned")),
        // An image with a named signer has a signature.
        ("false", "S", "Valid", "", Some("invalid")),
        ("false", "S", "Unavailable", "", Some("unknown")),
        ("true", "S", "Unavailable", "", Some("unknown")),
        ("", "S", "", "", None),
    ] {
        let json = format!(
            r#"{{"EventID":7,"ImageLoaded":"a","Signed":"{signed}","Signature":"{signature}","SignatureStatus":"{status}"}}"#
        );
        with_row(&json, |row| {
            let Some(Row { action: Action::ImageLoad { stated, .. }, .. }) = row else { panic!("{json}") };
            assert_eq!(stated.valid_signer(), expected, "{json}");
            let signature = stated.facts().signature;
            assert_eq!(signature.map(|signature| signature.state.name()), state, "{json}");
        });
    }
}

/// Names and values of fields.
type Data<'a> = &'a [(&'a str, &'a str)];

/// The forms of several tools for an event with these fields.
fn forms(event: u32, data: Data<'_>) -> Vec<String> {
    let fields = |name: fn(&str) -> String| {
        let fields = data.iter().map(|(key, value)| format!("{:?}:{value:?}", name(key)));
        fields.collect::<Vec<_>>().join(",")
    };
    let plain = fields(str::to_owned);
    let lower = fields(|name| name[..1].to_lowercase() + &name[1..]);
    let xml: String =
        data.iter().map(|(name, value)| format!("<Data Name='{name}'>{value}</Data>")).collect();
    vec![
        // Winlogbeat and Elastic.
        format!(
            r#"{{"winlog":{{"provider_name":"Microsoft-Windows-Sysmon","computer_name":"PC","event_id":{event},"event_data":{{{plain}}}}}}}"#
        ),
        // NXLog.
        format!(
            r#"{{"SourceName":"Microsoft-Windows-Sysmon","EventID":{event},"Hostname":"PC","EventType":"INFO",{plain}}}"#
        ),
        // Output of evtx_dump, Velociraptor.
        format!(
            r#"{{"Event":{{"System":{{"Provider_attributes":{{"Name":"Microsoft-Windows-Sysmon"}},"EventID":{event},"Computer":"PC"}},"EventData":{{{plain}}}}}}}"#
        ),
        format!(
            r#"{{"System":{{"Provider":{{"Name":"Microsoft-Windows-Sysmon"}},"EventID":{{"Value":{event}}},"Computer":"PC"}},"EventData":{{{plain}}}}}"#
        ),
        // Sentinel's WindowsEvent and Event, which have a column for their table.
        format!(
            r#"{{"Computer":"PC","Provider":"Microsoft-Windows-Sysmon","EventID":{event},"Type":"WindowsEvent","EventData":{:?}}}"#,
            format!("{{{plain}}}")
        ),
        format!(
            r#"{{"Computer":"PC","Source":"Microsoft-Windows-Sysmon","EventID":{event},"Type":"Event","EventData":{xml:?}}}"#
        ),
        // Wazuh.
        format!(
            r#"{{"data":{{"win":{{"system":{{"providerName":"Microsoft-Windows-Sysmon","eventID":"{event}","computer":"PC"}},"eventdata":{{{lower}}}}}}}}}"#
        ),
        // Splunk.
        format!(
            r#"{{"result":{{"source":"XmlWinEventLog:Microsoft-Windows-Sysmon/Operational","EventCode":"{event}","Computer":"PC",{plain}}}}}"#
        ),
    ]
}

#[test]
fn evidence_is_read_from_each_form() {
    let process = [
        ("UtcTime", "2020-10-20 11:50:56.473"),
        ("ProcessGuid", "{1-2}"),
        ("ProcessId", "6896"),
        ("Image", r"C:\a.exe"),
    ];
    let driver = [("UtcTime", "2020-10-20 11:50:56.473"), ("ImageLoaded", r"C:\x.sys")];
    let sum = "AB".repeat(32);
    let hashes = format!("SHA1=00,SHA256={sum}");
    let hashes = hashes.as_str();
    let events: [(u32, Data<'_>, Action<'_>); 7] = [
        (
            1,
            &[
                ("CommandLine", "a /b"),
                ("ParentProcessId", "4"),
                ("User", r"PC\user"),
                ("IntegrityLevel", "High"),
            ],
            Action::ProcessCreate {
                command_line: "a /b",
                parent_pid: Some(4),
                user: r"PC\user",
                integrity: "High",
            },
        ),
        (5, &[("User", "x")], Action::ProcessTerminate),
        (
            6,
            &[("Hashes", hashes), ("Signed", "true"), ("Signature", "S"), ("SignatureStatus", "Valid")],
            Action::DriverLoad { path: r"C:\x.sys", sha256: Some([0xab; 32]), signer: "S" },
        ),
        (11, &[("TargetFilename", r"C:\b.dll")], Action::FileCreate { path: r"C:\b.dll" }),
        (25, &[("Type", "Image is replaced")], Action::ProcessTampering { kind: "Image is replaced" }),
        (25, &[("Type", "-")], Action::ProcessTampering { kind: "" }),
        (
            29,
            &[("TargetFilename", r"C:\b.dll"), ("Hashes", hashes)],
            Action::FileExecutableDetected { path: r"C:\b.dll", sha256: Some([0xab; 32]) },
        ),
    ];
    for (event, more, action) in events {
        let is_driver = matches!(action, Action::DriverLoad { .. });
        let first: &[(&str, &str)] = if is_driver { &driver } else { &process };
        let actor = Actor { pid: Some(6896), tid: None, guid: "{1-2}", image: r"C:\a.exe" };
        let actor = if is_driver { Actor::default() } else { actor };
        let time = Some(132_476_682_564_730_000);
        let expected = Row { count: 1, host: "PC", time, actor, action };
        for json in forms(event, &[first, more].concat()) {
            with_row(&json, |row| assert_eq!(row, Some(expected), "{json}"));
        }
    }
    // The Sysmon module of Winlogbeat moves most fields.
    let json = r#"{"@timestamp":"2020-10-20T11:50:56.473Z","event":{"code":"29","provider":"Microsoft-Windows-Sysmon"},
        "process":{"pid":6896,"entity_id":"{1-2}","executable":"C:\\a.exe"},"winlog":{"computer_name":"PC"},
        "file":{"path":"C:\\b.dll","hash":{"sha256":"SUM"}},"user":{"name":"u"}}"#;
    with_row(&json.replace("SUM", &sum), |row| {
        let action = row.expect("an event").action;
        assert_eq!(action, Action::FileExecutableDetected { path: r"C:\b.dll", sha256: Some([0xab; 32]) });
    });
}

#[test]
fn values_have_all_escapes() {
    let json = r#"{"EventID":11,"SourceName":"Sysmon","TargetFilename":"a\\b\/\"\u00e9\ud83d\ude00\n","Image":"\t"}"#;
    with_row(json, |row| {
        let row = row.expect("an event");
        assert_eq!((row.action, row.actor.image), (Action::FileCreate { path: "a\\b/\"é😀\n" }, "\t"));
    });
}

/// Texts of fields. `-` is a missing value.
fn text() -> impl Strategy<Value = String> {
    "[^-].{0,20}|".boxed()
}

proptest! {
    #[test]
    fn rows_survive_each_form(
        (count, host, time) in (1_u64.., text(), prop::option::of(0_u64..2_000_000_000)),
        (pid, tid, guid, image) in (any::<Option<u32>>(), any::<Option<u32>>(), text(), text()),
        (target_pid, target_image) in (any::<Option<u32>>(), text()),
        (kind, number, a, b) in (0..9, any::<Option<u32>>(), text(), text()),
        (digits, sum) in ("[0-9A-Fa-f]{1,16}", any::<Option<[u8; 32]>>()),
    ) {
        let target = Aim { pid: target_pid, image: &target_image };
        let path = if a.is_empty() { "a" } else { &a };
        // In flat rows, other texts of this name have other meanings.
        let kind_text = format!("Image is {a}");
        let action = match kind {
            0 => Action::ProcessAccess { target, access: number, call_trace: &a },
            1 => {
                let address = Hex::parse(&digits).unwrap();
                Action::RemoteThread { target, tid: number, address, module: &a, function: &b }
            }
            2 => {
                let (signed, status) = if b.is_empty() { ("false", "Unavailable") } else { ("true", "Valid") };
                let stated = StatedImage { signed, signature: &b, status, company: &a, ..StatedImage::default() };
                Action::ImageLoad { path, sha256: sum, stated }
            }
            3 => Action::DriverLoad { path, sha256: sum, signer: &b },
            4 => Action::FileCreate { path },
            5 => Action::FileExecutableDetected { path, sha256: sum },
            6 => Action::ProcessTampering { kind: &kind_text },
            7 => Action::ProcessTerminate,
            _ => Action::ProcessCreate { command_line: &a, parent_pid: number, user: &b, integrity: &b },
        };
        // Only events 8 and 10 have a thread, and processes always have a GUID.
        let tid = tid.filter(|_| kind < 2);
        let guid = if guid.is_empty() { "{1}".to_owned() } else { guid };
        let actor = Actor { pid, tid, guid: &guid, image: &image };
        let actor = if kind == 3 { Actor::default() } else { actor };
        let time = time.map(|milliseconds| milliseconds * 10_000);
        let row = Row { count, host: &host, time, actor, action };
        with_row(&flat(&row), |read| assert_eq!(read, Some(row)));
        with_row(&winlogbeat(&row), |read| assert_eq!(read, Some(Row { count: 1, ..row })));
    }
}
