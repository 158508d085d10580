//! Traces that Windows wrote violate nothing.

use stackhound_validator::{Rule, validate};

#[test]
fn traces_of_windows_violate_nothing() {
    let mut checked = Vec::new();
    let recordings = stackhound_corpus::recordings();
    for (name, _) in &recordings {
        let report = validate(&stackhound_corpus::recording(name).expect("a recording"));
        assert_eq!(report.differences(&[]), [""; 0], "{name}");
        checked.extend(report.tallies.into_keys());
    }
    let unchecked = Rule::ALL.iter().filter(|rule| !checked.contains(rule));
    // Where the corpus is missing, which was said then, nothing is checked.
    assert!(recordings.is_empty() || unchecked.count() == 0, "the traces do not call for every rule");
}
