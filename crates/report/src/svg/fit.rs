//! What does one more connection cost? The stages as points, the fitted slope through them, and its interval.

use model::Estimate;

use super::scale::Axis;
use super::{WIDTH, apart, at, dot, drawing, line, text};
use crate::words;

const HEIGHT: f64 = 264.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = WIDTH - 84.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = HEIGHT - 42.0;

/// One side's memory at each stage, and what was fitted to it.
pub(crate) struct Side {
    /// Whose memory.
    pub(crate) name: &'static str,
    /// The class that gives its colour.
    pub(crate) class: &'static str,
    /// Connections, bytes, and whether the stage counted for the fit.
    pub(crate) points: Vec<(f64, f64, bool)>,
    /// Bytes per connection.
    pub(crate) slope: Option<Estimate>,
}

impl Side {
    /// The height at nought connections: the median of what the counted points leave over.
    fn intercept(&self, slope: f64) -> Option<f64> {
        let mut rest: Vec<f64> =
            self.points.iter().filter(|p| p.2).map(|(n, bytes, _)| bytes - slope * n).collect();
        rest.sort_by(f64::total_cmp);
        let middle = rest.len() / 2;
        match rest.len() {
            0 => None,
            n if n % 2 == 0 => Some((rest[middle - 1] + rest[middle]) / 2.0),
            _ => Some(rest[middle]),
        }
    }

    fn value(&self, slope: f64, n: f64) -> Option<f64> {
        self.intercept(slope).map(|base| base + slope * n)
    }
}

/// The drawing; `None` where no stage has a reading.
pub(crate) fn draw(id: &str, sides: &[Side]) -> Option<String> {
    let points = || sides.iter().flat_map(|s| s.points.iter());
    let most_n = points().map(|p| p.0).fold(0.0, f64::max);
    let most_bytes = points().map(|p| p.1).fold(0.0, f64::max);
    if most_n <= 0.0 || most_bytes <= 0.0 {
        return None;
    }
    let (across, up) = (Axis::counts(most_n, ""), Axis::bytes(most_bytes));
    let x = |n: f64| LEFT + across.share(n) * (RIGHT - LEFT);
    let y = |b: f64| BOTTOM - up.share(b) * (BOTTOM - TOP);
    let mut body = String::new();
    for (value, label) in &up.ticks {
        body += &line(LEFT, y(*value), RIGHT, y(*value), "grid");
        body += &text(LEFT - 6.0, y(*value) + 4.0, "tick end", label);
    }
    body += &text(LEFT - 6.0, TOP - 10.0, "unit end", &up.unit);
    body += &line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis");
    for (value, label) in &across.ticks {
        body += &line(x(*value), BOTTOM, x(*value), BOTTOM + 4.0, "axis");
        body += &text(x(*value), BOTTOM + 17.0, "tick mid", label);
    }
    body += &text((LEFT + RIGHT) / 2.0, BOTTOM + 34.0, "tick mid", "connections held");
    let mut names = Vec::new();
    let mut description = String::from("User memory at each stage.");
    for side in sides.iter().filter(|s| !s.points.is_empty()) {
        let first = side.points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let last = side.points.iter().map(|p| p.0).fold(0.0, f64::max);
        if let Some(slope) = side.slope {
            body += &band(side, &slope, first, last, &x, &y).unwrap_or_default();
            if let (Some(from), Some(to)) = (side.value(slope.value, 0.0), side.value(slope.value, last)) {
                body += &line(x(0.0), y(from), x(last), y(to), &format!("fitted {}", side.class));
                names.push((y(to), side, words::bytes_each(Some(slope))));
            }
            description += &format!(
                " {}: {} per connection ({}).",
                side.name,
                words::bytes_each(Some(slope)),
                words::bytes_interval(Some(slope))
            );
        }
        for &(n, bytes, counted) in &side.points {
            let class = if counted { "point" } else { "point left-out" };
            body += &dot(x(n), y(bytes), 3.2, &format!("{class} {}", side.class));
        }
    }
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let wanted: Vec<f64> = names.iter().map(|n| n.0).collect();
    for (place, (_, side, each)) in apart(&wanted, 46.0, TOP + 2.0, BOTTOM - 28.0).into_iter().zip(&names) {
        body += &text(RIGHT + 8.0, place + 2.0, &format!("name {}", side.class), side.name);
        body += &text(RIGHT + 8.0, place + 16.0, "value", each);
        body += &text(RIGHT + 8.0, place + 30.0, "tick", "each");
    }
    Some(drawing(id, HEIGHT, "Memory against connections", &description, " class=\"chart\"", &body))
}

/// The lines of the interval's two ends, each through its own median intercept, and what lies between.
fn band(
    side: &Side,
    slope: &Estimate,
    first: f64,
    last: f64,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) -> Option<String> {
    let (low, high) = (slope.low?, slope.high?);
    let (a, b) = (side.value(low, first)?, side.value(low, last)?);
    let (c, d) = (side.value(high, first)?, side.value(high, last)?);
    // Two triangles that meet where the lines cross: `evenodd` fills both.
    Some(format!(
        "<path class=\"band {}\" d=\"M{} {}L{} {}L{} {}L{} {}Z\"/>",
        side.class,
        at(x(first)),
        at(y(a)),
        at(x(last)),
        at(y(b)),
        at(x(last)),
        at(y(d)),
        at(x(first)),
        at(y(c)),
    ))
}
