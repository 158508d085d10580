//! Every error with its exact message, line and caret.

use stackhound_expr::{Error, Filter, MAX_DEPTH, MAX_LENGTH};

const CANDIDATES: [&str; 3] = ["pid", "tid", "stack.module"];

fn error_of(source: &str) -> Error {
    let compiled = Filter::parse(source)
        .and_then(|filter| filter.compile(&CANDIDATES, |name| CANDIDATES.contains(&name).then_some(())));
    compiled.err().unwrap_or_else(|| panic!("{source:?} is valid"))
}

fn check(source: &str, message: &str, line: &str, caret: &str) {
    assert_eq!(
        error_of(source).render(source),
        format!("error: {message}\n  {line}\n  {caret}"),
        "{source:?}"
    );
}

/// The rendered line is the source itself.
fn check_line(source: &str, caret: &str, message: &str) {
    check(source, message, source, caret);
}

#[test]
fn something_else_was_expected() {
    check_line("pid = and tid = 3", "      ^", "expected a value after `=`");
    check_line("pid =", "     ^", "expected a value after `=`");
    check("pid =  \n", "expected a value after `=`", "pid =", "     ^");
    check_line("pid i= )", "       ^", "expected a value after `i=`");
    check_line("pid i=", "      ^", "expected a value after `i=`");
    check_line("", "^", "expected a field, `not` or `(`");
    check("  ", "expected a field, `not` or `(`", "", "^");
    check_line("= 3", "^", "expected a field, `not` or `(`");
    check_line("or pid = 3", "^", "expected a field, `not` or `(`");
    check_line("pid = 3 and", "           ^", "expected a field, `not` or `(` after `and`");
    check_line("pid = 3 and and tid = 4", "            ^", "expected a field, `not` or `(` after `and`");
    check_line("()", " ^", "expected a field, `not` or `(` after `(`");
    check_line("not", "   ^", "expected a field, `not` or `(` after `not`");
    check_line("pid", "   ^", "expected an operator such as `=` or `contains` after `pid`");
    check_line("pid 3", "    ^", "expected an operator such as `=` or `contains` after `pid`");
    check_line("pid not in (3)", "    ^", "expected an operator such as `=` or `contains` after `pid`");
    check_line("pid i< 3", "    ^", "expected an operator such as `=` or `contains` after `pid`");
    check_line("pid i = 3", "    ^", "expected an operator such as `=` or `contains` after `pid`");
    check_line("a.'b' c.d = 1", "      ^", "expected an operator such as `=` or `contains` after `'b'`");
    check_line("(pid = 3", "        ^", "expected `and`, `or` or `)` after `3`");
    check_line("(pid = 3 tid = 4)", "         ^", "expected `and`, `or` or `)` after `3`");
    check_line("pid = 3)", "       ^", "expected `and`, `or` or the end after `3`");
    check_line("pid = 3 tid = 4", "        ^", "expected `and`, `or` or the end after `3`");
    check_line("pid = 'a'b", "         ^", "expected `and`, `or` or the end after `'a'`");
    check_line("pid in 3", "       ^", "expected `(` after `in`");
    check_line("pid in ()", "        ^", "expected a value after `(`");
    check_line("pid in (1,)", "          ^", "expected a value after `,`");
    check_line("pid in (1 2)", "          ^", "expected `,` or `)` after `1`");
    check_line("true tid", "     ^", "expected an operator such as `=` or `contains` after `true`");
    check_line("pid = 1 or true =", "                 ^", "expected a value after `=`");
    for bits in ["x", "-1", "1.5", "'1'", "18446744073709551616", "("] {
        check_line(
            &format!("pid hasany {bits}"),
            "           ^",
            "expected an integer of at most 64 bits after `hasany`",
        );
    }
    check_line("pid iin (1", "          ^", "expected `,` or `)` after `1`");
}

