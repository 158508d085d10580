//! The public rules of the corpus, with events for which they hold and events for which they do not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use stackhound_rules::evaluate::{FieldRef, Mode, ResolvedField, RuleSet, Verdict};
use stackhound_rules::syntax::{Condition, Expression, ExpressionKind, FieldUse};
use stackhound_rules::{Library, Need, Needs, Rule};

use crate::chains::answers;
use crate::event::{Event, answer, key, rule_set};
use crate::literal::Truth;
use crate::solve::{Solver, conjuncts};

/// Random events of each rule and mode.
const RANDOM_EVENTS: usize = 200;
/// Longer than any sequence, in units of 100 ns.
const PAUSE: i64 = 5 * 3600 * 10_000_000;

/// What the input consists of.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
enum Level {
    WithSideCar,
    WithImages,
    TraceOnly,
}

const LEVELS: [Level; 3] = [Level::WithSideCar, Level::WithImages, Level::TraceOnly];

impl Level {
    fn has(self, needs: Needs) -> bool {
        let of_files = [Need::Signatures, Need::ImageFiles, Need::LiveMemory, Need::LiveSystem];
        let is_hidden = |need| match self {
            Level::WithSideCar => false,
            Level::WithImages => of_files.contains(&need),
            Level::TraceOnly => of_files.contains(&need) || need == Need::FunctionNames,
        };
        !needs.iter().any(is_hidden)
    }

    fn has_part(self, part: &str) -> bool {
        match part {
            "symbol" => self.has(Needs::of(Need::FunctionNames)),
            "allocation_size" | "protection" => self.has(Needs::of(Need::LiveMemory)),
            part => !part.starts_with("module.signature") || self.has(Needs::of(Need::Signatures)),
        }
    }

    /// The event without what the input does not have.
    fn of(self, event: &Event, fields: &BTreeMap<String, Needs>) -> Event {
        let mut event = event.clone();
        event.fields.retain(|key, _| self.has(fields[key]));
        event.lists.retain(|key, _| self.has(fields[key]));
        for element in event.lists.values_mut().flat_map(|list| &mut list.elements) {
            element.retain(|part, _| self.has_part(part));
        }
        event
    }
}

/// What the fields of a condition need.
fn fields(condition: &Condition) -> BTreeMap<String, Needs> {
    fn add(expression: &Expression, fields: &mut BTreeMap<String, Needs>) {
        if let ExpressionKind::Field(field) | ExpressionKind::Bound { field, .. } = &expression.kind {
            fields.insert(key(field), field.field.needs);
        }
        expression.parts().into_iter().for_each(|part| add(part, fields));
    }
    let mut fields = BTreeMap::new();
    condition.expressions().into_iter().for_each(|expression| add(expression, &mut fields));
    if let Condition::Sequence(sequence) = condition {
        let by: Vec<&FieldUse> = sequence.slots.iter().flat_map(|slot| &slot.by).collect();
        fields.extend(by.into_iter().map(|field| (key(field), field.field.needs)));
    }
    fields
}

/// The rules of the corpus, each alone in a library.
fn rules() -> Option<Vec<Library>> {
    let folder = stackhound_corpus::folder()?.join("fibratus-rules");
    let mut files = Vec::new();
    for folder in [folder.clone(), folder.join("macros")] {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.extension().is_some_and(|extension| extension == "yml") {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read(path).unwrap()));
            }
        }
    }
    files.sort();
    let library = Library::read(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
    Some(library.rules.into_iter().map(|rule| Library { rules: vec![rule], ..Library::default() }).collect())
}

/// A set for a source that never has the fields that the level does not have.
fn set_without(library: &Library, mode: Mode, level: Level) -> RuleSet<String> {
    RuleSet::new(library, mode, |field, _| {
        let FieldRef::Field(field) = field else { return None };
        level.has(field.field.needs).then(|| ResolvedField { field: key(field), cost: 1 })
    })
}

/// The product's answers for streams of events, which are compared with those of the second evaluation.
struct Compared<'r> {
    library: &'r Library,
    condition: &'r Condition,
    mode: Mode,
    set: RuleSet<String>,
    start: i64,
    different: &'r mut Vec<String>,
}

impl Compared<'_> {
    fn answers(&mut self, what: &str, events: &[Event]) -> Vec<Option<Verdict>> {
        let expected = answers(self.condition, self.mode, events);
        let mut found = Vec::new();
        for event in events {
            let mut event = event.clone();
            event.at.time += self.start;
            found.push(answer(&mut self.set, &event));
        }
        self.start += PAUSE;
        if found != expected {
            let name = &self.library.rules[0].head.name;
            self.different.push(format!(
                "{name}, {what}, {:?}: {found:?} instead of {expected:?}\n{}",
                self.mode,
                events.iter().map(shown).collect::<String>()
            ));
        }
        found
    }
}

fn shown(event: &Event) -> String {
    format!("  {} {:?} {:?} {:?}\n", event.name.name(), event.at, event.fields, event.lists)
}

fn codes(rule: &Rule) -> Vec<&'static str> {
    rule.lints.iter().map(|lint| lint.kind.code()).collect()
}

