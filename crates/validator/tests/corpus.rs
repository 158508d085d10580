//! Traces written by Windows violate no rule.

use stackhound_validator::{Rule, validate};

#[test]
fn traces_of_windows_violate_no_rule() {
    let mut checked = Vec::new();
    let trace_files = stackhound_corpus::trace_files();
    for (name, _) in &trace_files {
        let report = validate(&stackhound_corpus::etl_file(name).expect("a trace"));
        assert_eq!(report.differences(&[]), [""; 0], "{name}");
        checked.extend(report.tallies.into_keys());
    }
    let unchecked = Rule::ALL.iter().filter(|rule| !checked.contains(rule));
    // Without the corpus, which is reported elsewhere, nothing is checked.
    assert!(trace_files.is_empty() || unchecked.count() == 0, "the traces do not cover every rule");
}
