//! When is each thing due? Intended times, computed from a fixed origin and never from when the last thing was done.

use crate::clock::Nanos;

/// Due times at an even gap from an origin: heartbeat ticks, connects at a rate, the pulse of the loop.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    origin: Nanos,
    gap: f64,
    taken: u64,
}

impl Schedule {
    /// The first is due at `origin`, each next one `gap` nanoseconds later.
    pub fn new(origin: Nanos, gap: f64) -> Self {
        Self { origin, gap: gap.max(1.0), taken: 0 }
    }

    /// When the next is due.
    pub fn due(&self) -> Nanos {
        self.origin + (self.gap * self.taken as f64) as Nanos
    }

    /// Takes the next one if it is due by `now`: its number and its intended time.
    pub fn take(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let due = self.due();
        if due > now {
            return None;
        }
        let number = self.taken;
        self.taken += 1;
        Some((number, due))
    }
}

/// Heartbeats walk the slab: its places are dealt into as many buckets as there are ticks in an interval, so that
/// any number of connections, however many of them there are yet, beats evenly.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    ticks: Schedule,
    buckets: u64,
}

impl Walk {
    /// A walk over `capacity` places once per `interval`, for worker `index` of `workers` (whose ticks lie between
    /// each other's).
    pub fn new(now: Nanos, interval: Nanos, capacity: u64, index: u32, workers: u32) -> Self {
        // About 16 connections a tick; no tick shorter than a millisecond.
        let buckets = (capacity / 16).clamp(1, (interval / 1_000_000).max(1));
        let gap = interval as f64 / buckets as f64;
        let phase = gap * f64::from(index) / f64::from(workers.max(1));
        Self { ticks: Schedule::new(now + phase as Nanos, gap), buckets }
    }

    /// When the next bucket is due.
    pub fn due(&self) -> Nanos {
        self.ticks.due()
    }

    /// The next bucket, if it is due by `now`: its first place, the stride to the next, and its intended time.
    pub fn take(&mut self, now: Nanos) -> Option<(u32, usize, Nanos)> {
        let (tick, due) = self.ticks.take(now)?;
        Some(((tick % self.buckets) as u32, self.buckets as usize, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_moves_no_due_time() {
        let mut schedule = Schedule::new(1_000, 100.0);
        assert_eq!(schedule.take(999), None);
        assert_eq!(schedule.take(1_000), Some((0, 1_000)));
        // The loop stalls for long; what was due meanwhile is still due when it was.
        let late: Vec<_> = std::iter::from_fn(|| schedule.take(1_350)).map(|(_, due)| due).collect();
        assert_eq!(late, [1_100, 1_200, 1_300]);
    }

    #[test]
    fn each_place_beats_once_per_interval_at_one_phase() {
        let interval = 1_000_000_000;
        let mut walk = Walk::new(0, interval, 1_000, 1, 3);
        let mut beats = vec![Vec::new(); 700];
        while let Some((first, stride, due)) = walk.take(5 * interval - 1) {
            for place in (first as usize..700).step_by(stride) {
                beats[place].push(due);
            }
        }
        for due in &beats {
            assert_eq!(due.len(), 5);
            assert!(due.windows(2).all(|w| w[1].abs_diff(w[0] + interval) <= 2));
        }
    }
}
