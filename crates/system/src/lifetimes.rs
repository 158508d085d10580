//! The holders of numbers over time. Windows reuses process and thread ids.

use hashbrown::HashMap;
use stackhound_trace::TraceTime;

use crate::slab::{Id, Slab};
use crate::span::{Evidence, Phase, Span};
use crate::validity::ValidityRange;

/// The relation of an observation to the holder of its number at its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Identity {
    Same,
    Different,
    /// There is no evidence against it being the same.
    Unsure,
}

/// An observation that is older than the starts of more than this number of holders counts as made
/// at the start of the newest one.
///
/// This bounds the cost of one late event. Only a trace with damaged times comes near the limit.
const LATE_MAX: usize = 1 << 10;

/// The maximum number of entries in `ends`. Beyond it, all entries are forgotten.
const ENDS_MAX: usize = 1 << 18;

#[derive(Debug)]
struct Holder {
    number: u32,
    span: Span,
}

/// Every holder of every number. Holders are numbered in the order of their first observation. The
/// spans of the holders of one number do not overlap. A holder takes about 60 bytes.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    /// Ordered by start.
    holders: HashMap<u32, Vec<u32>, foldhash::fast::RandomState>,
    all: Slab<Holder>,
    /// The latest end of the forgotten holders of a number.
    ends: HashMap<u32, TraceTime, foldhash::fast::RandomState>,
}

impl Lifetimes {
    #[inline]
    pub fn span(&self, holder: u32) -> Span {
        self.all.get(holder).span
    }

    fn span_mut(&mut self, holder: u32) -> &mut Span {
        &mut self.all.get_mut(holder).span
    }

    /// The span of the holder with this id; `None` if it was forgotten.
    #[inline]
    pub fn span_of(&self, id: Id) -> Option<Span> {
        self.all.of(id).map(|holder| holder.span)
    }

    /// The span of the holder in a slot.
    pub fn get(&self, holder: u32) -> Option<Span> {
        self.all.at(holder).map(|holder| holder.span)
    }

    #[inline]
    pub fn id(&self, holder: u32) -> Id {
        self.all.id(holder)
    }

    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.all.iter().map(|(id, _)| id)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets the holders for which `end` returns the time of their end. Returns their slots.
    pub fn forget(&mut self, end: impl Fn(Id, Span) -> Option<TraceTime>) -> Vec<u32> {
        let Lifetimes { holders, all, ends } = self;
        let mut forgotten = Vec::new();
        for (id, holder) in all.iter() {
            let Some(end) = end(id, holder.span) else { continue };
            forgotten.push(id.slot());
            if let Some(others) = holders.get_mut(&holder.number) {
                others.retain(|&other| other != id.slot());
                if others.is_empty() {
                    holders.remove(&holder.number);
                }
            }
            if ends.len() >= ENDS_MAX {
                ends.clear();
            }
            let last = ends.entry(holder.number).or_insert(end);
            *last = end.max(*last);
        }
        let mut gone = forgotten.iter().copied().peekable();
        all.retain(|slot, _| gone.next_if_eq(&slot).is_none());
        forgotten
    }

    /// The holder of a number at a time.
    #[inline]
    pub fn at(&self, number: u32, time: TraceTime) -> Option<u32> {
        self.newest_until(number, time).filter(|&holder| time <= self.span(holder).to)
    }

    /// The last holder of a number that started at or before a time, whether it has ended or not.
    #[inline]
    pub fn newest_until(&self, number: u32, time: TraceTime) -> Option<u32> {
        let holders = self.holders.get(&number)?;
        let &newest = holders.last()?;
        if self.span(newest).from <= time {
            return Some(newest);
        }
        let index = holders.partition_point(|&holder| self.span(holder).from <= time);
        index.checked_sub(1).map(|before| holders[before])
    }

