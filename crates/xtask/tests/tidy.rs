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
        "stackhound-lake",
        &[
            "stackhound",
            "stackhound-columns",
            "stackhound-export",
            "stackhound-profile",
            "stackhound-symbols",
        ],
    ),
    (
        "stackhound",
        &[
            "stackhound-analysis",
            "stackhound-calltree",
            "stackhound-detect",
            "stackhound-etl",
            "stackhound-export",
            "stackhound-expr",
            "stackhound-facts",
            "stackhound-frames",
            "stackhound-hunt",
            "stackhound-images",
            "stackhound-live",
            "stackhound-pipeline",
            "stackhound-profile",
            "stackhound-rules",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-threads",
            "stackhound-timeline",
            "stackhound-trace",
            "stackhound-types",
        ],
    ),
    (
        "stackhound-analysis",
        &[
            "stackhound-etl",
            "stackhound-frames",
            "stackhound-pipeline",
            "stackhound-profile",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-trace",
            "stackhound-types",
        ],
    ),
    ("stackhound-calltree", &["stackhound-types"]),
    (
        "stackhound-cli",
        &[
            "stackhound",
            "stackhound-calltree",
            "stackhound-columns",
            "stackhound-export",
            "stackhound-record-ptrace",
            "stackhound-record-qemu",
            "stackhound-rules",
            "stackhound-scenario",
            "stackhound-sysmon",
        ],
    ),
    (
        "stackhound-columns",
        &[
            "stackhound-detect",
            "stackhound-etl",
            "stackhound-export",
            "stackhound-facts",
            "stackhound-frames",
            "stackhound-hunt",
            "stackhound-pipeline",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-trace",
            "stackhound-types",
        ],
    ),
    ("stackhound-corpus", &[]),
    (
        "stackhound-detect",
        &[
            "stackhound-facts",
            "stackhound-frames",
            "stackhound-images",
            "stackhound-symbols",
            "stackhound-types",
        ],
    ),
    ("stackhound-etl", &["stackhound-types"]),
    ("stackhound-etw-fake", &["stackhound-etl", "stackhound-schema", "stackhound-trace", "stackhound-types"]),
    (
        "stackhound-export",
        &[
            "stackhound-calltree",
            "stackhound-detect",
            "stackhound-etl",
            "stackhound-facts",
            "stackhound-frames",
            "stackhound-images",
            "stackhound-pipeline",
            "stackhound-profile",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-threads",
            "stackhound-types",
        ],
    ),
    ("stackhound-expr", &[]),
    ("stackhound-facts", &["stackhound-types"]),
    (
        "stackhound-frames",
        &[
            "stackhound-etl",
            "stackhound-images",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-trace",
            "stackhound-types",
        ],
    ),
    ("stackhound-fuzz", &["stackhound-fuzzing"]),
    (
        "stackhound-fuzzing",
        &[
            "stackhound-calltree",
            "stackhound-detect",
            "stackhound-etl",
            "stackhound-frames",
            "stackhound-images",
            "stackhound-kstack-core",
            "stackhound-kstack-proto",
            "stackhound-rules",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-sysmon",
            "stackhound-trace",
            "stackhound-types",
        ],
    ),
    (
        "stackhound-hunt",
        &[
            "stackhound-detect",
            "stackhound-etl",
            "stackhound-expr",
            "stackhound-facts",
            "stackhound-frames",
            "stackhound-images",
            "stackhound-pipeline",
            "stackhound-rules",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-system",
            "stackhound-trace",
            "stackhound-types",
            "stackhound-windows",
        ],
    ),
    ("stackhound-images", &["stackhound-symbols", "stackhound-types"]),
    ("stackhound-kstack-client", &["stackhound-kstack-proto", "stackhound-windows"]),
    ("stackhound-kstack-core", &["stackhound-kstack-proto"]),
    ("stackhound-kstack-fake", &[]),
    ("stackhound-kstack-driver", &["stackhound-kstack-core", "stackhound-kstack-proto"]),
    ("stackhound-kstack-proto", &[]),
    (
        "stackhound-live",
        &[
            "stackhound-etl",
            "stackhound-schema",
            "stackhound-trace",
            "stackhound-types",
            "stackhound-windows",
        ],
    ),
    (
        "stackhound-pipeline",
        &[
            "stackhound-etl",
            "stackhound-expr",
            "stackhound-facts",
            "stackhound-frames",
            "stackhound-live",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-trace",
            "stackhound-types",
            "stackhound-windows",
        ],
    ),
    ("stackhound-profile", &["stackhound-types"]),
    ("stackhound-python", &["stackhound", "stackhound-calltree", "stackhound-columns", "stackhound-export"]),
    ("stackhound-qemu-plugin", &[]),
    ("stackhound-record-elf", &[]),
    ("stackhound-record-guest", &["stackhound-types"]),
    ("stackhound-record-names", &["stackhound-calltree", "stackhound-record-elf", "stackhound-types"]),
    ("stackhound-record-ptrace", &["stackhound-calltree", "stackhound-record-names", "stackhound-types"]),
    (
        "stackhound-record-qemu",
        &[
            "stackhound-calltree",
            "stackhound-qemu-plugin",
            "stackhound-record-elf",
            "stackhound-record-guest",
            "stackhound-record-names",
            "stackhound-types",
        ],
    ),
    ("stackhound-rules", &["stackhound-expr", "stackhound-facts"]),
    ("stackhound-scenario", &["stackhound-etl", "stackhound-schema", "stackhound-types"]),
    ("stackhound-schema", &["stackhound-etl", "stackhound-types"]),
    ("stackhound-stacks", &["stackhound-etl", "stackhound-schema", "stackhound-trace", "stackhound-types"]),
    ("stackhound-symbols", &["stackhound-types", "stackhound-windows"]),
    (
        "stackhound-sysmon",
        &[
            "stackhound-detect",
            "stackhound-expr",
            "stackhound-facts",
            "stackhound-frames",
            "stackhound-images",
            "stackhound-rules",
            "stackhound-symbols",
            "stackhound-types",
        ],
    ),
    ("stackhound-system", &["stackhound-etl", "stackhound-schema", "stackhound-trace", "stackhound-types"]),
    (
        "stackhound-testkit",
        &["stackhound-etl", "stackhound-scenario", "stackhound-schema", "stackhound-types"],
    ),
    (
        "stackhound-threads",
        &[
            "stackhound-etl",
            "stackhound-frames",
            "stackhound-kstack-client",
            "stackhound-kstack-proto",
            "stackhound-pipeline",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-trace",
            "stackhound-types",
            "stackhound-windows",
        ],
    ),
    (
        "stackhound-timeline",
        &[
            "stackhound-calltree",
            "stackhound-etl",
            "stackhound-frames",
            "stackhound-pipeline",
            "stackhound-schema",
            "stackhound-stacks",
            "stackhound-symbols",
            "stackhound-system",
            "stackhound-trace",
            "stackhound-types",
        ],
    ),
    ("stackhound-trace", &["stackhound-etl", "stackhound-types"]),
    ("stackhound-types", &[]),
    ("stackhound-validator", &[]),
    ("stackhound-windows", &[]),
    ("xtask", &["stackhound-corpus"]),
];

