//! Looks up the values of terms for an event.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use md5::{Digest, Md5};
use stackhound_expr::{Matcher, Undecided, Value, Visitor, fits_pattern};

use super::functions as texts;
use super::missing::MissingInputs;
use super::sequence::Kept;
use super::term::{Call, FieldTerm, ForEach, PatternTest, Prepared, Term, Zero};
use super::{Mode, RuleEvent};
use crate::needs::Need;

/// What a condition can refer to.
pub(crate) struct Scope<'s, E: RuleEvent> {
    pub event: &'s E,
    pub mode: Mode,
    /// The values of fields of the event that were looked up before, by their index.
    pub values: &'s [OnceCell<Kept>],
    /// Values of events of earlier slots; `None` if they are not known yet.
    pub kept: Option<&'s [Kept]>,
    /// Whether undecided exceptions hold.
    pub assumes: bool,
    /// The innermost element.
    pub element: Option<&'s Element<'s, E::Field>>,
}

/// An element that `foreach` visits.
pub(crate) struct Element<'s, F> {
    kind: ElementKind<'s, F>,
    /// What is visited.
    of: &'s Term<F>,
    outer: Option<&'s Element<'s, F>>,
}

enum ElementKind<'s, F> {
    /// A value of a list.
    Value(Value<'s>),
    /// An element with parts.
    OfField(&'s F, usize),
}

const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());

/// Passes all values of a term to `visit`.
pub(crate) fn look_up<E: RuleEvent>(
    term: &Term<E::Field>,
    scope: &Scope<'_, E>,
    visit: &mut Visitor<'_>,
) -> ControlFlow<()> {
    match term {
        Term::Field(field) => or_zero(field.zero, scope.mode, visit, |visit| scope.values_of(field, visit)),
        Term::Exists(field) => {
            let (mut has_any, mut has_value, mut is_known) = (false, false, true);
            let _ = scope.values_of(field, &mut |value| {
                has_any = true;
                is_known &= value.is_known();
                has_value |= value.to_text().is_some_and(|text| !text.is_empty());
                CONTINUE
            });
            match (has_value, has_any && is_known) {
                (true, _) => visit(Value::Bool(true)),
                (false, true) => visit(Value::Bool(false)),
                (false, false) => CONTINUE,
            }
        }
        Term::Bound { index, zero, .. } => match scope.kept {
            Some(all) => or_zero(*zero, scope.mode, visit, |visit| {
                all.get(*index).map_or(CONTINUE, |kept| kept.visit(visit))
            }),
            None => CONTINUE,
        },
        Term::Element { outward, part } => {
            match (scope.outward(*outward).map(|element| &element.kind), part) {
                (Some(ElementKind::Value(value)), _) => visit(*value),
                (Some(ElementKind::OfField(field, index)), Some(part)) => {
                    let zero = Zero::of(part.value_type);
                    or_zero(zero, scope.mode, visit, |visit| {
                        scope.event.visit_part(field, *index, part, visit)
                    })
                }
                _ => CONTINUE,
            }
        }
        Term::Text(text) => visit(Value::Text(text)),
        Term::Number(number) => visit(Value::Unsigned(*number)),
        Term::Decimal(number) => visit(Value::Float(*number)),
        Term::Truth(truth) => visit(Value::Bool(*truth)),
        Term::Holds(matcher) => known(scope.decide(matcher), visit),
        Term::Call(call) => call.visit(scope, visit),
        Term::ForEach(each) => known(each.decide(scope), visit),
        Term::Pattern { value, patterns, test } => {
            let fits = test.any(value, patterns, scope);
            visit(fits.map_or(Value::Unknown, Value::Bool))
        }
    }
}

