//! Reads arbitrary texts as files with macros and rules.

use stackhound_rules::Library;
use stackhound_rules::source::SourceLocation;

/// Separates the file with macros from the file with a rule.
const SEPARATOR: u8 = 0;

/// Reads bytes as a file with macros and a file with a rule. Every location is in one of them.
pub fn rules(bytes: &[u8]) {
    let middle = bytes.iter().position(|byte| *byte == SEPARATOR).unwrap_or(bytes.len());
    let (macros, rule) = (&bytes[..middle], bytes.get(middle + 1..).unwrap_or_default());
    let files = [("macros.yml", macros), ("rule.yml", rule)];
    let library = Library::read(files);
    assert!(library.rules.len() <= 2, "{} rules of two files", library.rules.len());
    let check = |location: &SourceLocation| {
        let Some((_, bytes)) = files.iter().find(|(name, _)| *name == location.file) else {
            // Errors of the YAML reader can have no location.
            assert_eq!(*location, SourceLocation::default());
            return;
        };
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
        assert!(
            (1..=lines).contains(&location.line) && location.column > 0 && location.length > 0,
            "{location:?}"
        );
        assert!(!location.marked().contains(|c: char| c.is_control() && c != '\n'), "{location:?}");
    };
    for error in &library.errors {
        check(&error.location);
    }
    for rule in &library.rules {
        match &rule.condition {
            Ok(condition) => {
                assert_eq!(condition.events.len(), condition.tree.expressions().len());
                assert!(condition.events.iter().all(|names| !names.is_empty()), "{}", rule.text);
            }
            Err(error) => check(&error.location),
        }
    }
    for lint in library.rules.iter().flat_map(|rule| &rule.lints).chain(&library.lints) {
        check(&lint.location);
    }
}

/// Valid files with every kind of expression.
pub(crate) fn files() -> Vec<Vec<u8>> {
    let macros =
        "- macro: spawn\n  expr: evt.name = 'CreateProcess'\n- macro: programs\n  list: [a.exe, b.exe]\n";
    let rule = |condition: &str| {
        let head = "name: R\nid: 1\nversion: 1.0.0\nseverity: high\nmin-engine-version: 3.0.0\n";
        format!("{macros}\0{head}condition: >\n  {condition}\n").into_bytes()
    };
    [
        "spawn and (ps.name iin programs or not ps.exe imatches '?:\\\\Windows\\\\*')",
        "spawn and foreach(thread._callstack, $f, $f.is_unbacked and $f.offset >= 16) and evt.arg[status] = 'Success'",
        "sequence maxspan 1m30s by ps.uuid |spawn| |evt.name = 'LoadModule' and module.size < 4096|",
        "sequence |spawn| as e |evt.name = 'Connect' and ps.pid = $e.ps.pid and net.dip != 10.0.0.1|",
        "spawn and length(concat(ps.name, 'x')) > 2 and cidr_contains(net.dip, '10.0.0.0/8') = true) or",
    ]
    .map(rule)
    .into()
}
