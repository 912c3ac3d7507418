//! How long did things take? Mergeable latencies at microsecond grain.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One hour, in microseconds: what takes longer is counted as this.
const MOST_US: u64 = 3_600_000_000;

/// A histogram of durations (1 µs to 1 h, two significant digits: an error of at most 1%).
///
/// Travels in HdrHistogram's V2 form, merges without loss, and keeps the exact sum for the mean.
#[derive(Clone)]
pub struct Latencies {
    counts: Histogram<u32>,
    sum_us: u128,
    min_us: u64,
    max_us: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        #[expect(clippy::unwrap_used, reason = "constant bounds that hdrhistogram accepts")]
        let counts = Histogram::new_with_bounds(1, MOST_US, 2).unwrap();
        Self { counts, sum_us: 0, min_us: u64::MAX, max_us: 0 }
    }
}

impl std::fmt::Debug for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Latencies({:?})", self.summary())
    }
}

impl PartialEq for Latencies {
    fn eq(&self, other: &Self) -> bool {
        self.sum_us == other.sum_us && self.counts == other.counts
    }
}

impl Latencies {
    /// Counts one duration.
    pub fn record(&mut self, nanoseconds: u64) {
        let us = (nanoseconds / 1_000).clamp(1, MOST_US);
        self.counts.saturating_record(us);
        self.sum_us += u128::from(us);
        self.min_us = self.min_us.min(us);
        self.max_us = self.max_us.max(us);
    }

    /// Adds another histogram to this one.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, which is the only way `add` could fail.
        let _ = self.counts.add(&other.counts);
        self.sum_us += other.sum_us;
        self.min_us = self.min_us.min(other.min_us);
        self.max_us = self.max_us.max(other.max_us);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The duration in milliseconds that the given share (0 to 1) of all stayed at or below.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let us = self.counts.value_at_quantile(share);
        us.clamp(self.min_us.min(self.max_us), self.max_us) as f64 / 1e3
    }

    /// How many durations were longer than the given milliseconds.
    pub fn longer_than_ms(&self, ms: f64) -> u64 {
        let us = (ms * 1e3).clamp(1.0, MOST_US as f64) as u64;
        self.count() - self.counts.count_between(0, us)
    }

    /// Takes the counts out, leaving this empty: what is sent is never sent twice.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The percentiles that results carry; `None` if nothing was counted.
    pub fn summary(&self) -> Option<Latency> {
        if self.is_empty() {
            return None;
        }
        Some(Latency {
            count: self.count(),
            min_ms: self.min_us as f64 / 1e3,
            mean_ms: self.sum_us as f64 / self.count() as f64 / 1e3,
            p50_ms: self.quantile_ms(0.50),
            p90_ms: self.quantile_ms(0.90),
            p95_ms: self.quantile_ms(0.95),
            p99_ms: self.quantile_ms(0.99),
            p999_ms: self.quantile_ms(0.999),
            max_ms: self.max_us as f64 / 1e3,
        })
    }
}

/// The wire form of [`Latencies`].
#[derive(Serialize, Deserialize)]
struct Wire {
    v2: Vec<u8>,
    sum_us: u128,
    min_us: u64,
    max_us: u64,
}

impl Serialize for Latencies {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut v2 = Vec::new();
        if !self.is_empty() {
            V2Serializer::new().serialize(&self.counts, &mut v2).map_err(serde::ser::Error::custom)?;
        }
        Wire { v2, sum_us: self.sum_us, min_us: self.min_us, max_us: self.max_us }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(from)?;
        let mut out = Self::default();
        if !wire.v2.is_empty() {
            let counts: Histogram<u32> =
                Deserializer::new().deserialize(&mut wire.v2.as_slice()).map_err(serde::de::Error::custom)?;
            out.counts.add(&counts).map_err(serde::de::Error::custom)?;
            out.sum_us = wire.sum_us;
            out.min_us = wire.min_us;
            out.max_us = wire.max_us;
        }
        Ok(out)
    }
}

/// Percentiles of a set of latencies, in milliseconds: the contract's LATENCY.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// How many were counted.
    pub count: u64,
    /// The shortest.
    pub min_ms: f64,
    /// The arithmetic mean.
    pub mean_ms: f64,
    /// Half took at most this.
    pub p50_ms: f64,
    /// 90% took at most this.
    pub p90_ms: f64,
    /// 95% took at most this.
    pub p95_ms: f64,
    /// 99% took at most this.
    pub p99_ms: f64,
    /// 99.9% took at most this.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Latencies {
        let mut out = Latencies::default();
        for &v in values {
            out.record(v);
        }
        out
    }

    proptest! {
        #[test]
        fn merging_equals_recording_all(a in prop::collection::vec(0..10_000_000_000u64, 0..50),
                                        b in prop::collection::vec(0..10_000_000_000u64, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged.summary(), of(&all).summary());
        }

        #[test]
        fn the_wire_loses_nothing(a in prop::collection::vec(0..10_000_000_000u64, 0..50)) {
            let sent = of(&a);
            let text = serde_json::to_string(&sent).unwrap();
            let got: Latencies = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(got.summary(), sent.summary());
        }
    }

    #[test]
    fn quantiles_are_within_one_percent() {
        let h = of(&(1..=1000).map(|ms| ms * 1_000_000).collect::<Vec<_>>());
        assert!((h.quantile_ms(0.5) - 500.0).abs() <= 5.0);
        assert!((h.quantile_ms(0.99) - 990.0).abs() <= 9.9);
        assert_eq!(h.summary().unwrap().max_ms, 1000.0);
        assert_eq!(h.longer_than_ms(2000.0), 0);
    }
}
