//! Events for which a condition holds, found by repairing one comparison after the other.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use stackhound_rules::evaluate::{Mode, Position};
use stackhound_rules::syntax::{Condition, Expression, ExpressionKind, FieldUse, Sequence};
use stackhound_rules::{EventName, RuleCondition, Type};

use crate::chains::has_same_key;
use crate::event::{Data, Datum, Event, List, key, text};
use crate::literal::{Item, Scope, Truth, part_type};
use crate::random::Random;

const NEUTRAL: &str = r"C:\Other\thing.xyz";
const TEXTS: [&str; 6] = [NEUTRAL, "", r"C:\foo\foo.dll", r"C:\a:b", "8.8.8.8", "x"];
const STEPS_MAX: usize = 400;
const ATTEMPTS_MAX: usize = 12;

/// A value that conditions read in the events of a condition.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    Field { slot: usize, key: String, value_type: Type },
    Part { slot: usize, list: String, index: usize, part: String },
}

/// A condition with what its events consist of.
pub struct Solver<'c> {
    condition: &'c RuleCondition,
    mode: Mode,
    /// All texts of the condition, and pieces of them between wildcards.
    pieces: Vec<String>,
    /// The parts that are used of the elements of each field.
    parts: BTreeMap<String, Vec<String>>,
    pub random: Random,
}

/// A variable, the field with its elements, and the index of one.
type Variables = Vec<(String, String, usize)>;

/// A comparison or another part without parts, and what it must be.
struct Goal<'c> {
    part: &'c Expression,
    wanted: Truth,
    slot: usize,
    variables: Variables,
}

fn for_each<'e>(expression: &'e Expression, on: &mut impl FnMut(&'e Expression)) {
    on(expression);
    expression.parts().into_iter().for_each(|part| for_each(part, on));
}

/// The parts of the top level, all of which must hold.
pub fn conjuncts(expression: &Expression) -> Vec<&Expression> {
    match &expression.resolved().kind {
        ExpressionKind::And(parts) => parts.iter().flat_map(conjuncts).collect(),
        _ => vec![expression],
    }
}

fn texts_of(expression: &Expression) -> Vec<String> {
    let mut texts = Vec::new();
    for_each(expression, &mut |part| match &part.kind {
        ExpressionKind::Text(text) => texts.push(text.clone()),
        ExpressionKind::Address(address) => texts.push(address.to_string()),
        _ => {}
    });
    texts
}

fn numbers_of(expression: &Expression) -> Vec<i64> {
    let mut numbers = Vec::new();
    for_each(expression, &mut |part| {
        if let ExpressionKind::Integer(number) = part.kind {
            numbers.push(number as i64);
        }
    });
    numbers
}

fn neutral(value_type: Type) -> Data {
    match value_type {
        Type::Number | Type::Time => vec![Datum::Number(7)],
        Type::Truth => vec![Datum::Truth(false)],
        Type::Address => vec![text("8.8.8.8")],
        _ => vec![text(NEUTRAL)],
    }
}

fn field_type(field: &FieldUse) -> Type {
    match field.field.value_type {
        Type::Texts if field.argument.is_some() => Type::Text,
        value_type => value_type,
    }
}

impl<'c> Solver<'c> {
    pub fn new(condition: &'c RuleCondition, mode: Mode, seed: u64) -> Solver<'c> {
        let (mut pieces, mut parts) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
        for expression in condition.tree.expressions() {
            for text in texts_of(expression) {
                pieces.extend(text.split(['*', '?']).map(|piece| piece.trim_matches([':', '\\']).to_owned()));
            }
            for_each(expression, &mut |part| {
                let ExpressionKind::Call { function, arguments } = &part.kind else { return };
                if !function.has_variable {
                    return;
                }
                let ExpressionKind::Field(field) = &arguments[0].kind else { return };
                let used = parts.entry(key(field)).or_default();
                for_each(&arguments[2], &mut |inner| {
                    if let ExpressionKind::Element { part: Some(part), .. } = &inner.kind {
                        used.push(part.clone());
                    }
                });
            });
        }
        pieces.retain(|piece| !piece.is_empty());
        Solver { condition, mode, pieces, parts, random: Random(seed) }
    }

    fn sequence(&self) -> Option<&'c Sequence> {
        match &self.condition.tree {
            Condition::Event(_) | Condition::Correlation(_) => None,
            Condition::Sequence(sequence) => Some(sequence),
        }
    }