/// Crates outside the workspace, since they need more than Rust or long to build, or replace a library of Windows.
const OUTSIDE: &[&str] = &[
    "crates/kstack/fake",
    "crates/kstack/driver",
    "crates/lake",
    "crates/python",
    "crates/windows-fake",
    "fuzz",
];

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

/// `unsafe` is in file mapping, in the crates that call Windows or run in its kernel, in the fakes of Windows and in those
/// that record. There clippy asks for a reason at each block.
#[test]
fn unsafe_is_where_it_may_be() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 50);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let of_system =
            ["kstack/fake", "kstack/driver", "windows/src", "windows-fake", "record/ptrace", "record/qemu"]
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

/// The number of each `pub const NAME: … = …0x…;`, without `_`.
fn constants(file: &Path) -> Vec<(String, u128)> {
    let text = std::fs::read_to_string(file).expect("a generated file");
    let constant = |line: &str| {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(':')?;
        let digits: String = rest.split_once("0x")?.1.chars().filter(|c| *c != '_').collect();
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        Some((name.to_owned(), u128::from_str_radix(&digits[..end], 16).ok()?))
    };
    text.lines().filter_map(constant).collect()
}

/// What is part of the program: without comments, spaces, `_` and the tests at the end, in small letters.
fn product_code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code = text.lines().filter_map(|line| line.split("//").next());
    code.flat_map(str::chars)
        .filter(|c| !c.is_whitespace() && *c != '_')
        .collect::<String>()
        .to_ascii_lowercase()
}

/// The files below `crates` with code that is no test, and that code as [`product_code`] has it.
fn product_sources() -> Vec<(PathBuf, String)> {
    let crates = root().join("crates");
    let mut files = Vec::new();
    sources(&crates, &mut files);
    let of_product = files.into_iter().filter_map(|file| {
        let location = file.strip_prefix(&crates).expect("a file of a crate").to_owned();
        let is_test = location.components().any(|part| {
            ["tests", "benches", "examples", "tests.rs"].iter().any(|test| part.as_os_str() == *test)
        });
        (!is_test).then(|| (location, product_code(&std::fs::read_to_string(&file).expect("text"))))
    });
    of_product.collect()
}

