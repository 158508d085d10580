//! The public rules of the corpus: all can be used, and what is known to be suspicious is found.
//! The expected findings were made by hand, by reading the rules.

use std::collections::BTreeSet;

use stackhound_rules::{Library, Need};

/// All files of the corpus with rules: paths and contents.
fn corpus() -> Option<Vec<(String, Vec<u8>)>> {
    let folder = stackhound_corpus::folder()?.join("fibratus-rules");
    let mut files = Vec::new();
    for folder in [folder.clone(), folder.join("macros")] {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.extension().is_some_and(|extension| extension == "yml") {
                let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
                files.push((name, std::fs::read(entry).unwrap()));
            }
        }
    }
    files.sort();
    Some(files)
}

fn read(files: &[(String, Vec<u8>)]) -> Library {
    Library::read(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())))
}

#[test]
fn all_rules_of_the_corpus_can_be_used() {
    let Some(files) = corpus() else { return };
    let library = read(&files);
    assert_eq!(library.errors, []);
    let failed: Vec<_> = library.rules.iter().filter_map(|rule| rule.condition.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(library.rules.len(), 93);
    // Each names its events, and needs those that record them.
    for rule in &library.rules {
        let condition = rule.condition.as_ref().unwrap();
        assert!(condition.needs.iter().any(|need| need <= Need::ThreadPoolEvents), "{}", rule.file);
        assert!(condition.events.iter().flatten().count() > 0, "{}", rule.file);
        let has_stack = condition.needs.has(Need::Stacks);
        assert_eq!(
            has_stack,
            rule.text.contains("callstack")
                || rule.text.contains("move_file")
                || rule.text.contains("direct_syscall"),
            "{}",
            rule.file
        );
    }
    let with =
        |need| library.rules.iter().filter(|rule| rule.condition.as_ref().unwrap().needs.has(need)).count();
    assert_eq!((with(Need::LiveMemory), with(Need::LiveSystem)), (2, 1));
}

#[test]
fn suspicious_rules_of_the_corpus_are_found() {
    let Some(files) = corpus() else { return };
    let library = read(&files);
    let found = |code: &str| -> BTreeSet<&str> {
        let lints = library.rules.iter().flat_map(|rule| rule.lints.iter().map(move |lint| (rule, lint)));
        lints.filter(|(_, lint)| lint.kind.code() == code).map(|(rule, _)| &*rule.head.name).collect()
    };
    assert_eq!(
        found("list-with-value"),
        BTreeSet::from([
            "Executable file creation from a macro-enabled Microsoft Office document",
            "Macro execution via script interpreter",
        ])
    );
    assert_eq!(
        found("never-matches"),
        BTreeSet::from([
            // One of the two above, whose pattern has no folder before the file name.
            "Executable file creation from a macro-enabled Microsoft Office document",
            "Process execution from remote memory section",
        ])
    );
    assert_eq!(found("missing-blank").len(), 8);
    for code in ["ignored-end", "open-macro", "unknown-event", "folder-only"] {
        assert_eq!(found(code), BTreeSet::new(), "{code}");
    }
    let of_macros: Vec<_> = library.lints.iter().map(|lint| lint.kind.code()).collect();
    assert_eq!(of_macros, ["unknown-event", "macro-twice"]);
}

/// Every rule with one more parenthesis at its end can still be used.
#[test]
fn unbalanced_parentheses_are_reported() {
    let Some(mut files) = corpus() else { return };
    for (_, bytes) in &mut files {
        let text = String::from_utf8(bytes.clone()).unwrap();
        if let Some((before, after)) = text.split_once("condition: >\n") {
            let lines: Vec<&str> = after.lines().collect();
            let end = lines.iter().position(|line| !line.is_empty() && !line.starts_with(' ')).unwrap();
            let last = lines[..end].iter().rposition(|line| !line.trim().is_empty()).unwrap();
            let changed = [&lines[..=last], &["  ) and evt.pid = 4"], &lines[last + 1..]].concat().join("\n");
            *bytes = format!("{before}condition: >\n{changed}\n").into_bytes();
        }
    }
    let library = read(&files);
    for rule in &library.rules {
        assert!(rule.condition.is_ok(), "{}: {:?}", rule.file, rule.condition);
        assert!(rule.lints.iter().any(|lint| lint.kind.code() == "ignored-end"), "{}", rule.file);
    }
}
