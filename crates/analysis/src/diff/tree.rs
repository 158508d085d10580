//! Stacks of two traces as one tree, for differential flame graphs.

use std::collections::BTreeMap;

use stackhound_profile::{CodeKind, Grouping};

use super::sides::{Samples, Uses, groups, path};
use super::{Comparison, Difference, Measured, Normalization, Verdict, compare};
use crate::slices::Sliced;

/// What a node stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// All samples.
    All,
    /// A process.
    Process,
    /// A function with its callers.
    Frame(CodeKind),
}

/// A node. Equal names with equal callers are one.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Index of the caller, which is smaller. `None` for the root.
    pub caller: Option<usize>,
    /// What it stands for.
    pub kind: Kind,
    /// Name of the function or process.
    pub name: String,
    /// The times of samples in it and in what it calls.
    pub difference: Difference,
}

/// The tree: the root first, callers before what they call.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The normalization and the threshold, with the compared nodes by index.
    pub comparison: Comparison<usize>,
}

/// The part of a tree that both sides enter their stacks into.
struct Builder {
    nodes: Vec<(Option<usize>, Kind, String)>,
    calls: BTreeMap<(usize, String), usize>,
    /// The sums of both sides, by node.
    sums: [Vec<Sliced>; 2],
}

impl Builder {
    fn node(&mut self, caller: usize, kind: Kind, name: &str) -> usize {
        let next = self.nodes.len();
        let number = *self.calls.entry((caller, name.to_owned())).or_insert(next);
        if number == next {
            self.nodes.push((Some(caller), kind, name.to_owned()));
            self.sums.iter_mut().for_each(|sums| sums.push(Sliced::default()));
        }
        number
    }

    fn enter(&mut self, side: usize, samples: &Samples<'_>, grouping: Grouping) {
        let profile = samples.profile();
        let groups = groups(profile, grouping);
        for (process, stack, sliced) in samples.by_process() {
            let mut at = 0;
            self.sums[side][at] += sliced;
            at = self.node(at, Kind::Process, &samples.process_name(process));
            self.sums[side][at] += sliced;
            for (name, frame) in path(profile, &groups, stack) {
                at = self.node(at, Kind::Frame(profile.frame(frame).code), name);
                self.sums[side][at] += sliced;
            }
        }
    }
}

/// The tree of the stacks of two captures. Needs about 700 bytes for each node.
pub fn tree(a: &Samples<'_>, b: &Samples<'_>, grouping: Grouping, normalization: Normalization) -> Tree {
    let mut builder = Builder {
        nodes: vec![(None, Kind::All, "all".to_owned())],
        calls: BTreeMap::new(),
        sums: [vec![Sliced::default()], vec![Sliced::default()]],
    };
    for (side, samples) in [a, b].into_iter().enumerate() {
        builder.enter(side, samples, grouping);
    }
    let [in_a, in_b] = builder.sums.map(|sums| sums.into_iter().enumerate());
    let (in_a, in_b) = (a.side(Uses::Stack, in_a), b.side(Uses::Stack, in_b));
    let comparison = compare(&in_a, &in_b, normalization);
    let compared: BTreeMap<usize, Difference> = comparison.rows.iter().copied().collect();
    // Nodes that are too small to be compared.
    let other = |index: usize| {
        let of = |rows: &BTreeMap<usize, Measured>| rows.get(&index).copied().unwrap_or_default();
        let (a, b) = (of(&in_a.rows), of(&in_b.rows));
        let delta = comparison.factor * b.amount as f64 - a.amount as f64;
        Difference { a, b, delta, z: None, share: 0.0, verdict: Verdict::Noise }
    };
    let nodes = builder.nodes.into_iter().enumerate().map(|(index, (caller, kind, name))| {
        let difference = compared.get(&index).copied().unwrap_or_else(|| other(index));
        Node { caller, kind, name, difference }
    });
    Tree { nodes: nodes.collect(), comparison }
}
