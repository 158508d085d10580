//! Compares traces without some of their buffers with the complete trace.

use std::fmt;

use stackhound::Passes;
use stackhound_etl::{BufferRef, EtlFile};

use super::answers::{Answer, EventKey, Reading, names, read};
use super::bound::Bound;

/// The number of drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Each buffer of tiny traces, every fourth of small ones, every 128th of larger ones, and a
    /// number of pairs that is a 128th of all buffers.
    Sample,
    /// Each buffer, and 200 pairs.
    Full,
    /// Each buffer.
    Each,
    /// Each buffer but the one with the highest number.
    EachButLast,
}

impl Extent {
    pub fn from_environment() -> Extent {
        match std::env::var("STACKHOUND_LOSS").as_deref() {
            Ok("full") => Extent::Full,
            _ => Extent::Sample,
        }
    }
}

const SAMPLED: usize = 128;
/// Maximum number of buffers of a small trace.
const SMALL: usize = 64;
/// Maximum number of buffers of a trace that is never sampled.
const TINY: usize = 8;
const PAIRS: usize = 200;
/// Maximum number of contradictions that are described.
const SHOWN: usize = 8;

/// The results of all drops of a trace.
#[derive(Default)]
pub struct Comparison {
    name: String,
    drops: usize,
    compared: u64,
    undetermined: u64,
    unconfirmed: u64,
    /// Number of these whose likely frames are right.
    likely: u64,
    wrong: u64,
    /// By state: certain stacks of the complete trace that a dropped buffer makes uncertain.
    doubted: std::collections::BTreeMap<&'static str, u64>,
    /// For each drop of one buffer: the share of certain stacks that stay certain.
    stays_certain: Vec<f64>,
    /// The share that any rule could leave certain.
    confirmable: Vec<f64>,
    /// The first contradictions.
    pub contradictions: Vec<String>,
}

impl Comparison {
    pub fn of(name: &str, bytes: &[u8], reading: Reading, extent: Extent) -> Comparison {
        let etl_file = EtlFile::open(bytes.to_vec().into()).expect("a trace");
        let mut buffers = etl_file.index().buffers;
        buffers.retain(|buffer| buffer.sequence > 0);
        let bound = Bound::of(&etl_file);
        let mut comparison = Comparison { name: name.to_owned(), ..Comparison::default() };
        for passes in [Passes::Two, Passes::One] {
            let whole = read(bytes.to_vec(), reading, passes);
            let with_stack = whole.iter().filter(|(_, answer)| answer.is_certain && answer.stack.is_some());
            let certain: Vec<EventKey> = with_stack.map(|(key, _)| *key).collect();
            for drop in drops(&buffers, extent) {
                let dropped: Vec<&BufferRef> = drop.iter().map(|index| &buffers[*index]).collect();
                let offsets: Vec<u64> = dropped.iter().map(|buffer| buffer.offset).collect();
                let answers = read(without(bytes, &dropped), reading, passes);
                let answers = answers
                    .into_iter()
                    .map(|((offset, index), answer)| ((original(offset, &dropped), index), answer));
                let answers = answers.collect::<std::collections::HashMap<_, _>>();
                comparison.drops += 1;
                for (key, answer) in &answers {
                    let expected = whole.get(key).expect("no event is invented");
                    comparison.compare(passes, &offsets, *key, expected, answer);
                }
                let left = certain.iter().filter(|(offset, _)| !offsets.contains(offset));
                let (mut all, mut still) = (0_u64, 0_u64);
                for key in left {
                    all += 1;
                    still += u64::from(answers[key].is_certain);
                    if !answers[key].is_certain {
                        *comparison.doubted.entry(answers[key].state.name()).or_default() += 1;
                    }
                }
                if drop.len() == 1 && passes == Passes::Two && all > 0 {
                    comparison.stays_certain.push(still as f64 / all as f64);
                    comparison
                        .confirmable
                        .extend(bound.as_ref().map(|bound| bound.confirmable_without(offsets[0])));
                }
            }
        }
        comparison
    }

