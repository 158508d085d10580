//! `images`, and `hunt` with facts about image files. The test signs its images itself.

#[path = "../../../symbols/tests/support/mod.rs"]
mod pe;
#[path = "../../../images/tests/support/mod.rs"]
mod signed;

use std::path::Path;

use crate::program::{refused, stackhound, text};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use signed::{Certificate, INDIRECT_DATA, certificate, root, signer};
use stackhound_types::HexBytes;

const CALLER: &str = r"C:\Program Files\Steam\steamservice.exe";

/// An image with a version resource, signed by a certificate that is valid until 2030.
fn image(certificate: &Certificate) -> Vec<u8> {
    let resource = signed::version_resource(0x2000, &[("OriginalFilename", "service.exe")]);
    let image = pe::Pe::new(pe::X64).code(0x1000, vec![0xc3; 64]).table(2, 0x2000, resource).file();
    let content = signed::indirect_data(&signed::digest(&image));
    signed::with_signatures(
        &image,
        &[signed::signed_data(INDIRECT_DATA, &content, &signer(certificate), &[])],
    )
}

fn valve() -> Certificate {
    Certificate { validity: ("20200101000000Z", "20990101000000Z"), ..certificate("Valve Corp.", "Root") }
}

/// A folder with the image, one that was changed after it was signed, another file, and the root.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    std::fs::create_dir_all(images.join("changed")).unwrap();
    let image = image(&valve());
    std::fs::write(images.join("steamservice.exe"), &image).unwrap();
    let mut changed = image;
    changed[0x400] ^= 1;
    std::fs::write(images.join("changed").join("steamservice.exe"), changed).unwrap();
    std::fs::write(images.join("readme.txt"), "text").unwrap();
    let root = Certificate { validity: valve().validity, ..root("Root") };
    std::fs::write(folder.path().join("root.cer"), root.der()).unwrap();
    folder
}

/// Sysmon's event 10, whose stack shows a direct system call of the image with this content.
fn events(folder: &Path, image: &[u8], stated: &Value) -> std::path::PathBuf {
    let path = folder.join("events.json");
    let ntdll = r"C:\Windows\System32\ntdll.dll";
    let sum = HexBytes(&Sha256::digest(image)).to_string();
    let mut load = json!({"EventID": 7, "Provider": "Microsoft-Windows-Sysmon", "Computer": "PC",
        "Image": CALLER, "ImageLoaded": CALLER, "Hashes": format!("SHA256={sum}"), "ProcessGuid": "{g}"});
    for (name, value) in stated.as_object().unwrap() {
        load[name] = value.clone();
    }
    let access = json!({"EventID": 10, "Provider": "Microsoft-Windows-Sysmon", "Computer": "PC",
        "SourceImage": CALLER, "SourceProcessGUID": "{g}", "TargetImage": "b.exe", "GrantedAccess": "0x1",
        "CallTrace": format!("{CALLER}+5|{ntdll}+1")});
    std::fs::write(&path, format!("{load}\n{access}\n")).unwrap();
    path
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join("images").join(name)).unwrap()
}

fn json(arguments: &[&str]) -> Vec<Value> {
    let output = stackhound(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each document is checked against its schema, too.
fn follows(name: &str, document: &Value) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/1/{name}.json"));
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(document)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:?}");
}

