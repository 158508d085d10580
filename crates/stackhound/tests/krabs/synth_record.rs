//! `test_synth_record`: 2 cases; `test_parse_types`: 1 case. Events that were made are copied and moved; a counted text
//! does not reach beyond its length.

use stackhound::schema::Utf16;
use stackhound::testing::OwnedEvent;

use crate::rows::{Rows, builder, check, incomplete};
use crate::schemas::{EVERY_TEXT, POWERSHELL_7937, store};

fn made() -> OwnedEvent {
    incomplete(&builder(POWERSHELL_7937).with("ContextInfo", "Testing"))
}

fn location(event: &OwnedEvent) -> usize {
    event.payload().as_ptr().addr()
}

pub fn rows() -> Rows {
    let first = made();
    let deep = first.deep_copy().expect("a record that was read");
    let copy = first.clone();
    let (at, bytes) = (location(&first), first.payload().to_vec());
    let moved = first;
    let apart = std::thread::spawn(move || copy.payload().len()).join().expect("no panic");
    // Ten bytes of text, with more letters behind that do not belong to it.
    let counted = b"\0\0\0\x0a\0A\0B\0C\0D\0E\0!\0!\0!\0!\0";
    let counted = builder(EVERY_TEXT).with_payload(counted).expect("a payload");
    let plan = counted.plan(&mut store()).expect("a description");
    let parser = counted.parser(&plan);
    let text = parser.parse::<Utf16<'_>>("CountedWide").expect("text");
    check([
        ("a deep copy has bytes of its own", location(&deep) != at && deep.payload() == bytes, true),
        ("moving moves no bytes", location(&moved) == at, true),
        // On purpose: what can not be changed need not be copied.
        ("a copy shares the bytes, and may go to another thread", apart == bytes.len(), true),
        ("a counted text ends where its length says", text == "ABCDE", true),
        ("its length is none of its letters", text.len() == 5, true),
    ])
}
