//! Expressions against a run made from literals.

use super::*;
use crate::testing;
use model::FailureKind;
use model::sweep::{SweepPoint, SweepResult};
use proptest::prelude::*;

fn judged(run: &RunResult, text: &str) -> Threshold {
    let read = check_paths(&[text.to_owned()]).unwrap_or_else(|error| panic!("{error}"));
    read[0].evaluate(&serde_json::to_value(run).unwrap())
}

fn wrong(text: &str) -> String {
    check_paths(&[text.to_owned()]).unwrap_err().to_string()
}

#[test]
fn figures_are_found_and_compared() {
    let mut run = testing::run(10_000, 10);
    run.connections.failed.insert(FailureKind::Reset, 3);
    run.connections.failed.insert(FailureKind::Silent, 4);
    crate::conclude(&mut run);
    for (text, value, held) in [
        ("failed > 0", 7.0, true),
        ("failed>7", 7.0, false),
        ("connections.failed.reset >= 3", 3.0, true),
        ("connections.failed.no-ports > 0", 0.0, false),
        ("connections.held < 10k", 10_000.0, false),
        ("verify.latency.p99_ms <= 4ms", 4.0, true),
        ("verify.latency.p99_ms > 1s", 4.0, false),
        ("cost.target.user_bytes_per_connection.value > 2KiB", 3_000.0, true),
        ("stages.0.connections == 1000", 1_000.0, true),
        ("stages.9.latency.p50_ms != 2", 2.0, false),
        ("line.broke == false", 0.0, true),
        ("seconds > 0.5", 40.0, true),
        ("before.host.memory_available_bytes < 1GiB", (20_u64 << 30) as f64, false),
    ] {
        let threshold = judged(&run, text);
        assert_eq!((threshold.value, threshold.held), (Some(value), held), "{text}");
    }
}

#[test]
fn figures_of_a_sweep_and_of_the_ways_beside_can_be_asked() {
    let mut run = testing::run(10, 1);
    let point = |operations| SweepPoint {
        clients: 10,
        connected: 10,
        served: 10,
        seconds: 10.0,
        operations,
        slices: vec![operations / 20; 20],
        ..SweepPoint::default()
    };
    let swept = |operations| Some(SweepResult { points: vec![point(operations)], ..SweepResult::default() });
    let beside = RunResult { sweep: swept(1_000), ..run.clone() };
    run.sweep = swept(2_000);
    run.beside = vec![beside];
    crate::conclude(&mut run);
    for (text, value, held) in [
        ("sweep.reading.peak.per_second.value < 250", 200.0, true),
        ("sweep.reading.peak.clients > 10", 10.0, false),
        ("sweep.points.0.operations == 2k", 2_000.0, true),
        ("sweep.reading.counts.0.per_second.low < 200", run_low(&run), true),
        ("beside.0.sweep.reading.peak.per_second.value < 150", 100.0, true),
        ("differences.0.share.value < -0.4", -0.5, true),
        ("differences.0.seen == true", 1.0, true),
    ] {
        let threshold = judged(&run, text);
        assert_eq!((threshold.value, threshold.held), (Some(value), held), "{text}");
    }
    assert_eq!(judged(&run, "sweep.reading.usl.sigma.value > 0.1").value, None);
    assert!(wrong("sweep.reading.peak > 1").contains("is not a number"));
    assert!(wrong("beside.0.verdict.held == false").contains("concluded after the thresholds"));
}

fn run_low(run: &RunResult) -> f64 {
    let counts = &run.sweep.as_ref().unwrap().reading.counts;
    counts[0].per_second.unwrap().low.unwrap()
}

#[test]
fn what_was_not_measured_does_not_hold() {
    let mut run = testing::run(1_000, 5);
    run.verify.latency = None;
    for text in ["verify.latency.p99_ms < 1h", "establish.phases.tls.p99_ms >= 0", "stages.77.verified >= 0"]
    {
        assert_eq!(judged(&run, text), Threshold { expression: text.into(), value: None, held: false });
    }
}

#[test]
fn each_mistake_has_its_message() {
    assert!(wrong("failed").contains("has none of > >="));
    assert!(wrong("failed = 1").contains("has none of > >="));
    assert!(wrong("> 1").contains("names no figure"));
    assert!(wrong("failed > many").contains("\"many\", which is not a number or a count"));
    assert!(wrong("failed > nan").contains("not a number"));
    assert!(wrong("verify.latency.p99_ms > 4KiB").contains("a duration (100, 250ms, 1s)"));
    assert!(wrong("cost.target.peak_user_bytes > 10s").contains("4KiB"));
    assert!(wrong("conections.held > 1").contains("a result has no \"conections\"; it has plimsoll, schema"));
    assert!(
        wrong("verify.latency.p98_ms > 1").contains("verify.latency has no \"p98_ms\"; it has count, min_ms")
    );
    assert!(wrong("connections.failed.rest > 1").contains("it has no-ports, no-descriptors"));
    assert!(wrong("establish.phases.dns.p99_ms > 1").contains("it has tcp, tls, upgrade, auth, ready"));
    assert!(wrong("cost.target > 1").contains("cost.target is not a number; below it stand user_bytes_per"));
    assert!(wrong("spec.target.host > 1").contains("is not a number"));
    assert!(wrong("stages.first.verified > 1").contains("it has entries from 0"));
    assert!(wrong("stages > 1").contains("below it stand entries from 0"));
    assert!(wrong("verdict.held == 0").contains("concluded after the thresholds"));
    assert!(wrong("connections..held > 1").contains("connections has no \"\""));
}

#[test]
fn every_kind_and_phase_can_be_asked() {
    for kind in FailureKind::ALL {
        check_paths(&[format!("connections.failed.{kind} > 0"), format!("stages.0.failed.{kind} > 0")])
            .unwrap();
    }
    for phase in model::Phase::ALL {
        check_paths(&[format!("establish.phases.{}.p99_ms > 1s", phase.id())]).unwrap();
    }
}

/// Every number of a real document must be reachable by its path: schema and document agree.
#[test]
fn every_number_of_a_run_can_be_asked() {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        let step = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Object(map) => map.iter().for_each(|(k, v)| walk(v, &step(k), found)),
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, v)| walk(v, &step(&i.to_string()), found));
            }
            Value::Number(_) | Value::Bool(_) => found.push(path.to_owned()),
            _ => {}
        }
    }
    let mut run = testing::run(1_000, 5);
    crate::conclude(&mut run);
    let document = serde_json::to_value(&run).unwrap();
    let mut found = Vec::new();
    walk(&document, "", &mut found);
    found.retain(|path| !path.starts_with("verdict"));
    assert!(found.len() > 200, "{found:?}");
    // One stage stands for all of them: the schema is walked anew for every path.
    found.retain(|path| !path.starts_with("stages.") || path.starts_with("stages.0."));
    for path in found {
        assert!(judged(&run, &format!("{path} >= 0")).value.is_some(), "{path}");
    }
}

proptest! {
    #[test]
    fn never_panics(text in ".{0,40}", path in "[a-z_.0-9]{0,30}", number in "[-0-9a-zA-Z.]{0,10}") {
        let _ = check_paths(&[text]);
        let _ = check_paths(&[format!("{path} > {number}")]);
    }
}
