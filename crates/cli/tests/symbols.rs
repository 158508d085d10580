//! `stackhound symbols` on images and PDBs of the corpus.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn stackhound(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stackhound")).args(arguments).output().expect("the program runs")
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = stackhound(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn refused(arguments: &[&str], sentence: &str) {
    let output = stackhound(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} wrote to standard output");
    assert_eq!(errors.trim_end(), format!("error: {sentence}"), "{arguments:?}");
}

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn in_folder(folder: &tempfile::TempDir, name: &str) -> String {
    let path: PathBuf = folder.path().join(name);
    text(&path).to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn corpus(name: &str) -> Option<Vec<u8>> {
    stackhound_corpus::bytes(&format!("symbols/{name}"))
}

#[test]
fn stubs_of_wine_are_all_listed() {
    let (Some(ntdll), Some(tables)) = (corpus("wine/ntdll.dll"), corpus("syscalls/stubs-from-pe.json"))
    else {
        return;
    };
    let tables: Value = serde_json::from_slice(&tables).unwrap();
    let expected = tables["wine8"]["stubs"].as_object().unwrap();
    let folder = folder(&[("ntdll.dll", &ntdll)]);
    let stubs = json(&["symbols", "stubs", &in_folder(&folder, "ntdll.dll"), "--format", "json", "-q"]);
    let mut names = 0;
    for stub in stubs.as_array().unwrap() {
        assert_eq!(stub["state"], "intact");
        assert_eq!((&stub["int2e_return_rva"], &stub["leads_to"]), (&Value::Null, &Value::Null));
        let aliases = stub["aliases"].as_array().unwrap();
        for name in std::iter::once(&stub["name"]).chain(aliases) {
            let expected = &expected[name.as_str().unwrap()];
            assert_eq!(stub["ssn"], expected["ssn"]);
            let hex = |number: u64| Value::from(format!("{number:#x}"));
            assert_eq!(stub["rva"], hex(expected["rva"].as_u64().unwrap()));
            let syscall = expected["syscall_at"].as_u64().unwrap();
            assert_eq!((&stub["syscall_rva"], &stub["return_rva"]), (&hex(syscall), &hex(syscall + 2)));
            names += 1;
        }
    }
    assert_eq!(names, expected.len());
}

#[test]
fn a_hooked_stub_is_shown() {
    let Some(mut ntdll) = corpus("wine/ntdll.dll") else { return };
    // The numbers of addresses are those of the file: NtAllocateVirtualMemory gets a jump out of the image.
    let clean = folder(&[("ntdll.dll", &ntdll)]);
    let stubs = json(&["symbols", "stubs", &in_folder(&clean, "ntdll.dll"), "--format", "json", "-q"]);
    let stubs = stubs.as_array().unwrap();
    let stub = stubs.iter().find(|stub| stub["name"] == "NtAllocateVirtualMemory").unwrap();
    let rva = u64::from_str_radix(&stub["rva"].as_str().unwrap()[2..], 16).unwrap();
    ntdll[rva as usize..][..5].copy_from_slice(&[0xe9, 0, 0, 0, 0x10]);
    let hooked = folder(&[("ntdll.dll", &ntdll)]);

    let output = stackhound(&["symbols", "stubs", &in_folder(&hooked, "ntdll.dll")]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let line = shown.lines().find(|line| line.contains("NtAllocateVirtualMemory ")).unwrap();
    let leads_to = 0x1_7000_0000 + rva + 5 + 0x1000_0000;
    assert!(line.ends_with(&format!("hooked, leads to {leads_to:#x}")), "{line}");
    assert!(line.trim_start().starts_with('-'), "{line}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "228 stubs, 1 hooked, 0 foreign\n");
}

#[test]
fn bad_images_get_one_clear_sentence() {
    let mut cut = b"MZ".to_vec();
    cut.resize(100, 0);
    let folder = folder(&[
        ("empty", b""),
        ("text", b"This is text, and not short either: longer than a DOS header is."),
        ("cut", &cut),
    ]);
    let check = |name: &str, sentence: &str| {
        let path = in_folder(&folder, name);
        refused(&["symbols", "stubs", &path], &format!("{path}: {sentence}"));
    };
    check("empty", "not a PE image (shorter than a DOS header)");
    check("text", "not a PE image (it does not start with MZ)");
    check("cut", "not a PE image (no PE header, only a DOS one)");
    check("missing", "No such file or directory (os error 2)");
    check(".", "Is a directory (os error 21)");
}
