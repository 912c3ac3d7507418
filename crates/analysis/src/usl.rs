//! Does throughput follow the Universal Scalability Law, and with which coefficients?
//!
//! `X(N) = l N / (1 + s (N - 1) + k N (N - 1))`. Least squares, each count weighed by its own interval. `N / X` is a sum
//! of three parts, `1`, `N - 1` and `N (N - 1)`, so that a linear fit gives the start from which Gauss and Newton's steps
//! come to the least squares of throughput itself. No coefficient may be below zero: the fits that leave contention,
//! coherency or both out are made as well, and the best that is allowed is taken.
//!
//! The intervals of 95% come from the covariance at the solution, taken over to the coefficients by the delta method, with
//! Student's quantile. They assume that the law holds; whether it does is asked first: three coefficients bend to many a
//! curve, and a law that is not the server's would be taken for its future.
//!
//! Source: N. J. Gunther, "Guerrilla Capacity Planning", chapters 4 to 6; Bates and Watts, "Nonlinear Regression Analysis
//! and Its Applications", chapter 2.

use model::sweep::Usl;
use model::{Estimate, units};

use crate::batch::quantile;

/// Fewer counts than this leave no room to see whether the law holds.
pub(crate) const FEWEST_COUNTS: usize = 5;

/// A count is never known better than this share of it: what a run does to it is not in its slices.
const FINEST: f64 = 0.005;

/// A count may lie this share of it off the law, and by what its interval allows.
const MOST_OFF: f64 = 0.05;

/// Further off than this share, noise is no excuse: what is known so badly supports no law.
const TOO_FAR: f64 = 0.1;

/// One client count, and what was measured of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Clients.
    pub clients: f64,
    /// Operations a second.
    pub per_second: f64,
    /// Standard error of these; 0: not known.
    pub error: f64,
}

/// Fits the law.
///
/// # Errors
/// Why it is not fitted: too few counts, too much noise, or another law, with where it is seen best.
pub fn fit(points: &[Point]) -> Result<Usl, String> {
    let points: Vec<Point> =
        points.iter().copied().filter(|p| p.clients >= 1.0 && p.per_second > 0.0).collect();
    if points.len() < FEWEST_COUNTS {
        return Err(format!("{} client counts can be used, {FEWEST_COUNTS} are needed", points.len()));
    }
    let whole = [true; 3];
    let choices = [whole, [true, true, false], [true, false, true], [true, false, false]];
    let solved: Vec<Solution> = choices.iter().filter_map(|free| solve(&points, *free)).collect();
    let allowed = solved.iter().filter(|s| s.parts[0] > 0.0 && s.parts.iter().all(|part| *part >= 0.0));
    let best = allowed.min_by(|a, b| a.squares.total_cmp(&b.squares));
    let Some(best) = best else { return Err("no coefficients of the law fit at all".to_owned()) };

    let off = |p: &Point| p.per_second / best.at(p.clients) - 1.0;
    let worst = points.iter().max_by(|a, b| beyond_noise(a, off(a)).total_cmp(&beyond_noise(b, off(b))));
    if let Some(worst) = worst.filter(|p| beyond_noise(p, off(p)) > 1.0) {
        let (share, side) = (off(worst).abs() * 100.0, if off(worst) > 0.0 { "above" } else { "below" });
        return Err(format!(
            "{} clients lie {share:.0}% {side} the best fit, more than the noise allows: the server follows another law",
            units::count(worst.clients as u64)
        ));
    }
    let worst_residual = points.iter().map(|p| off(p).abs()).fold(0.0, f64::max);
    if worst_residual > TOO_FAR {
        let share = worst_residual * 100.0;
        return Err(format!(
            "a count lies {share:.0}% off the best fit, and was measured too coarsely to say whether that is noise: \
             measure for longer"
        ));
    }
    let full = solved.iter().find(|s| s.free == whole).unwrap_or(best);
    Ok(best.law(full, points.len(), worst_residual))
}

/// How far off a count lies, where 1 is all that is allowed.
fn beyond_noise(point: &Point, off: f64) -> f64 {
    // three standard errors: the worst of some ten counts is looked at
    off.abs() / (MOST_OFF + 3.0 * point.error / point.per_second)
}

/// `N / X` in three parts, and what they leave unexplained.
struct Solution {
    /// Which of the parts were free.
    free: [bool; 3],
    parts: [f64; 3],
    /// Of the weighed deviations.
    squares: f64,
    /// Covariance of the parts.
    covariance: [[f64; 3]; 3],
}

