//! Filters built in Rust: the trees that their text means, and the same limits.

use proptest::collection::vec;
use proptest::prelude::*;
use stackhound_expr::{Error, Field, Filter, Literal, MAX_DEPTH, MAX_LENGTH, Value, field};

#[track_caller]
fn check(built: &Filter, text: &str) {
    assert_eq!(built.to_string(), text);
    assert_eq!(Filter::parse(text).as_ref(), Ok(built), "{text}");
}

fn numbered(number: u32) -> Filter {
    field(format!("f{number}")).equals(number)
}

#[test]
fn every_operator_has_a_method() {
    let f = || field("f");
    check(&f().equals("x"), "f = 'x'");
    check(&f().iequals("x"), "f i= 'x'");
    check(&f().differs(1), "f != 1");
    check(&f().idiffers("x"), "f i!= 'x'");
    check(&f().is(1.5), "f is 1.5");
    check(&f().less(-1), "f < -1");
    check(&f().at_most(u64::MAX), "f <= 18446744073709551615");
    check(&f().greater("x"), "f > 'x'");
    check(&f().at_least(true), "f >= true");
    check(&f().matches("*"), "f ~ '*'");
    check(&f().imatches("*"), "f i~ '*'");
    check(&f().contains("it's"), "f contains 'it''s'");
    check(&f().icontains("x"), "f icontains 'x'");
    check(&f().starts_with("x"), "f startswith 'x'");
    check(&f().istarts_with("x"), "f istartswith 'x'");
    check(&f().ends_with("x"), "f endswith 'x'");
    check(&f().iends_with("x"), "f iendswith 'x'");
    check(&f().one_of([1, 2]), "f in (1, 2)");
    check(&f().ione_of(["a", "b"]), "f iin ('a', 'b')");
    check(&f().has_any(0x30), "f hasany 0x30");
    check(&f().has_all(0), "f hasall 0x0");
    check(&f().one_of(Vec::<u32>::new()), "false");
    check(&field("fields.Odd Name").equals(1), "fields.\"Odd Name\" = 1");
    check(&field("true").equals(1), "true = 1");
}

#[test]
fn chains_become_lists_and_double_negation_is_removed() {
    let [a, b, c] = [1, 2, 3].map(numbered);
    check(&(a.clone() & b.clone() & c.clone()), "f1 = 1 and f2 = 2 and f3 = 3");
    check(&(a.clone() & (b.clone() & c.clone())), "f1 = 1 and f2 = 2 and f3 = 3");
    check(&(a.clone() | (b.clone() | c.clone())), "f1 = 1 or f2 = 2 or f3 = 3");
    check(&(a.clone() | b.clone() & c.clone()), "f1 = 1 or f2 = 2 and f3 = 3");
    check(&((a.clone() | b.clone()) & c.clone()), "(f1 = 1 or f2 = 2) and f3 = 3");
    check(&(c.clone() & (a.clone() | b.clone())), "f3 = 3 and (f1 = 1 or f2 = 2)");
    check(&!(a.clone() & b.clone()), "not (f1 = 1 and f2 = 2)");
    check(&!!(a.clone() | b.clone()), "f1 = 1 or f2 = 2");
    check(&(!a.clone() & !!b), "not f1 = 1 and f2 = 2");
    check(&!Filter::everything(), "false");
    check(&(Filter::nothing() | a), "false or f1 = 1");
}

#[test]
fn lists() {
    let three = || [1, 2, 3].map(numbered);
    check(&Filter::any_of(three()), "f1 = 1 or f2 = 2 or f3 = 3");
    check(&Filter::all_of(three()), "f1 = 1 and f2 = 2 and f3 = 3");
    check(&Filter::none_of(three()), "not (f1 = 1 or f2 = 2 or f3 = 3)");
    check(&Filter::any_of([numbered(1)]), "f1 = 1");
    check(&Filter::none_of([numbered(1)]), "not f1 = 1");
    check(&Filter::any_of([]), "false");
    check(&Filter::all_of([]), "false");
    check(&Filter::none_of([]), "true");
}

fn compile(filter: &Filter) -> Result<(), Error> {
    filter.compile(&[], |_| Some(())).map(|_| ())
}

