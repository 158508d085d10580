use proptest::prelude::*;

use super::*;

fn side(rows: &[(&'static str, u64)]) -> Side<&'static str> {
    // Each observation has an amount of 1000.
    let measured = |count: u64| Measured::counted(1000 * count, count, count as f64);
    let rows: BTreeMap<_, _> = rows.iter().map(|&(name, count)| (name, measured(count))).collect();
    let total = rows.values().map(|measured| measured.amount).sum();
    Side { rows, total, duration: 1_000_000, is_lossy: false, uncertain: Some(0), slices: 64 }
}

fn shown(a: &Side<&'static str>, b: &Side<&'static str>, normalization: Normalization) -> Vec<String> {
    let comparison = compare(a, b, normalization);
    let rows = comparison.rows.iter().filter(|(_, difference)| difference.verdict != Verdict::Noise);
    rows.map(|(name, difference)| format!("{name} {}", difference.verdict.name())).collect()
}

#[test]
fn changes_are_called_by_what_was_observed_and_lost() {
    let base = side(&[("a", 10_000), ("b", 10_000), ("c", 1000)]);
    let with = |rows: &[(&'static str, u64)]| {
        let mut all: BTreeMap<&str, u64> = [("a", 10_000), ("b", 10_000), ("c", 1000)].into();
        all.extend(rows.iter().copied());
        all.retain(|_, count| *count > 0);
        side(&all.into_iter().collect::<Vec<_>>())
    };
    let lossy = |side: Side<&'static str>, uncertain| Side { is_lossy: true, uncertain, ..side };
    let none = Normalization::None;
    type Row = (Side<&'static str>, Side<&'static str>, &'static [&'static str]);
    let rows: &[Row] = &[
        (base.clone(), base.clone(), &[]),
        (base.clone(), with(&[("a", 10_300)]), &[]),
        (base.clone(), with(&[("a", 11_000)]), &["a more"]),
        (base.clone(), with(&[("a", 11_000), ("b", 8000)]), &["b less", "a more"]),
        (base.clone(), with(&[("c", 0)]), &["c gone"]),
        (base.clone(), with(&[("d", 1000)]), &["d new"]),
        // Less than half a percent.
        (base.clone(), with(&[("d", 100)]), &[]),
        // More was lost than is missing, or less, or it is not known how much.
        (base.clone(), lossy(with(&[("c", 0)]), Some(1_000_000)), &["c lost"]),
        (base.clone(), lossy(with(&[("c", 0)]), Some(100_000)), &["c less"]),
        (base.clone(), lossy(with(&[("c", 0)]), None), &["c lost"]),
        (lossy(base.clone(), Some(100_000)), with(&[("d", 1000)]), &["d more"]),
        (lossy(base.clone(), Some(1_000_000)), with(&[("d", 1000)]), &["d lost"]),
        (lossy(base.clone(), Some(10_000)), with(&[("c", 0)]), &["c gone"]),
    ];
    for (index, (a, b, expected)) in rows.iter().enumerate() {
        assert_eq!(shown(a, b, none), *expected, "row {index}");
    }
    // Half of the time and of the work.
    let half = Side { duration: 500_000, ..side(&[("a", 5000), ("b", 5000), ("c", 500)]) };
    assert_eq!(shown(&base, &half, Normalization::Second), [""; 0]);
    assert_eq!(shown(&base, &half, Normalization::Total), [""; 0]);
    assert_eq!(shown(&base, &half, none), ["a less", "b less", "c less"]);
    // Shares of a total that is not known are not known either.
    let more = |uncertain| lossy(side(&[("a", 14_000), ("b", 5000), ("c", 500)]), Some(uncertain));
    assert_eq!(shown(&base, &more(10_000), Normalization::Total), ["a more", "b less", "c less"]);
    assert_eq!(shown(&base, &more(3_000_000), Normalization::Total), ["a lost", "b lost", "c lost"]);
}

#[test]
fn exact_amounts_are_not_called_changed() {
    let exact = |rows: &[(&'static str, u64)]| {
        let mut side = side(rows);
        side.rows.values_mut().for_each(|measured| measured.variance = None);
        side
    };
    let (a, b) = (exact(&[("a", 100), ("b", 50), ("c", 3)]), exact(&[("a", 100), ("b", 90), ("d", 3)]));
    assert_eq!(shown(&a, &b, Normalization::None), ["b unrated", "c gone", "d new"]);
}

#[test]
fn events_matter_even_once() {
    let events = |rows: &[(&'static str, u64)], is_lossy| Side { is_lossy, uncertain: Some(0), ..side(rows) };
    let (a, b) = ([("a", 1), ("b", 5000), ("d", 40)], [("b", 4990), ("c", 1), ("d", 400)]);
    for (lossy_a, lossy_b, expected) in [
        (false, false, ["d more", "a gone", "c new"]),
        (true, false, ["d more", "a gone", "c only in b"]),
        (false, true, ["d more", "a only in a", "c new"]),
    ] {
        let comparison = compare_events(&events(&a, lossy_a), &events(&b, lossy_b), Normalization::None);
        let mut found: Vec<_> = comparison
            .rows
            .iter()
            .filter(|(_, difference)| difference.verdict != Verdict::Noise)
            .map(|(name, difference)| format!("{name} {}", difference.verdict.name()))
            .collect();
        found.sort_by_key(|text| !text.starts_with('d'));
        assert_eq!(found, expected);
    }
}

/// A number with a Poisson distribution, from uniformly distributed ones (Knuth), in parts because
/// of the range of floating-point numbers.
fn poisson(mean: f64, random: &mut impl FnMut() -> f64) -> u64 {
    let parts = (mean / 50.0).ceil().max(1.0);
    let limit = (-mean / parts).exp();
    let mut count = 0;
    for _ in 0..parts as u64 {
        let mut product = random();
        while product > limit {
            count += 1;
            product *= random();
        }
    }
    count
}

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// Counts of functions with these means.
fn drawn(means: &[f64], random: &mut impl FnMut() -> f64) -> Side<&'static str> {
    let counts: Vec<_> =
        NAMES.iter().zip(means).map(|(&name, &mean)| (name, poisson(mean, random))).collect();
    side(&counts.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>())
}

fn uniform(seed: u64) -> impl FnMut() -> f64 {
    // SplitMix64.
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// The statistic is the published formula, in its own words: z = (n2·k − n1) / √(n1 + k²·n2).
    #[test]
    fn the_statistic_is_the_published_formula(
        counts in prop::collection::btree_map(0_usize..12, (0_u64..100_000, 0_u64..100_000), 1..12),
        durations in (1_u64..10_000_000, 1_u64..10_000_000),
        choice in 0..3,
    ) {
        let of = |second: bool| {
            let counts = counts.iter().map(|(&at, &(a, b))| (NAMES[at], if second { b } else { a }));
            side(&counts.filter(|(_, count)| *count > 0).collect::<Vec<_>>())
        };
        let (a, b) = (Side { duration: durations.0, ..of(false) }, Side { duration: durations.1, ..of(true) });
        let (normalization, k) = match choice {
            0 => (Normalization::None, 1.0),
            1 => (Normalization::Second, durations.0 as f64 / durations.1 as f64),
            _ => (Normalization::Total, a.total as f64 / b.total.max(1) as f64),
        };
        let comparison = compare(&a, &b, normalization);
        prop_assert!((comparison.factor - k).abs() <= 1e-9 * k.max(1.0));
        let mut last = f64::INFINITY;
        for (name, difference) in &comparison.rows {
            let &(n1, n2) = &counts[&NAMES.iter().position(|known| known == name).unwrap()];
            let (n1, n2) = (n1 as f64, n2 as f64);
            let expected = (n2 * k - n1) / (n1 + k * k * n2).sqrt();
            let z = difference.z.unwrap();
            prop_assert!((z - expected).abs() <= 1e-6 * expected.abs().max(1e-3), "{z} {expected}");
            let is_significant = expected.abs() >= comparison.threshold;
            prop_assert!(is_significant == difference.verdict.is_change() || (expected.abs() - comparison.threshold).abs() < 1e-6);
            if is_significant {
                prop_assert!(difference.delta.abs() <= last);
                last = difference.delta.abs();
            }
        }
    }

    /// Losses make fewer differences certain, and never others.
    #[test]
    fn losses_only_remove_changes(
        counts in prop::collection::vec((0_u64..5000, 0_u64..5000), 12),
        uncertain in (0_u64..3_000_000, 0_u64..3_000_000),
    ) {
        let of = |second: bool| {
            let rows = NAMES.iter().zip(&counts).map(|(&name, &(a, b))| (name, if second { b } else { a }));
            side(&rows.filter(|(_, count)| *count > 0).collect::<Vec<_>>())
        };
        let (a, b) = (of(false), of(true));
        let lossy = |side: &Side<&'static str>, uncertain| Side { is_lossy: true, uncertain: Some(uncertain), ..side.clone() };
        for normalization in [Normalization::None, Normalization::Second, Normalization::Total] {
            let complete: BTreeMap<_, _> = compare(&a, &b, normalization).rows.into_iter().collect();
            for (name, found) in compare(&lossy(&a, uncertain.0), &lossy(&b, uncertain.1), normalization).rows {
                prop_assert!(!matches!(found.verdict, Verdict::New | Verdict::Gone));
                if found.verdict.is_change() {
                    prop_assert!(complete[name].verdict.is_change());
                    prop_assert_eq!(found.delta > 0.0, complete[name].delta > 0.0);
                }
            }
        }
    }
}

/// Pairs of halves of a steady process, some of which differ by chance as much as a change does: at
/// most as many as [`noise::FALSE_ALARMS`] says.
#[test]
fn steady_processes_rarely_have_changes() {
    const PAIRS: u64 = 3000;
    for normalization in [Normalization::None, Normalization::Second, Normalization::Total] {
        let has_change = |seed: &u64| {
            let mut random = uniform(*seed);
            let means: Vec<f64> = NAMES.iter().map(|_| 3000.0 * random()).collect();
            let (a, b) = (drawn(&means, &mut random), drawn(&means, &mut random));
            !shown(&a, &b, normalization).is_empty()
        };
        let found = (0..PAIRS).filter(has_change).count();
        assert!(found as f64 <= noise::FALSE_ALARMS * PAIRS as f64, "{normalization:?}: {found}");
    }
}

/// A tenth more in one function is found, and before all that chance makes.
#[test]
fn an_injected_change_is_first() {
    for seed in 0..300 {
        let mut random = uniform(seed);
        let at = seed as usize % NAMES.len();
        let means = [40_000.0; NAMES.len()];
        let mut changed = means;
        changed[at] *= 1.1;
        let (a, b) = (drawn(&means, &mut random), drawn(&changed, &mut random));
        let expected = format!("{} more", NAMES[at]);
        assert_eq!(shown(&a, &b, Normalization::Second).first(), Some(&expected), "seed {seed}");
    }
}
