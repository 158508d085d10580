//! Differences between the forms in which programs write the same name.
//!
//! The golden lists were made by Breakpad's `dump_syms` with Microsoft's DIA library, and by
//! Mozilla's, which has its own type and name printers. Our names are qualified names without
//! parameters. Each rule removes one difference. The rules are applied one after another until the
//! names are equal.

use stackhound_symbols::demangle::demangle;

/// The change to the golden name, then the change to both names.
type Rule = (&'static str, fn(&str) -> String, fn(&str) -> String);

fn none(name: &str) -> String {
    name.to_owned()
}

const RULES: &[Rule] = &[
    ("as they are", none, none),
    ("golden: left mangled", |name| demangle(name).into_owned(), none),
    ("golden: parameters", |name| without_parameters(name).to_owned(), none),
    ("golden: static, and the type that is returned", |name| without_return_type(name).to_owned(), none),
    ("spaces between types", none, |name| name.replace(' ', "")),
    ("the anonymous namespace", none, |name| name.replace("(anonymousnamespace)", "`anonymousnamespace'")),
    (
        "golden: int64_t",
        |name| name.replace("uint64_t", "unsigned__int64").replace("int64_t", "__int64"),
        none,
    ),
    ("calling conventions of function types", none, |name| {
        name.replace("__cdecl", "").replace("__stdcall", "")
    }),
    ("golden: ctor", with_constructor, none),
    ("golden: parameters, broken", |name| up_to_parameters(name).to_owned(), none),
    ("conversions by templates", none, |name| {
        name.split_once("::operator").map_or(name, |(class, _)| class).to_owned()
    }),
    ("golden: an underscore is missing", |name| format!("_{name}"), none),
];

/// Returns the last rule that was required to make a golden name and ours equal.
pub fn same(golden: &str, ours: &str) -> Option<&'static str> {
    let (mut golden, mut ours) = (golden.to_owned(), ours.to_owned());
    RULES.iter().find_map(|(rule, of_golden, of_both)| {
        golden = of_both(&of_golden(&golden));
        ours = of_both(&ours);
        (golden == ours).then_some(*rule)
    })
}

/// Removes parameters at the end.
fn without_parameters(name: &str) -> &str {
    let name = name.strip_suffix(" const").unwrap_or(name);
    if !name.ends_with(')') || name.ends_with("operator()") {
        return name;
    }
    let mut depth = 0;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &name[..at];
        }
    }
    name
}

/// DIA writes both for static functions.
fn without_return_type(name: &str) -> &str {
    match name.strip_prefix("static ") {
        Some(name) => name.rsplit_once(' ').map_or(name, |(_, name)| name),
        None => name,
    }
}

/// `pair<A,B>::ctor<C>` is `pair<A,B>::pair<A,B><C>`.
fn with_constructor(name: &str) -> String {
    let Some((class, parameters)) = name.split_once("::ctor<") else { return name.to_owned() };
    let mut depth = 0;
    let mut last = 0;
    for (at, byte) in class.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b':' if depth == 0 => last = at + 1,
            _ => {}
        }
    }
    format!("{class}::{}<{parameters}", &class[last..])
}

/// Truncates at the first parenthesis outside of template parameters: functions that return
/// functions have several.
fn up_to_parameters(name: &str) -> &str {
    let mut depth = 0;
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b'(' if depth == 0 => return &name[..at],
            _ => {}
        }
    }
    name
}
