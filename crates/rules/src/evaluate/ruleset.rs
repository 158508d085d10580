//! Rules that are compiled for a source of events, by the names of the events they are about.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use stackhound_expr::Matcher;

use super::compile::{Compiler, FieldNames};
use super::correlation::CorrelationState;
use super::look_up::{Scope, look_up};
use super::missing::{Missing, MissingInputs};
use super::sequence::{Certainty, Chain, ChainEvent, Kept, Key, Position, SequenceState};
use super::template::{self, TemplatePart};
use super::term::Term;
use super::{FieldRef, Mode, ResolvedField, RuleEvent};
use crate::error::Error;
use crate::events::EventName;
use crate::fields::Field;
use crate::parse::SPAN_MAX;
use crate::rule::{Library, RuleCondition};
use crate::source::Span;
use crate::syntax::{
    Condition, Correlation, CorrelationKind, Expression, ExpressionKind, FieldUse, Sequence,
};

/// The answer of a rule that is not no.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Something is missing.
    Undetermined,
    /// The rule applies unless one of its exceptions does, for which something is missing.
    Possible,
    /// The rule applies.
    Yes,
}

impl Verdict {
    fn of(certainty: Certainty) -> Verdict {
        match certainty {
            Certainty::Certain => Verdict::Yes,
            Certainty::Possible => Verdict::Possible,
            Certainty::Undetermined => Verdict::Undetermined,
        }
    }
}

/// The answer of a rule for an event.
#[derive(Debug)]
pub struct Answer<'a, E: RuleEvent> {
    /// The index of the rule in the library.
    pub rule: usize,
    /// The answer.
    pub verdict: Verdict,
    /// What is missing; nothing if the answer is yes.
    pub missing: MissingInputs,
    chain: &'a [ChainEvent],
    output: &'a [OutputPart<E::Field>],
    event: &'a E,
    mode: Mode,
    values: &'a [OnceCell<Kept>],
}

/// An answer without the event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleAnswer {
    /// The index of the rule in the library.
    pub rule: usize,
    /// The answer; never no.
    pub verdict: Verdict,
    /// What is missing; nothing if the answer is yes.
    pub missing: MissingInputs,
    /// The text for people; empty if the rule has none.
    pub text: String,
    /// The earlier events of a sequence, in their order.
    pub earlier: Vec<Position>,
}

impl<E: RuleEvent> From<&Answer<'_, E>> for RuleAnswer {
    fn from(answer: &Answer<'_, E>) -> RuleAnswer {
        RuleAnswer {
            rule: answer.rule,
            verdict: answer.verdict,
            missing: answer.missing.clone(),
            text: answer.text(),
            earlier: answer.earlier().collect(),
        }
    }
}

impl<E: RuleEvent> Answer<'_, E> {
    /// The earlier events of a sequence, in their order.
    pub fn earlier(&self) -> impl Iterator<Item = Position> {
        self.chain.iter().map(|event| event.at)
    }

    /// The text that the rule has for people, with the values of this event; empty if it has none.
    pub fn text(&self) -> String {
        let (event, mode, values) = (self.event, self.mode, self.values);
        let scope = Scope { event, mode, values, kept: Some(&[]), assumes: false, element: None };
        let parts = self.output.iter().map(|part| match part {
            OutputPart::Text(text) => text.clone(),
            OutputPart::Own(term) => shown(&Kept::of(|visit| look_up(term, &scope, visit))),
            OutputPart::Earlier { slot, index } => {
                self.chain.get(*slot).and_then(|event| event.shown.get(*index)).map_or_else(missing, shown)
            }
        });
        parts.collect()
    }
}

fn shown(kept: &Kept) -> String {
    kept.to_text().unwrap_or_else(missing)
}

fn missing() -> String {
    "?".to_owned()
}

/// A part of the text of a finding.
#[derive(Debug)]
enum OutputPart<F> {
    Text(String),
    /// A field of the last event.
    Own(Term<F>),
    /// A value of an earlier event.
    Earlier {
        slot: usize,
        index: usize,
    },
}

