//! What does one more connection cost? The slope through the stages, with its interval.
//!
//! The estimate is Theil and Sen's: the median of the slopes of all pairs of points with different x.
//! Up to 29% of the points may be arbitrarily wrong before it is, so an allocator that takes its memory in
//! steps, or one stage during which something else ran, does not bend it as a least-squares line would bend.
//!
//! The interval is the distribution-free one that belongs to it: the slopes that Kendall's test would not
//! reject at 5%. It assumes that the points lie on one straight line, that their errors are independent and
//! of one continuous distribution (no particular one), and that x is known without error.
//!
//! Source: P. K. Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", Journal of the
//! American Statistical Association 63 (1968), 1379-1389; as in Hollander and Wolfe, "Nonparametric
//! Statistical Methods", section 9.3.

use model::Estimate;

/// Up to this many points the null distribution of Kendall's S is counted out exactly (34! no longer fits
/// 128 bits); above it the normal approximation is used, whose error is then far below that of the data.
const EXACT_UP_TO: usize = 30;

/// What each end of a 95% interval may miss.
const EACH_TAIL: f64 = 0.025;

/// The normal quantile that leaves [`EACH_TAIL`] above it.
const NORMAL_QUANTILE: f64 = 1.959_963_985;

/// A line through the stages: its slope with an interval, and where it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The slope, in units of y per unit of x.
    pub slope: Estimate,
    /// The median of `y - slope * x`: what is there without any connection, in units of y.
    pub intercept: f64,
}

impl Fit {
    /// The line's y at `x`, for drawing it through the points.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope.value * x
    }
}

/// The Theil-Sen slope of `(x, y)` points with its 95% interval.
///
/// `None` if fewer than two different x are among them. The interval is `None` where the points are too few
/// to promise 95%: fewer than five, or so many with the same x that it comes to the same. Pairs with one x
/// say nothing about a slope and are left out; points that are not finite are, too.
pub fn slope(points: &[(f64, f64)]) -> Option<Estimate> {
    fit(points).map(|fit| fit.slope)
}

/// The same as [`slope()`], with the intercept that is needed to draw it.
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let points: Vec<(f64, f64)> =
        points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (i, &(x1, y1)) in points.iter().enumerate() {
        for &(x2, y2) in &points[i + 1..] {
            if x1 != x2 {
                slopes.push((y2 - y1) / (x2 - x1));
            }
        }
    }
    slopes.sort_by(f64::total_cmp);
    let value = median(&slopes)?;

    let reach = outer_slopes(&ties(&points), points.len(), slopes.len());
    let low = reach.and_then(|d| slopes.get(d).copied());
    let high = reach.and_then(|d| slopes.len().checked_sub(d + 1).map(|i| slopes[i]));
    let mut rests: Vec<f64> = points.iter().map(|(x, y)| y - value * x).collect();
    rests.sort_by(f64::total_cmp);
    let stages = u32::try_from(points.len()).unwrap_or(u32::MAX);
    Some(Fit { slope: Estimate { value, low, high, stages }, intercept: median(&rests)? })
}

/// The median of sorted values; the mean of the two middle ones where their number is even.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

