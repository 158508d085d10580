//! Rules of Sigma, evaluated on Sysmon's data, compared with literal evaluations.
//!
//! The rules about call stacks are worded from the same data as the independent evaluation of
//! `docs/sigma.md`, as YAML with Sigma's modifiers.

#[path = "sigma/rules.rs"]
mod rules;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::ops::ControlFlow;

use rules::{Access, Field, Fits, Is, RULES, Rule};
use serde_json::{Value, json};
use stackhound_rules::Library;
use stackhound_rules::evaluate::{Mode, Verdict};
use stackhound_sysmon::rules::{LogRules, WindowsEvent};

fn library(texts: &[String]) -> Library {
    let names: Vec<String> = (0..texts.len()).map(|number| format!("{number}.yml")).collect();
    let files = names.iter().zip(texts).map(|(name, text)| (name.as_str(), text.as_bytes()));
    let library = Library::read(files);
    assert_eq!(library.errors, []);
    for rule in &library.rules {
        assert!(rule.condition.is_ok(), "{}: {:?}", rule.head.name, rule.condition);
    }
    library
}

/// A rule in YAML: one detection for each clause.
fn worded(rule: &Rule) -> String {
    let (mut detections, mut number) = (String::new(), 0);
    let mut lists = |lists: &[&[Fits]]| -> String {
        let mut list = |clauses: &&[Fits]| {
            let names: Vec<String> = clauses
                .iter()
                .map(|Fits(field, is, values)| {
                    number += 1;
                    let field = match field {
                        Field::Source => "SourceImage",
                        Field::Target => "TargetImage",
                        Field::Access => "GrantedAccess",
                        Field::Trace => "CallTrace",
                    };
                    let modifier = match is {
                        Is::Equal => "",
                        Is::Start => "|startswith",
                        Is::End => "|endswith",
                        Is::In => "|contains",
                    };
                    writeln!(detections, "  clause_{number}:\n    {field}{modifier}:").unwrap();
                    values.iter().for_each(|value| writeln!(detections, "      - '{value}'").unwrap());
                    format!("clause_{number}")
                })
                .collect();
            format!("({})", names.join(" and "))
        };
        lists.iter().map(&mut list).collect::<Vec<_>>().join(" or ")
    };
    let (wanted, unless) = (lists(rule.wanted), lists(rule.unless));
    let mut condition = format!("({wanted})");
    if rule.id == "09706624" {
        detections += r"  shape:
    CallTrace|re: '^C:\\Windows\\SYSTEM32\\ntdll\.dll\+[a-z0-9]{4,6}\|C:\\Windows\\System32\\KERNELBASE\.dll\+[a-z0-9]{4,6}\|UNKNOWN\([A-Z0-9]{16}\)$'
";
        condition += " and shape";
    }
    if !unless.is_empty() {
        condition += &format!(" and not ({unless})");
    }
    format!(
        "title: {id}\nid: {id}\nlogsource:\n  product: windows\n  category: process_access\ndetection:\n{detections}  condition: {condition}\nlevel: high\n",
        id = rule.id
    )
}

/// Rows and events by rule, as in the first table of `docs/sigma.md`.
fn documented() -> Vec<(String, u64, u64)> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sigma.md")).unwrap();
    let table = page.split("## The rules").nth(1).unwrap().split("## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            (cells[1].trim_matches('`').to_owned(), cells[3].parse().unwrap(), cells[4].parse().unwrap())
        })
        .collect()
}

