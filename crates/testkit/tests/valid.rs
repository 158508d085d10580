//! The traces of the cases violate no rule of the validator.

use stackhound_testkit::Kind;
use stackhound_validator::assert_known;

#[test]
fn cases_are_valid() {
    let files = stackhound_testkit::files().unwrap();
    let traces = files.iter().filter(|file| file.kind == Kind::Etl);
    let traces: Vec<_> = traces.map(|file| (file.name.as_str(), file.bytes.clone())).collect();
    assert_known(&traces, &[]);
}
