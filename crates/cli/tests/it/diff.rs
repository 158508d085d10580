//! `diff` on generated traces.

use std::path::PathBuf;
use std::process::Output;
use std::sync::LazyLock;

use serde_json::Value;

use crate::program::{refused, stackhound, text};

/// The traces of the tests, each in a folder of its own with the images that name functions.
struct Demos {
    folder: tempfile::TempDir,
}

impl Demos {
    fn trace(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("stackhound-demo.etl")
    }
}

/// Mix and seed of the traces.
const TRACES: [(&str, u32); 8] = [
    ("before", 1),
    ("before", 2),
    ("before", 3),
    ("after", 4),
    ("after", 5),
    ("after", 6),
    ("default", 7),
    ("default", 8),
];

static DEMOS: LazyLock<Demos> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for (mix, seed) in TRACES {
        let (out, seed) = (folder.path().join(format!("{mix}{seed}")), seed.to_string());
        let arguments =
            ["demo", "-q", "--events", "100000", "--mix", mix, "--seed", &seed, "--out", text(&out)];
        assert!(stackhound(&arguments).status.success());
    }
    Demos { folder }
});

fn diff(a: &str, b: &str, arguments: &[&str]) -> Output {
    let symbols = DEMOS.folder.path().join(a).join("symbols");
    let (a, b) = (DEMOS.trace(a), DEMOS.trace(b));
    let mut all = vec!["diff", "-q", text(&a), text(&b), "--symbol-path", text(&symbols)];
    all.extend(arguments);
    let output = stackhound(&all);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {errors}");
    output
}

