//! Differences between two measurements: which names have more or less than chance explains.
//!
//! [`compare`] takes two sets of named amounts and decides for each name. It does not know where
//! the amounts come from; [`sides`] takes them from processor time, [`tree`] compares stacks with
//! their callers.
//!
//! A difference is *significant* if it is beyond the noise of both measurements, with a threshold
//! that depends on the number of compared names: among a thousand names, some differ by three
//! standard deviations by chance. It is *certain* if it also exceeds everything that the traces can
//! have lost. Only a certain difference is called a change.
#![doc = "See `docs/diff.md` for the definitions."]

pub mod names;
mod noise;
pub mod sides;
pub mod tree;

use std::collections::{BTreeMap, BTreeSet};
use strum::IntoStaticStr;

pub use noise::threshold;

/// What was measured of a name.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// Amount, such as nanoseconds.
    pub amount: u64,
    /// Number of observations that the amount consists of.
    pub count: u64,
    /// Variance of the amount if the measurement were repeated. `None` if it is not known.
    pub variance: Option<f64>,
}

impl Measured {
    /// The amount of observations whose number has a variance. All observations have about the same
    /// amount.
    pub fn counted(amount: u64, count: u64, variance_of_count: f64) -> Measured {
        let each = amount as f64 / count.max(1) as f64;
        Measured { amount, count, variance: Some(variance_of_count * each * each) }
    }

    /// An amount of which only this one measurement is known.
    pub fn exact(amount: u64, count: u64) -> Measured {
        Measured { amount, count, variance: None }
    }
}

/// One of two measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct Side<K> {
    /// By name. Names without observations are absent.
    pub rows: BTreeMap<K, Measured>,
    /// The amount that shares are of.
    pub total: u64,
    /// Length of the measurement in nanoseconds.
    pub duration: u64,
    /// Whether observations may be missing.
    pub is_lossy: bool,
    /// Any amount may be wrong by this, because of losses. `None` if there is no bound.
    pub uncertain: Option<u64>,
    /// Number of time slices that the variances are estimated from.
    pub slices: usize,
}

/// What makes two measurements comparable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Normalization {
    /// Amounts as they are: both did the same work.
    None,
    /// Amounts for each second of the measurement.
    Second,
    /// Shares of the total.
    Total,
}

/// The result of the comparison of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Verdict {
    /// Changed: found in B only.
    New,
    /// Changed: found in A only.
    Gone,
    /// Changed: more in B.
    More,
    /// Changed: less in B.
    Less,
    /// A finding of B that A, which lost records, does not have.
    #[strum(serialize = "only in b")]
    OnlyInB,
    /// A finding of A that B does not have: B may have lost it.
    #[strum(serialize = "only in a")]
    OnlyInA,
    /// Significant, but what the traces lost may explain it.
    Lost,
    /// Not known, because the variance is not known.
    Unrated,
    /// Not significant.
    Noise,
}

impl Verdict {
    /// Whether it is called a change.
    pub fn is_change(self) -> bool {
        matches!(self, Verdict::New | Verdict::Gone | Verdict::More | Verdict::Less | Verdict::OnlyInB)
    }

    /// The name in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The comparison of one name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// In A.
    pub a: Measured,
    /// In B, not normalized.
    pub b: Measured,
    /// The normalized amount of B minus the amount of A.
    pub delta: f64,
    /// `delta` in standard deviations of the noise. `None` if the noise is not known.
    pub z: Option<f64>,
    /// The larger of the shares of both totals, from 0 to 1.
    pub share: f64,
    /// The result.
    pub verdict: Verdict,
}

/// The comparison of two measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison<K> {
    /// Amounts of B are multiplied by this.
    pub factor: f64,
    /// Names with at least [`SHARE_MIN`], which are the compared ones.
    pub compared: usize,
    /// A difference is significant from this number of standard deviations.
    pub threshold: f64,
    /// The compared names: changes first, then those that losses may explain; each with the largest
    /// difference first.
    pub rows: Vec<(K, Difference)>,
}

/// The smallest share of a total that is compared. Smaller ones are rarely of interest, and more
/// comparisons need a higher threshold.
pub const SHARE_MIN: f64 = 0.005;

/// The comparison of things that matter even once, such as findings, from their numbers. All names
/// are compared.
pub fn compare_events<K: Ord + Clone>(
    a: &Side<K>,
    b: &Side<K>,
    normalization: Normalization,
) -> Comparison<K> {
    let [in_a, in_b] = [a, b].map(|side| Side { total: 0, ..side.clone() });
    let mut comparison = compare(&in_a, &in_b, normalization);
    for (_, difference) in &mut comparison.rows {
        difference.verdict = match (difference.a.count, difference.b.count) {
            (0, 1..) if a.is_lossy => Verdict::OnlyInB,
            (0, 1..) => Verdict::New,
            (1.., 0) if b.is_lossy => Verdict::OnlyInA,
            (1.., 0) => Verdict::Gone,
            _ => difference.verdict,
        };
    }
    comparison
}

