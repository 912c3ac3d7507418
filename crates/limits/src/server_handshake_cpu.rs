//! Do handshakes or logins fill the server's CPU?

use model::result::{Finding, Side, Stage, Status};
use model::{FailureKind, RunResult, units};

use crate::sides::share_a_host;
use crate::{Limit, LimitFacts, busy, cgroup, evidence, nice};

/// The CPU that becoming ready costs the server, far above that of being held.
pub(crate) struct ServerHandshakeCpu;

static FACTS: LimitFacts = LimitFacts {
    id: "server.handshake-cpu",
    side: Side::Server,
    question: "Do handshakes or logins fill the server's CPU?",
    doc: "A TLS handshake costs the server a signature, a login with a slow password hash far more: \
          milliseconds of CPU. While connections come, it has none left, and they wait for one another, \
          although it could hold them easily.",
    how_to_see: "perf top -p PID; top -H -p PID, while connections come and after",
    remedy_doc: "Resumed TLS sessions, ECDSA in place of RSA, fewer rounds of password hashing, more CPU, a \
        slower ramp.",
};

/// From this share of the CPU that it may use on, it has none left.
const FULL: f64 = 0.9;

impl Limit for ServerHandshakeCpu {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let what = costly(run);
        let full: Vec<(usize, &Stage, f64)> = full(run);
        let rate = |stage: &Stage| {
            let rate = stage.established as f64 / stage.seconds.max(1e-3);
            units::count(nice::about(rate as u64))
        };
        let seen = run.stages.iter().any(|s| cpus(s).is_some());
        let met = full.iter().find(|(_, stage, _)| broken(run, stage));
        let (status, summary) = match (what, met, full.first()) {
            _ if evidence::not_begun(run) => (
                Status::Unknown,
                "unknown until measured: what a handshake costs shows as connections come".to_owned(),
            ),
            (None, ..) => {
                (Status::Clear, "neither TLS nor a login is most of what a connection waits for".to_owned())
            }
            _ if run.before.target.is_none() => (Status::Unknown, evidence::hidden(run)),
            (Some(what), Some((number, stage, _)), _) => (
                Status::Hit,
                format!(
                    "{what} fills the target's CPU at {} a second, in stage {number}; connections wait",
                    rate(stage)
                ),
            ),
            (Some(what), None, Some((_, stage, _))) => (
                Status::Clear,
                format!("{what} fills the target's CPU at {} a second; all were in time", rate(stage)),
            ),
            (Some(_), None, None) if !seen => {
                (Status::Unknown, "the target's CPU while connections came was not read".to_owned())
            }
            (Some(what), None, None) => (
                Status::Clear,
                format!(
                    "{what} left the target CPU at {} a second",
                    units::count(nice::about(run.establish.rate_per_second.max(0.0) as u64))
                ),
            ),
        };
        let mut finding = FACTS.finding(status, summary);
        finding.evidence = read(run, &full);
        finding.remedy = remedy(run, what);
        finding
    }
}

/// What most of becoming ready is spent in, in words; `None`: neither TLS nor a login.
fn costly(run: &RunResult) -> Option<&'static str> {
    let median = |phase: &str| run.establish.phases.get(phase).map(|l| l.p50_ms);
    let (tls, auth) = (median("tls").unwrap_or(0.0), median("auth").unwrap_or(0.0));
    let most = tls + auth > 0.0 && tls + auth >= 0.5 * median("ready").unwrap_or(0.0);
    most.then_some(if tls >= auth { "the TLS handshake" } else { "the login" })
}

/// CPUs of the target while a stage's connections were established.
fn cpus(stage: &Stage) -> Option<f64> {
    let used = stage.establishing.filter(|used| used.seconds > 0.0)?;
    Some(used.target_cpu_seconds? / used.seconds)
}

/// CPUs that the target could have used then: on one host with the generator, what that leaves.
fn left(run: &RunResult, stage: &Stage) -> f64 {
    let usable = busy::usable(run);
    let generator = stage.establishing.filter(|used| used.seconds > 0.0 && share_a_host(run));
    let generator =
        generator.and_then(|used| Some(used.generator_cpu_seconds? / used.seconds)).unwrap_or(0.0);
    // The generator's part is measured a little apart; a quota is exact, however small.
    usable.min((f64::from(run.host.cpus.max(1)) - generator).max(0.1))
}

/// The stages in whose opening the target had no CPU left: number, stage, CPUs used.
fn full(run: &RunResult) -> Vec<(usize, &Stage, f64)> {
    let stages = run.stages.iter().enumerate().filter_map(|(i, s)| Some((i + 1, s, cpus(s)?)));
    stages.filter(|(_, stage, cpus)| *cpus >= FULL * left(run, stage)).collect()
}

/// Whether connections came later than the objective, or not at all.
fn broken(run: &RunResult, stage: &Stage) -> bool {
    let objective_ms = run.spec.objective_seconds * 1e3;
    stage.ready_latency.is_some_and(|l| l.p99_ms > objective_ms)
        || evidence::stage_failures(stage, &[FailureKind::ReadyTimeout, FailureKind::ConnectTimeout]) > 0
}

fn read(run: &RunResult, full: &[(usize, &Stage, f64)]) -> Vec<String> {
    let mut out = Vec::new();
    for phase in ["tls", "auth", "ready"] {
        if let Some(latency) = run.establish.phases.get(phase) {
            out.push(format!(
                "phase {phase}: median {}, 99th percentile {}",
                units::milliseconds(latency.p50_ms),
                units::milliseconds(latency.p99_ms)
            ));
        }
    }
    const QUOTED: usize = 3;
    for (number, stage, cpus) in full.iter().take(QUOTED) {
        out.push(format!(
            "stage {number}: the target used {cpus:.2} of {:.2} CPUs while {} connections became ready in {}",
            left(run, stage),
            units::count(stage.established),
            units::seconds(stage.seconds)
        ));
    }
    let idle = run.stages.iter().rev().find_map(|s| s.idle).filter(|idle| idle.seconds > 0.0);
    if let Some(cpus) = idle.and_then(|idle| Some(idle.target_cpu_seconds? / idle.seconds)) {
        out.push(format!("it used {cpus:.2} CPUs while they were held"));
    }
    out
}

fn remedy(run: &RunResult, what: Option<&str>) -> Vec<String> {
    let mut out = cgroup::all_cpus_for_target(run);
    out.extend(match (evidence::target_name(run), what) {
        (Some("postgres"), Some("the login")) => {
            vec![
                "psql -c \"SET scram_iterations = 1024\" # then set its password anew; 16 or later"
                    .to_owned(),
            ]
        }
        (Some("nginx"), _) => {
            vec!["ssl_session_cache shared:SSL:50m; ssl_session_timeout 1h; # nginx.conf, in http".to_owned()]
        }
        _ => vec![
            "# let clients resume TLS sessions; keep connections open in place of logging in anew".to_owned(),
        ],
    });
    if what != Some("the login") {
        out.push(
            "# an ECDSA certificate costs the server far less than an RSA one; ask your authority for it:"
                .to_owned(),
        );
        out.push(format!(
            "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out \
             request.pem -subj /CN={}",
            run.spec.target.host
        ));
    }
    let rate = run.establish.rate_per_second / 2.0;
    let rate = if rate >= 1.0 { nice::about(rate as u64) } else { 100 };
    out.push("# or let them come more slowly:".to_owned());
    out.push(format!("plimsoll hold {} -c {} --rate {rate}", run.target.url, evidence::asked(run)));
    out
}
