//! Which host does a limit look at? Where the target has a host of its own and an observer reads it there, a run has two.

use model::RunResult;
use model::observation::Group;
use model::result::{Finding, Side};

use crate::Limit;

/// Judges a run by one limit: what is the client's by the generator's host, all else by the target's. `there` is the
/// run by [`from_the_target`].
pub(crate) fn judge(limit: &dyn Limit, run: &RunResult, there: Option<&RunResult>) -> Finding {
    match (limit.facts().side, there) {
        (Side::Client, _) | (_, None) => limit.judge(run),
        (side, Some(there)) => {
            let mut finding = limit.judge(there);
            // The generator's host can fill up as well; the worse of both is told.
            let here =
                (side == Side::Host).then(|| limit.judge(run)).filter(|here| here.status < finding.status);
            if let Some(here) = here {
                return here;
            }
            let name = run.target.host.as_ref().map_or("?", |host| host.name.as_str());
            finding.remedy.insert(0, format!("# on {name}, the target's host:"));
            finding
        }
    }
}

/// The run as it looks on the target's host: that host's readings in place of the generator's, of which nothing is
/// there. `None` where the generator's host is the target's, or the only one that is seen.
pub(crate) fn from_the_target(run: &RunResult) -> Option<RunResult> {
    let settings = run.settings.target_host.as_ref()?;
    let mut there = run.clone();
    there.settings.host = settings.clone();
    there.settings.same_host = true;
    there.host = run.target.host.clone().unwrap_or_default();
    for seen in [&mut there.before, &mut there.after] {
        let far = seen.target_host.clone().unwrap_or_default();
        (seen.host, seen.tcp) = (far.host, far.tcp);
        seen.generator = Some(Group::default());
    }
    for stage in &mut there.stages {
        let far = stage.target_host.clone().unwrap_or_default();
        (stage.host, stage.tcp) = (far.host, far.tcp);
        stage.generator = Some(Group::default());
        for used in [&mut stage.idle, &mut stage.establishing].into_iter().flatten() {
            used.generator_cpu_seconds = Some(0.0);
        }
    }
    for moment in &mut there.series {
        moment.generator_cpus = Some(0.0);
    }
    there.cost.shared_kernel_bytes_per_connection = there.cost.target.kernel_bytes_per_connection;
    Some(there)
}

/// Whether both ends share the host that is looked at: then each connection takes of it twice.
pub(crate) fn share_a_host(run: &RunResult) -> bool {
    run.settings.same_host && run.settings.target_host.is_none()
}

#[cfg(test)]
mod tests {
    use model::observation::{HostSettings, TargetHost};
    use model::result::{Host, Status};

    use super::*;
    use crate::testing::{self, concluded, finding};

    /// A healthy run against a host of its own, which an observer reads.
    fn elsewhere() -> RunResult {
        let mut run = testing::run();
        run.settings.same_host = false;
        run.settings.target_host = Some(HostSettings { somaxconn: Some(128), ..run.settings.host.clone() });
        run.target.host = Some(Host { name: "chat-1".into(), cpus: 8, ..run.host.clone() });
        let far = |host: &model::observation::HostReading| {
            Some(TargetHost { host: host.clone(), ..TargetHost::default() })
        };
        for seen in [&mut run.before, &mut run.after] {
            seen.target_host = far(&seen.host);
        }
        for stage in &mut run.stages {
            stage.target_host = far(&stage.host);
        }
        run
    }

    #[test]
    fn the_counters_of_the_targets_host_name_its_queue_and_those_of_ours_do_not() {
        let mut run = elsewhere();
        run.before.tcp.listen_overflows = Some(5);
        run.after.tcp.listen_overflows = Some(9_000);
        run.stages.iter_mut().for_each(|s| s.tcp.listen_overflows = Some(9_000));
        let overflows =
            |seen: &mut Option<TargetHost>, n| seen.as_mut().unwrap().tcp.listen_overflows = Some(n);
        overflows(&mut run.before.target_host, 7);
        overflows(&mut run.after.target_host, 7);
        run.stages.iter_mut().for_each(|s| overflows(&mut s.target_host, 7));
        let clear = finding(run.clone(), "listen.accept-queue");
        assert_eq!(clear.status, Status::Clear, "{clear:?}");
        overflows(&mut run.after.target_host, 40);
        overflows(&mut run.stages.last_mut().unwrap().target_host, 40);
        let hit = finding(run, "listen.accept-queue");
        assert_eq!(hit.status, Status::Hit, "{hit:?}");
        assert!(hit.evidence.iter().any(|e| e.contains("7 before, 40 after")), "{hit:?}");
        assert_eq!(hit.remedy[0], "# on chat-1, the target's host:");
    }

    #[test]
    fn memory_of_the_targets_host_is_the_targets_alone() {
        let run = elsewhere();
        let ours = concluded(testing::run());
        let theirs = finding(run.clone(), "host.memory");
        let both = ours.limits.iter().find(|f| f.id == "host.memory").unwrap();
        assert!(theirs.ceiling_connections > both.ceiling_connections, "{theirs:?} {both:?}");
        let unseen = RunResult { settings: Default::default(), ..run };
        assert!(!share_a_host(&unseen));
    }
}