/// The condition of a rule for events with one name.
#[derive(Debug)]
struct Entry<F> {
    /// The index in [`RuleSet::rules`].
    rule: usize,
    slot: usize,
    matcher: Matcher<Term<F>>,
    /// Whether conditions of the rule refer to events of earlier slots.
    uses_bound: bool,
    by: Vec<Term<F>>,
    /// What later conditions refer to.
    bound: Vec<Term<F>>,
    /// What the text of the finding refers to.
    shown: Vec<Term<F>>,
    /// The text of the finding, if the event can be the last one.
    output: Vec<OutputPart<F>>,
    correlated: Vec<Correlated<F>>,
}

/// The use of a rule by a correlation.
#[derive(Debug)]
struct Correlated<F> {
    /// The index in [`RuleSet::correlations`].
    correlation: usize,
    /// The position among its rules.
    position: usize,
    group: Vec<Term<F>>,
    value: Option<Term<F>>,
}

/// A rule that is used.
#[derive(Debug)]
struct Compiled {
    /// The index in the library.
    index: usize,
    /// Whether only correlations use its answers.
    is_silent: bool,
    /// The state and the number of slots of a sequence.
    sequence: Option<(SequenceState, usize)>,
}

/// The numbers of answers of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The rule applied.
    pub yes: u64,
    /// It applied unless an exception did.
    pub possible: u64,
    /// It was not determined.
    pub undetermined: u64,
    /// Keys of sequences that were dropped to bound the memory.
    pub dropped: u64,
}

impl Counts {
    fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Yes => &mut self.yes,
            Verdict::Possible => &mut self.possible,
            Verdict::Undetermined => &mut self.undetermined,
        } += 1;
    }
}

/// Whether a condition can be compiled.
pub(crate) fn check(condition: &RuleCondition) -> Result<(), Error> {
    if condition.tree.expressions().is_empty() {
        return Ok(());
    }
    let rule = Rule {
        slots: Slots::of(&condition.tree),
        names: &condition.events,
        output: Vec::new(),
        index: 0,
        correlated: Vec::new(),
        mode: Mode::Strict,
    };
    rule.entries::<()>(&mut FieldsByName::default(), &mut |_, _| None).map(drop)
}

/// The rules of a library for a source with fields of type `F`.
#[derive(Debug)]
pub struct RuleSet<F> {
    mode: Mode,
    rules: Vec<Compiled>,
    /// Correlations with their indexes in the library.
    correlations: Vec<(usize, CorrelationState)>,
    /// By the index of the name.
    entries: Vec<Vec<Entry<F>>>,
    /// The values of the fields of one event, with as many cells as any event needs.
    values: Vec<OnceCell<Kept>>,
    /// By the index in the library.
    counts: Vec<Counts>,
}

