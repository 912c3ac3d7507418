//! Over the whole slice: what every limit must have.

use std::collections::BTreeSet;

use model::observation::TcpCounters;
use model::result::{Purpose, Status};
use model::{FailureKind, RunResult};

use crate::server_testing as server;
use crate::sweep_testing as swept;
use crate::testing::{self, concluded, finding};
use crate::{LIMITS, doctor};

/// A run in which the limit is hit, one in which it is clear, and one in which it is unknown.
fn fixtures(id: &str) -> [RunResult; 3] {
    let clear = testing::run();
    let mut hit = testing::run();
    let mut unknown = testing::run();
    match id {
        "client.ephemeral-ports" => {
            testing::fail_last(&mut hit, FailureKind::NoPorts, 772);
            unknown.settings.connections_per_source = 0;
        }
        "client.nofile" => {
            testing::fail_last(&mut hit, FailureKind::NoDescriptors, 3);
            (unknown.settings.worker.nofile_soft, unknown.settings.worker.nofile_hard) = (None, None);
        }
        "client.cpu" => {
            testing::throttle(&mut hit, 3..=10);
            unknown.stages.iter_mut().for_each(|s| s.generator_lag = None);
        }
        "server.nofile" => {
            hit = testing::broken_at(
                1_017,
                &[(500, Purpose::Ramp), (2_000, Purpose::Ramp)],
                FailureKind::Silent,
            );
            testing::nofile(&mut hit, 1_024);
            testing::hide_target(&mut unknown);
        }
        "server.memory" => {
            testing::memory_limit(&mut hit, 64 << 20, |n| 20_000_000 + n * 4_000);
            hit.after.target.as_mut().unwrap().cgroup.as_mut().unwrap().oom_kills = Some(1);
            testing::hide_target(&mut unknown);
        }
        "host.memory" => {
            hit.after.host.oom_kills = Some(4);
            hit.after.host.memory_available_bytes = Some(1 << 30);
            testing::hide_target(&mut unknown);
            unknown.stages.truncate(1);
        }
        "server.max-connections" => {
            hit = testing::broken_at(987, &testing::search_of_987(), FailureKind::ServerRefused);
            unknown = testing::doctor(10_000);
        }
        "server.threads" => {
            let sizes = [(500, Purpose::Ramp), (2_000, Purpose::Ramp)];
            hit = testing::broken_at(997, &sizes, FailureKind::ClosedEarly);
            server::threads(&mut hit, 1, 1_000);
            testing::hide_target(&mut unknown);
        }
        "server.heap" => {
            server::heap(&mut hit, 64 << 20, |n| 4_000_000 + n * 6_200, 0.01);
            testing::fail_last(&mut hit, FailureKind::Silent, 13);
            testing::hide_target(&mut unknown);
        }
        "server.cpu" => {
            server::work(&mut hit, 1.0, 0.99);
            testing::fail_last(&mut hit, FailureKind::Silent, 13);
            testing::hide_target(&mut unknown);
        }
        "server.idle-timeout" => {
            server::closed_at_one_age(&mut hit, 97, (60_000.0, 60_100.0), (60_000.0, 75_000.0));
            unknown = testing::doctor(10_000);
        }
        "server.stall" => {
            server::stall(&mut hit, 3);
            unknown.spec.heartbeat_seconds = None;
        }
        "server.accept-rate" => {
            server::accept_slowly(&mut hit, 3);
            hit.establish.phases.insert("tcp".into(), testing::latency(1_020.0));
            testing::hide_target(&mut unknown);
        }
        "server.handshake-cpu" => {
            server::handshakes(&mut hit, "tls", 1.9);
            hit.stages[9].ready_latency = Some(testing::latency(2_500.0));
            server::handshakes(&mut unknown, "tls", 1.9);
            testing::hide_target(&mut unknown);
        }
        "listen.accept-queue" => {
            hit.after.tcp.listen_overflows = Some(1_040);
            testing::hide_target(&mut unknown);
            unknown.before.tcp = TcpCounters::default();
        }
        "host.file-max" => {
            testing::fail_last(&mut hit, FailureKind::NoDescriptors, 3);
            hit.settings.host.file_max = Some(21_000);
            unknown.before.host.files = None;
        }
        "host.conntrack" => {
            testing::fail_last(&mut hit, FailureKind::ConnectTimeout, 30);
            hit.settings.host.conntrack_max = Some(10_050);
            unknown.before.host.conntrack = None;
        }
        "host.tcp-memory" => {
            hit.after.tcp.aborts_on_memory = Some(6);
            testing::blind(&mut unknown);
        }
        "host.cpu" => {
            testing::busy(&mut hit, 10, 1.7, 0.2);
            testing::fail_last(&mut hit, FailureKind::Silent, 30);
            testing::blind(&mut unknown);
        }
        "listen.syn-queue" => {
            testing::fail_last(&mut hit, FailureKind::ConnectTimeout, 30);
            hit.stages[9].tcp.request_queue_drops = Some(40);
            testing::blind(&mut unknown);
        }
        "client.port-search" => {
            hit = testing::sized(20_000, 10);
            hit.settings.sources.truncate(1);
            testing::open_at(&mut hit, 2.0, 2.0);
            unknown.settings.host.port_range = None;
        }
        "client.memory" => {
            testing::fail_last(&mut hit, FailureKind::NoMemory, 3);
            unknown.before.host.memory_available_bytes = None;
        }
        "pooler.queue" => {
            hit = swept::swept(&[8, 16, 32, 64], swept::servers(10.0));
            swept::pooled(&mut hit, 10, Some(100));
            unknown = swept::swept(&[8, 16, 32, 64], swept::servers(10.0));
        }
        "pool.too-small" | "pool.churn" | "pool.budget" => return pool_fixtures(id),
        other => panic!("{other} has no fixtures; write them beside the others"),
    }
    [hit, clear, unknown]
}