    /// As [`newest_until`](Lifetimes::newest_until), but `None` at times of which it is not known
    /// whether the number still had this holder or already the next one.
    #[inline]
    pub fn holder_of_event(&self, number: u32, time: TraceTime) -> Option<u32> {
        self.newest_until(number, time).filter(|&holder| !self.span(holder).is_uncertain_at(time))
    }

    /// The last holder of a number that started at or before a time, and the next one.
    pub fn around(&self, number: u32, time: TraceTime) -> [Option<u32>; 2] {
        let holders = self.holders.get(&number).map_or(&[][..], |holders| holders);
        let next = holders.partition_point(|&holder| self.span(holder).from <= time);
        [next.checked_sub(1).map(|last| holders[last]), holders.get(next).copied()]
    }

    /// The times around a time at which [`newest_until`](Lifetimes::newest_until) and
    /// [`holder_of_event`](Lifetimes::holder_of_event) return the same holder.
    pub fn validity(&self, number: u32, time: TraceTime) -> ValidityRange {
        let Some(holders) = self.holders.get(&number) else { return ValidityRange::ALWAYS };
        let next = holders.partition_point(|&holder| self.span(holder).from <= time);
        let span = |index: usize| holders.get(index).map(|&holder| self.span(holder));
        let (current, next) = (next.checked_sub(1).and_then(span), span(next));
        let of_holder = ValidityRange::between(current.map(|span| span.from), next.map(|span| span.from));
        match current {
            Some(span) if span.is_uncertain_at(time) => of_holder.and(ValidityRange::after(span.to)),
            Some(span) if span.end == Evidence::Unknown => of_holder.and(ValidityRange::until(span.to)),
            _ => of_holder,
        }
    }

    /// Records an observation of the holder of a number. Returns the holder, and whether it is new.
    pub fn observe(
        &mut self,
        number: u32,
        phase: Phase,
        time: TraceTime,
        identity: impl FnOnce(u32) -> Identity,
    ) -> (u32, bool) {
        let time = self.not_too_late(number, time);
        let Some(current) = self.newest_until(number, time) else {
            return (self.add(number, phase, time), true);
        };
        let identity = identity(current);
        let span = self.span_mut(current);
        let alive = time < span.to || (time == span.to && span.end != Evidence::Observed);
        match (phase, identity) {
            // An ended holder can be observed again. Only a start assigns its number to a new
            // holder.
            (Phase::End | Phase::RundownAtStart | Phase::RundownAtEnd, Identity::Same) if !alive => {}
            _ if !alive => return (self.add(number, phase, time), true),
            // A rundown can list an object just before the start event of the object.
            (Phase::Start, Identity::Same) => {
                if span.start != Evidence::Observed {
                    (span.from, span.start) = (time, Evidence::Observed);
                }
            }
            (Phase::Start, _) | (_, Identity::Different) => {
                return (self.replace(number, current, phase, time), true);
            }
            (Phase::End, _) => (span.to, span.end) = (time, Evidence::Observed),
            (Phase::RundownAtStart, _) => {
                if span.start == Evidence::Unknown {
                    span.start = Evidence::RundownAtStart;
                }
            }
            (Phase::RundownAtEnd, _) => {
                if span.start == Evidence::Unknown {
                    span.start = Evidence::RundownAtEnd;
                }
                if span.end == Evidence::Unknown {
                    span.end = Evidence::RundownAtEnd;
                }
            }
        }
        (current, false)
    }

