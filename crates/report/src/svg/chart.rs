//! What did a figure do over time? Lines with their names at their ends, and marks where something failed.

use super::scale::Axis;
use super::{WIDTH, apart, at, drawing, escape, line, rect, text};

const HEIGHT: f64 = 224.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = WIDTH - 84.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = HEIGHT - 28.0;

/// One figure over time.
pub(crate) struct Line {
    /// Its name, written at its end.
    pub(crate) name: &'static str,
    /// The class that gives its colour.
    pub(crate) class: &'static str,
    /// A value for each moment; `None`: unknown then.
    pub(crate) values: Vec<Option<f64>>,
    /// Whether it jumps from value to value, as what was asked for does.
    pub(crate) steps: bool,
}

/// A height that the figures are to be compared with.
pub(crate) struct Rule {
    /// Where it stands.
    pub(crate) value: f64,
    /// What it is.
    pub(crate) name: String,
}

/// Lines over a common time.
pub(crate) struct Chart<'a> {
    /// Unique in the page.
    pub(crate) id: &'static str,
    /// What is shown, for the title.
    pub(crate) title: &'a str,
    /// What it shows here, in a sentence.
    pub(crate) description: String,
    /// The moments, in seconds from the start.
    pub(crate) times: &'a [f64],
    /// When the last stage was held, if it was.
    pub(crate) hold: Option<(f64, f64)>,
    /// The height.
    pub(crate) axis: Axis,
    /// The figures.
    pub(crate) lines: Vec<Line>,
    /// Something to compare with.
    pub(crate) rule: Option<Rule>,
    /// When how many failed.
    pub(crate) failures: Vec<(f64, u64)>,
    /// How a value is written.
    pub(crate) write: fn(f64) -> String,
}

