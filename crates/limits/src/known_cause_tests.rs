//! A cause must be told from its symptoms, and from what merely looks like it.

use model::result::{Purpose, Side, Status};
use model::{FailureKind, Latency, RunResult, units};

use crate::testing::{self, concluded, finding};

fn first(run: RunResult) -> Option<String> {
    concluded(run).verdict.first_limit
}

fn status(run: RunResult, id: &str) -> Status {
    finding(run, id).status
}

#[test]
fn descriptors_are_named_before_the_queue_that_fills_behind_them() {
    let mut run =
        testing::broken_at(1_017, &[(500, Purpose::Ramp), (2_000, Purpose::Ramp)], FailureKind::Silent);
    testing::nofile(&mut run, 1_024);
    run.stages[1].tcp.listen_overflows = Some(900);
    run.after.tcp.listen_overflows = Some(900);
    assert_eq!(status(run.clone(), "listen.accept-queue"), Status::Hit);
    assert_eq!(first(run).as_deref(), Some("server.nofile"));
}

#[test]
fn what_only_the_kernel_accepted_is_told_apart_from_what_nobody_did() {
    let mut run = testing::broken_at(
        1_017,
        &[(500, Purpose::Ramp), (2_000, Purpose::Ramp)],
        FailureKind::ConnectTimeout,
    );
    testing::nofile(&mut run, 1_024);
    let told = |run: &RunResult| {
        finding(run.clone(), "server.nofile")
            .evidence
            .into_iter()
            .find(|line| line.contains("never answered"))
    };
    assert_eq!(told(&run), None, "the kernel accepted none of them");
    testing::fail(&mut run.stages[1], FailureKind::ReadyTimeout, 129);
    let holds = run.after.listener.as_ref().map(|l| l.backlog).unwrap();
    let line = told(&run).unwrap();
    assert!(line.starts_with("129 of them were accepted by the kernel, and never answered"), "{line}");
    assert!(line.contains(&format!("(which holds {}, and one more)", units::count(holds))), "{line}");
    run.before.listener = None;
    run.after.listener = None;
    run.stages.iter_mut().for_each(|stage| stage.listener = None);
    assert!(told(&run).unwrap().contains("the accept queue also where"));
}

#[test]
fn descriptors_are_named_before_a_number_that_looks_like_a_setting() {
    for kind in [FailureKind::Closed, FailureKind::Reset, FailureKind::ClosedEarly] {
        let mut run = testing::broken_at(987, &testing::search_of_987(), kind);
        assert_eq!(first(run.clone()).as_deref(), Some("server.max-connections"), "{kind}");
        testing::nofile(&mut run, 994);
        assert_eq!(status(run.clone(), "server.max-connections"), Status::Clear, "{kind}");
        assert_eq!(first(run).as_deref(), Some("server.nofile"), "{kind}");
    }
}

#[test]
fn descriptors_near_the_limit_explain_nothing_while_nothing_fails() {
    let mut run = testing::run();
    run.settings.target[0].nofile_soft = Some(10_008);
    assert_eq!(status(run.clone(), "server.nofile"), Status::Near);
    assert_eq!(first(run), None);
}

#[test]
fn our_own_lack_of_ports_is_not_the_servers_lack_of_descriptors() {
    let mut run = testing::run();
    testing::fail_last(&mut run, FailureKind::NoPorts, 772);
    testing::nofile(&mut run, 10_007 - 772);
    let run = concluded(run);
    assert_eq!(run.verdict.first_limit.as_deref(), Some("client.ephemeral-ports"));
    assert!(!run.verdict.trusted);
}

#[test]
fn one_attempt_is_not_a_number_of_the_servers_own() {
    let mut run = testing::run();
    testing::fail_last(&mut run, FailureKind::ClosedEarly, 13);
    let found = finding(run.clone(), "server.max-connections");
    assert_eq!((found.status, found.ceiling_connections), (Status::Unknown, None));
    assert_eq!(first(run), None);
}