/// The same of a churn.
fn pool_fixtures(id: &str) -> [RunResult; 3] {
    let [mut hit, mut clear, mut unknown] = [(); 3].map(|()| crate::churn::tests::run());
    let cells = |run: &mut RunResult| std::mem::take(&mut run.churn.as_mut().unwrap().cells);
    match id {
        "pool.too-small" => hit.churn.as_mut().unwrap().cells[0].timeouts = 3,
        "pool.churn" => {
            hit.churn.as_mut().unwrap().cells.truncate(1);
            clear.churn.as_mut().unwrap().cells.remove(0);
        }
        _ => {
            hit.spec.churn.as_mut().unwrap().instances = 60;
            unknown.spec.churn.as_mut().unwrap().server_limit = None;
        }
    }
    if id != "pool.budget" {
        cells(&mut unknown);
    }
    [hit, clear, unknown]
}

#[test]
fn ids_are_unique_and_in_the_catalogues_form() {
    let ids: BTreeSet<&str> = LIMITS.iter().map(|l| l.facts().id).collect();
    assert_eq!(ids.len(), LIMITS.len());
    for id in ids {
        assert!(
            id.split_once('.').is_some_and(|(owner, what)| !owner.is_empty() && !what.is_empty()),
            "{id}"
        );
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c == '.' || c == '-'), "{id}");
    }
}

#[test]
fn each_says_what_it_is() {
    for facts in LIMITS.iter().map(|l| l.facts()) {
        assert!(facts.question.ends_with('?'), "{}", facts.id);
        for text in [facts.doc, facts.how_to_see, facts.remedy_doc] {
            assert!(!text.is_empty() && !text.contains("  "), "{}: {text:?}", facts.id);
        }
    }
}

#[test]
fn each_has_a_hit_a_clear_and_an_unknown_case() {
    for id in LIMITS.iter().map(|l| l.facts().id) {
        let [hit, clear, unknown] = fixtures(id);
        assert_eq!(finding(hit, id).status, Status::Hit, "{id}");
        assert_eq!(finding(clear, id).status, Status::Clear, "{id}");
        assert_eq!(finding(unknown, id).status, Status::Unknown, "{id}");
    }
}

