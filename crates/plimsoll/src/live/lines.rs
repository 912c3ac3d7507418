//! How is each thing said, and what is left out first where there is no room for all of it?

use std::cmp::Reverse;

use model::units;
use ratatui::style::Stylize as _;
use ratatui::text::{Line, Span};

use super::view::{Now, View, clean};
use super::{clock, grown};

/// Columns that labels take.
const LABEL: usize = 11;
/// A gauge narrower than this shows nothing.
const NARROWEST_GAUGE: usize = 10;
/// Kinds of failure that get a line each.
const KINDS: usize = 3;
/// Finished stages that get a mark each.
const MARKS: usize = 20;
/// A loop that is later than this deserves a look (and more than a quarter of the objective spoils a stage).
const LATE_MS: f64 = 50.0;
/// Heartbeats without an answer are told of from one in so many ready connections.
const STALLED_SHARE: u64 = 10;
/// What stands where a thing cannot be seen.
const UNKNOWN: &str = "unknown";

/// One row of the block, with its rank: what has the highest is left out first.
pub(super) enum Row {
    Text(u8, Line<'static>),
    /// The charts, of which the heading is a row; they grow into what room is left.
    Charts,
}

/// Ranks, in the order in which rows are left out (the highest first).
mod rank {
    pub(super) const HEAD: u8 = 0;
    pub(super) const GAUGE: u8 = 1;
    pub(super) const FAILING: u8 = 2;
    pub(super) const DOING: u8 = 3;
    pub(super) const HINT: u8 = 4;
    pub(super) const MESSAGES: u8 = 5;
    pub(super) const HEARTBEAT: u8 = 6;
    pub(super) const TARGET: u8 = 7;
    pub(super) const RATES: u8 = 8;
    pub(super) const GENERATOR: u8 = 9;
    pub(super) const MORE_FAILING: u8 = 10;
    pub(super) const HOST: u8 = 11;
    pub(super) const CHARTS: u8 = 12;
    pub(super) const BLANK: u8 = 13;
}

/// Everything there is to say, in order.
pub(super) fn rows(view: &View, width: u16) -> Vec<Row> {
    let width = usize::from(width);
    let blank = || Row::Text(rank::BLANK, Line::default());
    let mut rows = vec![
        Row::Text(rank::HEAD, head(view, width)),
        Row::Text(rank::DOING, doing(view, width)),
        blank(),
        Row::Text(rank::GAUGE, gauge(view, width)),
    ];
    if let Some(now) = &view.now {
        rows.push(Row::Text(rank::RATES, rates(view, now, width)));
        for (i, line) in failing(now, width).into_iter().enumerate() {
            rows.push(Row::Text(if i == 0 { rank::FAILING } else { rank::MORE_FAILING }, line));
        }
        if !view.sweep {
            rows.push(Row::Text(rank::HEARTBEAT, heartbeat(view, now, width)));
        }
        if view.talk.is_some() || view.sweep {
            rows.push(Row::Text(rank::MESSAGES, messages(view, now, width)));
        }
        rows.push(blank());
        rows.push(Row::Text(rank::TARGET, target(view, now, width)));
        rows.push(Row::Text(rank::GENERATOR, generator(now, width)));
        rows.push(Row::Text(rank::HOST, host(now, width)));
        rows.push(blank());
        rows.push(Row::Charts);
        rows.push(blank());
    }
    rows.push(Row::Text(rank::HINT, hint(view)));
    rows
}

/// Leaves out what matters least until the rest fits.
pub(super) fn fit(rows: &mut Vec<Row>, height: u16) {
    let rank = |row: &Row| match row {
        Row::Text(rank, _) => *rank,
        Row::Charts => rank::CHARTS,
    };
    // The charts need one more row than their heading.
    let needed = |rows: &[Row]| rows.len() + rows.iter().filter(|r| matches!(r, Row::Charts)).count();
    while needed(rows) > usize::from(height) {
        let worst = rows.iter().enumerate().max_by_key(|(i, row)| (rank(row), *i)).map(|(i, _)| i);
        let Some(worst) = worst else { break };
        rows.remove(worst);
    }
}

/// What runs against whom, and for how long.
fn head(view: &View, width: usize) -> Line<'static> {
    let experiment = match (&view.talk, view.sweep) {
        (_, true) => "plimsoll sweep ",
        (Some(_), _) => "plimsoll talk ",
        _ => "plimsoll hold ",
    };
    let left = vec![Span::raw(experiment).dim(), Span::raw(view.target.clone()).bold()];
    let Some(now) = &view.now else { return Line::from(left) };
    let elapsed = clock(now.moment.t_seconds);
    let to_go = match now.left_seconds {
        Some(left) if now.moment.doing == "hold" => format!("{} left", clock(left)),
        Some(left) => format!("about {} left", clock(roughly(left))),
        None => return ends(left, [vec![format!("elapsed {elapsed}").into()], vec![elapsed.into()]], width),
    };
    let long = format!("elapsed {elapsed} · {to_go}");
    ends(left, [vec![long.into()], vec![format!("{elapsed}, {to_go}").into()]], width)
}

