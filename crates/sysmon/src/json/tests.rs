use proptest::prelude::*;

use super::*;
use crate::call_trace::Hex;
use crate::row::{Action, Actor, Aim, Row, StatedImage};

/// Reads the row in a text and passes it to `check`.
fn with_row(json: &str, check: impl FnOnce(Option<Row<'_>>)) {
    let mut fields = Fields::default();
    // Fields of an earlier event must not remain.
    fields
        .read(br#"{"count": 7, "host": "old", "calltrace": "old+1", "event_id": 8, "GrantedAccess": "0x2"}"#)
        .unwrap();
    fields.read(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"));
    check(Row::of(&fields).unwrap_or_else(|error| panic!("{json}: {error}")));
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
        let read = Fields::default().read(json.as_bytes());
        assert!(read.is_err(), "{json}");
    }
    for json in [
        r#"{"event_id":8,"target_image":"a"}"#,
        r#"{"event_id":8,"target_image":"a","start_address":"-"}"#,
        r#"{"event_id":7,"SourceName":"Microsoft-Windows-Sysmon"}"#,
    ] {
        let mut fields = Fields::default();
        fields.read(json.as_bytes()).unwrap();
        assert!(Row::of(&fields).is_err(), "{json}");
    }
}

#[test]
fn only_valid_signatures_count() {
    for (signed, status, expected, state) in [
        ("true", "Valid", "S", Some("valid")),
        ("true", "Expired", "", Some("invalid")),
        ("true", "Revoked", "", Some("invalid")),
        ("false", "Valid", "", Some("unsigned")),
        ("false", "Unavailable", "", Some("unsigned")),
        ("true", "Unavailable", "", Some("unknown")),
        ("", "", "", None),
    ] {
        let json = format!(
            r#"{{"EventID":7,"ImageLoaded":"a","Signed":"{signed}","Signature":"S","SignatureStatus":"{status}"}}"#
        );
        with_row(&json, |row| {
            let Some(Row { action: Action::ImageLoad { signer, stated, .. }, .. }) = row else {
                panic!("{json}")
            };
            assert_eq!(signer, expected, "{json}");
            let signature = stated.facts().signature;
            assert_eq!(signature.map(|signature| signature.state.name()), state, "{json}");
        });
    }
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
        (kind, number, a, b) in (0..4, any::<Option<u32>>(), text(), text()),
        (digits, sum) in ("[0-9A-Fa-f]{1,16}", any::<Option<[u8; 32]>>()),
    ) {
        let target = Aim { pid: target_pid, image: &target_image };
        let action = match kind {
            0 => Action::ProcessAccess { target, access: number, call_trace: &a },
            1 => {
                let address = Hex::parse(&digits).unwrap();
                Action::RemoteThread { target, tid: number, address, module: &a, function: &b }
            }
            2 => {
                let (signed, status) = if b.is_empty() { ("false", "Unavailable") } else { ("true", "Valid") };
                let stated = StatedImage { signed, signature: &b, status, company: &a, ..StatedImage::default() };
                Action::ImageLoad { path: if a.is_empty() { "a" } else { &a }, sha256: sum, signer: &b, stated }
            }
            _ => Action::ProcessCreate { command_line: &a, parent_pid: number },
        };
        // Events 1 and 7 have no thread, and processes always have a GUID.
        let tid = tid.filter(|_| kind < 2);
        let guid = if guid.is_empty() { "{1}".to_owned() } else { guid };
        let actor = Actor { pid, tid, guid: &guid, image: &image };
        let time = time.map(|milliseconds| milliseconds * 10_000);
        let row = Row { count, host: &host, time, actor, action };
        with_row(&flat(&row), |read| assert_eq!(read, Some(row)));
        with_row(&winlogbeat(&row), |read| assert_eq!(read, Some(Row { count: 1, ..row })));
    }
}
