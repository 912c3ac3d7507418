//! What the block looks like, cell by cell, and what it is made from.

use std::ops::RangeInclusive;

use model::observation::{Group, Listener, Observation};
use model::result::Moment;
use model::{Counters, FailureKind, SweepSpec, Target};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;

use super::*;

const MIB: u64 = 1 << 20;

fn spec(connections: u64) -> Spec {
    Spec {
        heartbeat_seconds: Some(1.0),
        ..Spec::new(Target::parse("ws://127.0.0.1:7280/ws").unwrap(), connections)
    }
}

/// A view that is fed moments as the conductor does it.
struct Run {
    view: View,
    counters: Counters,
    before: Observation,
    seen: Observation,
    interrupted: bool,
    left_seconds: Option<f64>,
    most_ready: u64,
    last: f64,
}

impl Run {
    fn new(spec: &Spec) -> Self {
        let target = Some(Group { user_bytes: Some(8 * MIB), ..Group::default() });
        let listener = Some(Listener { sockets: 1, queued: 0, backlog: 4096 });
        let mut before = Observation { target, listener, ..Observation::default() };
        before.host.slab_bytes = Some(300 * MIB);
        before.host.socket_buffer_bytes = Some(0);
        Self {
            view: View::new(spec),
            counters: Counters::default(),
            seen: before.clone(),
            before,
            interrupted: false,
            left_seconds: None,
            most_ready: 0,
            last: 0.0,
        }
    }

    fn moment(&mut self, moment: Moment) {
        let progress = Progress {
            moment: &moment,
            counters: &self.counters,
            requested: self.view.requested,
            left_seconds: self.left_seconds,
            before: &self.before,
            seen: &self.seen,
            interrupted: self.interrupted,
        };
        take(&mut self.view, &progress, &mut self.most_ready, &mut self.last);
    }

    fn healthy(&mut self, seconds: RangeInclusive<u64>, doing: &str) {
        for t in seconds {
            self.moment(healthy(t, doing));
        }
    }

    fn shown(&self, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| frame.render_widget(&self.view, frame.area())).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content.chunks(usize::from(width).max(1));
        let lines: Vec<String> = rows
            .map(|cells| cells.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned())
            .collect();
        lines.join("\n").trim_end().to_owned()
    }
}

fn assert_frame(shown: &str, expected: &str) {
    assert_eq!(shown, expected.trim_end(), "it shows\n<<<\n{shown}\n>>>");
}

/// Second `t` of a healthy run that opens 1,000 connections a second.
fn healthy(t: u64, doing: &str) -> Moment {
    let ready = (t * 1_000).min(20_000);
    Moment {
        t_seconds: t as f64,
        doing: doing.to_owned(),
        wanted: ready.next_multiple_of(2_000),
        ready,
        establishing: if doing == "establish" { 64 } else { 0 },
        opened: if doing == "establish" { 1_000 } else { 0 },
        beats_answered: ready,
        beat_p50_ms: Some(0.21),
        beat_p99_ms: Some(1.0 + t as f64 / 10.0),
        beat_max_ms: Some(4.1),
        target_user_bytes: Some(8 * MIB + ready * 3_584),
        target_cpus: Some(0.42),
        generator_user_bytes: Some(12 * MIB),
        generator_cpus: Some(0.31),
        kernel_bytes: Some(300 * MIB + ready * 4_096),
        accept_queue: Some(3),
        generator_lag_ms: Some(0.4),
        ..Moment::default()
    }
}

fn holding() -> Run {
    let mut run = Run::new(&spec(20_000));
    run.healthy(1..=20, "establish");
    run.view.past = vec![true; 10];
    run.left_seconds = Some(21.0);
    run.healthy(21..=30, "hold");
    run
}

#[test]
fn establishing() {
    let mut run = Run::new(&spec(20_000));
    run.healthy(1..=7, "establish");
    run.view.past = vec![true; 3];
    run.moment(Moment { wanted: 10_000, ..healthy(8, "establish") });
    assert_frame(&run.shown(96, 18), include_str!("frames/establishing.txt"));
}

#[test]
fn holding_in_good_health() {
    assert_frame(&holding().shown(96, 18), include_str!("frames/holding.txt"));
}

#[test]
fn failing() {
    let mut run = holding();
    run.view.past = vec![true, true, false];
    run.view.holding_began = false;
    let failed = &mut run.counters.failed;
    failed.add_many(FailureKind::Reset, 12);
    failed.add_many(FailureKind::ServerRefused, 1_204);
    failed.add_many(FailureKind::Silent, 5);
    failed.add_many(FailureKind::Tls, 1);
    failed.add_many(FailureKind::Os, 2);
    // A server's own words must not move the cursor of whoever reads them.
    let words = "HTTP 503 \x1b[2JService Unavailable".to_owned();
    failed.example.insert(FailureKind::ServerRefused, words);
    run.counters.beats_missed = 17;
    let mut moment = Moment { wanted: 20_000, ready: 8_796, ..healthy(31, "establish") };
    moment.failed.insert(FailureKind::ServerRefused, 370);
    moment.accept_queue = Some(4_096);
    moment.generator_lag_ms = Some(312.0);
    run.moment(moment);
    assert_frame(&run.shown(96, 18), include_str!("frames/failing.txt"));
}