/// What is being done, and how far along.
fn doing(view: &View, width: usize) -> Line<'static> {
    let Some(now) = &view.now else {
        return Line::from(Span::raw("Starting").cyan());
    };
    let wanted = units::count(now.moment.wanted);
    let all = units::count(now.moment.ready);
    let what = match now.moment.doing.as_str() {
        "start" => "Starting the workers".to_owned(),
        "establish" if now.moment.wanted <= 1 => "Trying one connection first".to_owned(),
        "establish" => format!("Opening connections, up to {wanted}"),
        "verify" if view.holding_began => "Verifying once more: a round trip on every connection".to_owned(),
        "verify" => "Verifying: a round trip on every connection".to_owned(),
        "load" if now.moment.wanted == 1 => "One client at work".to_owned(),
        "load" => format!("{all} clients at work"),
        "settle" if view.sweep => "Letting the server let go of all clients".to_owned(),
        "settle" => format!("Watching {all} connections at rest"),
        "before" => format!("Watching {all} connections at rest, before they speak"),
        "talk" => match view.talk {
            Some(talk) => {
                format!("{all} connections say {} messages each", units::count(talk.messages.into()))
            }
            None => format!("{all} connections speak"),
        },
        "hold" => format!("Holding {all} connections"),
        "quiet" if now.interrupted => "Stopping: waiting for the last answers".to_owned(),
        "quiet" => "Done: waiting for the last answers".to_owned(),
        "drain" if now.interrupted => "Stopping: closing all connections".to_owned(),
        "drain" => "Done: closing all connections".to_owned(),
        other => clean(other),
    };
    let what = Span::raw(what).bold();
    let what = if now.interrupted { what.yellow() } else { what.cyan() };
    let (number, marks) = stages(view, &now.moment.doing);
    ends(vec![what], [[number.clone(), marks].concat(), number], width)
}

/// `stage 4 of 10  ` and `✓✓✓▸······`.
fn stages(view: &View, doing: &str) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
    let doings: &[&str] =
        if view.sweep { &["establish", "load"] } else { &["establish", "verify", "settle"] };
    let under_way = doings.contains(&doing) && !view.holding_began;
    let planned = view.stages.unwrap_or(0);
    // The hold comes as a stage of its own, after those of the ramp.
    let past = &view.past[..view.past.len().min(view.stages.unwrap_or(usize::MAX))];
    let k = past.len() + usize::from(under_way);
    let number = match view.stages {
        Some(n) if k > 0 && k <= n => vec![Span::raw(format!("stage {k} of {n}  "))],
        None if k > 0 => vec![Span::raw(format!("stage {k}  "))],
        _ => vec![],
    };
    let mut marks = Vec::new();
    for passed in &past[past.len().saturating_sub(MARKS)..] {
        marks.push(if *passed { Span::raw("✓").green() } else { Span::raw("✗").red() });
    }
    if under_way {
        marks.push(Span::raw("▸").cyan());
    }
    let to_come = planned.saturating_sub(k);
    if planned <= MARKS && to_come > 0 {
        marks.push(Span::raw("·".repeat(to_come)).dim());
    }
    (number, marks)
}