impl Chart<'_> {
    /// The drawing.
    pub(crate) fn draw(&self) -> String {
        let end = self.times.last().copied().unwrap_or(1.0);
        let time = Axis::time(end);
        let x = |t: f64| LEFT + time.share(t) * (RIGHT - LEFT);
        let y = |v: f64| BOTTOM - self.axis.share(v) * (BOTTOM - TOP);
        let mut body = String::new();
        if let Some((from, to)) = self.hold {
            body += &rect(x(from), TOP, x(to) - x(from), BOTTOM - TOP, "hold");
            if x(to) - x(from) > 30.0 {
                body += &text((x(from) + x(to)) / 2.0, TOP - 6.0, "tick mid", "hold");
            }
        }
        body += &self.frame(&time, x, y);
        if let Some(rule) = &self.rule {
            body += &line(LEFT, y(rule.value), RIGHT, y(rule.value), "rule");
            body += &text(LEFT + 4.0, y(rule.value) - 4.0, "tick halo", &rule.name);
        }
        body += &self.failed(x);
        let mut ends = Vec::new();
        for figure in &self.lines {
            let Some((last_at, last)) = figure.last(self.times) else { continue };
            let values: Vec<String> = figure
                .values
                .iter()
                .map(|v| v.map_or_else(String::new, |v| escape(&(self.write)(v))))
                .collect();
            body += &format!(
                "<g class=\"line {}\" data-n=\"{}\" data-v=\"{}\"><path d=\"{}\"/></g>",
                figure.class,
                figure.name,
                values.join("|"),
                figure.path(self.times, x, y)
            );
            ends.push((y(last), x(last_at), figure, last));
        }
        body += &self.names(ends);
        let xs: Vec<String> = self.times.iter().map(|&t| at(x(t))).collect();
        let ts: Vec<String> = self.times.iter().map(|&t| moment(t)).collect();
        let extra = format!(
            " class=\"chart\" data-x=\"{}\" data-t=\"{}\" data-y=\"{} {}\"",
            xs.join("|"),
            ts.join("|"),
            at(TOP),
            at(BOTTOM)
        );
        drawing(self.id, HEIGHT, self.title, &self.description, &extra, &body)
    }

    fn frame(&self, time: &Axis, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
        let mut out = String::new();
        for (value, label) in &self.axis.ticks {
            out += &line(LEFT, y(*value), RIGHT, y(*value), "grid");
            out += &text(LEFT - 6.0, y(*value) + 4.0, "tick end", label);
        }
        if !self.axis.unit.is_empty() {
            out += &text(LEFT - 6.0, TOP - 10.0, "unit end", &self.axis.unit);
        }
        out += &line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis");
        for (t, label) in &time.ticks {
            out += &line(x(*t), BOTTOM, x(*t), BOTTOM + 4.0, "axis");
            out += &text(x(*t), BOTTOM + 17.0, "tick mid", label);
        }
        out
    }

    /// A red mark wherever connections failed, and the count at the worst.
    fn failed(&self, x: impl Fn(f64) -> f64) -> String {
        let Some(&(worst_at, worst)) = self.failures.iter().max_by_key(|(_, n)| *n) else {
            return String::new();
        };
        let mut out = String::new();
        for &(t, n) in &self.failures {
            let height = 6.0 + 26.0 * (n as f64 / worst.max(1) as f64).sqrt();
            out += &line(x(t), BOTTOM, x(t), BOTTOM - height, "failed");
        }
        let (anchor, shift) = if x(worst_at) > (LEFT + RIGHT) / 2.0 { ("end", -5.0) } else { ("start", 5.0) };
        let words = format!("{} failed", model::units::count(worst));
        out += &text(x(worst_at) + shift, BOTTOM - 24.0, &format!("failed-n halo {anchor}"), &words);
        out
    }

    /// The name and last value of each line at the right, apart from one another.
    fn names(&self, mut ends: Vec<(f64, f64, &Line, f64)>) -> String {
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<f64> = ends.iter().map(|e| e.0).collect();
        let places = apart(&wanted, 31.0, TOP + 2.0, BOTTOM - 14.0);
        let mut out = String::new();
        for ((y, x, figure, last), place) in ends.into_iter().zip(places) {
            if RIGHT - x > 4.0 || (y - place).abs() > 9.0 {
                out += &format!(
                    "<path class=\"leader {}\" d=\"M{} {}L{} {}L{} {}\"/>",
                    figure.class,
                    at(x + 1.0),
                    at(y),
                    at(RIGHT.max(x + 1.0)),
                    at(y),
                    at(RIGHT + 6.0),
                    at(place)
                );
            }
            out += &text(RIGHT + 8.0, place + 2.0, &format!("name {}", figure.class), figure.name);
            // A line that ends early was last seen there; the dots that lead to its name are no reading.
            let seen_to_the_end = RIGHT - x <= 4.0;
            let value = (self.write)(last);
            let value = if seen_to_the_end { value } else { format!("was {value}") };
            out += &text(RIGHT + 8.0, place + 16.0, "value", &value);
        }
        out
    }
}

impl Line {
    fn last(&self, times: &[f64]) -> Option<(f64, f64)> {
        times.iter().zip(&self.values).rev().find_map(|(&t, v)| v.map(|v| (t, v)))
    }

    fn path(&self, times: &[f64], x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
        let mut out = String::new();
        let mut before: Option<f64> = None;
        for (&t, value) in times.iter().zip(&self.values) {
            let Some(value) = value else {
                before = None;
                continue;
            };
            match before {
                None => out += &format!("M{} {}", at(x(t)), at(y(*value))),
                Some(old) if self.steps && old != *value => {
                    out += &format!("H{}V{}", at(x(t)), at(y(*value)));
                }
                Some(_) => out += &format!("L{} {}", at(x(t)), at(y(*value))),
            }
            before = Some(*value);
        }
        // A single point is drawn as one.
        if out.starts_with('M') && !out.contains(['L', 'H']) {
            out.push_str("h0.1");
        }
        out
    }
}

/// A moment in the read-out.
fn moment(t: f64) -> String {
    if t < 120.0 { format!("{t:.1} s") } else { model::units::seconds(t) }
}
