//! Curves made from laws that are known.

use std::collections::BTreeMap;

use model::result::CpuUse;
use model::sweep::{SLICES, SweepResult, SweepSpec};
use model::talk::Arrivals;
use model::{FailureKind, Latency};

use super::*;
use crate::testing::{self, normal};

const SECONDS: f64 = 10.0;

/// What a closed loop of so many clients shows that gets so many answers a second.
fn point(stage: usize, clients: u64, per_second: f64, noise: f64, seed: &mut u64) -> SweepPoint {
    let each = per_second * SECONDS / SLICES as f64;
    // What was carried over from the slice before, so that rounding adds nothing to the whole.
    let mut rest = 0.0;
    let slice = |_| {
        let exact = each * (1.0 + noise * normal(seed)) + rest;
        let whole = exact.round().max(0.0);
        rest = exact - whole;
        whole as u64
    };
    let slices: Vec<u64> = (0..SLICES).map(slice).collect();
    let operations = slices.iter().sum();
    let mean_ms = clients as f64 / (operations as f64 / SECONDS) * 1e3;
    SweepPoint {
        stage,
        clients,
        connected: clients,
        served: clients,
        seconds: SECONDS,
        operations,
        slices,
        latency: Some(Latency {
            count: operations,
            mean_ms,
            p50_ms: mean_ms,
            p95_ms: mean_ms,
            p99_ms: mean_ms * 1.2,
            ..Latency::default()
        }),
        cpu: CpuUse { seconds: SECONDS, target_cpu_seconds: Some(3.0), generator_cpu_seconds: Some(1.0) },
        host_cpu_seconds: Some(5.0),
        ..SweepPoint::default()
    }
}

/// A sweep in which a law says how much is answered.
fn swept(counts: &[u64], repeat: usize, noise: f64, law: impl Fn(f64) -> f64) -> RunResult {
    let mut seed = 17;
    let all: Vec<u64> = counts.iter().flat_map(|n| std::iter::repeat_n(*n, repeat)).collect();
    let most = counts.iter().copied().max().unwrap_or(1);
    let mut run = testing::run(most, 1);
    run.experiment = "sweep".into();
    run.spec.objective_seconds = 1.0;
    run.spec.sweep = Some(SweepSpec {
        clients: counts.to_vec(),
        adaptive: false,
        warm_up_seconds: 1.0,
        measure_seconds: SECONDS,
        repeat: repeat as u32,
        rate_per_second: None,
        arrivals: Arrivals::Constant,
        label: "here".into(),
    });
    let stage = run.stages[0].clone();
    run.stages = all
        .iter()
        .map(|n| {
            let mut stage = stage.clone();
            (stage.connections, stage.ready, stage.verified) = (*n, *n, *n);
            stage
        })
        .collect();
    let points = all.iter().enumerate().map(|(i, n)| point(i, *n, law(*n as f64), noise, &mut seed));
    run.sweep = Some(SweepResult { points: points.collect(), ..SweepResult::default() });
    run
}

fn usl(lambda: f64, sigma: f64, kappa: f64) -> impl Fn(f64) -> f64 {
    move |n| lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
}

/// So many servers that take 20 ms each.
fn servers(c: f64) -> impl Fn(f64) -> f64 {
    move |n| n.min(c) * 50.0
}

fn read(mut run: RunResult) -> Reading {
    crate::conclude(&mut run);
    run.sweep.unwrap().reading
}

fn close(found: f64, truth: f64, within: f64) -> bool {
    (found - truth).abs() <= within * truth
}

const DOUBLED: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

