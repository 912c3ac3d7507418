//! How is a sweep put into tables? A row for each client count, what the curve says, and the ways side by side; the same
//! in every output.

use model::sweep::{Count, Level, Reading, Shape};
use model::{Estimate, RunResult, units};

use crate::words::{self, UNKNOWN};

/// The heads of a way's table; those that start with `<` are aligned to the left.
pub(crate) const HEADS: [&str; 11] = [
    "clients",
    "throughput",
    "<95% interval",
    "p50",
    "p95",
    "p99",
    "target CPU",
    "generator CPU",
    "memory",
    "processes",
    "<",
];

/// What it means.
pub(crate) const NOTE: &str = "operations a second; latency from the intended time; 100% is one CPU";

/// The heads of the table of ways side by side.
pub(crate) const BESIDE_HEADS: [&str; 5] = ["clients", "throughput", "beside", "difference", "<"];

/// All ways to the server that were measured in turns, the one named first first.
pub(crate) fn ways(r: &RunResult) -> impl Iterator<Item = &RunResult> {
    std::iter::once(r).chain(&r.beside)
}

/// What a way is called.
pub(crate) fn label(r: &RunResult) -> String {
    r.spec.sweep.as_ref().map_or_else(|| words::clean(&r.target.url), |sweep| words::clean(&sweep.label))
}

/// What was concluded of a way's curve.
pub(crate) fn reading(r: &RunResult) -> Option<&Reading> {
    r.sweep.as_ref().map(|sweep| &sweep.reading)
}

/// The cells of a row, in the order of [`HEADS`].
pub(crate) fn cells(count: &Count, reading: &Reading) -> [String; 11] {
    [
        units::count(count.clients),
        count.per_second.map_or(UNKNOWN.to_owned(), |e| words::per_second(e.value)),
        count.per_second.map_or(String::new(), |e| between(e, bare)),
        units::milliseconds(count.p50_ms),
        units::milliseconds(count.p95_ms),
        units::milliseconds(count.p99_ms),
        words::cpu_percent_or_unknown(count.target_cpus),
        words::cpu_percent_or_unknown(count.generator_cpus),
        words::bytes_or_unknown(count.target_user_bytes),
        count.target_processes.map_or(UNKNOWN.to_owned(), units::count),
        remark(count, reading),
    ]
}

/// What there is to say of one count.
fn remark(count: &Count, reading: &Reading) -> String {
    let mut said = Vec::new();
    if reading.peak.is_some_and(|peak| peak.clients == count.clients) {
        said.push("peak".to_owned());
    }
    if reading.saturation.is_some_and(|s| s.clients == count.clients && s.missed_at.is_some()) {
        said.push("saturation".to_owned());
    }
    match &reading.broke {
        Some(broke) if broke.clients == count.clients => said.push("not all were served".to_owned()),
        _ if !count.good => said.push(match &count.why_not {
            Some(why) => format!("left out: {}", words::clean(why)),
            None => "left out".to_owned(),
        }),
        _ => {}
    }
    said.join(", ")
}

/// What the curve says: a name and a sentence each.
pub(crate) fn sayings(r: &RunResult) -> Vec<(&'static str, String)> {
    let Some(reading) = reading(r) else { return Vec::new() };
    let mut out = Vec::new();
    if let Some(peak) = reading.peak {
        let mut text =
            format!("{} at {}", with_interval(peak.per_second, words::per_second), clients(peak.clients));
        if peak.clients_low < peak.clients_high {
            let (low, high) = (units::count(peak.clients_low), units::count(peak.clients_high));
            text += &format!("; from {low} to {high} clients it cannot be told from that");
        }
        out.push(("peak", text));
    }
    let objective = units::seconds(r.spec.objective_seconds);
    out.push((
        "saturation",
        match reading.saturation {
            None => format!("at no count 99% of the operations stayed within {objective}"),
            Some(s) => {
                let missed = s.missed_at.map_or_else(
                    || ", the most that was measured".to_owned(),
                    |at| format!("; at {} they did not", units::count(at)),
                );
                let sure = if s.confirmed { "" } else { "; seen once" };
                format!(
                    "99% of the operations stayed within {objective} up to {} (p99 {}){missed}{sure}",
                    clients(s.clients),
                    units::milliseconds(s.p99_ms)
                )
            }
        },
    ));
    if let Some(shape) = reading.shape {
        out.push(("beyond", shape_says(shape, reading.level.as_ref())));
    }
    match (&reading.usl, &reading.usl_refused) {
        (Some(law), _) => {
            let share = |x: f64| format!("{}%", words::figure(x * 100.0));
            let peak = law.peak_clients.map_or_else(
                || "it only levels off".to_owned(),
                |n| format!("its peak lies at {} clients", units::count(n.round() as u64)),
            );
            out.push((
                "scaling",
                format!(
                    "one client alone {}; contention {}; coherency {}; {peak}; the counts lie within {} of the law",
                    with_interval(law.lambda, words::per_second),
                    with_interval(law.sigma, share),
                    with_interval(law.kappa, share),
                    share(law.worst_residual)
                ),
            ));
        }
        (None, Some(why)) => out.push(("scaling", format!("no law was fitted: {}", words::clean(why)))),
        (None, None) => {}
    }
    if let Some(broke) = &reading.broke {
        let text = format!(
            "at {}: {} were served; {}",
            clients(broke.clients),
            units::count(broke.served),
            words::clean(&broke.by)
        );
        out.push(("broke", text));
    }
    out
}