impl<F> RuleSet<F> {
    /// Compiles all rules of a library that are enabled and have no errors. `resolve` is called with
    /// each field and the name of the event; `None` if the source never has it.
    pub fn new(
        library: &Library,
        mode: Mode,
        mut resolve: impl FnMut(FieldRef<'_>, EventName) -> Option<ResolvedField<F>>,
    ) -> RuleSet<F> {
        let mut set = RuleSet {
            mode,
            rules: Vec::new(),
            correlations: Vec::new(),
            entries: EventName::all().map(|_| Vec::new()).collect(),
            values: Vec::new(),
            counts: vec![Counts::default(); library.rules.len()],
        };
        let mut fields = FieldsByName::default();
        let correlations = Correlations::of(library);
        set.correlations = correlations.states();
        for (index, rule) in library.rules.iter().enumerate() {
            let Ok(condition) = &rule.condition else { continue };
            if !rule.head.is_enabled {
                continue;
            }
            if condition.tree.expressions().is_empty() {
                continue;
            }
            let compiled = Rule {
                slots: Slots::of(&condition.tree),
                names: &condition.events,
                output: template::parts(&rule.head.output),
                index: set.rules.len(),
                correlated: correlations.of_rule(rule),
                mode,
            };
            // Libraries contain no conditions that cannot be compiled.
            let Ok(entries) = compiled.entries(&mut fields, &mut resolve) else { continue };
            let is_silent = correlations.silences(rule);
            set.rules.push(Compiled { index, is_silent, sequence: compiled.slots.state(mode) });
            entries.into_iter().for_each(|(name, entry)| set.entries[name.index()].push(entry));
        }
        let most = fields.values().map(FieldNames::len).max().unwrap_or(0);
        set.values = vec![OnceCell::new(); most];
        set
    }

    /// The number of rules that are evaluated.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether no rule is evaluated.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a rule is about events with this name.
    pub fn is_about(&self, name: EventName) -> bool {
        !self.entries[name.index()].is_empty()
    }

    /// The numbers of answers of a rule, by its index in the library.
    pub fn counts(&self, rule: usize) -> Counts {
        let state = self.rules.iter().find(|compiled| compiled.index == rule);
        let of_sequence =
            state.and_then(|compiled| compiled.sequence.as_ref()).map(|(state, _)| state.dropped);
        let correlation = self.correlations.iter().find(|(index, _)| *index == rule);
        let dropped = of_sequence.or(correlation.map(|(_, state)| state.dropped)).unwrap_or(0);
        Counts { dropped, ..self.counts[rule] }
    }

    /// Events of any name were lost at a time, in units of 100 ns: sequences that may have needed
    /// them are undetermined.
    pub fn lose(&mut self, time: i64) {
        for (state, _) in self.rules.iter_mut().filter_map(|rule| rule.sequence.as_mut()) {
            state.lose(time);
        }
    }

    /// Evaluates all rules about events with this name, and calls `on` for each answer that is not
    /// no. Events must be passed in the order of their positions.
    pub fn evaluate<E: RuleEvent<Field = F>>(
        &mut self,
        name: EventName,
        at: Position,
        event: &E,
        mut on: impl FnMut(&Answer<'_, E>),
    ) {
        let RuleSet { mode, rules, entries, values, counts, correlations } = self;
        let mode = *mode;
        values.iter_mut().for_each(|value| drop(value.take()));
        let values: &[OnceCell<Kept>] = values;
        for entry in &entries[name.index()] {
            let Compiled { index, is_silent, sequence } = &mut rules[entry.rule];
            let found =
                match sequence {
                    None => entry
                        .decide((event, values), mode, Some(&[]))
                        .map(|(certainty, missing)| Found { certainty, missing, chain: Vec::new() }),
                    Some((state, slots)) => entry.advance((event, values), mode, at, state, *slots),
                };
            let Some(Found { certainty, missing, chain }) = found else { continue };
            let mut answer =
                |rule: usize, certainty, missing: MissingInputs, chain: &[ChainEvent], output| {
                    let verdict = Verdict::of(certainty);
                    counts[rule].add(verdict);
                    let missing = if verdict == Verdict::Yes { MissingInputs::NONE } else { missing };
                    on(&Answer { rule, verdict, missing, chain, output, event, mode, values });
                };
            if !*is_silent {
                answer(*index, certainty, missing.clone(), &chain, &entry.output);
            }
            for correlated in &entry.correlated {
                let scope = Scope { event, mode, values, kept: Some(&[]), assumes: false, element: None };
                let kept = |term: &Term<F>| Kept::of(|visit| look_up(term, &scope, visit));
                let group = correlated.group.iter().map(kept).collect();
                let value = correlated.value.as_ref().map(kept).unwrap_or_default();
                let (rule, state) = &mut correlations[correlated.correlation];
                let of_rule = (correlated.position, certainty, missing.clone());
                let Some((certainty, missing, earlier)) = state.add(group, at, of_rule, value) else {
                    continue;
                };
                let shown: Arc<[Kept]> = Arc::default();
                let chain: Vec<ChainEvent> =
                    earlier.into_iter().map(|at| ChainEvent { at, shown: Arc::clone(&shown) }).collect();
                answer(*rule, certainty, missing, &chain, &[]);
            }
        }
    }
}

/// A complete condition.
struct Found {
    certainty: Certainty,
    missing: MissingInputs,
    chain: Vec<ChainEvent>,
}

impl<F> Entry<F> {
    /// Whether the condition holds; `None` if it does not. `kept`: values of events of earlier slots,
    /// `None` if they are not known yet.
    fn decide<E: RuleEvent<Field = F>>(
        &self,
        (event, values): (&E, &[OnceCell<Kept>]),
        mode: Mode,
        kept: Option<&[Kept]>,
    ) -> Option<(Certainty, MissingInputs)> {
        let scope = Scope { event, mode, values, kept, assumes: false, element: None };
        match scope.decide(&self.matcher) {
            Ok(false) => None,
            Ok(true) => Some((Certainty::Certain, MissingInputs::NONE)),
            // Only lists have no value.
            Err(_) if mode == Mode::Compatible && kept.is_some() => None,
            Err(_) => {
                let mut missing = MissingInputs::NONE;
                scope.add_missing(&self.matcher, &mut missing);
                let passes = Scope { assumes: true, ..scope }.decide(&self.matcher) == Ok(true);
                let certainty = if passes { Certainty::Possible } else { Certainty::Undetermined };
                Some((certainty, missing))
            }
        }
    }

    /// Continues and completes the chains of a sequence.
    fn advance<E: RuleEvent<Field = F>>(
        &self,
        (event, values): (&E, &[OnceCell<Kept>]),
        mode: Mode,
        at: Position,
        state: &mut SequenceState,
        slots: usize,
    ) -> Option<Found> {
        // What is not bound yet is unknown, so this is no only if it is no for all earlier events.
        let bound = if self.uses_bound && self.slot > 0 { None } else { Some(&[][..]) };
        let (certainty, missing) = self.decide((event, values), mode, bound)?;
        let scope = Scope { event, mode, values, kept: Some(&[]), assumes: false, element: None };
        let kept = |terms: &[Term<F>]| -> Vec<Kept> {
            terms.iter().map(|term| Kept::of(|visit| look_up(term, &scope, visit))).collect()
        };
        let by = Key::by(kept(&self.by).into_iter(), mode);
        let mut key_missing = MissingInputs::NONE;
        if !by.iter().all(Kept::is_known) {
            self.by.iter().for_each(|term| scope.add_missing_of(term, &mut key_missing));
        }
        let is_last = self.slot + 1 == slots;
        let mut next = Vec::new();
        let mut add = |bound: &[Kept], mut chain: Chain, certainty: Certainty, missing: &MissingInputs| {
            chain.certainty = chain.certainty.min(certainty);
            chain.missing.add_all(missing);
            next.push((bound.to_vec(), chain));
        };
        if self.slot == 0 {
            add(&[], Chain::default(), certainty, &missing);
        } else if self.uses_bound {
            for key in state.keys(self.slot, &by, at) {
                let Some((certainty, missing)) = self.decide((event, values), mode, Some(&key.bound)) else {
                    continue;
                };
                let is_same = key.agrees(&by).is_some();
                for chain in state.chains_of(self.slot, &key, at) {
                    let chain = if is_same { chain } else { chain.with_unknown_key(&key_missing) };
                    add(&key.bound, chain, certainty, &missing);
                }
            }
        } else {
            for chain in state.before(self.slot, &by, &key_missing, at) {
                add(&[], chain, certainty, &missing);
            }
        }
        if is_last {
            return complete(next.into_iter().map(|(_, chain)| chain).collect(), state.has_lost(at));
        }
        let (own, shown): (Vec<Kept>, Arc<[Kept]>) = (kept(&self.bound), kept(&self.shown).into());
        for (mut bound, mut chain) in next {
            bound.extend(own.iter().cloned());
            chain.events.push(ChainEvent { at, shown: Arc::clone(&shown) });
            chain.key_missing = key_missing.clone();
            state.keep(Key { by: by.clone(), bound: bound.into() }, chain);
        }
        None
    }
}

/// The answer about the complete chains of an event. If the best one turns out not to exist, any other may.
fn complete(chains: Vec<Chain>, has_lost: bool) -> Option<Found> {
    let mut missing = MissingInputs::NONE;
    chains.iter().for_each(|chain| missing.add_all(&chain.missing));
    if has_lost {
        missing.add(Missing::Events);
    }
    match chains.into_iter().max_by_key(|chain| (chain.certainty, first(chain))) {
        Some(chain) => Some(Found { certainty: chain.certainty, missing, chain: chain.events }),
        None if has_lost => Some(Found { certainty: Certainty::Undetermined, missing, chain: Vec::new() }),
        None => None,
    }
}

fn first(chain: &Chain) -> Option<Position> {
    chain.events.first().map(|event| event.at)
}

/// The correlations of a library with their indexes.
struct Correlations<'l>(Vec<(usize, &'l Correlation)>);

