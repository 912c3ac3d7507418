//! How deep may she be loaded? The line as a ship's load mark, and the ladder as rungs of a draught scale.

use model::RunResult;
use model::result::Status;
use model::units;

use super::scale::Axis;
use super::{apart, at, dot, drawing, line, text};
use crate::{ladder, words};

const HEIGHT: f64 = 424.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = HEIGHT - 20.0;
/// The ship's side, where the draught scale stands.
const SIDE: f64 = 180.0;
/// Where the rungs end, and where their figures and names stand.
const RUNG: f64 = SIDE + 16.0;
const FIGURE: f64 = 280.0;
const NAME: f64 = 289.0;
/// Ceilings further above what was asked than this say nothing about this run.
const HORIZON: u64 = 1_000;
/// Letters that fit beside the scale.
const LETTERS: usize = 24;

/// One height on the scale, with what stands there.
struct Rung {
    n: u64,
    name: String,
    class: &'static str,
}

/// The drawing.
pub(crate) fn draw(id: &str, result: &RunResult) -> String {
    let c = &result.connections;
    let line_at = result.line.connections;
    let asked = c.requested.max(1);
    let horizon = asked.max(line_at).saturating_mul(HORIZON);
    let limits = ladder::in_order(&result.limits);
    let with_ceiling =
        limits.iter().filter_map(|f| f.ceiling_connections.filter(|&n| n > 0).map(|n| (*f, n)));
    let mut rungs: Vec<Rung> = with_ceiling
        .clone()
        .filter(|(_, n)| *n <= horizon)
        .map(|(f, n)| Rung { n, name: words::clean(&f.id), class: class(f.status) })
        .collect();
    let beyond = with_ceiling.filter(|(_, n)| *n > horizon).count();
    let low = rungs.iter().map(|r| r.n).chain([asked, line_at, c.held]).filter(|&n| n > 0).min().unwrap_or(1);
    let high = rungs.iter().map(|r| r.n).chain([asked, line_at, c.held]).max().unwrap_or(1);
    // Water below the lowest, and sky above the highest.
    let axis = Axis::draught(low as f64 / 9.0, (high as f64 * 1.7).max(low as f64 * 30.0));
    let y = |n: f64| BOTTOM - axis.share(n) * (BOTTOM - TOP);
    rungs.extend(own_marks(result));
    rungs.sort_by_key(|rung| std::cmp::Reverse(rung.n));

    let surface = if c.held > 0 { y(c.held as f64) } else { BOTTOM + 4.0 };
    let mut body = String::from(&water(surface));
    body += &hull();
    body += &flood(surface);
    body += &scale(&axis, y, (line_at > 0).then(|| y(line_at as f64)));
    if !own_marks(result).iter().any(|m| m.n == asked && m.class != "asked") {
        body += &line(0.0, y(asked as f64), SIDE, y(asked as f64), "rung asked");
    }
    body += &disc(line_at, y);
    body += &labels(&rungs, y);
    if c.held == 0 {
        body += &text(NAME, BOTTOM + 2.0, "rung-name water-line", "held at the end");
        body += &text(FIGURE, BOTTOM + 2.0, "rung-n end water-line", "0");
    }
    if beyond > 0 {
        let words =
            if beyond == 1 { "1 limit far above".to_owned() } else { format!("{beyond} limits far above") };
        body += &text(NAME, 14.0, "tick", &format!("↑ {words}"));
    }
    drawing(id, HEIGHT, "The load mark", &describe(result), " class=\"load\"", &body)
}

/// The heights that are not limits: the line, what is held, what was asked; those that agree are one.
fn own_marks(result: &RunResult) -> Vec<Rung> {
    let c = &result.connections;
    let own = [
        (result.line.connections, "the line", "the-line"),
        (c.held, "held", "water-line"),
        (c.requested, "asked", "asked"),
    ];
    let mut out: Vec<Rung> = Vec::new();
    for (n, name, class) in own {
        if n == 0 {
            continue;
        }
        match out.iter_mut().find(|rung| rung.n == n) {
            Some(rung) => rung.name = format!("{}, {name}", rung.name),
            None => out.push(Rung { n, name: name.to_owned(), class }),
        }
    }
    out
}

fn class(status: Status) -> &'static str {
    match status {
        Status::Hit => "hit",
        Status::Near => "near",
        Status::Clear => "clear",
        Status::Unknown => "unknown",
    }
}

/// The bow, seen from the side: stem raked, sheer rising, cut off where the scale stands.
fn hull() -> String {
    let top = TOP - 22.0;
    format!(
        "<path class=\"hull\" d=\"M4 {}C50 {} 110 {} {SIDE} {}V{}H66C52 {} 34 {} 4 {}Z\"/>\
         <path class=\"strake\" d=\"M7 {}C52 {} 110 {} {SIDE} {}\"/>",
        at(top - 8.0),
        at(top + 6.0),
        at(top + 10.0),
        at(top + 10.0),
        at(BOTTOM + 4.0),
        at(BOTTOM + 2.0),
        at(BOTTOM - 120.0),
        at(top - 8.0),
        at(top + 4.0),
        at(top + 16.0),
        at(top + 20.0),
        at(top + 20.0),
    )
}

