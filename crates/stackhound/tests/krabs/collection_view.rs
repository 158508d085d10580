//! `test_collection_view`: 7 cases. Text and lists are viewed in place.

use stackhound::schema::{Ansi, OwnedValue, Utf16};

use crate::rows::{Rows, builder, check, incomplete};
use crate::schemas::{EVERY_BINARY, EVERY_SHAPE, EVERY_TEXT, store};

pub fn rows() -> Rows {
    let mut store = store();
    let texts = builder(EVERY_TEXT)
        .with("Wide", "this is wide")
        .with("Narrow", "this is narrow")
        .with("CountedWide", "this is counted")
        .with("CountedNarrow", "this too");
    let texts = incomplete(&texts);
    let blob = incomplete(&builder(EVERY_BINARY).with("Blob", vec![1, 2, 3]));
    let numbers = incomplete(&builder(EVERY_SHAPE).with("Numbers", OwnedValue::list([1, 2, 3])));
    let mut plan = |event: &stackhound::testing::OwnedEvent| event.plan(&mut store).expect("a description");
    let (text_plan, blob_plan, number_plan) = (plan(&texts), plan(&blob), plan(&numbers));
    let (text, blob, number) =
        (texts.parser(&text_plan), blob.parser(&blob_plan), numbers.parser(&number_plan));
    let utf16 = |name| text.parse::<Utf16<'_>>(name).expect("UTF-16 text");
    let ansi = |name| text.parse::<Ansi<'_>>(name).expect("8-bit text");
    let printed = utf16("Wide").to_string();
    let units = |text: &str| -> Vec<u16> { text.encode_utf16().collect() };
    let mut names = check([
        ("the units of UTF-16 text", utf16("Wide").units().collect(), units("this is wide")),
        (
            "the units of counted text, without its length",
            utf16("CountedWide").units().collect(),
            units("this is counted"),
        ),
        ("the numbers of a list", number.parse::<Vec<u16>>("Three").expect("numbers"), vec![0; 3]),
    ]);
    names.extend(check([
        ("the bytes of 8-bit text", ansi("Narrow").bytes(), &b"this is narrow"[..]),
        ("the bytes of counted 8-bit text", ansi("CountedNarrow").bytes(), &b"this too"[..]),
        ("the bytes of a binary", blob.parse::<&[u8]>("Blob").expect("bytes"), &[1, 2, 3][..]),
        (
            "the bytes of an array",
            number.bytes("Numbers").expect("bytes"),
            &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0],
        ),
    ]));
    names.extend(check([
        ("UTF-16 text equals text", utf16("Wide") == "this is wide", true),
        ("UTF-16 text prints as text", printed == "this is wide", true),
        ("nothing is copied", texts.payload().as_ptr_range().contains(&utf16("Wide").bytes().as_ptr()), true),
    ]));
    names
}
