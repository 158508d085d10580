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
    let rejected = filter.compile(&["pid", "fields.Name"], |_| None::<()>).map(|_| ());
    let rendered = rejected.expect_err("every filter has a field").render(source);
    assert_eq!(rendered.lines().count(), 3, "{rendered}");
    let matcher = filter.compile(&[], |name| Some(name.len())).expect("all names are known");
    for value in [
        Value::Text(value),
        Value::Unsigned(u64::MAX),
        Value::Signed(i64::MIN),
        Value::Float(f64::NAN),
        Value::Bool(false),
    ] {
        matcher.matches(|_, visit| visit(value));
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
    let value = || word(&["1", "0xff", "'it''s'", "*a?", "true", "-1.5"]);
    let field = || word(&["pid ", "fields.'a b' ", "\"not\""]);
    let operator =
        word(&["=", "i!=", "<", ">=", "~", "i~", "contains ", "icontains ", "istartswith ", "iendswith "]);
    let comparison = prop_oneof![
        (field(), operator, value()).prop_map(|(field, operator, value)| format!("{field}{operator}{value}")),
        (field(), word(&["in", "iin "]), vec(value(), 1..4))
            .prop_map(|(field, operator, values)| format!("{field}{operator}({})", values.join(","))),
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
