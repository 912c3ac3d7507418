//! How sure is a rate that was counted slice by slice? Batch means.
//!
//! What a server does in one slice depends on what it did in the one before: a checkpoint, a collection, a queue that
//! fills. So neighbouring slices are put together into batches, twice as long each time, until a batch no longer says
//! anything of the next one or few are left; what correlation remains widens the interval by `(1 + r) / (1 - r)`, as that
//! of a first-order autoregressive series does. Repeats are batches of one and the same mean: where they differ by more
//! than the slices within them, the interval grows.
//!
//! Source: G. S. Fishman, "Grouping Observations in Digital Simulation", Management Science 24 (1978), 510-521; as in Law
//! and Kelton, "Simulation Modeling and Analysis", chapter 9. Differences are Welch's, with Satterthwaite's degrees of
//! freedom (B. L. Welch, Biometrika 34 (1947), 28-35).

use model::Estimate;

/// No fewer batches than this are made of more slices than this.
const FEWEST_BATCHES: usize = 10;

/// Correlation above this would widen the interval beyond all use.
const MOST_CORRELATION: f64 = 0.9;

/// The normal quantile that leaves 2.5% above it.
const NORMAL: f64 = 1.959_963_985;

/// A mean, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean, in operations a second.
    pub value: f64,
    /// The variance of the mean; `None`: too little was seen to tell.
    pub variance: Option<f64>,
    /// Degrees of freedom of that variance.
    pub freedom: f64,
    /// From how many batches it comes.
    pub batches: usize,
}

impl Mean {
    /// The mean rate of repeats, each counted in equal slices over so many seconds; `None`: nothing was counted.
    pub fn of(repeats: &[(&[u64], f64)]) -> Option<Self> {
        let seconds: f64 = repeats.iter().map(|(_, seconds)| seconds).sum();
        let counted: u64 = repeats.iter().flat_map(|(slices, _)| slices.iter()).sum();
        if seconds <= 0.0 || repeats.iter().any(|(slices, seconds)| slices.is_empty() || *seconds <= 0.0) {
            return None;
        }
        let value = counted as f64 / seconds;
        let mut series: Vec<Vec<f64>> = repeats
            .iter()
            .map(|(slices, seconds)| {
                let each = seconds / slices.len() as f64;
                slices.iter().map(|n| *n as f64 / each - value).collect()
            })
            .collect();
        let total = |series: &[Vec<f64>]| series.iter().map(Vec::len).sum::<usize>();
        let mut correlation = lag_one(&series);
        while correlation > surprising(total(&series)) && total(&series) / 2 >= FEWEST_BATCHES {
            series.iter_mut().for_each(pair_up);
            correlation = lag_one(&series);
        }
        let batches = total(&series);
        let mut mean = Self { value, variance: None, freedom: 0.0, batches };
        if batches >= 2 {
            let squares: f64 = series.iter().flatten().map(|d| d * d).sum();
            let r = correlation.clamp(0.0, MOST_CORRELATION);
            let variance = squares / (batches - 1) as f64 / batches as f64 * (1.0 + r) / (1.0 - r);
            // An operation more or less depends on where the ends of what was measured lie.
            let least = (1.0 / (NORMAL * seconds)).powi(2);
            mean.variance = Some(variance.max(least));
            mean.freedom = (batches - 1) as f64 * (1.0 - r) / (1.0 + r);
        }
        Some(mean)
    }

    /// With its 95% interval, which ends at zero.
    pub fn estimate(&self) -> Estimate {
        let half = self.variance.map(|variance| quantile(self.freedom) * variance.sqrt());
        Estimate {
            value: self.value,
            low: half.map(|half| (self.value - half).max(0.0)),
            high: half.map(|half| self.value + half),
            stages: u32::try_from(self.batches).unwrap_or(u32::MAX),
        }
    }

    /// Whether two means cannot be told apart at 95%; of those that nothing is known of, nothing can be told.
    pub fn like(&self, other: &Self) -> bool {
        let Some((a, b)) = self.variance.zip(other.variance) else { return true };
        let freedom = together((a, self.freedom), (b, other.freedom));
        (self.value - other.value).abs() <= quantile(freedom) * (a + b).sqrt()
    }

    /// The difference to `first` as a share of it, with its 95% interval by the delta method.
    pub fn beyond(&self, first: &Self) -> Option<Estimate> {
        if first.value <= 0.0 {
            return None;
        }
        let ratio = self.value / first.value;
        let half = self.variance.zip(first.variance).map(|(mine, its)| {
            let (a, b) = (mine / first.value.powi(2), its * (ratio / first.value).powi(2));
            quantile(together((a, self.freedom), (b, first.freedom))) * (a + b).sqrt()
        });
        let value = ratio - 1.0;
        let stages = u32::try_from(self.batches + first.batches).unwrap_or(u32::MAX);
        Some(Estimate { value, low: half.map(|h| value - h), high: half.map(|h| value + h), stages })
    }
}