#[test]
fn one_stage_is_a_number_of_the_servers_own_if_only_new_connections_were_closed() {
    let mut run = testing::broken_at(200, &[(200, Purpose::Ramp), (300, Purpose::Ramp)], FailureKind::Closed);
    run.connections.closed_age = Some(Latency { max_ms: 1.8, ..testing::latency(1.5) });
    let found = finding(run.clone(), "server.max-connections");
    assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(200)), "{found:?}");
    // Old ones were among them: it may as well be a time-out.
    run.connections.closed_age = Some(Latency { max_ms: 30_000.0, ..testing::latency(1.5) });
    assert_eq!(status(run, "server.max-connections"), Status::Unknown);
}

#[test]
fn a_server_that_makes_room_stands_about_where_its_number_is() {
    let sizes = [100, 200, 250, 300, 350].map(|n| (n, Purpose::Ramp));
    let mut run = testing::broken_at(185, &sizes, FailureKind::Closed);
    for (stage, stood) in run.stages.iter_mut().skip(1).zip([177, 181, 185, 166]) {
        (stage.verified, stage.ready) = (stood, stood);
    }
    run.connections.closed_age = Some(Latency { max_ms: 3_000.0, ..testing::latency(2_000.0) });
    let found = finding(run.clone(), "server.max-connections");
    assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(185)), "{found:?}");
    assert!(found.summary.contains("closes idle ones"), "{}", found.summary);
    run.stages[4].verified = 90;
    assert_eq!(status(run, "server.max-connections"), Status::Unknown);
}

#[test]
fn a_server_that_stops_to_accept_while_it_has_time_has_a_number() {
    let mut run = testing::broken_at(200, &[(200, Purpose::Ramp), (300, Purpose::Ramp)], FailureKind::Silent);
    run.stages[1].listener.as_mut().unwrap().queued = 100;
    run.stages[1].target.as_mut().unwrap().busiest_thread_cpus = Some(0.02);
    let found = finding(run.clone(), "server.max-connections");
    assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(200)), "{found:?}");
    assert!(found.summary.contains("stops to accept"), "{}", found.summary);
    // It is busy: it may just not have come to it.
    run.stages[1].target.as_mut().unwrap().busiest_thread_cpus = Some(0.98);
    assert_ne!(status(run.clone(), "server.max-connections"), Status::Hit);
    run.stages[1].target.as_mut().unwrap().busiest_thread_cpus = Some(0.02);
    run.stages[1].listener.as_mut().unwrap().queued = 0;
    assert_ne!(status(run, "server.max-connections"), Status::Hit);
}

#[test]
fn the_servers_words_are_quoted() {
    let mut run =
        testing::broken_at(97, &[(50, Purpose::Ramp), (100, Purpose::Ramp)], FailureKind::ServerRefused);
    let words = "FATAL: sorry, too many clients already (53300)";
    run.connections.failed_example.insert(FailureKind::ServerRefused, words.into());
    run.settings.target[0].name = "postgres".into();
    let found = finding(run, "server.max-connections");
    assert_eq!(found.ceiling_connections, Some(97));
    assert!(found.evidence.iter().any(|e| e.contains(words)), "{:?}", found.evidence);
    assert!(
        found.remedy[0].starts_with("psql -c 'ALTER SYSTEM SET max_connections = 120000'"),
        "{:?}",
        found.remedy
    );
}

#[test]
fn a_dead_target_is_not_a_setting() {
    let mut run = testing::broken_at(987, &testing::search_of_987(), FailureKind::Reset);
    run.after.target.as_mut().unwrap().processes = 0;
    run.connections.held = 0;
    let run = concluded(run);
    assert_eq!(run.verdict.first_limit, None);
    assert!(run.verdict.sentence.starts_with("the target died"), "{}", run.verdict.sentence);
    assert!(run.limits.iter().all(|f| f.status != Status::Hit), "{:?}", run.limits);
}

