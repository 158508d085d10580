//! The second evaluation of sequences: all chains of events are tried.

use stackhound_rules::evaluate::{Mode, Verdict};
use stackhound_rules::syntax::{Condition, Sequence};

use crate::event::{Data, Event};
use crate::literal::{Scope, Truth, any_pair, equal, verdict};

/// The answers of a condition for a stream of events, in the order of their positions.
pub fn answers(condition: &Condition, mode: Mode, events: &[Event]) -> Vec<Option<Verdict>> {
    match condition {
        Condition::Event(expression) => {
            events.iter().map(|event| verdict(expression, Scope::of(event, mode))).collect()
        }
        Condition::Sequence(sequence) => {
            let mut search =
                Search { sequence, mode, events, chain: Vec::new(), found: vec![None; events.len()] };
            search.from(0, Verdict::Yes);
            search.found
        }
        Condition::Correlation(_) => panic!("a rule of Sigma"),
    }
}

/// Whether the fields after `by` are equal in the event of a slot and the one before it.
pub fn has_same_key(sequence: &Sequence, mode: Mode, slot: usize, before: &Event, event: &Event) -> Truth {
    let [one, other] = [slot - 1, slot].map(|slot| &sequence.slots[slot].by);
    let same = one.iter().zip(other).map(|(one, other)| {
        let value = |event, field| Scope::of(event, mode).values(field);
        is_same(mode, &value(before, one), &value(event, other))
    });
    same.min().unwrap_or(Truth::Yes)
}

fn is_same(mode: Mode, one: &Data, other: &Data) -> Truth {
    any_pair(one, other, |one, other| equal(one, other, mode == Mode::Strict))
}

struct Search<'s> {
    sequence: &'s Sequence,
    mode: Mode,
    events: &'s [Event],
    /// The events of the slots so far.
    chain: Vec<usize>,
    /// The best answer for each last event.
    found: Vec<Option<Verdict>>,
}

impl Search<'_> {
    /// Tries all events from an index for the next slot.
    fn from(&mut self, start: usize, so_far: Verdict) {
        let slot = self.chain.len();
        for index in start..self.events.len() {
            let Some(certainty) = self.next(slot, index) else { continue };
            let certainty = certainty.min(so_far);
            if slot + 1 == self.sequence.slots.len() {
                self.found[index] = self.found[index].max(Some(certainty));
                continue;
            }
            self.chain.push(index);
            self.from(index + 1, certainty);
            self.chain.pop();
        }
    }

    /// Whether an event can follow the chain.
    fn next(&self, slot: usize, index: usize) -> Option<Verdict> {
        let Search { sequence, mode, events, chain, .. } = self;
        let event = &events[index];
        let mut certainty = Verdict::Yes;
        if let (Some(first), Some(last)) = (chain.first(), chain.last()) {
            let from = if *mode == Mode::Strict { first } else { last };
            let span = sequence.max_span.map_or(4 * 3600 * 10_000_000, |span| span.as_nanos() / 100);
            if i128::from(event.at.time - events[*from].at.time) > span as i128 {
                return None;
            }
            match has_same_key(sequence, *mode, slot, &events[*last], event) {
                Truth::No => return None,
                Truth::Unknown => certainty = Verdict::Undetermined,
                Truth::Yes => {}
            }
        }
        let earlier: Vec<_> = chain
            .iter()
            .zip(&sequence.slots)
            .map(|(index, slot)| (slot.alias.clone(), &events[*index]))
            .collect();
        let scope = Scope { earlier: &earlier, ..Scope::of(event, *mode) };
        Some(verdict(&sequence.slots[slot].expression, scope)?.min(certainty))
    }
}
