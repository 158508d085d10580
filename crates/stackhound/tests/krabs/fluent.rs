//! `describe_Fluent`: 2 cases. Numbers in predicates.

use stackhound::{EventFilter, Filter, pred};

use crate::rows::{Rows, builder, check, incomplete, read};
use crate::schemas::{LSA, LSA_301};

fn matches(given: u32, filter: Filter) -> bool {
    let event = incomplete(&builder(LSA_301).with("TargetUserName", "").with("LogonType", given));
    let filter = EventFilter::new(filter);
    read(LSA, &event, move |view| filter.wants(view))
}

pub fn rows() -> Rows {
    let logon_type = || pred::property("LogonType");
    check([
        ("the same number", matches(5, logon_type().is(5)), true),
        ("another number", matches(0, logon_type().is(1)), false),
        ("another number, negated", matches(0, !logon_type().is(1)), true),
        ("a missing property", matches(0, pred::property("Logon").is(0)), false),
    ])
}
