//! Names in output, on the demo trace and its image files.

use std::path::Path;

use crate::demonstration::{demo, run};
use serde_json::Value;

fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const EVENTS: [&str; 6] = ["events", "stackhound-demo.etl", "--stacks", "--format", "ndjson", "-q"];

/// The stacks of one kind of event, with names from the store of the demo.
fn stacks(folder: &Path, event: &str, more: &[&str]) -> Vec<Value> {
    let mut arguments = EVENTS.to_vec();
    arguments.extend(["--event", event, "--symbol-path", "srv*symbols"]);
    arguments.extend(more);
    let lines = text(folder, &arguments);
    lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["stack"].take()).collect()
}

fn frames(stack: &Value) -> &[Value] {
    stack["frames"].as_array().unwrap()
}

#[test]
fn creations_have_functions_in_user_mode_and_modules_in_the_kernel() {
    let folder = demo();
    let stacks = stacks(folder.path(), "Process/Start", &[]);
    assert!(!stacks.is_empty());
    for stack in &stacks {
        let (kernel, user): (Vec<_>, Vec<_>) =
            frames(stack).iter().partition(|frame| frame["mode"] == "kernel");
        assert!(
            kernel.iter().all(|frame| frame["module"] == "ntoskrnl.exe" && frame.get("symbol").is_none())
        );
        // The offset of the stub in the genuine ntdll.dll of this build is known.
        let stub = user[0];
        assert_eq!((&stub["module"], &stub["rva"]), (&"ntdll.dll".into(), &"0x9d6b4".into()));
        assert_eq!((&stub["symbol"], &stub["offset"]), (&"NtCreateUserProcess".into(), &0x14.into()));
        assert_eq!((&stub["origin"], &stub["pdb"]), (&"export".into(), &Value::Null));
        assert_eq!(stub["region"]["kind"], "image");
        let call_site = stub["call_site"]["leading_bytes"].as_str().unwrap();
        assert!(call_site.ends_with("0f05"), "after a system call: {call_site}");
        assert_eq!(stack["final_kernel_module"], "ntoskrnl.exe");
        assert!(stack["summary"].as_str().unwrap().starts_with("ntdll.dll|KernelBase.dll|kernel32.dll|"));
    }
}

#[test]
fn other_events_have_modules_unless_all_names_are_requested() {
    let folder = demo();
    let named = |stack: &Value| frames(stack).iter().any(|frame| frame.get("symbol").is_some());
    let by_policy = stacks(folder.path(), "PerfInfo/SampledProfile", &[]);
    assert!(by_policy.len() > 100 && !by_policy.iter().any(named));
    assert!(by_policy.iter().any(|stack| frames(stack).iter().any(|frame| frame["rva"].is_string())));
    let full = stacks(folder.path(), "PerfInfo/SampledProfile", &["--symbols", "full"]);
    assert!(full.iter().any(named));
    let off = stacks(folder.path(), "Process/Start", &["--symbols", "off"]);
    assert!(
        off.iter().flat_map(frames).all(|frame| frame["module"].is_null() && frame["address"].is_string())
    );
    let modules = stacks(folder.path(), "Process/Start", &["--symbols", "modules"]);
    assert!(!modules.iter().any(named));
}

#[test]
fn a_config_file_changes_the_named_events_and_is_shown_as_origin() {
    let folder = demo();
    let config = "kernel_symbols = \"full\"\n\n[events]\n\"Thread/Start\" = \"none\"\n\n[symbols]\npath = \"srv*symbols\"\n";
    std::fs::write(folder.path().join("settings.toml"), config).unwrap();
    let with_config = ["--config", "settings.toml"];
    let kernel = stacks(folder.path(), "Process/Start", &with_config);
    let symbols: Vec<_> =
        frames(&kernel[0]).iter().map(|frame| frame["symbol"].as_str().unwrap_or("")).collect();
    assert!(symbols.contains(&"NtCreateUserProcess"), "in the kernel's image: {symbols:?}");
    let disabled = stacks(folder.path(), "Thread/Start", &with_config);
    assert!(!disabled.is_empty() && disabled.iter().all(Value::is_null));
    let shown = text(folder.path(), &["config", "show", "--config", "settings.toml", "--format", "json"]);
    let shown: Vec<Value> = serde_json::from_str(&shown).unwrap();
    let setting =
        |key: &str| shown.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no {key}"));
    for (key, value, origin) in [
        ("kernel_symbols", Value::from("full"), "settings.toml"),
        ("events.\"Thread/Start\"", "none".into(), "settings.toml"),
        ("events.\"Process/Start\"", "full".into(), "default"),
        ("symbols.path", "srv*symbols".into(), "settings.toml"),
        ("symbols.online", "false".into(), "default"),
    ] {
        assert_eq!((&setting(key)["value"], &setting(key)["origin"]), (&value, &origin.into()), "{key}");
    }
}

