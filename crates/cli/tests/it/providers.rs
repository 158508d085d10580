//! `providers`, and events that are decoded with manifests of the user.

use std::path::{Path, PathBuf};

use crate::program::{refused, stackhound, text};
use serde_json::Value;

/// A compiled manifest and its messages, from the tests of the crate for schemas.
#[path = "../../../schema/src/testing/compiled.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod compiled;

const NETWORK: &str = "7dd42a49-5329-4832-8dfd-43d979153a88";

const MANIFEST: &str = r#"<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events">
<instrumentation><events>
<provider name="Shop" guid="{11111111-2222-3333-4444-555555555555}" message="$(string.shop)" resourceFileName="shop.dll">
  <keywords><keyword name="Money" mask="0x10"/></keywords>
  <tasks><task name="Order" value="1"/></tasks>
  <maps><valueMap name="Ware"><map value="1" message="$(string.tea)"/></valueMap></maps>
  <events><event value="5" version="1" level="win:Error" task="Order" opcode="win:Start" keywords="Money" template="T"
    message="$(string.order)"/></events>
  <templates><template tid="T"><data name="ware" inType="win:UInt32" map="Ware"/>
    <data name="pid" inType="win:UInt32" outType="win:PID"/>
    <struct name="lines" count="2"><data name="text" inType="win:UnicodeString" length="4"/></struct></template></templates>
</provider><provider name="Stall" guid="{11111111-2222-3333-4444-666666666666}"/></events></instrumentation>
<localization>
  <resources culture="en-US"><stringTable><string id="shop" value="A shop"/><string id="tea" value="tea"/>
    <string id="order" value="%1!s! ordered%nby %2"/></stringTable></resources>
  <resources culture="de-DE"><stringTable><string id="shop" value="Ein Laden"/></stringTable></resources>
</localization></instrumentationManifest>"#;

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The standard output of a command.
#[track_caller]
fn run(arguments: &[&str]) -> String {
    let output = stackhound(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&run(arguments)).unwrap()
}

#[test]
fn the_list_contains_the_built_in_providers() {
    let list = json(&["providers", "--format", "json"]);
    let network = list.as_array().unwrap().iter().find(|row| row["guid"] == NETWORK).unwrap();
    assert_eq!(network["name"], "Microsoft-Windows-Kernel-Network");
    assert_eq!((network["origin"].as_str(), network["keywords"].as_u64()), (Some("built in"), Some(2)));
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.contains(&"Microsoft-Windows-Threat-Intelligence"));
    let table = run(&["providers", "*kernel-*"]);
    assert!(table.lines().skip(1).all(|line| line.starts_with("Microsoft-Windows-Kernel-")), "{table}");
}

#[test]
fn one_provider_is_shown_by_name_or_guid() {
    for name in ["microsoft-windows-kernel-network", NETWORK, "{7DD42A49-5329-4832-8DFD-43D979153A88}"] {
        let shown = run(&["providers", name]);
        assert!(shown.contains("0x0000000000000010  KERNEL_NETWORK_KEYWORD_IPV4"), "{shown}");
        let sent = shown.lines().skip_while(|line| !line.contains("TcpIp/SendIPV4")).nth(1).unwrap();
        assert!(
            sent.trim_start().starts_with("PID UInt32 (PID), size UInt32, daddr UInt32 (IPv4)"),
            "{sent}"
        );
    }
    refused(
        &["providers", "Nobody"],
        "provider Nobody is unknown; use --manifest FILE to read further providers",
    );
}

#[test]
fn unknown_events_are_stated() {
    let shown = run(&["providers", "Microsoft-Windows-HttpService"]);
    assert!(shown.contains("Events: not known"), "{shown}");
    let shown = run(&["providers", "Microsoft-Windows-Threat-Intelligence"]);
    assert!(!shown.contains("not known"), "{shown}");
    assert!(shown.contains("      14 v2   KERNEL_THREATINT_TASK_WRITEVM  win:Informational"), "{shown}");
}

#[test]
fn manifests_are_shown_in_the_requested_language() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "shop.man", MANIFEST.as_bytes());
    let path = text(&path);
    let list = json(&["providers", "--manifest", path, "--format", "json"]);
    let rows: Vec<_> = list.as_array().unwrap().iter().map(|row| (&row["name"], &row["events"])).collect();
    assert_eq!(format!("{rows:?}"), r#"[(String("Shop"), Number(1)), (String("Stall"), Number(0))]"#);

    let shown = run(&["providers", "Shop", "--manifest", path]);
    for line in [
        "A shop",
        "resources: shop.dll",
        "  0x0000000000000010  Money",
        "       5 v1   Order/Start  win:Error Money",
        "              ware UInt32 = Ware, pid UInt32 (PID), lines { text UnicodeString of 4 }[2]",
        "              \"%1 ordered by %2\"",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\nis not in\n{shown}");
    }
    let shown = run(&["providers", "Shop", "--manifest", path, "--culture", "de-DE"]);
    assert!(shown.contains("Ein Laden") && shown.contains("ordered by"), "{shown}");

    let shown = json(&["providers", "Shop", "--manifest", path, "--format", "json"]);
    let event = &shown[0]["events"][0];
    assert_eq!(
        (&event["name"], &event["level"], &event["keyword"]),
        (&"Order/Start".into(), &2.into(), &"0x10".into())
    );
    let field = &event["fields"][2];
    assert_eq!((&field["name"], &field["array_length"]), (&"lines".into(), &"2".into()));
    assert_eq!(field["fields"][0]["in_type"], "win:UnicodeString");
    assert_eq!(shown[0]["maps"][0]["entries"], serde_json::json!([{ "value": 1, "name": "tea" }]));
}