#[test]
fn rules_about_call_stacks_hit_the_documented_rows() {
    let Some(folder) = stackhound_corpus::folder().map(|folder| folder.join("calltrace")) else { return };
    let library = library(&RULES.iter().map(worded).collect::<Vec<_>>());
    let mut rules = LogRules::new(&library, Mode::Strict);
    let mut counts = vec![(0, 0); RULES.len()];
    for file in ["evtx_attack_samples.jsonl", "otrf_security_datasets.jsonl"] {
        let input = BufReader::new(File::open(folder.join(file)).unwrap());
        for (number, line) in input.lines().enumerate() {
            let line = line.unwrap();
            let event = WindowsEvent::of(&serde_json::from_str(&line).unwrap()).unwrap();
            let get = |name| event.get(name).unwrap_or_default();
            let access = Access {
                source: get("SourceImage"),
                target: get("TargetImage"),
                access: get("GrantedAccess"),
                trace: get("CallTrace"),
            };
            let answers = rules.evaluate(&event, number as u64);
            let found: Vec<usize> = answers.iter().map(|answer| answer.rule).collect();
            let expected: Vec<usize> = (0..RULES.len()).filter(|index| RULES[*index].hits(&access)).collect();
            assert_eq!(found, expected, "{file}:{}", number + 1);
            assert!(answers.iter().all(|answer| answer.verdict == Verdict::Yes));
            for index in found {
                counts[index].0 += 1;
                counts[index].1 += event.count;
            }
        }
    }
    let found: Vec<(String, u64, u64)> =
        RULES.iter().zip(counts).map(|(rule, (rows, events))| (rule.id.to_owned(), rows, events)).collect();
    let mut documented = documented();
    assert_eq!(documented.len(), 22);
    documented.sort();
    let mut sorted = found;
    sorted.sort();
    assert_eq!(sorted, documented);
}

/// A rule with one detection in JSON, which is YAML too.
fn rule(category: &str, detection: &Value, condition: &str) -> String {
    let mut detection = detection.clone();
    detection["condition"] = json!(condition);
    let title = format!("{category} {condition} {detection}");
    format!(
        "title: {}\nid: {:016x}\nlogsource: {{ product: windows, category: {category} }}\ndetection: {detection}\n",
        json!(title),
        title.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())),
    )
    .replace("detection: {", "\ndetection: {")
}

/// The texts of an event by name.
type Texts<'a> = &'a dyn Fn(&str) -> String;

/// A rule, and the same condition in Rust.
struct Compared {
    yaml: String,
    literal: fn(Texts<'_>) -> bool,
}

fn check(compared: &[Compared], events: &[Value]) -> Vec<u64> {
    let library = library(&compared.iter().map(|one| one.yaml.clone()).collect::<Vec<_>>());
    let mut rules = LogRules::new(&library, Mode::Strict);
    let mut hits = vec![0; compared.len()];
    for (number, document) in events.iter().enumerate() {
        let event = WindowsEvent::of(document).unwrap();
        let get = |name: &str| event.get(name).unwrap_or_default().to_ascii_lowercase();
        let answers = rules.evaluate(&event, number as u64);
        for (index, one) in compared.iter().enumerate() {
            let verdict = answers.iter().find(|answer| answer.rule == index).map(|answer| answer.verdict);
            let expected = (one.literal)(&get).then_some(Verdict::Yes);
            assert_eq!(verdict, expected, "{}\n{document}", one.yaml);
            hits[index] += u64::from(expected.is_some());
        }
    }
    hits
}

#[test]
fn remote_threads_equal_a_literal_evaluation() {
    let Some(folder) = stackhound_corpus::folder().map(|folder| folder.join("calltrace")) else { return };
    let mut events: Vec<Value> = Vec::new();
    for file in ["evtx_createremotethread.jsonl", "otrf_createremotethread.jsonl"] {
        let input = BufReader::new(File::open(folder.join(file)).unwrap());
        events.extend(input.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()));
    }
    assert_eq!(events.len(), 144);
    let compared = [
        Compared {
            yaml: rule(
                "create_remote_thread",
                &json!({ "s": { "TargetImage|endswith": "\\lsass.exe" } }),
                "s",
            ),
            literal: |get| get("TargetImage").ends_with("\\lsass.exe"),
        },
        Compared {
            yaml: rule(
                "create_remote_thread",
                &json!({ "s": { "StartFunction": ["LoadLibraryA", "LoadLibraryW"] }, "f": { "StartModule|contains": "kernel32" } }),
                "s and f",
            ),
            literal: |get| {
                ["loadlibrarya", "loadlibraryw"].contains(&&*get("StartFunction"))
                    && get("StartModule").contains("kernel32")
            },
        },
        Compared {
            yaml: rule(
                "create_remote_thread",
                &json!({ "s": { "SourceImage|startswith": "C:\\Windows\\" }, "filter_1": { "TargetImage|contains": "system32" }, "filter_2": { "StartModule": null } }),
                "s and not 1 of filter_*",
            ),
            literal: |get| {
                get("SourceImage").starts_with("c:\\windows\\")
                    && !get("TargetImage").contains("system32")
                    && !get("StartModule").is_empty()
            },
        },
        Compared {
            yaml: rule(
                "create_remote_thread",
                &json!({ "s": { "SourceImage|contains|all": ["\\", ".exe"] }, "t": { "TargetImage|re": "(?i)notepad|lsass|svchost" } }),
                "all of them",
            ),
            literal: |get| {
                get("SourceImage").contains('\\')
                    && get("SourceImage").contains(".exe")
                    && ["notepad", "lsass", "svchost"].iter().any(|name| get("TargetImage").contains(name))
            },
        },
    ];
    let hits = check(&compared, &events);
    assert!(hits.iter().any(|count| *count > 0) && hits[1] > 0, "{hits:?}");
}