    /// Records that a holder had the number at a time. It is the one that `is_same` accepts; another
    /// one must have lost the number between `last`, the last time at which it is known to have had
    /// it, and `time`: at the time that `since` returns for it, if that is between them. Returns the
    /// holder, and whether it is new.
    pub fn observe_holder(
        &mut self,
        number: u32,
        time: TraceTime,
        is_same: impl FnOnce(u32) -> bool,
        last: impl FnOnce(u32) -> TraceTime,
        since: impl FnOnce(u32) -> Option<TraceTime>,
    ) -> (u32, bool) {
        let time = self.not_too_late(number, time);
        let Some(current) = self.newest_until(number, time) else {
            return (self.insert(number, time, Span::BEGINNING, Evidence::Unknown), true);
        };
        if is_same(current) {
            return (current, false);
        }
        let Span { to, end, .. } = self.span(current);
        if to < time && end == Evidence::Observed {
            // Events of a thread can follow its end.
            let free = TraceTime(last(current).0.saturating_add(1));
            return (self.insert(number, time, free.min(time), Evidence::Unknown), true);
        }
        let last = last(current).min(before(time));
        let since = since(current).filter(|&since| last < since && since <= time);
        self.end_unobserved(current, since.map_or(last, before));
        let new = self.insert(number, time, since.unwrap_or(time), Evidence::Unknown);
        // An end that was already observed belongs to the last holder.
        if end == Evidence::Observed {
            let new = self.span_mut(new);
            (new.to, new.end) = (to, end);
        }
        (new, true)
    }

    /// Ends a holder whose end was not observed after the last time at which it is known to have had
    /// the number.
    pub fn end_unobserved(&mut self, holder: u32, last: TraceTime) {
        let span = self.span_mut(holder);
        (span.to, span.end) = (last.max(span.from), Evidence::Unknown);
    }

    /// The holder at a time at which one must exist. Adds one if none is known.
    pub fn expect(&mut self, number: u32, time: TraceTime) -> (u32, bool) {
        if let Some(&newest) = self.holders.get(&number).and_then(|holders| holders.last())
            && self.span(newest).touches(time)
        {
            return (newest, false);
        }
        let time = self.not_too_late(number, time);
        match self.at(number, time) {
            Some(holder) => (holder, false),
            None => (self.insert(number, time, Span::BEGINNING, Evidence::Unknown), true),
        }
    }

    fn not_too_late(&self, number: u32, time: TraceTime) -> TraceTime {
        let Some(holders) = self.holders.get(&number).filter(|holders| holders.len() > LATE_MAX) else {
            return time;
        };
        let start = |index: usize| self.span(holders[index]).from;
        if time < start(holders.len() - 1 - LATE_MAX) { start(holders.len() - 1) } else { time }
    }

    /// Adds a holder that takes the number from one whose end was not observed.
    fn replace(&mut self, number: u32, current: u32, phase: Phase, time: TraceTime) -> u32 {
        let new = self.add(number, phase, time);
        let old = self.span_mut(current);
        let (to, end) = (old.to, old.end);
        (old.to, old.end) = (time, Evidence::Unknown);
        // An end that was already observed belongs to the last holder.
        if phase != Phase::End && end == Evidence::Observed {
            let new = self.span_mut(new);
            (new.to, new.end) = (to, end);
        }
        new
    }

    /// Adds a holder of a number that is free, or is about to be.
    fn add(&mut self, number: u32, phase: Phase, time: TraceTime) -> u32 {
        let (from, start) = match phase {
            Phase::Start => (time, Evidence::Observed),
            Phase::RundownAtStart => (Span::BEGINNING, Evidence::RundownAtStart),
            Phase::RundownAtEnd => (Span::BEGINNING, Evidence::RundownAtEnd),
            Phase::End => (Span::BEGINNING, Evidence::Unknown),
        };
        let new = self.insert(number, time, from, start);
        let span = self.span_mut(new);
        if phase == Phase::End {
            (span.to, span.end) = (time, Evidence::Observed);
        } else if phase == Phase::RundownAtEnd && span.to == Span::OPEN {
            span.end = Evidence::RundownAtEnd;
        }
        new
    }