/// Ready connections against what the stage wants and what was asked for.
fn gauge(view: &View, width: usize) -> Line<'static> {
    let (ready, wanted) = view.now.as_ref().map_or((0, 0), |n| (n.moment.ready, n.moment.wanted));
    let full = if view.until_it_breaks { wanted.max(ready) } else { view.requested.max(ready) }.max(1);
    let numbers = format!("{:>1$}", units::count(ready), units::count(full).len());
    let of = if view.until_it_breaks {
        format!(" of {} in this stage", units::count(wanted))
    } else {
        format!(" of {}", units::count(view.requested))
    };
    let bar = width.saturating_sub(LABEL + numbers.len() + of.len() + 2);
    let mut spans = vec![label("ready")];
    if bar >= NARROWEST_GAUGE {
        let eighths = |n: u64| (u128::from(n) * bar as u128 * 8 / u128::from(full)) as usize;
        let done = eighths(ready);
        let mut filled = "█".repeat(done / 8);
        filled.extend([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'].get(done % 8).filter(|c| **c != ' '));
        let used = done.div_ceil(8);
        let stage = eighths(wanted.min(full)).div_ceil(8).saturating_sub(used);
        spans.push(Span::raw(filled).green());
        spans.push(Span::raw("░".repeat(stage)).green());
        spans.push(Span::raw("·".repeat(bar.saturating_sub(used + stage))).dim());
        spans.push(Span::raw("  "));
    }
    spans.push(Span::raw(numbers).bold());
    spans.push(Span::raw(of));
    Line::from(spans)
}

/// What happened in the last second.
fn rates(view: &View, now: &Now, width: usize) -> Line<'static> {
    let m = &now.moment;
    let rate = |n: u64, of: &str| {
        let text = format!("{} {of}/s", units::count((n as f64 * now.per_second).round() as u64));
        if n == 0 { Span::raw(text).dim() } else { Span::raw(text) }
    };
    let mut items = vec![vec![rate(m.opened, "opened")], vec![rate(m.verified, "verified")]];
    if view.heartbeats {
        items.push(vec![rate(m.beats_answered, "heartbeats")]);
    }
    if m.establishing > 0 {
        items.push(vec![Span::raw(format!("{} being opened", units::count(m.establishing)))]);
    }
    facts("rates", items, width)
}

/// A line for each kind of failure, the largest first.
fn failing(now: &Now, width: usize) -> Vec<Line<'static>> {
    let mut kinds: Vec<_> = now.failed.count.iter().filter(|(_, n)| **n > 0).collect();
    if kinds.is_empty() {
        return vec![facts("failing", vec![vec![Span::raw("none")]], width)];
    }
    kinds.sort_by_key(|(_, n)| Reverse(**n));
    let mut lines = Vec::new();
    for (kind, n) in kinds.iter().take(KINDS) {
        let name = if lines.is_empty() { "failing" } else { "" };
        let mut items = vec![vec![Span::raw(format!("{} {}", units::count(**n), kind.says())).red().bold()]];
        let now_failed = now.moment.failed.get(kind).copied().unwrap_or(0);
        if now_failed > 0 {
            let rate = (now_failed as f64 * now.per_second).round().max(1.0) as u64;
            items.push(vec![Span::raw(format!("{}/s now", units::count(rate))).red()]);
        }
        if let Some(words) = now.failed.example.get(kind).filter(|w| !w.is_empty()) {
            let used: usize = items.iter().flatten().map(Span::width).sum::<usize>() + 3 * items.len();
            let room = width.saturating_sub(LABEL + used);
            items.push(vec![Span::raw(clip(&clean(words), room)).red()]);
        }
        lines.push(facts(name, items, width));
    }
    let others: u64 = kinds.iter().skip(KINDS).map(|(_, n)| **n).sum();
    if others > 0 {
        let text = format!("{} in {} other ways", units::count(others), kinds.len() - KINDS);
        lines.push(facts("", vec![vec![Span::raw(text).red()]], width));
    }
    lines
}

