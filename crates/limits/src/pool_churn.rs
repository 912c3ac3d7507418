//! Are connections made over and over that could have been kept?

use model::churn::Cell;
use model::result::{Finding, Side, Status};
use model::{RunResult, units};

use crate::pools::{self, Values};
use crate::{Limit, LimitFacts, churn};

/// Connections made far more often than their lifetime explains.
pub(crate) struct PoolChurn;

static FACTS: LimitFacts = LimitFacts {
    id: "pool.churn",
    side: Side::Client,
    question: "Are connections made over and over that could have been kept?",
    doc: "A pool that closes what is idle makes it anew with the next burst: TCP, TLS, the greeting and the login again, \
          while operations wait. It shows as a first operation after idle that takes many times what others do, and as \
          connections made an hour far above what a longest lifetime explains.",
    how_to_see: "connections made an hour: totalConnectionsCreated or log lines of the pool, pg_stat_database.sessions, \
        total_connections_received of Redis, connections.totalCreated of MongoDB",
    remedy_doc: "An idle time-out above the gaps of the traffic, and a minimum that the first of a burst find standing.",
};

/// What shows it.
const ASK: &str = "plimsoll churn URL --min-pool 0,10 --bursts 3";

/// Made more often than this many times what the lifetime explains: far above it.
const FAR_ABOVE: f64 = 2.0;

impl Limit for PoolChurn {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let Some((asked, seen)) = churn::of(run) else {
            return churn::unknown(&FACTS, "only a churn sees an application's pool", ASK);
        };
        let made = |cell: &Cell| cell.created_per_hour();
        let whole = || seen.cells.iter().filter(|cell| made(cell).is_some());
        let by_made = |a: &&Cell, b: &&Cell| made(a).unwrap_or(0.0).total_cmp(&made(b).unwrap_or(0.0));
        let (Some(most), Some(least)) = (whole().max_by(by_made), whole().min_by(by_made)) else {
            let why = "no whole cycle of idle and burst was run after the first; ask for --bursts 2 or more";
            return churn::unknown(&FACTS, why, ASK);
        };
        let churning: Vec<&Cell> = whole().filter(|cell| churns(cell)).collect();
        let none_met = analysis::churn::chosen(asked, seen).is_none();
        let hour = |cell: &Cell| units::count(made(cell).unwrap_or(0.0).round() as u64);
        let mut finding = if churning.is_empty() {
            FACTS.finding(Status::Clear, format!("at most {} connections an hour are made", hour(most)))
        } else {
            let status = if none_met && churns(least) { Status::Hit } else { Status::Near };
            FACTS.finding(
                status,
                format!(
                    "a minimum of {} makes {} connections an hour, one of {} makes {}",
                    units::count(u64::from(most.min_pool)),
                    hour(most),
                    units::count(u64::from(least.min_pool)),
                    hour(least)
                ),
            )
        };
        finding.evidence = churning.iter().map(|cell| told(cell)).collect();
        let min = analysis::churn::chosen(asked, seen).map_or(asked.burst, |cell| cell.min_pool);
        // Twice the gap: the next one may be a little longer.
        let idle_seconds = Some((2.0 * asked.idle_seconds).max(1.0));
        let values = Values { min: Some(u64::from(min)), idle_seconds, max: None };
        finding.remedy = pools::lines(run.spec.target.scheme, values);
        finding
    }
}

/// Whether at least one connection is made in each cycle, and far more than the lifetime explains.
fn churns(cell: &Cell) -> bool {
    let cycles = cell.bursts.saturating_sub(1).max(1);
    let explained = cell
        .max_lifetime_seconds
        .map_or(0.0, |lifetime| cell.most_connections as f64 * cell.cycles_seconds / lifetime);
    cell.created_in_cycles >= u64::from(cycles) && cell.created_in_cycles as f64 > FAR_ABOVE * explained
}

fn told(cell: &Cell) -> String {
    let timeout = cell.idle_timeout_seconds.map_or("the library's".to_owned(), units::seconds);
    format!(
        "minimum {} of {}, idle time-out {timeout}: {} made in {}, {} stood before the last burst",
        units::count(u64::from(cell.min_pool)),
        units::count(u64::from(cell.max_pool)),
        units::count(cell.created_in_cycles),
        units::seconds(cell.cycles_seconds),
        cell.idle_connections.map_or("an unknown number".to_owned(), units::count)
    )
}