    fn compare(&mut self, passes: Passes, drop: &[u64], key: EventKey, whole: &Answer, part: &Answer) {
        self.compared += 1;
        self.undetermined += u64::from(!part.is_certain);
        if part.state == stackhound::stacks::StackState::Unconfirmed {
            self.unconfirmed += 1;
            self.likely += u64::from(part.stack == whole.stack);
        }
        let is_contradicted = part.is_certain && (part.state, part.stack) != (whole.state, whole.stack);
        let wrong_yes = part.yes & !whole.yes;
        let wrong_no = part.no & whole.yes;
        let has_wrong_call = part.has_wrong_call(whole);
        if !is_contradicted && wrong_yes == 0 && wrong_no == 0 && !has_wrong_call {
            return;
        }
        self.wrong += 1;
        if self.contradictions.len() < SHOWN {
            let frames = if part.stack == whole.stack { "the same frames" } else { "other frames" };
            let (yes, no) = (names(wrong_yes), names(wrong_no));
            let calls = has_wrong_call.then_some((part.call, whole.call));
            self.contradictions.push(format!(
                "{passes:?} without {drop:?}, event {key:?}: {}, in the complete trace {}; {frames}; yes {yes:?}, no {no:?}; {calls:?}",
                part.state.name(),
                whole.state.name(),
            ));
        }
    }

    pub fn median_stays_certain(&self) -> Option<f64> {
        median(&self.stays_certain)
    }

    /// The best possible median.
    pub fn median_confirmable(&self) -> Option<f64> {
        median(&self.confirmable)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { name, drops, compared, undetermined, unconfirmed, likely, wrong, .. } = self;
        write!(f, "{name}: {drops} drops, {compared} events compared, {wrong} contradictions, ")?;
        write!(f, "{undetermined} uncertain; {unconfirmed} unconfirmed ({likely} with the right frames)")?;
        write!(f, "; made uncertain: {:?}", self.doubted)?;
        let least = self.stays_certain.iter().copied().fold(f64::INFINITY, f64::min);
        match self.median_stays_certain() {
            Some(median) => write!(f, "; stay certain: median {median:.3}, least {least:.3}")?,
            None => return Ok(()),
        }
        match self.median_confirmable() {
            Some(best) => write!(f, "; can be confirmed: median {best:.3}"),
            None => Ok(()),
        }
    }
}

fn median(shares: &[f64]) -> Option<f64> {
    let mut shares = shares.to_vec();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied()
}

pub fn drops(buffers: &[BufferRef], extent: Extent) -> Vec<Vec<usize>> {
    let count = buffers.len();
    let step = if count <= TINY {
        1
    } else if count <= SMALL {
        4
    } else {
        SAMPLED
    };
    let (step, pairs) = match extent {
        Extent::Sample => (step, buffers.len().div_ceil(SAMPLED)),
        Extent::Full => (1, PAIRS),
        Extent::Each | Extent::EachButLast => (1, 0),
    };
    let last = (0..count).max_by_key(|&index| buffers[index].sequence);
    let is_dropped = |index: &usize| extent != Extent::EachButLast || Some(*index) != last;
    let singles = (0..buffers.len()).step_by(step).filter(is_dropped).map(|index| vec![index]);
    // A fixed sequence (Knuth's multiplicative generator), so that a failure can be reproduced.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut drops: Vec<Vec<usize>> = singles.collect();
    if buffers.len() > 2 {
        for _ in 0..pairs {
            let first = next(buffers.len());
            let second = (first + 1 + next(buffers.len() - 1)) % buffers.len();
            drops.push(vec![first.min(second), first.max(second)]);
        }
    }
    drops
}

/// The file without these buffers, which are in file order.
pub fn without(bytes: &[u8], dropped: &[&BufferRef]) -> Vec<u8> {
    let mut left = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for buffer in dropped {
        left.extend_from_slice(&bytes[from..buffer.offset as usize]);
        from = buffer.offset as usize + buffer.size as usize;
    }
    left.extend_from_slice(&bytes[from..]);
    left
}

/// The offset in the complete file of a buffer of the shorter file.
pub fn original(offset: u64, dropped: &[&BufferRef]) -> u64 {
    dropped.iter().fold(offset, |offset, buffer| {
        if offset >= buffer.offset { offset + u64::from(buffer.size) } else { offset }
    })
}
