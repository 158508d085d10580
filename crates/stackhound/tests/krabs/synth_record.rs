//! `test_synth_record`: 2 cases; `test_parse_types`: 1 case. Built events are copied and moved; a
//! counted text does not extend beyond its length.

use stackhound::schema::Utf16;
use stackhound::testing::OwnedEvent;

use crate::rows::{Rows, builder, check, incomplete};
use crate::schemas::{EVERY_TEXT, POWERSHELL_7937, store};

fn made() -> OwnedEvent {
    incomplete(&builder(POWERSHELL_7937).with("ContextInfo", "Testing"))
}

fn payload_address(event: &OwnedEvent) -> usize {
    event.payload().as_ptr().addr()
}

pub fn rows() -> Rows {
    let first = made();
    let deep = first.deep_copy().expect("a record that was read");
    let copy = first.clone();
    let (at, bytes) = (payload_address(&first), first.payload().to_vec());
    let moved = first;
    let apart = std::thread::spawn(move || copy.payload().len()).join().expect("no panic");
    // Ten bytes of text, followed by letters that do not belong to it.
    let counted = b"\0\0\0\x0a\0A\0B\0C\0D\0E\0!\0!\0!\0!\0";
    let counted = builder(EVERY_TEXT).with_payload(counted).expect("a payload");
    let plan = counted.plan(&mut store()).expect("a description");
    let parser = counted.parser(&plan);
    let text = parser.parse::<Utf16<'_>>("CountedWide").expect("text");
    check([
        ("a deep copy has its own bytes", payload_address(&deep) != at && deep.payload() == bytes, true),
        ("moving does not copy bytes", payload_address(&moved) == at, true),
        // Intentional: immutable bytes need not be copied.
        ("a copy shares the bytes, and may go to another thread", apart == bytes.len(), true),
        ("a counted text ends at its length", text == "ABCDE", true),
        ("its length is not part of the text", text.len() == 5, true),
    ])
}
