//! What stands in the block? Pure: the same view and area always give the same cells.

use model::result::Moment;
use model::{Spec, TalkSpec, Tally, units};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};

use super::lines::{self, Row};

/// Chart rows below their heading, at the most.
const TALLEST_CHART: u16 = 4;
/// Below this width there is one chart instead of two.
const TWO_CHARTS: u16 = 50;
/// Columns between two charts.
const BETWEEN: u16 = 3;

/// All that the block shows.
pub(super) struct View {
    pub(super) target: String,
    pub(super) requested: u64,
    pub(super) heartbeats: bool,
    pub(super) until_it_breaks: bool,
    pub(super) talk: Option<TalkSpec>,
    /// Whether clients are measured at work.
    pub(super) sweep: bool,
    pub(super) objective_seconds: f64,
    pub(super) hold_seconds: f64,
    /// How many stages the ramp has; of a search it is not known.
    pub(super) stages: Option<usize>,
    /// Whether each finished stage passed.
    pub(super) past: Vec<bool>,
    pub(super) holding_began: bool,
    /// User memory that one more connection took of the target.
    pub(super) cost_so_far: Option<f64>,
    pub(super) history: Vec<Point>,
    /// `None`: the first second is not over.
    pub(super) now: Option<Now>,
}

/// How things stand now.
pub(super) struct Now {
    pub(super) moment: Moment,
    /// What a count of this moment is multiplied with to be a rate.
    pub(super) per_second: f64,
    pub(super) failed: Tally,
    pub(super) beats_missed: u64,
    /// Heartbeats that came due and were neither answered nor given up.
    pub(super) beats_awaited: u64,
    pub(super) left_seconds: Option<f64>,
    pub(super) backlog: Option<u64>,
    pub(super) kernel_grown: Option<f64>,
    pub(super) interrupted: bool,
}

/// One point of the charts.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) t_seconds: f64,
    pub(super) ready: u64,
    /// Messages and operations answered since the point before.
    pub(super) answered: u64,
    pub(super) p99_ms: Option<f64>,
    pub(super) target_user_bytes: Option<u64>,
}

impl View {
    pub(super) fn new(spec: &Spec) -> Self {
        Self {
            target: clean(&spec.target.to_string()),
            requested: spec.connections,
            heartbeats: spec.heartbeat_seconds.is_some(),
            until_it_breaks: spec.until_it_breaks,
            talk: spec.talk,
            sweep: spec.sweep.is_some(),
            objective_seconds: spec.objective_seconds,
            hold_seconds: spec.hold_seconds,
            // Of a search, and of counts that are still to be chosen, it is not known.
            stages: match &spec.sweep {
                Some(sweep) => (!sweep.adaptive).then(|| sweep.clients.len() * sweep.repeat as usize),
                None => (!spec.until_it_breaks).then(|| spec.stage_sizes().len()),
            },
            past: Vec::new(),
            holding_began: false,
            cost_so_far: None,
            history: Vec::new(),
            now: None,
        }
    }
}

impl Widget for &View {
    fn render(self, area: Rect, buf: &mut Buffer) {
        let mut rows = lines::rows(self, area.width);
        lines::fit(&mut rows, area.height);
        let spare = area.height.saturating_sub(rows.len() as u16);
        let mut y = area.y;
        for row in &rows {
            if y >= area.bottom() {
                break;
            }
            match row {
                Row::Text(_, line) => {
                    buf.set_line(area.x, y, line, area.width);
                    y += 1;
                }
                Row::Charts => {
                    let height = (1 + spare).min(TALLEST_CHART + 1);
                    self.charts(Rect::new(area.x, y, area.width, height), buf);
                    y += height;
                }
            }
        }
    }
}

impl View {
    /// Ready connections and heartbeat latency over the run, side by side; of clients at work, what was answered, and how
    /// soon.
    fn charts(&self, area: Rect, buf: &mut Buffer) {
        let two = (self.heartbeats || self.sweep) && area.width >= TWO_CHARTS;
        let width = if two { (area.width - BETWEEN) / 2 } else { area.width };
        let left = Rect { width, ..area };
        let height = |p: &Point| if self.sweep { p.answered } else { p.ready };
        let bars = columns(&self.history, usize::from(width), |points| points.last().map(height));
        // Of a ramp the goal is the full height; else the most so far.
        let most = self.history.iter().map(height).max().unwrap_or(0);
        let full = if self.until_it_breaks || self.sweep { most } else { self.requested.max(most) };
        let what = if self.sweep { "answered each second" } else { "ready since the start" };
        let headings = [format!("{what}, full height {}", units::count(full)), what.to_owned()];
        chart(left, buf, &headings, &bars, full, Style::new().cyan());
        if !two {
            return;
        }
        let right = Rect { x: area.x + width + BETWEEN, ..left };
        let highest = self
            .history
            .iter()
            .filter_map(|p| Some((p.p99_ms?, p.t_seconds)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let highest = highest.map(|(p99, at)| (units::milliseconds(p99), super::clock(at)));
        let whose = if self.sweep { "operations' p99" } else { "heartbeat p99" };
        let headings = match highest {
            Some((p99, at)) => [format!("{whose}, highest {p99} at {at}"), format!("{whose}, to {p99}")],
            None => [format!("{whose}, none came due yet"), whose.to_owned()],
        };
        let micros = |p: &Point| p.p99_ms.map(|ms| (ms * 1e3) as u64);
        let bars =
            columns(&self.history, usize::from(width), |points| points.iter().filter_map(micros).max());
        let full = bars.iter().flatten().copied().max().unwrap_or(1);
        chart(right, buf, &headings, &bars, full, Style::new().yellow());
    }
}

/// The first heading that fits, else the last, and bars below it.
fn chart(
    area: Rect,
    buf: &mut Buffer,
    headings: &[String; 2],
    bars: &[Option<u64>],
    full: u64,
    style: Style,
) {
    let [long, short] = headings.each_ref().map(|text| Span::raw(text.as_str()).dim());
    let heading = if long.width() <= usize::from(area.width) { long } else { short };
    buf.set_line(area.x, area.y, &Line::from(heading), area.width);
    let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
    // What is little is still something.
    let least = full.div_ceil(u64::from(below.height.max(1)) * 8);
    let bars = bars.iter().map(|bar| bar.map(|b| if b > 0 { b.max(least) } else { 0 }));
    Sparkline::default().data(bars).max(full.max(1)).style(style).render(below, buf);
}

/// History laid out over so many columns: one point each, and once they are full two, four, eight.
fn columns(history: &[Point], width: usize, value: impl Fn(&[Point]) -> Option<u64>) -> Vec<Option<u64>> {
    let mut each = 1;
    while history.len().div_ceil(each) > width.max(1) {
        each *= 2;
    }
    history.chunks(each).map(value).collect()
}

/// Text from outside, with what could move the cursor or turn the line around made harmless.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}
