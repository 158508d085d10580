//! The cases, detection by detection. Each is a good stack of a thread with one thing changed, so that the answer is known
//! before anybody looks.

mod code;
mod dispatch;
mod ends;
mod entry;
mod stubs;
mod threads;
mod unbacked;

use super::book::Book;

/// Writes down all cases.
pub(super) fn tell(book: &mut Book<'_>) {
    entry::tell(book);
    stubs::tell(book);
    unbacked::tell(book);
    code::tell(book);
    ends::tell(book);
    dispatch::tell(book);
    threads::tell(book);
}
