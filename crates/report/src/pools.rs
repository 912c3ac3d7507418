//! How is a churn put into tables? A row for each cell of the grid, one for each price; the same in every output.

use model::churn::{Cell, Price};
use model::{ChurnResult, ChurnSpec, Latency, RunResult, units};

use crate::words::{self, UNKNOWN};

/// The heads of the grid's table; those that start with `<` are aligned to the left.
pub(crate) const HEADS: [&str; 13] = [
    "<minimum",
    "idle time-out",
    "lifetime",
    "away",
    "first after idle",
    "burst p50",
    "burst p99",
    "wait p99",
    "made",
    "an hour",
    "stood idle",
    "lost",
    "<objective",
];

/// Of [`HEADS`], those that a narrow screen goes without: they stand in every other output.
pub(crate) const SPARE: [usize; 3] = [2, 5, 8];

/// What is said of a cell that misses the objective.
pub(crate) const TOO_SLOW: &str = "missed";

/// What is said of the one to be preferred.
const CHOSEN: &str = "met: the least";

/// What it means.
pub(crate) fn note(asked: &ChurnSpec) -> String {
    format!(
        "{} × nothing for {}, then {} operations at one instant, from which they count; made an hour: after the first burst; \
         lost: gave up waiting, or failed",
        units::count(u64::from(asked.bursts)),
        units::seconds(asked.idle_seconds),
        units::count(u64::from(asked.burst))
    )
}

/// The cells of one row, in the order of [`HEADS`].
pub(crate) fn cells(cell: &Cell) -> [String; 13] {
    let library = |seconds: Option<f64>| seconds.map_or("library's".to_owned(), units::seconds);
    let ms = |latency: Option<Latency>, of: fn(&Latency) -> f64| {
        latency.map_or(UNKNOWN.to_owned(), |latency| units::milliseconds(of(&latency)))
    };
    [
        format!("{} of {}", units::count(u64::from(cell.min_pool)), units::count(u64::from(cell.max_pool))),
        library(cell.idle_timeout_seconds),
        library(cell.max_lifetime_seconds),
        distance(cell.network_delay_seconds),
        ms(cell.first, |l| l.p50_ms),
        ms(cell.operation, |l| l.p50_ms),
        ms(cell.operation, |l| l.p99_ms),
        ms(cell.wait, |l| l.p99_ms),
        units::count(cell.created),
        cell.created_per_hour().map_or(UNKNOWN.to_owned(), |n| units::count(n.round() as u64)),
        cell.idle_connections.map_or(UNKNOWN.to_owned(), units::count),
        units::count(cell.timeouts + cell.failed),
        match (cell.meets, cell.chosen) {
            (true, true) => CHOSEN.to_owned(),
            (true, false) => "met".to_owned(),
            (false, _) => TOO_SLOW.to_owned(),
        },
    ]
}

/// A delay that was added.
fn distance(seconds: f64) -> String {
    if seconds > 0.0 { units::milliseconds(seconds * 1e3) } else { "as it is".to_owned() }
}

/// The heads of the table of prices.
pub(crate) const PRICE_HEADS: [&str; 7] =
    ["<away", "TCP", "TLS", "greeting", "login", "ready", "measured on"];

/// What it means.
pub(crate) const PRICE_NOTE: &str =
    "one new connection, made alone; medians; what is not part of it, or cannot be told apart, is unknown";

/// The cells of one price, in the order of [`PRICE_HEADS`].
pub(crate) fn price(price: &Price) -> [String; 7] {
    let ms = |ms: Option<f64>| ms.map_or(UNKNOWN.to_owned(), units::milliseconds);
    [
        distance(price.network_delay_seconds),
        ms(price.tcp_ms),
        ms(price.tls_ms),
        ms(price.topology_ms),
        ms(price.auth_ms),
        ms(price.ready_ms),
        units::count(price.connections),
    ]
}

/// The advice: what to set, and from what that follows.
pub(crate) fn advice(seen: &ChurnResult) -> Vec<(String, Vec<String>)> {
    let clean = |lines: &[String]| lines.iter().map(|line| words::clean(line)).collect();
    seen.advice.iter().map(|a| (words::clean(&a.says), clean(&a.because))).collect()
}

/// Whose pool it was, how it was counted, and what it cost the server.
pub(crate) fn remarks(seen: &ChurnResult) -> Vec<String> {
    let mut out = Vec::new();
    let counted = seen.cells.first().map_or("", |cell| cell.counted_by.as_str());
    out.push(words::clean(&format!(
        "the pool is that of {}; connections are counted by {counted}",
        seen.library
    )));
    let memory: Vec<String> = seen
        .cells
        .iter()
        .filter_map(|cell| {
            let bytes = cell.target_user_bytes.filter(|bytes| *bytes > 0)?;
            Some(format!(
                "{} with {} (minimum {})",
                units::bytes(bytes as f64),
                units::count(cell.most_connections),
                cell.min_pool
            ))
        })
        .collect();
    if !memory.is_empty() {
        out.push(format!("the server's memory grew by {}", memory.join(", ")));
    }
    out.extend(seen.lacks.iter().map(|lack| words::clean(lack)));
    out
}

/// What a run asked and saw, where it is a churn.
pub(crate) fn of(result: &RunResult) -> Option<(&ChurnSpec, &ChurnResult)> {
    Some((result.spec.churn.as_ref()?, result.churn.as_ref()?))
}

/// The counts of a churn in a line, in place of those that connections which are held have.
pub(crate) fn counts(seen: &ChurnResult) -> String {
    let sum = |of: fn(&Cell) -> u64| units::count(seen.cells.iter().map(of).sum());
    let good = seen.cells.iter().map(|c| c.operation.map_or(0, |l| l.count)).sum();
    format!(
        "{} cells, {} operations answered, {} gave up waiting, {} failed; {} connections made, {} closed",
        units::count(seen.cells.len() as u64),
        units::count(good),
        sum(|c| c.timeouts),
        sum(|c| c.failed),
        sum(|c| c.created),
        sum(|c| c.closed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_unknown_and_not_zero() {
        let seen = Price { connections: 24, tcp_ms: Some(0.1), ready_ms: Some(0.1), ..Price::default() };
        assert_eq!(price(&seen), ["as it is", "100 µs", "unknown", "unknown", "unknown", "100 µs", "24"]);
    }
}
