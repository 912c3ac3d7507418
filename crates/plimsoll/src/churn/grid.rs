//! How is the grid run? Cell by cell: a fresh pool, warmed, then idle and burst in turns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use model::churn::Cell;
use model::{ChurnResult, ChurnSpec, Latencies, Latency, units};
use observe::Eyes;
use pools::{Burst, Facts, PoolError, Room, Server, Settings, Standing};
use reactor::clock;

use crate::Failed;
use crate::progress::Audience;

/// How often an idle time asks whether to go on.
const GLANCE: Duration = Duration::from_millis(20);

/// All that a grid needs to be run.
pub(super) struct Grid<'a> {
    pub(super) asked: &'a ChurnSpec,
    pub(super) facts: Facts,
    pub(super) server: Server,
    pub(super) eyes: &'a mut Eyes,
    pub(super) audience: &'a mut dyn Audience,
    pub(super) stopped: &'a AtomicBool,
}

/// The settings of every cell at one distance, in their order. A setting that the library lacks makes no cells of its own.
pub(super) fn settings(asked: &ChurnSpec, facts: &Facts) -> Vec<Settings> {
    let times = |of: &[f64], known: bool| match of {
        of if known && !of.is_empty() => of.iter().map(|s| Some(Duration::from_secs_f64(*s))).collect(),
        _ => vec![None],
    };
    let minimums = if facts.knows_minimum { asked.min_pool.clone() } else { vec![0] };
    let mut out = Vec::new();
    for &max in &asked.max_pool {
        for &min in &minimums {
            for idle_timeout in times(&asked.idle_timeout_seconds, true) {
                for max_lifetime in times(&asked.max_lifetime_seconds, facts.knows_lifetime) {
                    let wait_timeout = asked.wait_timeout_seconds.map(Duration::from_secs_f64);
                    out.push(Settings { min, max, idle_timeout, max_lifetime, wait_timeout });
                }
            }
        }
    }
    out
}

/// The distances, in their order.
fn delays(asked: &ChurnSpec) -> &[f64] {
    if asked.network_delay_seconds.is_empty() { &[0.0] } else { &asked.network_delay_seconds }
}

/// How many cells the grid has.
pub(super) fn cells(asked: &ChurnSpec, facts: &Facts) -> usize {
    settings(asked, facts).len() * delays(asked).len()
}

impl Grid<'_> {
    /// Runs it all, or as far as it gets.
    ///
    /// # Errors
    /// If the very first pool could not be had.
    pub(super) fn run(mut self) -> Result<ChurnResult, Failed> {
        let url = self.server.target.to_string();
        let failed = |e: PoolError| Failed::CannotRun(format!("{url}: {e}"));
        let scheme = self.server.target.scheme;
        let all_known = Facts { knows_minimum: true, knows_lifetime: true, ..self.facts };
        let lacks = pools::lacks(scheme, &settings(self.asked, &all_known)).map_err(failed)?;
        let settings = settings(self.asked, &self.facts);
        let library = self.facts.library.to_owned();
        let mut out = ChurnResult { library, lacks, ..ChurnResult::default() };
        self.announce(settings.len() * delays(self.asked).len());
        for &delay in delays(self.asked) {
            let room = Room::open(self.server.clone(), Duration::from_secs_f64(delay)).map_err(failed)?;
            if out.cells.is_empty() {
                let told = room.told();
                (out.server_limit, out.server_idle_seconds) = (told.limit, told.idle_seconds);
            }
            out.lacks.extend(room.lacks());
            out.prices.push(room.price().map_err(failed)?);
            for settings in &settings {
                if !goes_on(self.stopped) {
                    return Ok(out);
                }
                match self.cell(&room, settings, delay) {
                    Ok(Some(cell)) => {
                        self.audience.say(&line(&cell));
                        out.cells.push(cell);
                    }
                    Ok(None) => return Ok(out),
                    Err(e) if out.cells.is_empty() => return Err(failed(e)),
                    Err(e) => out.cells.push(Cell {
                        failed: u64::from(self.asked.burst),
                        failed_example: Some(e.to_string()),
                        ..self.named(settings, delay)
                    }),
                }
            }
        }
        Ok(out)
    }

    fn announce(&mut self, cells: usize) {
        let least = cells as f64 * f64::from(self.asked.bursts) * self.asked.idle_seconds;
        let cells = if cells == 1 { "one cell".to_owned() } else { format!("{cells} cells") };
        self.audience.say(&format!("{}: {cells}, at least {}", self.facts.library, units::seconds(least)));
    }

    /// One cell; `None`: it was to end before its first burst was over.
    fn cell(&mut self, room: &Room, settings: &Settings, delay: f64) -> Result<Option<Cell>, PoolError> {
        let without = self.target_bytes();
        let began = clock::now();
        let pool = room.pool(settings)?;
        let stands = pool.warm(u64::from(settings.min), &|| goes_on(self.stopped));
        // The waits of the warm-up are nobody's.
        pool.take_waits();
        let mut cell = self.named(settings, delay);
        if !stands && goes_on(self.stopped) {
            let stand = pool.counts().standing();
            cell.failed_example =
                Some(format!("of the minimum of {} connections only {stand} came to stand", settings.min));
        }
        let mut seen = Seen::default();
        for _ in 0..self.asked.bursts {
            if !self.idle() {
                break;
            }
            let idle_connections = pool.counts().standing();
            let burst = pool.burst(self.asked.burst, &|| goes_on(self.stopped));
            if !goes_on(self.stopped) {
                break;
            }
            cell.idle_connections = Some(idle_connections);
            seen.take(burst, &mut cell);
            seen.cycle(&pool, &mut cell);
        }
        let counts = pool.counts();
        (cell.created, cell.closed, cell.most_connections) = (counts.created, counts.closed, counts.most);
        cell.seconds = clock::to_seconds(clock::now() - began);
        cell.wait = pool.take_waits().summary();
        seen.summarize(&mut cell);
        cell.target_user_bytes =
            without.zip(self.target_bytes()).map(|(a, b)| b.cast_signed() - a.cast_signed());
        pool.close();
        Ok((cell.bursts > 0).then_some(cell))
    }

    fn named(&self, settings: &Settings, delay: f64) -> Cell {
        Cell {
            min_pool: settings.min,
            max_pool: settings.max,
            idle_timeout_seconds: settings.idle_timeout.map(|time| time.as_secs_f64()),
            max_lifetime_seconds: settings.max_lifetime.map(|time| time.as_secs_f64()),
            network_delay_seconds: delay,
            counted_by: self.facts.counted_by.to_owned(),
            ..Cell::default()
        }
    }

    fn target_bytes(&mut self) -> Option<u64> {
        self.eyes.observe().target?.user_bytes
    }

    /// Lets the idle time pass; false: it was cut short.
    fn idle(&self) -> bool {
        let end = clock::now() + clock::from_seconds(self.asked.idle_seconds);
        while goes_on(self.stopped) {
            let left = end.saturating_sub(clock::now());
            if left == 0 {
                return true;
            }
            thread::sleep(Duration::from_nanos(left).min(GLANCE));
        }
        false
    }
}

