//! Traces that Windows wrote violate nothing.

use stackhound_validator::{Rule, validate};

#[test]
fn traces_of_windows_violate_nothing() {
    let mut checked = Vec::new();
    let trace_files = stackhound_corpus::trace_files();
    for (name, _) in &trace_files {
        let report = validate(&stackhound_corpus::etl_file(name).expect("a recording"));
        assert_eq!(report.differences(&[]), [""; 0], "{name}");
        checked.extend(report.tallies.into_keys());
    }
    let unchecked = Rule::ALL.iter().filter(|rule| !checked.contains(rule));
    // Where the corpus is missing, which was said then, nothing is checked.
    assert!(trace_files.is_empty() || unchecked.count() == 0, "the traces do not call for every rule");
}
