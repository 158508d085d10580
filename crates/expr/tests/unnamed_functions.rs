//! Filters of functions on random stacks, of which some functions have no name: an answer must be the
//! same whatever the names are, and a filter must be undecided only if names decide it.

use std::ops::ControlFlow;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use stackhound_expr::{Filter, Matcher, Value, Visitor};

const STACKS: usize = 2_000;
const FILTERS: usize = 200;

const MODULES: [&str; 4] = ["ntdll.dll", "win32u.dll", "app.exe", "driver"];
const NAMES: [&str; 5] = ["NtClose", "NtOpenFile", "ZwClose", "main", "operator!="];

#[derive(Clone, Debug)]
struct Frame {
    module: &'static str,
    name: Option<&'static str>,
}

/// Visits the forms of a name: alone, and after the module with and without its extension.
fn visit_frame(module: &str, name: Option<&str>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    let stem = module.rsplit_once('.').map(|(stem, _)| stem);
    let Some(name) = name else {
        for module in ["", module].into_iter().chain(stem) {
            visit(Value::UnnamedFunction { module })?;
        }
        return ControlFlow::Continue(());
    };
    visit(Value::Text(name))?;
    for module in [module].into_iter().chain(stem) {
        visit(Value::Text(&format!("{module}!{name}")))?;
    }
    ControlFlow::Continue(())
}

/// The answer for a stack, whose unnamed functions have these names, in their order.
fn decide(matcher: &Matcher<()>, stack: &[Frame], mut names: impl Iterator<Item = String>) -> Option<bool> {
    let names: Vec<Option<String>> =
        stack.iter().map(|frame| frame.name.map(str::to_owned).or_else(|| names.next())).collect();
    let lookup = |(): &(), visit: &mut Visitor<'_>| {
        stack
            .iter()
            .zip(&names)
            .try_for_each(|(frame, name)| visit_frame(frame.module, name.as_deref(), visit))
    };
    matcher.decide(lookup).ok()
}

/// A comparison, and names that match its text in different ways.
fn comparison() -> impl Strategy<Value = (String, Vec<String>)> {
    let module =
        select(vec!["ntdll.dll!", "ntdll!", "zzz.dll!", "*!", "*.dll!", "n*!", "driver!", "?river!", ""]);
    let name = select(vec!["Nt*", "NtClose", "*", "?*", "*File", "??Close", "main", "operator!=", "Zz*q"]);
    let text = select(vec!["Nt", "ntdll", "!", "Close", ".dll!Nt", "dll!operator!=", "zzz.dll!", "r!=", "x"]);
    let patterns = (module, name, select(vec!["~", "i~"])).prop_map(|(module, name, operator)| {
        let fitting = name.replace('*', "").replace('?', "a");
        (
            format!("s {operator} '{module}{name}'"),
            vec![fitting.clone(), format!("{fitting}File"), "q".repeat(9)],
        )
    });
    let whole = (select(MODULES.to_vec()), select(NAMES.to_vec()), select(vec!["=", "!=", "i="])).prop_map(
        |(module, name, operator)| (format!("s {operator} '{module}!{name}'"), vec![name.to_owned()]),
    );
    let parts = (text, select(vec!["contains", "startswith", "endswith", "icontains"])).prop_map(
        |(text, operator)| {
            let rest = text.split_once('!').map_or(text, |(_, rest)| rest).to_owned();
            let names = vec![text.to_owned(), rest];
            (format!("s {operator} '{text}'"), names)
        },
    );
    prop_oneof![patterns, whole, parts]
}

/// The names that are possible by definition, and one that fits nothing.
fn possible(names: Vec<String>, filter: &str) -> Vec<String> {
    let has_operator = filter.contains("operator!");
    let is_name = |name: &String| {
        let has_mark = |before: &str| has_operator && before.ends_with("operator");
        !name.is_empty() && name.split('!').rev().skip(1).all(has_mark)
    };
    names.into_iter().filter(is_name).chain(["unlike".to_owned()]).collect()
}

#[test]
fn answers_do_not_depend_on_unknown_names() {
    let mut runner = TestRunner::deterministic();
    let frame = (select(MODULES.to_vec()), select(NAMES.to_vec()), 0..3_u8)
        .prop_map(|(module, name, known)| Frame { module, name: (known > 0).then_some(name) });
    let stacks = vec(vec(frame, 1..6), STACKS).new_tree(&mut runner).unwrap().current();
    // Each comparison is evaluated alone. Two comparisons can exclude each other, or one imply the other,
    // so that only single ones are exact.
    let filter = (comparison(), comparison(), 0..4_u8).prop_map(|(first, second, form)| {
        let source = match form {
            0 => format!("not ({} or {})", first.0, second.0),
            1 => format!("{} and not {}", first.0, second.0),
            2 => format!("not {}", first.0),
            _ => first.0,
        };
        let names = possible([first.1, second.1].concat(), &source);
        (source, names, form > 1)
    });
    let filters = vec(filter, FILTERS).new_tree(&mut runner).unwrap().current();
    let choices = vec(vec(any::<Index>(), 5), 6).new_tree(&mut runner).unwrap().current();
    let (mut undecided, mut decided, mut excluded) = (0_u64, 0_u64, 0_u64);
    for (source, names, is_single) in &filters {
        let matcher =
            Filter::parse(source).unwrap().compile(&["s"], |name| (name == "s").then_some(())).unwrap();
        for stack in &stacks {
            if stack.iter().all(|frame| frame.name.is_some()) {
                continue;
            }
            let own = decide(&matcher, stack, std::iter::empty());
            let same = names.iter().map(|name| vec![name.clone(); 5]);
            let mixed =
                choices.iter().map(|choice| choice.iter().map(|index| index.get(names).clone()).collect());
            let mut answers =
                same.chain(mixed).map(|names: Vec<String>| decide(&matcher, stack, names.into_iter()));
            match own {
                Some(_) => {
                    decided += 1;
                    assert!(answers.all(|answer| answer == own), "{source} {stack:?}");
                }
                None => {
                    undecided += 1;
                    let first = answers.next();
                    let depends_on_names = answers.any(|answer| Some(answer) != first);
                    assert!(!is_single || depends_on_names, "{source} {stack:?}");
                    excluded += u64::from(!depends_on_names);
                }
            }
        }
    }
    println!(
        "{undecided} undecided, of which {excluded} have one answer for all tried names; {decided} decided"
    );
    assert!(undecided > 10_000 && decided > 10_000, "{undecided} {decided}");
    assert!(excluded * 50 < undecided, "{excluded} of {undecided}");
}
