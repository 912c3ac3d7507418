//! When is it exactly so late? tokio's timer is one of whole milliseconds; a delay of one must not become two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Wakes tasks at their moments, to within some tens of microseconds; a thread of its own.
#[derive(Clone, Default)]
pub(crate) struct Alarm(Arc<Shared>);

#[derive(Default)]
struct Shared {
    due: Mutex<Due>,
    earlier: Condvar,
}

#[derive(Default)]
struct Due {
    heap: BinaryHeap<Reverse<Wake>>,
    over: bool,
}

/// A moment, and who waits for it.
struct Wake(Instant, oneshot::Sender<()>);

impl Alarm {
    /// # Errors
    /// If no thread can be had.
    pub(crate) fn start() -> io::Result<Self> {
        let alarm = Self::default();
        let shared = Arc::clone(&alarm.0);
        thread::Builder::new().name("alarm".to_owned()).spawn(move || shared.ring())?;
        Ok(alarm)
    }

    /// Returns at that moment, or at once if it has passed.
    pub(crate) async fn at(&self, moment: Instant) {
        if moment <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        if let Ok(mut due) = self.0.due.lock() {
            due.heap.push(Reverse(Wake(moment, wake)));
        }
        self.0.earlier.notify_one();
        let _ = woken.await;
    }

    /// Ends its thread; who still waits is woken.
    pub(crate) fn stop(&self) {
        if let Ok(mut due) = self.0.due.lock() {
            due.over = true;
            due.heap.clear();
        }
        self.0.earlier.notify_one();
    }
}

impl Shared {
    fn ring(&self) {
        let Ok(mut due) = self.due.lock() else { return };
        while !due.over {
            let now = Instant::now();
            while due.heap.peek().is_some_and(|Reverse(next)| next.0 <= now) {
                if let Some(Reverse(Wake(_, wake))) = due.heap.pop() {
                    let _ = wake.send(());
                }
            }
            let left = due.heap.peek().map(|Reverse(next)| next.0.saturating_duration_since(now));
            let waited = match left {
                Some(left) => self.earlier.wait_timeout(due, left).map(|(due, _)| due).ok(),
                None => self.earlier.wait(due).ok(),
            };
            let Some(again) = waited else { return };
            due = again;
        }
    }
}

impl PartialEq for Wake {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Wake {}

impl PartialOrd for Wake {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wake {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