impl<E: RuleEvent> Scope<'_, E> {
    /// Passes all values of a field to `visit`. Many rules read the same fields, which are looked up
    /// once for an event.
    fn values_of(&self, field: &FieldTerm<E::Field>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        let FieldTerm { field: Some(resolved), index, .. } = field else { return CONTINUE };
        match self.values.get(*index) {
            Some(cell) => {
                cell.get_or_init(|| Kept::all(|visit| self.event.visit(resolved, visit))).visit(visit)
            }
            None => self.event.visit(resolved, visit),
        }
    }

    /// The element of an outer `foreach`, by the number of calls between.
    fn outward(&self, calls: usize) -> Option<&Element<'_, E::Field>> {
        std::iter::successors(self.element, |element| element.outer).nth(calls)
    }

    /// Adds what a matcher lacks for its answer, which is decided by no less.
    pub fn add_missing(&self, matcher: &Matcher<Term<E::Field>>, missing: &mut MissingInputs) {
        let look_up = |term: &Term<E::Field>, visit: &mut Visitor<'_>| look_up(term, self, visit);
        for field in matcher.undecided_fields(look_up) {
            self.add_missing_of(&matcher.fields()[field], missing);
        }
    }

    /// Adds what a term lacks for its values.
    pub fn add_missing_of(&self, term: &Term<E::Field>, missing: &mut MissingInputs) {
        if Kept::all(|visit| look_up(term, self, visit)).is_known() {
            return;
        }
        match term {
            Term::Field(FieldTerm { name, .. }) | Term::Exists(FieldTerm { name, .. }) => {
                missing.add_field(name)
            }
            Term::Bound { name, .. } => missing.add_field(name),
            Term::Element { outward, .. } => {
                if let Some(element) = self.outward(*outward) {
                    element.of.add_names(missing);
                }
            }
            Term::Text(_) | Term::Number(_) | Term::Decimal(_) | Term::Truth(_) => {}
            Term::Holds(matcher) => self.add_missing(matcher, missing),
            Term::Call(call) if call.function.needs.iter().any(|need| need == Need::LiveSystem) => {
                missing.add_field(&Arc::from(call.function.name));
            }
            Term::Call(call) => {
                call.arguments.iter().for_each(|argument| self.add_missing_of(argument, missing));
            }
            Term::ForEach(each) => each.add_missing(self, missing),
            Term::Pattern { value, patterns, .. } => {
                self.add_missing_of(value, missing);
                patterns.iter().for_each(|pattern| self.add_missing_of(pattern, missing));
            }
        }
    }

    /// Whether the event fits a matcher.
    pub fn decide(&self, matcher: &Matcher<Term<E::Field>>) -> Result<bool, Undecided> {
        let look_up = |term: &Term<E::Field>, visit: &mut Visitor<'_>| look_up(term, self, visit);
        match self.assumes {
            true => matcher.decide_without_exceptions(look_up),
            false => matcher.decide(look_up),
        }
    }
}

impl PatternTest {
    /// Whether a value fits a pattern; `None` if that depends on what is missing.
    fn any<E: RuleEvent>(
        self,
        value: &Term<E::Field>,
        patterns: &[Term<E::Field>],
        scope: &Scope<'_, E>,
    ) -> Option<bool> {
        // Of the value and of the patterns: whether there are any, and whether all are known.
        let (mut own, mut other) = ((false, true), (patterns.is_empty(), true));
        let mut fits = false;
        let note = |side: &mut (bool, bool), value: Value<'_>| {
            side.0 = true;
            side.1 &= value.is_known();
        };
        let _ = look_up(value, scope, &mut |value| {
            note(&mut own, value);
            let text = value.to_text();
            patterns.iter().try_for_each(|pattern| {
                look_up(pattern, scope, &mut |pattern| {
                    note(&mut other, pattern);
                    let texts = text.as_deref().zip(pattern.to_text());
                    fits |= texts.is_some_and(|(text, pattern)| self.fits(text, &pattern));
                    if fits { ControlFlow::Break(()) } else { CONTINUE }
                })
            })
        });
        let is_known = own == (true, true) && other == (true, true);
        (fits || is_known).then_some(fits)
    }

    fn fits(self, text: &str, pattern: &str) -> bool {
        match self {
            PatternTest::Glob { ignores_case } => fits_pattern(text, pattern, ignores_case),
            PatternTest::Fuzzy { ignores_case, ignores_diacritics } => {
                let fold = |c: char| {
                    let c = if ignores_diacritics { texts::without_diacritics(c) } else { c };
                    if ignores_case { c.to_lowercase().next().unwrap_or(c) } else { c }
                };
                let pattern: String = pattern.chars().map(fold).collect();
                texts::is_fuzzy(text.chars().map(fold), &pattern)
            }
        }
    }
}

