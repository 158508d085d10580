//! Every operator and function with operands that are there, missing, not known, and known to have
//! no value. The expected answers are made by hand.

use stackhound_rules::evaluate::{Mode, Verdict};

use crate::event::{Data, Datum, Event, answer, library, rule_set, text};

use Datum::{Absent, Decimal, Number, Truth, Unknown};

/// `y`es, `p`ossible, `u`ndetermined or `n`o.
fn decide(condition: &str, fields: &[(&str, Data)], mode: Mode) -> char {
    let library = library(&format!("evt.name = 'CreateFile' and {condition}"));
    let mut set = rule_set(&library, mode);
    let mut event = Event::new("CreateFile");
    for (field, data) in fields {
        event = event.with(field, data.clone());
    }
    match answer(&mut set, &event) {
        Some(Verdict::Yes) => 'y',
        Some(Verdict::Possible) => 'p',
        Some(Verdict::Undetermined) => 'u',
        None => 'n',
    }
}

/// Collects what differs, so that a failure shows all of it.
#[derive(Default)]
struct Checks(Vec<String>);

impl Checks {
    fn check(&mut self, condition: &str, fields: &[(&str, Data)], mode: Mode, expected: char) {
        let found = decide(condition, fields, mode);
        if found != expected {
            self.0.push(format!("{condition} with {fields:?}, {mode:?}: {found}, not {expected}"));
        }
    }

    fn end(self) {
        assert!(self.0.is_empty(), "{} of these differ:\n{}", self.0.len(), self.0.join("\n"));
    }
}

fn words(words: &[&str]) -> Data {
    words.iter().map(|word| text(word)).collect()
}

/// The values that all operators are tried with: of a value that fits and one that does not.
fn operands(fits: &Datum, other: &Datum) -> [(Data, char, char); 8] {
    [
        (vec![fits.clone()], 'y', 'n'),
        (vec![other.clone()], 'n', 'y'),
        (vec![], 'u', 'p'),
        (vec![Unknown], 'u', 'p'),
        (vec![Absent], 'n', 'y'),
        (vec![Unknown, fits.clone()], 'y', 'n'),
        (vec![other.clone(), Unknown], 'u', 'p'),
        (vec![other.clone(), fits.clone()], 'y', 'n'),
    ]
}

/// A field, an operator, its right side, values that fit and do not, and whether zero fits.
type Row = (&'static str, &'static str, &'static str, Datum, Datum, bool);

/// Operators on texts: those that ignore case also fit a text in upper case, the others do not.
fn text_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (operator, right, fits, other, upper) in [
        ("=", "'abc'", "abc", "abcd", "ABC"),
        ("in", "('x', 'abc')", "abc", "ab", "ABC"),
        ("contains", "'bc'", "abcd", "acb", "ABCD"),
        ("contains", "('q', 'bc')", "abcd", "acb", "ABCD"),
        ("startswith", "'ab'", "abc", "xab", "ABC"),
        ("startswith", "('q', 'ab')", "abc", "xab", "ABC"),
        ("endswith", "'bc'", "abc", "bcx", "ABC"),
        ("endswith", "('q', 'bc')", "abc", "bcx", "ABC"),
        ("matches", "'a?c*'", "abcd", "acd", "ABCD"),
        ("matches", "('q', 'a?c*')", "abcd", "acd", "ABCD"),
        ("intersects", "('abc')", "abc", "ab", "ABC"),
        ("fuzzy", "'ace'", "abcde", "aec", "ABCDE"),
        ("fuzzynorm", "'ace'", "àbcdé", "aec", "ÀBCDÉ"),
    ] {
        rows.push(("file.name", operator, right, text(fits), text(other), false));
        rows.push(("file.name", operator, right, text(fits), text(upper), false));
        let ignoring: &str = match operator {
            "=" => "~=",
            operator => format!("i{operator}").leak(),
        };
        rows.push(("file.name", ignoring, right, text(fits), text(other), false));
        rows.push(("file.name", ignoring, right, text(upper), text(other), false));
    }
    for (operator, right, fits, other, zero) in [
        ("<", "'b'", "a", "b", true),
        ("<=", "'b'", "b", "ba", true),
        (">", "'b'", "ba", "b", false),
        (">=", "'b'", "b", "az", false),
        ("=", "''", "", "b", true),
    ] {
        rows.push(("file.name", operator, right, text(fits), text(other), zero));
    }
    rows
}