fn compare(mode: Mode) {
    let Some(libraries) = rules() else { return };
    let mut counts = BTreeMap::<String, [usize; 4]>::new();
    let (mut different, mut negatives, mut random) = (Vec::new(), 0, 0);
    for (seed, library) in libraries.iter().enumerate() {
        let rule = &library.rules[0];
        let condition = rule.condition.as_ref().unwrap();
        let (tree, needs) = (&condition.tree, fields(&condition.tree));
        let mut solver = Solver::new(condition, mode, seed as u64);
        let Some(events) = solver.solve() else {
            println!("{mode:?}: nothing fits {:?}: {:?}", rule.head.name, codes(rule));
            let is_known = |code: &&str| match mode {
                Mode::Strict => *code == "never-matches",
                Mode::Compatible => ["never-matches", "list-with-value"].contains(code),
            };
            assert!(codes(rule).iter().any(is_known), "{}", rule.head.name);
            continue;
        };
        let set = rule_set(library, mode);
        let mut product =
            Compared { library, condition: tree, mode, set, start: 0, different: &mut different };
        for level in LEVELS {
            let events: Vec<Event> = events.iter().map(|event| level.of(event, &needs)).collect();
            let found = product.answers("positive", &events);
            let mut set = set_without(library, mode, level);
            let without: Vec<_> = events.iter().map(|event| answer(&mut set, event)).collect();
            assert_eq!(without, found, "{}", rule.head.name);
            let last = found[found.len() - 1];
            let count = counts.entry(format!("{level:?}")).or_default();
            count[match last {
                Some(Verdict::Yes) => 0,
                Some(Verdict::Possible) => 1,
                Some(Verdict::Undetermined) => 2,
                None => 3,
            }] += 1;
            if level == Level::WithSideCar {
                assert_eq!(last, Some(Verdict::Yes), "{}", rule.head.name);
            }
        }
        for (slot, expression) in tree.expressions().into_iter().enumerate() {
            for part in conjuncts(expression) {
                let Some(refuted) = solver.refute(part, &events, slot) else {
                    println!("{mode:?}: cannot refute part of {:?}: {:?}", rule.head.name, part.kind);
                    continue;
                };
                assert_eq!(solver.holds(part, &refuted, slot, &Vec::new()), Truth::No);
                negatives += 1;
                for level in LEVELS {
                    let refuted: Vec<Event> = refuted.iter().map(|event| level.of(event, &needs)).collect();
                    let found = product.answers("negative", &refuted);
                    if level == Level::WithSideCar {
                        assert!(!found.contains(&Some(Verdict::Yes)), "{}", rule.head.name);
                    }
                }
            }
        }
        for _ in 0..RANDOM_EVENTS {
            let mut changed = Vec::new();
            let copies = if events.len() == 1 { 1 } else { 2 };
            for _ in 0..copies {
                let mut copy = events.clone();
                for _ in 0..solver.random.below(4) {
                    solver.disturb(&mut copy);
                }
                changed.append(&mut copy);
            }
            if changed.len() > 1 {
                let span = 10_000_000 * *solver.random.pick(&[1, 30, 120]);
                changed.iter_mut().for_each(|event| event.at.time = solver.random.below(span) as i64);
                changed.sort_by_key(|event| event.at.time / 10_000_000);
                for (record, event) in changed.iter_mut().enumerate() {
                    event.at.record = record as u64;
                    event.at.time = event.at.time / 10_000_000 * 10_000_000;
                }
            }
            random += changed.len();
            product.answers("random", &changed);
        }
    }
    println!("{mode:?}: {negatives} negatives, {random} random events");
    println!("{:12} {:>5} {:>9} {:>13} {:>5}", "", "yes", "possible", "undetermined", "no");
    for (level, [yes, possible, undetermined, no]) in counts {
        println!("{level:12} {yes:5} {possible:9} {undetermined:13} {no:5}");
    }
    assert!(
        different.is_empty(),
        "{} differences:\n{}",
        different.len(),
        different.iter().map(|one| format!("{one}\n")).take(40).collect::<String>()
    );
}

#[test]
fn strict_answers_are_those_of_the_second_evaluation() {
    compare(Mode::Strict);
}

#[test]
fn compatible_answers_are_those_of_the_second_evaluation() {
    compare(Mode::Compatible);
}

/// All rules in one set have the answers that each has alone.
#[test]
fn rules_are_independent() {
    let Some(libraries) = rules() else { return };
    let mut streams = Vec::new();
    for (rule, library) in libraries.iter().enumerate() {
        let condition = library.rules[0].condition.as_ref().unwrap();
        let events = Solver::new(condition, Mode::Strict, rule as u64).solve().unwrap_or_default();
        for mut event in events {
            event.at.time += rule as i64 * PAUSE;
            streams.push((rule, event));
        }
    }
    let all = Library {
        rules: libraries.into_iter().flat_map(|library| library.rules).collect(),
        ..Library::default()
    };
    let mut set = rule_set(&all, Mode::Strict);
    let mut found = BTreeSet::new();
    for (rule, event) in &streams {
        set.evaluate(event.name, event.at, event, |answer| {
            if answer.verdict == Verdict::Yes && answer.rule == *rule {
                found.insert(*rule);
            }
        });
    }
    let expected: BTreeSet<usize> = streams.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(found, expected);
    let yes = (0..all.rules.len()).filter(|rule| set.counts(*rule).yes > 0).count();
    assert!(yes >= expected.len());
}
