//! What does the page show of a churn? Its grid, its advice, its prices, and the headline figures.

use model::churn::Cell;
use model::{ChurnResult, ChurnSpec, RunResult, units};

use super::rows::Tile;
use crate::pools;
use crate::words::UNKNOWN;

/// The part of the page that a churn has.
pub(super) struct Churn {
    pub(super) note: String,
    pub(super) heads: Vec<&'static str>,
    pub(super) cells: Vec<[String; 13]>,
    pub(super) advice: Vec<(String, Vec<String>)>,
    pub(super) price_note: &'static str,
    pub(super) price_heads: Vec<&'static str>,
    pub(super) prices: Vec<[String; 7]>,
    pub(super) remarks: Vec<String>,
}

impl Churn {
    pub(super) fn of(r: &RunResult) -> Option<Self> {
        let (asked, seen) = pools::of(r)?;
        let plain = |heads: &[&'static str]| heads.iter().map(|head| head.trim_start_matches('<')).collect();
        Some(Self {
            note: pools::note(asked),
            heads: plain(&pools::HEADS),
            cells: seen.cells.iter().map(pools::cells).collect(),
            advice: pools::advice(seen),
            price_note: pools::PRICE_NOTE,
            price_heads: plain(&pools::PRICE_HEADS),
            prices: seen.prices.iter().map(pools::price).collect(),
            remarks: pools::remarks(seen),
        })
    }
}

/// Headline figures.
pub(super) fn tiles(asked: &ChurnSpec, seen: &ChurnResult) -> Vec<Tile> {
    let ms = |ms: Option<f64>| ms.map_or_else(|| UNKNOWN.to_owned(), units::milliseconds);
    let good = seen.cells.iter().find(|cell| cell.chosen);
    let p99 = |cell: &Cell| cell.operation.map_or(f64::INFINITY, |l| l.p99_ms);
    let cell = good.or_else(|| seen.cells.iter().min_by(|a, b| p99(a).total_cmp(&p99(b))));
    let ready = seen.prices.iter().filter_map(|p| p.ready_ms).reduce(f64::max);
    vec![
        Tile {
            name: "minimum",
            value: good.map_or_else(|| "none met".to_owned(), |c| units::count(u64::from(c.min_pool))),
            note: format!("the least that meets {}", units::milliseconds(asked.objective_seconds * 1e3)),
        },
        Tile {
            name: "first after idle",
            value: ms(cell.and_then(|c| c.first).map(|l| l.p50_ms)),
            note: format!("after {} of nothing", units::seconds(asked.idle_seconds)),
        },
        Tile {
            name: "burst",
            value: ms(cell.and_then(|c| c.operation).map(|l| l.p99_ms)),
            note: format!("p99 of {} at one instant", units::count(u64::from(asked.burst))),
        },
        Tile {
            name: "made an hour",
            value: cell
                .and_then(Cell::created_per_hour)
                .map_or_else(|| UNKNOWN.to_owned(), |n| units::count(n.round() as u64)),
            note: "connections, with this traffic".to_owned(),
        },
        Tile { name: "price", value: ms(ready), note: "of one new connection".to_owned() },
    ]
}