fn other_rows() -> Vec<Row> {
    let numbers = [
        ("=", "4", 4, 5, false),
        ("=", "0", 0, 5, true),
        ("<", "4", 3, 4, true),
        ("<=", "4", 4, 5, true),
        (">", "4", 5, 4, false),
        (">=", "4", 4, 3, false),
        (">=", "0", 0, -1, true),
        ("in", "(3, 4)", 4, 5, false),
    ];
    let numbers = numbers.map(|(operator, right, fits, other, zero)| {
        ("file.view.size", operator, right, Number(fits), Number(other), zero)
    });
    let truths = [("true", true, false), ("false", false, true)];
    let truths =
        truths.map(|(right, fits, zero)| ("file.is_dll", "=", right, Truth(fits), Truth(!fits), zero));
    let addresses = [
        ("net.dip", "=", "10.0.0.1", text("10.0.0.1"), text("10.0.0.2"), false),
        ("net.dip", "=", "0.0.0.0", text("0.0.0.0"), text("10.0.0.2"), true),
        ("net.dip", "in", "(10.0.0.1, '10.0.0.3')", text("10.0.0.3"), text("10.0.0.2"), false),
    ];
    numbers.into_iter().chain(truths).chain(addresses).collect()
}

#[test]
fn operators() {
    let mut checks = Checks::default();
    for (field, operator, right, fits, other, zero) in text_rows().into_iter().chain(other_rows()) {
        let positive = format!("{field} {operator} {right}");
        let mut negative =
            vec![format!("not ({field} {operator} {right})"), format!("not {field} {operator} {right}")];
        negative.push(format!("{field} not {operator} {right}"));
        if operator == "=" {
            negative.extend([format!("{field} != {right}"), format!("{field} <> {right}")]);
        }
        for (data, expected, of_negation) in operands(&fits, &other) {
            let fields = [(field, data.clone())];
            checks.check(&positive, &fields, Mode::Strict, expected);
            checks.check(&format!("not (not ({positive}))"), &fields, Mode::Strict, expected);
            for condition in &negative {
                checks.check(condition, &fields, Mode::Strict, of_negation);
            }
            let is_zero = [vec![], vec![Unknown], vec![Absent]].contains(&data);
            if data.len() < 2 {
                let holds = if is_zero { zero } else { expected == 'y' };
                checks.check(&positive, &fields, Mode::Compatible, if holds { 'y' } else { 'n' });
                for condition in &negative {
                    checks.check(condition, &fields, Mode::Compatible, if holds { 'n' } else { 'y' });
                }
            }
        }
    }
    checks.end();
}

