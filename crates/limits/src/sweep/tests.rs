//! What is said of sweeps of servers whose law is known.

use model::result::Status;

use crate::sweep_testing::{SECONDS, refused, servers, swept};
use crate::testing::{self, concluded};
use model::RunResult;

const COUNTS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

fn usl(n: f64) -> f64 {
    500.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.001 * n * (n - 1.0))
}

/// Lets all CPUs of the host be full, of which the generator takes its part.
fn fill(run: &mut RunResult, target: f64, generator: f64) {
    for point in &mut run.sweep.as_mut().unwrap().points {
        point.cpu.target_cpu_seconds = Some(target * SECONDS);
        point.cpu.generator_cpu_seconds = Some(generator * SECONDS);
        point.host_cpu_seconds = Some((target + generator + 0.05) * SECONDS);
    }
}

#[test]
fn a_healthy_sweep_that_saturates_its_server_names_no_limit() {
    let mut run = swept(&COUNTS, usl);
    fill(&mut run, 1.5, 0.45);
    // answers are late only in the sense of a queue: the largest counts miss the objective
    run.spec.objective_seconds = 0.02;
    let run = concluded(run);
    assert_eq!(run.verdict.first_limit, None, "{}", run.verdict.sentence);
    assert!(run.verdict.held && run.verdict.trusted, "{}", run.verdict.sentence);
    for words in [
        "peaks at 4,517/s with 32 clients; ",
        "99% within 0.02 s up to 64 clients; ",
        "full at the peak: the host's CPUs (2.00 of 2, 1.50 with the target)",
        "nothing broke",
    ] {
        assert!(run.verdict.sentence.contains(words), "{words}: {}", run.verdict.sentence);
    }
    assert_eq!(run.warnings.len(), 1, "{:?}", run.warnings);
    assert!(run.warnings[0].starts_with("at the peak the generator took 0.45 of the 2.00 CPUs"));
    for found in &run.limits {
        assert!(!matches!(found.status, Status::Hit), "{found:?}");
    }
    let mut crowded = swept(&COUNTS, usl);
    fill(&mut crowded, 0.5, 0.2);
    crowded.sweep.as_mut().unwrap().points.iter_mut().for_each(|p| p.host_cpu_seconds = Some(2.0 * SECONDS));
    let crowded = concluded(crowded);
    let said = "at the peak 1.30 of the 2.00 CPUs that were busy on the generator's host";
    assert!(crowded.warnings.iter().any(|w| w.starts_with(said)), "{:?}", crowded.warnings);
}

#[test]
fn what_it_does_beyond_the_peak_is_said() {
    let says = |run: RunResult| concluded(run).verdict.sentence;
    let level = says(swept(&COUNTS, servers(16.0)));
    assert!(
        level.starts_with("throughput levels off at 800/s from 16 clients on; 99% within 1.00 s at every"),
        "{level}"
    );
    let grows = says(swept(&COUNTS, |n| 10.0 * n));
    assert!(grows.starts_with("throughput still grows at 128 clients: 1,280/s"), "{grows}");
    let slow = says(swept(&[1], |_| 0.5));
    assert!(
        slow.starts_with("peaks at 0.50/s with 1 client; 99% within 1.00 s at no client count"),
        "{slow}"
    );
    let mut rated = swept(&COUNTS, |n| (50.0 * n).min(400.0));
    rated.spec.sweep.as_mut().unwrap().rate_per_second = Some(400.0);
    let rated = says(rated);
    assert!(rated.starts_with("answers 400/s of the 400/s that come due, with"), "{rated}");
}