/// The sea behind the ship and beside it.
fn water(surface: f64) -> String {
    if surface > BOTTOM {
        return String::new();
    }
    format!("<path class=\"sea\" d=\"{}V{}H0Z\"/>", wave(surface), at(BOTTOM + 4.0))
}

/// The sea before the ship, thin enough to see her through it, and the surface itself.
fn flood(surface: f64) -> String {
    if surface > BOTTOM {
        return String::new();
    }
    format!(
        "<path class=\"flood\" d=\"{}V{}H0Z\"/><path class=\"surface\" d=\"{}\"/>",
        wave(surface),
        at(BOTTOM + 4.0),
        wave(surface)
    )
}

/// A calm surface from edge to edge.
fn wave(surface: f64) -> String {
    let mut path = format!("M0 {}", at(surface));
    for _ in 0..11 {
        path += "q10 -2.4 20 0t20 0";
    }
    path
}

/// Draught marks on the hull: a figure at each power of ten, a stroke at each step between.
fn scale(axis: &Axis, y: impl Fn(f64) -> f64, disc: Option<f64>) -> String {
    let mut out = line(SIDE, TOP - 12.0, SIDE, BOTTOM + 4.0, "side");
    for (power, label) in &axis.ticks {
        out += &line(SIDE - 10.0, y(*power), SIDE, y(*power), "draught");
        // The disc's own line is there already, and its figure stands beside the rung.
        if disc.is_none_or(|disc| (disc - y(*power)).abs() > 12.0) {
            out += &text(SIDE - 14.0, y(*power) + 4.0, "draught-n end", label);
        }
    }
    let first = axis.ticks.first().map_or(1.0, |t| t.0) / 10.0;
    for decade in 0..=axis.ticks.len() {
        for step in 2..10 {
            let n = first * 10f64.powi(decade as i32) * f64::from(step);
            if (0.001..0.999).contains(&axis.share(n)) {
                out += &line(SIDE - 5.0, y(n), SIDE, y(n), "draught");
            }
        }
    }
    out
}

/// The disc and the line through it, as on a ship's side.
fn disc(line_at: u64, y: impl Fn(f64) -> f64) -> String {
    if line_at == 0 {
        return String::new();
    }
    let (x, y) = (98.0, y(line_at as f64));
    let mut out = dot(x, y, 23.0, "disc");
    out += &line(x - 34.0, y, x + 34.0, y, "disc-line");
    out += &text(x - 29.0, y - 6.0, "disc-letter mid", "P");
    out += &text(x + 29.0, y - 6.0, "disc-letter mid", "L");
    out
}

fn labels(rungs: &[Rung], y: impl Fn(f64) -> f64) -> String {
    let wanted: Vec<f64> = rungs.iter().map(|r| y(r.n as f64)).collect();
    let places = apart(&wanted, 21.0, 28.0, BOTTOM - 20.0);
    let mut out = String::new();
    let hit = rungs.iter().find(|r| r.class == "hit").map(|r| y(r.n as f64));
    for ((rung, height), place) in rungs.iter().zip(wanted).zip(places) {
        if hit.is_some_and(|hit| (hit - height).abs() < 3.0) {
            // Where it broke is where the line stands: one rung, in red, and not one over the other.
            out += &line(SIDE - 12.0, height, RUNG, height, "rung hit");
        } else {
            out += &line(SIDE, height, RUNG, height, &format!("rung {}", rung.class));
        }
        out += &format!(
            "<path class=\"lead {}\" d=\"M{} {}L{} {}\"/>",
            rung.class,
            at(RUNG),
            at(height),
            at(RUNG + 14.0),
            at(place)
        );
        out += &text(FIGURE, place + 4.0, &format!("rung-n end {}", rung.class), &figure(rung.n));
        let mut name = rung.name.clone();
        if name.chars().count() > LETTERS {
            name = name.chars().take(LETTERS - 1).chain(['…']).collect();
        }
        out += &text(NAME, place + 4.0, &format!("rung-name {}", rung.class), &name);
    }
    out
}

fn figure(n: u64) -> String {
    if n < 10_000_000 { units::count(n) } else { words::short_count(n as f64) }
}

fn describe(result: &RunResult) -> String {
    let c = &result.connections;
    let mut out = format!(
        "Line at {} connections; {} held of {} asked.",
        units::count(result.line.connections),
        units::count(c.held),
        units::count(c.requested)
    );
    for f in ladder::in_order(&result.limits) {
        if let Some(n) = f.ceiling_connections {
            out += &format!(" {} at {} ({}).", words::clean(&f.id), units::count(n), ladder::word(f.status));
        }
    }
    out
}