#[test]
fn a_target_that_falls_silent_is_not_called_healthy() {
    let mut run = holding();
    run.counters.beats_sent = 60_000;
    run.counters.beats_answered = 20_000;
    run.moment(Moment {
        beats_answered: 0,
        beat_p50_ms: None,
        beat_p99_ms: None,
        beat_max_ms: None,
        ..healthy(31, "hold")
    });
    let shown = run.shown(96, 18);
    assert!(shown.contains("heartbeat  40,000 not answered yet\n"), "{shown}");
}

#[test]
fn clients_at_work() {
    let sweep = SweepSpec {
        clients: vec![1, 8, 64, 256],
        adaptive: false,
        warm_up_seconds: 1.0,
        measure_seconds: 4.0,
        repeat: 1,
        rate_per_second: None,
        arrivals: model::talk::Arrivals::Constant,
        label: String::new(),
    };
    let mut run = Run::new(&Spec { sweep: Some(sweep), heartbeat_seconds: None, ..spec(256) });
    run.view.past = vec![true; 2];
    for t in 1..=9 {
        run.moment(Moment {
            wanted: 64,
            ready: 64,
            opened: 0,
            establishing: 0,
            messages_sent: 15_000 + t * 300,
            messages_answered: 15_000 + t * 300,
            message_p50_ms: Some(3.3),
            message_p99_ms: Some(4.0 + t as f64 / 10.0),
            message_max_ms: Some(16.5),
            ..healthy(t, "load")
        });
    }
    assert_frame(&run.shown(96, 18), include_str!("frames/at_work.txt"));
}

#[test]
fn a_remote_target_is_unknown_not_zero() {
    let mut run = Run::new(&spec(20_000));
    run.before = Observation::default();
    run.seen = Observation::default();
    for t in 1..=8 {
        run.moment(Moment {
            target_user_bytes: None,
            target_cpus: None,
            accept_queue: None,
            kernel_bytes: None,
            ..healthy(t, "establish")
        });
    }
    assert_frame(&run.shown(96, 18), include_str!("frames/remote.txt"));
}

#[test]
fn a_narrow_and_low_terminal() {
    // 60 columns by 15 rows: one column and two rows are left free.
    assert_frame(&holding().shown(59, 13), include_str!("frames/narrow.txt"));
}

#[test]
fn stopping_says_what_comes_next() {
    let mut run = holding();
    run.interrupted = true;
    run.moment(healthy(31, "drain"));
    let shown = run.shown(96, 18);
    assert!(shown.contains("Stopping: closing all connections"), "{shown}");
    assert!(shown.contains("Ctrl-C again ends at once"), "{shown}");
}

#[test]
fn before_the_first_second_it_says_what_is_coming() {
    let run = Run::new(&spec(20_000));
    let shown = run.shown(96, 18);
    assert!(shown.starts_with("plimsoll hold ws://127.0.0.1:7280/ws\nStarting"), "{shown}");
}

#[test]
fn no_size_is_too_small() {
    let runs = [holding(), Run::new(&spec(0)), Run::new(&Spec { until_it_breaks: true, ..spec(u64::MAX) })];
    for run in runs {
        for width in [0, 1, 2, 9, 10, 11, 12, 20, 40, 49, 50, 60, 79, 100, 200] {
            for height in 0..24 {
                run.shown(width, height);
            }
        }
    }
}

#[test]
fn the_cost_is_a_slope_and_waits_until_it_means_something() {
    let mut run = Run::new(&spec(20_000));
    run.moment(healthy(1, "establish"));
    assert_eq!(run.view.cost_so_far, None);
    run.moment(healthy(2, "establish"));
    assert_eq!(run.view.cost_so_far, Some(3_584.0));
    // Connections that were given up leave memory behind; what was known before stays.
    run.moment(Moment { ready: 1_500, target_user_bytes: Some(99 * MIB), ..healthy(3, "establish") });
    assert_eq!(run.view.cost_so_far, Some(3_584.0));
}

#[test]
fn time_left_is_judged_by_the_pace_and_exact_while_holding() {
    let left = |run: &Run| run.view.now.as_ref().and_then(|n| n.left_seconds);
    let mut run = Run::new(&spec(20_000));
    run.moment(healthy(5, "establish"));
    assert_eq!(left(&run), None, "no stage is over yet");
    run.view.past.push(true);
    run.moment(healthy(5, "establish"));
    assert_eq!(left(&run), Some(15.0 + 30.0));
    assert_eq!(left(&holding()), Some(21.0));
    let mut search = Run::new(&Spec { until_it_breaks: true, ..spec(20_000) });
    search.view.past.push(true);
    search.moment(healthy(5, "establish"));
    assert_eq!(left(&search), None);
}

#[test]
fn clocks() {
    assert_eq!(clock(7.2), "0:07");
    assert_eq!(clock(750.0), "12:30");
    assert_eq!(clock(3723.0), "1:02:03");
}