    /// The fields of each slot: also those that later slots and `by` refer to.
    fn fields(&self) -> Vec<Vec<&'c FieldUse>> {
        let expressions = self.condition.tree.expressions();
        let mut fields = vec![Vec::new(); expressions.len()];
        for (slot, expression) in expressions.into_iter().enumerate() {
            for_each(expression, &mut |part| match &part.kind {
                ExpressionKind::Field(field) => fields[slot].push(field),
                ExpressionKind::Bound { alias, field } => fields[self.slot(alias)].push(field),
                _ => {}
            });
        }
        for (slot, one) in self.sequence().into_iter().flat_map(|sequence| sequence.slots.iter().enumerate())
        {
            fields[slot].extend(&one.by);
        }
        fields
    }

    fn slot(&self, alias: &str) -> usize {
        let mut slots = self.sequence().into_iter().flat_map(|sequence| &sequence.slots);
        slots.position(|slot| slot.alias.as_deref() == Some(alias)).expect("a slot")
    }

    /// All inputs of the events.
    pub fn inputs(&self, events: &[Event]) -> Vec<Input> {
        let mut inputs = Vec::new();
        for (slot, fields) in self.fields().into_iter().enumerate() {
            for field in fields {
                if matches!(field.field.value_type, Type::Elements(_)) {
                    let list = &events[slot].lists[&key(field)];
                    for (index, element) in list.elements.iter().enumerate() {
                        inputs.extend(element.keys().map(|part| Input::Part {
                            slot,
                            list: key(field),
                            index,
                            part: part.clone(),
                        }));
                    }
                } else if !field.field.name.starts_with("evt.name") && field.field.name != "evt.category" {
                    inputs.push(Input::Field { slot, key: key(field), value_type: field_type(field) });
                }
            }
        }
        inputs
    }

    /// Events with values that mean nothing.
    fn start(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (slot, fields) in self.fields().into_iter().enumerate() {
            let name = self.random.pick(&self.condition.events[slot]).clone();
            let mut event = Event::new(if EventName::of(&name).is_some() { &name } else { "CreateProcess" });
            event.at = Position { time: slot as i64 * 10_000_000, record: slot as u64 };
            for field in fields {
                if matches!(field.field.value_type, Type::Elements(_)) {
                    event.lists.insert(key(field), List { elements: Vec::new(), is_complete: true });
                } else if !matches!(field.field.name, "evt.name" | "evt.category") {
                    event.fields.insert(key(field), neutral(field_type(field)));
                }
            }
            events.push(event);
        }
        events
    }

    /// Whether a part holds for the event of a slot.
    pub fn holds(&self, part: &Expression, events: &[Event], slot: usize, variables: &Variables) -> Truth {
        self.with_scope(events, slot, variables, |scope| scope.holds(part, false))
    }

    fn with_scope<T>(
        &self,
        events: &[Event],
        slot: usize,
        variables: &Variables,
        read: impl FnOnce(Scope<'_>) -> T,
    ) -> T {
        let slots = self.sequence().map_or(&[][..], |sequence| &sequence.slots);
        let earlier: Vec<_> =
            slots.iter().zip(events).take(slot).map(|(slot, event)| (slot.alias.clone(), event)).collect();
        let event = &events[slot];
        let item = |(name, list, index): &(String, String, usize)| {
            (name.clone(), Item::Element(&event.lists[list], *index))
        };
        let variables: Vec<_> = variables.iter().map(item).collect();
        read(Scope { earlier: &earlier, variables: &variables, ..Scope::of(event, self.mode) })
    }

    /// One event for each slot, for which the condition holds.
    pub fn solve(&mut self) -> Option<Vec<Event>> {
        (0..ATTEMPTS_MAX).find_map(|_| {
            let mut events = self.start();
            (0..STEPS_MAX).any(|_| self.step(&mut events)).then_some(events)
        })
    }

    /// Repairs something; true if nothing was wrong.
    fn step(&mut self, events: &mut [Event]) -> bool {
        let mut wrong: Vec<(usize, bool)> = Vec::new();
        for (slot, expression) in self.condition.tree.expressions().into_iter().enumerate() {
            if self.holds(expression, events, slot, &Vec::new()) != Truth::Yes {
                wrong.push((slot, true));
            }
            if let Some(sequence) = self.sequence().filter(|_| slot > 0)
                && has_same_key(sequence, self.mode, slot, &events[slot - 1], &events[slot]) != Truth::Yes
            {
                wrong.push((slot, false));
            }
        }
        if wrong.is_empty() {
            return true;
        }
        let (slot, is_condition) = *self.random.pick(&wrong);
        if is_condition {
            let expression = self.condition.tree.expressions()[slot];
            self.repair(expression, Truth::Yes, events, slot, false);
        } else if let Some(sequence) = self.sequence() {
            let (mut from, mut to) = (slot - 1, slot);
            if self.random.one_of(2) {
                (from, to) = (to, from);
            }
            for (source, target) in sequence.slots[from].by.iter().zip(&sequence.slots[to].by) {
                let data = events[from].fields[&key(source)].clone();
                events[to].fields.insert(key(target), data);
            }
        }
        false
    }

    /// Changes the events so that a part of the condition does not hold, by the fields of this part.
    pub fn refute(&mut self, part: &'c Expression, events: &[Event], slot: usize) -> Option<Vec<Event>> {
        let mut events = events.to_vec();
        for _ in 0..STEPS_MAX {
            if self.holds(part, &events, slot, &Vec::new()) == Truth::No {
                return Some(events);
            }
            self.repair(part, Truth::No, &mut events, slot, true);
        }
        None
    }

    /// Changes a value so that one comparison becomes what it must be.
    fn repair(
        &mut self,
        expression: &'c Expression,
        wanted: Truth,
        events: &mut [Event],
        slot: usize,
        is_local: bool,
    ) {
        let goal = Goal { part: expression, wanted, slot, variables: Vec::new() };
        let Some(goal) = self.descend(goal, events) else { return };
        let Goal { part, wanted, slot, variables } = &goal;
        let mut inputs = self.inputs_of(part, *slot, variables);
        inputs.retain(|input| {
            !is_local
                || matches!(input, Input::Field { slot, .. } | Input::Part { slot, .. } if *slot == goal.slot)
        });
        if inputs.is_empty() {
            let name = self.random.pick(&self.condition.events[*slot]).clone();
            events[*slot].name = EventName::of(&name).unwrap_or(events[*slot].name);
            if is_local {
                events[*slot].name = EventName::all().nth(self.random.below(45)).expect("a name");
            }
            return;
        }
        for _ in 0..12 {
            let input = self.random.pick(&inputs).clone();
            let mut patterns = texts_of(part);
            if let ExpressionKind::Comparison(comparison) = &part.kind {
                let right = &comparison.right;
                let computed = self.with_scope(events, *slot, variables, |scope| scope.data(right));
                patterns.extend(computed.iter().filter_map(Datum::text));
            }
            let data = self.candidate(&input, &patterns, &numbers_of(part), events, &inputs);
            let before = set(events, &input, data);
            if self.holds(part, events, *slot, variables) == *wanted {
                return;
            }
            if !self.random.one_of(8) {
                set(events, &input, before);
            }
        }
    }

    /// A part without parts that is not what it must be.
    fn descend(&mut self, goal: Goal<'c>, events: &mut [Event]) -> Option<Goal<'c>> {
        let Goal { part, wanted, slot, mut variables } = goal;
        if self.holds(part, events, slot, &variables) == wanted {
            return None;
        }
        let next = match &part.kind {
            ExpressionKind::And(parts) | ExpressionKind::Or(parts) => {
                let open: Vec<&Expression> = parts
                    .iter()
                    .filter(|part| self.holds(part, events, slot, &variables) != wanted)
                    .collect();
                *self.random.pick(&open)
            }
            ExpressionKind::Macro { body, .. } => &**body,
            ExpressionKind::Not(inner) => {
                return self.descend(Goal { part: inner, wanted: wanted.not(), slot, variables }, events);
            }
            ExpressionKind::Call { function, arguments } if function.has_variable => {
                let ExpressionKind::Field(field) = &arguments[0].kind else { return None };
                let ExpressionKind::Element { variable, .. } = &arguments[1].kind else { return None };
                let Some(list) = events[slot].lists.get_mut(&key(field)) else {
                    return Some(Goal { part, wanted, slot, variables });
                };
                let is_room = list.elements.len() < 3 && wanted == Truth::Yes;
                if list.elements.is_empty() || (is_room && self.random.one_of(3)) {
                    let parts = &self.parts[&key(field)];
                    list.elements
                        .push(parts.iter().map(|part| (part.clone(), neutral(part_type(part)))).collect());
                }
                let index = self.random.below(list.elements.len());
                variables.push((variable.clone(), key(field), index));
                &arguments[2]
            }
            _ => return Some(Goal { part, wanted, slot, variables }),
        };
        self.descend(Goal { part: next, wanted, slot, variables }, events)
    }

    /// The inputs that a comparison reads.
    fn inputs_of(&self, part: &Expression, slot: usize, variables: &Variables) -> Vec<Input> {
        let mut inputs = Vec::new();
        let field_of =
            |slot, field: &FieldUse| Input::Field { slot, key: key(field), value_type: field_type(field) };
        for_each(part, &mut |part| match &part.kind {
            ExpressionKind::Field(field) if !matches!(field.field.name, "evt.name" | "evt.category") => {
                inputs.push(field_of(slot, field));
            }
            ExpressionKind::Bound { alias, field } => inputs.push(field_of(self.slot(alias), field)),
            ExpressionKind::Element { variable, part: Some(part) } => {
                if let Some((_, list, index)) = variables.iter().find(|(name, ..)| name == variable) {
                    let (list, part) = (list.clone(), part.clone());
                    inputs.push(Input::Part { slot, list, index: *index, part });
                }
            }
            _ => {}
        });
        inputs
    }

    /// Values that may be what a comparison asks for.
    fn candidate(
        &mut self,
        input: &Input,
        texts: &[String],
        numbers: &[i64],
        events: &[Event],
        inputs: &[Input],
    ) -> Data {
        let value_type = match input {
            Input::Field { value_type, .. } => *value_type,
            Input::Part { part, .. } => part_type(part),
        };
        let mut numbers = numbers.to_vec();
        let others: Vec<Datum> =
            inputs.iter().filter(|other| *other != input).flat_map(|other| get(events, other)).collect();
        let is_number = match value_type {
            Type::Number | Type::Time => true,
            Type::Any => {
                let has_number = others.iter().any(|other| matches!(other, Datum::Number(_)));
                (has_number || !numbers.is_empty()) && self.random.one_of(2)
            }
            _ => false,
        };
        if value_type == Type::Truth {
            return vec![Datum::Truth(self.random.one_of(2))];
        }
        if is_number {
            numbers.extend(others.iter().filter_map(|datum| match datum {
                Datum::Number(number) => Some(*number),
                _ => None,
            }));
            numbers.extend(texts.iter().filter_map(|text| text.parse::<i64>().ok()));
            numbers.extend([7, 8]);
            let change = *self.random.pick(&[0, 0, 1, -1]);
            return vec![Datum::Number((self.random.pick(&numbers) + change).max(0))];
        }
        if value_type != Type::Texts {
            return vec![Datum::Text(self.text(texts, &others))];
        }
        match self.random.below(6) {
            0 => vec![text(NEUTRAL)],
            1 if !texts.is_empty() => texts.iter().map(|own| text(own)).collect(),
            2 => {
                let mut data = get(events, input);
                data.truncate(3);
                data.push(Datum::Text(self.text(texts, &others)));
                data
            }
            3 => vec![
                Datum::Text(self.text(texts, &others));
                numbers.first().map_or(2, |number| *number as usize).min(9)
            ],
            _ => vec![Datum::Text(self.text(texts, &others))],
        }
    }

    /// A text that may fit one of the patterns, or equal another value.
    fn text(&mut self, patterns: &[String], others: &[Datum]) -> String {
        let others: Vec<String> = others.iter().filter_map(Datum::text).collect();
        match self.random.below(8) {
            0 => (*self.random.pick(&TEXTS)).to_owned(),
            1 if !others.is_empty() => self.random.pick(&others).clone(),
            2 if !others.is_empty() => {
                let other = self.random.pick(&others);
                other.rsplit('\\').next().unwrap_or_default().to_owned()
            }
            3 => NEUTRAL.to_owned(),
            _ if patterns.is_empty() => (*self.random.pick(&TEXTS)).to_owned(),
            _ => {
                let pattern = self.random.pick(patterns).clone();
                // An address fits the range that begins with it.
                let address = pattern.split_once('/').map(|(address, _)| address.to_owned());
                match address.filter(|address| address.parse::<Ipv4Addr>().is_ok()) {
                    Some(address) => address,
                    None => self.instance(&pattern),
                }
            }
        }
    }

    /// A text that fits a pattern.
    fn instance(&mut self, pattern: &str) -> String {
        let mut text = String::new();
        for c in pattern.chars() {
            match c {
                '*' if self.random.one_of(3) && !self.pieces.is_empty() => {
                    text.push_str(&self.random.pick(&self.pieces)[..]);
                }
                '*' if self.random.one_of(2) => text.push('x'),
                '*' => {}
                '?' => text.push('C'),
                c => text.push(c),
            }
        }
        text
    }

    /// Gives a random input of the events a value of the condition, or less than a value.
    pub fn disturb(&mut self, events: &mut [Event]) {
        for list in events.iter_mut().flat_map(|event| event.lists.values_mut()) {
            list.is_complete = !self.random.one_of(4);
            if self.random.one_of(6) {
                list.elements.pop();
            }
        }
        let inputs = self.inputs(events);
        if inputs.is_empty() {
            return;
        }
        let input = self.random.pick(&inputs).clone();
        let is_list = matches!(input, Input::Field { value_type: Type::Texts, .. });
        let slots = self.condition.tree.expressions();
        let part = *self.random.pick(&slots);
        let (texts, numbers) = (texts_of(part), numbers_of(part));
        let data = match self.random.below(8) {
            0 | 1 => Vec::new(),
            2 => vec![Datum::Unknown],
            3 => vec![Datum::Absent],
            4 if is_list => {
                let mut data = self.candidate(&input, &texts, &numbers, events, &inputs);
                data.insert(self.random.below(data.len() + 1), Datum::Unknown);
                data
            }
            _ => self.candidate(&input, &texts, &numbers, events, &inputs),
        };
        set(events, &input, data);
    }
}

fn get(events: &[Event], input: &Input) -> Data {
    match input {
        Input::Field { slot, key, .. } => events[*slot].fields.get(key).cloned().unwrap_or_default(),
        Input::Part { slot, list, index, part } => events[*slot].lists[list].elements[*index][part].clone(),
    }
}

/// The values before.
fn set(events: &mut [Event], input: &Input, data: Data) -> Data {
    let target = match input {
        Input::Field { slot, key, .. } => events[*slot].fields.entry(key.clone()).or_default(),
        Input::Part { slot, list, index, part } => {
            let list = events[*slot].lists.get_mut(list).expect("a list");
            list.elements[*index].entry(part.clone()).or_default()
        }
    };
    std::mem::replace(target, data)
}