impl<'l> Correlations<'l> {
    fn of(library: &'l Library) -> Correlations<'l> {
        let one = |(index, rule): (usize, &'l crate::rule::Rule)| match &rule.condition.as_ref().ok()?.tree {
            Condition::Correlation(correlation) if rule.head.is_enabled => Some((index, correlation)),
            _ => None,
        };
        Correlations(library.rules.iter().enumerate().filter_map(one).collect())
    }

    fn states(&self) -> Vec<(usize, CorrelationState)> {
        self.0.iter().map(|(index, correlation)| (*index, CorrelationState::new(correlation))).collect()
    }

    fn of_rule(&self, rule: &crate::rule::Rule) -> Vec<(usize, usize, &'l Correlation)> {
        let mut uses = Vec::new();
        for (number, (_, correlation)) in self.0.iter().enumerate() {
            for (position, name) in correlation.rules.iter().enumerate() {
                if rule.head.is_named(name) {
                    uses.push((number, position, *correlation));
                }
            }
        }
        uses
    }

    /// Whether only correlations use a rule.
    fn silences(&self, rule: &crate::rule::Rule) -> bool {
        let uses = self.of_rule(rule);
        !uses.is_empty() && uses.iter().all(|(_, _, correlation)| !correlation.generate)
    }
}

/// The fields that rules read, by the index of the name of the event.
type FieldsByName = BTreeMap<usize, FieldNames>;

/// A rule while it is compiled.
struct Rule<'r> {
    slots: Slots<'r>,
    /// The names of the events of each slot.
    names: &'r [Vec<String>],
    output: Vec<TemplatePart>,
    /// The index in [`RuleSet::rules`].
    index: usize,
    /// The correlations that use it: their index, the position among their rules, and themselves.
    correlated: Vec<(usize, usize, &'r Correlation)>,
    mode: Mode,
}

/// The conditions of a rule in their order.
struct Slots<'r> {
    conditions: Vec<&'r Expression>,
    sequence: Option<&'r Sequence>,
    /// The fields of earlier events that later conditions refer to, sorted by slot.
    bound: Vec<(usize, &'r FieldUse)>,
}

impl<'r> Slots<'r> {
    fn of(condition: &'r Condition) -> Slots<'r> {
        let conditions = condition.expressions();
        let Condition::Sequence(sequence) = condition else {
            return Slots { conditions, sequence: None, bound: Vec::new() };
        };
        let mut bound: Vec<(usize, &FieldUse)> = Vec::new();
        for expression in &conditions {
            for_each_bound(expression, &mut |alias, field| {
                let slot = sequence.slots.iter().position(|slot| slot.alias.as_deref() == Some(alias));
                let is_known =
                    |(known, used): &(usize, &FieldUse)| Some(*known) == slot && is_same(used, field);
                if let Some(slot) = slot
                    && !bound.iter().any(is_known)
                {
                    bound.push((slot, field));
                }
            });
        }
        bound.sort_by_key(|(slot, _)| *slot);
        Slots { conditions, sequence: Some(sequence), bound }
    }

    fn state(&self, mode: Mode) -> Option<(SequenceState, usize)> {
        let sequence = self.sequence.filter(|sequence| sequence.slots.len() > 1)?;
        let span = sequence.max_span.unwrap_or(SPAN_MAX);
        let span = i64::try_from(span.as_nanos() / 100).unwrap_or(i64::MAX);
        let slots = sequence.slots.len();
        Some((SequenceState::new(slots, span, !self.bound.is_empty(), mode), slots))
    }

    /// The index of a bound field.
    fn index(&self, alias: &str, field: &FieldUse) -> usize {
        let slots = self.sequence.map_or(&[][..], |sequence| &sequence.slots);
        let slot = slots.iter().position(|slot| slot.alias.as_deref() == Some(alias));
        let found = self.bound.iter().position(|(known, used)| Some(*known) == slot && is_same(used, field));
        found.unwrap_or(usize::MAX)
    }
}

fn is_same(one: &FieldUse, other: &FieldUse) -> bool {
    one.field.name == other.field.name && one.argument == other.argument
}

fn for_each_bound<'e>(expression: &'e Expression, on: &mut impl FnMut(&str, &'e FieldUse)) {
    if let ExpressionKind::Bound { alias, field } = &expression.kind {
        on(alias, field);
    }
    expression.parts().into_iter().for_each(|part| for_each_bound(part, on));
}

impl Rule<'_> {
    fn entries<F>(
        &self,
        fields: &mut FieldsByName,
        resolve: &mut impl FnMut(FieldRef<'_>, EventName) -> Option<ResolvedField<F>>,
    ) -> Result<Vec<(EventName, Entry<F>)>, Error> {
        let mut entries = Vec::new();
        let last = self.slots.conditions.len() - 1;
        // Of one event, the later slots come first, so that it is not used twice in a chain.
        for (slot, condition) in self.slots.conditions.iter().enumerate().rev() {
            for name in self.names[slot].iter().filter_map(|name| EventName::of(name)) {
                let mut of_event = |field: FieldRef<'_>| resolve(field, name);
                let mut compiler = Compiler {
                    event: name.event(),
                    mode: self.mode,
                    names: fields.entry(name.index()).or_default(),
                    resolve: &mut of_event,
                    bound: &|alias, field| self.slots.index(alias, field),
                    variables: Vec::new(),
                    is_negated: false,
                };
                let Some(matcher) = compiler.matcher(condition)? else { continue };
                let mut field = |field: &FieldUse| Term::Field(compiler.field(field));
                let by = self.slots.sequence.map_or(&[][..], |sequence| &sequence.slots[slot].by);
                let by = by.iter().map(&mut field).collect();
                let bound = self.slots.bound.iter().filter(|(known, _)| *known == slot);
                let bound = bound.map(|(_, used)| field(used)).collect();
                let correlated = if slot == last { self.uses(&mut compiler) } else { Vec::new() };
                let mut field = |field: &FieldUse| Term::Field(compiler.field(field));
                let span = &condition.span;
                let shown = self.shown(slot, span).iter().map(&mut field).collect();
                let output = if slot == last { self.output(span, &mut field) } else { Vec::new() };
                let uses_bound = !self.slots.bound.is_empty();
                entries.push((
                    name,
                    Entry {
                        rule: self.index,
                        slot,
                        matcher,
                        uses_bound,
                        by,
                        bound,
                        shown,
                        output,
                        correlated,
                    },
                ));
            }
        }
        Ok(entries)
    }

    fn uses<F>(&self, compiler: &mut Compiler<'_, F>) -> Vec<Correlated<F>> {
        let mut one = |(correlation, position, used): &(usize, usize, &Correlation)| {
            let mut data = |name: &String| Term::Field(compiler.data(name));
            Correlated {
                correlation: *correlation,
                position: *position,
                group: used.group_by.iter().map(&mut data).collect(),
                value: match &used.kind {
                    CorrelationKind::ValueCount(_, field) => Some(data(field)),
                    _ => None,
                },
            }
        };
        self.correlated.iter().map(&mut one).collect()
    }

    /// The fields of the event of a slot in the text of the finding.
    fn shown(&self, wanted: usize, span: &Span) -> Vec<FieldUse> {
        let fields = self.output.iter().filter_map(|part| match part {
            TemplatePart::Field { slot: Some(slot), name, argument } if *slot == wanted => {
                field_use(name, argument.as_ref(), span)
            }
            _ => None,
        });
        fields.collect()
    }

    fn output<F>(&self, span: &Span, field: &mut impl FnMut(&FieldUse) -> Term<F>) -> Vec<OutputPart<F>> {
        let last = self.slots.conditions.len() - 1;
        let mut used = vec![0; last];
        let parts = self.output.iter().filter_map(|part| match part {
            TemplatePart::Text(text) => Some(OutputPart::Text(text.clone())),
            TemplatePart::Field { slot: Some(slot), .. } if *slot < last => {
                used[*slot] += 1;
                Some(OutputPart::Earlier { slot: *slot, index: used[*slot] - 1 })
            }
            TemplatePart::Field { name, argument, .. } => {
                field_use(name, argument.as_ref(), span).map(|used| OutputPart::Own(field(&used)))
            }
        });
        parts.collect()
    }
}

fn field_use(name: &str, argument: Option<&String>, span: &Span) -> Option<FieldUse> {
    Some(FieldUse { field: Field::of(name)?, argument: argument.cloned(), span: span.clone() })
}