/// How many points share each x: 1 where none does.
fn ties(points: &[(f64, f64)]) -> Vec<usize> {
    let mut xs: Vec<f64> = points.iter().map(|p| p.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.chunk_by(|a, b| a == b).map(<[f64]>::len).collect()
}

/// How many of the sorted slopes to leave out at each end for a 95% interval; `None`: not even all suffice.
///
/// With D discordant pairs among `pairs`, Kendall's S is `pairs - 2 D`. The interval from the slope after the
/// `d` lowest to the one before the `d` highest misses the truth on one side with probability P(D <= d).
fn outer_slopes(ties: &[usize], points: usize, pairs: usize) -> Option<usize> {
    if points > EXACT_UP_TO {
        let spread = |n: usize| (n * (n - 1) * (2 * n + 5)) as f64;
        let variance = (spread(points) - ties.iter().map(|&t| spread(t)).sum::<f64>()) / 18.0;
        let inside = NORMAL_QUANTILE * variance.sqrt();
        return (((pairs as f64 - inside) / 2.0).floor() as usize).checked_sub(1);
    }
    let counts = discordant_counts(ties, points);
    let all: u128 = counts.iter().sum();
    let mut below = 0;
    let mut reach = None;
    for (d, count) in counts.iter().enumerate() {
        below += count;
        if below as f64 > EACH_TAIL * all as f64 {
            break;
        }
        reach = Some(d);
    }
    reach
}

/// In how many orders of the y values exactly 0, 1, 2, … pairs are discordant, if y has nothing to do with x.
///
/// These are the coefficients of a product: each point added to k others may pass 0 to k of them, which
/// multiplies by `1 + q + … + q^k`. Among `t` points of one x no pair counts, which divides by the same
/// product up to `t`.
fn discordant_counts(ties: &[usize], points: usize) -> Vec<u128> {
    let mut counts = vec![1_u128];
    for size in 2..=points {
        let mut grown = vec![0; counts.len() + size - 1];
        for (d, count) in counts.iter().enumerate() {
            for passed in 0..size {
                grown[d + passed] += count;
            }
        }
        counts = grown;
    }
    for size in ties.iter().flat_map(|&t| 2..=t) {
        let mut shrunk = vec![0_u128; counts.len() + 1 - size];
        for d in 0..shrunk.len() {
            let taken: u128 = shrunk[d.saturating_sub(size - 1)..d].iter().sum();
            shrunk[d] = counts[d] - taken;
        }
        counts = shrunk;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A small generator of evenly spread numbers from 0 to 1: tests must not depend on the machine.
    fn noise(seed: &mut u64) -> f64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn too_few_points() {
        assert_eq!(slope(&[]), None);
        assert_eq!(slope(&[(1.0, 2.0)]), None);
        assert_eq!(slope(&[(1.0, 2.0), (1.0, 9.0)]), None);
        let two = slope(&[(1.0, 2.0), (3.0, 6.0)]).unwrap();
        assert_eq!((two.value, two.low, two.high, two.stages), (2.0, None, None, 2));
        let four = slope(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.5), (4.0, 4.0)]).unwrap();
        assert_eq!((four.low, four.high), (None, None));
        assert_eq!(slope(&[(1.0, f64::NAN), (2.0, 2.0)]), None);
    }

    #[test]
    fn five_points_take_the_outermost_slopes() {
        // P(S >= 10) = 1/120 and P(S >= 8) = 5/120: only the full reach stays below 2.5%.
        let five = slope(&[(1.0, 1.0), (2.0, 2.5), (3.0, 3.0), (4.0, 4.5), (5.0, 5.0)]).unwrap();
        assert_eq!((five.value, five.low, five.high), (1.0, Some(0.5), Some(1.5)));
    }

    #[test]
    fn the_null_distribution_is_the_tabulated_one() {
        assert_eq!(discordant_counts(&[1; 4], 4), [1, 3, 5, 6, 5, 3, 1]);
        assert_eq!(discordant_counts(&[1; 5], 5)[..3], [1, 4, 9]);
        // Two points share one x of three: three places for the odd one, so 0, 1 or 2 discordant pairs.
        assert_eq!(discordant_counts(&[2, 1], 3), [1, 1, 1]);
        // Hollander and Wolfe, table A.30: P(K >= 23) = 0.023 for n = 10, and 21 would be 0.036.
        assert_eq!(outer_slopes(&[1; 10], 10, 45), Some(11));
        assert_eq!(discordant_counts(&[1; 30], 30).iter().sum::<u128>(), (1..=30_u128).product());
    }

    #[test]
    fn the_approximation_meets_the_exact_count() {
        let pairs = 30 * 29 / 2;
        let exact = outer_slopes(&[1; 30], 30, pairs).unwrap();
        let variance: f64 = f64::from(30 * 29 * 65) / 18.0;
        let normal = ((pairs as f64 - NORMAL_QUANTILE * variance.sqrt()) / 2.0).floor() as usize - 1;
        assert!(exact.abs_diff(normal) <= 1, "{exact} against {normal}");
    }

    #[test]
    fn steps_of_an_allocator_do_not_bend_it() {
        // 100 bytes each, but memory comes in pieces of 64 KiB, and one stage saw a foreign 10 MB.
        let mut points: Vec<(f64, f64)> = (1..=10)
            .map(|k| f64::from(k) * 1_000.0)
            .map(|n| (n, (n * 100.0 / 65_536.0).ceil() * 65_536.0))
            .collect();
        points[4].1 += 10e6;
        let fit = fit(&points).unwrap();
        assert!((fit.slope.value - 100.0).abs() < 10.0, "{fit:?}");
        assert!(fit.slope.contains(100.0));
    }

    #[test]
    fn a_stage_run_twice_counts_once_against_each_other() {
        let points = [(1.0, 1.0), (2.0, 2.0), (2.0, 7.0), (3.0, 3.0)];
        assert_eq!(slope(&points).unwrap().value, 1.0);
    }

    #[test]
    fn the_interval_holds_what_it_promises() {
        for points in [5_u32, 8, 12, 40] {
            let mut seed = 0x9E37_79B9_7F4A_7C15 ^ u64::from(points);
            let runs = 2_000;
            let inside = (0..runs)
                .filter(|_| {
                    let drawn: Vec<(f64, f64)> = (0..points)
                        // Skewed errors, as those of memory are: never below, sometimes far above.
                        .map(|i| (f64::from(i), 3.0 * f64::from(i) - 5.0 * noise(&mut seed).ln()))
                        .collect();
                    slope(&drawn).unwrap().contains(3.0)
                })
                .count();
            let share = inside as f64 / f64::from(runs);
            assert!(share >= 0.94, "{points} points: {share}");
            assert!(points < 12 || share <= 0.975, "{points} points: needlessly wide, {share}");
        }
    }

    proptest! {
        #[test]
        fn a_straight_line_is_found(a in -1e6..1e6f64, b in -1e3..1e3f64, n in 2..60u32) {
            let points: Vec<_> = (0..n).map(|i| f64::from(i) * 10.0).map(|x| (x, a + b * x)).collect();
            let fit = fit(&points).unwrap();
            prop_assert!((fit.slope.value - b).abs() < 1e-6);
            prop_assert!((fit.at(7.0) - (a + b * 7.0)).abs() < 1e-3);
        }

        #[test]
        fn value_lies_in_its_interval(ys in prop::collection::vec(-1e9..1e9f64, 0..40)) {
            let points: Vec<_> = ys.iter().enumerate().map(|(i, &y)| ((i / 2) as f64, y)).collect();
            if let Some(e) = slope(&points) {
                prop_assert!(e.low.is_none_or(|low| low <= e.value));
                prop_assert!(e.high.is_none_or(|high| high >= e.value));
            }
        }
    }
}
