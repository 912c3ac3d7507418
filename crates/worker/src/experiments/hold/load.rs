//! Who is at work, who is free, and when is the next operation due? The clients of a sweep at one count.

use std::collections::VecDeque;

use model::sweep::{Loaded, SLICES, SweepSpec};
use model::talk::Arrivals;
use model::{Latencies, Sample};
use reactor::clock::{self, Nanos};

use super::super::share;

/// When the work begins, and which part of it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) at: Nanos,
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

/// Work under way, by every connection that stood when it began.
pub(crate) struct Load {
    window: Window,
    /// By place in the slab; what stood there when the work began.
    clients: Vec<Option<Client>>,
    /// Clients that wait for something to do, and since when; the longest first.
    free: VecDeque<(u32, Nanos)>,
    /// Of an open loop.
    arrivals: Option<Calls>,
    busy: u64,
    loaded: Loaded,
    latency: Latencies,
}

#[derive(Debug, Clone, Copy, Default)]
struct Client {
    /// The intended time of its operation; 0: it is free.
    intended: Nanos,
    /// When that was begun.
    begun: Nanos,
    served: bool,
}

/// The operations that come due in an open loop, whether or not a client is free.
struct Calls {
    arrivals: Arrivals,
    gap: f64,
    origin: Nanos,
    /// How many came due before the next one, and its intended time.
    number: u64,
    next: f64,
}

impl Calls {
    fn due(&self) -> Nanos {
        self.origin + self.next as Nanos
    }

    fn advance(&mut self) {
        self.number += 1;
        self.next = match self.arrivals {
            Arrivals::Constant => self.gap * self.number as f64,
            Arrivals::Poisson => self.next - share(self.origin ^ self.number << 20).ln() * self.gap,
        };
    }
}

impl Load {
    /// Begins with the connections at `places`; this is worker `index` of `workers`.
    pub(crate) fn new(spec: &SweepSpec, window: Window, places: &[u32], index: u32, workers: u32) -> Self {
        let last = places.last().map_or(0, |place| *place as usize + 1);
        let mut clients = vec![None; last];
        places.iter().for_each(|place| clients[*place as usize] = Some(Client::default()));
        let arrivals = spec.rate_per_second.map(|rate| {
            let gap = clock::SECOND as f64 / rate;
            // The workers' operations lie between each other's.
            let origin = window.at + (gap * f64::from(index)) as Nanos;
            Calls { arrivals: spec.arrivals, gap: gap * f64::from(workers), origin, number: 0, next: 0.0 }
        });
        Self {
            window,
            clients,
            free: places.iter().map(|place| (*place, window.at)).collect(),
            arrivals,
            busy: 0,
            loaded: Loaded { clients: places.len() as u64, slices: vec![0; SLICES], ..Loaded::default() },
            latency: Latencies::default(),
        }
    }

    /// When the next operation is to be begun, as far as that is known.
    pub(crate) fn next_due(&self, now: Nanos) -> Nanos {
        if now >= self.window.until {
            return Nanos::MAX;
        }
        match (&self.arrivals, self.free.front()) {
            // An answer brings the next one.
            (_, None) => self.window.until,
            (Some(calls), Some(_)) => calls.due().min(self.window.until),
            (None, Some(_)) => self.window.at,
        }
    }

