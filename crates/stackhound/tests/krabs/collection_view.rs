//! `test_collection_view`: 7 cases. Text and lists are looked at where they lie.

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
    let wide = |name| text.parse::<Utf16<'_>>(name).expect("wide text");
    let narrow = |name| text.parse::<Ansi<'_>>(name).expect("narrow text");
    let units = |text: &str| -> Vec<u16> { text.encode_utf16().collect() };
    let mut names = check([
        ("the units of wide text", wide("Wide").units().collect(), units("this is wide")),
        (
            "the units of counted text, without its length",
            wide("CountedWide").units().collect(),
            units("this is counted"),
        ),
        ("the numbers of a list", number.parse::<Vec<u16>>("Three").expect("numbers"), vec![0; 3]),
    ]);
    names.extend(check([
        ("the bytes of narrow text", narrow("Narrow").bytes(), &b"this is narrow"[..]),
        ("the bytes of counted narrow text", narrow("CountedNarrow").bytes(), &b"this too"[..]),
        ("the bytes of a binary", blob.parse::<&[u8]>("Blob").expect("bytes"), &[1, 2, 3][..]),
        (
            "the bytes of an array",
            number.bytes("Numbers").expect("bytes"),
            &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0],
        ),
    ]));
    names.extend(check([
        ("wide text equals text", wide("Wide") == "this is wide", true),
        ("wide text prints as text", wide("Wide").to_string() == "this is wide", true),
        ("nothing is copied", texts.payload().as_ptr_range().contains(&wide("Wide").bytes().as_ptr()), true),
    ]));
    names
}