#[test]
fn a_curve_that_rises_and_falls() {
    for noise in [0.0, 0.03] {
        // its peak is at 30.8 clients
        let law = usl(500.0, 0.05, 0.001);
        let reading = read(swept(&DOUBLED, 1, noise, &law));
        let peak = reading.peak.unwrap();
        assert_eq!((peak.clients, peak.clients_low, peak.clients_high), (32, 32, 32), "{peak:?}");
        assert!(close(peak.per_second.value, law(32.0), 0.02), "{peak:?}");
        assert!(noise == 0.0 || peak.per_second.contains(law(32.0)), "{peak:?}");
        assert_eq!(reading.shape, Some(Shape::Falling));
        let found = reading.usl.unwrap_or_else(|| panic!("{:?}", reading.usl_refused));
        assert!(close(found.lambda.value, 500.0, 0.05), "{found:?}");
        assert!(close(found.sigma.value, 0.05, 0.1) && close(found.kappa.value, 0.001, 0.1), "{found:?}");
        assert!(close(found.peak_clients.unwrap(), 30.82, 0.05), "{found:?}");
        assert_eq!(reading.broke, None);
        assert!(reading.counts.iter().all(|count| count.good && count.why_not.is_none()));
        let of_64 = &reading.counts[6];
        assert!(close(of_64.little_clients, 64.0, 1e-6), "{of_64:?}");
        assert_eq!(
            (of_64.target_cpus, of_64.generator_cpus, of_64.host_cpus),
            (Some(0.3), Some(0.1), Some(0.5))
        );
    }
}

#[test]
fn clients_that_queue_in_front_of_a_fixed_number_of_servers() {
    let reading = read(swept(&DOUBLED, 2, 0.01, servers(16.0)));
    let peak = reading.peak.unwrap();
    assert!(peak.clients_low == 16 && close(peak.per_second.value, 800.0, 0.02), "{peak:?}");
    assert_eq!(reading.shape, Some(Shape::Queueing));
    let level = reading.level.unwrap();
    assert_eq!((level.clients_low, level.clients_high), (16, 256), "{level:?}");
    assert!(reading.usl.is_none() && reading.usl_refused.unwrap().contains("another law"));
    // p99 is 1.2 times the mean of N / 800 s
    let saturation = reading.saturation.unwrap();
    assert_eq!((saturation.clients, saturation.missed_at, saturation.confirmed), (256, None, true));
    let mut run = swept(&DOUBLED, 1, 0.0, servers(16.0));
    run.spec.objective_seconds = 0.1;
    let saturation = read(run).saturation.unwrap();
    assert_eq!((saturation.clients, saturation.missed_at), (64, Some(128)));
    assert!(!saturation.confirmed && close(saturation.p99_ms, 96.0, 0.01), "{saturation:?}");
}

#[test]
fn clients_that_queue_although_fewer_of_them_got_more() {
    // as with a pooler that is busy enough to take CPU from the server once all of its clients wait
    let law = |n: f64| if n <= 64.0 { 480.0 * n.min(64.0) } else { 25_500.0 };
    let reading = read(swept(&[8, 64, 500, 2_000, 5_000], 1, 0.01, law));
    assert_eq!(reading.shape, Some(Shape::Queueing));
    let level = reading.level.unwrap();
    assert_eq!((level.clients_low, level.clients_high), (500, 5_000), "{level:?}");
    assert!(close(level.per_second.value, 25_500.0, 0.02), "{level:?}");
    assert_eq!(reading.peak.unwrap().clients, 64);
    // a slow fall is one all the same
    let reading = read(swept(&[8, 64, 500, 600, 700], 1, 0.01, law));
    assert_eq!((reading.shape, reading.level), (Some(Shape::Falling), None));
}

#[test]
fn a_curve_that_still_grows() {
    let reading = read(swept(&DOUBLED[..6], 1, 0.01, usl(100.0, 0.01, 0.0)));
    assert_eq!(reading.shape, Some(Shape::Growing));
    assert_eq!(reading.peak.unwrap().clients_low, 32);
    assert_eq!(reading.usl.unwrap().peak_clients, None);
    assert_eq!(read(swept(&[8], 1, 0.01, usl(100.0, 0.01, 0.0))).shape, None, "one count has no shape");
}

#[test]
fn too_few_counts_for_a_law_say_so() {
    let reading = read(swept(&[1, 8, 64, 512], 1, 0.01, usl(100.0, 0.01, 0.0)));
    assert_eq!(reading.usl_refused.as_deref(), Some("4 client counts can be used, 5 are needed"));
}

