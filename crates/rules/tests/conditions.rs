//! Conditions: how they are read, and what is wrong with them.

use stackhound_rules::syntax::{Condition, Expression, ExpressionKind};
use stackhound_rules::{Library, Rule};

const MACROS: &str = r"
- macro: spawn
  expr: evt.name = 'CreateProcess'
- macro: either
  expr: ps.pid = 1 or ps.pid = 2
- macro: programs
  list: [a.exe, 'b.exe']
- macro: loop
  expr: spawn and loop
- macro: broken
  expr: ps.pid =
";

fn rule(condition: &str) -> String {
    let lines: String = condition.lines().map(|line| format!("  {line}\n")).collect();
    format!("name: R\nid: 1\nversion: 1.0.0\nmin-engine-version: 3.0.0\ncondition: |\n{lines}")
}

fn read(condition: &str) -> Rule {
    let text = rule(condition);
    let files = [("macros.yml", MACROS.as_bytes()), ("rule.yml", text.as_bytes())];
    Library::read(files).rules.pop().expect("a rule")
}

/// The tree with a parenthesis around every expression with parts.
fn shown(expression: &Expression) -> String {
    let all = |parts: &[Expression], between: &str| {
        format!("({})", parts.iter().map(shown).collect::<Vec<_>>().join(between))
    };
    match &expression.kind {
        ExpressionKind::Data(name) | ExpressionKind::Exists(name) => name.clone(),
        ExpressionKind::Or(parts) => all(parts, " or "),
        ExpressionKind::And(parts) => all(parts, " and "),
        ExpressionKind::Not(part) => format!("(not {})", shown(part)),
        ExpressionKind::Comparison(comparison) => {
            let not = if comparison.is_negated { "not " } else { "" };
            let operator = comparison.operator.spelling();
            format!("({} {not}{operator} {})", shown(&comparison.left), shown(&comparison.right))
        }
        ExpressionKind::Field(field) => match &field.argument {
            Some(argument) => format!("{}[{argument}]", field.field.name),
            None => field.field.name.to_owned(),
        },
        ExpressionKind::Bound { alias, field } => format!("${alias}.{}", field.field.name),
        ExpressionKind::Element { variable, part } => {
            format!("${variable}{}", part.as_ref().map(|part| format!(".{part}")).unwrap_or_default())
        }
        ExpressionKind::Text(text) => format!("{text:?}"),
        ExpressionKind::Integer(number) => number.to_string(),
        ExpressionKind::Decimal(number) => number.to_string(),
        ExpressionKind::Address(address) => address.to_string(),
        ExpressionKind::Truth(truth) => truth.to_string(),
        ExpressionKind::List(values) => {
            format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        ExpressionKind::Call { function, arguments } => {
            format!("{}({})", function.name, arguments.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        ExpressionKind::Macro { name, body } => format!("{name}:{}", shown(body)),
    }
}

#[test]
fn operators_bind_as_in_fibratus() {
    let event = "evt.name = 'CreateProcess'";
    for (condition, expected) in [
        ("ps.pid = 1 or ps.pid = 2 and ps.pid = 3", "((ps.pid = 1) or ((ps.pid = 2) and (ps.pid = 3)))"),
        ("(ps.pid = 1 or ps.pid = 2) and ps.pid = 3", "(((ps.pid = 1) or (ps.pid = 2)) and (ps.pid = 3))"),
        ("ps.pid = 1 AND ps.pid = 2 And ps.pid = 3", "((ps.pid = 1) and (ps.pid = 2) and (ps.pid = 3))"),
        ("not ps.pid = 1 and ps.pid = 2", "((not (ps.pid = 1)) and (ps.pid = 2))"),
        ("not (ps.pid = 1 and ps.pid = 2)", "(not ((ps.pid = 1) and (ps.pid = 2)))"),
        ("ps.name not in ('a', 'b')", r#"(ps.name not in ["a", "b"])"#),
        ("ps.name not imatches programs", r#"(ps.name not imatches programs:["a.exe", "b.exe"])"#),
        ("evt.is_direct_syscall = true", "(evt.is_direct_syscall = true)"),
        ("not evt.is_direct_syscall", "(not evt.is_direct_syscall)"),
        ("evt.pid <> thread.pid", "(evt.pid != thread.pid)"),
        ("ps.name ~= 'A\\\\b\\'c\\n'", r#"(ps.name ~= "A\\b'c\n")"#),
        (
            "net.dip = 10.0.0.1 and evt.arg[status] = 'Success'",
            r#"((net.dip = 10.0.0.1) and (evt.arg[status] = "Success"))"#,
        ),
        ("BASE(ps.exe, false) = 'a'", r#"(base(ps.exe, false) = "a")"#),
        ("image.name = 'a'", r#"(module.name = "a")"#),
        (
            "spawn and either",
            "(spawn:(evt.name = \"CreateProcess\") and either:((ps.pid = 1) or (ps.pid = 2)))",
        ),
        (
            "foreach(thread._callstack, $f, $f.is_unbacked and $f.module.signature.exists = false)",
            "foreach(thread._callstack, $f, ($f.is_unbacked and ($f.module.signature.exists = false)))",
        ),
        ("foreach(ps.args, $a, $a = 'x')", r#"foreach(ps.args, $a, ($a = "x"))"#),
    ] {
        let rule = read(&format!("{event} and ({condition})"));
        let Ok(checked) = &rule.condition else { panic!("{condition}: {:?}", rule.condition) };
        let Condition::Event(expression) = &checked.tree else { panic!("{condition}") };
        assert_eq!(
            shown(expression),
            format!("((evt.name = \"CreateProcess\") and {expected})"),
            "{condition}"
        );
    }
}

#[test]
fn sequences_have_slots() {
    let slots = |condition: &str| {
        let rule = read(condition);
        let checked = rule.condition.unwrap_or_else(|error| panic!("{condition}: {error}"));
        let Condition::Sequence(sequence) = checked.tree else { panic!("{condition}") };
        let slot = |slot: &stackhound_rules::syntax::Slot| {
            let by: Vec<_> = slot.by.iter().map(|field| field.field.name).collect();
            (shown(&slot.expression), by.join(","), slot.alias.clone().unwrap_or_default())
        };
        (sequence.max_span.map(|span| span.as_secs()), sequence.slots.iter().map(slot).collect::<Vec<_>>())
    };
    let (spawn, load) = ("|evt.name = 'CreateProcess'|", "|evt.name = 'LoadModule'|");
    let (of_spawn, of_load) = ("(evt.name = \"CreateProcess\")", "(evt.name = \"LoadModule\")");
    let expected = |by: &str| {
        vec![
            (of_spawn.to_owned(), by.to_owned(), String::new()),
            (of_load.to_owned(), by.to_owned(), String::new()),
        ]
    };
    assert_eq!(
        slots(&format!("sequence\nmaxspan 1m30s\nby ps.uuid\n{spawn}\n{load}")),
        (Some(90), expected("ps.uuid"))
    );
    assert_eq!(
        slots(&format!("sequence by ps.uuid, ps.pid {spawn}{load}")),
        (None, expected("ps.uuid,ps.pid"))
    );
    assert_eq!(slots(&format!("sequence {spawn} by ps.uuid {load} by ps.uuid")), (None, expected("ps.uuid")));
    let (_, bound) =
        slots(&format!("sequence {spawn} as e |evt.name = 'LoadModule' and module.pid = $e.ps.pid|"));
    assert_eq!(bound[0].2, "e");
    assert_eq!(bound[1].0, "((evt.name = \"LoadModule\") and (module.pid = $e.ps.pid))");
}

#[test]
fn errors_have_a_location_and_a_sentence() {
    let mut wrong = Vec::new();
    for (condition, expected) in [
        (
            "evt.name = 'a' and ps.nam = 'b'",
            "6:22: there is no field, function or macro `ps.nam`, did you mean `ps.name`?",
        ),
        ("evt.name = 'a", "6:14: the text is not closed; a text ends on its line"),
        (r"evt.name = 'C:\a'", r"6:17: `\a` is not an escape; write `\\` for a backslash"),
        ("evt.name = 'a' and", "6:21: expected a field or a value"),
        ("evt.name = 'a' ps.pid = 1", "6:18: expected an operator, `and`, `or` or the end"),
        ("evt.name = 'a'\n and (ps.pid = 1", "7:19: expected an operator, `and`, `or` or `)`"),
        ("evt.name = 'a' and ('x' = ps.name)", "6:27: expected `,` or `)`"),
        ("evt.name = 'a' and ps.name in 'x'", "6:33: expected a list in parentheses after `in`"),
        ("evt.name = 'a' and ps.name", "6:22: expected true or false, found a text"),
        ("evt.name = 'a' and not ps.pid", "6:26: expected true or false, found a number"),
        (
            "evt.name = 'a' and evt.arg = 'x'",
            "6:22: `evt.arg` needs a name in brackets, such as `evt.arg[status]`",
        ),
        (
            "evt.name = 'a' and $x.ps.pid = 1",
            "6:22: `$x` is neither a variable of `foreach` nor the name of an earlier slot",
        ),
        ("evt.name = 'a' and substr(ps.name) = 'x'", "6:22: `substr` takes 2 to 3 arguments, not 1"),
        ("evt.name = 'a' and concat(ps.name) = 'x'", "6:22: `concat` takes at least 2 arguments, not 1"),
        ("evt.name = 'a' and length(thread._callstack, 1) = 1", "6:22: `length` takes 1 arguments, not 2"),
        ("evt.name = 'a' and lower(ps.pid) = 'x'", "6:28: expected a text, found a number"),
        ("evt.name = 'a' and thread._callstack = 'x'", "6:22: expected a value, found frames"),
        (
            "evt.name = 'a' and foreach(ps.pe._sections, $s, $s.nam = 'x')",
            "6:51: sections have no part `nam`; write one of name, size, entropy, md5",
        ),
        (
            "evt.name = 'a' and foreach(ps.pid, $s, $s = 1)",
            "6:30: expected elements or a list of texts, found a number",
        ),
        ("ps.pid = 1", "6:3: the rule names no event: add `evt.name = '…'` or `evt.category = '…'`"),
        (
            "evt.name = 'a' and 5x = 1",
            "6:22: expected a number of at most 64 bits, an address or a time span",
        ),
        (
            "evt.name = 'a' and 99999999999999999999 = 1",
            "6:22: expected a number of at most 64 bits, an address or a time span",
        ),
        ("evt.name = 'a' & ps.pid = 1", "6:18: `&` has no meaning here"),
        ("evt.name = 'a' and loop", "9:9: the macro `loop` uses itself"),
        ("evt.name = 'a' and broken", "11:17: expected a field or a value"),
        ("sequence maxspan 5h |evt.name = 'a'|", "6:20: a sequence takes at most 4 hours"),
        ("sequence maxspan 5 |evt.name = 'a'|", "6:20: expected a time span such as `2m`"),
        (
            "sequence by ps.pid |evt.name = 'a'| by ps.pid",
            "6:39: `by` is stated for the sequence, so a slot cannot have its own",
        ),
        (
            "sequence |evt.name = 'a'| by ps.pid |evt.name = 'a'|",
            "6:55: either all slots have `by`, or none has",
        ),
        ("sequence", "6:11: expected a slot such as `|evt.name = 'CreateProcess'|`"),
    ] {
        let rule = read(condition);
        let error = rule.condition.err().unwrap_or_else(|| panic!("{condition}: no error")).to_string();
        let (_, location) = error.split_once(".yml:").unwrap();
        if location != expected {
            wrong.push((condition, location.to_owned(), expected));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let slots = format!("sequence {}", "|evt.name = 'CreateProcess'|".repeat(6));
    assert!(read(&slots).condition.unwrap_err().to_string().ends_with("a sequence has at most 5 slots"));
}

#[test]
fn suspicious_parts_are_reported() {
    for (condition, expected) in [
        ("spawn and either", ""),
        ("either and spawn", "open-macro 6:3"),
        ("(either) and spawn", ""),
        ("spawn and not either", "open-macro 6:17"),
        ("spawn) and ps.pid = 1", "ignored-end 6:8"),
        ("spawn, ps.pid = 1", "ignored-end 6:8"),
        ("evt.name = 'createProcess'", "unknown-event 6:14"),
        ("spawn and ps.exe matches 'C:\\\\Program Files(x86)\\\\*'", "missing-blank 6:28"),
        ("spawn and ps.exe imatches '?:\\\\Windows\\\\'", "folder-only 6:29"),
        ("spawn and ps.exe istartswith '?:\\\\Windows\\\\'", ""),
        ("spawn and thread.callstack.modules icontains 'x'", "list-with-value 6:48"),
        ("spawn and thread.callstack.modules contains 'x'", ""),
        ("spawn and thread.callstack.modules imatches '*x'", "list-with-value 6:47"),
        ("spawn and thread.callstack.modules imatches ('*x')", ""),
        ("spawn and thread.callstack.modules imatches ('x.dll')", "never-matches 6:48"),
        ("spawn and thread.callstack.summary imatches '*!Nt*'", "never-matches 6:47"),
        ("spawn and thread.callstack.summary imatches 'ntoskrnl.exe*'", "never-matches 6:47"),
        ("spawn and thread.callstack.kernel_summary imatches 'ntoskrnl.exe*'", ""),
    ] {
        let rule = read(condition);
        assert!(rule.condition.is_ok(), "{condition}: {:?}", rule.condition);
        let lints: Vec<String> = rule
            .lints
            .iter()
            .map(|lint| format!("{} {}:{}", lint.kind.code(), lint.location.line, lint.location.column))
            .collect();
        assert_eq!(lints.join(", "), expected, "{condition}");
    }
}

#[test]
fn files_with_errors_are_reported() {
    let whole = rule("spawn");
    for (text, expected) in [
        (whole.replace("version: 1.0.0\n", ""), "missing field `version`"),
        (whole.replace("version: 1.0.0\n", "version: 1.0.0\nfoo: 1\n"), "unknown field `foo`"),
        (whole.replace("name: R", "name: R\nseverity: severe"), "2:11: `severe` is not a severity"),
        (
            whole.replace("condition", "conditions"),
            "expected a rule with `condition`, a rule of Sigma with `detection`, or a list of macros",
        ),
        ("- macro: a\n".to_owned(), "the macro `a` needs either `expr` or `list`"),
        ("- macro: a\n  list: []\n".to_owned(), "the list has no values"),
        ("name: [\n".to_owned(), "x.yml:"),
        ("x".repeat(stackhound_rules::FILE_MAX + 1), "the file is larger than 1 MiB"),
    ] {
        let library = Library::read([("x.yml", text.as_bytes())]);
        let [error] = &library.errors[..] else { panic!("{text:.200}: {:?}", library.errors) };
        assert!(error.to_string().contains(expected), "{error}");
    }
    let library = Library::read([("x.yml", &b"name: \xff"[..])]);
    assert_eq!(library.errors[0].to_string(), "x.yml:1:1: the file is not UTF-8 text");
    let twice = [("a.yml", whole.as_bytes()), ("b.yml", whole.as_bytes()), ("macros.yml", MACROS.as_bytes())];
    let library = Library::read(twice);
    let same = library.rules[1].condition.as_ref().unwrap_err();
    assert_eq!(same.to_string(), "b.yml:6:3: the rule in a.yml has the same id");
    // Errors of macros that no rule uses.
    assert_eq!(library.errors.len(), 2);
}

#[test]
fn hostile_conditions_end_soon() {
    let nested = format!("spawn and {}ps.pid = 1{}", "(".repeat(5_000), ")".repeat(5_000));
    let negated = format!("spawn and {}ps.pid = 1", "not ".repeat(5_000));
    let calls = format!("spawn and {}ps.name{} = 'x'", "lower(".repeat(5_000), ")".repeat(5_000));
    for condition in [nested, negated, calls] {
        let error = read(&condition).condition.unwrap_err().to_string();
        assert!(error.ends_with("the condition is nested deeper than 64 levels"), "{error:.200}");
    }
    let long = format!("spawn and ps.name in ({}'a')", "'a', ".repeat(20_000));
    assert!(read(&long).condition.unwrap_err().to_string().contains("too long"));
    // Each macro doubles the one before.
    let mut macros = "- macro: m0\n  expr: evt.name = 'CreateProcess'\n".to_owned();
    for number in 1..60 {
        let before = number - 1;
        macros += &format!("- macro: m{number}\n  expr: m{before} or m{before}\n");
    }
    let text = rule("m59");
    let library = Library::read([("m.yml", macros.as_bytes()), ("r.yml", text.as_bytes())]);
    assert!(library.rules[0].condition.as_ref().unwrap_err().to_string().contains("too long"));
    // Macros within macros.
    let mut macros = "- macro: m0\n  expr: evt.name = 'CreateProcess'\n".to_owned();
    for number in 1..500 {
        macros += &format!("- macro: m{number}\n  expr: m{}\n", number - 1);
    }
    let text = rule("m499");
    let library = Library::read([("m.yml", macros.as_bytes()), ("r.yml", text.as_bytes())]);
    assert!(library.rules[0].condition.is_err());
}

/// Each rule uses one macro more than the rule before, so that most macros are known by then.
#[test]
fn macros_are_as_deep_as_what_they_stand_for() {
    let mut macros = "- macro: m0\n  expr: evt.name = 'CreateProcess'\n".to_owned();
    let mut rules = Vec::new();
    for number in 1..400 {
        macros += &format!("- macro: m{number}\n  expr: {}m{}\n", "not ".repeat(50), number - 1);
        let text = rule(&format!("evt.name = 'CreateProcess' and m{number}"));
        rules.push((format!("{number}.yml"), text.replace("id: 1", &format!("id: {number}"))));
    }
    let rules = rules.iter().map(|(name, text)| (name.as_str(), text.as_bytes()));
    let library = Library::read([("m.yml", macros.as_bytes())].into_iter().chain(rules));
    let can_be_used: Vec<bool> = library.rules.iter().map(|rule| rule.condition.is_ok()).collect();
    assert!(can_be_used[0] && !can_be_used[1..].contains(&true), "{can_be_used:?}");
    // Used where there is no room for it, a macro can still be used elsewhere.
    let (deep, flat) = (rule(&format!("spawn and {}either", "not ".repeat(64))), rule("spawn and either"));
    let flat = flat.replace("id: 1", "id: 2");
    let files = [("m.yml", MACROS), ("a.yml", &*deep), ("b.yml", &*flat)];
    let library = Library::read(files.map(|(name, text)| (name, text.as_bytes())));
    let error = library.rules[0].condition.as_ref().unwrap_err().to_string();
    assert!(error.ends_with("the condition is nested deeper than 64 levels"), "{error}");
    assert!(library.rules[1].condition.is_ok(), "{:?}", library.rules[1].condition);
}

/// A line of a megabyte with many findings.
#[test]
fn findings_take_little_memory() {
    let values = "'C:\\\\Program Files(x86)\\\\a.exe', ".repeat(1_500);
    let long = format!("spawn and ps.exe in ({values}'a')");
    let macros =
        format!("- {{macro: m, list: [{}]}}\n{MACROS}", "'C:\\Program Files(x86)\\a.exe', ".repeat(25_000));
    let text = rule(&format!("{long} or spawn and ps.exe in m"));
    let library = Library::read([("m.yml", macros.as_bytes()), ("r.yml", text.as_bytes())]);
    let rule = &library.rules[0];
    assert!(rule.condition.is_ok(), "{:?}", rule.condition);
    assert_eq!(rule.lints.len(), 1_000);
    let bytes: usize = rule.lints.iter().map(|lint| lint.location.text.len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    let last = &rule.lints[999].location;
    assert!(last.column > 10_000 && last.marked().lines().all(|line| line.len() < 300), "{last:?}");
    assert!(last.marked().contains("Program Files(x86)"), "{}", last.marked());
}
