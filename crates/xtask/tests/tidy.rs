//! The rooms' arrows, sizes and words.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What each room may use of the others. Whatever is missing here it must not know; see ARCHITECTURE.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("stackhound-etl", &[]),
    ("stackhound-expr", &[]),
    ("stackhound-validator", &[]),
    ("stackhound-calltree", &[]),
    ("stackhound-corpus", &[]),
    ("stackhound-calltree", &[]),
    ("stackhound-windows", &[]),
    ("stackhound-symbols", &["stackhound-windows"]),
    ("stackhound-schema", &["stackhound-etl"]),
    ("stackhound-trace", &["stackhound-etl"]),
    ("stackhound-live", &["stackhound-etl", "stackhound-schema", "stackhound-trace", "stackhound-windows"]),
    ("stackhound-stacks", &["stackhound-etl", "stackhound-trace"]),
    ("stackhound-system", &["stackhound-etl", "stackhound-schema", "stackhound-trace"]),
    ("stackhound-scenario", &["stackhound-etl"]),
    (
        "stackhound-frames",
        &[
            "stackhound-etl",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-trace",
        ],
    ),
    ("stackhound-detect", &["stackhound-etl", "stackhound-frames", "stackhound-symbols"]),
    (
        "stackhound-sysmon",
        &["stackhound-detect", "stackhound-etl", "stackhound-frames", "stackhound-symbols"],
    ),
    ("stackhound-export", &["stackhound-calltree", "stackhound-detect", "stackhound-frames"]),
    ("stackhound-timeline", &["stackhound-calltree"]),
    (
        "stackhound",
        &[
            "stackhound-calltree",
            "stackhound-detect",
            "stackhound-frames",
            "stackhound-etl",
            "stackhound-export",
            "stackhound-expr",
            "stackhound-kstack-client",
            "stackhound-kstack-proto",
            "stackhound-live",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-timeline",
            "stackhound-trace",
            "stackhound-windows",
        ],
    ),
    ("stackhound-record-ptrace", &["stackhound-calltree"]),
    ("stackhound-kstack-proto", &[]),
    ("stackhound-kstack-core", &["stackhound-kstack-proto"]),
    ("stackhound-kstack-driver", &["stackhound-kstack-core", "stackhound-kstack-proto"]),
    ("stackhound-kstack-client", &["stackhound-kstack-proto", "stackhound-windows"]),
    (
        "stackhound-cli",
        &[
            "stackhound",
            "stackhound-calltree",
            "stackhound-export",
            "stackhound-record-ptrace",
            "stackhound-scenario",
            "stackhound-sysmon",
        ],
    ),
    ("stackhound-python", &["stackhound", "stackhound-calltree", "stackhound-export"]),
    ("xtask", &[]),
];

/// Rooms that are no part of the workspace, since they need more than Rust, or take the place of a library of Windows.
const OUTSIDE: &[&str] = &["crates/kstack/driver", "crates/python", "crates/windows-double"];

/// What cargo knows of the packages of a workspace.
fn packages(folder: &Path) -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(folder)
        .output()
        .expect("cargo metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

#[test]
fn rooms_use_only_what_they_may() {
    let packages: Vec<serde_json::Value> = std::iter::once(root())
        .chain(OUTSIDE.iter().map(|room| root().join(room)))
        .flat_map(|folder| packages(&folder))
        .collect();
    let ours: Vec<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let allowed = ARROWS.iter().find(|(room, _)| *room == name).map(|(_, allowed)| *allowed);
        let Some(allowed) = allowed else {
            // Rooms that only test others may use what they test.
            assert!(
                package["publish"].as_array().is_some_and(Vec::is_empty),
                "{name} has no place in the table"
            );
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            let for_tests = dependency["kind"] == "dev";
            assert!(
                for_tests || !ours.contains(&used) || allowed.contains(&used),
                "{name} must not know {used}"
            );
        }
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// `unsafe` stands in file mapping, in the rooms that call Windows or run in its kernel, in the doubles of Windows and in those that
/// record. There clippy asks for a reason at each block.
#[test]
fn unsafe_is_where_it_may_be() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 50);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let of_system = ["kstack/double", "kstack/driver", "windows/src", "windows-double", "record"]
            .iter()
            .any(|room| file.starts_with(root().join("crates").join(room)));
        let allowed =
            file.ends_with("trace/src/source/map.rs") || file.ends_with("xtask/tests/tidy.rs") || of_system;
        let blocks =
            text.lines().filter(|line| !line.trim_start().starts_with("//") && line.contains("unsafe {"));
        assert!(allowed || blocks.count() == 0, "{} has unsafe code", file.display());
        let root_file = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
        let rules: &[&str] = if of_system {
            &["#![deny(clippy::undocumented_unsafe_blocks"]
        } else {
            &["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"]
        };
        assert!(
            !root_file || rules.iter().any(|rule| text.contains(rule)),
            "{} does not rule unsafe code out",
            file.display()
        );
    }
}