fn json(a: &str, b: &str, arguments: &[&str]) -> Value {
    let output = diff(a, b, &[&["--format", "json"], arguments].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is called changed: the section, the change, and the name.
fn changes(document: &Value) -> Vec<[String; 3]> {
    let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = document["findings"]["rows"].as_array().into_iter().flatten();
    let findings = findings.map(|row| {
        let name = format!("{} {}", of(&row["id"]), of(&row["process"]));
        ["finding".to_owned(), of(&row["change"]), name]
    });
    let sections = document["sections"].as_array().into_iter().flatten().flat_map(|section| {
        let rows = section["rows"].as_array().unwrap().iter();
        rows.map(|row| {
            let name = row["name"].as_str().or_else(|| row["stack"][0].as_str()).unwrap();
            [of(&section["by"]), of(&row["change"]), name.to_owned()]
        })
    });
    let all = findings.chain(sections);
    all.filter(|[_, change, _]| !["noise", "lost", "unrated", "only in a"].contains(&&**change)).collect()
}

#[test]
fn the_slower_function_and_the_new_attack_are_first() {
    for (before, after) in [("before1", "after4"), ("before2", "after5"), ("before3", "after6")] {
        let found = changes(&json(before, after, &[]));
        let expected = [
            ["finding", "new", "CS02 backgroundTaskHost.exe"],
            ["function", "more", "core.dll!LayoutParagraphs"],
        ];
        assert_eq!(found[..2], expected, "{before}, {after}: {found:?}");
        // All other changes follow from these.
        for [by, change, name] in &found[2..] {
            let is_caused = match &**by {
                "stack" => name == "core.dll!LayoutParagraphs" && change == "more",
                "process" => name == "writer.exe" && change == "more",
                _ => false,
            };
            assert!(is_caused, "{before}, {after}: {by} {change} {name}");
        }
        // The other direction.
        let found = changes(&json(after, before, &["--by", "finding,function"]));
        let expected = [
            ["finding", "gone", "CS02 backgroundTaskHost.exe"],
            ["function", "less", "core.dll!LayoutParagraphs"],
        ];
        assert_eq!(found, expected, "{after}, {before}");
    }
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn nothing_is_called_changed_in_other_runs_of_the_same_scenario() {
    const ALL: &str = "finding,function,total,module,stack,process";
    for (a, b) in [
        ("before1", "before2"),
        ("before2", "before3"),
        ("before3", "before1"),
        ("after4", "after5"),
        ("after5", "after6"),
        ("default7", "default8"),
    ] {
        // Runs have the same number of records, not the same length, so that they need normalization.
        for normalize in ["second", "total"] {
            let arguments = ["--by", ALL, "--normalize", normalize];
            let document = json(a, b, &arguments);
            assert_eq!(changes(&document), Vec::<[String; 3]>::new(), "{a}, {b}, {normalize}");
            let sections = document["sections"].as_array().unwrap();
            assert!(
                sections.len() == 5 && sections.iter().all(|section| section["compared"].as_u64() > Some(5))
            );
        }
    }
    assert_eq!(diff("before1", "before2", &["--exit-code"]).status.code(), Some(0));
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn a_trace_does_not_differ_from_itself() {
    for trace in ["before1", "after4", "default7"] {
        let document = json(trace, trace, &["--all", "--by", "finding,function,total,module,stack,process"]);
        assert_eq!(changes(&document), Vec::<[String; 3]>::new());
        for section in document["sections"].as_array().unwrap() {
            for row in section["rows"].as_array().unwrap() {
                assert_eq!(
                    (row["change"].as_str(), row["delta"].as_f64()),
                    (Some("noise"), Some(0.0)),
                    "{row}"
                );
            }
        }
        let output = diff(trace, trace, &["--format", "csv", "--exit-code"]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "by,change,name,a,b,a_count,b_count,delta,z\r\n"
        );
    }
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn the_exit_code_says_whether_something_changed() {
    for (arguments, expected) in [
        (&[][..], 0),
        (&["--exit-code"], 1),
        (&["--exit-code", "--by", "finding"], 1),
        (&["--exit-code", "--by", "function"], 1),
        (&["--exit-code", "--by", "module", "--process", "explorer.exe"], 0),
        (&["--exit-code", "--format", "flamegraph"], 1),
    ] {
        assert_eq!(diff("before1", "after4", arguments).status.code(), Some(expected), "{arguments:?}");
    }
}

/// The header says what was measured, normalized and lost.
#[test]
fn the_output_says_what_is_compared() {
    let shown = |a, b, arguments: &[&str]| String::from_utf8(diff(a, b, arguments).stdout).unwrap();
    let lossless = shown("before1", "after4", &[]);
    assert!(
        lossless.contains("ms/s: milliseconds of processor time in each second of the trace"),
        "{lossless}"
    );
    assert!(!lossless.contains("lost"), "{lossless}");
    assert!(
        shown("before1", "after4", &["--normalize", "none"])
            .contains("s: seconds of processor time, not normalized")
    );
    assert!(
        shown("before1", "after4", &["--normalize", "total"])
            .contains("%: percent of the processor time that was used")
    );
    let lossy = shown("before1", "default7", &[]);
    assert!(lossy.contains("lost 1 buffer: the time of a function may be wrong by 0.0"), "{lossy}");
    let filtered = shown("before1", "default7", &["--process", "writer.exe"]);
    assert!(filtered.contains("lost 1 buffer: how wrong times are is not known"), "{filtered}");
    // What a trace with losses does not have is not called new or gone.
    let document = json("default7", "after4", &["--by", "finding"]);
    assert_eq!(changes(&document), [["finding", "only in b", "CS02 backgroundTaskHost.exe"]]);
    let document = json("after4", "default7", &["--by", "finding"]);
    assert_eq!(changes(&document), Vec::<[String; 3]>::new());
    assert_eq!(document["findings"]["rows"][0]["change"], "only in a");
    assert_eq!(diff("after4", "default7", &["--by", "finding", "--exit-code"]).status.code(), Some(0));
}

/// The boxes of an image by their tooltip, and the class of each.
fn boxes(image: &str) -> Vec<(String, String)> {
    let parts = image.split("<title>").skip(2);
    let boxes = parts.map(|part| {
        let (title, rest) = part.split_once("</title><rect class=\"").unwrap();
        (title.to_owned(), rest.split('"').next().unwrap().to_owned())
    });
    boxes.collect()
}

#[test]
fn the_flame_graph_shows_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        diff("before1", "after4", &[&["-o", text(&path)], arguments].concat());
        std::fs::read_to_string(&path).unwrap()
    };
    let image = drawn("a.svg", &[]);
    let is_slow = |title: &str| title.starts_with("core.dll!LayoutParagraphs (");
    let found = boxes(&image);
    let red: Vec<_> = found.iter().filter(|(_, class)| class.starts_with('m')).collect();
    assert!(red.iter().any(|(title, _)| is_slow(title)), "{red:?}");
    // Only the function and its callers.
    for (title, _) in &red {
        let expected = ["core.dll!", "writer.exe", "ntdll.dll!", "kernel32.dll!", "all ("];
        assert!(expected.iter().any(|start| title.starts_with(start)), "{title}");
    }
    assert!(!found.iter().any(|(title, class)| is_slow(title) && class.starts_with('l')), "{found:?}");
    assert!(image.contains("data-icicle=\"false\"") && image.contains("widths: time in B"));
    let reversed = drawn("b.svg", &["--reverse", "--icicle"]);
    assert!(reversed.contains("data-icicle=\"true\"") && reversed.contains("widths: time in A"));
    // The width is that of the other trace.
    let width = |image: &str| {
        let group =
            image.split("<g ").find(|group| group.contains("<title>core.dll!LayoutParagraphs (")).unwrap();
        group.split("data-w=\"").nth(1).unwrap().split('"').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(width(&image) > 2 * width(&reversed));
    // A trace and itself.
    let path = folder.path().join("c.svg");
    diff("before1", "before1", &["-o", text(&path)]);
    let same = boxes(&std::fs::read_to_string(&path).unwrap());
    assert!(same.len() > 20 && same.iter().all(|(_, class)| class.starts_with('o')), "{same:?}");
}

#[test]
fn invalid_arguments_are_refused() {
    let trace = DEMOS.trace("before1");
    let trace = text(&trace);
    refused(
        &["diff", trace, trace, "--icicle"],
        "--icicle and --reverse change flame graphs; use -o FILE.svg or --format flamegraph",
    );
    let folder = tempfile::tempdir().unwrap();
    for (name, from) in [("a.etl", "before1"), ("b.etl", "default7")] {
        std::fs::copy(DEMOS.trace(from), folder.path().join(name)).unwrap();
    }
    let several = text(folder.path());
    let sentence = format!(
        "{several}: expected one capture, found 2; name one file of it, or combine them with --merge"
    );
    refused(&["diff", "--separate", several, trace], &sentence);
}
