//! Sequences: events in an order, with equal values, within a time.
//!
//! A sequence is complete if there is a chain: one event for each slot in the order of the trace,
//! whose neighbors have equal values of the fields after `by`, and whose last event is at most
//! `maxspan` after the first one. For each key and slot, only the chain that began last is kept: if
//! any chain can be completed, this one can. The memory is bounded; what is dropped is counted, and
//! a sequence that may have needed it is undetermined.

use std::ops::ControlFlow;
use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_expr::{Value, Visitor};

use super::Mode;
use super::missing::MissingInputs;

/// When and where an event is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// Time in units of 100 ns.
    pub time: i64,
    /// The number of the event in the order of the source.
    pub record: u64,
}

/// How certain it is that a chain exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Certainty {
    /// Something is missing.
    Undetermined,
    /// Only exceptions are undetermined.
    Possible,
    /// It exists.
    #[default]
    Certain,
}

/// The values of a field of an event, kept for later slots and for the text of the finding.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Kept(Box<[KeptValue]>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum KeptValue {
    Text(Box<str>),
    Integer(i128),
    /// The bits.
    Float(u64),
    Truth(bool),
    Unknown,
    /// The module.
    UnnamedFunction(Box<str>),
    Absent,
}

/// The limit of values that are kept of a field.
const VALUES_MAX: usize = 256;

impl Kept {
    /// Copies the values that `look_up` visits, up to a limit.
    pub fn of(look_up: impl FnOnce(&mut Visitor<'_>) -> ControlFlow<()>) -> Kept {
        Kept::some(VALUES_MAX, look_up)
    }

    /// Copies the values that `look_up` visits.
    pub fn all(look_up: impl FnOnce(&mut Visitor<'_>) -> ControlFlow<()>) -> Kept {
        Kept::some(usize::MAX, look_up)
    }

    fn some(limit: usize, look_up: impl FnOnce(&mut Visitor<'_>) -> ControlFlow<()>) -> Kept {
        let mut values = Vec::new();
        let _ = look_up(&mut |value| {
            if values.len() == limit {
                values.push(KeptValue::Unknown);
                return ControlFlow::Break(());
            }
            values.push(match value {
                Value::Unknown => KeptValue::Unknown,
                Value::UnnamedFunction { module } => KeptValue::UnnamedFunction(module.into()),
                Value::Absent => KeptValue::Absent,
                Value::Bool(truth) => KeptValue::Truth(truth),
                Value::Float(number) => KeptValue::Float(number.to_bits()),
                Value::Unsigned(number) => KeptValue::Integer(number.into()),
                Value::Signed(number) => KeptValue::Integer(number.into()),
                text => KeptValue::Text(text.to_text().unwrap_or_default().into()),
            });
            ControlFlow::Continue(())
        });
        Kept(values.into())
    }

    /// Passes the values to `visit`.
    pub fn visit(&self, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        self.0.iter().try_for_each(|value| visit(value.as_value()))
    }

    /// The text of the values; `None` if one is missing.
    pub fn to_text(&self) -> Option<String> {
        let texts: Option<Vec<_>> = self.0.iter().map(|value| value.as_value().to_text()).collect();
        Some(texts?.join(", ")).filter(|_| !self.0.is_empty())
    }

    pub fn is_known(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|value| value.as_value().is_known())
    }

    /// Whether the event is known to have no value, which equals no other.
    fn is_absent(&self) -> bool {
        self.0.contains(&KeptValue::Absent)
    }

    fn ignoring_case(self) -> Kept {
        let lower = |value| match value {
            KeptValue::Text(text) => KeptValue::Text(text.to_lowercase().into()),
            value => value,
        };
        Kept(self.0.into_iter().map(lower).collect())
    }

    fn size(&self) -> usize {
        let of_text = |value: &KeptValue| match value {
            KeptValue::Text(text) | KeptValue::UnnamedFunction(text) => text.len(),
            _ => 0,
        };
        size_of_val(&*self.0) + self.0.iter().map(of_text).sum::<usize>()
    }
}

impl KeptValue {
    fn as_value(&self) -> Value<'_> {
        match self {
            KeptValue::Text(text) => Value::Text(text),
            KeptValue::Integer(number) => match u64::try_from(*number) {
                Ok(number) => Value::Unsigned(number),
                Err(_) => Value::Signed(*number as i64),
            },
            KeptValue::Float(bits) => Value::Float(f64::from_bits(*bits)),
            KeptValue::Truth(truth) => Value::Bool(*truth),
            KeptValue::Unknown => Value::Unknown,
            KeptValue::UnnamedFunction(module) => Value::UnnamedFunction { module },
            KeptValue::Absent => Value::Absent,
        }
    }
}

/// The values that an event must share with its neighbors in a chain, and values of earlier events
/// that conditions refer to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Key {
    pub by: Box<[Kept]>,
    pub bound: Box<[Kept]>,
}