#[test]
fn a_target_killed_for_want_of_memory_names_it() {
    let mut run = testing::run();
    testing::memory_limit(&mut run, 64 << 20, |n| 20_000_000 + n * 4_000);
    testing::lose(&mut run, FailureKind::Reset, 10_000);
    run.after.target.as_mut().unwrap().processes = 0;
    run.after.target.as_mut().unwrap().cgroup.as_mut().unwrap().oom_kills = Some(1);
    // The kernel counts a kill inside a cgroup on the host as well.
    run.after.host.oom_kills = Some(4);
    assert_ne!(status(run.clone(), "host.memory"), Status::Hit);
    assert_eq!(first(run.clone()).as_deref(), Some("server.memory"));
    testing::memory_limit(&mut run, 64 << 20, |n| 20_000_000 + n * 4_000);
    assert_eq!(first(run).as_deref(), Some("host.memory"));
}

#[test]
fn an_overflow_that_healed_is_hit_but_did_not_break_anything() {
    let mut run = testing::run();
    run.after.tcp.listen_overflows = Some(45);
    let seen = concluded(run.clone());
    assert_eq!(seen.verdict.first_limit, None);
    assert!(seen.verdict.held);
    assert!(seen.warnings.iter().any(|w| w.contains("overflowed 5 times")), "{:?}", seen.warnings);
    run.establish.phases.insert("tcp".into(), testing::latency(1_020.0));
    assert_eq!(first(run).as_deref(), Some("listen.accept-queue"));
}

#[test]
fn overflows_of_another_hosts_counters_mean_nothing() {
    let mut run = testing::run();
    testing::hide_target(&mut run);
    run.after.tcp.listen_overflows = Some(9_000);
    assert_eq!(status(run, "listen.accept-queue"), Status::Unknown);
}

#[test]
fn a_full_page_cache_alone_is_not_a_broken_server() {
    let mut run = testing::run();
    testing::memory_limit(&mut run, 100_000_000, |n| 59_500_000 + n * 4_000);
    assert_eq!(status(run.clone(), "server.memory"), Status::Near);
    testing::fail_last(&mut run, FailureKind::Silent, 1);
    assert_eq!(status(run, "server.memory"), Status::Hit);
}

#[test]
fn memory_ceilings_come_from_measured_costs() {
    let memory = finding(testing::run(), "host.memory");
    assert_eq!(memory.ceiling_connections, Some((20_u64 << 30) / 6_700));
    assert_eq!(memory.ceiling_low, memory.ceiling_connections);
    let mut limited = testing::run();
    testing::memory_limit(&mut limited, 100_000_000, |n| 20_000_000 + n * 4_000);
    let server = finding(limited, "server.memory");
    assert_eq!((server.status, server.ceiling_connections), (Status::Clear, Some(20_000)));
    assert!(server.remedy.contains(&"MemoryMax=96M".to_owned()), "{:?}", server.remedy);
}

#[test]
fn elsewhere_the_memory_judged_is_the_generators() {
    let mut run = testing::run();
    testing::hide_target(&mut run);
    let memory = finding(run, "host.memory");
    assert_eq!((memory.side, memory.status), (Side::Client, Status::Clear));
    assert_eq!(memory.ceiling_connections, Some((20_u64 << 30) / 5_700));
}

#[test]
fn several_processes_share_the_descriptors() {
    let mut run = testing::doctor(100_000);
    let one = run.settings.target[0].clone();
    run.settings.target = vec![one; 4];
    let found = finding(run, "server.nofile");
    assert_eq!(found.ceiling_connections, Some(4 * 19_993));
    assert!(found.remedy.contains(&"LimitNOFILE=31000".to_owned()), "{:?}", found.remedy);
}

