//! Is the law found that a server is known to follow, with its peak and where it saturates?

use std::process::Command;

use model::RunResult;
use model::sweep::{Reading, Shape};
use testkit::law::{self, Law, Server};

use crate::harness::{Ended, PLIMSOLL, alone, directory, start_command, trusted};

/// Runs a quiet sweep over servers that follow a law.
fn sweep(servers: &[&Server], flags: &[&str]) -> Ended {
    let directory = directory();
    let mut command = Command::new(PLIMSOLL);
    command.arg("sweep").args(servers.iter().map(|server| format!("tcp://{}", server.addr)));
    command.args(["--workers", "1", "--quiet"]).args(flags);
    command.arg("--json").arg(directory.path().join("result.json"));
    start_command(directory, command).finish()
}

fn reading(result: &RunResult) -> &Reading {
    &result.sweep.as_ref().expect("what was swept").reading
}

fn close(found: f64, truth: f64, within: f64) -> bool {
    (found / truth - 1.0).abs() <= within
}

#[test]
fn contention_and_coherency_are_measured_and_the_peak_is_where_they_put_it() {
    let _alone = alone();
    let truth = Law::Usl { seconds: 0.02, sigma: 0.05, kappa: 0.002 };
    let ended = trusted(|| {
        let server = law::start(truth).expect("a server");
        let flags = ["-c", "1,2,4,8,14,22,36,60", "--warm-up", "500ms", "--measure", "1300ms"];
        sweep(&[&server], &flags)
    });
    ended.expect_code(0);
    let result = ended.result();
    let reading = reading(&result);
    for count in &reading.counts {
        let (found, law) =
            (count.per_second.expect("a throughput").value, truth.per_second(count.clients as f64));
        assert!(count.good && close(found, law, 0.05), "{count:?}, not {law}");
        assert!(close(count.little_clients, count.clients as f64, 0.05), "{count:?}");
    }
    let law = reading.usl.unwrap_or_else(|| panic!("{:?}", reading.usl_refused));
    assert!(close(law.lambda.value, 50.0, 0.1), "{law:?}");
    assert!(close(law.sigma.value, 0.05, 0.1) && close(law.kappa.value, 0.002, 0.1), "{law:?}");
    // the square root of (1 - 0.05) / 0.002
    assert!(close(law.peak_clients.expect("a peak"), 21.79, 0.05), "{law:?}");
    let peak = reading.peak.expect("a peak");
    assert!(peak.clients_low <= 22 && peak.clients_high >= 22, "{peak:?}");
    assert!(close(peak.per_second.value, truth.per_second(21.79), 0.05), "{peak:?}");
    assert_eq!(reading.shape, Some(Shape::Falling));
    assert_eq!(result.verdict.first_limit, None, "{}", result.verdict.sentence);
}

#[test]
fn a_rate_beyond_the_server_queues_by_the_schedule_and_is_left_unmet_in_good_time() {
    let _alone = alone();
    // 200 a second, of which 400 are asked: half of them stay due, and the last to be answered has waited as long
    let truth = Law::Servers { servers: 2, seconds: 0.01 };
    let ended = trusted(|| {
        let server = law::start(truth).expect("a server");
        let flags =
            ["-c", "20", "--rate", "400/s", "--warm-up", "500ms", "--measure", "3s", "--objective", "100ms"];
        sweep(&[&server], &flags)
    });
    ended.expect_code(0);
    assert!(ended.seconds < 10.0, "what stays due is not waited for: {}", ended.said());
    let result = ended.result();
    let point = &result.sweep.as_ref().expect("what was swept").points[0];
    assert!(close(point.operations as f64, 600.0, 0.05) && point.due == Some(1_200), "{point:?}");
    // 600 of this time, and 100 that the warm-up left, but for those of the 20 clients that are under way
    assert!(point.unmet.is_some_and(|n| (660..=700).contains(&n)), "{point:?}");
    let latency = point.latency.expect("latencies");
    assert!(close(latency.max_ms, 1_750.0, 0.05) && close(latency.mean_ms, 1_000.0, 0.05), "{latency:?}");
    assert_eq!(result.sweep.as_ref().and_then(|seen| seen.reading.saturation), None);
    let sentence = &result.verdict.sentence;
    assert!(sentence.starts_with("answers 200/s of the 400/s that come due, with 20 clients"), "{sentence}");
}

#[test]
fn a_fixed_number_of_servers_is_no_such_law_and_a_slower_one_is_set_beside_it() {
    let _alone = alone();
    let truth = Law::Servers { servers: 8, seconds: 0.12 };
    let slower = Law::Servers { servers: 8, seconds: 0.144 };
    let ended = trusted(|| {
        let servers = [truth, slower].map(|law| law::start(law).expect("a server"));
        // 33 clients wait 495 ms each on average; if the servers begin together, 32 wait for four rounds and more for five
        let flags = ["-c", "1,8,16,32,34", "--objective", "495ms", "--label", "quick", "--label", "slow"];
        sweep(&servers.each_ref(), &[&flags[..], &["--warm-up", "600ms", "--measure", "2s"]].concat())
    });
    ended.expect_code(0);
    let result = ended.result();
    let reading = reading(&result);
    let peak = reading.peak.expect("a peak");
    assert!(close(peak.per_second.value, 8.0 / 0.12, 0.05), "{peak:?}");
    assert_eq!(peak.clients_low, 8, "{peak:?}");
    let saturation = reading.saturation.expect("it keeps the objective with few");
    assert!(close(saturation.clients as f64, 33.0, 0.05), "{saturation:?}");
    assert_eq!(saturation.missed_at, Some(34));
    assert_eq!(reading.shape, Some(Shape::Queueing));
    assert_eq!(reading.usl, None);
    let why = reading.usl_refused.as_deref().expect("a reason");
    assert!(why.contains("the best fit"), "{why}");

    assert_eq!(result.differences.len(), 5);
    // with fewer clients an operation more or less is some percent
    for difference in result.differences.iter().filter(|difference| difference.clients >= 8) {
        let share = difference.share.expect("both were measured");
        // 120 ms against 144 ms; eight answers come at a time, so that the interval is wide
        assert!((share.value + 1.0 / 6.0).abs() < 0.06 && share.contains(-1.0 / 6.0), "{difference:?}");
    }
    let sentence = &result.verdict.sentence;
    assert!(sentence.starts_with("throughput levels off at "), "{sentence}");
    assert!(sentence.contains("; slow ") && sentence.contains(" quick"), "{sentence}");
}