impl Key {
    /// The values after `by` of an event.
    pub fn by(values: impl Iterator<Item = Kept>, mode: Mode) -> Box<[Kept]> {
        values
            .map(|kept| match mode {
                // Names of files differ in case only.
                Mode::Strict => kept.ignoring_case(),
                Mode::Compatible if kept.is_absent() => Kept([KeptValue::Text("".into())].into()),
                Mode::Compatible => kept,
            })
            .collect()
    }

    /// Whether the values after `by` are those of another event; `None` if that depends on a missing
    /// one.
    pub fn agrees(&self, by: &[Kept]) -> Option<bool> {
        let mut all = Some(true);
        for (own, other) in self.by.iter().zip(by) {
            match own.is_known() && other.is_known() {
                true if own != other || own.is_absent() => return Some(false),
                true => {}
                false => all = None,
            }
        }
        all
    }

    /// Whether equal keys agree.
    fn is_known(&self) -> bool {
        self.by.iter().all(|kept| kept.is_known() && !kept.is_absent())
    }

    fn size(&self) -> usize {
        let all = self.by.iter().chain(&self.bound);
        size_of::<Key>() + all.map(|kept| size_of::<Kept>() + kept.size()).sum::<usize>()
    }
}

/// An event of a chain.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ChainEvent {
    pub at: Position,
    /// Values for the text of the finding.
    pub shown: Arc<[Kept]>,
}

/// Events of the first slots; without events, it certainly exists.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Chain {
    /// In the order of the slots.
    pub events: Vec<ChainEvent>,
    pub certainty: Certainty,
    /// What it lacks, or a chain whose place it took.
    pub missing: MissingInputs,
    /// The fields after `by` that are missing in the last event.
    pub key_missing: MissingInputs,
}

impl Chain {
    /// The chain, if an event continues it whose key may be another one.
    pub fn with_unknown_key(mut self, own: &MissingInputs) -> Chain {
        self.certainty = Certainty::Undetermined;
        self.missing.add_all(&self.key_missing);
        self.missing.add_all(own);
        self
    }

    /// Takes the place of another chain. A certain one need not lack what the other one does, if it is
    /// certain that both have the same key.
    fn absorb(&mut self, other: &Chain, is_same_key: bool) {
        if self.certainty != Certainty::Certain || !is_same_key {
            self.missing.add_all(&other.missing);
            self.key_missing.add_all(&other.key_missing);
        }
    }

    /// The time from which the longest time counts.
    fn start(&self, mode: Mode) -> i64 {
        let event = match mode {
            Mode::Strict => self.events.first(),
            Mode::Compatible => self.events.last(),
        };
        event.map_or(i64::MIN, |event| event.at.time)
    }
}

/// The best chains of one length: for each certainty, the one that began last. If that one turns out not
/// to exist, another one may: it lacks what these lack too.
#[derive(Clone, PartialEq, Debug, Default)]
struct Chains(Vec<Chain>);

impl Chains {
    /// Adds a chain, unless one that is as certain began later.
    fn add(&mut self, mut chain: Chain, is_same_key: bool, mode: Mode) {
        let start = chain.start(mode);
        let mut is_covered = false;
        for known in &mut self.0 {
            if known.certainty >= chain.certainty && known.start(mode) > start {
                is_covered = true;
                known.absorb(&chain, is_same_key);
            }
        }
        if is_covered {
            return;
        }
        self.0.retain(|known| {
            let is_kept = known.certainty > chain.certainty || known.start(mode) > start;
            if !is_kept {
                chain.absorb(known, is_same_key);
            }
            is_kept
        });
        self.0.push(chain);
    }

