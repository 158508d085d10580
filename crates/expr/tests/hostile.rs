//! No text can make the crate panic.

use proptest::collection::vec;
use proptest::prelude::*;
use stackhound_expr::{Filter, Value};

/// Parses, writes, compiles and evaluates as far as the text goes.
fn run(source: &str, value: &str) {
    let filter = match Filter::parse(source) {
        Ok(filter) => filter,
        Err(error) => {
            assert!(source.is_char_boundary(error.offset()), "{source:?} {error:?}");
            let rendered = error.render(source);
            assert_eq!(rendered.lines().count(), 3, "{rendered}");
            assert_ne!(error.render(value), "");
            return;
        }
    };
    assert_eq!(Filter::parse(&filter.to_string()).as_ref(), Ok(&filter), "{source:?}");
    // Only a filter of constants has no field.
    if let Err(rejected) = filter.compile(&["pid", "fields.Name"], |_| None::<()>) {
        let rendered = rejected.render(source);
        assert_eq!(rendered.lines().count(), 3, "{rendered}");
    }
    let matcher = filter.compile(&[], |name| Some(name.len())).expect("all names are known");
    let units: Vec<u8> = value.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let same =
        [Value::Text(value), Value::Utf16(&units)].map(|value| matcher.matches(|_, visit| visit(value)));
    assert_eq!(same[0], same[1], "{source:?} {value:?}");
    let sorted = matcher.clone().cheapest_first(|length| *length as u8);
    for value in [
        Value::Text(value),
        Value::Latin1(value.as_bytes()),
        Value::Unsigned(u64::MAX),
        Value::Signed(i64::MIN),
        Value::Float(f64::NAN),
        Value::Bool(false),
    ] {
        let passes = matcher.matches(|_, visit| visit(value));
        assert_eq!(sorted.matches(|_, visit| visit(value)), passes, "{source:?} {value:?}");
    }
}

fn tokens() -> impl Strategy<Value = String> {
    let token = proptest::sample::select(vec![
        "pid",
        "fields.",
        "i",
        "and",
        "or",
        "not",
        "in",
        "iin",
        "icontains",
        "contains",
        "startswith",
        "iendswith",
        "(",
        ")",
        ",",
        "=",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "~",
        "!",
        "'",
        "\"",
        "''",
        "'a b'",
        "\"ä\"",
        "0x10",
        "-1",
        "1.5",
        "true",
        "False",
        "is",
        "hasany",
        "*?",
        "\\",
        " ",
        " ",
        " ",
        "\n",
        "\t",
        "é",
        "\u{0}",
        "“",
    ]);
    vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

/// Valid filters.
fn sentences() -> impl Strategy<Value = String> {
    let word = |words: &[&'static str]| proptest::sample::select(words.to_vec());
    let value = || word(&["1", "0xff", "'it''s'", "*/a?", "true", "-1.5"]);
    let right = || word(&["1", "'x'", "pid", "fields.'a b'", "stack.module", "a/b"]);
    let field = || word(&["pid ", "fields.'a b' ", "\"not\""]);
    let operator =
        word(&["=", "i!=", "<", ">=", "~", "i~", "contains ", "icontains ", "istartswith ", "iendswith "]);
    let comparison = prop_oneof![
        word(&["true", "FALSE "]).prop_map(str::to_owned),
        (field(), word(&["hasany", "HASALL"]), word(&["3", "0xff"]))
            .prop_map(|(field, operator, bits)| format!("{field}{operator} {bits}")),
        (field(), value()).prop_map(|(field, value)| format!("{field}is {value}")),
        (field(), operator, value()).prop_map(|(field, operator, value)| format!("{field}{operator}{value}")),
        (field(), word(&["in", "iin ", "contains", "iendswith "]), vec(right(), 1..4))
            .prop_map(|(field, operator, values)| format!("{field}{operator}({})", values.join(","))),
        (field(), word(&["i~", "~ "]), vec(value(), 1..4))
            .prop_map(|(field, operator, values)| format!("{field}{operator}({})", values.join(","))),
        (field(), word(&["=", "i!=", "< ", "is "]), right())
            .prop_map(|(field, operator, right)| format!("{field}{operator}{right}")),
    ];
    comparison.prop_recursive(4, 20, 3, move |part| {
        prop_oneof![
            part.clone().prop_map(|part| format!("not({part})")),
            part.clone().prop_map(|part| format!("NOT {part}")),
            (part.clone(), word(&[" and ", "\tor\n"]), part)
                .prop_map(|(left, joint, right)| format!("{left}{joint}({right})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text(source: String, value: String) {
        run(&source, &value);
    }

    #[test]
    fn any_tokens(source in tokens(), value: String) {
        run(&source, &value);
    }

    #[test]
    fn any_sentences(source in sentences(), value in "[0-9a-fx.*-]{0,6}") {
        prop_assert!(Filter::parse(&source).is_ok(), "{}", source);
        run(&source, &value);
    }
}
