//! `describe_Predicate`: 12 cases: each combination, written as an operator and as a function.

use stackhound::pred::{all_of, any_of, none_of, property};

use crate::filter::check;
use crate::rows::{Rows, builder, incomplete};
use crate::schemas::POWERSHELL_7937;

pub fn rows() -> Rows {
    let event = incomplete(&builder(POWERSHELL_7937).with("UserData", "Apple"));
    let yes = || property("UserData").is("Apple");
    let no = || property("UserData").is("Pear");
    check(
        &event,
        vec![
            ("&: both hold", yes() & yes(), true),
            ("&: one holds", yes() & no(), false),
            ("all of: both hold", all_of([yes(), yes()]), true),
            ("all of: one holds", all_of([yes(), no()]), false),
            ("|: both hold", yes() | yes(), true),
            ("|: one holds", yes() | no(), true),
            ("|: neither holds", no() | no(), false),
            ("any of: both hold", any_of([yes(), yes()]), true),
            ("any of: one holds", any_of([yes(), no()]), true),
            ("any of: neither holds", any_of([no(), no()]), false),
            ("!: of a false predicate", !no(), true),
            ("!: of a true predicate", !yes(), false),
            ("none of: a false predicate", none_of([no()]), true),
        ],
    )
}