#[test]
fn characters_and_symbols() {
    check_line("pid = 'abc", "      ^", "text without a closing `'`");
    check_line(r#"pid = "abc'"#, "      ^", "text without a closing `\"`");
    check_line("pid = 'it''", "      ^", "text without a closing `'`");
    check_line("pid == 3", "    ^", "`==` is not part of this language; write `=`");
    check_line("pid i==3", "     ^", "`==` is not part of this language; write `=`");
    check_line("pid <> 3", "    ^", "`<>` is not part of this language; write `!=`");
    check_line("pid =~ x", "    ^", "`=~` is not part of this language; write `~`");
    check_line("pid =< 3", "    ^", "`=<` is not part of this language; write `<=`");
    check_line("pid => 3", "    ^", "`=>` is not part of this language; write `>=`");
    check_line("pid = 3 && tid = 4", "        ^", "`&&` is not part of this language; write `and`");
    check_line("pid = 3 || tid = 4", "        ^", "`||` is not part of this language; write `or`");
    check_line("!(pid = 3)", "^", "`!` is not part of this language; write `not`");
    check_line("pid = “a”", "      ^", "`“` is not part of this language; write `\"`");
    check("pid = \u{1b}[31m", "unexpected character U+001B", "pid = \u{fffd}[31m", "      ^");
    for number in [
        "9".repeat(30),
        "18446744073709551616".into(),
        "-9223372036854775809".into(),
        "0x1".to_owned() + &"0".repeat(16),
    ] {
        let message = "number of more than 64 bits; put it in quotes to compare it as text";
        check_line(&format!("pid = {number}"), "      ^", message);
        check_line(&format!("pid in (1, {number})"), "           ^", message);
    }
}

#[test]
fn unknown_fields() {
    check_line("pid = 3 and pdi = 4", "            ^", "unknown field `pdi`, did you mean `pid`?");
    check_line("Module = x", "^", "unknown field `Module`, did you mean `stack.module`?");
    check_line("not (other = x)", "     ^", "unknown field `other`");
    check_line("stack.\"modulé\" = x", "^", "unknown field `stack.modulé`, did you mean `stack.module`?");
    check_line("'' = x", "^", "unknown field ``");
    check("'\u{1b}' = x", "unknown field `\u{fffd}`", "'\u{fffd}' = x", "^");
}

#[test]
fn text_without_quotes() {
    check_line("pid = svchost.exe", "      ^", "`svchost.exe` is not a field; put text in quotes");
    check_line("pid = 4 or tid i~ a*", "                  ^", "`a*` is not a field; put text in quotes");
    // A pattern is never a field.
    check_line("pid ~ tid", "      ^", "`tid` is not a field; put text in quotes");
    check_line("pid ~ ('x', tid)", "            ^", "`tid` is not a field; put text in quotes");
    check_line(
        "pid in (4, tdi)",
        "           ^",
        "`tdi` is not a field; put text in quotes, did you mean `tid`?",
    );
    check_line("pid != 10.0.0.1", "       ^", "`10.0.0.1` is not a field; put text in quotes");
    check_line("pid = ('a', 'b')", "      ^", "expected a value (lists follow `in`) after `=`");
}

#[test]
fn lines_and_columns() {
    // A column is a character, not a byte.
    check_line(
        "pid = 'äöü' or tid",
        "                  ^",
        "expected an operator such as `=` or `contains` after `tid`",
    );
    check("pid = 3\r\n  and tid =\r\nor", "expected a value after `=`", "or", "^");
    check(
        "pid = 3\r\n  and tid ) 3\r\nor",
        "expected an operator such as `=` or `contains` after `tid`",
        "  and tid ) 3",
        "          ^",
    );
    check("\tpid\t= )", "expected a value after `=`", "\tpid\t= )", "\t   \t  ^");
    // Of a long line, the surroundings are shown.
    let long = format!("pid = '{}' or ) {}", "a".repeat(100), "b".repeat(100));
    check(
        &long,
        "expected a field, `not` or `(` after `or`",
        &format!("…{}' or ) {}…", "a".repeat(55), "b".repeat(38)),
        &format!(" {}^", " ".repeat(60)),
    );
    check(
        &format!("{} 3", "x".repeat(50)),
        &format!("expected an operator such as `=` or `contains` after `{}…`", "x".repeat(40)),
        &format!("{} 3", "x".repeat(50)),
        &format!("{}^", " ".repeat(51)),
    );
}

#[test]
fn offsets_are_bytes() {
    assert_eq!(error_of("pid = 'ä' or )").offset(), 14);
    // A source that is not the one that was parsed is shown as far as it goes.
    assert_eq!(
        error_of("pid = 'ä' or )").render("ä"),
        "error: expected a field, `not` or `(` after `or`\n  ä\n   ^"
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}pid = 1{}", open.repeat(depth), close.repeat(depth))
    };
    for (open, close) in [("(", ")"), ("not ", "")] {
        assert!(Filter::parse(&nested(open, close, MAX_DEPTH)).is_ok());
        let error = Filter::parse(&nested(open, close, MAX_DEPTH + 1)).unwrap_err();
        assert_eq!(error, Error::TooDeep { at: open.len() * MAX_DEPTH });
        assert_eq!(error.to_string(), "nested deeper than 64 levels");
        let hostile = open.repeat(MAX_LENGTH / open.len());
        assert_eq!(Filter::parse(&hostile), Err(error));
    }
    // Only enclosing expressions count for the depth, not adjacent ones.
    let chain = vec!["(not (pid = 1))"; 1000].join(" and ");
    assert!(Filter::parse(&chain).is_ok());
    let chain = vec!["pid=1"; 5000].join(" or ");
    assert_eq!(
        Filter::parse(&chain).map(|filter| Filter::parse(&filter.to_string()) == Ok(filter)),
        Ok(true)
    );
}

#[test]
fn length_is_bounded() {
    let filter = |length: usize| format!("pid = '{}'", "x".repeat(length - 8));
    assert!(Filter::parse(&filter(MAX_LENGTH)).is_ok());
    let source = filter(MAX_LENGTH + 1);
    let error = Filter::parse(&source).unwrap_err();
    assert_eq!(error, Error::TooLong { length: MAX_LENGTH + 1 });
    assert_eq!(
        error.render(&source),
        format!(
            "error: filter of 65537 bytes, at most 65536 are allowed\n  …{}'\n   {}^",
            "x".repeat(60),
            " ".repeat(60)
        )
    );
}