fn goes_on(stopped: &AtomicBool) -> bool {
    !stopped.load(Ordering::Relaxed)
}

/// What the bursts of a cell showed together.
#[derive(Default)]
struct Seen {
    first: Latencies,
    operations: Latencies,
    whole: Latencies,
    lag: Latencies,
    /// When the first burst was over, and how many connections had been made by then.
    since: Option<(clock::Nanos, u64)>,
}

impl Seen {
    fn take(&mut self, burst: Burst, cell: &mut Cell) {
        cell.bursts += 1;
        cell.timeouts += burst.timeouts;
        cell.failed += burst.failed;
        if cell.failed_example.is_none() {
            cell.failed_example = burst.example;
        }
        if let Some(first) = burst.first {
            self.first.record(first);
        }
        if burst.operations.count() > 0 {
            self.whole.record(u64::try_from(burst.whole.as_nanos()).unwrap_or(u64::MAX));
        }
        self.operations.merge(&burst.operations);
        self.lag.merge(&burst.lag);
    }

    /// Counts what was made since the first burst was over: whole cycles only.
    fn cycle(&mut self, pool: &Standing<'_>, cell: &mut Cell) {
        let (now, created) = (clock::now(), pool.counts().created);
        let (since, before) = *self.since.get_or_insert((now, created));
        (cell.cycles_seconds, cell.created_in_cycles) = (clock::to_seconds(now - since), created - before);
    }

    fn summarize(&self, cell: &mut Cell) {
        cell.first = self.first.summary();
        cell.operation = self.operations.summary();
        cell.whole_burst = self.whole.summary();
        cell.lag = self.lag.summary();
    }
}

/// What is to be said of a finished cell.
fn line(cell: &Cell) -> String {
    let ms = |latency: Option<Latency>, of: fn(Latency) -> f64| {
        latency.map_or("unknown".to_owned(), |latency| units::milliseconds(of(latency)))
    };
    let delay = match cell.network_delay_seconds {
        0.0 => String::new(),
        delay => format!(", {} away", units::milliseconds(delay * 1e3)),
    };
    let lost = cell.timeouts + cell.failed;
    format!(
        "minimum {} of {}{delay}: first after idle {}, p99 {}; {} connections made{}",
        units::count(u64::from(cell.min_pool)),
        units::count(u64::from(cell.max_pool)),
        ms(cell.first, |l| l.p50_ms),
        ms(cell.operation, |l| l.p99_ms),
        units::count(cell.created),
        if lost > 0 { format!(", {} operations failed", units::count(lost)) } else { String::new() }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_the_library_lacks_makes_no_cells() {
        let asked = ChurnSpec {
            min_pool: vec![0, 10],
            max_pool: vec![20, 40],
            idle_timeout_seconds: vec![1.0, 60.0],
            max_lifetime_seconds: vec![5.0, 10.0],
            wait_timeout_seconds: Some(0.5),
            burst: 5,
            idle_seconds: 1.0,
            bursts: 2,
            network_delay_seconds: vec![0.0, 0.01],
            objective_seconds: 0.1,
            instances: 1,
            server_limit: None,
        };
        let facts = |scheme| pools::facts(scheme).unwrap();
        assert_eq!(cells(&asked, &facts(model::Scheme::Postgres)), 2 * 2 * 2 * 2 * 2);
        assert_eq!(cells(&asked, &facts(model::Scheme::MongoDb)), 2 * 2 * 2 * 2);
        assert_eq!(cells(&asked, &facts(model::Scheme::Http)), 2 * 2 * 2);
        let first = settings(&asked, &facts(model::Scheme::Redis))[0];
        let second = Duration::from_secs(1);
        assert_eq!((first.min, first.max, first.idle_timeout), (0, 20, Some(second)));
        assert_eq!((first.max_lifetime, first.wait_timeout), (Some(5 * second), Some(second / 2)));
    }
}