#[test]
fn invalid_settings_are_reported_in_one_sentence() {
    let folder = demo();
    for (config, location, reason) in [
        ("kernel_symbols = \"all\"", "bad.toml:1", "unknown variant"),
        ("\n[symbols]\nservers = 3", "bad.toml:3", "unknown field"),
        ("[events]\n\"Process/Start\" = ", "bad.toml:2", ""),
    ] {
        std::fs::write(folder.path().join("bad.toml"), config).unwrap();
        let output = run(folder.path(), &["config", "show", "--config", "bad.toml"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(error.starts_with(&format!("error: {location}: ")) && error.contains(reason), "{error}");
    }
    let output = run(folder.path(), &["config", "show", "--config", "missing.toml"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn names_do_not_depend_on_threads() {
    let folder = demo();
    let written = |threads| {
        let mut arguments = EVENTS.to_vec();
        arguments.extend(["--symbols", "full", "--symbol-path", "srv*symbols", "--threads", threads]);
        text(folder.path(), &arguments)
    };
    assert_eq!(written("1"), written("4"));
}

#[test]
fn missing_files_are_counted_and_reported_once() {
    let folder = demo();
    let ntdll = folder.path().join("symbols/ntdll.dll/70E69BAD1f5000/ntdll.dll");
    std::fs::write(&ntdll, b"MZ no image").unwrap();
    let arguments =
        ["events", "stackhound-demo.etl", "--stacks", "--event", "Process/Start", "--symbol-path"];
    let output = run(folder.path(), &[&arguments[..], &["srv*symbols"]].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success());
    let damaged = errors.lines().filter(|line| line.contains("the file cannot be read")).count();
    assert_eq!(damaged, 1, "{errors}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("ntdll.dll+0x9d6b4"), "the module is still named");
    assert!(shown.contains("KernelBase.dll!CreateProcessW+0x66 [export]"));
}

#[test]
fn file_creations_have_request_and_result() {
    let folder = demo();
    let events = text(
        folder.path(),
        &["events", "stackhound-demo.etl", "--event", "FileIo/Create", "--format", "ndjson", "-q"],
    );
    let mut completed = 0;
    for line in events.lines() {
        let create = &serde_json::from_str::<Value>(line).unwrap()["create"];
        assert!(create["requested"].is_string(), "{line}");
        completed += u32::from(create["completion"] == "completed" && create["result"].is_string());
    }
    assert!(completed > 10);
}

#[test]
fn system_calls_have_service_status_and_duration() {
    let folder = demo();
    let select = ["events", "stackhound-demo.etl", "-q", "--symbol-path", "srv*symbols", "--where"];
    let filter = "syscall.service = 'NtCreateFile' and syscall.duration > 0 and syscall.status = 0";
    let lines = text(folder.path(), &[&select[..], &[filter, "--format", "ndjson"]].concat());
    let mut counts = std::collections::BTreeMap::new();
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let call = &event["syscall"];
        assert_eq!((&call["service"], &call["status"]), (&"NtCreateFile".into(), &"0x0".into()));
        assert_eq!(call["completion"], "completed");
        assert!(call["duration"].as_u64().unwrap() > 0 && event["tid"].is_u64() && event["pid"].is_u64());
        *counts.entry(event["event"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    assert!(counts["PerfInfo/SysCallEnter"] > 3, "{counts:?}");
    assert_eq!(counts["PerfInfo/SysCallEnter"], counts["PerfInfo/SysCallExit"]);
    let table = text(folder.path(), &[&select[..], &[filter]].concat());
    assert!(table.lines().all(|line| line.contains(" (NtCreateFile, status 0x0 after ")), "{table}");
}

#[test]
fn calls_before_return_addresses_are_shown_and_filtered() {
    let folder = demo();
    let select = ["events", "stackhound-demo.etl", "-q", "--symbol-path", "srv*symbols", "--stacks"];
    let calls = ["--event", "Process/Start", "--call-sites"];
    let table = text(folder.path(), &[&select[..], &calls].concat());
    assert!(table.lines().any(|line| line.trim() == "syscall"), "{table}");
    assert!(table.lines().any(|line| line.contains("kernel modules ntoskrnl.exe (final: ntoskrnl.exe)")));
    let filter = "stack.frame.call_site.instruction startswith 'call 0x'";
    let lines = text(folder.path(), &[&select[..], &["--where", filter, "--format", "ndjson"]].concat());
    assert!(lines.lines().count() > 0);
}