/// Visits values, or in compatible mode the value of a missing field if there is none.
fn or_zero(
    zero: Zero,
    mode: Mode,
    visit: &mut Visitor<'_>,
    look_up: impl FnOnce(&mut Visitor<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if mode == Mode::Strict {
        return look_up(visit);
    }
    let mut has_value = false;
    look_up(&mut |value| match value {
        Value::Unknown | Value::UnnamedFunction { .. } | Value::Absent => CONTINUE,
        value => {
            has_value = true;
            visit(value)
        }
    })?;
    if has_value { CONTINUE } else { visit(zero.value()) }
}

impl Zero {
    fn value(self) -> Value<'static> {
        match self {
            Zero::Text => Value::Text(""),
            Zero::Number => Value::Unsigned(0),
            Zero::Truth => Value::Bool(false),
            Zero::Address => Value::Text("0.0.0.0"),
            Zero::List => Value::Absent,
        }
    }
}

fn known(answer: Result<bool, Undecided>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    visit(answer.map_or(Value::Unknown, Value::Bool))
}

/// Calls `with` with the text of each value. Missing values are unknown.
fn each_text<E: RuleEvent>(
    term: &Term<E::Field>,
    scope: &Scope<'_, E>,
    visit: &mut Visitor<'_>,
    mut with: impl FnMut(&str, &mut Visitor<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut has_value = false;
    look_up(term, scope, &mut |value| {
        has_value = true;
        match value.to_text() {
            Some(text) => with(&text, visit),
            None => visit(value),
        }
    })?;
    if has_value { CONTINUE } else { visit(Value::Unknown) }
}

/// The text of the first value; otherwise whether there is none.
fn first_text<E: RuleEvent>(term: &Term<E::Field>, scope: &Scope<'_, E>) -> Result<String, Value<'static>> {
    first(term, scope, |value| value.to_text().map(Cow::into_owned))
}

fn first_integer<E: RuleEvent>(term: &Term<E::Field>, scope: &Scope<'_, E>) -> Result<i128, Value<'static>> {
    first(term, scope, |value| value.to_integer())
}

fn first<E: RuleEvent, T>(
    term: &Term<E::Field>,
    scope: &Scope<'_, E>,
    read: impl Fn(Value<'_>) -> Option<T>,
) -> Result<T, Value<'static>> {
    let mut found = Err(Value::Unknown);
    let _ = look_up(term, scope, &mut |value| {
        let none = if value == Value::Absent { Value::Absent } else { Value::Unknown };
        found = read(value).ok_or(none);
        ControlFlow::Break(())
    });
    found
}

impl<F> ForEach<F> {
    /// Whether the predicate holds for an element.
    fn decide<E: RuleEvent<Field = F>>(&self, scope: &Scope<'_, E>) -> Result<bool, Undecided> {
        let mut result = Ok(false);
        let is_complete = self.visit_elements(scope, &mut |scope| match scope.decide(&self.predicate) {
            Ok(holds) if holds == self.is_negated => CONTINUE,
            Ok(_) => {
                result = Ok(true);
                ControlFlow::Break(())
            }
            // It may hold for reasons that are no exceptions.
            Err(_) if scope.assumes && self.is_negated => {
                result = Ok(true);
                ControlFlow::Break(())
            }
            Err(undecided) => {
                result = Err(undecided);
                CONTINUE
            }
        });
        match result {
            Ok(false) if !is_complete && scope.mode == Mode::Strict => Err(Undecided(0)),
            result => result,
        }
    }

    /// Adds what is missing, in the list or for the predicate.
    fn add_missing<E: RuleEvent<Field = F>>(&self, scope: &Scope<'_, E>, missing: &mut MissingInputs) {
        let is_complete = self.visit_elements(scope, &mut |scope| {
            scope.add_missing(&self.predicate, missing);
            CONTINUE
        });
        if !is_complete {
            self.elements.add_names(missing);
        }
    }

    /// Visits the elements that are known, and returns whether these are all.
    fn visit_elements<E: RuleEvent<Field = F>>(
        &self,
        scope: &Scope<'_, E>,
        on: &mut dyn FnMut(&Scope<'_, E>) -> ControlFlow<()>,
    ) -> bool {
        let mut add = |kind: ElementKind<'_, F>| {
            let element = Element { kind, of: &self.elements, outer: scope.element };
            on(&Scope { element: Some(&element), ..*scope })
        };
        match &self.elements {
            Term::Field(FieldTerm { field, zero: Zero::List, name, .. }) if is_of_elements(name) => {
                let Some(field) = field else { return false };
                let elements = scope.event.elements(field);
                let _ = (0..elements.known).try_for_each(|index| add(ElementKind::OfField(field, index)));
                elements.is_complete
            }
            values => {
                let (mut has_value, mut is_known) = (false, true);
                let _ = look_up(values, scope, &mut |value| {
                    has_value = true;
                    match value {
                        Value::Absent => CONTINUE,
                        Value::Unknown | Value::UnnamedFunction { .. } => {
                            is_known = false;
                            CONTINUE
                        }
                        value => add(ElementKind::Value(value)),
                    }
                });
                has_value && is_known
            }
        }
    }
}

impl<F> Term<F> {
    /// Adds the names of all fields that it reads.
    fn add_names(&self, missing: &mut MissingInputs) {
        match self {
            Term::Field(FieldTerm { name, .. }) | Term::Exists(FieldTerm { name, .. }) => {
                missing.add_field(name)
            }
            Term::Bound { name, .. } => missing.add_field(name),
            Term::Call(call) => call.arguments.iter().for_each(|argument| argument.add_names(missing)),
            _ => {}
        }
    }
}

/// Whether a field has elements with parts.
fn is_of_elements(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| last.starts_with('_'))
}

impl<F> Call<F> {
    fn visit<E: RuleEvent<Field = F>>(
        &self,
        scope: &Scope<'_, E>,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        let Some((first, later)) = self.arguments.split_first() else { return CONTINUE };
        let text =
            |index: usize| later.get(index).map_or(Err(Value::Unknown), |term| first_text(term, scope));
        let integer =
            |index: usize| later.get(index).map_or(Err(Value::Unknown), |term| first_integer(term, scope));
        let is_false = |index: usize| matches!(later.get(index), Some(Term::Truth(false)));
        let each = |visit: &mut Visitor<'_>,
                    with: &mut dyn FnMut(&str, &mut Visitor<'_>) -> ControlFlow<()>| {
            each_text(first, scope, visit, with)
        };
        match self.function.name {
            "base" if is_false(0) => {
                each(visit, &mut |text, visit| visit(Value::Text(texts::file_stem(text))))
            }
            "base" => each(visit, &mut |text, visit| visit(Value::Text(texts::file_name(text)))),
            "dir" => each(visit, &mut |text, visit| visit(Value::Text(texts::folder(text)))),
            "ext" if is_false(0) => each(visit, &mut |text, visit| {
                visit(Value::Text(texts::extension(text).trim_start_matches('.')))
            }),
            "ext" => each(visit, &mut |text, visit| visit(Value::Text(texts::extension(text)))),
            "volume" => each(visit, &mut |text, visit| visit(Value::Text(texts::volume(text)))),
            "is_abs" => each(visit, &mut |text, visit| visit(Value::Bool(texts::is_absolute(text)))),
            "lower" => each(visit, &mut |text, visit| visit(Value::Text(&text.to_lowercase()))),
            "upper" => each(visit, &mut |text, visit| visit(Value::Text(&text.to_uppercase()))),
            "md5" => each(visit, &mut |text, visit| {
                let digest = Md5::digest(text.as_bytes());
                let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                visit(Value::Text(&digits))
            }),
            "entropy" => each(visit, &mut |text, visit| visit(Value::Unsigned(texts::entropy(text)))),
            "ltrim" | "rtrim" => {
                let end = match text(0) {
                    Ok(end) => end,
                    Err(none) => return visit(none),
                };
                let is_left = self.function.name == "ltrim";
                each(visit, &mut |text, visit| {
                    let cut = if is_left { text.strip_prefix(&*end) } else { text.strip_suffix(&*end) };
                    visit(Value::Text(cut.unwrap_or(text)))
                })
            }
            "split" => {
                let separator = match text(0) {
                    Ok(separator) => separator,
                    Err(none) => return visit(none),
                };
                each(visit, &mut |text, visit| {
                    text.split(&*separator).try_for_each(|part| visit(Value::Text(part)))
                })
            }
            "substr" => {
                let start = match integer(0) {
                    Ok(start) => start,
                    Err(none) => return visit(none),
                };
                let end = match (later.len() > 1).then(|| integer(1)).transpose() {
                    Ok(end) => end,
                    Err(none) => return visit(none),
                };
                each(visit, &mut |text, visit| visit(Value::Text(texts::part(text, start, end))))
            }
            "indexof" => {
                let wanted = match text(0) {
                    Ok(wanted) => wanted,
                    Err(none) => return visit(none),
                };
                let order = if later.len() > 1 { text(1).ok() } else { Some("first".to_owned()) };
                each(visit, &mut |text, visit| {
                    let found = order.as_deref().and_then(|order| texts::index_of(text, &wanted, order));
                    visit(found.map_or(Value::Unknown, Value::Signed))
                })
            }
            "replace" => {
                let all: Vec<String> = match (0..later.len()).map(text).collect() {
                    Ok(all) => all,
                    Err(none) => return visit(none),
                };
                each(visit, &mut |text, visit| {
                    let mut replaced = text.to_owned();
                    for pair in all.as_chunks::<2>().0 {
                        replaced = bounded(replaced.replace(&*pair[0], &pair[1]));
                    }
                    visit(Value::Text(&replaced))
                })
            }
            "concat" => {
                let all: Result<String, _> =
                    self.arguments.iter().map(|argument| first_text(argument, scope)).collect();
                match all {
                    Ok(all) => visit(Value::Text(&bounded(all))),
                    Err(none) => visit(none),
                }
            }
            "length" => length(first, scope, visit),
            "count" => self.count(first, later, scope, visit),
            "cidr_contains" => {
                let Prepared::Networks(networks) = &self.prepared else { return CONTINUE };
                each(visit, &mut |text, visit| {
                    let address: Option<IpAddr> = text.parse().ok();
                    let contains = address
                        .is_some_and(|address| networks.iter().any(|network| network.contains(address)));
                    visit(Value::Bool(contains))
                })
            }
            "regex" => {
                let Prepared::Expressions(set) = &self.prepared else { return CONTINUE };
                each(visit, &mut |text, visit| visit(Value::Bool(set.is_match(text))))
            }
            // The others ask the running system.
            _ => CONTINUE,
        }
    }

    /// The number of values that fit a pattern; of a text, the number of its words.
    fn count<E: RuleEvent<Field = F>>(
        &self,
        first: &Term<F>,
        later: &[Term<F>],
        scope: &Scope<'_, E>,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        let pattern = match later.first().map_or(Err(Value::Unknown), |term| first_text(term, scope)) {
            Ok(pattern) => pattern,
            Err(none) => return visit(none),
        };
        let ignores_case = !matches!(later.get(1), Some(Term::Truth(false)));
        let is_list = first.is_list();
        let (mut count, mut has_value, mut is_known) = (0, false, true);
        let _ = look_up(first, scope, &mut |value| {
            has_value = true;
            is_known &= value.is_known();
            let text = value.to_text().unwrap_or_default();
            let fits = |text: &str| u64::from(fits_pattern(text, &pattern, ignores_case));
            count += match is_list {
                _ if matches!(value, Value::Unknown | Value::Absent) => 0,
                true => fits(&text),
                false => text.split_whitespace().map(fits).sum(),
            };
            CONTINUE
        });
        visit(if has_value && is_known { Value::Unsigned(count) } else { Value::Unknown })
    }
}

/// The number of values of a list, or of characters of a text.
fn length<E: RuleEvent>(
    term: &Term<E::Field>,
    scope: &Scope<'_, E>,
    visit: &mut Visitor<'_>,
) -> ControlFlow<()> {
    if !term.is_list() {
        return each_text(term, scope, visit, |text, visit| {
            visit(Value::Unsigned(text.chars().count() as u64))
        });
    }
    let (mut count, mut has_value, mut is_known) = (0, false, true);
    let _ = look_up(term, scope, &mut |value| {
        has_value = true;
        is_known &= value.is_known();
        count += u64::from(!matches!(value, Value::Unknown | Value::Absent));
        CONTINUE
    });
    visit(if has_value && is_known { Value::Unsigned(count) } else { Value::Unknown })
}

impl<F> Term<F> {
    /// Whether it has several values.
    fn is_list(&self) -> bool {
        match self {
            Term::Field(FieldTerm { zero, .. }) | Term::Bound { zero, .. } => *zero == Zero::List,
            Term::Call(call) => match call.function.name {
                "split" => true,
                "base" | "dir" => call.arguments.first().is_some_and(Term::is_list),
                _ => false,
            },
            _ => false,
        }
    }
}

/// The limit of the texts that functions build, in bytes.
const TEXT_MAX: usize = 1 << 20;

fn bounded(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
    }
    text
}
