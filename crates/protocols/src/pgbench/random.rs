//! Which value is drawn? The generator, the distributions and the hashes of pgbench 15, each by its own definition.
//!
//! PostgreSQL 15: `src/common/pg_prng.c` (xoroshiro128**, seeded by SplitMix64) and `src/bin/pgbench/pgbench.c`. The
//! permutation must be drawn from that very generator to be the same one, so clients draw from it too.

use std::f64::consts::TAU;

/// The narrowest bell that `random_gaussian` takes.
const LEAST_GAUSSIAN: f64 = 2.0;
/// What `random_zipfian` takes.
const ZIPFIAN: std::ops::RangeInclusive<f64> = 1.001..=1_000.0;
/// How often a permutation is mixed.
const PERMUTE_ROUNDS: u32 = 6;

/// One client's source of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Random([u64; 2]);

impl Random {
    /// The same numbers for the same seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            let value = crate::nonce::splitmix(state);
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            value
        };
        Self([next(), next()])
    }

    fn bits(&mut self) -> u64 {
        let [s0, s1] = self.0;
        let mixed = s1 ^ s0;
        self.0 = [s0.rotate_left(24) ^ mixed ^ mixed << 16, mixed.rotate_left(37)];
        s0.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// From 0 to `most`, both included.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        // Each draw falls within twice the range, so two are enough on average.
        let shift = most.leading_zeros();
        loop {
            let value = self.bits() >> shift;
            if value <= most {
                return value;
            }
        }
    }

    /// From 0 to 1, without 1.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 12) as f64 / (1_u64 << 52) as f64
    }

    /// From `low` to `high`, each as likely as the others.
    pub(super) fn uniform(&mut self, range: Range) -> i64 {
        range.low.wrapping_add(self.up_to(range.size - 1) as i64)
    }

    /// A bell, cut at `parameter` times its width on either side.
    pub(super) fn gaussian(&mut self, range: Range, parameter: f64) -> Result<i64, String> {
        if parameter.is_nan() || parameter < LEAST_GAUSSIAN {
            return Err(format!("gaussian parameter must be at least {LEAST_GAUSSIAN} (not {parameter})"));
        }
        loop {
            let (u1, u2) = (1.0 - self.unit(), 1.0 - self.unit());
            let normal = (-2.0 * u1.ln()).sqrt() * (TAU * u2).sin();
            if (-parameter..parameter).contains(&normal) {
                return Ok(range.at((normal + parameter) / (parameter * 2.0)));
            }
        }
    }

    /// The low values most often: how much so says `parameter`.
    pub(super) fn exponential(&mut self, range: Range, parameter: f64) -> Result<i64, String> {
        if parameter.is_nan() || parameter <= 0.0 {
            return Err(format!("exponential parameter must be greater than zero (not {parameter})"));
        }
        let cut = (-parameter).exp();
        let uniform = 1.0 - self.unit();
        Ok(range.at(-(cut + (1.0 - cut) * uniform).ln() / parameter))
    }

    /// The k-th value as often as k to the power of `-parameter`; by rejection (Devroye, "Non-Uniform Random Variate
    /// Generation", 1986, page 550), which needs no table and is slow for parameters near 1.
    pub(super) fn zipfian(&mut self, range: Range, parameter: f64) -> Result<i64, String> {
        if !ZIPFIAN.contains(&parameter) {
            let (low, high) = (ZIPFIAN.start(), ZIPFIAN.end());
            return Err(format!("zipfian parameter must be from {low} to {high} (not {parameter})"));
        }
        if range.size <= 1 {
            return Ok(range.low);
        }
        let b = (parameter - 1.0).exp2();
        loop {
            let (u, v) = (self.unit(), self.unit());
            let x = u.powf(-1.0 / (parameter - 1.0)).floor();
            let t = (1.0 + 1.0 / x).powf(parameter - 1.0);
            if v * x * (t - 1.0) / (b - 1.0) <= t / b && x <= range.size as f64 {
                return Ok(range.low.wrapping_add(x as i64 - 1));
            }
        }
    }
}

/// The values that may be drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    low: i64,
    /// How many there are.
    size: u64,
}

impl Range {
    /// From `low` to `high`, both included.
    pub(super) fn new(low: i64, high: i64) -> Result<Self, String> {
        if low > high {
            return Err(format!("random from {low} to {high}: the range is empty"));
        }
        match high.checked_sub(low).and_then(|span| span.checked_add(1)) {
            Some(size) => Ok(Self { low, size: size as u64 }),
            None => Err(format!("random from {low} to {high}: the range is too large")),
        }
    }

    /// The value at this share of the range, from 0 to 1.
    fn at(self, share: f64) -> i64 {
        let offset = (self.size as f64 * share) as u64;
        self.low.wrapping_add(offset.min(self.size - 1) as i64)
    }
}

/// `hash_fnv1a`, over the eight bytes of a value.
pub(super) fn fnv1a(value: i64, seed: i64) -> i64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed as u64;
    value
        .to_le_bytes()
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)) as i64
}

/// `hash_murmur2`, which `hash` is.
pub(super) fn murmur2(value: i64, seed: i64) -> i64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mut k = (value as u64).wrapping_mul(MULTIPLIER);
    k = (k ^ k >> 47).wrapping_mul(MULTIPLIER);
    let mut hash = seed as u64 ^ MULTIPLIER.wrapping_mul(8);
    hash = (hash ^ k).wrapping_mul(MULTIPLIER);
    hash = (hash ^ hash >> 47).wrapping_mul(MULTIPLIER);
    (hash ^ hash >> 47) as i64
}

