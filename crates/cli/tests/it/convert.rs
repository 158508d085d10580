//! `convert`: smaller traces.

use std::path::Path;

use crate::demonstration::{demo, run};
use crate::program::refused;

/// The standard output of a command in a folder, without the parts that name the input file.
fn shown(folder: &Path, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = run(folder, &words);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let without_input = |line: &str| match (line.find("\"input\":{"), line) {
        (Some(start), line) => {
            let end = start + line[start..].find('}').unwrap();
            format!("{}{}", &line[..start], &line[end..])
        }
        (None, line) => line.to_owned(),
    };
    text.lines().filter(|line| !line.contains("EventTrace/Header")).map(without_input).collect()
}

#[test]
fn a_smaller_trace_gives_the_same_answers() {
    let folder = demo();
    for filter in
        ["--from +0.1s --to +0.2s", "--process browser.exe", "--event FileIo/* --event Thread/Start"]
    {
        let converted = run(
            folder.path(),
            &format!("convert stackhound-demo.etl -o part.etl {filter}").split(' ').collect::<Vec<_>>(),
        );
        let said = String::from_utf8(converted.stderr).unwrap();
        assert!(converted.status.success() && converted.stdout.is_empty(), "{said}");
        for verb in ["events -q --stacks --format ndjson", "hunt -q --all --exit-zero --format ndjson"] {
            let [whole, part] = ["stackhound-demo", "part"]
                .map(|name| shown(folder.path(), &format!("{verb} {name}.etl {filter}")));
            assert!(whole.len() > 100, "{verb} {filter}");
            assert_eq!(whole.len(), part.len(), "{verb} {filter}");
            for (whole, part) in whole.iter().zip(&part) {
                assert_eq!(part, whole, "{verb} {filter}");
            }
            if verb.starts_with("events") {
                let kept = format!("{} of ", stackhound_export::numbers::grouped(whole.len() as u64));
                assert!(
                    said.lines().any(|line| line.starts_with(&kept) && line.contains(" kept, ")),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn the_input_is_never_replaced_and_unknown_forms_are_refused() {
    let folder = demo();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (demo, copy) = (path("stackhound-demo.etl"), path("copy.etl"));
    let size = std::fs::metadata(&demo).unwrap().len();
    refused(&["convert", &demo, "-o", &demo], &format!("{demo}: expected another file than the input"));
    assert_eq!(std::fs::metadata(&demo).unwrap().len(), size);
    let unknown = path("part.txt");
    refused(
        &["convert", &demo, "-o", &unknown],
        &format!(
            "{unknown}: cannot derive the form from the file name; use one of the extensions .etl, .pcapng"
        ),
    );
    std::fs::copy(&demo, &copy).unwrap();
    let output =
        run(folder.path(), &["convert", "stackhound-demo.etl", "copy.etl", "-o", "both.etl", "--merge"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("several sessions of the trace have stack keys"), "{said}");
    assert_eq!(output.status.code(), Some(2));
    assert!(!folder.path().join("both.etl").exists());
}
