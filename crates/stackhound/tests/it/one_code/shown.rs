//! An event as one line of text.

use std::fmt::Write;

use stackhound::EventView;
use stackhound::schema::{Decoder, Field, Item};

/// All facts about an event except UTC times, because a live session measures anew how its clock
/// relates to UTC.
pub fn shown(view: &EventView<'_>) -> String {
    let mut line = format!(
        "{} {:?} {:?} {:?} {:?} {} {} {} {} {} {:?} {:?}",
        view.raw_time().0,
        view.processor(),
        view.pid(),
        view.tid(),
        view.process_name(),
        view.provider(),
        view.name(),
        view.id(),
        view.opcode(),
        view.version(),
        view.create(),
        view.call().map(|call| (call.tid, call.routine, end(call.end.name()))),
    );
    match view.fields() {
        Some(fields) => members(&mut line, fields),
        None => write!(line, " {:?}", view.payload()).unwrap(),
    }
    write!(line, " [{}]", view.state().name()).unwrap();
    for frame in view.frames() {
        write!(line, " {frame}").unwrap();
    }
    line
}

/// How a call ended. A live session can learn of lost records only after the exit whose entry they
/// contained, and then states that nothing was entered.
fn end(name: &'static str) -> &'static str {
    if ["lost", "not-entered"].contains(&name) { "without an entry or exit" } else { name }
}

fn members(line: &mut String, fields: Decoder<'_>) {
    for decoded in fields {
        match decoded {
            Ok(decoded) => {
                write!(line, " {}=", decoded.field.name).unwrap();
                content(line, decoded.field, &decoded.item);
            }
            Err(error) => write!(line, " {error}").unwrap(),
        }
    }
}

fn content(line: &mut String, field: &Field, item: &Item<'_>) {
    match item {
        Item::Value(value) => write!(line, "{}", field.render(*value)).unwrap(),
        Item::Array(array) => array.iter().for_each(|item| content(line, array.field(), &item)),
        Item::Struct(inner) => members(line, inner.clone()),
    }
}
