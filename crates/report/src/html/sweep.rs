//! What does the page show of a sweep? Its curves, a table for each way to the server, and the headline figures.

use model::sweep::{Count, Usl};
use model::{RunResult, units};

use super::figures::Figure;
use super::rows::Tile;
use crate::counts;
use crate::svg::curve::{Curve, Curves, Point};
use crate::svg::scale::Axis;
use crate::words::{self, UNKNOWN};

/// The part of the page that a sweep has.
pub(super) struct Sweep {
    pub(super) note: &'static str,
    pub(super) heads: Vec<&'static str>,
    pub(super) ways: Vec<Way>,
    pub(super) beside_heads: Vec<&'static str>,
    pub(super) charts: Vec<Figure>,
}

/// One way to the server.
pub(super) struct Way {
    pub(super) label: String,
    pub(super) url: String,
    /// Its verdict, where it is not the one that the page begins with.
    pub(super) verdict: Option<String>,
    pub(super) rows: Vec<[String; 11]>,
    pub(super) sayings: Vec<(&'static str, String)>,
    /// Compared with the first.
    pub(super) beside: Vec<[String; 5]>,
}

/// The colours of the ways, in their order; more share the last.
const CLASSES: [&str; 4] = ["c-target", "c-generator", "c-kernel", "c-wanted"];

impl Sweep {
    pub(super) fn of(r: &RunResult) -> Option<Self> {
        r.sweep.as_ref()?;
        let left = |head: &&'static str| head.trim_start_matches('<');
        let ways = counts::ways(r).enumerate().filter_map(|(index, way)| {
            let reading = counts::reading(way)?;
            Some(Way {
                label: counts::label(way),
                url: words::clean(&way.target.url),
                verdict: (index > 0).then(|| words::verdict(way)),
                rows: reading.counts.iter().map(|count| counts::cells(count, reading)).collect(),
                sayings: counts::sayings(way),
                beside: index.checked_sub(1).map(|index| counts::beside(r, index)).unwrap_or_default(),
            })
        });
        Some(Self {
            note: "Operations a second at each client count, latency from the intended time; memory and processes of the target with all clients connected; 100% is one CPU",
            heads: counts::HEADS.iter().map(left).collect(),
            ways: ways.collect(),
            beside_heads: counts::BESIDE_HEADS.iter().map(left).collect(),
            charts: charts(r),
        })
    }
}

/// A figure and its interval.
type Figured = (f64, Option<(f64, f64)>);

/// The curves that can be drawn.
fn charts(r: &RunResult) -> Vec<Figure> {
    let objective_ms = r.spec.objective_seconds * 1e3;
    let throughput = Curves {
        id: "throughput-by-clients",
        title: "Throughput",
        axis: |_, most| Axis::counts(most, "/s"),
        curves: &curves(r, "", |count| {
            let e = count.per_second?;
            Some((e.value, e.low.zip(e.high)))
        }),
        rule: None,
        write: words::per_second,
    };
    let mut latencies = curves(r, " p99", |count| Some((count.p99_ms, None)));
    if r.beside.is_empty() {
        let mut median = curves(r, " p50", |count| Some((count.p50_ms, None)));
        median.iter_mut().for_each(|curve| {
            curve.class = "c-kernel";
            curve.law.clear();
        });
        latencies.append(&mut median);
    }
    latencies.iter_mut().for_each(|curve| curve.law.clear());
    let latency = Curves {
        id: "latency-by-clients",
        title: "Latency",
        axis: Axis::latency,
        curves: &latencies,
        rule: Some((objective_ms, format!("objective {}", units::milliseconds(objective_ms)))),
        write: units::milliseconds,
    };
    let figure = |title, note, curves: &Curves<'_>| Some(Figure { title, note, svg: curves.draw()? });
    let fitted = counts::ways(r).any(|way| counts::reading(way).is_some_and(|reading| reading.usl.is_some()));
    let note = if fitted {
        "operations a second; bars: 95% intervals; thin: the fitted law of scaling"
    } else {
        "operations a second; bars: 95% intervals"
    };
    [
        figure("Throughput", note, &throughput),
        figure("Latency", "from the intended time; logarithmic", &latency),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A curve for each way, of a figure and its interval.
fn curves(r: &RunResult, what: &str, of: impl Fn(&Count) -> Option<Figured>) -> Vec<Curve> {
    let several = !r.beside.is_empty();
    let curve = |(index, way): (usize, &RunResult)| {
        let reading = counts::reading(way)?;
        let point =
            |count: &Count| of(count).map(|(value, interval)| (count.clients as f64, value, interval));
        let points: Vec<_> = reading.counts.iter().filter_map(point).collect();
        let name = match several {
            true => counts::label(way),
            false if what.is_empty() => "measured".to_owned(),
            false => what.trim_start().to_owned(),
        };
        let law = reading.usl.as_ref().map(|law| along(law, &points)).unwrap_or_default();
        Some(Curve { name, class: CLASSES[index.min(CLASSES.len() - 1)], points, law })
    };
    counts::ways(r).enumerate().filter_map(curve).collect()
}

/// The law at evenly spread places between the first and the last count.
fn along(law: &Usl, points: &[Point]) -> Vec<(f64, f64)> {
    const PLACES: u32 = 60;
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let place = |i: u32| first.0 * (last.0 / first.0).powf(f64::from(i) / f64::from(PLACES));
    (0..=PLACES).map(place).map(|n| (n, law.at(n))).collect()
}

/// Headline figures.
pub(super) fn tiles(r: &RunResult) -> Vec<Tile> {
    let reading = counts::reading(r);
    let peak = reading.and_then(|reading| reading.peak);
    let count = peak
        .zip(reading)
        .and_then(|(peak, reading)| reading.counts.iter().find(|count| count.clients == peak.clients));
    let saturation = reading.and_then(|reading| reading.saturation);
    vec![
        Tile {
            name: "peak",
            value: peak.map_or(UNKNOWN.to_owned(), |peak| words::per_second(peak.per_second.value)),
            note: peak.map_or(String::new(), |peak| format!("with {} clients", units::count(peak.clients))),
        },
        Tile {
            name: "latency",
            value: count.map_or(UNKNOWN.to_owned(), |count| units::milliseconds(count.p99_ms)),
            note: "p99 at the peak".to_owned(),
        },
        Tile {
            name: "within the objective",
            value: saturation.map_or(UNKNOWN.to_owned(), |s| units::count(s.clients)),
            note: format!("clients, 99% within {}", units::seconds(r.spec.objective_seconds)),
        },
        Tile {
            name: "target CPU",
            value: words::cpu_percent_or_unknown(count.and_then(|count| count.target_cpus)),
            note: "at the peak; 100% is one CPU".to_owned(),
        },
    ]
}