    fn is_open(&self, from: i64, mode: Mode) -> bool {
        self.0.iter().any(|chain| chain.start(mode) >= from)
    }

    fn forget_before(&mut self, from: i64, mode: Mode) {
        self.0.retain(|chain| chain.start(mode) >= from);
    }
}

/// The limits of the state of one sequence.
pub(crate) const KEYS_MAX: usize = 1 << 16;
pub(crate) const BOUND_KEYS_MAX: usize = 1 << 10;
const BYTES_MAX: usize = 16 << 20;
/// The number of keys that are compared one by one with an event whose own key is not known.
const COMPARED_KEYS_MAX: usize = 1 << 10;

/// Chains by their key, and by their length minus 1.
#[derive(Debug)]
struct Table {
    chains: HashMap<Key, Vec<Chains>, foldhash::fast::RandomState>,
    keys_max: usize,
    /// The size of the keys in bytes.
    bytes: usize,
    /// The number of keys at which those that are too old are removed.
    sweep_at: usize,
}

/// Keys that were removed to bound the memory.
#[derive(Clone, Copy, Debug, Default)]
struct Dropped {
    keys: u64,
    /// The time of the newest of them.
    time: Option<i64>,
}

impl Table {
    fn new(keys_max: usize) -> Table {
        Table { chains: HashMap::default(), keys_max, bytes: 0, sweep_at: 1024 }
    }

    /// Adds a chain. `lengths`: the number of lengths that chains can have; `from`: those that begin
    /// earlier can no longer be completed.
    fn keep(&mut self, key: Key, chain: Chain, lengths: usize, from: i64, mode: Mode) -> Dropped {
        let mut dropped = Dropped::default();
        let is_complete = key.is_known() && key.bound.iter().all(Kept::is_known);
        if !self.chains.contains_key(&key) {
            if self.chains.len() >= self.sweep_at || self.bytes >= BYTES_MAX {
                self.sweep(from, mode);
            }
            if self.chains.len() >= self.keys_max || self.bytes >= BYTES_MAX {
                dropped = self.drop_oldest(mode);
            }
            self.bytes += key.size();
        }
        let chains = self.chains.entry(key).or_insert_with(|| vec![Chains::default(); lengths]);
        chains[chain.events.len() - 1].add(chain, is_complete, mode);
        dropped
    }

    /// Removes chains that can no longer be completed.
    fn sweep(&mut self, from: i64, mode: Mode) {
        let bytes = &mut self.bytes;
        self.chains.retain(|key, chains| {
            chains.iter_mut().for_each(|chains| chains.forget_before(from, mode));
            let is_open = chains.iter().any(|chains| !chains.0.is_empty());
            *bytes -= if is_open { 0 } else { key.size() };
            is_open
        });
        self.sweep_at = (self.chains.len() * 2).max(1024);
    }

    /// Drops the older half of all keys.
    fn drop_oldest(&mut self, mode: Mode) -> Dropped {
        let newest = |chains: &[Chains]| {
            let starts = chains.iter().flat_map(|chains| &chains.0).map(|chain| chain.start(mode));
            starts.max().unwrap_or(i64::MIN)
        };
        let mut starts: Vec<i64> = self.chains.values().map(|chains| newest(chains)).collect();
        let half = (starts.len() / 2).max(1);
        let (older, &mut limit, _) = starts.select_nth_unstable(half - 1);
        // Of equal times, as many as needed.
        let mut equal = half - older.iter().filter(|&&start| start < limit).count();
        let (mut bytes, mut dropped) = (self.bytes, Dropped::default());
        self.chains.retain(|key, chains| {
            let start = newest(chains);
            if start > limit || (start == limit && equal == 0) {
                return true;
            }
            equal -= usize::from(start == limit);
            bytes -= key.size();
            dropped = Dropped { keys: dropped.keys + 1, time: dropped.time.max(Some(start)) };
            false
        });
        self.bytes = bytes;
        dropped
    }
}