#[test]
fn images_are_read_with_their_mui_files() {
    let folder = tempfile::tempdir().unwrap();
    let image = write(folder.path(), "tool.dll", &compiled::image(Some(&compiled::manifest()), None));
    let image = text(&image);
    let shown = || run(&["providers", "Compiled-Provider", "--manifest", image]);
    assert!(!shown().contains("A compiled provider"));
    write(folder.path(), "fr-FR/tool.dll.mui", &compiled::image(None, Some(&compiled::texts())));
    let shown = shown();
    assert!(shown.contains("A compiled provider") && shown.contains("Request/Again"), "{shown}");
    let english = compiled::messages(&[(compiled::PROVIDER_MESSAGE, "In English")]);
    write(folder.path(), "en-US/tool.dll.mui", &compiled::image(None, Some(&english)));
    let shown = run(&["providers", "Compiled-*", "--manifest", image]);
    assert!(shown.contains("In English") && shown.contains("A request"), "{shown}");
}

fn demo(folder: &Path) -> PathBuf {
    run(&["demo", "-q", "--out", text(folder)]);
    folder.join("stackhound-demo.etl")
}

/// The provider of the demo that writes its manifest to the trace.
fn browser(etl_file: &Path) -> Value {
    let list = json(&["providers", "--manifest", text(etl_file), "--format", "json"]);
    let row = list.as_array().unwrap().iter().find(|row| row["events"] != 0).expect("a provider with events");
    json(&["providers", row["guid"].as_str().unwrap(), "--manifest", text(etl_file), "--format", "json"])[0]
        .take()
}

#[test]
fn providers_described_in_a_trace_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let etl_file = demo(folder.path());
    let browser = browser(&etl_file);
    let name = browser["name"].as_str().unwrap();
    let shown = run(&["providers", name, "--manifest", text(&etl_file)]);
    assert!(shown.starts_with(name) && shown.contains("\nEvents\n"), "{shown}");
}

#[test]
fn events_are_decoded_with_given_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let etl_file = demo(folder.path());
    let browser = browser(&etl_file);
    // A description with more fields is preferred to the one in the trace.
    let fields = r#"<data name="octet" inType="win:UInt8"/>"#.repeat(20);
    let events: String = browser["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            format!(
                r#"<event value="{}" version="{}" task="Renamed" template="T"/>"#,
                event["id"], event["version"]
            )
        })
        .collect();
    let manifest = format!(
        r#"<provider name="Other" guid="{{{}}}"><events>{events}</events><templates><template tid="T">{fields}</template>
        </templates></provider>"#,
        browser["guid"].as_str().unwrap()
    );
    let path = write(folder.path(), "other.man", manifest.as_bytes());
    let count = |arguments: &[&str]| {
        let shown = run(&[&["events", text(&etl_file), "--format", "csv"], arguments].concat());
        shown.lines().filter(|line| line.contains(",Renamed,")).count()
    };
    assert_eq!(count(&[]), 0);
    assert!(count(&["--manifest", text(&path)]) > 0);
}

#[test]
fn unreadable_manifests_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, expected) in [
        ("a.man", &b"<provider name='P'/>"[..], "expected a provider with a GUID"),
        ("b.dll", &compiled::image(None, None)[..], "expected a WEVT_TEMPLATE resource in the image"),
        ("c.dll", &b"MZ nothing"[..], "expected a PE image"),
    ] {
        let path = write(folder.path(), name, bytes);
        let sentence = format!("{}: metadata offset 0x0: {expected}", path.display());
        refused(&["providers", "--manifest", text(&path)], &sentence);
    }
    let etl_file = demo(folder.path());
    let sentence = format!("{}: expected a manifest or an image with a manifest", etl_file.display());
    refused(&["events", text(&etl_file), "--manifest", text(&etl_file)], &sentence);
    let path = write(folder.path(), "shop.man", MANIFEST.as_bytes());
    refused(&["providers", "Nobody", "--manifest", text(&path)], "provider Nobody is not in these files");
}