#[test]
fn where_it_broke_is_told_with_its_words_and_is_no_part_of_the_curve() {
    let mut run = swept(&[8, 64, 1_000], 1, 0.01, servers(1_000.0));
    let words = "FATAL: 53300: sorry, too many clients already";
    let point = &mut run.sweep.as_mut().unwrap().points[2];
    (point.connected, point.served) = (97, 97);
    point.failed_example = BTreeMap::from([(FailureKind::ServerRefused, words.to_owned())]);
    run.stages[2].failed.insert(FailureKind::ServerRefused, 903);
    testing::fail(&mut run.stages[2], 97, "903 were refused");
    let reading = read(run);
    let broke = reading.broke.unwrap();
    assert_eq!((broke.clients, broke.served, broke.by.as_str()), (1_000, 97, words));
    assert_eq!(reading.peak.unwrap().clients, 64);
    assert_eq!(reading.counts[2].why_not.as_deref(), Some("97 of 1,000 clients connected"));
    let saturation = reading.saturation.unwrap();
    assert_eq!((saturation.clients, saturation.missed_at), (64, Some(1_000)));
}

#[test]
fn clients_that_were_closed_between_their_handshake_and_their_work_count_as_well() {
    let mut run = swept(&[8, 32], 1, 0.01, servers(64.0));
    run.sweep.as_mut().unwrap().points[1].served = 20;
    run.stages[1].failed.insert(FailureKind::ClosedEarly, 12);
    run.stages[1].ready = 20;
    let reading = read(run);
    let broke = reading.broke.unwrap();
    assert_eq!((broke.clients, broke.served), (32, 20));
    assert_eq!(broke.by, FailureKind::ClosedEarly.says());
    assert_eq!(reading.counts[1].why_not.as_deref(), Some("12 of 32 clients were lost"));
}

#[test]
fn what_the_generator_held_back_is_left_out_and_said() {
    let mut run = swept(&DOUBLED, 2, 0.01, servers(64.0));
    // of 64 clients one repeat, of 256 both
    for at in [12, 16, 17] {
        let points = &mut run.sweep.as_mut().unwrap().points;
        points[at].cpu.generator_cpu_seconds = Some(0.99 * SECONDS);
    }
    let reading = read(run.clone());
    let of = |clients| reading.counts.iter().find(|count| count.clients == clients).unwrap();
    assert!(of(64).good && !of(256).good);
    for clients in [64, 256] {
        let why = of(clients).why_not.as_deref().unwrap();
        assert!(why.starts_with("the generator used 0.99 of the 1.00 CPUs that it can"), "{why}");
    }
    assert!(reading.peak.unwrap().clients_high <= 128);

    // a full host that is full with the target is no fault of the generator's
    let mut shared = swept(&DOUBLED, 1, 0.01, servers(64.0));
    shared.workers[0].processes = 2;
    for point in &mut shared.sweep.as_mut().unwrap().points {
        point.host_cpu_seconds = Some(1.99 * SECONDS);
        point.cpu.generator_cpu_seconds = Some(0.9 * SECONDS);
    }
    assert!(read(shared.clone()).counts.iter().all(|count| count.good));
    for point in &mut shared.sweep.as_mut().unwrap().points {
        point.cpu.generator_cpu_seconds = Some(1.5 * SECONDS);
    }
    assert!(read(shared).counts.iter().all(|count| !count.good));
}

#[test]
fn clients_that_littles_law_misses_are_said() {
    let mut run = swept(&DOUBLED, 1, 0.0, servers(64.0));
    let latency = run.sweep.as_mut().unwrap().points[5].latency.as_mut().unwrap();
    latency.mean_ms *= 0.9;
    let reading = read(run);
    let why = reading.counts[5].why_not.as_deref().unwrap();
    assert!(why.contains("28.8 clients were at work, not 32"), "{why}");
    assert!(!reading.counts[5].good && reading.counts[4].good);
}