/// The state of a sequence.
#[derive(Debug)]
pub(crate) struct SequenceState {
    mode: Mode,
    /// The longest time in units of 100 ns.
    span: i64,
    /// Chains whose keys are known.
    known: Table,
    /// Chains with a key of which a value is missing or absent.
    partial: Table,
    /// The best chains of `known` with any key, by their length minus 1.
    any: Vec<Chains>,
    /// The time of the last event that was dropped or lost.
    lost: Option<i64>,
    /// The number of keys that were dropped.
    pub dropped: u64,
}

impl SequenceState {
    /// The state of a sequence with at least two slots. `span` is in units of 100 ns.
    pub fn new(slots: usize, span: i64, has_bound: bool, mode: Mode) -> SequenceState {
        SequenceState {
            mode,
            span,
            known: Table::new(if has_bound { BOUND_KEYS_MAX } else { KEYS_MAX }),
            partial: Table::new(BOUND_KEYS_MAX),
            any: vec![Chains::default(); slots.saturating_sub(1)],
            lost: None,
            dropped: 0,
        }
    }

    /// Events were lost at a time.
    pub fn lose(&mut self, time: i64) {
        self.lost = self.lost.max(Some(time));
    }

    /// Whether a chain before an event may be missing.
    pub fn has_lost(&self, at: Position) -> bool {
        let steps = match self.mode {
            Mode::Strict => 1,
            Mode::Compatible => self.any.len() as i64,
        };
        self.lost.is_some_and(|lost| lost >= at.time.saturating_sub(self.span.saturating_mul(steps)))
    }

    /// The earliest time at which chains can begin that an event continues.
    fn from(&self, at: Position) -> i64 {
        at.time.saturating_sub(self.span)
    }

    /// The keys with open chains of a length that may have these values after `by`.
    pub fn keys(&self, length: usize, by: &[Kept], at: Position) -> Vec<Key> {
        let from = self.from(at);
        let tables = self.known.chains.iter().chain(&self.partial.chains);
        let open = tables.filter(|(key, chains)| {
            chains[length - 1].is_open(from, self.mode) && key.agrees(by) != Some(false)
        });
        open.map(|(key, _)| key.clone()).collect()
    }

    /// The open chains of a length with exactly this key.
    pub fn chains_of(&self, length: usize, key: &Key, at: Position) -> Vec<Chain> {
        let table = if key.is_known() { &self.known } else { &self.partial };
        let chains = table.chains.get(key).map(|chains| &chains[length - 1]);
        chains.into_iter().flat_map(|chains| self.open(chains, at)).cloned().collect()
    }

    /// The chains of a length that an event with these values after `by` can continue. `own`: the fields
    /// after `by` that the event lacks.
    pub fn before(&self, length: usize, by: &[Kept], own: &MissingInputs, at: Position) -> Vec<Chain> {
        let undetermined = |chain: &Chain| chain.clone().with_unknown_key(own);
        let mut found = Vec::new();
        let mut add = |chains: &Chains| found.extend(self.open(chains, at).map(undetermined));
        let mut add_all = |table: &Table| {
            for (key, chains) in &table.chains {
                if key.agrees(by) != Some(false) {
                    add(&chains[length - 1]);
                }
            }
        };
        add_all(&self.partial);
        let key = Key { by: by.into(), bound: Box::default() };
        if key.is_known() {
            found.extend(self.chains_of(length, &key, at));
        } else if by.iter().any(Kept::is_known) && self.known.chains.len() <= COMPARED_KEYS_MAX {
            add_all(&self.known);
        } else {
            add(&self.any[length - 1]);
        }
        found
    }

    fn open<'c>(&self, chains: &'c Chains, at: Position) -> impl Iterator<Item = &'c Chain> {
        let (from, mode) = (self.from(at), self.mode);
        chains.0.iter().filter(move |chain| chain.start(mode) >= from)
    }

    /// Keeps a chain that is not complete, under the key of its last event.
    pub fn keep(&mut self, key: Key, chain: Chain) {
        let Some(last) = chain.events.last() else { return };
        let (from, mode, lengths) = (self.from(last.at), self.mode, self.any.len());
        let dropped = if key.is_known() {
            self.any[chain.events.len() - 1].add(chain.clone(), false, mode);
            self.known.keep(key, chain, lengths, from, mode)
        } else {
            self.partial.keep(key, chain, lengths, from, mode)
        };
        self.dropped += dropped.keys;
        self.lost = self.lost.max(dropped.time);
    }
}