/// Puts each two neighbours together; a last one that has none is dropped.
fn pair_up(series: &mut Vec<f64>) {
    *series = series.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
}

/// The correlation of each deviation with the next one of the same repeat.
fn lag_one(series: &[Vec<f64>]) -> f64 {
    let squares: f64 = series.iter().flatten().map(|d| d * d).sum();
    let pairs: usize = series.iter().map(|s| s.len().saturating_sub(1)).sum();
    if squares <= 0.0 || pairs == 0 {
        return 0.0;
    }
    let products: f64 = series.iter().flat_map(|s| s.windows(2)).map(|pair| pair[0] * pair[1]).sum();
    let all: usize = series.iter().map(Vec::len).sum();
    products / squares * all as f64 / pairs as f64
}

/// Above this, independent values correlate so once in twenty times.
fn surprising(n: usize) -> f64 {
    1.645 / (n.max(1) as f64).sqrt()
}

/// Satterthwaite's degrees of freedom of a sum of two variances.
fn together((a, of_a): (f64, f64), (b, of_b): (f64, f64)) -> f64 {
    let below = a * a / of_a.max(1.0) + b * b / of_b.max(1.0);
    if below > 0.0 { (a + b).powi(2) / below } else { of_a + of_b }
}

/// Student's quantile that leaves 2.5% above it, to within 0.5% (Abramowitz and Stegun, 26.7.5).
pub(crate) fn quantile(freedom: f64) -> f64 {
    const OF_FEW: [f64; 3] = [12.706, 4.303, 3.182];
    if freedom < 4.0 {
        return OF_FEW[(freedom as usize).clamp(1, 3) - 1];
    }
    let z = NORMAL;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    z + terms.iter().zip(1..).map(|(term, power)| term / freedom.powi(power)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;

    #[test]
    fn quantiles_are_students() {
        for (freedom, exact) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (9.0, 2.262), (19.0, 2.093)] {
            let found = quantile(freedom);
            assert!((found / exact - 1.0).abs() < 0.005, "{freedom}: {found}, not {exact}");
        }
    }

    /// Slices around 1,000 with a standard deviation of 30, each with so much of the one before.
    fn slices(correlation: f64, seed: &mut u64) -> Vec<u64> {
        let mut last = normal(seed);
        let each = |_| {
            last = correlation * last + (1.0 - correlation * correlation).sqrt() * normal(seed);
            (1_000.0 + 30.0 * last).round() as u64
        };
        (0..20).map(each).collect()
    }

    #[test]
    fn the_interval_holds_the_truth_though_slices_depend_on_each_other() {
        for (correlation, repeats, least) in [(0.0, 1, 0.93), (0.3, 1, 0.9), (0.6, 1, 0.8), (0.6, 3, 0.88)] {
            let mut seed = 7;
            let holds = |_: &u32| {
                let seen: Vec<Vec<u64>> = (0..repeats).map(|_| slices(correlation, &mut seed)).collect();
                let seen: Vec<(&[u64], f64)> = seen.iter().map(|s| (s.as_slice(), 20.0)).collect();
                Mean::of(&seen).unwrap().estimate().contains(1_000.0)
            };
            let held = (0..2_000).filter(holds).count() as f64 / 2_000.0;
            assert!(held >= least && held <= 0.99, "{correlation}, {repeats} repeats: {held}");
        }
    }

    #[test]
    fn repeats_that_differ_widen_it() {
        let (a, b) = ([100; 20], [110; 20]);
        let same = Mean::of(&[(&a, 10.0), (&a, 10.0)]).unwrap().estimate();
        let other = Mean::of(&[(&a, 10.0), (&b, 10.0)]).unwrap().estimate();
        assert!((same.value, other.value) == (200.0, 210.0));
        assert!(same.high.unwrap() - 200.0 < 0.2, "{same:?}");
        assert!(other.contains(200.0) && other.contains(220.0), "{other:?}");
    }

    #[test]
    fn nothing_counted_is_no_mean() {
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(Mean::of(&[(&[], 10.0)]), None);
        assert_eq!(Mean::of(&[(&[1], 0.0)]), None);
        let one = Mean::of(&[(&[7], 2.0)]).unwrap();
        assert_eq!((one.value, one.estimate().low), (3.5, None));
        assert!(one.like(&Mean { value: 9.0, ..one }), "nothing can be told");
    }

    #[test]
    fn a_difference_that_is_not_there_is_seen_once_in_twenty_times() {
        let mut seed = 11;
        let seen = |_: &u32| {
            let (a, b) = (slices(0.2, &mut seed), slices(0.2, &mut seed));
            let (a, b) = (Mean::of(&[(&a, 20.0)]).unwrap(), Mean::of(&[(&b, 20.0)]).unwrap());
            assert_eq!(a.like(&b), b.like(&a));
            !b.beyond(&a).unwrap().contains(0.0)
        };
        let share = (0..2_000).filter(seen).count() as f64 / 2_000.0;
        assert!((0.01..0.1).contains(&share), "{share}");
    }
}