fn bases(clients: f64) -> [f64; 3] {
    [1.0, clients - 1.0, clients * (clients - 1.0)]
}

fn rate(parts: [f64; 3], clients: f64) -> f64 {
    let waits: f64 = bases(clients).iter().zip(parts).map(|(base, part)| base * part).sum();
    clients / waits
}

fn weight(point: &Point) -> f64 {
    point.error.hypot(FINEST * point.per_second)
}

/// Least squares with the given parts free, and the others zero; `None`: there is no one solution.
fn solve(points: &[Point], free: [bool; 3]) -> Option<Solution> {
    const MOST_STEPS: usize = 100;
    // The bases are as different as 1 and a million: each is made about as large as the others.
    let most = points.iter().map(|p| p.clients).fold(1.0, f64::max);
    let scale = bases(most).map(|base| if base > 0.0 { base } else { 1.0 });
    let scaled = |clients: f64| {
        let base = bases(clients);
        [base[0] / scale[0], base[1] / scale[1], base[2] / scale[2]]
    };
    let unscaled = |parts: [f64; 3]| [parts[0] / scale[0], parts[1] / scale[1], parts[2] / scale[2]];
    let linear = points.iter().map(|p| {
        let y = p.clients / p.per_second;
        let error = y / p.per_second * weight(p);
        (scaled(p.clients).map(|base| base / error), y / error)
    });
    let (mut parts, _) = least_squares(linear, free)?;
    let squares = |parts: [f64; 3]| -> f64 {
        let parts = unscaled(parts);
        points.iter().map(|p| ((p.per_second - rate(parts, p.clients)) / weight(p)).powi(2)).sum()
    };
    let mut least = squares(parts);
    for _ in 0..MOST_STEPS {
        let (step, _) = step(points, parts, free, &scaled)?;
        let mut share = 1.0;
        let better = std::iter::repeat_with(|| {
            let next = [0, 1, 2].map(|i| parts[i] + share * step[i]);
            share /= 2.0;
            (next, squares(next))
        });
        let Some((next, now)) = better.take(20).find(|(_, now)| *now < least) else { break };
        let done = least - now <= 1e-12 * least;
        (parts, least) = (next, now);
        if done {
            break;
        }
    }
    let (_, inverse) = step(points, parts, free, &scaled)?;
    let rest = points.len().checked_sub(free.iter().filter(|f| **f).count()).filter(|n| *n > 0)?;
    // What the counts' own errors explain, and no less than what is seen.
    let known: f64 = points.iter().map(|p| (p.error / weight(p)).powi(2)).sum::<f64>() / points.len() as f64;
    let spread = (least / rest as f64).max(known);
    let covariance = [0, 1, 2].map(|i| [0, 1, 2].map(|j| inverse[i][j] * spread / scale[i] / scale[j]));
    Some(Solution { free, parts: unscaled(parts), squares: least, covariance })
}

/// One step of Gauss and Newton, and the inverse of the normal equations it comes from.
fn step(
    points: &[Point],
    parts: [f64; 3],
    free: [bool; 3],
    scaled: &impl Fn(f64) -> [f64; 3],
) -> Option<([f64; 3], [[f64; 3]; 3])> {
    let rows = points.iter().map(|p| {
        let base = scaled(p.clients);
        let waits: f64 = base.iter().zip(parts).map(|(base, part)| base * part).sum();
        let (now, error) = (p.clients / waits, weight(p));
        (base.map(|base| -now / waits * base / error), (p.per_second - now) / error)
    });
    least_squares(rows, free)
}

/// The least squares of rows and their right sides by the normal equations, and the inverse of these.
fn least_squares(
    rows: impl Iterator<Item = ([f64; 3], f64)>,
    free: [bool; 3],
) -> Option<([f64; 3], [[f64; 3]; 3])> {
    let mut matrix = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for (row, y) in rows {
        for i in 0..3 {
            right[i] += row[i] * y;
            for j in 0..3 {
                matrix[i][j] += row[i] * row[j];
            }
        }
    }
    for fixed in (0..3).filter(|i| !free[*i]) {
        right[fixed] = 0.0;
        matrix[fixed] = [0.0; 3];
        matrix.iter_mut().for_each(|row| row[fixed] = 0.0);
        matrix[fixed][fixed] = 1.0;
    }
    let inverse = inverse(matrix)?;
    let solution = [0, 1, 2].map(|i| (0..3).map(|j| inverse[i][j] * right[j]).sum());
    Some((solution, inverse))
}