/// Deterministic pseudorandom choices.
fn chooser(mut state: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((u128::from(state >> 11) * below as u128) >> 53) as usize
    }
}

#[test]
fn generated_rows_equal_a_literal_evaluation() {
    let mut choose = chooser(1);
    let images = ["C:\\Windows\\System32\\cmd.exe", "C:\\Temp\\a b.exe", "C:\\Program Files\\X\\x.exe", ""];
    let lines = ["cmd /c whoami", "a -enc AAAA", "a /enc BBBB", "x * y", "x --encoded", ""];
    let mut events = Vec::new();
    for _ in 0..2_000 {
        let mut pick = |from: &[&str]| json!(from[choose(from.len())]);
        let mut event = json!({ "EventID": 1, "Channel": "Microsoft-Windows-Sysmon/Operational",
            "Image": pick(&images), "ParentImage": pick(&images), "CommandLine": pick(&lines),
            "IntegrityLevel": pick(&["High", "Medium", "System"]), "ProcessId": pick(&["4", "10", "400"]) });
        if choose(4) == 0 {
            event = json!({ "EventID": 7, "ImageLoaded": event["Image"], "Image": event["ParentImage"],
                "Signed": if choose(2) == 0 { "true" } else { "false" }, "SignatureStatus": "Valid" });
        }
        if choose(5) == 0 {
            event.as_object_mut().unwrap().remove("ParentImage");
        }
        events.push(event);
    }
    fn is_process(get: Texts<'_>) -> bool {
        get("EventID") == "1"
    }
    let process = |detection: &Value, condition: &str, literal| Compared {
        yaml: rule("process_creation", detection, condition),
        literal,
    };
    let compared = [
        process(&json!({ "s": { "Image|endswith": "\\CMD.exe" } }), "s", |get| {
            is_process(get) && get("Image").ends_with("\\cmd.exe")
        }),
        process(&json!({ "s": { "CommandLine|windash|contains": " -enc" } }), "s", |get| {
            is_process(get) && [" -enc", " /enc"].iter().any(|part| get("CommandLine").contains(part))
        }),
        process(&json!({ "s": { "CommandLine": "x \\* y" } }), "s", |get| {
            is_process(get) && get("CommandLine") == "x * y"
        }),
        process(
            &json!({ "s": { "ProcessId|gte": 10 }, "f": { "IntegrityLevel": ["High", "System"] } }),
            "s and not f",
            |get| {
                is_process(get)
                    && get("ProcessId").parse::<u64>().unwrap() >= 10
                    && !["high", "system"].contains(&&*get("IntegrityLevel"))
            },
        ),
        process(&json!({ "s": { "ParentImage|exists": false } }), "s", |get| {
            is_process(get) && get("ParentImage").is_empty()
        }),
        process(
            &json!({ "s": { "Image|fieldref": "ParentImage" }, "t": { "Image|exists": true } }),
            "s and t",
            |get| is_process(get) && get("Image") == get("ParentImage") && !get("Image").is_empty(),
        ),
        process(&json!({ "a": { "Image|cased|endswith": "CMD.exe" } }), "a", |_| false),
        process(&json!({ "a": ["whoami", "encoded"] }), "a", |get| {
            is_process(get) && ["whoami", "encoded"].iter().any(|word| get("CommandLine").contains(word))
        }),
        process(
            &json!({ "a1": { "Image|contains": "Temp" }, "a2": { "ParentImage|contains": "Temp" }, "a3": { "CommandLine|contains": "enc" } }),
            "2 of a*",
            |get| {
                let parts = [
                    get("Image").contains("temp"),
                    get("ParentImage").contains("temp"),
                    get("CommandLine").contains("enc"),
                ];
                is_process(get) && parts.iter().filter(|holds| **holds).count() >= 2
            },
        ),
        Compared {
            yaml: rule(
                "image_load",
                &json!({ "s": { "ImageLoaded|startswith": "C:\\Temp", "Signed": false } }),
                "s",
            ),
            literal: |get| {
                get("EventID") == "7"
                    && get("ImageLoaded").starts_with("c:\\temp")
                    && get("Signed") == "false"
            },
        },
    ];
    let hits = check(&compared, &events);
    for (index, count) in hits.iter().enumerate() {
        assert_eq!(*count == 0, index == 6, "{index}: {hits:?}");
    }
}