/// Median, 99th percentile and longest of the last second, as far as they were measured.
fn latencies(view: &View, ms: [Option<f64>; 3]) -> impl Iterator<Item = Vec<Span<'static>>> {
    let objective_ms = view.objective_seconds * 1e3;
    ["p50", "p99", "max"].into_iter().zip(ms).filter_map(move |(name, ms)| {
        let ms = ms?;
        let text = Span::raw(units::milliseconds(ms));
        Some(vec![Span::raw(format!("{name} ")).dim(), if ms > objective_ms { text.yellow() } else { text }])
    })
}

/// Messages of the last second.
fn messages(view: &View, now: &Now, width: usize) -> Line<'static> {
    let m = &now.moment;
    let name = if view.sweep { "operations" } else { "messages" };
    if m.messages_sent == 0 && m.messages_answered == 0 {
        return facts(name, vec![vec![Span::raw("none yet, or all answered").dim()]], width);
    }
    let rate = |n: u64| units::count((n as f64 * now.per_second).round() as u64);
    let mut items = vec![
        vec![Span::raw(format!("{} {}/s", rate(m.messages_sent), if view.sweep { "begun" } else { "sent" }))],
        vec![Span::raw(format!("{} answered/s", rate(m.messages_answered)))],
    ];
    items.extend(latencies(view, [m.message_p50_ms, m.message_p99_ms, m.message_max_ms]));
    facts(name, items, width)
}

/// Heartbeats of the last second.
fn heartbeat(view: &View, now: &Now, width: usize) -> Line<'static> {
    if !view.heartbeats {
        return facts("heartbeat", vec![vec![Span::raw("none asked for").dim()]], width);
    }
    let m = &now.moment;
    // Some are always under way; a tenth of all connections is a target that has fallen behind.
    let stalled = now.beats_awaited > m.ready / STALLED_SHARE;
    let mut items: Vec<_> = latencies(view, [m.beat_p50_ms, m.beat_p99_ms, m.beat_max_ms]).collect();
    if items.is_empty() && !stalled {
        items.push(vec![Span::raw("none came due in the last second").dim()]);
    }
    if stalled {
        let text = format!("{} not answered yet", units::count(now.beats_awaited));
        items.insert(0, vec![Span::raw(text).yellow().bold()]);
    }
    match now.beats_missed {
        0 if stalled => {}
        0 => items.push(vec![Span::raw("none missed")]),
        // What is wrong comes first, so that it is not left out for want of room.
        n => items.insert(0, vec![Span::raw(format!("{} missed", units::count(n))).red().bold()]),
    }
    facts("heartbeat", items, width)
}

/// The target's processes.
fn target(view: &View, now: &Now, width: usize) -> Line<'static> {
    let m = &now.moment;
    if m.target_user_bytes.is_none() && m.target_cpus.is_none() && m.accept_queue.is_none() {
        let text = format!("{UNKNOWN}: its processes cannot be seen from here");
        return facts("target", vec![vec![Span::raw(text).dim()]], width);
    }
    let mut items = vec![memory(m.target_user_bytes)];
    if m.target_user_bytes.is_some() {
        items.extend(
            view.cost_so_far
                .map(|cost| vec![Span::raw(units::bytes(cost)).bold(), Span::raw(" per connection so far")]),
        );
    }
    items.push(cpus(m.target_cpus));
    let queued = m.accept_queue.map_or(UNKNOWN.to_owned(), units::count);
    let text = match now.backlog {
        Some(backlog) if m.accept_queue.is_some() => {
            format!("accept queue {queued} of {}", units::count(backlog))
        }
        _ => format!("accept queue {queued}"),
    };
    let nearly_full = m
        .accept_queue
        .zip(now.backlog)
        .is_some_and(|(queued, backlog)| queued > 0 && queued.saturating_mul(5) >= backlog.saturating_mul(4));
    if nearly_full {
        items.insert(0, vec![Span::raw(text).yellow().bold()]);
    } else {
        items.push(vec![Span::raw(text)]);
    }
    facts("target", items, width)
}

/// Plimsoll's own processes.
fn generator(now: &Now, width: usize) -> Line<'static> {
    let m = &now.moment;
    let mut items = vec![memory(m.generator_user_bytes), cpus(m.generator_cpus)];
    items.push(match m.generator_lag_ms {
        None => vec![Span::raw(format!("lag {UNKNOWN}")).dim()],
        Some(ms) if ms > LATE_MS => vec![
            Span::raw(format!("lag {}: it may be the limit itself", units::milliseconds(ms))).yellow().bold(),
        ],
        Some(ms) => vec![Span::raw(format!("lag {}", units::milliseconds(ms)))],
    });
    facts("generator", items, width)
}

