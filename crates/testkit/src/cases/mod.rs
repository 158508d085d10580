//! The cases of each detection. Each case is a benign stack with one change, so its verdict follows
//! from its construction.

mod changes;
mod code;
mod dispatch;
mod ends;
mod entry;
mod stubs;
mod threads;
mod unbacked;

use super::case_builder::CaseBuilder;

/// Adds all cases.
pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    entry::add_cases(builder);
    stubs::add_cases(builder);
    unbacked::add_cases(builder);
    code::add_cases(builder);
    ends::add_cases(builder);
    dispatch::add_cases(builder);
    threads::add_cases(builder);
    changes::add_cases(builder);
}