#[test]
fn other_log_sources_are_refused() {
    for (source, expected) in [
        ("product: linux\n  category: process_creation", "the product `linux`"),
        ("product: windows\n  category: antivirus", "the category `antivirus`"),
        ("product: windows\n  service: nothing", "the service `nothing`"),
        ("product: windows", "a log source without category and service"),
    ] {
        let text =
            format!("title: t\nid: t\nlogsource:\n  {source}\ndetection:\n  s:\n    a: b\n  condition: s\n");
        let library = Library::read([("a.yml", text.as_bytes())]);
        let error = library.rules[0].condition.as_ref().unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("is not a log source"), "{error}");
    }
}

const FAILED_LOGON: &str = "
title: Failed logon
name: failed_logon
id: 11111111-0000-0000-0000-000000000001
logsource: { product: windows, service: security }
detection:
  selection: { EventID: 4625 }
  condition: selection
---
title: Many failed logons
id: 11111111-0000-0000-0000-000000000002
correlation:
  type: event_count
  rules: [failed_logon]
  group-by: [TargetUserName]
  timespan: 1m
  condition: { gte: 3 }
---
title: Many users
id: 11111111-0000-0000-0000-000000000003
correlation:
  type: value_count
  rules: [failed_logon]
  group-by: [IpAddress]
  timespan: 1m
  condition: { gte: 2, field: TargetUserName }
";

/// Correlations, compared with counts over all pairs of events.
#[test]
fn correlations_equal_a_literal_count() {
    let library = library(&[FAILED_LOGON.to_owned()]);
    let mut rules = LogRules::new(&library, Mode::Strict);
    let mut choose = chooser(5);
    let mut events: Vec<(u64, Value)> = Vec::new();
    let mut time = 0;
    for _ in 0..600 {
        time += choose(25) as u64;
        let (user, address) = (choose(4), choose(3));
        let id = if choose(3) == 0 { 4624 } else { 4625 };
        let stamp = format!("2026-01-01T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60);
        events.push((
            time,
            json!({ "EventID": id, "Channel": "Security", "@timestamp": stamp,
            "TargetUserName": format!("user{user}"), "IpAddress": format!("10.0.0.{address}") }),
        ));
    }
    let lines: String = events.iter().map(|(_, event)| format!("{event}\n")).collect();
    let mut found: Vec<(u64, Vec<usize>)> = Vec::new();
    rules
        .hunt(Cursor::new(lines.into_bytes()), |_, record, answers| {
            assert!(answers.iter().all(|answer| answer.verdict == Verdict::Yes));
            found.push((record, answers.iter().map(|answer| answer.rule).collect()));
            ControlFlow::Continue(())
        })
        .unwrap();
    let mut expected = Vec::new();
    for (index, (time, event)) in events.iter().enumerate() {
        if event["EventID"] != 4625 {
            continue;
        }
        let near = |field: &str| -> Vec<&Value> {
            let earlier = events[..=index].iter().filter(|(other, _)| other + 60 > *time);
            let same = earlier.map(|(_, other)| other).filter(|other| other["EventID"] == 4625);
            same.filter(|other| other[field] == event[field]).collect()
        };
        let mut users: Vec<String> =
            near("IpAddress").iter().map(|event| event["TargetUserName"].to_string()).collect();
        users.sort();
        users.dedup();
        let mut rules = Vec::new();
        if near("TargetUserName").len() >= 3 {
            rules.push(1);
        }
        if users.len() >= 2 {
            rules.push(2);
        }
        if !rules.is_empty() {
            expected.push((index as u64 + 1, rules));
        }
    }
    assert!(expected.len() > 50);
    assert_eq!(found, expected);
}