    /// A place that is to begin an operation by `now`, and its intended time.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<(u32, Nanos)> {
        if now < self.window.at || now >= self.window.until {
            return None;
        }
        loop {
            let (place, since) = *self.free.front()?;
            let Some(Some(client)) = self.clients.get_mut(place as usize) else {
                self.free.pop_front();
                continue;
            };
            let intended = match &mut self.arrivals {
                None => since,
                Some(calls) => {
                    let due = calls.due();
                    if due > now {
                        return None;
                    }
                    calls.advance();
                    self.loaded.due += u64::from(due >= self.window.from && due < self.window.until);
                    due
                }
            };
            self.free.pop_front();
            (client.intended, client.begun) = (intended.max(1), now);
            self.busy += 1;
            return Some((place, intended));
        }
    }

    /// An operation is answered; false: none of this work.
    pub(crate) fn answered(&mut self, place: u32, now: Nanos, sample: &mut Sample) -> bool {
        let Some(Some(client)) = self.clients.get_mut(place as usize) else { return false };
        if client.intended == 0 {
            return false;
        }
        let latency = now.saturating_sub(client.intended);
        sample.messages.record(latency);
        sample.counters.messages_answered += 1;
        let Window { from, until, .. } = self.window;
        if (from..until).contains(&now) {
            let slice = (u128::from(now - from) * SLICES as u128 / u128::from(until - from)) as usize;
            self.loaded.slices[slice] += 1;
            self.latency.record(latency);
        }
        self.loaded.served += u64::from(!client.served);
        *client = Client { served: true, ..Client::default() };
        self.busy -= 1;
        self.free.push_back((place, now));
        true
    }

    /// A connection is gone.
    pub(crate) fn lost(&mut self, place: u32, now: Nanos) {
        if let Some(client) = self.clients.get_mut(place as usize).and_then(Option::take) {
            self.busy -= u64::from(client.intended > 0);
            self.loaded.lost += u64::from(now < self.window.until || client.intended > 0);
        }
    }

    /// Those whose operation has had no answer for longer than the patience, and for how long.
    pub(crate) fn silent(&self, now: Nanos, patience: Nanos) -> Vec<(u32, Nanos)> {
        let waits = |(place, client): (u32, &Option<Client>)| {
            let client = client.filter(|c| c.intended > 0)?;
            let waited = now.saturating_sub(client.begun);
            (waited > patience).then_some((place, waited))
        };
        (0..).zip(&self.clients).filter_map(waits).collect()
    }

    /// What came of it, once the measured part is over and what was begun is answered.
    pub(crate) fn over(&mut self, now: Nanos) -> Option<Loaded> {
        let stand = self.clients.iter().any(Option::is_some);
        if self.busy > 0 || (now < self.window.until && stand) {
            return None;
        }
        if let Some(calls) = &mut self.arrivals {
            while calls.due() < self.window.until {
                self.loaded.due += u64::from(calls.due() >= self.window.from);
                self.loaded.unmet += 1;
                calls.advance();
            }
        }
        let latency = std::mem::take(&mut self.latency);
        Some(Loaded { latency, ..std::mem::take(&mut self.loaded) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = clock::SECOND;
    const WINDOW: Window = Window { at: 10 * SECOND, from: 11 * SECOND, until: 13 * SECOND };

    fn spec(rate_per_second: Option<f64>) -> SweepSpec {
        SweepSpec {
            clients: vec![2],
            adaptive: false,
            warm_up_seconds: 1.0,
            measure_seconds: 2.0,
            repeat: 1,
            rate_per_second,
            arrivals: Arrivals::Constant,
            label: String::new(),
        }
    }

    #[test]
    fn a_closed_loop_begins_the_next_as_soon_as_the_last_is_answered() {
        let mut load = Load::new(&spec(None), WINDOW, &[3, 4], 0, 1);
        let mut sample = Sample::default();
        assert_eq!(load.take(9 * SECOND), None);
        assert_eq!(load.take(10 * SECOND), Some((3, 10 * SECOND)));
        assert_eq!(load.take(10 * SECOND), Some((4, 10 * SECOND)));
        assert_eq!(load.take(10 * SECOND), None, "both are at work");
        assert!(load.answered(3, 10 * SECOND + SECOND / 2, &mut sample), "it only warms up");
        assert!(!load.answered(3, 10 * SECOND + SECOND / 2, &mut sample), "nothing more was asked");
        assert_eq!(load.take(12 * SECOND), Some((3, 10 * SECOND + SECOND / 2)), "late as the generator is");
        assert!(load.answered(3, 12 * SECOND, &mut sample));
        assert_eq!(load.silent(13 * SECOND, 2 * SECOND), [(4, 3 * SECOND)]);
        assert_eq!(load.take(13 * SECOND), None, "nothing is begun after the end");
        assert_eq!(load.over(13 * SECOND), None, "one is not answered");
        load.lost(4, 13 * SECOND);
        let loaded = load.over(13 * SECOND).unwrap();
        assert_eq!((loaded.clients, loaded.served, loaded.lost), (2, 1, 1));
        assert_eq!(loaded.slices.iter().sum::<u64>(), 1);
        assert_eq!(loaded.slices[SLICES / 2], 1);
        let latency = loaded.latency.summary().unwrap();
        assert!((latency.max_ms - 1_500.0).abs() < 20.0, "{latency:?}");
    }

    #[test]
    fn an_open_loop_counts_what_nobody_was_free_for() {
        let mut load = Load::new(&spec(Some(10.0)), WINDOW, &[0], 0, 1);
        let mut sample = Sample::default();
        assert_eq!(load.take(11 * SECOND), Some((0, 10 * SECOND)));
        assert!(load.answered(0, 12 * SECOND, &mut sample));
        assert_eq!(load.next_due(12 * SECOND), 10 * SECOND + SECOND / 10);
        assert_eq!(
            load.take(12 * SECOND),
            Some((0, 10 * SECOND + SECOND / 10)),
            "in the order they came due"
        );
        assert!(load.answered(0, 14 * SECOND, &mut sample));
        let loaded = load.over(14 * SECOND).unwrap();
        assert_eq!((loaded.due, loaded.unmet), (20, 28));
        assert_eq!(loaded.latency.count(), 1, "only what was answered in the measured part");
    }

    #[test]
    fn workers_share_the_operations_of_an_open_loop() {
        let dues = |index| {
            let mut load = Load::new(&spec(Some(10.0)), WINDOW, &[0], index, 2);
            let first = load.take(WINDOW.until - 1).unwrap().1;
            load.answered(0, WINDOW.until - 1, &mut Sample::default());
            (first, load.take(WINDOW.until - 1).unwrap().1)
        };
        assert_eq!(dues(0), (10 * SECOND, 10 * SECOND + SECOND / 5));
        assert_eq!(dues(1), (10 * SECOND + SECOND / 10, 10 * SECOND + 3 * SECOND / 10));
    }

    #[test]
    fn random_operations_come_at_the_rate_that_was_asked() {
        let window = Window { until: 1_010 * SECOND, ..WINDOW };
        let spec = SweepSpec { arrivals: Arrivals::Poisson, ..spec(Some(10.0)) };
        let mut load = Load::new(&spec, window, &[], 0, 1);
        load.clients.push(None);
        let loaded = load.over(window.until).unwrap();
        assert!((9_600..10_400).contains(&loaded.unmet), "{}", loaded.unmet);
    }
}