/// Compares two measurements.
pub fn compare<K: Ord + Clone>(a: &Side<K>, b: &Side<K>, normalization: Normalization) -> Comparison<K> {
    let factors = Factors::new(a, b, normalization);
    let names: BTreeSet<&K> = a.rows.keys().chain(b.rows.keys()).collect();
    let of = |side: &Side<K>, name: &K| side.rows.get(name).copied();
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let compared: Vec<(&K, Option<Measured>, Option<Measured>, f64)> = names
        .into_iter()
        .map(|name| (name, of(a, name), of(b, name)))
        .map(|(name, in_a, in_b)| {
            let shares = [(in_a, a.total), (in_b, b.total)]
                .map(|(measured, total)| share(measured.unwrap_or_default().amount, total));
            (name, in_a, in_b, shares[0].max(shares[1]))
        })
        .filter(|(.., share)| *share >= SHARE_MIN)
        .collect();
    let threshold = noise::threshold(compared.len(), a.slices.min(b.slices));
    let mut rows: Vec<(K, Difference)> = compared
        .iter()
        .map(|&(name, in_a, in_b, share)| {
            let difference = factors.difference((in_a, a), (in_b, b), share, threshold);
            (name.clone(), difference)
        })
        .collect();
    let rank = |difference: &Difference| match difference.verdict {
        verdict if verdict.is_change() => 0,
        Verdict::Unrated => 0,
        Verdict::Lost => 1,
        _ => 2,
    };
    rows.sort_by(|(name, x), (other, y)| {
        let by_delta = y.delta.abs().total_cmp(&x.delta.abs());
        rank(x).cmp(&rank(y)).then(by_delta).then_with(|| name.cmp(other))
    });
    Comparison { factor: factors.usual, compared: compared.len(), threshold, rows }
}

/// The factors for amounts of B. They are uncertain if they depend on a total that is.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Factors {
    least: f64,
    usual: f64,
    most: f64,
}

impl Factors {
    fn new<K>(a: &Side<K>, b: &Side<K>, normalization: Normalization) -> Factors {
        let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        match normalization {
            Normalization::None => Factors { least: 1.0, usual: 1.0, most: 1.0 },
            Normalization::Second => {
                let ratio = ratio(a.duration, b.duration);
                Factors { least: ratio, usual: ratio, most: ratio }
            }
            Normalization::Total => {
                let [from_a, from_b] =
                    [a.uncertain, b.uncertain].map(|uncertain| uncertain.unwrap_or(u64::MAX));
                Factors {
                    least: ratio(a.total.saturating_sub(from_a), b.total.saturating_add(from_b)),
                    usual: ratio(a.total, b.total),
                    most: ratio(a.total.saturating_add(from_a), b.total.saturating_sub(from_b)),
                }
            }
        }
    }

    fn difference<K>(
        &self,
        (in_a, a): (Option<Measured>, &Side<K>),
        (in_b, b): (Option<Measured>, &Side<K>),
        share: f64,
        threshold: f64,
    ) -> Difference {
        let [has_a, has_b] = [in_a, in_b].map(|measured| measured.is_some_and(|of| of.amount > 0));
        // What was not observed has no variance of its own.
        let none = Measured::counted(0, 0, 0.0);
        let (in_a, in_b) = (in_a.unwrap_or(none), in_b.unwrap_or(none));
        let delta = self.usual * in_b.amount as f64 - in_a.amount as f64;
        let deviation =
            in_a.variance.zip(in_b.variance).map(|(a, b)| (a + self.usual * self.usual * b).sqrt());
        let z = deviation.map(|deviation| if delta == 0.0 { 0.0 } else { delta / deviation });
        let is_only_in_b = has_b && !has_a;
        let is_only_in_a = has_a && !has_b;
        // The smallest difference that is possible, whatever was lost.
        let remaining = match (a.uncertain, b.uncertain) {
            (Some(from_a), Some(from_b)) => {
                let (in_a, in_b) = (in_a.amount as f64, in_b.amount as f64);
                let (from_a, from_b) = (from_a as f64, from_b as f64);
                if delta > 0.0 {
                    self.least * (in_b - from_b) - (in_a + from_a)
                } else {
                    (in_a - from_a) - self.most * (in_b + from_b)
                }
            }
            _ => f64::NEG_INFINITY,
        };
        let verdict = match (z, deviation) {
            (Some(z), _) if z.abs() < threshold => Verdict::Noise,
            (Some(_), Some(deviation)) if remaining < threshold * deviation => Verdict::Lost,
            // What is missing entirely may have been lost, but then there was less of it.
            (Some(_), _) if is_only_in_b && !a.is_lossy => Verdict::New,
            (Some(_), _) if is_only_in_a && !b.is_lossy => Verdict::Gone,
            (Some(_), _) if delta > 0.0 => Verdict::More,
            (Some(_), _) => Verdict::Less,
            (None, _) if is_only_in_b && !a.is_lossy => Verdict::New,
            (None, _) if is_only_in_a && !b.is_lossy => Verdict::Gone,
            (None, _) if delta == 0.0 => Verdict::Noise,
            (None, _) => Verdict::Unrated,
        };
        Difference { a: in_a, b: in_b, delta, z, share, verdict }
    }
}

#[cfg(test)]
mod tests;