/// The kernel that the generator runs on.
fn host(now: &Now, width: usize) -> Line<'static> {
    let mut items = vec![vec![match now.moment.kernel_bytes {
        Some(bytes) => Span::raw(format!("kernel memory {}", units::bytes(bytes as f64))),
        None => Span::raw(format!("kernel memory {UNKNOWN}")).dim(),
    }]];
    items.extend(now.kernel_grown.map(|b| vec![Span::raw(format!("{} so far", grown(b)))]));
    facts("this host", items, width)
}

/// What the user can do.
fn hint(view: &View) -> Line<'static> {
    let text = match &view.now {
        Some(now) if now.interrupted => {
            return Line::from(
                Span::raw("The report follows. Ctrl-C again ends at once, without it.").yellow(),
            );
        }
        Some(now) if matches!(now.moment.doing.as_str(), "quiet" | "drain") => "The report follows.",
        Some(now) if now.failed.total() > 0 => {
            "Ctrl-C: stop here and report; the report looks for the limit behind the failures"
        }
        _ => "Ctrl-C: stop here and report what was seen so far",
    };
    Line::from(Span::raw(text).dim())
}

fn memory(bytes: Option<u64>) -> Vec<Span<'static>> {
    vec![match bytes {
        Some(bytes) => Span::raw(format!("memory {}", units::bytes(bytes as f64))),
        None => Span::raw(format!("memory {UNKNOWN}")).dim(),
    }]
}

fn cpus(used: Option<f64>) -> Vec<Span<'static>> {
    vec![match used {
        Some(used) => Span::raw(format!("CPU {:.0} %", used * 100.0)),
        None => Span::raw(format!("CPU {UNKNOWN}")).dim(),
    }]
}

fn label(name: &str) -> Span<'static> {
    Span::raw(format!("{name:<LABEL$}")).dim()
}

/// A label and as many whole facts as there is room for; at least the first.
fn facts(name: &str, items: Vec<Vec<Span<'static>>>, width: usize) -> Line<'static> {
    let mut spans = vec![label(name)];
    let mut used = LABEL;
    for (i, item) in items.into_iter().enumerate() {
        let wide: usize = item.iter().map(Span::width).sum();
        if wide == 0 {
            continue;
        }
        let between = if i == 0 { 0 } else { 3 };
        if i > 0 && used + between + wide > width {
            continue;
        }
        if i > 0 {
            spans.push(Span::raw(" · ").dim());
        }
        used += between + wide;
        spans.extend(item);
    }
    Line::from(spans)
}

/// Something at the left end, and at the right end the first of two that fits beside it, if one does.
fn ends(left: Vec<Span<'static>>, right: [Vec<Span<'static>>; 2], width: usize) -> Line<'static> {
    let wide = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
    let room = width.saturating_sub(wide(&left));
    let mut spans = left;
    if let Some(right) = right.into_iter().find(|r| !r.is_empty() && wide(r) + 2 <= room) {
        spans.push(Span::raw(" ".repeat(room - wide(&right))));
        spans.extend(right);
    }
    Line::from(spans)
}

/// Words in quotes, cut to the room there is; nothing where only a few letters would be left.
fn clip(words: &str, room: usize) -> String {
    const FEWEST: usize = 12;
    if Span::raw(words).width() + 2 <= room {
        return format!("“{words}”");
    }
    if room < FEWEST {
        return String::new();
    }
    let mut cut = String::new();
    for c in words.chars() {
        if Span::raw(cut.as_str()).width() + 4 >= room {
            break;
        }
        cut.push(c);
    }
    format!("“{}…”", cut.trim_end())
}

/// An estimate, rounded so that it does not pretend to be exact.
fn roughly(seconds: f64) -> f64 {
    let step = match seconds {
        s if s < 60.0 => 5.0,
        s if s < 600.0 => 10.0,
        _ => 60.0,
    };
    (seconds / step).ceil() * step
}