/// The answers with a field on both sides: known, another, missing, not known, none.
#[test]
fn operators_between_fields() {
    let mut checks = Checks::default();
    let sides: [Data; 5] = [words(&["ab"]), words(&["b"]), vec![], vec![Unknown], vec![Absent]];
    for (operator, table) in [
        ("=", ["ynuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
        ("contains", ["yyuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
        ("startswith", ["ynuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
        ("endswith", ["yyuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
        ("fuzzy", ["yyuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
        ("ifuzzynorm", ["yyuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
        ("<", ["nyuun", "nnuun", "uuuuu", "uuuuu", "nnuun"]),
        // Of no value, the pattern need not be known.
        ("matches", ["ynuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
        ("imatches", ["ynuun", "nyuun", "uuuuu", "uuuuu", "nnuun"]),
    ] {
        for (left, row) in sides.iter().zip(table) {
            for (right, expected) in sides.iter().zip(row.chars()) {
                let fields = [("file.name", left.clone()), ("ps.name", right.clone())];
                checks.check(&format!("file.name {operator} ps.name"), &fields, Mode::Strict, expected);
                let negated = match expected {
                    'y' => 'n',
                    'n' => 'y',
                    _ => 'p',
                };
                checks.check(&format!("file.name not {operator} ps.name"), &fields, Mode::Strict, negated);
                if operator == "=" {
                    checks.check("file.name != ps.name", &fields, Mode::Strict, negated);
                }
            }
        }
    }
    checks.end();
}

#[test]
fn truths_alone() {
    let mut checks = Checks::default();
    for (data, expected, negated) in operands(&Truth(true), &Truth(false)) {
        let fields = [("file.is_dll", data)];
        checks.check("file.is_dll", &fields, Mode::Strict, expected);
        checks.check("not file.is_dll", &fields, Mode::Strict, negated);
        // Fibratus has no `not` for fields.
        checks.check("not file.is_dll", &fields, Mode::Compatible, 'n');
    }
    for (data, expected) in [(vec![Truth(true)], 'y'), (vec![], 'n'), (vec![Unknown], 'n')] {
        checks.check("file.is_dll", &[("file.is_dll", data)], Mode::Compatible, expected);
    }
    checks.end();
}

/// Lists in compatible mode: of no value, no comparison holds, and operators need a list.
#[test]
fn lists_of_compatible_mode() {
    let mut checks = Checks::default();
    for (operator, has_scalar_form) in [
        ("contains", true),
        ("icontains", false),
        ("startswith", false),
        ("istartswith", false),
        ("endswith", false),
        ("iendswith", false),
        ("matches", false),
        ("imatches", false),
        ("intersects", true),
        ("iintersects", true),
    ] {
        let (one, several) = (format!("ps.args {operator} 'ab'"), format!("ps.args {operator} ('ab')"));
        let present = [("ps.args", words(&["x", "ab"]))];
        checks.check(&several, &present, Mode::Compatible, 'y');
        checks.check(&one, &present, Mode::Compatible, if has_scalar_form { 'y' } else { 'n' });
        checks.check(&one, &present, Mode::Strict, 'y');
        for data in [vec![], vec![Unknown], vec![Absent]] {
            let fields = [("ps.args", data)];
            checks.check(&several, &fields, Mode::Compatible, 'n');
            checks.check(&format!("not ({several})"), &fields, Mode::Compatible, 'y');
        }
    }
    for condition in ["ps.args in ('ab')", "ps.args iin ('AB')"] {
        checks.check(condition, &[("ps.args", words(&["x", "ab"]))], Mode::Compatible, 'y');
        checks.check(condition, &[("ps.args", vec![])], Mode::Compatible, 'n');
    }
    checks.end();
}

#[test]
fn all_of_a_list_intersect() {
    let mut checks = Checks::default();
    for (data, expected) in [
        (words(&["a", "b", "c"]), 'y'),
        (words(&["a", "c"]), 'n'),
        (vec![text("a"), Unknown], 'u'),
        (vec![text("a"), text("b"), Unknown], 'y'),
        (vec![Unknown], 'u'),
        (vec![], 'u'),
        (vec![Absent], 'n'),
    ] {
        let fields = [("ps.args", data)];
        checks.check("ps.args intersects ('a', 'b')", &fields, Mode::Strict, expected);
        checks.check("ps.args iintersects ('A', 'B')", &fields, Mode::Strict, expected);
        let negated = match expected {
            'y' => 'n',
            'n' => 'y',
            _ => 'p',
        };
        checks.check("ps.args not intersects ('a', 'b')", &fields, Mode::Strict, negated);
    }
    checks.end();
}

/// `and` and `or` of three values, with a comparison that holds, does not, or is not known.
#[test]
fn connections() {
    let mut checks = Checks::default();
    let parts = [("evt.pid = 7", 'y'), ("evt.pid = 8", 'n'), ("evt.tid = 7", 'u'), ("evt.tid != 7", 'p')];
    for (left, one) in parts {
        for (right, other) in parts {
            let fields = [("evt.pid", vec![Number(7)])];
            // Of two that are not known, only exceptions are possible.
            let rank = |answer| "nupy".find(answer).unwrap();
            let (least, most) = if rank(one) < rank(other) { (one, other) } else { (other, one) };
            checks.check(&format!("({left} and {right})"), &fields, Mode::Strict, least);
            checks.check(&format!("({left} or {right})"), &fields, Mode::Strict, most);
        }
    }
    checks.end();
}

/// A function with its argument in the field, and the value.
#[test]
fn functions_of_values() {
    let mut checks = Checks::default();
    let path = r"C:\Dir\a.b.exe";
    for (call, data, expected) in [
        ("base(file.name)", text(path), "'a.b.exe'"),
        ("base(file.name, false)", text(path), "'a.b'"),
        ("base(file.name, true)", text(path), "'a.b.exe'"),
        ("base(file.name, false)", text(r"C:\.exe"), "'.exe'"),
        ("base(file.name)", text("a.exe"), "'a.exe'"),
        ("dir(file.name)", text(path), r"'C:\\Dir'"),
        ("dir(file.name)", text(r"C:\a.exe"), r"'C:\\'"),
        ("ext(file.name)", text(path), "'.exe'"),
        ("ext(file.name, false)", text(path), "'exe'"),
        ("ext(file.name)", text(r"C:\a"), "''"),
        ("ext(file.name, false)", text(r"C:\a"), "''"),
        ("volume(file.name)", text(path), "'C:'"),
        ("volume(file.name)", text(r"\\host\share\a"), r"'\\\\host\\share'"),
        ("is_abs(file.name)", text(path), "true"),
        ("is_abs(file.name)", text(r"a\b"), "false"),
        ("is_abs(file.name)", text(r"\a"), "false"),
        ("concat('<', file.name, '>', 4)", text("x"), "'<x>4'"),
        ("ltrim(file.name, 'ab')", text("ababc"), "'abc'"),
        ("ltrim(file.name, 'AB')", text("ababc"), "'ababc'"),
        ("rtrim(file.name, 'bc')", text("abcbc"), "'abc'"),
        ("rtrim(file.name, 'BC')", text("abcbc"), "'abcbc'"),
        ("lower(file.name)", text("ABÄ"), "'abä'"),
        ("upper(file.name)", text("abä"), "'ABÄ'"),
        ("replace(file.name, 'a', 'b', 'b', 'c')", text("ab"), "'cc'"),
        ("length(file.name)", text("añb"), "3"),
        ("indexof(file.name, 'b')", text("abab"), "1"),
        ("indexof(file.name, 'b', 'first')", text("abab"), "1"),
        ("indexof(file.name, 'b', 'last')", text("abab"), "3"),
        ("indexof(file.name, 'xb', 'any')", text("abab"), "1"),
        ("indexof(file.name, 'xa', 'lastany')", text("abab"), "2"),
        ("substr(file.name, 1)", text("abcd"), "'bcd'"),
        ("substr(file.name, 1, 3)", text("abcd"), "'bc'"),
        ("substr(file.name, 0, 4)", text("abcd"), "'abcd'"),
        ("substr(file.name, 1, 4)", text("abcd"), "'abcd'"),
        ("substr(file.name, 9)", text("abcd"), "'abcd'"),
        ("substr(file.name, 2, 1)", text("abcd"), "'abcd'"),
        ("entropy(file.name)", text("aabb"), "4"),
        ("entropy(file.name)", text("aaaa"), "0"),
        ("entropy(file.name, 'shannon')", text("abc"), "6"),
        ("md5(file.name)", text("abc"), "'900150983cd24fb0d6963f7d28e17f72'"),
        ("regex(file.name, '^b', 'c$')", text("abc"), "true"),
        ("regex(file.name, '^b', '^c')", text("abc"), "false"),
        ("regex(file.name, '(', 'b')", text("abc"), "true"),
        ("count(file.name, 'A*')", text("ab b ac"), "2"),
        ("count(file.name, 'A*', false)", text("ab b ac"), "0"),
        ("cidr_contains(file.name, '10.0.0.0/8')", text("10.1.2.3"), "true"),
        ("cidr_contains(file.name, 'x', '192.168.0.0/16', '10.0.0.0/31')", text("10.0.0.2"), "false"),
        ("cidr_contains(file.name, '::/0')", text("fe80::1"), "true"),
    ] {
        for mode in [Mode::Strict, Mode::Compatible] {
            let fields = [("file.name", vec![data.clone()])];
            checks.check(&format!("{call} = {expected}"), &fields, mode, 'y');
            checks.check(&format!("{call} != {expected}"), &fields, mode, 'n');
        }
    }
    let fields = [("file.name", words(&["abc"]))];
    checks.check("indexof(file.name, 'x') < 0", &fields, Mode::Strict, 'y');
    checks.check("split(file.name, 'b') = 'a'", &fields, Mode::Strict, 'y');
    checks.check("split(file.name, 'b') = 'c'", &fields, Mode::Strict, 'y');
    checks.check("split(file.name, 'b') in ('b', 'abc')", &fields, Mode::Strict, 'n');
    checks.check("length(split(file.name, 'b')) = 2", &fields, Mode::Strict, 'y');
    checks.end();
}

#[test]
fn functions_of_lists() {
    let mut checks = Checks::default();
    let paths = words(&[r"C:\a\x.dll", r"C:\b\y.exe"]);
    for (condition, expected) in [
        ("base(ps.modules) in ('y.exe')", 'y'),
        ("base(ps.modules, false) in ('x')", 'y'),
        ("base(ps.modules) in ('z.exe')", 'n'),
        (r"dir(ps.modules) in ('C:\\b')", 'y'),
        ("length(ps.modules) = 2", 'y'),
        ("count(ps.modules, '*.DLL') = 1", 'y'),
        ("count(ps.modules, '*.DLL', false) = 0", 'y'),
        ("count(ps.modules, '*') >= 2", 'y'),
    ] {
        for mode in [Mode::Strict, Mode::Compatible] {
            checks.check(condition, &[("ps.modules", paths.clone())], mode, expected);
        }
    }
    for (condition, missing, unknown, absent, zero) in [
        ("length(ps.modules) = 0", 'u', 'u', 'y', 'y'),
        ("length(ps.modules) = 1", 'u', 'u', 'n', 'n'),
        ("count(ps.modules, '*') = 0", 'u', 'u', 'y', 'y'),
        ("base(ps.modules) in ('x.dll')", 'u', 'u', 'n', 'n'),
        ("dir(ps.modules) in ('x.dll')", 'u', 'u', 'n', 'n'),
    ] {
        let with = |data: Data| [("ps.modules", data)];
        checks.check(condition, &with(vec![]), Mode::Strict, missing);
        checks.check(condition, &with(vec![Unknown]), Mode::Strict, unknown);
        checks.check(condition, &with(vec![Absent]), Mode::Strict, absent);
        checks.check(condition, &with(vec![]), Mode::Compatible, zero);
    }
    let partly = [("ps.modules", vec![Unknown, text(r"C:\a\x.dll")])];
    checks.check("base(ps.modules) in ('x.dll')", &partly, Mode::Strict, 'y');
    checks.check("base(ps.modules) in ('y.dll')", &partly, Mode::Strict, 'u');
    checks.check("base(ps.modules) not in ('y.dll')", &partly, Mode::Strict, 'p');
    checks.end();
}

/// Of an argument that is missing or not known, the value is not known; of none, it is none.
#[test]
fn functions_without_values() {
    let mut checks = Checks::default();
    for call in [
        "base(file.name)",
        "dir(file.name)",
        "ext(file.name)",
        "volume(file.name)",
        "lower(file.name)",
        "upper(file.name)",
        "ltrim(file.name, 'a')",
        "rtrim(file.name, 'a')",
        "replace(file.name, 'a', 'b')",
        "substr(file.name, 1)",
        "md5(file.name)",
        "concat('a', file.name)",
        "concat(file.name, 'a')",
        "split(file.name, ',')",
    ] {
        for (data, expected, negated) in
            [(vec![], 'u', 'p'), (vec![Unknown], 'u', 'p'), (vec![Absent], 'n', 'y')]
        {
            let fields = [("file.name", data)];
            checks.check(&format!("{call} = 'other'"), &fields, Mode::Strict, expected);
            checks.check(&format!("{call} != 'other'"), &fields, Mode::Strict, negated);
            checks.check(
                &format!("ps.name = {call}"),
                &[fields[0].clone(), ("ps.name", words(&["x"]))],
                Mode::Strict,
                expected,
            );
            checks.check(
                &format!("ps.name imatches {call}"),
                &[fields[0].clone(), ("ps.name", words(&["x"]))],
                Mode::Strict,
                expected,
            );
        }
    }
    for call in
        ["length(file.name)", "indexof(file.name, 'a')", "entropy(file.name)", "count(file.name, '*')"]
    {
        for data in [vec![], vec![Unknown]] {
            let fields = [("file.name", data)];
            checks.check(&format!("{call} = 99"), &fields, Mode::Strict, 'u');
            checks.check(&format!("{call} != 99"), &fields, Mode::Strict, 'p');
        }
    }
    for call in ["is_abs(file.name)", "regex(file.name, 'a')", "cidr_contains(file.name, '10.0.0.0/8')"] {
        for (data, expected, negated) in
            [(vec![], 'u', 'p'), (vec![Unknown], 'u', 'p'), (vec![Absent], 'n', 'y')]
        {
            let fields = [("file.name", data)];
            checks.check(call, &fields, Mode::Strict, expected);
            checks.check(&format!("not {call}"), &fields, Mode::Strict, negated);
        }
    }
    // What a trace cannot answer.
    for call in [
        "is_minidump('a')",
        "symlink('a') = 'b'",
        "glob('a') in ('b')",
        "get_reg_value('a') = 'b'",
        "yara('a', 'b')",
    ] {
        checks.check(call, &[], Mode::Strict, 'u');
        checks.check(&format!("not ({call})"), &[], Mode::Strict, 'p');
    }
    checks.end();
}

/// Of a missing field, functions see zero in compatible mode.
#[test]
fn functions_of_zero() {
    let mut checks = Checks::default();
    for condition in [
        "length(file.name) = 0",
        "concat('a', file.name) = 'a'",
        "lower(file.name) = ''",
        "ltrim(file.name, 'a') = ''",
        "indexof(file.name, 'a') < 0",
        "not (regex(file.name, 'a'))",
        "not (is_abs(file.name))",
        "not (cidr_contains(net.dip, '10.0.0.0/8'))",
        "cidr_contains(net.dip, '0.0.0.0/8')",
        "ext(file.name) = ''",
        "count(file.name, '*') = 0",
    ] {
        checks.check(condition, &[], Mode::Compatible, 'y');
        checks.check(
            condition,
            &[("file.name", vec![Unknown]), ("net.dip", vec![Unknown])],
            Mode::Compatible,
            'y',
        );
        checks.check(
            condition,
            &[("file.name", vec![Absent]), ("net.dip", vec![Absent])],
            Mode::Compatible,
            'y',
        );
    }
    checks.end();
}

/// Numbers of other kinds.
#[test]
fn numbers() {
    let mut checks = Checks::default();
    for (condition, field, data, expected) in [
        ("file.view.size = 4", "file.view.size", Decimal(4.0), 'y'),
        ("file.view.size > 4", "file.view.size", Decimal(4.5), 'y'),
        ("file.view.size > 4.25", "file.view.size", Number(4), 'n'),
        ("file.view.size > 4.25", "file.view.size", Number(5), 'y'),
        ("file.view.size in ('4')", "file.view.size", Number(4), 'y'),
        ("evt.arg[status] = 'Success'", "evt.arg[status]", text("Success"), 'y'),
        ("evt.arg[pid] = 4", "evt.arg[pid]", Number(4), 'y'),
        ("evt.arg[pid] = evt.arg[status]", "evt.arg[pid]", Number(4), 'u'),
        ("file.view.size > 18446744073709551614", "file.view.size", Number(4), 'n'),
    ] {
        checks.check(condition, &[(field, vec![data])], Mode::Strict, expected);
    }
    checks.end();
}

/// Exceptions in `foreach` are exceptions as elsewhere, and negated twice they are none.
#[test]
fn exceptions_about_elements() {
    for (condition, expected) in [
        ("foreach(thread._callstack, $f, $f.module = 'a' and $f.symbol != 'b')", Verdict::Possible),
        ("foreach(thread._callstack, $f, $f.module = 'a' and $f.symbol not imatches 'b')", Verdict::Possible),
        ("foreach(thread._callstack, $f, $f.module = 'a' and $f.symbol = 'b')", Verdict::Undetermined),
        ("not foreach(thread._callstack, $f, $f.module = 'a' and $f.symbol = 'b')", Verdict::Possible),
        ("not foreach(thread._callstack, $f, $f.module = 'a' and $f.symbol != 'b')", Verdict::Undetermined),
    ] {
        let library = library(&format!("evt.name = 'CreateFile' and {condition}"));
        let mut event = Event::new("CreateFile");
        let element = [("module".to_owned(), words(&["a"]))].into();
        let list = crate::event::List { elements: vec![element], is_complete: true };
        event.lists.insert("thread._callstack".to_owned(), list);
        let found = answer(&mut rule_set(&library, Mode::Strict), &event);
        assert_eq!(found, Some(expected), "{condition}");
    }
}

/// `foreach` with elements that are known or not, and more that are not known.
#[test]
fn elements() {
    let list = |symbols: &[Option<&str>], is_complete| {
        let element = |symbol: &Option<&str>| {
            let data: Data = symbol.iter().map(|symbol| text(symbol)).collect();
            [("symbol".to_owned(), data)].into()
        };
        crate::event::List { elements: symbols.iter().map(element).collect(), is_complete }
    };
    let (hit, other) = (Some("a!b"), Some("c!d"));
    for (list, expected, negated, compatible) in [
        (list(&[hit], true), 'y', 'n', 'y'),
        (list(&[hit], false), 'y', 'n', 'y'),
        (list(&[other, hit], false), 'y', 'n', 'y'),
        (list(&[other], true), 'n', 'y', 'n'),
        (list(&[other], false), 'u', 'p', 'n'),
        (list(&[], true), 'n', 'y', 'n'),
        (list(&[], false), 'u', 'p', 'n'),
        (list(&[None], true), 'u', 'p', 'n'),
        (list(&[None, hit], true), 'y', 'n', 'y'),
        (list(&[None, other], true), 'u', 'p', 'n'),
    ] {
        let not = |answer| if answer == 'y' { 'n' } else { 'y' };
        for (mode, call, expected) in [
            (Mode::Strict, "", expected),
            (Mode::Strict, "not ", negated),
            (Mode::Compatible, "", compatible),
            (Mode::Compatible, "not ", not(compatible)),
        ] {
            let condition = format!(
                "evt.name = 'CreateFile' and {call}foreach(thread._callstack, $f, $f.symbol imatches 'A!*')"
            );
            let library = library(&condition);
            let mut event = Event::new("CreateFile");
            event.lists.insert("thread._callstack".to_owned(), list.clone());
            let found = match answer(&mut rule_set(&library, mode), &event) {
                Some(Verdict::Yes) => 'y',
                Some(Verdict::Possible) => 'p',
                Some(Verdict::Undetermined) => 'u',
                None => 'n',
            };
            assert_eq!(found, expected, "{condition} with {list:?}, {mode:?}");
        }
    }
    let mut checks = Checks::default();
    for (data, expected, negated) in [
        (words(&["x", "ab"]), 'y', 'n'),
        (words(&["x"]), 'n', 'y'),
        (vec![text("x"), Unknown], 'u', 'p'),
        (vec![text("ab"), Unknown], 'y', 'n'),
        (vec![], 'u', 'p'),
        (vec![Absent], 'n', 'y'),
    ] {
        let fields = [("ps.args", data)];
        checks.check("foreach(ps.args, $a, $a = 'ab')", &fields, Mode::Strict, expected);
        checks.check("not foreach(ps.args, $a, $a = 'ab')", &fields, Mode::Strict, negated);
    }
    checks.end();
}