/// Kernel events and well-known providers have names in `schema`. Tests state numbers independently, as do the crates that
/// only test others, and the table of what the container needs, which a test of `schema` compares.
#[test]
fn ids_of_events_are_written_once() {
    const TESTING: [&str; 4] = ["fuzzing", "validator", "windows-fake", "xtask"];
    let crates = root().join("crates");
    let schema = crates.join("schema/src");
    // Group 0 has the numbers of much else.
    let mut ids: Vec<(String, u128)> = constants(&schema.join("kernel/hook_id.rs"));
    ids.retain(|(_, hook_id)| *hook_id > 0xff);
    let hook_ids = ids.into_iter().map(|(name, hook_id)| (name, vec![format!("0x{hook_id:04x}")]));
    let guids = ["kernel/class_guid.rs", "provider_guid.rs"].into_iter().flat_map(|file| {
        constants(&schema.join(file)).into_iter().map(|(name, guid)| {
            let digits = format!("{guid:032x}");
            let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
            let [a, b, c, ..] = groups;
            (name, vec![groups.join("-"), format!("0x{digits}"), format!("0x{a},0x{b},0x{c},")])
        })
    });
    let known: Vec<(String, Vec<String>)> = hook_ids.chain(guids).collect();
    assert!(known.len() > 500, "{}", known.len());

    let mut found = Vec::new();
    for (location, code) in product_sources() {
        let is_exempt = TESTING.iter().any(|room| location.starts_with(room))
            || location.starts_with("schema")
            || location == Path::new("etl/src/hook_id.rs");
        if is_exempt {
            continue;
        }
        let is_whole =
            |at: usize, length: usize| !code.as_bytes().get(at + length).is_some_and(u8::is_ascii_hexdigit);
        for (name, spellings) in &known {
            for spelling in spellings {
                if code.match_indices(spelling.as_str()).any(|(at, _)| is_whole(at, spelling.len())) {
                    found.push(format!("{}: {spelling} is {name}", location.display()));
                }
            }
        }
    }
    assert!(found.is_empty(), "use the constants of schema:\n{}", found.join("\n"));
}

/// Code that knows providers names their events too, with the constants of `schema`.
#[test]
fn ids_of_provider_events_have_names() {
    // The ids of Threat-Intelligence have no names of their own: this match says what each of them states. The other
    // event is in no table of `schema`.
    const EXCEPTIONS: [(&str, &str); 3] = [
        ("hunt/src/threat.rs", "matchid{1"),
        ("hunt/src/threat.rs", "u16=36;"),
        ("analysis/src/packets.rs", "u16=1003;"),
    ];
    const OTHER: [&str; 6] = ["schema", "fuzzing", "validator", "scenario", "windows-fake", "xtask"];
    let mut found = Vec::new();
    for (file, code) in product_sources() {
        if OTHER.iter().any(|room| file.starts_with(room)) {
            continue;
        }
        let location = file.to_str().expect("text").to_owned();
        let mut names = code.split("providerguid").skip(1).peekable();
        if names.peek().is_none() {
            continue;
        }
        let after_name = names.filter_map(|rest| {
            let rest = rest.strip_prefix("::")?.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            Some(rest.strip_prefix(')').unwrap_or(rest).strip_prefix(',')?.trim_start_matches('('))
        });
        let in_matches = code.split("matchid{").skip(1);
        let constants = code.split(":u16=").skip(1).filter(|rest| !rest.starts_with("0x"));
        let number = |before: &str, rest: &str| {
            let digits = rest.chars().take_while(char::is_ascii_digit).collect::<String>();
            let end = if before == "u16=" { ";" } else { "" };
            (!digits.is_empty()).then(|| (location.clone(), format!("{before}{digits}{end}")))
        };
        found.extend(after_name.filter_map(|rest| number("", rest)));
        found.extend(in_matches.filter_map(|rest| number("matchid{", rest)));
        found.extend(constants.filter_map(|rest| number("u16=", rest)));
    }
    found.sort();
    found.dedup();
    let mut exceptions = EXCEPTIONS.map(|(file, text)| (file.to_owned(), text.to_owned()));
    exceptions.sort();
    assert_eq!(
        found, exceptions,
        "name the events in the test `constants` of `schema`, or remove an exception"
    );
}

/// Events of traces and live sessions are evaluated in one place, by one policy. Tests may evaluate single events.
#[test]
fn hunts_have_one_driver() {
    const DRIVER: &str = "hunt/src/hunt.rs";
    let calls =
        |code: &str| ["huntsession::new(", "rulesession::new("].iter().any(|call| code.contains(call));
    let callers =
        product_sources().into_iter().filter(|(file, code)| !file.starts_with("xtask") && calls(code));
    let callers: Vec<PathBuf> = callers.map(|(file, _)| file).collect();
    assert_eq!(callers, [Path::new(DRIVER)], "use `Hunt`, so that the whole policy applies");
}

/// Folders with crates are in the picture with which ARCHITECTURE.md begins, by name.
#[test]
fn the_picture_has_every_crate() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("text");
    let picture = text.split("```").nth(1).expect("a picture");
    let words: BTreeSet<&str> = picture.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    let mut missing = Vec::new();
    for folder in ["crates", "crates/record", "crates/kstack"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            if path.join("Cargo.toml").exists() && !words.contains(&*name) {
                missing.push(path);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
