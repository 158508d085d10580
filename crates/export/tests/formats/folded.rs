//! Folded stacks, compared with a count of complete paths.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stackhound_export::folded;

use crate::profiles::{Facts, facts, shown};

/// A name without characters that end a frame or a line.
fn plain(name: &str) -> String {
    shown(name).replace(';', ":")
}

/// All paths with their weights.
fn expected(facts: &Facts) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for &(thread, _, stack, weight) in &facts.samples {
        let (process, pid) = &facts.processes[facts.threads[thread].0];
        let mut path = pid.map_or(process.clone(), |pid| format!("{process} ({pid})"));
        path = plain(&path);
        for &frame in &facts.stacks[stack] {
            path = format!("{path};{}", plain(&facts.frames[frame].0));
        }
        *lines.entry(path).or_default() += u64::from(weight);
    }
    lines
}

proptest! {
    #[test]
    fn lines_are_paths_with_weights(facts in facts()) {
        let mut text = Vec::new();
        folded::write(&facts.build(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let read = text.lines().map(|line| {
            let (path, weight) = line.rsplit_once(' ').unwrap();
            (path.to_owned(), weight.parse::<u64>().unwrap())
        });
        let read: Vec<_> = read.collect();
        prop_assert!(read.is_sorted_by_key(|(path, _)| path.split(';').collect::<Vec<_>>()));
        prop_assert_eq!(read.iter().cloned().collect::<BTreeMap<_, _>>(), expected(&facts));
        prop_assert_eq!(read.len(), expected(&facts).len());
    }
}
