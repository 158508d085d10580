//! Types of answers: names, sets and findings.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stackhound_detect::{DetectionId, Input, Inputs, Reason, Reasons, Severity, Verdict};
use stackhound_frames::Lists;

use crate::notation::{detector, evaluated, opening};

#[test]
fn severities_are_parsed_by_their_names() {
    for severity in Severity::ALL {
        assert_eq!(Severity::of(severity.name()), Some(severity));
    }
    for other in ["", "High", "highest", "none"] {
        assert_eq!(Severity::of(other), None, "{other}");
    }
    assert!(Severity::ALL.is_sorted());
}

#[test]
fn findings_are_the_verdicts_yes() {
    let evaluation = evaluated(&mut detector(Lists::default()), opening("lsass.exe", Some(0x1010)), "! app");
    let found: Vec<_> = evaluation.findings().map(|(id, _)| id.name()).collect();
    assert_eq!(found, ["CS01", "CS14", "CS24"]);
    assert_eq!(evaluation.iter().count(), DetectionId::all().count());
}

proptest! {
    /// Sets of inputs and reasons behave as sets.
    #[test]
    fn sets_contain_what_was_added(
        one in prop::collection::vec(prop::sample::select(Input::ALL), 0..8),
        other in prop::collection::vec(prop::sample::select(Input::ALL), 0..8),
        reasons in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let location = |input: Input| Input::ALL.iter().position(|known| *known == input).expect("one of all");
        let (first, second) = (Inputs::of(&one), Inputs::of(&other));
        let added = other.iter().fold(first, |set, input| set.with(*input));
        prop_assert_eq!(first.and(second), added);
        let expected: BTreeSet<usize> = one.iter().chain(&other).copied().map(location).collect();
        prop_assert!(added.iter().map(location).eq(expected.iter().copied()));
        prop_assert!(Input::ALL.iter().all(|&input| added.has(input) == expected.contains(&location(input))));
        prop_assert_eq!(added.is_empty(), expected.is_empty());

        let all = Reason::ALL;
        let chosen: BTreeSet<usize> = reasons.iter().map(|index| index.index(all.len())).collect();
        let set = reasons.iter().fold(Reasons::NONE, |set, index| set.with(all[index.index(all.len())]));
        prop_assert!(set.iter().eq(chosen.iter().map(|index| all[*index])));
        prop_assert!(all.iter().enumerate().all(|(index, reason)| set.has(*reason) == chosen.contains(&index)));
    }
}

#[test]
fn verdicts_have_names() {
    assert_eq!(
        [Verdict::Yes, Verdict::No, Verdict::Undetermined].map(Verdict::name),
        ["yes", "no", "undetermined"]
    );
}
