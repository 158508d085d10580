//! Tables of known violations.

use crate::{Rule, validate};

/// Known violations of some files.
#[derive(Clone, Copy, Debug)]
pub struct KnownViolation {
    /// Names of the files.
    pub files: &'static [&'static str],
    /// The rules that each of them violates.
    pub rules: &'static [Rule],
    /// Reason for the violations.
    pub reason: &'static str,
}

/// Checks files, given by name, against a table. A file can be in several rows.
///
/// # Panics
/// If a file violates a rule that no row lists for it, or does not violate a listed rule; if a row
/// contains the name of a missing file; or if two rows list the same rule for a file.
pub fn assert_known(files: &[(&str, Vec<u8>)], table: &[KnownViolation]) {
    let mut wrong = Vec::new();
    for (name, bytes) in files {
        let rows = table.iter().filter(|row| row.files.contains(name));
        let expected: Vec<Rule> = rows.flat_map(|row| row.rules).copied().collect();
        let twice = (1..expected.len()).filter(|at| expected[..*at].contains(&expected[*at]));
        wrong.extend(twice.map(|at| format!("{name}: listed twice: {}\n", expected[at])));
        wrong.extend(validate(bytes).differences(&expected).iter().map(|line| format!("{name}: {line}\n")));
    }
    for name in table.iter().flat_map(|row| row.files) {
        if !files.iter().any(|(file, _)| file == name) {
            wrong.push(format!("{name}: listed, but the file does not exist\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(table: &[KnownViolation]) -> String {
        let files = [("empty", Vec::new()), ("short", vec![0; 8])];
        match std::panic::catch_unwind(|| assert_known(&files, table)) {
            Ok(()) => String::new(),
            Err(panic) => *panic.downcast::<String>().expect("a message"),
        }
    }

    const BOTH: KnownViolation =
        KnownViolation { files: &["empty", "short"], rules: &[Rule::F01], reason: "no buffer" };
    const SHORT: KnownViolation = KnownViolation { files: &["short"], rules: &[Rule::F02], reason: "bytes" };

    #[test]
    fn tables_must_match_the_violations_exactly() {
        assert_eq!(message(&[BOTH, SHORT]), "");
        assert!(message(&[BOTH]).contains("short: F02: "));
        let empty = KnownViolation { files: &["empty"], ..SHORT };
        assert!(message(&[BOTH, SHORT, empty]).contains("empty: F02: "));
        assert!(message(&[BOTH, SHORT, SHORT]).contains("short: listed twice: F02"));
        let missing = KnownViolation { files: &["missing"], ..SHORT };
        assert!(message(&[BOTH, SHORT, missing]).contains("missing: listed"));
    }
}
