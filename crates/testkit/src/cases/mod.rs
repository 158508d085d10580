//! The cases, detection by detection. Each is a good stack of a thread with one thing changed, so that the answer is known
//! before anybody looks.

mod code;
mod dispatch;
mod ends;
mod entry;
mod stubs;
mod threads;
mod unbacked;

use super::case_builder::CaseBuilder;

/// Writes down all cases.
pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    entry::add_cases(builder);
    stubs::add_cases(builder);
    unbacked::add_cases(builder);
    code::add_cases(builder);
    ends::add_cases(builder);
    dispatch::add_cases(builder);
    threads::add_cases(builder);
}