#[test]
fn an_open_loop_has_no_law_and_saturates_where_work_is_left_over() {
    let mut run = swept(&DOUBLED, 1, 0.0, |n| (n * 50.0).min(1_000.0));
    run.spec.sweep.as_mut().unwrap().rate_per_second = Some(1_000.0);
    for point in &mut run.sweep.as_mut().unwrap().points {
        point.due = Some(10_000);
        point.unmet = Some(10_000_u64.saturating_sub(point.operations));
        point.latency.as_mut().unwrap().p99_ms = 20.0;
    }
    let reading = read(run);
    assert!(reading.usl.is_none() && reading.usl_refused.unwrap().contains("--rate"));
    assert_eq!((reading.shape, reading.saturation), (None, None), "one client leaves work over");
    assert!(reading.counts.iter().all(|count| count.good), "Little's law is one of closed loops");
}

/// Tries more counts until enough are known; gives them and the points.
fn more_around(counts: &[u64], law: impl Fn(f64) -> f64) -> (Vec<u64>, Vec<SweepPoint>) {
    let mut seed = 23;
    let mut points = swept(counts, 1, 0.01, &law).sweep.unwrap().points;
    let mut more = Vec::new();
    while let Some(clients) = next_around_the_peak(&points) {
        assert!(more.len() < 10, "{more:?}");
        assert!(!points.iter().any(|p| p.clients == clients), "{clients} was measured: {more:?}");
        points.push(point(points.len(), clients, law(clients as f64), 0.01, &mut seed));
        more.push(clients);
    }
    (more, points)
}

#[test]
fn more_counts_close_in_on_the_peak_and_on_where_it_levels_off() {
    let peak_of = |points: Vec<SweepPoint>| {
        let mut run = swept(&[1], 1, 0.0, |_| 1.0);
        run.stages = vec![run.stages[0].clone(); points.len()];
        run.sweep.as_mut().unwrap().points = points;
        read(run).peak.unwrap()
    };
    // its peak is at 23.2 clients, and 45 and 11 have a tenth less
    let (more, points) = more_around(&DOUBLED, usl(500.0, 0.03, 0.0018));
    assert!((1..=4).contains(&more.len()), "{more:?}");
    let peak = peak_of(points);
    assert!((19..=28).contains(&peak.clients), "{peak:?} after {more:?}");

    for c in [20.0, 45.0, 100.0] {
        let (more, points) = more_around(&DOUBLED, servers(c));
        assert!((1..=4).contains(&more.len()), "{more:?}");
        let low = peak_of(points).clients_low as f64;
        assert!(low >= 0.95 * c && low <= 1.25 * c, "{low} of {c} after {more:?}");
    }
    let (more, _) = more_around(&[1, 2], |n| n * 10.0);
    assert_eq!(more, Vec::<u64>::new(), "nothing lies between 1 and 2");
    assert_eq!(next_around_the_peak(&[]), None);
}

#[test]
fn ways_are_compared_where_both_were_measured() {
    let mut run = swept(&[8, 16, 32], 2, 0.02, servers(64.0));
    run.beside = vec![
        swept(&[8, 16, 32, 64], 2, 0.02, |n| servers(64.0)(n) * 0.9),
        swept(&[16], 2, 0.02, servers(64.0)),
    ];
    // other noise than in the first way
    run.beside[1].sweep.as_mut().unwrap().points.iter_mut().for_each(|p| p.slices.reverse());
    crate::conclude(&mut run);
    let seen: Vec<(usize, u64, bool)> =
        run.differences.iter().map(|d| (d.beside, d.clients, d.seen)).collect();
    assert_eq!(seen, [(0, 8, true), (0, 16, true), (0, 32, true), (1, 16, false)]);
    for difference in &run.differences[..3] {
        let share = difference.share.unwrap();
        assert!(share.contains(-0.1) && !share.contains(-0.2), "{share:?}");
    }
    let once = run.clone();
    crate::conclude(&mut run);
    assert_eq!(run, once);
}