fn clients(n: u64) -> String {
    if n == 1 { "1 client".to_owned() } else { format!("{} clients", units::count(n)) }
}

fn shape_says(shape: Shape, level: Option<&Level>) -> String {
    match shape {
        Shape::Growing => "throughput still grows at the largest count: the peak lies further on".to_owned(),
        Shape::Queueing => {
            let from = level.map_or(String::new(), |level| {
                let (low, high) = (units::count(level.clients_low), units::count(level.clients_high));
                format!("from {low} to {high} clients ")
            });
            format!(
                "{from}throughput stays and latency grows in proportion to the clients: they queue for something \
                 that serves a fixed number at a time"
            )
        }
        Shape::Falling => "throughput falls: the clients are in each other's way".to_owned(),
    }
}

/// The rows of a way beside the first, in the order of [`BESIDE_HEADS`].
pub(crate) fn beside(r: &RunResult, index: usize) -> Vec<[String; 5]> {
    let throughput = |way: &RunResult, clients: u64| {
        let counts = reading(way).map(|reading| reading.counts.as_slice()).unwrap_or_default();
        let count = counts.iter().find(|count| count.clients == clients);
        count.and_then(|c| c.per_second).map_or(UNKNOWN.to_owned(), |e| words::per_second(e.value))
    };
    let Some(way) = r.beside.get(index) else { return Vec::new() };
    let rows = r.differences.iter().filter(|d| d.beside == index).map(|d| {
        let (difference, word) = match d.share {
            None => (UNKNOWN.to_owned(), String::new()),
            Some(share) if d.seen => (signed(share.value), between(share, signed)),
            Some(share) => ("no difference seen".to_owned(), between(share, signed)),
        };
        [units::count(d.clients), throughput(r, d.clients), throughput(way, d.clients), difference, word]
    });
    rows.collect()
}

/// A rate without its unit.
fn bare(rate: f64) -> String {
    words::per_second(rate).trim_end_matches("/s").to_owned()
}

fn signed(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

fn between(estimate: Estimate, write: impl Fn(f64) -> String) -> String {
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => format!("{} to {}", write(low), write(high)),
        _ => String::new(),
    }
}

fn with_interval(estimate: Estimate, write: impl Fn(f64) -> String) -> String {
    match between(estimate, &write) {
        none if none.is_empty() => write(estimate.value),
        interval => format!("{} ({interval})", write(estimate.value)),
    }
}

#[cfg(test)]
mod tests {
    use model::sweep::{Broke, Peak, Saturation};

    use super::*;

    fn estimate(value: f64) -> Estimate {
        Estimate { value, low: Some(value * 0.9), high: Some(value * 1.1), stages: 20 }
    }

    #[test]
    fn a_row_says_which_count_is_the_peak_and_which_broke() {
        let reading = Reading {
            peak: Some(Peak {
                clients: 64,
                clients_low: 64,
                clients_high: 64,
                per_second: estimate(2_400.0),
            }),
            saturation: Some(Saturation { clients: 64, p99_ms: 80.0, missed_at: Some(128), confirmed: true }),
            broke: Some(Broke { clients: 1_000, served: 97, by: "903 were refused".to_owned() }),
            ..Reading::default()
        };
        let count = |clients, good| Count {
            clients,
            per_second: Some(estimate(2_400.0)),
            p50_ms: 25.0,
            p99_ms: 80.0,
            good,
            ..Count::default()
        };
        let peak = cells(&count(64, true), &reading);
        assert_eq!(peak[..4], ["64", "2,400/s", "2,160 to 2,640", "25.0 ms"]);
        assert_eq!((peak[8].as_str(), peak[10].as_str()), ("unknown", "peak, saturation"));
        assert_eq!(cells(&count(1_000, false), &reading)[10], "not all were served");
        assert_eq!(cells(&count(32, false), &reading)[10], "left out");
        let late = Count { why_not: Some("the generator was late".into()), ..count(32, false) };
        assert_eq!(cells(&late, &reading)[10], "left out: the generator was late");
    }

    #[test]
    fn an_estimate_without_an_interval_is_told_as_one() {
        let alone = Estimate { value: 5.0, ..Estimate::default() };
        assert_eq!(with_interval(alone, words::per_second), words::per_second(5.0));
        assert_eq!(between(alone, words::per_second), "");
        assert_eq!((signed(0.051), signed(-0.2)), ("+5.1%".to_owned(), "-20.0%".to_owned()));
    }
}
