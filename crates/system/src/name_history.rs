//! The names of keys over time. Keys are addresses of kernel objects, which are reused.

use std::collections::BTreeMap;

use stackhound_trace::TraceTime;

use crate::text::Text;
use crate::validity::ValidityRange;

/// The statement of an event about a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Statement {
    /// The name applies from now on.
    Given,
    /// The name applied until now.
    Ended,
    /// The name applies now. The time of its beginning is not known.
    Listed,
}

/// A key, a time, and a sequence number that distinguishes statements of the same time.
type StatementKey<K> = (K, TraceTime, u64);

/// All names of all keys. An event with a new statement takes about 50 bytes.
#[derive(Debug)]
pub(crate) struct NameHistory<K = u64> {
    statements: BTreeMap<StatementKey<K>, (Statement, Text)>,
    /// The number of statements ever made.
    made: u64,
    /// The number of statements at which forgetting is attempted again.
    full: usize,
}

/// The minimum number of statements for forgetting.
const FULL_MIN: usize = 64;

impl<K> Default for NameHistory<K> {
    fn default() -> NameHistory<K> {
        NameHistory { statements: BTreeMap::new(), made: 0, full: 0 }
    }
}

impl<K: Copy + Ord> NameHistory<K> {
    /// The key has this name from now on.
    pub fn give(&mut self, time: TraceTime, key: K, name: Text) {
        self.state(time, key, Statement::Given, name);
    }

    /// As [`give`](NameHistory::give), unless the key is known to have this name already.
    pub fn give_again(&mut self, time: TraceTime, key: K, name: Text) {
        if !self.has(time, key, name) {
            self.give(time, key, name);
        }
    }

    /// The key had this name until now.
    pub fn end(&mut self, time: TraceTime, key: K, name: Text) {
        self.state(time, key, Statement::Ended, name);
    }

    /// The key has this name now, and has had it for an unknown time.
    pub fn list(&mut self, time: TraceTime, key: K, name: Text) {
        // Most names in a rundown are known already.
        if !self.has(time, key, name) {
            self.state(time, key, Statement::Listed, name);
        }
    }

    fn has(&self, time: TraceTime, key: K, name: Text) -> bool {
        self.last(key, time)
            .is_some_and(|(_, statement, known)| statement != Statement::Ended && known == name)
    }

    fn state(&mut self, time: TraceTime, key: K, statement: Statement, name: Text) {
        self.statements.insert((key, time, self.made), (statement, name));
        self.made += 1;
    }

    fn last(&self, key: K, time: TraceTime) -> Option<(TraceTime, Statement, Text)> {
        let until = (key, TraceTime(i64::MIN), 0)..=(key, time, u64::MAX);
        let (&(_, at, _), &(statement, name)) = self.statements.range(until).next_back()?;
        Some((at, statement, name))
    }

    /// The number of stored statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Forgets all state that no query about this time or a later one needs. Does nothing until
    /// enough statements are stored.
    pub fn forget_before(&mut self, time: TraceTime) {
        if self.statements.len() < self.full.max(FULL_MIN) {
            return;
        }
        let mut kept: Vec<(StatementKey<K>, (Statement, Text))> = Vec::new();
        for (id, content) in std::mem::take(&mut self.statements) {
            let (key, at, _) = id;
            // Of the statements about a key before the time, only the last one can apply, unless it
            // is an end.
            if at < time {
                kept.pop_if(|&mut ((other, before, _), _)| other == key && before < time);
            }
            if at >= time || content.0 != Statement::Ended {
                kept.push((id, content));
            }
        }
        self.statements = kept.into_iter().collect();
        self.full = 2 * self.statements.len();
    }

    /// Forgets the statements about some keys.
    pub fn retain(&mut self, is_kept: impl Fn(K) -> bool) {
        self.statements.retain(|&(key, ..), _| is_kept(key));
    }

    /// Forgets the oldest statements until `left` remain. Returns the number of forgotten
    /// statements.
    pub fn forget_oldest(&mut self, left: usize) -> u64 {
        let before = self.statements.len();
        let mut numbers: Vec<u64> = self.statements.keys().map(|&(_, _, number)| number).collect();
        if let Some(excess) = before.saturating_sub(left).checked_sub(1) {
            let (_, &mut newest, _) = numbers.select_nth_unstable(excess);
            self.statements.retain(|&(_, _, number), _| number > newest);
        }
        (before - self.statements.len()) as u64
    }

