//! How long did things take, from the median to the very last? And what failed when?

use std::collections::BTreeMap;

use model::FailureKind;
use model::units;

use super::scale::Axis;
use super::{WIDTH, drawing, line, rect, text};
use crate::latencies::Measured;
use crate::words;

const LEFT: f64 = 78.0;
const RIGHT: f64 = WIDTH - 22.0;
const TOP: f64 = 38.0;
const ROW: f64 = 34.0;

/// Each latency as a row of marks on one logarithmic axis: median, 90%, 99%, 99.9%, the longest.
pub(crate) fn draw(id: &str, rows: &[Measured], objective_ms: f64) -> Option<String> {
    let least = rows.iter().map(|r| r.latency.p50_ms).fold(f64::INFINITY, f64::min);
    let most = rows.iter().map(|r| r.latency.max_ms).fold(0.0, f64::max);
    if rows.is_empty() || most <= 0.0 {
        return None;
    }
    let axis = Axis::latency(least, most.max(objective_ms));
    let x = |ms: f64| LEFT + axis.share(ms) * (RIGHT - LEFT);
    let bottom = TOP + ROW * rows.len() as f64;
    let height = bottom + 26.0;
    let mut body = String::new();
    for (value, label) in &axis.ticks {
        body += &line(x(*value), TOP - 4.0, x(*value), bottom, "grid");
        body += &text(x(*value), bottom + 16.0, "tick mid", label);
    }
    if objective_ms > 0.0 {
        body += &line(x(objective_ms), TOP - 12.0, x(objective_ms), bottom, "rule");
        let words = format!("verify objective {}", units::milliseconds(objective_ms));
        let end = if x(objective_ms) > WIDTH - 84.0 { "tick end" } else { "tick mid" };
        body += &text(x(objective_ms).min(RIGHT + 18.0), TOP - 18.0, end, &words);
    }
    let mut description = String::new();
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (i as f64 + 0.5);
        let l = row.latency;
        body += &text(LEFT - 8.0, y + 4.0, "label end", &row.name);
        body += &line(x(l.p50_ms), y, x(l.max_ms), y, "whisker");
        for (ms, height) in [(l.p90_ms, 5.0), (l.p99_ms, 8.0), (l.p999_ms, 5.0)] {
            body += &line(x(ms), y - height, x(ms), y + height, "mark");
        }
        body += &super::dot(x(l.p50_ms), y, 4.4, "median");
        body += &super::dot(x(l.max_ms), y, 3.6, "longest");
        if i == 0 {
            body += &legend(&x, &l);
        }
        description += &format!(
            "{}: median {}, 99% within {}, longest {}. ",
            row.name,
            units::milliseconds(l.p50_ms),
            units::milliseconds(l.p99_ms),
            units::milliseconds(l.max_ms)
        );
    }
    Some(drawing(
        id,
        height,
        "Latencies, median to longest",
        description.trim_end(),
        " class=\"chart\"",
        &body,
    ))
}

/// The first row's marks are named above it, as far as there is room; so no legend is needed.
fn legend(x: &impl Fn(f64) -> f64, l: &model::Latency) -> String {
    let mut out = String::new();
    let mut taken = f64::NEG_INFINITY;
    for (ms, name) in
        [(l.p50_ms, "p50"), (l.p99_ms, "p99"), (l.max_ms, "max"), (l.p90_ms, "p90"), (l.p999_ms, "p99.9")]
    {
        // The three that matter come first; the others fill what is free between them.
        let place = x(ms);
        let free = match name {
            "p90" => place - x(l.p50_ms) > 26.0 && x(l.p99_ms) - place > 26.0,
            "p99.9" => place - x(l.p99_ms) > 30.0 && x(l.max_ms) - place > 30.0,
            _ => place - taken > 26.0,
        };
        if free {
            out += &text(place, TOP + 4.0, "tick mid halo", name);
            taken = taken.max(place);
        }
    }
    out
}

/// Failures over time, a lane for each kind: when, and how many at once.
pub(crate) fn lanes(
    id: &str,
    times: &[f64],
    failed: &[BTreeMap<FailureKind, u64>],
    kinds: &[(FailureKind, u64)],
) -> Option<String> {
    const LANE: f64 = 46.0;
    let left = 112.0;
    let end = times.last().copied()?;
    let most = failed.iter().flat_map(BTreeMap::values).copied().max()?;
    let time = Axis::time(end);
    let x = |t: f64| left + time.share(t) * (RIGHT - left);
    let bottom = 16.0 + LANE * kinds.len() as f64;
    let mut body = String::new();
    for (t, label) in &time.ticks {
        body += &line(x(*t), 10.0, x(*t), bottom, "grid");
        body += &text(x(*t), bottom + 17.0, "tick mid", label);
    }
    for (i, (kind, total)) in kinds.iter().enumerate() {
        let base = 16.0 + LANE * (i as f64 + 1.0);
        body += &text(left - 8.0, base - 18.0, "label end", kind.id());
        body += &text(left - 8.0, base - 4.0, "value end", &units::count(*total));
        body += &line(left, base, RIGHT, base, "axis");
        for (&t, failed) in times.iter().zip(failed) {
            let n = failed.get(kind).copied().unwrap_or(0);
            if n > 0 {
                // The root of the share: one among thousands must still be seen.
                let height = (LANE - 12.0) * (n as f64 / most as f64).sqrt();
                body += &rect(x(t) - 1.5, base - height.max(2.0), 3.0, height.max(2.0), "failed-bar");
            }
        }
    }
    let told: Vec<String> =
        kinds.iter().map(|(kind, n)| format!("{} {}", units::count(*n), kind.says())).collect();
    let description = words::clean(&told.join("; "));
    Some(drawing(id, bottom + 26.0, "Failures over time", &description, " class=\"chart\"", &body))
}