    /// Inserts a holder, observed at `time`, among the others. It starts at `from`, or later if
    /// another holder has the number then.
    fn insert(&mut self, number: u32, time: TraceTime, from: TraceTime, start: Evidence) -> u32 {
        let Lifetimes { holders, all, ends } = self;
        let holders = holders.entry(number).or_default();
        let index = holders.partition_point(|&holder| all.get(holder).span.from <= time);
        let end_before = match index.checked_sub(1) {
            Some(before) => Some(all.get(holders[before]).span.to),
            None => ends.get(&number).copied(),
        };
        // The event that ends a holder is the last event that belongs to it.
        let free = end_before.map(|end| TraceTime(end.0.saturating_add(1)));
        let from = free.map_or(from, |free| from.max(free.min(time)));
        let to = holders.get(index).map_or(Span::OPEN, |&next| all.get(next).span.from);
        let span = Span { from, to, start, end: Evidence::Unknown };
        let new = all.insert(Holder { number, span }).slot();
        holders.insert(index, new);
        new
    }
}

fn before(time: TraceTime) -> TraceTime {
    TraceTime(time.0.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(at: i64) -> TraceTime {
        TraceTime(at)
    }

    /// The result for one number and a time, found by a linear search.
    fn oracle(events: &[(i64, Phase)], at: i64) -> Option<i64> {
        let begins = |until: usize| {
            let turn =
                events[..until].iter().rev().find(|(_, phase)| matches!(phase, Phase::Start | Phase::End));
            turn.map_or(i64::MIN, |&(time, phase)| if phase == Phase::End { time + 1 } else { time })
        };
        let passed = events.iter().filter(|&&(time, _)| time <= at).count();
        let next_was_there = events.get(passed).is_some_and(|&(_, phase)| phase != Phase::Start);
        match passed.checked_sub(1).map(|last| events[last]) {
            Some((time, Phase::End)) if time == at => Some(begins(passed - 1)),
            Some((_, Phase::End)) | None => next_was_there.then(|| begins(passed)),
            Some(_) => Some(begins(passed)),
        }
    }

    fn phases() -> impl Strategy<Value = Phase> {
        prop_oneof![
            4 => Just(Phase::Start),
            4 => Just(Phase::End),
            1 => Just(Phase::RundownAtStart),
            1 => Just(Phase::RundownAtEnd),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(
            steps in proptest::collection::vec((0u32..3, 1i64..3, phases()), 0..40),
        ) {
            let mut lifetimes = Lifetimes::default();
            let mut events = vec![Vec::new(); 3];
            let mut now = 0;
            for (number, wait, phase) in steps {
                now += wait;
                events[number as usize].push((now, phase));
                lifetimes.observe(number, phase, time(now), |_| Identity::Unsure);
            }
            for (number, events) in events.iter().enumerate() {
                for at in -1..=now + 1 {
                    let found = lifetimes.at(number as u32, time(at)).map(|holder| lifetimes.span(holder).from.0);
                    prop_assert_eq!(found, oracle(events, at), "{} at {}: {:?}", number, at, events);
                }
            }
        }

        #[test]
        fn disorder_leaves_spans_apart(
            steps in proptest::collection::vec((0i64..50, phases(), 0..3u8), 0..80),
        ) {
            let mut lifetimes = Lifetimes::default();
            for (at, phase, identity) in steps {
                let identity = [Identity::Same, Identity::Different, Identity::Unsure][usize::from(identity)];
                lifetimes.observe(7, phase, time(at), |_| identity);
                lifetimes.expect(7, time(at / 2));
            }
            let spans: Vec<Span> =
                lifetimes.holders.get(&7).into_iter().flatten().map(|&holder| lifetimes.span(holder)).collect();
            for span in &spans {
                prop_assert!(span.from <= span.to, "{:?}", spans);
            }
            for pair in spans.windows(2) {
                prop_assert!(pair[0].to <= pair[1].from, "{:?}", spans);
            }
        }
    }

    #[test]
    fn many_late_starts_cost_little() {
        let mut lifetimes = Lifetimes::default();
        for at in (0..300_000).rev() {
            lifetimes.observe(7, Phase::Start, time(at), |_| Identity::Unsure);
        }
        assert_eq!(lifetimes.len(), 300_000);
    }
}
