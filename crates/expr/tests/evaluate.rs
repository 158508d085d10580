//! Evaluates filters on one event that has a field of every kind.

use std::cell::Cell;
use std::ops::ControlFlow;

use stackhound_expr::{Filter, Value, Visitor};

const FIELDS: [(&str, &[Value<'static>]); 29] = [
    ("pid", &[Value::Unsigned(16)]),
    ("big", &[Value::Unsigned(u64::MAX)]),
    ("offset", &[Value::Signed(-8)]),
    ("ratio", &[Value::Float(0.5)]),
    ("nan", &[Value::Float(f64::NAN)]),
    ("flag", &[Value::Bool(true)]),
    ("event", &[Value::Text("Process/Start")]),
    ("path", &[Value::Text(r"C:\Windows\System32\ntdll.dll")]),
    ("address", &[Value::Text("0xfffff80000000010")]),
    ("digits", &[Value::Text("0016")]),
    ("version", &[Value::Text("10.0.19041")]),
    ("time", &[Value::Text("2024-05-01T10:00:00Z")]),
    ("word", &[Value::Text("True")]),
    ("name", &[Value::Text("Größe*Straße")]),
    ("empty", &[Value::Text("")]),
    ("modules", &[Value::Text("ntdll.dll"), Value::Text("KERNEL32.DLL"), Value::Text("app.exe")]),
    ("missing", &[]),
    ("partly", &[Value::Text("known.dll"), Value::Unknown]),
    ("utf16", &[Value::Utf16(b"Z\0o\0\xeb\0.\0e\0x\0e\0")]),
    ("latin1", &[Value::Latin1(b"Zo\xeb.exe")]),
    ("wide.digits", &[Value::Utf16(b"0\0x\x001\x000\0")]),
    ("odd", &[Value::Utf16(b"a\0b\0\xff")]),
    ("mask", &[Value::Unsigned(0x8000_0000_0000_0030)]),
    ("owner", &[Value::Unsigned(16), Value::Text("0x10")]),
    ("image", &[Value::Utf16(b"N\0t\0D\0l\0L\0.\0d\0l\0l\0")]),
    // Numbers with names, whose order is not that of the names.
    ("low", &[Value::Unsigned(1), Value::Text("Zeta")]),
    ("high", &[Value::Unsigned(2), Value::Text("Alpha")]),
    ("some", &[Value::Text("kernel32.dll"), Value::Text("ntdll.dll")]),
    ("neither", &[Value::Unknown]),
];

fn matches(source: &str) -> bool {
    decide(source) == Some(true)
}

/// The answer; `None` if it is unknown.
fn decide(source: &str) -> Option<bool> {
    let known = FIELDS.map(|(name, _)| name);
    let filter = Filter::parse(source).unwrap_or_else(|error| panic!("{}", error.render(source)));
    let matcher = filter
        .compile(&known, |name| known.iter().position(|known| *known == name))
        .unwrap_or_else(|error| panic!("{}", error.render(source)));
    let passes = matcher.decide(|field, visit| FIELDS[*field].1.iter().try_for_each(|value| visit(*value)));
    // A lookup that ignores the request to stop gets the same answer.
    let stubborn = matcher.decide(|field, visit| {
        for value in FIELDS[*field].1 {
            let _ = visit(*value);
        }
        ControlFlow::Continue(())
    });
    assert_eq!(passes, stubborn, "{source}");
    let lookup =
        |field: &usize, visit: &mut Visitor<'_>| FIELDS[*field].1.iter().try_for_each(|value| visit(*value));
    let undecided = matcher.undecided_fields(lookup);
    assert_eq!(undecided.is_empty(), passes.is_ok(), "{source}: {undecided:?}");
    // Only what is not known can change the answer, and is stated once for each comparison.
    for field in undecided {
        let values = FIELDS[matcher.fields()[field]].1;
        assert!(values.is_empty() || values.contains(&Value::Unknown), "{source}: {values:?}");
    }
    passes.ok()
}

fn check(rows: &[(&str, bool)]) {
    for (source, expected) in rows {
        assert_eq!(matches(source), *expected, "{source}");
    }
}

#[test]
fn numbers_with_numbers() {
    check(&[
        ("pid = 16", true),
        ("pid = 0x10", true),
        ("pid = 16.0", true),
        ("pid i= 16", true),
        ("pid = 17", false),
        ("pid != 16", false),
        ("pid != 17", true),
        ("pid < 17", true),
        ("pid < 16", false),
        ("pid <= 16", true),
        ("pid > 15.5", true),
        ("pid > 16", false),
        ("pid >= 16", true),
        ("pid > -1", true),
        ("pid in (1, 0x10)", true),
        ("pid in (1, 2)", false),
        ("big = 18446744073709551615", true),
        ("big = 0xffffffffffffffff", true),
        ("big = -1", false),
        ("big < 18446744073709551616.0", true),
        ("big > -1", true),
        ("offset = -8", true),
        ("offset < 0", true),
        ("offset < 0xffffffffffffffff", true),
        ("offset >= -0x8", true),
        ("ratio = 0.5", true),
        ("ratio < 1", true),
        ("ratio > 0", true),
        ("nan = 0", false),
        ("nan != 0", true),
        ("nan < 0", false),
        ("nan >= 0", false),
    ]);
}

#[test]
fn truth_values() {
    check(&[
        ("flag = true", true),
        ("flag = TRUE", true),
        ("flag = false", false),
        ("flag != false", true),
        ("flag = 1", true),
        ("flag = 0", false),
        ("flag = 'true'", true),
        ("flag = 'True'", false),
        ("flag i= 'True'", true),
        ("flag = '1'", false),
        ("word = True", true),
        ("word = true", false),
        ("word i= true", true),
        ("not flag = true", false),
    ]);
}

#[test]
fn numbers_with_text() {
    check(&[
        ("pid = '16'", true),
        ("pid i= '16'", true),
        ("pid in ('x', '16')", true),
        ("pid = '0x10'", false),
        ("pid = '016'", false),
        ("pid = ''", false),
        ("pid != '17'", true),
        ("pid != '16'", false),
        ("pid < 'x'", false),
        ("pid > 'x'", false),
        ("pid > '1'", false),
        ("pid ~ '*'", false),
        ("pid contains 1", false),
        ("pid startswith 1", false),
        ("pid iendswith 6", false),
        ("offset = '-8'", true),
        ("ratio = '0.5'", true),
        ("nan i= 'nan'", true),
    ]);
}

#[test]
fn text_with_numbers() {
    check(&[
        ("address = 0xFFFFF80000000010", true),
        ("address = 18446735277616529424", true),
        ("address >= 0xfffff80000000000", true),
        ("address < 0xfffff80000000000", false),
        ("address in (1, 0xfffff80000000010)", true),
        ("address = '0xFFFFF80000000010'", false),
        ("address i= '0xFFFFF80000000010'", true),
        ("address startswith 0xfffff8", true),
        ("address startswith 0xFFFFF8", false),
        ("digits = 16", true),
        ("digits = 0x10", true),
        ("digits = '16'", false),
        ("digits = '0016'", true),
        ("digits < 100", true),
        ("digits endswith 16", true),
        ("event = 16", false),
        ("event != 16", true),
        // Text that spells no number is ordered as text.
        ("version > 10", true),
        ("time > 2024", true),
        ("time < 2025", true),
        ("empty < 0", true),
    ]);
}

#[test]
fn text_with_text() {
    check(&[
        ("event = Process/Start", true),
        ("event = 'Process/Start'", true),
        ("event = process/start", false),
        ("event i= process/start", true),
        ("event != process/start", true),
        ("event i!= process/start", false),
        ("event in (Image/Load, Process/Start)", true),
        ("event in (process/start)", false),
        ("event iin (image/load, process/start)", true),
        ("event > Image/Load", true),
        ("event < 'Process'", false),
        ("event <= Process/Start", true),
        ("event ~ Process/*", true),
        ("event ~ process/*", false),
        ("event i~ process/*", true),
        ("event ~ 'Process'", false),
        ("event ~ ???????/Start", true),
        ("event contains ss/", true),
        ("event contains SS/", false),
        ("event icontains SS/", true),
        ("event icontains 'SS\\'", false),
        ("event startswith 'Proc'", true),
        ("event startswith 'proc'", false),
        ("event istartswith 'PROC'", true),
        ("event istartswith Process/Start/", false),
        ("event endswith 'Start'", true),
        ("event endswith 'start'", false),
        ("event iendswith 'START'", true),
        ("event iendswith xProcess/Start", false),
        (r"path = 'C:\Windows\System32\ntdll.dll'", true),
        (r"path i~ 'c:\windows\*\NTDLL.dll'", true),
        (r"path istartswith 'c:\windows\'", true),
        ("name i= 'GRÖßE*STRAßE'", true),
        ("name i= 'GRÖSSE*STRASSE'", false),
        ("name icontains '*s'", true),
        ("name icontains '?'", false),
        ("name icontains ''", true),
        ("name contains 'ö'", true),
        ("name contains 'Ö'", false),
        ("empty = ''", true),
        ("empty ~ ''", true),
        ("empty ~ '*'", true),
        ("empty ~ '?'", false),
        ("empty i= ''", true),
        ("empty iendswith ''", true),
        ("empty icontains 'x'", false),
    ]);
}

#[test]
fn text_of_all_encodings() {
    for name in ["utf16", "latin1"] {
        for (operator, value, expected) in [
            ("=", "Zoë.exe", true),
            ("=", "Zoë.ex", false),
            ("=", "ZOË.EXE", false),
            ("i=", "ZOË.EXE", true),
            ("i=", "ZOE.EXE", false),
            ("!=", "Zoë.exe", false),
            ("contains", "oë.e", true),
            ("contains", ".exe", true),
            ("contains", "x.", false),
            ("contains", "", true),
            ("icontains", "OË", true),
            ("icontains", ".EXE", true),
            ("icontains", ".EXEC", false),
            ("startswith", "Zo", true),
            ("startswith", "o", false),
            ("istartswith", "zOË", true),
            ("endswith", ".exe", true),
            ("endswith", ".EXE", false),
            ("iendswith", ".EXE", true),
            ("iendswith", "Ë.EXE", true),
            ("~", "Zo?.*", true),
            ("~", "zo?.*", false),
            ("i~", "zo?.*", true),
            ("<", "Zoë.exf", true),
            ("<", "Zoë", false),
            (">", "Zoz", true),
        ] {
            check(&[(&format!("{name} {operator} '{value}'"), expected)]);
        }
    }
    check(&[
        ("'wide.digits' = 16", true),
        ("'wide.digits' < 17", true),
        ("'wide.digits' = '16'", false),
        ("'wide.digits' = '0x10'", true),
        ("odd = 'ab'", true),
        ("odd endswith 'b'", true),
    ]);
}

#[test]
fn equality_within_a_kind() {
    check(&[
        ("pid is 16", true),
        ("pid is 0x10", true),
        ("pid is 16.0", true),
        ("pid is 17", false),
        ("pid is '16'", false),
        ("flag is true", true),
        ("flag is 1", true),
        ("flag is 'true'", false),
        ("digits is 16", false),
        ("digits is '0016'", true),
        ("address is 0xfffff80000000010", false),
        ("event is Process/Start", true),
        ("event is process/start", false),
        ("utf16 is 'Zoë.exe'", true),
        ("'wide.digits' is 16", false),
        ("word is true", false),
        ("word is 'True'", true),
        ("ratio is 0.5", true),
        ("nan is 'NaN'", false),
        ("modules is 'app.exe'", true),
        ("missing is ''", false),
    ]);
}

#[test]
fn bits() {
    check(&[
        ("mask hasany 0x10", true),
        ("mask hasany 0x11", true),
        ("mask hasany 0xf", false),
        ("mask hasany 0x8000000000000000", true),
        ("mask hasany 0", false),
        ("mask hasall 0x30", true),
        ("mask hasall 0x8000000000000030", true),
        ("mask hasall 0x31", false),
        ("mask hasall 0", true),
        ("offset hasall 0xfffffffffffffff8", true),
        ("offset hasany 7", false),
        ("address hasall 0xfffff80000000010", true),
        ("flag hasany 1", true),
        ("ratio hasany 1", false),
        ("event hasall 0", false),
        ("missing hasall 0", false),
    ]);
}

#[test]
fn constants() {
    check(&[
        ("true", true),
        ("false", false),
        ("not true", false),
        ("not false", true),
        ("true and pid = 16", true),
        ("false or pid = 16", true),
        ("false and pid = 16", false),
        ("true or pid = 1", true),
        ("not (true and pid = 16)", false),
        ("not (false or pid = 1)", true),
    ]);
}

#[test]
fn missing_fields() {
    for operator in
        ["=", "!=", "<", "<=", ">", ">=", "~", "contains", "startswith", "endswith", "i=", "i!=", "i~"]
    {
        for value in ["1", "''", "'*'", "true"] {
            check(&[
                (&format!("missing {operator} {value}"), false),
                (&format!("not (missing {operator} {value})"), false),
            ]);
        }
    }
    check(&[
        ("missing in (1, '')", false),
        ("missing = 1 or pid = 16", true),
        ("missing = 1 and pid = 16", false),
    ]);
}

#[test]
fn fields_with_fields() {
    for (source, expected) in [
        ("pid = owner", Some(true)),
        ("pid != owner", Some(false)),
        ("pid = digits", Some(true)),
        ("pid is digits", Some(false)),
        ("pid is owner", Some(true)),
        ("pid = big", Some(false)),
        ("pid != big", Some(true)),
        ("pid < big", Some(true)),
        ("offset < pid", Some(true)),
        ("ratio > offset", Some(true)),
        ("nan = nan", Some(false)),
        ("nan < pid", Some(false)),
        ("flag < pid", Some(true)),
        ("address = pid", Some(false)),
        ("digits = wide.'digits'", Some(true)),
        // Text that spells no integer is text.
        ("version = version", Some(true)),
        ("version < digits", Some(false)),
        ("event < pid", Some(false)),
        ("event = pid", Some(false)),
        ("low < high", Some(true)),
        ("low > high", Some(false)),
        ("high <= low", Some(false)),
        ("utf16 iendswith latin1", Some(true)),
        ("utf16 i= latin1", Some(true)),
        ("utf16 = latin1", Some(true)),
        ("path contains image", Some(false)),
        ("path icontains image", Some(true)),
        ("path iendswith image", Some(true)),
        ("path istartswith image", Some(false)),
        ("path iendswith ('x', image)", Some(true)),
        ("name startswith empty", Some(true)),
        // Several values: any of one side with any of the other.
        ("modules = some", Some(true)),
        ("modules = image", Some(false)),
        ("modules i= image", Some(true)),
        ("modules != image", Some(true)),
        ("modules i!= image", Some(false)),
        ("image in (event, path)", Some(false)),
        ("image iin (event, 'x', modules)", Some(true)),
        ("not image iin (event, 'x', modules)", Some(false)),
        // A missing value on either side leaves it undecided.
        ("pid = missing", None),
        ("missing = pid", None),
        ("missing != missing", None),
        ("not pid = missing", None),
        ("pid in (missing, owner)", Some(true)),
        ("pid in (missing, 17)", None),
        ("not pid in (missing, 17)", None),
        ("neither = pid", None),
        ("pid = neither", None),
        ("partly = image", None),
        ("image != partly", None),
        ("partly iin (image, 'KNOWN.DLL')", Some(true)),
    ] {
        assert_eq!(decide(source), expected, "{source}");
    }
}

#[test]
fn text_operators_take_lists() {
    check(&[
        ("event startswith ('x', 'Proc')", true),
        ("event startswith ('x', 'y')", false),
        ("event i~ ('x', '*/START')", true),
        ("modules ~ ('other*', '*.exe')", true),
        ("not modules ~ ('other*', 'x*')", true),
        ("pid contains (1, 6)", false),
        ("missing ~ ('*', 'x')", false),
        ("not missing ~ ('*', 'x')", false),
    ]);
}

/// Every combination of two answers, as Kleene's logic has them, negated in every place.
#[test]
fn there_are_three_answers() {
    let answers =
        [("pid = 16", Some(true)), ("pid = 1", Some(false)), ("missing = 1", None), ("partly = 'x'", None)];
    let not = |answer: Option<bool>| answer.map(|answer| !answer);
    let and = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    let or = |a, b| not(and(not(a), not(b)));
    for (a, is_a) in answers {
        assert_eq!(decide(a), is_a, "{a}");
        assert_eq!(decide(&format!("not {a}")), not(is_a), "not {a}");
        for (b, is_b) in answers {
            for (source, expected) in [
                (format!("{a} and {b}"), and(is_a, is_b)),
                (format!("{a} or {b}"), or(is_a, is_b)),
                (format!("not ({a} and {b})"), not(and(is_a, is_b))),
                (format!("not ({a} or {b})"), not(or(is_a, is_b))),
                (format!("not {a} and {b}"), and(not(is_a), is_b)),
                (format!("not {a} or not {b}"), or(not(is_a), not(is_b))),
            ] {
                assert_eq!(decide(&source), expected, "{source}");
            }
            for (c, is_c) in answers {
                let source = format!("{a} and ({b} or not {c})");
                assert_eq!(decide(&source), and(is_a, or(is_b, not(is_c))), "{source}");
            }
        }
    }
}

#[test]
fn values_that_are_not_known_leave_the_others() {
    for (source, expected) in [
        ("partly = 'known.dll'", Some(true)),
        ("partly ~ '*.dll'", Some(true)),
        ("partly = 'other.dll'", None),
        ("not partly = 'known.dll'", Some(false)),
        ("partly != 'known.dll'", Some(false)),
        ("partly != 'other.dll'", None),
        ("partly hasany 1", None),
    ] {
        assert_eq!(decide(source), expected, "{source}");
    }
}

#[test]
fn several_values() {
    check(&[
        ("modules = 'ntdll.dll'", true),
        ("modules = 'app.exe'", true),
        ("modules = 'other.exe'", false),
        ("modules != 'other.exe'", true),
        ("modules != 'ntdll.dll'", false),
        ("modules != 'app.exe'", false),
        ("modules i!= 'kernel32.dll'", false),
        ("modules i~ '*.dll'", true),
        ("modules iin ('x', 'kernel32.dll')", true),
        ("modules < 'b'", true),
        ("not modules = 'app.exe'", false),
        ("not modules != 'app.exe'", true),
    ]);
}

#[test]
fn combinations() {
    check(&[
        ("pid = 16 and event = Process/Start", true),
        ("pid = 16 and event = 'x'", false),
        ("pid = 1 or event = Process/Start", true),
        ("pid = 1 or event = 'x'", false),
        ("pid = 16 or pid = 1 and event = 'x'", true),
        ("(pid = 16 or pid = 1) and event = 'x'", false),
        ("not pid = 1 and event = Process/Start", true),
        ("not (pid = 16 and event = Process/Start)", false),
        ("not not pid = 16", true),
        ("pid > 10 and pid < 20 and not pid in (17, 18)", true),
    ]);
}

/// The fields that are looked up in turn, each having the value 1.
fn lookups(source: &str, cost: Option<fn(&String) -> u8>) -> String {
    let filter = Filter::parse(source).expect("valid");
    let mut matcher = filter.compile(&[], |name| Some(name.to_owned())).expect("all names are known");
    if let Some(cost) = cost {
        matcher = matcher.cheapest_first(cost);
    }
    let looked_up = Cell::new(String::new());
    matcher.matches(|field, visit| {
        looked_up.set(looked_up.take() + field);
        visit(Value::Unsigned(1))
    });
    looked_up.take()
}

#[test]
fn decided_filters_look_up_no_more_fields() {
    let check = |source: &str, expected: &str| assert_eq!(lookups(source, None), expected, "{source}");
    check("a = 1 or b = 1", "a");
    check("a = 2 or b = 1", "ab");
    check("a = 2 and b = 1", "a");
    check("a = 1 and b = 1 and a = 1", "aba");
    check("not a = 1 and b = 1", "a");
    check("a = 1 and false", "");
    check("a = 1 and (b = 1 or true)", "a");
}

#[test]
fn cheap_fields_are_asked_before_dear_ones() {
    // Header, payload and stack.
    let cost = |field: &String| "hps".find(&field[..1]).expect("a class") as u8;
    let check = |source: &str, expected: &str| assert_eq!(lookups(source, Some(cost)), expected, "{source}");
    check("p = 1 and h = 2", "h");
    check("p = 1 and h = 1", "hp");
    check("s = 2 or p = 2 or h = 2", "hps");
    check("s = 2 or h = 1", "h");
    check("p1 = 1 and p2 = 1 and h1 = 1 and h2 = 1", "h1h2p1p2");
    check("p = 1 and (s = 1 and h = 2)", "h");
    check("(h1 = 1 and p = 1) and (h2 = 2 and p = 1)", "h1h2");
    check("not (h1 = 2 or p = 2) and not (h2 = 1 or p = 2)", "h1h2");
    check("not (p = 1 or h = 1)", "h");
    check("(p1 = 1 or p2 = 1) and (p3 = 1 or h = 1)", "hp1");
    check("(h = 1 or p = 1) and (h2 = 1 or p = 1)", "hh2");
    check("p = 1 or not (h = 2 and s = 1)", "h");
    check("p = 1 and not (s = 1 or h = 2)", "hps");
}

#[test]
fn values_are_taken_until_one_decides() {
    let taken = |source: &str| {
        let filter = Filter::parse(source).expect("valid");
        let matcher = filter.compile(&[], |_| Some(())).expect("all names are known");
        let taken = Cell::new(0);
        matcher.matches(|_, visit| {
            (1..=5).try_for_each(|value| {
                taken.set(value);
                visit(Value::Unsigned(value))
            })
        });
        taken.get()
    };
    assert_eq!(taken("a = 2"), 2);
    assert_eq!(taken("a != 2"), 2);
    assert_eq!(taken("a != 9"), 5);
}

#[test]
fn the_fields_that_leave_it_undecided() {
    let known = FIELDS.map(|(name, _)| name);
    for (source, expected) in [
        ("missing = 1", "missing"),
        ("missing = 1 and neither = 2", "missing neither"),
        ("missing = 1 or neither = 2", "missing neither"),
        ("missing = neither", "missing neither"),
        ("pid = neither", "neither"),
        // What the rest decides does not matter.
        ("(missing = 1 and pid = 17) or neither = 2", "neither"),
        ("(missing = 1 or pid = 16) and neither = 2", "neither"),
        ("missing = 1 and pid = 17", ""),
        ("not (missing = 1 or pid = 17)", "missing"),
        ("partly = 'known.dll'", ""),
    ] {
        let matcher = Filter::parse(source)
            .unwrap()
            .compile(&known, |name| known.iter().position(|known| *known == name))
            .unwrap();
        let fields = matcher
            .undecided_fields(|field, visit| FIELDS[*field].1.iter().try_for_each(|value| visit(*value)));
        let names: Vec<_> = fields.iter().map(|&field| known[matcher.fields()[field]]).collect();
        assert_eq!(names.join(" "), expected, "{source}");
    }
}
