//! How does a figure change with the clients? Counts on a logarithmic axis, a line for each way to the server.

use super::scale::Axis;
use super::{WIDTH, apart, at, dot, drawing, line, text};

const HEIGHT: f64 = 264.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 84.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = HEIGHT - 42.0;

/// Clients, the figure, and its interval.
pub(crate) type Point = (f64, f64, Option<(f64, f64)>);

/// One way's figure at each client count.
pub(crate) struct Curve {
    /// Its name, written at its end.
    pub(crate) name: String,
    /// The class that gives its colour.
    pub(crate) class: &'static str,
    /// A point for each client count.
    pub(crate) points: Vec<Point>,
    /// A fitted law through them; empty: none.
    pub(crate) law: Vec<(f64, f64)>,
}

/// A drawing of curves.
pub(crate) struct Curves<'a> {
    /// Unique in the page.
    pub(crate) id: &'a str,
    /// What is shown, for the title.
    pub(crate) title: &'a str,
    /// The height: from the least and the most of all points.
    pub(crate) axis: fn(f64, f64) -> Axis,
    /// The curves.
    pub(crate) curves: &'a [Curve],
    /// A height to compare with, and what it is.
    pub(crate) rule: Option<(f64, String)>,
    /// How a value is written.
    pub(crate) write: fn(f64) -> String,
}

impl Curves<'_> {
    /// The drawing; `None` where nothing was measured at two counts.
    pub(crate) fn draw(&self) -> Option<String> {
        let points = || self.curves.iter().flat_map(|c| &c.points).filter(|p| p.1.is_finite() && p.1 > 0.0);
        let least_n = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
        let most_n = points().map(|p| p.0).fold(0.0, f64::max);
        if least_n >= most_n {
            return None;
        }
        let most = points().map(|p| p.2.map_or(p.1, |(_, high)| high.max(p.1))).fold(0.0, f64::max);
        let least = points().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let (across, up) = (Axis::clients(least_n, most_n), (self.axis)(least, most));
        let x = |n: f64| LEFT + across.share(n) * (RIGHT - LEFT);
        let y = |v: f64| BOTTOM - up.share(v) * (BOTTOM - TOP);
        let mut body = String::new();
        for (value, label) in &up.ticks {
            body += &line(LEFT, y(*value), RIGHT, y(*value), "grid");
            body += &text(LEFT - 6.0, y(*value) + 4.0, "tick end", label);
        }
        body += &line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis");
        for (n, label) in &across.ticks {
            body += &line(x(*n), BOTTOM, x(*n), BOTTOM + 4.0, "axis");
            body += &text(x(*n), BOTTOM + 17.0, "tick mid", label);
        }
        body += &text((LEFT + RIGHT) / 2.0, HEIGHT - 8.0, "tick mid", "clients, logarithmic");
        if let Some((value, name)) = self.rule.as_ref().filter(|(value, _)| (least..=most).contains(value)) {
            body += &line(LEFT, y(*value), RIGHT, y(*value), "rule");
            body += &text(LEFT + 4.0, y(*value) - 4.0, "tick halo", name);
        }
        let mut ends = Vec::new();
        let mut described = Vec::new();
        for curve in self.curves {
            let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
                let steps = points.enumerate().map(|(i, (n, v))| {
                    format!("{}{} {}", if i == 0 { "M" } else { "L" }, at(x(n)), at(y(v)))
                });
                steps.collect::<String>()
            };
            let mut inner = format!(
                "<path d=\"{}\"/>",
                path(&mut curve.points.iter().filter(|p| p.1 > 0.0).map(|p| (p.0, p.1)))
            );
            for (n, v, interval) in curve.points.iter().filter(|p| p.1 > 0.0) {
                if let Some((low, high)) = interval {
                    inner += &line(x(*n), y(*low), x(*n), y(*high), "fitted");
                }
                inner += &dot(x(*n), y(*v), 3.0, "point");
            }
            if !curve.law.is_empty() {
                inner += &format!(
                    "<path class=\"law\" d=\"{}\"/>",
                    path(&mut curve.law.iter().map(|(n, v)| (*n, v.clamp(0.0, most))))
                );
            }
            body += &format!("<g class=\"line {}\">{inner}</g>", curve.class);
            let highest = curve.points.iter().filter(|p| p.1 > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
            if let (Some(last), Some(top)) = (curve.points.iter().rfind(|p| p.1 > 0.0), highest) {
                ends.push((y(last.1), curve, last.1));
                let (value, n) = ((self.write)(top.1), model::units::count(top.0 as u64));
                described.push(format!("{}: highest {value} at {n} clients", curve.name));
            }
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<f64> = ends.iter().map(|e| e.0).collect();
        for ((_, curve, last), place) in ends.iter().zip(apart(&wanted, 31.0, TOP + 2.0, BOTTOM - 14.0)) {
            body += &text(RIGHT + 8.0, place + 2.0, &format!("name {}", curve.class), &curve.name);
            body += &text(RIGHT + 8.0, place + 16.0, "value", &(self.write)(*last));
        }
        let told = described.join("; ");
        Some(drawing(self.id, HEIGHT, self.title, &told, " class=\"chart\"", &body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: Vec<Point>) -> Option<String> {
        let curves =
            [Curve { name: "<direct>".to_owned(), class: "c-target", points, law: vec![(1.0, 5.0)] }];
        let axis = |_, most| Axis::counts(most, "");
        let write = |v: f64| format!("{v}/s");
        Curves { id: "a", title: "b", axis, curves: &curves, rule: None, write }.draw()
    }

    #[test]
    fn a_curve_has_two_counts_and_its_name_is_text() {
        assert_eq!(drawn(vec![]), None);
        assert_eq!(drawn(vec![(8.0, 5.0, None)]), None);
        let svg = drawn(vec![(8.0, 5.0, Some((4.0, 6.0))), (64.0, 9.0, None)]).unwrap();
        assert!(svg.contains("&lt;direct&gt;: highest 9/s at 64 clients"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
        assert!(drawn(vec![(1.0, f64::NAN, None), (2.0, 0.0, None)]).is_none(), "nothing to draw");
    }
}