#[test]
fn a_server_that_turns_clients_away_is_named_first() {
    let words = "FATAL: 53300: sorry, too many clients already";
    let mut run = swept(&[8, 64, 128, 1_000], servers(16.0));
    fill(&mut run, 1.5, 0.45);
    refused(&mut run, 3, 97, words);
    let run = concluded(run);
    assert_eq!(
        run.verdict.first_limit.as_deref(),
        Some("server.max-connections"),
        "{}",
        run.verdict.sentence
    );
    assert!(!run.verdict.held && run.verdict.trusted, "{}", run.verdict.sentence);
    let said = format!("at 1,000 clients 903 could not connect or were lost: {words}");
    assert!(run.verdict.sentence.contains(&said), "{}", run.verdict.sentence);
    assert_eq!(run.exit_code(), 3);
    let found = run.limits.iter().find(|f| f.id == "server.max-connections").unwrap();
    assert_eq!(found.ceiling_connections, Some(97));
}

#[test]
fn a_generator_that_was_the_limit_beyond_the_peak_cannot_be_trusted() {
    let full_from = |from: u64, law: fn(f64) -> f64| {
        let mut run = swept(&COUNTS, law);
        for point in run.sweep.as_mut().unwrap().points.iter_mut().filter(|p| p.clients >= from) {
            point.cpu.generator_cpu_seconds = Some(0.99 * SECONDS);
        }
        concluded(run)
    };
    let run = full_from(32, |n| 10.0 * n);
    assert!(!run.verdict.trusted);
    assert_eq!(run.verdict.first_limit.as_deref(), Some("client.cpu"));
    let said = "cannot be trusted: the generator used 0.99 of the 1.00 CPUs that it can in stages 6-8 (client.cpu); ";
    assert!(run.verdict.sentence.starts_with(said), "{}", run.verdict.sentence);
    // Beyond a peak that is seen to be one it does not matter.
    let run = full_from(128, usl);
    assert!(run.verdict.trusted && run.verdict.held, "{}", run.verdict.sentence);
    assert!(
        run.warnings
            .iter()
            .any(|w| w.starts_with("at 128 clients left out of the curve: the generator used"))
    );
}

#[test]
fn ways_beside_are_told_and_judged() {
    let mut run = swept(&COUNTS, usl);
    let mut pooled = swept(&COUNTS, |n| 0.85 * usl(n));
    pooled.spec.sweep.as_mut().unwrap().label = "pooled".into();
    run.beside = vec![pooled];
    let both = concluded(run.clone());
    let said = "; pooled answers 15.0% less than direct (";
    assert!(both.verdict.sentence.contains(said), "{}", both.verdict.sentence);
    assert!(both.verdict.sentence.contains(" at 32 clients (its own best: 3,8"), "{}", both.verdict.sentence);
    assert!(
        both.beside[0].verdict.sentence.starts_with("peaks at 3,8"),
        "{}",
        both.beside[0].verdict.sentence
    );
    assert!(!both.beside[0].limits.is_empty() && both.verdict.held);

    refused(&mut run.beside[0], 7, 100, "no more");
    let broken = concluded(run);
    assert!(!broken.verdict.held && !broken.beside[0].verdict.held);
    let said = "on pooled, at 128 clients 28 could not connect or were lost: no more";
    assert!(broken.verdict.sentence.contains(said), "{}", broken.verdict.sentence);
    assert_eq!(broken.exit_code(), 3);
    let mut same = swept(&COUNTS, usl);
    same.beside = vec![swept(&COUNTS, usl)];
    let same = concluded(same);
    assert!(same.verdict.sentence.contains("direct cannot be told from direct"), "{}", same.verdict.sentence);
}

#[test]
fn judging_a_stored_sweep_again_changes_nothing() {
    let mut run = swept(&COUNTS, usl);
    run.beside = vec![swept(&COUNTS, servers(16.0))];
    let once = concluded(run);
    assert_eq!(concluded(once.clone()), once);
    let stored: RunResult = serde_json::from_str(&serde_json::to_string(&once).unwrap()).unwrap();
    let again = concluded(stored);
    assert_eq!((&again.verdict, &again.warnings), (&once.verdict, &once.warnings));
    assert_eq!(again.beside[0].verdict, once.beside[0].verdict);
}

#[test]
fn what_is_no_sweep_is_not_touched() {
    let run = concluded(testing::run());
    assert_eq!(super::full_at_the_peak(&run), None);
    assert!(super::warnings(&run).is_empty());
}
