//! Do operations wait for a connection because the application's pool has no more?

use model::churn::Cell;
use model::result::{Finding, Side, Status};
use model::{ChurnResult, ChurnSpec, RunResult, units};

use crate::pools::{self, Values};
use crate::{Limit, LimitFacts, churn};

/// The pool's maximum.
pub(crate) struct PoolTooSmall;

static FACTS: LimitFacts = LimitFacts {
    id: "pool.too-small",
    side: Side::Client,
    question: "Do operations wait for a connection because the application's pool has no more?",
    doc: "An application's pool stops at its maximum. What comes beyond waits for a connection to come back, and the server, \
          which has nothing to do, looks slow; after the pool's own patience it fails (\"pool timed out\", \"Timeout \
          waiting for connection\"), although the server would have taken more.",
    how_to_see: "the pool's own counts: HikariCP's pending threads, pgx's EmptyAcquireCount, the MongoDB drivers' \
        ConnectionCheckOutFailed and the wait in ConnectionCheckedOut",
    remedy_doc: "A larger maximum, as far as the server's limit allows for all instances; or shorter operations.",
};

/// What shows it.
const ASK: &str = "plimsoll churn redis://HOST --min-pool 0,10 --wait-timeout 1s";

/// From this share of an operation's time on, waiting is what it consists of.
const MOST_OF: f64 = 0.5;

impl Limit for PoolTooSmall {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let Some((asked, seen)) = churn::of(run) else {
            return churn::unknown(&FACTS, "only a churn sees an application's pool", ASK);
        };
        // A smaller maximum was tried to see what it does; the largest is what there is.
        let largest = seen.cells.iter().map(|cell| cell.max_pool).max().unwrap_or(0);
        let cells = || seen.cells.iter().filter(|cell| cell.max_pool == largest);
        if cells().all(|cell| cell.wait.is_none()) {
            let why = format!("{} tells no time that operations wait for a connection", seen.library);
            return churn::unknown(&FACTS, why, ASK);
        }
        let timeouts: u64 = cells().map(|cell| cell.timeouts).sum();
        let full = cells().filter(|cell| is_full(cell)).max_by(|a, b| wait(a).total_cmp(&wait(b)));
        let late = full.is_some_and(|cell| !analysis::churn::meets(cell, asked.objective_seconds));
        let most = units::count(u64::from(largest));
        let mut finding = match full {
            _ if timeouts > 0 => FACTS.finding(
                Status::Hit,
                format!(
                    "{} operations found no connection in time in a pool of {most}",
                    units::count(timeouts)
                ),
            ),
            Some(cell) => FACTS.finding(
                if late { Status::Hit } else { Status::Near },
                format!(
                    "all {most} connections were taken, and operations waited {} for one (p99)",
                    waited(cell)
                ),
            ),
            None => FACTS.finding(Status::Clear, format!("a maximum of {most} leaves none waiting for long")),
        };
        finding.ceiling_connections = (finding.status != Status::Clear).then_some(u64::from(largest));
        finding.evidence = seen.cells.iter().filter(|c| c.timeouts > 0 || is_full(c)).map(told).collect();
        finding.remedy = remedy(run, asked, seen);
        finding
    }
}

/// Whether every connection of its maximum stood, and operations mostly waited for one.
fn is_full(cell: &Cell) -> bool {
    let all = cell.operation.map_or(0.0, |all| all.p99_ms);
    cell.most_connections >= u64::from(cell.max_pool) && wait(cell) >= MOST_OF * all
}

fn wait(cell: &Cell) -> f64 {
    cell.wait.map_or(0.0, |wait| wait.p99_ms)
}

fn waited(cell: &Cell) -> String {
    units::milliseconds(wait(cell))
}

fn told(cell: &Cell) -> String {
    format!(
        "minimum {} of {}: at most {} connections, p99 of the wait for one {}, {} gave up",
        units::count(u64::from(cell.min_pool)),
        units::count(u64::from(cell.max_pool)),
        units::count(cell.most_connections),
        waited(cell),
        units::count(cell.timeouts)
    )
}

/// A connection for each operation of a burst, if the server has so many for each instance.
fn remedy(run: &RunResult, asked: &ChurnSpec, seen: &ChurnResult) -> Vec<String> {
    let share =
        analysis::churn::server_limit(asked, seen).map(|limit| limit / u64::from(asked.instances.max(1)));
    let wanted = u64::from(asked.burst);
    let max = share.map_or(wanted, |share| wanted.min(share.max(1)));
    let mut lines = pools::lines(run.spec.target.scheme, Values { max: Some(max), ..Values::default() });
    if max < wanted {
        lines.insert(0, format!("# {wanted} come at once, and the server has {max} for each instance:"));
    }
    lines
}