/// `permute`: where a value stands among `size` ones that were shuffled by `seed`.
pub(super) fn permute(value: i64, size: i64, seed: i64) -> Result<i64, String> {
    if size <= 0 {
        return Err("permute size parameter must be greater than zero".to_owned());
    }
    if size < 2 {
        return Ok(0);
    }
    let size = size as u64;
    let mut random = Random::new(seed as u64);
    let mut v = value as u64 % size;
    // half or more of the values can be mixed without leaving them
    let bits = size.ilog2();
    let mask = (1_u64 << bits) - 1;
    let scramble = |v: u64, multiplier: u64, xor: u64| {
        let v = (v.wrapping_mul(multiplier) ^ xor) & mask;
        v << 1 & mask | v >> (bits - 1)
    };
    for _ in 0..PERMUTE_ROUNDS {
        let (multiplier, xor) = (random.bits() & mask | 1, random.bits() & mask);
        if v <= mask {
            v = scramble(v, multiplier, xor);
        }
        let (multiplier, xor) = (random.bits() & mask | 1, random.bits() & mask);
        let from_above = size - 1 - v;
        if from_above <= mask {
            v = size - 1 - scramble(from_above, multiplier, xor);
        }
        v = (v + random.up_to(size - 1)) % size;
    }
    Ok(v as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    /// How often each of the values from 1 to `n` is drawn.
    fn shares(n: i64, mut draw: impl FnMut(&mut Random, Range) -> i64) -> Vec<f64> {
        let (mut random, range) = (Random::new(7), Range::new(1, n).unwrap());
        let mut counts = vec![0.0; n as usize];
        for _ in 0..DRAWS {
            counts[(draw(&mut random, range) - 1) as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    /// Five standard errors of a share, as it is drawn.
    fn expect(shares: &[f64], share: impl Fn(usize) -> f64) {
        for (i, seen) in shares.iter().enumerate() {
            let ideal = share(i);
            let error = 5.0 * (ideal * (1.0 - ideal) / DRAWS as f64).sqrt();
            assert!((seen - ideal).abs() <= error, "value {}: {seen} is not {ideal} ± {error}", i + 1);
        }
    }

    #[test]
    fn every_value_is_as_likely() {
        expect(&shares(13, Random::uniform), |_| 1.0 / 13.0);
    }

    #[test]
    fn the_bell_is_that_of_the_documentation() {
        // PHI(x) by Simpson's rule over the density
        let density = |x: f64| (-x * x / 2.0).exp() / TAU.sqrt();
        let between = |a: f64, b: f64| {
            let (n, h) = (200, (b - a) / 200.0);
            (0..=n)
                .map(|i| {
                    let weight = if i == 0 || i == n { 1.0 } else { 2.0 + 2.0 * f64::from(i % 2) };
                    weight * density(a + h * f64::from(i)) * h / 3.0
                })
                .sum::<f64>()
        };
        let (n, p) = (10, 2.5);
        let edge = |i: usize| 2.0 * p * i as f64 / n as f64 - p;
        let seen = shares(n, |random, range| random.gaussian(range, p).unwrap());
        expect(&seen, |i| between(edge(i), edge(i + 1)) / between(-p, p));
    }

    #[test]
    fn the_exponential_is_that_of_the_documentation() {
        let (n, p) = (10, 3.0_f64);
        let seen = shares(n, |random, range| random.exponential(range, p).unwrap());
        let slice = |i: usize| (-p * i as f64 / n as f64).exp();
        expect(&seen, |i| (slice(i) - slice(i + 1)) / (1.0 - (-p).exp()));
    }

    #[test]
    fn the_zipfian_is_that_of_the_documentation() {
        for s in [1.07_f64, 1.5, 3.0] {
            let seen = shares(20, |random, range| random.zipfian(range, s).unwrap());
            let weight = |i: usize| (i as f64 + 1.0).powf(-s);
            let all: f64 = (0..20).map(weight).sum();
            expect(&seen, |i| weight(i) / all);
        }
    }

    #[test]
    fn a_permutation_gives_each_value_once() {
        for size in [1, 2, 3, 7, 8, 1_000, 1_023] {
            let mut seen: Vec<i64> = (0..size).map(|i| permute(i, size, 42).unwrap()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..size).collect::<Vec<_>>());
        }
    }

    #[test]
    fn ranges_that_are_none() {
        assert!(Range::new(2, 1).unwrap_err().contains("empty"));
        assert!(Range::new(i64::MIN, i64::MAX).unwrap_err().contains("too large"));
        assert!(Range::new(-1, i64::MAX).is_err());
        let mut random = Random::new(1);
        let range = Range::new(1, i64::MAX).unwrap();
        for _ in 0..1_000 {
            assert!(random.uniform(range) >= 1);
            assert!(random.gaussian(range, 2.0).unwrap() >= 1);
            assert!(random.exponential(range, 1e-300).unwrap() >= 1);
            assert!(random.zipfian(range, 1.001).unwrap() >= 1);
        }
        for wrong in [f64::NAN, -1.0, 0.0, f64::NEG_INFINITY] {
            assert!(random.gaussian(range, wrong).is_err());
            assert!(random.exponential(range, wrong).is_err());
            assert!(random.zipfian(range, wrong).is_err());
        }
    }
}