#[test]
fn images_are_scanned_and_shown() {
    let folder = folder();
    let (images, root) = (folder.path().join("images"), folder.path().join("root.cer"));
    let scanned = json(&["images", "scan", text(&images), "--trust", text(&root)]);
    let states: Vec<(&Value, &Value)> =
        scanned.iter().map(|image| (&image["signature"]["state"], &image["signature"]["reason"])).collect();
    assert_eq!(states, [(&json!("invalid"), &json!("digest-mismatch")), (&json!("valid"), &Value::Null)]);
    scanned.iter().for_each(|image| follows("image", image));
    let file = images.join("steamservice.exe");
    let output = stackhound(&["images", "show", text(&file), "--format", "json", "--trust", text(&root)]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    follows("images", &shown);
    assert_eq!(shown, json!([scanned[1]]));
    assert_eq!(shown[0]["version"]["original_file_name"], "service.exe");
    let table = String::from_utf8(stackhound(&["images", "show", text(&file)]).stdout).unwrap();
    assert!(table.contains("root not checked, signed by Valve Corp."), "{table}");
    let readme = images.join("readme.txt");
    let sentence = format!("{}: expected a PE image of at most 256 MiB, found another file", text(&readme));
    refused(&["images", "show", text(&readme)], &sentence);
    let sentence = format!("{}: expected X.509 certificates in PEM or DER, found none", text(&readme));
    refused(&["images", "show", text(&file), "--trust", text(&readme)], &sentence);
}

/// A known direct caller with its signer lowers the finding, only with its name less so, and with
/// another signer not at all. A signature counts only with a root, and if no source contradicts it.
#[test]
fn hunting_uses_signers_of_files() {
    let folder = folder();
    let (images, root) = (folder.path().join("images"), folder.path().join("root.cer"));
    let side_car = folder.path().join("facts.ndjson");
    let scan = ["images", "scan", text(&images), "--trust", text(&root), "-o", text(&side_car)];
    assert!(stackhound(&scan).status.success());
    let (image, changed) =
        (read(folder.path(), "steamservice.exe"), read(folder.path(), "changed/steamservice.exe"));
    let with_files = ["--images", text(&images), "--trust", text(&root)];
    let valid = json!({"Signed": "true", "Signature": "Valve Corp.", "SignatureStatus": "Valid"});
    let unsigned = json!({"Signed": "false", "SignatureStatus": "Unavailable"});
    let nothing = json!({});
    for (name, content, stated, options, severity, sources) in [
        ("nothing", &image, &nothing, &[][..], "medium", vec![]),
        ("the event", &image, &valid, &[], "low", vec![("sysmon", "valid")]),
        ("the file", &image, &nothing, &with_files, "low", vec![("file", "valid")]),
        (
            "side car",
            &image,
            &nothing,
            &["--image-facts", text(&side_car)],
            "low",
            vec![("image-facts", "valid")],
        ),
        ("no root", &image, &nothing, &with_files[..2], "medium", vec![("file", "root-not-checked")]),
        ("changed", &changed, &nothing, &with_files, "medium", vec![("file", "invalid")]),
        (
            "contradiction",
            &changed,
            &valid,
            &with_files,
            "medium",
            vec![("sysmon", "valid"), ("file", "invalid")],
        ),
        (
            "unsigned",
            &image,
            &unsigned,
            &with_files,
            "medium",
            vec![("sysmon", "unsigned"), ("file", "valid")],
        ),
    ] {
        let events = events(folder.path(), content, stated);
        let arguments =
            [&["hunt", text(&events), "--only", "CS02", "--format", "ndjson", "-q"], options].concat();
        let found = json(&arguments);
        let finding = &found[0];
        follows("finding", finding);
        assert_eq!(finding["severity"], severity, "{name}: {finding}");
        let image = finding["stack"]["frames"][0]["image"].as_array().cloned().unwrap_or_default();
        let of = |facts: &Value, key: &str| facts[key].as_str().unwrap_or_default().to_owned();
        let given: Vec<(String, String)> =
            image.iter().map(|facts| (of(facts, "source"), of(&facts["signature"], "state"))).collect();
        let expected: Vec<(String, String)> =
            sources.iter().map(|(source, state)| ((*source).to_owned(), (*state).to_owned())).collect();
        assert_eq!(given, expected, "{name}");
    }
    std::fs::write(&side_car, "{}").unwrap();
    let events = events(folder.path(), &image, &nothing);
    let output = stackhound(&["hunt", text(&events), "--image-facts", text(&side_car)]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("facts.ndjson: line 1: expected an image as `images scan` writes it"), "{error}");
    assert_eq!(output.status.code(), Some(2));
}
