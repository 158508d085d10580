//! `describe_UnicodeString` and `describe_AnsiString`: 19 cases each. Comparisons of text give the
//! same results for UTF-16 and 8-bit properties.

use stackhound::{Filter, pred};

use crate::filter::check;
use crate::rows::{Rows, builder, incomplete};
use crate::schemas::{Kind, POWERSHELL_7937, WININET_1057};

/// The name of a case, the value of the property, the comparison, its operand, and the expected
/// result.
type Case = (&'static str, &'static str, fn(pred::Property, &str) -> Filter, &'static str, bool);

const CASES: [Case; 21] = [
    ("is: the same", "Apple", |text, other| text.is(other), "Apple", true),
    ("is: another", "Apple", |text, other| text.is(other), "Pear", false),
    ("is: another case", "Apple", |text, other| text.is(other), "APPLE", false),
    ("iequals: another case", "Apple", |text, other| text.iequals(other), "APPLE", true),
    ("iequals: another", "Apple", |text, other| text.iequals(other), "Pear", false),
    ("contains: within", "Apple pie now", |text, other| text.contains(other), "pie", true),
    ("contains: not within", "Apple pie now", |text, other| text.contains(other), "cake", false),
    ("contains: another case", "Apple pie now", |text, other| text.contains(other), "PIE", false),
    ("icontains: within", "Apple pie now", |text, other| text.icontains(other), "pie", true),
    ("icontains: another case", "Apple pie now", |text, other| text.icontains(other), "PIE", true),
    ("icontains: not within", "Apple pie now", |text, other| text.icontains(other), "cake", false),
    ("starts with: its start", "Apple pie now", |text, other| text.starts_with(other), "Apple", true),
    ("starts with: its middle", "Apple pie now", |text, other| text.starts_with(other), "pie", false),
    ("starts with: not within", "Apple pie now", |text, other| text.starts_with(other), "cake", false),
    ("starts with: another case", "Apple pie now", |text, other| text.starts_with(other), "APPLE", false),
    ("istarts with: its start", "Apple pie now", |text, other| text.istarts_with(other), "Apple", true),
    ("istarts with: another case", "Apple pie now", |text, other| text.istarts_with(other), "APPLE", true),
    ("istarts with: its middle", "Apple pie now", |text, other| text.istarts_with(other), "pie", false),
    ("istarts with: not within", "Apple pie now", |text, other| text.istarts_with(other), "cake", false),
    ("ends with: its end", "Apple pie now", |text, other| text.ends_with(other), "now", true),
    ("iends with: another case", "Apple pie now", |text, other| text.iends_with(other), "NOW", true),
];

fn rows_of(kind: Kind, name: &str) -> Rows {
    let rows = CASES.map(|(case, held, comparison, other, expected)| {
        let event = incomplete(&builder(kind).with(name, held));
        check(&event, vec![(case, comparison(pred::property(name), other), expected)])
    });
    rows.concat()
}

pub fn utf16_rows() -> Rows {
    rows_of(POWERSHELL_7937, "UserData")
}

pub fn ansi_rows() -> Rows {
    rows_of(WININET_1057, "Verb")
}