#[test]
fn filters_that_are_built_too_deep_are_refused() {
    // Each turn adds a pair of parentheses.
    let nested =
        |depth: u32| (0..depth).fold(numbered(0), |filter, turn| (filter | numbered(turn)) & numbered(turn));
    let deepest = nested(MAX_DEPTH as u32);
    assert_eq!(compile(&deepest), Ok(()));
    assert_eq!(Filter::parse(&deepest.to_string()), Ok(deepest));
    let refused = nested(MAX_DEPTH as u32 + 1);
    assert_eq!(compile(&refused), Err(Error::TooDeep { at: 0 }));
    assert!(Filter::parse(&refused.to_string()).is_err());
    // It stays refused in whatever it becomes a part of, and takes no stack to be dropped.
    for whole in [!refused.clone(), refused.clone() & numbered(1), numbered(1) | refused, nested(100_000)] {
        assert_eq!(compile(&whole), Err(Error::TooDeep { at: 0 }));
    }
    // A chain is not deeper than its parts.
    assert_eq!(compile(&Filter::any_of((0..5000).map(numbered))), Ok(()));
}

#[test]
fn filters_that_are_built_too_long_are_refused() {
    let of_length = |length: usize| field("f").equals("x".repeat(length));
    assert_eq!(compile(&of_length(MAX_LENGTH - 2)), Ok(()));
    assert_eq!(compile(&of_length(MAX_LENGTH - 1)), Err(Error::TooLong { length: MAX_LENGTH + 1 }));
    let many = field("f").one_of(100_000_u32..120_000);
    assert!(matches!(compile(&many), Err(Error::TooLong { length: 140_001 })));
}

/// How to build a filter on top of others.
#[derive(Clone, Debug)]
enum Step {
    Push(Filter),
    And,
    Or,
    Not,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let literal = prop_oneof![
        any::<i64>().prop_map(Literal::from),
        any::<f64>().prop_map(Literal::from),
        any::<bool>().prop_map(Literal::from),
        any::<String>().prop_map(Literal::from),
    ];
    let operators: [fn(Field, Literal) -> Filter; 6] = [
        |field, value| field.equals(value),
        |field, value| field.idiffers(value),
        |field, value| field.is(value),
        |field, value| field.less(value),
        |field, value| field.one_of([value.clone(), value]),
        |field, _| field.has_all(7),
    ];
    let comparison = (any::<String>(), literal, proptest::sample::select(operators.to_vec()))
        .prop_map(|(name, value, operator)| operator(field(name), value));
    let parsed = proptest::sample::select(vec!["a=1 and (b=2 and c=3)", "a=1 or b=2", "not not a=1", "true"])
        .prop_map(|text| Filter::parse(text).expect("valid"));
    let step = prop_oneof![
        2 => comparison.prop_map(Step::Push),
        1 => parsed.prop_map(Step::Push),
        2 => Just(Step::And),
        2 => Just(Step::Or),
        1 => Just(Step::Not),
    ];
    vec(step, 0..40)
}

/// The filter, and whether it holds if all comparisons do, computed on the way.
fn build(steps: Vec<Step>) -> (Filter, bool) {
    let holds = |filter: &Filter| {
        let matcher = filter.compile(&[], |_| Some(())).expect("within the limits");
        matcher.matches(|(), visit| visit(Value::Unsigned(1)))
    };
    let mut stack = vec![(Filter::everything(), true)];
    for step in steps {
        let (top, truth) = stack.pop().expect("never empty");
        match step {
            Step::Push(filter) => {
                let new = holds(&filter);
                stack.extend([(top, truth), (filter, new)]);
            }
            Step::Not => stack.push((!top, !truth)),
            Step::And | Step::Or => {
                let (below, other) = stack.pop().unwrap_or((Filter::nothing(), false));
                stack.push(match step {
                    Step::And => (below & top, other && truth),
                    _ => (below | top, other || truth),
                });
            }
        }
    }
    stack.pop().expect("never empty")
}

proptest! {
    #[test]
    fn a_built_filter_is_equivalent_to_its_text(steps in steps()) {
        let (filter, holds) = build(steps);
        let text = filter.to_string();
        prop_assert_eq!(Filter::parse(&text), Ok(filter.clone()), "{}", text);
        let matcher = filter.compile(&[], |_| Some(())).expect("within the limits");
        prop_assert_eq!(matcher.matches(|(), visit| visit(Value::Unsigned(1))), holds, "{}", text);
    }
}
