//! What a key was called when. Keys are addresses of kernel objects, which are used for others again and again.

use std::collections::BTreeMap;

use stackhound_trace::TraceTime;

use crate::text::Text;

/// What an event says of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Statement {
    /// It holds from now on.
    Given,
    /// It held until now.
    Ended,
    /// It holds now; since when is not known.
    Listed,
}

/// All names of all keys. About 50 bytes for each event that says something new.
#[derive(Debug, Default)]
pub(crate) struct NameHistory {
    /// By key and time; the number tells statements of one time apart.
    statements: BTreeMap<(u64, TraceTime, u32), (Statement, Text)>,
}

impl NameHistory {
    /// The key has this name from now on.
    pub fn give(&mut self, time: TraceTime, key: u64, name: Text) {
        self.state(time, key, Statement::Given, name);
    }

    /// The key had this name until now.
    pub fn end(&mut self, time: TraceTime, key: u64, name: Text) {
        self.state(time, key, Statement::Ended, name);
    }

    /// The key has this name now, and had it for some time.
    pub fn list(&mut self, time: TraceTime, key: u64, name: Text) {
        // Most of what a rundown lists was known.
        let is_known = self
            .last(key, time)
            .is_some_and(|(_, statement, known)| statement != Statement::Ended && known == name);
        if !is_known {
            self.state(time, key, Statement::Listed, name);
        }
    }

    fn state(&mut self, time: TraceTime, key: u64, statement: Statement, name: Text) {
        let number = self.statements.len() as u32;
        self.statements.insert((key, time, number), (statement, name));
    }

    fn last(&self, key: u64, time: TraceTime) -> Option<(TraceTime, Statement, Text)> {
        let until = (key, TraceTime(i64::MIN), 0)..=(key, time, u32::MAX);
        let (&(_, at, _), &(statement, name)) = self.statements.range(until).next_back()?;
        Some((at, statement, name))
    }

    /// The name that the key was given before and did not lose up to a time.
    pub fn covering(&self, key: u64, time: TraceTime) -> Option<Text> {
        let (at, statement, name) = self.last(key, time)?;
        let holds = statement != Statement::Ended || at == time;
        Some(name).filter(|name| holds && !name.is_empty())
    }

    /// The name that an end or a listing behind a time tells, if it is the next thing that is said of the key.
    pub fn told_later(&self, key: u64, time: TraceTime) -> Option<Text> {
        let rest = (key, TraceTime(time.0.checked_add(1)?), 0)..=(key, TraceTime(i64::MAX), u32::MAX);
        let (_, &(statement, name)) = self.statements.range(rest).next()?;
        Some(name).filter(|name| statement != Statement::Given && !name.is_empty())
    }

    /// The name at a time, wherever it is told.
    pub fn at(&self, key: u64, time: TraceTime) -> Option<Text> {
        self.covering(key, time).or_else(|| self.told_later(key, time))
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
            let mut said: Vec<(i64, u64, Statement, Text)> = Vec::new();
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
                said.push((time, key, statement, name));
            }
            let end = time;
            for (key, time) in (0..3).flat_map(|key| (-1..=end + 1).map(move |time| (key, time))) {
                let last = said.iter().rev().find(|said| said.1 == key && said.0 <= time);
                let next = said.iter().find(|said| said.1 == key && said.0 > time);
                let held = last.filter(|said| said.2 != Statement::Ended || said.0 == time);
                let told = next.filter(|said| said.2 != Statement::Given);
                let expected = held.or(told).map(|said| said.3);
                prop_assert_eq!(history.at(key, TraceTime(time)), expected, "{} at {}: {:?}", key, time, said);
            }
        }
    }
}
