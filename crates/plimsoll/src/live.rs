//! What does the user see on a terminal? One block of lines that stays at the bottom and is drawn anew each
//! second; what is worth keeping (a finished stage, a lost worker) scrolls by above it.

mod lines;
mod painter;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal as _, Stderr};

use model::{Spec, units};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget as _;

use self::painter::Painter;
use self::view::{Now, Point, View};
use crate::progress::{Audience, Progress};

/// The most lines that the block takes.
const TALLEST: u16 = 18;
/// The most columns that the block takes: as wide as the report.
const WIDEST: u16 = 100;
/// Rows that are left to what scrolls by above, and to the cursor below.
const ROWS_LEFT: u16 = 2;
/// More ready connections than at first, from which on a cost of each means something: with fewer it is noise.
const ENOUGH_FOR_COST: u64 = 1_000;

/// The live view.
pub(crate) struct Live {
    view: View,
    painter: Painter<Stderr>,
    /// The most connections that were ready at once: after some were given up, their memory may still be kept.
    most_ready: u64,
    last_t_seconds: f64,
}

impl Live {
    /// The live view of one run, or `None` where plain lines serve better: no terminal, one that cannot move its
    /// cursor, a build server, or a run in the background.
    pub(crate) fn for_terminal(spec: &Spec) -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let able = set("TERM").is_some_and(|term| term != "dumb");
        if !io::stderr().is_terminal() || !able || set("CI").is_some() {
            return None;
        }
        let painter = Painter::new(io::stderr(), set("NO_COLOR").is_none());
        painter.size()?;
        if !painter.in_foreground() {
            return None;
        }
        let mut live = Self { view: View::new(spec), painter, most_ready: 0, last_t_seconds: 0.0 };
        live.paint();
        Some(live)
    }

    fn paint(&mut self) {
        let Some((columns, rows)) = self.painter.size() else { return };
        // The last column stays free: a terminal may wrap as soon as it is written.
        let width = columns.saturating_sub(1).min(WIDEST);
        let height = rows.saturating_sub(ROWS_LEFT).min(TALLEST);
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        (&self.view).render(area, &mut buffer);
        self.painter.paint(&buffer, columns);
    }
}

impl Audience for Live {
    fn moment(&mut self, progress: &Progress<'_>) {
        take(&mut self.view, progress, &mut self.most_ready, &mut self.last_t_seconds);
        self.paint();
    }

    fn stage(&mut self, passed: bool, line: &str) {
        self.view.past.push(passed);
        self.say(line);
    }

    fn say(&mut self, line: &str) {
        self.painter.say(view::clean(line));
        self.paint();
    }

    fn end(&mut self) {
        self.painter.clear();
    }
}

/// Takes one moment over into the view.
fn take(view: &mut View, progress: &Progress<'_>, most_ready: &mut u64, last_t_seconds: &mut f64) {
    let moment = progress.moment;
    let span = (moment.t_seconds - *last_t_seconds).max(1e-3);
    *last_t_seconds = moment.t_seconds;
    *most_ready = (*most_ready).max(moment.ready);
    view.holding_began |= moment.doing == "hold";
    view.history.push(Point {
        t_seconds: moment.t_seconds,
        ready: moment.ready,
        answered: moment.messages_answered,
        p99_ms: if view.sweep { moment.message_p99_ms } else { moment.beat_p99_ms },
        target_user_bytes: moment.target_user_bytes,
    });
    if moment.ready == *most_ready {
        view.cost_so_far = cost(&view.history);
    }
    let (before, counters) = (progress.before, progress.counters);
    let host = &before.host;
    let kernel_before = host.slab_bytes.zip(host.socket_buffer_bytes).map(|(a, b)| a + b);
    view.now = Some(Now {
        per_second: 1.0 / span,
        failed: counters.failed.clone(),
        beats_missed: counters.beats_missed,
        beats_awaited: counters
            .beats_sent
            .saturating_sub(counters.beats_answered)
            .saturating_sub(counters.beats_missed),
        left_seconds: left(view, progress),
        backlog: progress.seen.listener.as_ref().map(|l| l.backlog),
        kernel_grown: moment.kernel_bytes.zip(kernel_before).map(|(now, first)| now as f64 - first as f64),
        interrupted: progress.interrupted,
        moment: moment.clone(),
    });
}

/// User memory that one more connection took of the target, from the first moment until now. Not from before the
/// first connection: the workers that started since then share pages with a target of the same program.
fn cost(history: &[Point]) -> Option<f64> {
    let first = history.iter().find(|p| p.ready > 0 && p.target_user_bytes.is_some())?;
    let last = history.last()?;
    let more = last.ready.saturating_sub(first.ready);
    let grown = last.target_user_bytes? as f64 - first.target_user_bytes? as f64;
    (more >= ENOUGH_FOR_COST && grown > 0.0).then(|| grown / more as f64)
}

/// Seconds until the end of the hold: exact while holding, else judged by the pace so far.
fn left(view: &View, progress: &Progress<'_>) -> Option<f64> {
    let moment = progress.moment;
    if moment.doing == "hold" {
        return progress.left_seconds;
    }
    let growing = matches!(moment.doing.as_str(), "establish" | "verify" | "settle");
    if !growing || view.until_it_breaks || view.holding_began || view.past.is_empty() || moment.ready == 0 {
        return None;
    }
    let missing = progress.requested.saturating_sub(moment.ready) as f64;
    Some(missing * moment.t_seconds / moment.ready as f64 + view.hold_seconds)
}

/// A span of time as a clock shows it: `0:07`, `12:30`, `1:02:03`.
fn clock(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// A number of bytes with its sign: `+1.20 MiB`.
fn grown(bytes: f64) -> String {
    let sign = if bytes >= 0.0 { "+" } else { "" };
    format!("{sign}{}", units::bytes(bytes))
}
