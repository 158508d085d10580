//! How large a difference must be so that chance does not explain it.

/// The probability that chance alone makes any name of one comparison significant, if the variances
/// are right.
pub(super) const FALSE_ALARMS: f64 = 0.001;

/// The smallest threshold, whatever the number of names.
const THRESHOLD_MIN: f64 = 3.0;

/// The number of standard deviations from which a difference is significant, among a number of
/// compared names. The variances were estimated from `slices` time slices, so they are uncertain
/// themselves: the threshold is that of Student's distribution instead of the normal one.
pub fn threshold(names: usize, slices: usize) -> f64 {
    // Bonferroni: each of the names may exceed its threshold with this probability, half of it on
    // each side.
    let tail = FALSE_ALARMS / names.max(1) as f64 / 2.0;
    // Half of the sum of squared differences between neighbors has the precision of a variance from
    // two thirds as many values (von Neumann 1941).
    let degrees = (slices as f64 * 2.0 / 3.0).max(4.0);
    student(normal(tail), degrees).max(THRESHOLD_MIN)
}

/// The number of standard deviations that a normal variable exceeds with a probability of at most
/// 0.5. Abramowitz and Stegun 26.2.23; the error is at most 0.00045.
fn normal(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// The same for a variable with Student's distribution, from that of a normal one. Abramowitz and
/// Stegun 26.7.5.
fn student(x: f64, degrees: f64) -> f64 {
    let square = x * x;
    let terms = [
        x * (square + 1.0) / 4.0,
        x * ((5.0 * square + 16.0) * square + 3.0) / 96.0,
        x * (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0,
    ];
    let powers = [degrees, degrees * degrees, degrees * degrees * degrees];
    x + terms.iter().zip(powers).map(|(term, power)| term / power).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_published_tables() {
        for (tail, expected) in [(0.025, 1.95996), (0.005, 2.57583), (0.0005, 3.29053), (0.000_05, 3.89059)] {
            assert!((normal(tail) - expected).abs() < 0.0005, "{tail}: {}", normal(tail));
        }
        for (tail, degrees, expected) in
            [(0.025, 20.0, 2.086), (0.005, 20.0, 2.845), (0.0005, 20.0, 3.850), (0.0005, 60.0, 3.460)]
        {
            let found = student(normal(tail), degrees);
            assert!((found - expected).abs() < 0.01, "{tail}, {degrees}: {found}");
        }
    }

    #[test]
    fn more_names_and_fewer_slices_need_larger_differences() {
        let thresholds = [(1, 64), (100, 64), (100, 33), (10_000, 33), (10_000, 1)];
        let found = thresholds.map(|(names, slices)| threshold(names, slices));
        assert!(found.is_sorted(), "{found:?}");
        assert!(found[0] > 3.2 && found[2] < 6.5, "{found:?}");
    }
}