#[test]
fn ports_count_by_sources_that_can_be_had() {
    let mut run = testing::doctor(100_000);
    run.settings.sources_available = 3;
    run.settings.sources = vec!["10.0.0.5".into()];
    run.target.addresses = vec!["10.0.0.9".into()];
    run.settings.same_host = false;
    let found = finding(run.clone(), "client.ephemeral-ports");
    assert_eq!((found.status, found.ceiling_connections), (Status::Near, Some(3 * 14_116)));
    assert!(found.remedy.contains(&"ip addr add 10.0.0.6/32 dev $DEV".to_owned()), "{:?}", found.remedy);
    assert!(
        found.remedy.iter().any(|l| l.ends_with("--source 10.0.0.5,10.0.0.6-10.0.0.13")),
        "{:?}",
        found.remedy
    );
    run.spec.sources = vec!["10.0.0.5".into()];
    assert_eq!(finding(run, "client.ephemeral-ports").ceiling_connections, Some(14_116));
}

#[test]
fn fixed_workers_bound_the_generator() {
    let mut run = testing::doctor(100_000);
    assert_eq!(finding(run.clone(), "client.nofile").status, Status::Clear);
    run.spec.workers = Some(2);
    let found = finding(run, "client.nofile");
    assert_eq!((found.status, found.ceiling_connections), (Status::Near, Some(2 * 19_984)));
    assert!(found.remedy[0].ends_with("--workers 7"), "{:?}", found.remedy);
}

/// A plain ramp as it is conducted: it stops where nothing more is held, then holds what stands.
#[test]
fn a_ramp_that_stops_at_a_number_names_the_setting() {
    let sizes =
        [(500, Purpose::Ramp), (1_000, Purpose::Ramp), (1_500, Purpose::Ramp), (1_500, Purpose::Confirm)];
    let mut run = testing::broken_at(987, &sizes, FailureKind::ClosedEarly);
    run.spec.until_it_breaks = false;
    run.stages[3].failed.clear();
    let run = concluded(run);
    assert_eq!((run.line.connections, run.line.broke), (500, true));
    assert_eq!(run.verdict.first_limit.as_deref(), Some("server.max-connections"));
    assert!(!run.verdict.held);
    let found = run.limits.iter().find(|f| f.id == "server.max-connections").unwrap();
    assert_eq!(found.ceiling_connections, Some(987));
}

#[test]
fn a_held_stage_that_repeats_the_last_size_changes_no_cost() {
    let once = concluded(testing::run());
    let mut run = testing::run();
    let mut held = run.stages[9].clone();
    held.purpose = Purpose::Confirm;
    held.seconds = 0.0;
    held.target.as_mut().unwrap().user_bytes = Some(90_000_000);
    run.stages.push(held);
    let run = concluded(run);
    assert_eq!(run.line.connections, 10_000);
    assert_eq!(run.cost.target.user_bytes_per_connection, once.cost.target.user_bytes_per_connection);
    assert_eq!(run.verdict, once.verdict);
}

#[test]
fn a_kill_that_took_the_whole_group_along_is_the_groups_while_the_host_had_memory() {
    let mut run = testing::run();
    testing::memory_limit(&mut run, 64 << 20, |n| 20_000_000 + n * 4_000);
    testing::fail_last(&mut run, FailureKind::Reset, 10_000);
    run.connections.held = 0;
    run.after.target = Some(model::Group::default());
    run.after.host.oom_kills = Some(4);
    run.after.host.memory_available_bytes = Some(20 << 30);
    assert_eq!(first(run.clone()).as_deref(), Some("server.memory"));
    run.after.host.memory_available_bytes = Some(1 << 30);
    assert_eq!(first(run).as_deref(), Some("host.memory"));
}

#[test]
fn a_kill_in_a_strangers_group_is_not_the_hosts_while_it_has_memory() {
    let mut run = testing::run();
    testing::fail_last(&mut run, FailureKind::Reset, 3);
    run.after.host.oom_kills = Some(4);
    assert_ne!(status(run.clone(), "host.memory"), Status::Hit);
    run.after.host.memory_available_bytes = Some(1 << 30);
    assert_eq!(status(run, "host.memory"), Status::Hit);
}
