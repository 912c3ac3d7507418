//! What does the page show of a storm? The table of its rounds, and two drawings of each: who was ready when, and the
//! accept queue meanwhile.

use model::storm::{Round, RoundKind, RoundMoment};
use model::{RunResult, StormResult, units};

use super::figures::Figure;
use super::rows::Tile;
use crate::rounds;
use crate::svg::chart::{Chart, Line, Rule};
use crate::svg::scale::Axis;
use crate::words::UNKNOWN;

/// The part of the page that a storm has.
pub(super) struct Storm {
    pub(super) note: String,
    pub(super) heads: Vec<&'static str>,
    pub(super) rows: Vec<[String; 12]>,
    pub(super) issued: String,
    pub(super) figures: Vec<Figure>,
}

impl Storm {
    pub(super) fn of(r: &RunResult) -> Option<Self> {
        let storm = r.storm.as_ref()?;
        Some(Self {
            note: format!("{}; counters are {}", rounds::CAME_NOTE, rounds::QUEUED_NOTE),
            heads: rounds::HEADS.iter().map(|head| head.trim_start_matches('<')).collect(),
            rows: storm.rounds.iter().map(rounds::cells).collect(),
            issued: rounds::issued(storm),
            figures: storm.rounds.iter().flat_map(|round| [ready(round), queue(round)]).flatten().collect(),
        })
    }
}

/// Headline figures: a tile for each round, and what the kernel did over all of them.
pub(super) fn tiles(storm: &StormResult) -> Vec<Tile> {
    let never = || "never".to_owned();
    let mut tiles: Vec<Tile> = storm
        .rounds
        .iter()
        .map(|round| Tile {
            name: round.kind.says(),
            value: round.all_ready_seconds.map_or_else(never, units::seconds),
            note: format!(
                "until all were ready; half: {}",
                round.half_ready_seconds.map_or_else(never, units::seconds)
            ),
        })
        .collect();
    let late: u64 = storm.rounds.iter().map(|round| round.late).sum();
    let overflows: Option<u64> = storm.rounds.iter().map(|round| round.listen_overflows).sum();
    tiles.push(Tile { name: "late", value: units::count(late), note: "a second or more".to_owned() });
    tiles.push(Tile {
        name: "overflows",
        value: overflows.map_or_else(|| UNKNOWN.to_owned(), units::count),
        note: "times the accept queue was full".to_owned(),
    });
    tiles
}

fn line(
    round: &Round,
    name: &'static str,
    class: &'static str,
    of: impl Fn(&RoundMoment) -> Option<u64>,
) -> Line {
    let values = round.moments.iter().map(|m| of(m).map(|n| n as f64)).collect();
    Line { name, class, values, steps: false }
}

fn ready(round: &Round) -> Option<Figure> {
    let (id, title) = match round.kind {
        RoundKind::First => ("ready-first", "Ready, first"),
        RoundKind::Return => ("ready-return", "Ready, return"),
        RoundKind::Jitter => ("ready-jitter", "Ready, return with jitter"),
    };
    let note = "connections ready, and those whose round trip was back, from the round's instant";
    let lines = vec![
        line(round, "ready", "c-ready", |m| Some(m.ready)),
        line(round, "verified", "c-kernel", |m| Some(m.verified)),
    ];
    draw(round, id, (title, note), lines, round.connections as f64, None)
}

fn queue(round: &Round) -> Option<Figure> {
    let (id, title) = match round.kind {
        RoundKind::First => ("queue-first", "Accept queue, first"),
        RoundKind::Return => ("queue-return", "Accept queue, return"),
        RoundKind::Jitter => ("queue-jitter", "Accept queue, return with jitter"),
    };
    let most = round.queue_most? as f64;
    // The queue's size is drawn where the queue came anywhere near it, and is told otherwise.
    let near = round.backlog.map(|n| n as f64).filter(|backlog| most * 8.0 >= *backlog);
    let rule = near.map(|value| Rule { value, name: format!("it holds {}", units::count(value as u64)) });
    let lines = vec![line(round, "queued", "c-target", |m| m.queued)];
    let high = most.max(near.unwrap_or(0.0)).max(4.0);
    draw(round, id, (title, "connections that wait to be accepted, in the fullest queue"), lines, high, rule)
}

fn draw(
    round: &Round,
    id: &'static str,
    (title, note): (&'static str, &'static str),
    lines: Vec<Line>,
    most: f64,
    rule: Option<Rule>,
) -> Option<Figure> {
    let times: Vec<f64> = round.moments.iter().map(|m| m.t_seconds).collect();
    if times.len() < 2 || !times.iter().all(|t| t.is_finite()) {
        return None;
    }
    let chart = Chart {
        id,
        title,
        description: format!("{title}: highest {}. {note}", units::count(most as u64)),
        times: &times,
        hold: None,
        axis: Axis::counts(most, ""),
        lines,
        rule,
        failures: Vec::new(),
        write: |v| units::count(v as u64),
    };
    Some(Figure { title, note, svg: chart.draw() })
}