/// By cofactors; `None`: there is none.
fn inverse(m: [[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let cofactor = |i: usize, j: usize| {
        let (a, b) = ((i + 1) % 3, (i + 2) % 3);
        let (c, d) = ((j + 1) % 3, (j + 2) % 3);
        m[a][c] * m[b][d] - m[a][d] * m[b][c]
    };
    let determinant: f64 = (0..3).map(|j| m[0][j] * cofactor(0, j)).sum();
    let usual = m[0][0] * m[1][1] * m[2][2];
    let there_is_one = determinant.is_finite() && determinant.abs() > 1e-12 * usual.abs();
    there_is_one.then(|| [0, 1, 2].map(|i| [0, 1, 2].map(|j| cofactor(j, i) / determinant)))
}

impl Solution {
    fn at(&self, clients: f64) -> f64 {
        rate(self.parts, clients)
    }

    /// The coefficients; `full` has all parts free, and says how large one that was left out may be.
    fn law(&self, full: &Self, counts: usize, worst_residual: f64) -> Usl {
        let stages = u32::try_from(counts).unwrap_or(u32::MAX);
        let estimate = |value: f64, half: f64| Estimate {
            value,
            low: Some((value - half).max(0.0)),
            high: Some(value + half),
            stages,
        };
        let [a, ..] = self.parts;
        let half = |s: &Self, variance: f64| {
            quantile((counts - s.free.iter().filter(|f| **f).count()) as f64) * variance.max(0.0).sqrt()
        };
        let share = |i: usize| {
            if self.free[i] {
                let c = &self.covariance;
                let value = self.parts[i] / a;
                let variance = (c[i][i] - 2.0 * value * c[0][i] + value * value * c[0][0]) / (a * a);
                return estimate(value, half(self, variance));
            }
            let most = full.parts[i] + half(full, full.covariance[i][i]);
            Estimate { value: 0.0, low: Some(0.0), high: Some((most / a).max(0.0)), stages }
        };
        let (sigma, kappa) = (share(1), share(2));
        let peaks = kappa.low.is_some_and(|low| low > 0.0) && sigma.value < 1.0;
        Usl {
            lambda: estimate(1.0 / a, half(self, self.covariance[0][0] / a.powi(4))),
            sigma,
            kappa,
            peak_clients: peaks.then(|| ((1.0 - sigma.value) / kappa.value).sqrt()),
            worst_residual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{even, normal};

    const COUNTS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

    fn points(counts: &[f64], law: impl Fn(f64) -> f64, noise: f64, seed: &mut u64) -> Vec<Point> {
        let point = |clients: &f64| {
            let truth = law(*clients);
            let per_second = truth * (1.0 + noise * normal(seed));
            Point { clients: *clients, per_second, error: noise * truth }
        };
        counts.iter().map(point).collect()
    }

    fn law(lambda: f64, sigma: f64, kappa: f64) -> impl Fn(f64) -> f64 {
        move |n| lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
    }

    /// `c` servers that take one second each.
    fn servers(c: f64) -> impl Fn(f64) -> f64 {
        move |n| n.min(c)
    }

    /// One lock for `share` of each operation, and exponential times: the machine repairman.
    fn repairman(share: f64) -> impl Fn(f64) -> f64 {
        move |n| {
            let mut likely = vec![1.0_f64];
            for waiting in 1..=n as usize {
                let last = likely[waiting - 1];
                likely.push(last * (n - waiting as f64 + 1.0) / (1.0 - share) * share);
            }
            let idle = likely[0] / likely.iter().sum::<f64>();
            (1.0 - idle) / share
        }
    }

    fn close(found: f64, truth: f64, within: f64) -> bool {
        (found - truth).abs() <= within * truth
    }

    #[test]
    fn the_law_itself_is_found_exactly() {
        for (lambda, sigma, kappa) in
            [(1_000.0, 0.05, 0.0002), (50.0, 0.2, 0.01), (7e5, 0.01, 1e-6), (3.0, 0.5, 0.002)]
        {
            let found = fit(&points(&COUNTS, law(lambda, sigma, kappa), 0.0, &mut 1)).unwrap();
            assert!(close(found.lambda.value, lambda, 1e-6), "{found:?}");
            assert!(close(found.sigma.value, sigma, 1e-6), "{found:?}");
            assert!(close(found.kappa.value, kappa, 1e-5), "{found:?}");
            assert!(found.worst_residual < 1e-9, "{found:?}");
            let peak = ((1.0 - sigma) / kappa).sqrt();
            assert!(close(found.peak_clients.unwrap(), peak, 1e-5), "{found:?}");
        }
    }

    #[test]
    fn what_is_zero_is_found_to_be() {
        let found = fit(&points(&COUNTS, law(100.0, 0.1, 0.0), 0.0, &mut 1)).unwrap();
        assert!(close(found.sigma.value, 0.1, 1e-6) && found.kappa.value < 1e-9, "{found:?}");
        assert_eq!(found.peak_clients, None, "it levels off");
        let found = fit(&points(&COUNTS, |n| 100.0 * n, 0.0, &mut 1)).unwrap();
        assert!(found.sigma.value < 1e-9 && found.kappa.value < 1e-9, "{found:?}");
        let found = fit(&points(&COUNTS, law(100.0, 0.0, 0.001), 0.01, &mut 4)).unwrap();
        assert!(found.sigma.low == Some(0.0) && found.sigma.value < 0.02, "{found:?}");
    }

    #[test]
    fn noise_of_a_percent_leaves_the_coefficients_within_a_tenth_and_in_their_intervals() {
        const TIMES: u32 = 300;
        let mut seed = 5;
        let mut inside = [0_u32; 3];
        for _ in 0..TIMES {
            let truth = [500.0, 0.05, 0.0005];
            let seen = points(&COUNTS, law(truth[0], truth[1], truth[2]), 0.01, &mut seed);
            let found = fit(&seen).unwrap_or_else(|why| panic!("{why}: {seen:?}"));
            let found = [found.lambda, found.sigma, found.kappa];
            for i in 0..3 {
                assert!(close(found[i].value, truth[i], 0.12), "{i}: {found:?}");
                inside[i] += u32::from(found[i].contains(truth[i]));
            }
        }
        for held in inside {
            assert!(held >= TIMES * 92 / 100, "{inside:?} of {TIMES} intervals hold the truth");
        }
    }

    #[test]
    fn a_fixed_number_of_servers_is_another_law() {
        for c in [2.0, 4.0, 8.0, 16.0, 40.0] {
            for noise in [0.0, 0.01] {
                let why = fit(&points(&COUNTS, servers(c), noise, &mut 3));
                let why = why.unwrap_err();
                assert!(why.contains("another law"), "{c}: {why}");
            }
        }
        // Five counts, of which one lies beyond the knee.
        let why = fit(&points(&COUNTS[..5], servers(8.0), 0.01, &mut 3)).unwrap_err();
        assert!(why.contains("another law"), "{why}");
    }

    #[test]
    fn noise_is_no_excuse_for_a_law_that_does_not_fit() {
        let mut seen = points(&COUNTS, servers(8.0), 0.0, &mut 1);
        seen.iter_mut().for_each(|point| point.error = 0.25 * point.per_second);
        let why = fit(&seen).unwrap_err();
        assert!(why.contains("off the best fit") && why.ends_with("measure for longer"), "{why}");
    }

    #[test]
    fn one_lock_with_random_times_is_taken_for_the_law_only_where_it_is_within_what_is_allowed() {
        for share in [0.02, 0.05, 0.1, 0.3] {
            match fit(&points(&COUNTS, repairman(share), 0.005, &mut 3)) {
                Ok(found) => assert!(found.worst_residual <= 0.07, "{share}: {found:?}"),
                Err(why) => assert!(why.contains("another law"), "{why}"),
            }
        }
    }

    #[test]
    fn too_few_counts_or_none_are_refused() {
        let few = fit(&points(&COUNTS[..4], law(10.0, 0.1, 0.01), 0.0, &mut 1));
        assert_eq!(few.unwrap_err(), "4 client counts can be used, 5 are needed");
        assert!(fit(&[]).is_err());
        let nothing = points(&COUNTS, |_| 0.0, 0.0, &mut 1);
        assert!(fit(&nothing).unwrap_err().starts_with("0 client counts"));
    }

    #[test]
    fn whatever_was_measured_the_figures_are_figures() {
        let mut seed = 9;
        for _ in 0..500 {
            let counts: Vec<f64> = (0..8).map(|_| (1.0 + 1e4 * even(&mut seed)).floor()).collect();
            let seen: Vec<Point> = counts
                .iter()
                .map(|clients| Point {
                    clients: *clients,
                    per_second: 1e3 * even(&mut seed),
                    error: 1e3 * even(&mut seed),
                })
                .collect();
            if let Ok(found) = fit(&seen) {
                for part in [found.lambda, found.sigma, found.kappa] {
                    assert!(part.value.is_finite() && part.value >= 0.0, "{found:?}");
                    assert!(part.low <= Some(part.value) && part.high >= Some(part.value), "{found:?}");
                }
            }
        }
    }
}
