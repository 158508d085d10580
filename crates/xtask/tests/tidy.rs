//! Which crate uses which, and where unsafe code may be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The dependencies of each crate on others of this repository, those for tests only left out. Exactly these: see the table in
/// ARCHITECTURE.md for what each crate must not know.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    (
        "stackhound",
        &[
            "stackhound-calltree",
            "stackhound-detect",
            "stackhound-etl",
            "stackhound-export",
            "stackhound-expr",
            "stackhound-frames",
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
    ("stackhound-calltree", &[]),
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
    ("stackhound-corpus", &[]),
    ("stackhound-detect", &["stackhound-etl", "stackhound-frames", "stackhound-symbols"]),
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
    ("stackhound-etl", &[]),
    ("stackhound-etw-double", &["stackhound-etl", "stackhound-schema", "stackhound-trace"]),
    ("stackhound-export", &["stackhound-calltree", "stackhound-detect", "stackhound-frames"]),
    ("stackhound-expr", &[]),
    ("stackhound-fuzz", &["stackhound-fuzzing"]),
    (
        "stackhound-fuzzing",
        &[
            "stackhound-calltree",
            "stackhound-detect",
            "stackhound-etl",
            "stackhound-frames",
            "stackhound-kstack-core",
            "stackhound-kstack-proto",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-sysmon",
            "stackhound-trace",
        ],
    ),
    ("stackhound-kstack-client", &["stackhound-kstack-proto", "stackhound-windows"]),
    ("stackhound-kstack-core", &["stackhound-kstack-proto"]),
    ("stackhound-kstack-double", &[]),
    ("stackhound-kstack-driver", &["stackhound-kstack-core", "stackhound-kstack-proto"]),
    ("stackhound-kstack-proto", &[]),
    ("stackhound-live", &["stackhound-etl", "stackhound-schema", "stackhound-trace", "stackhound-windows"]),
    ("stackhound-python", &["stackhound", "stackhound-calltree", "stackhound-export"]),
    ("stackhound-record-ptrace", &["stackhound-calltree"]),
    ("stackhound-scenario", &["stackhound-etl"]),
    ("stackhound-schema", &["stackhound-etl"]),
    ("stackhound-stacks", &["stackhound-etl", "stackhound-trace"]),
    ("stackhound-symbols", &["stackhound-windows"]),
    (
        "stackhound-sysmon",
        &["stackhound-detect", "stackhound-etl", "stackhound-frames", "stackhound-symbols"],
    ),
    ("stackhound-system", &["stackhound-etl", "stackhound-schema", "stackhound-trace"]),
    ("stackhound-testkit", &["stackhound-etl", "stackhound-scenario"]),
    ("stackhound-timeline", &["stackhound-calltree"]),
    ("stackhound-trace", &["stackhound-etl"]),
    ("stackhound-validator", &[]),
    ("stackhound-windows", &[]),
    ("xtask", &[]),
];

/// Crates outside the workspace, since they need more than Rust, or take the place of a library of Windows.
const OUTSIDE: &[&str] =
    &["crates/kstack/double", "crates/kstack/driver", "crates/python", "crates/windows-double", "fuzz"];

/// By crate, the names of others.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// The packages of the workspace at a folder.
fn packages(folder: &Path) -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(folder)
        .output()
        .expect("cargo metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// The edges between crates of this repository: without those for tests, and with them.
fn edges() -> (Edges, Edges) {
    let packages: Vec<serde_json::Value> = std::iter::once(root())
        .chain(OUTSIDE.iter().map(|folder| root().join(folder)))
        .flat_map(|folder| packages(&folder))
        .collect();
    let name = |value: &serde_json::Value| value["name"].as_str().expect("a name").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let of = |with_tests: bool| {
        let used = |package: &serde_json::Value| {
            let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
            let wanted = dependencies.filter(|dependency| with_tests || dependency["kind"] != "dev");
            wanted.map(name).filter(|used| ours.contains(used)).collect()
        };
        packages.iter().map(|package| (name(package), used(package))).collect()
    };
    (of(false), of(true))
}

#[test]
fn crates_have_exactly_the_dependencies_of_the_table() {
    let table: Edges = DEPENDENCIES
        .iter()
        .map(|(name, used)| ((*name).to_owned(), used.iter().map(|used| (*used).to_owned()).collect()))
        .collect();
    let (found, _) = edges();
    let flat = |edges: &Edges| -> BTreeSet<String> {
        edges
            .iter()
            .flat_map(|(name, used)| used.iter().map(move |used| format!("{name} -> {used}")))
            .collect()
    };
    let (allowed, existing) = (flat(&table), flat(&found));
    let unknown: Vec<_> = existing.difference(&allowed).collect();
    let unused: Vec<_> = allowed.difference(&existing).collect();
    assert!(unknown.is_empty() && unused.is_empty(), "not in the table: {unknown:?}; only there: {unused:?}");
    assert!(table.keys().eq(found.keys()), "crates: {:?}; in the table: {:?}", found.keys(), table.keys());
}

/// A circle among these crates; empty if there is none.
fn circle(edges: &Edges) -> Vec<&str> {
    let mut left: BTreeMap<&str, BTreeSet<&str>> =
        edges.iter().map(|(name, used)| (&**name, used.iter().map(|used| &**used).collect())).collect();
    while let Some(leaf) = left.iter().find(|(_, used)| used.is_empty()).map(|(name, _)| *name) {
        left.remove(leaf);
        for used in left.values_mut() {
            used.remove(leaf);
        }
    }
    let Some((start, _)) = left.first_key_value() else { return Vec::new() };
    let mut path = vec![*start];
    // Each that is left uses another that is left.
    loop {
        let next = *left[path[path.len() - 1]].first().expect("a leaf is not left");
        if let Some(at) = path.iter().position(|name| *name == next) {
            return path.split_off(at);
        }
        path.push(next);
    }
}

#[test]
fn tests_do_not_close_circles() {
    let (_, edges) = edges();
    assert_eq!(circle(&edges), Vec::<&str>::new(), "each uses the next, the last the first");
}

#[test]
fn circles_are_found() {
    let of = |edges: &[(&str, &[&str])]| -> Edges {
        let names = |used: &[&str]| used.iter().map(|used| (*used).to_owned()).collect();
        edges.iter().map(|(name, used)| ((*name).to_owned(), names(used))).collect()
    };
    assert!(circle(&of(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    let edges = of(&[("a", &["b"]), ("b", &["c"]), ("c", &["d", "b"]), ("d", &[])]);
    assert_eq!(circle(&edges), ["b", "c"]);
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

/// `unsafe` is in file mapping, in the crates that call Windows or run in its kernel, in the doubles of Windows and in those
/// that record. There clippy asks for a reason at each block.
#[test]
fn unsafe_is_where_it_may_be() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 50);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let of_system = ["kstack/double", "kstack/driver", "windows/src", "windows-double", "record"]
            .iter()
            .any(|folder| file.starts_with(root().join("crates").join(folder)));
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
