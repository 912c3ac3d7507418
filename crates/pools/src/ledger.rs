//! How many connections did a pool open and close, and how long was one waited for?

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::Latencies;

/// Kept by whatever hears of a pool's connections.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    created: AtomicU64,
    closed: AtomicU64,
    most: AtomicU64,
    waits: Mutex<Latencies>,
}

/// What stands in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were begun.
    pub created: u64,
    /// Connections that were closed.
    pub closed: u64,
    /// The most at once.
    pub most: u64,
}

impl Counts {
    /// Connections that stand now.
    pub fn standing(&self) -> u64 {
        self.created.saturating_sub(self.closed)
    }
}

impl Ledger {
    pub(crate) fn created(&self) {
        let created = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        let standing = created.saturating_sub(self.closed.load(Ordering::Relaxed));
        self.most.fetch_max(standing, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// How long an operation waited until it had a connection.
    pub(crate) fn waited(&self, time: Duration) {
        if let Ok(mut waits) = self.waits.lock() {
            waits.record(nanoseconds(time));
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        // What is closed was created before: read in this order, there are never more of them.
        let closed = self.closed.load(Ordering::Relaxed);
        Counts {
            created: self.created.load(Ordering::Relaxed),
            closed,
            most: self.most.load(Ordering::Relaxed),
        }
    }

    /// Takes the waits since the last call.
    pub(crate) fn take_waits(&self) -> Latencies {
        self.waits.lock().map(|mut waits| std::mem::take(&mut *waits)).unwrap_or_default()
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