    /// All referenced texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.statements.values_mut().map(|(_, name)| name)
    }

    /// The name that the key was given before a time and has not lost by then, and the time of that
    /// statement.
    pub fn covering(&self, key: K, time: TraceTime) -> Option<(Text, TraceTime)> {
        let (at, statement, name) = self.last(key, time)?;
        let holds = statement != Statement::Ended || at == time;
        (holds && !name.is_empty()).then_some((name, at))
    }

    /// The time since which the key has an unknown name.
    pub fn unknown_since(&self, key: K, time: TraceTime) -> Option<TraceTime> {
        let (at, statement, name) = self.last(key, time)?;
        (statement == Statement::Given && name.is_empty()).then_some(at)
    }

    /// The name in the next statement about the key after a time, if that statement is an end or a
    /// listing, and the time of that statement.
    pub fn later(&self, key: K, time: TraceTime) -> Option<(Text, TraceTime)> {
        let (at, statement, name) = self.next(key, time)?;
        (statement != Statement::Given && !name.is_empty()).then_some((name, at))
    }

    fn next(&self, key: K, time: TraceTime) -> Option<(TraceTime, Statement, Text)> {
        let rest = (key, TraceTime(time.0.checked_add(1)?), 0)..=(key, TraceTime(i64::MAX), u64::MAX);
        let (&(_, at, _), &(statement, name)) = self.statements.range(rest).next()?;
        Some((at, statement, name))
    }

    /// The times around a time at which the answers about a key are the same.
    pub fn validity(&self, key: K, time: TraceTime) -> ValidityRange {
        let from = match self.last(key, time) {
            // At the end itself, the name still applies.
            Some((at, Statement::Ended, _)) if at == time => return ValidityRange::at(time),
            Some((at, Statement::Ended, _)) => Some(TraceTime(at.0 + 1)),
            last => last.map(|(at, ..)| at),
        };
        ValidityRange::between(from, self.next(key, time).map(|(at, ..)| at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::Texts;

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(
            steps in proptest::collection::vec((0u64..3, 0i64..3, 0u8..3, 0usize..4), 0..60),
        ) {
            let mut texts = Texts::default();
            let names: Vec<Text> = ["a", "b", "c", "d"].map(|name| texts.intern(name)).into();
            let mut history = NameHistory::default();
            let mut stated: Vec<(i64, u64, Statement, Text)> = Vec::new();
            let mut time = 0;
            for (key, wait, statement, name) in steps {
                time += wait;
                let (at, name) = (TraceTime(time), names[name]);
                let statement = [Statement::Given, Statement::Ended, Statement::Listed][usize::from(statement)];
                match statement {
                    Statement::Given => history.give(at, key, name),
                    Statement::Ended => history.end(at, key, name),
                    Statement::Listed => history.list(at, key, name),
                }
                // A listing of a known name is no new statement.
                let last = stated.iter().rev().find(|stated| stated.1 == key);
                let is_known = last.is_some_and(|last| last.2 != Statement::Ended && last.3 == name);
                if statement != Statement::Listed || !is_known {
                    stated.push((time, key, statement, name));
                }
            }
            let end = time;
            for (key, time) in (0..3).flat_map(|key| (-1..=end + 1).map(move |time| (key, time))) {
                let last = stated.iter().rev().find(|stated| stated.1 == key && stated.0 <= time);
                let next = stated.iter().find(|stated| stated.1 == key && stated.0 > time);
                let held = last.filter(|stated| stated.2 != Statement::Ended || stated.0 == time);
                let later = next.filter(|stated| stated.2 != Statement::Given);
                let expected = held.or(later).map(|stated| (stated.3, TraceTime(stated.0)));
                let at = TraceTime(time);
                let found = history.covering(key, at).or_else(|| history.later(key, at));
                prop_assert_eq!(found, expected, "{} at {}: {:?}", key, time, stated);
                let validity = history.validity(key, at);
                prop_assert!(validity.has(at));
                for other in (-1..=end + 1).map(TraceTime).filter(|&other| validity.has(other)) {
                    let same = history.covering(key, other).or_else(|| history.later(key, other));
                    prop_assert_eq!(found, same, "{} at {} and {:?}: {:?}", key, time, other, stated);
                }
            }
        }

        #[test]
        fn forgetting_the_past_keeps_the_rest(
            steps in proptest::collection::vec((0u64..20, 0i64..3, 0u8..3, 0usize..4), 0..400),
            every in 1usize..50,
            back in 0i64..40,
        ) {
            let mut texts = Texts::default();
            let names: Vec<Text> = ["a", "b", "c", "d"].map(|name| texts.intern(name)).into();
            let (mut whole, mut forgetful) = (NameHistory::default(), NameHistory::default());
            let (mut now, mut known) = (0, i64::MIN);
            for (number, (key, wait, statement, name)) in steps.into_iter().enumerate() {
                now += wait;
                let (at, name) = (TraceTime(now), names[name]);
                for history in [&mut whole, &mut forgetful] {
                    match statement {
                        0 => history.give(at, key, name),
                        1 => history.end(at, key, name),
                        _ => history.list(at, key, name),
                    }
                }
                if number % every == 0 {
                    known = known.max(now - back);
                    forgetful.forget_before(TraceTime(known));
                }
                for time in known.max(now - 45)..=now + 1 {
                    let time = TraceTime(time);
                    prop_assert_eq!(forgetful.covering(key, time), whole.covering(key, time));
                    prop_assert_eq!(forgetful.later(key, time), whole.later(key, time));
                }
            }
        }
    }

    #[test]
    fn the_oldest_statements_are_forgotten_first() {
        let (mut texts, mut history) = (Texts::default(), NameHistory::default());
        let name = texts.intern("a");
        for n in 0..1000u64 {
            history.give(TraceTime(n as i64), n * 7 % 1000, name);
        }
        assert_eq!(history.forget_oldest(300), 700);
        assert_eq!((history.len(), history.forget_oldest(300)), (300, 0));
        let known = |n: u64| history.covering(n * 7 % 1000, TraceTime(2000)).is_some();
        assert!(!(0..700).any(known) && (700..1000).all(known));
    }
}