#[test]
fn a_healthy_run_hits_nothing() {
    let run = concluded(testing::run());
    for finding in &run.limits {
        assert_eq!(finding.status, Status::Clear, "{finding:?}");
    }
    assert!(run.verdict.held && run.verdict.trusted);
    assert_eq!(run.verdict.first_limit, None);
    assert_eq!(run.warnings, Vec::<String>::new());
}

#[test]
fn every_finding_has_a_remedy_and_proper_numbers() {
    for id in LIMITS.iter().map(|l| l.facts().id) {
        for run in fixtures(id) {
            for finding in concluded(run).limits {
                assert!(!finding.remedy.is_empty(), "{}", finding.id);
                assert!(!finding.summary.is_empty() && !finding.summary.contains("  "), "{finding:?}");
                for line in finding.remedy.iter().chain(&finding.evidence) {
                    let broken = ["NaN", "inf", "None", "Some(", "  ", "{}"].iter().any(|b| line.contains(b));
                    assert!(!broken && !line.is_empty(), "{}: {line}", finding.id);
                }
                if let (Some(low), Some(c)) = (finding.ceiling_low, finding.ceiling_connections) {
                    assert!(low <= c && finding.ceiling_high.is_none_or(|high| high >= c), "{finding:?}");
                }
            }
        }
    }
}

#[test]
fn only_what_was_hit_can_be_named_first() {
    for id in LIMITS.iter().map(|l| l.facts().id) {
        let [hit, clear, unknown] = fixtures(id).map(concluded);
        for run in [&hit, &clear, &unknown] {
            if let Some(first) = &run.verdict.first_limit {
                let named = run.limits.iter().find(|f| f.id == *first).unwrap();
                assert_eq!(named.status, Status::Hit, "{first}");
            }
        }
    }
}

#[test]
fn the_ladder_rises() {
    let run = concluded(testing::run());
    let ceilings: Vec<u64> = run.limits.iter().map(|f| f.ceiling_connections.unwrap_or(u64::MAX)).collect();
    assert!(ceilings.is_sorted(), "{ceilings:?}");
    assert_eq!(run.limits[0].id, "server.nofile");
    assert_eq!(run.limits[0].ceiling_connections, Some(19_993));
}

#[test]
fn judging_a_stored_run_again_changes_nothing() {
    for id in LIMITS.iter().map(|l| l.facts().id) {
        for run in fixtures(id) {
            let once = concluded(run);
            let stored: RunResult = serde_json::from_str(&serde_json::to_string(&once).unwrap()).unwrap();
            assert_eq!(concluded(stored), once, "{id}");
        }
    }
}

#[test]
fn the_doctor_answers_from_settings_alone() {
    for finding in doctor(&testing::doctor(10_000)) {
        assert!(!matches!(finding.status, Status::Hit), "{finding:?}");
    }
    let find = |asked, id: &str| doctor(&testing::doctor(asked)).into_iter().find(|f| f.id == id).unwrap();
    let nofile = find(50_000, "server.nofile");
    assert_eq!((nofile.status, nofile.ceiling_connections), (Status::Near, Some(19_993)));
    assert!(nofile.summary.starts_with("would stop at 19,993 of 50,000 asked: "), "{}", nofile.summary);
    assert!(
        nofile.remedy.contains(&"prlimit --pid 77 --nofile=61000:61000".to_owned()),
        "{:?}",
        nofile.remedy
    );
    assert!(nofile.remedy.contains(&"LimitNOFILE=61000".to_owned()));
    assert_eq!(find(10_000, "server.nofile").status, Status::Clear);

    let memory = find(10_000, "host.memory");
    assert_eq!(memory.status, Status::Unknown);
    assert!(memory.summary.contains("at least 5.2 to 7.8 kB"), "{}", memory.summary);
    assert_eq!(memory.ceiling_connections, Some((20_u64 << 30) / 7_800));
    assert_eq!(memory.ceiling_low, Some((20_u64 << 30) / 7_800));
    assert_eq!(memory.ceiling_high, Some((20_u64 << 30) / 5_200));
    assert!(find(5_000_000, "host.memory").summary.starts_with("would stop at 2,753,184 of 5,000,000"));
    assert_eq!(find(10_000, "client.cpu").status, Status::Unknown);
}
