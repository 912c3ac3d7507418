//! Do the connections use up the host's CPUs?

use model::result::{CpuUse, Finding, Moment, Side, Stage, Status};
use model::{Estimate, FailureKind, RunResult, units};

use crate::evidence::{self, Each};
use crate::sides::share_a_host;
use crate::{Limit, LimitFacts, nice, server_nofile};

/// CPUs of the host that the target runs on. Where the generator uses them up, it is client.cpu.
pub(crate) struct HostCpu;

static FACTS: LimitFacts = LimitFacts {
    id: "host.cpu",
    side: Side::Host,
    question: "Do the connections use up the host's CPUs?",
    doc: "Accepting, handshakes and heartbeats take CPU. When no CPU is left, answers come late and then not \
          in time, without any error. Held connections cost what their heartbeats cost: twice the \
          interval is half the load.",
    how_to_see: "top; vmstat 1; cat /proc/pressure/cpu",
    remedy_doc: "Fewer heartbeats, more CPUs, or fewer connections for each host.",
};

/// From this share on all CPUs are busy.
const ALL_BUSY: f64 = 0.95;

/// Busier than this, there are more CPUs than may be used here: a look on a crowded machine is some percent off.
const MORE_THAN_ALL: f64 = 1.25;

/// How connections fail to which nobody comes in time.
const TOO_LATE: [FailureKind; 3] =
    [FailureKind::ConnectTimeout, FailureKind::ReadyTimeout, FailureKind::Silent];

/// A cost whose interval spans more than this factor promises no ceiling.
const KNOWN_WITHIN: f64 = 4.0;

/// Nanoseconds of CPU for each second: a connection's share of a CPU is too small to be counted in CPUs.
const NANOSECONDS: f64 = 1e9;

impl Limit for HostCpu {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let each = each(run);
        let room = f64::from(run.host.cpus) * NANOSECONDS;
        let (status, summary) = status(run, each.and_then(|each| each.fit_into(room)));
        let mut finding = FACTS.finding(status, summary);
        if let Some(each) = each.filter(|_| run.settings.same_host && run.host.cpus > 0) {
            finding = each.ceiling(finding, run, room);
        }
        finding.evidence = read(run, each);
        finding.remedy = remedy(run, each);
        finding
    }
}

fn status(run: &RunResult, ceiling: Option<u64>) -> (Status, String) {
    let unknown = |why: &str| (Status::Unknown, why.to_owned());
    if !run.settings.same_host {
        return unknown(
            "the CPUs of the target's host cannot be read from here; run `plimsoll observe` there, and name it with --observer",
        );
    }
    if evidence::not_begun(run) {
        return unknown("unknown until measured: what connections take of the CPUs shows under load");
    }
    let seen: Vec<Load> = (0..run.stages.len()).filter_map(|i| busiest(run, i)).collect();
    let cpus = f64::from(run.host.cpus);
    if seen.is_empty() || run.host.cpus == 0 {
        return unknown("how busy the host's CPUs were could not be read");
    }
    if seen.iter().any(|load| load.host > cpus * MORE_THAN_ALL) {
        return unknown("the host has more CPUs than may be used here; how many are left is not known");
    }
    if let Some(number) = overloaded(run) {
        let cpus = evidence::counted(run.host.cpus.into(), "CPU", "CPUs");
        return (
            Status::Hit,
            format!("the host's {cpus} were busy while stage {number} came late, mostly with the target"),
        );
    }
    let idle = idle(run);
    if let Some(idle) = idle.filter(|load| load.is_the_targets() && load.host >= 0.9 * cpus) {
        let summary = format!("held connections alone kept {:.2} of {cpus:.0} CPUs busy", idle.host);
        return (Status::Near, summary);
    }
    let summary = match each(run) {
        Some(each) => format!("a held connection takes {} of CPU each second", cpu(each.value)),
        None => "what a held connection takes of the CPUs was too little to be measured".to_owned(),
    };
    (ceiling.map_or(Status::Clear, |c| evidence::status_by_ceiling(run, c)), summary)
}

/// CPUs in use at one moment or over one stage.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// All that were busy.
    host: f64,
    /// With the target.
    target: f64,
    /// With the generator.
    generator: f64,
}

impl Load {
    fn at(moment: &Moment) -> Option<Self> {
        let (target, generator) = (moment.target_cpus?, moment.generator_cpus?);
        Some(Self { host: moment.host_cpus?, target, generator })
    }

    /// Most of it was done by the target.
    fn is_the_targets(self) -> bool {
        self.target > self.host / 2.0
    }

    /// No CPU was left, and that was the target's doing.
    fn is_full(self, cpus: u32) -> bool {
        self.host >= ALL_BUSY * f64::from(cpus) && self.is_the_targets()
    }
}

/// What was read at each look of a stage at which clients worked, or, if none did, connections were opened or verified;
/// where none fell into that, of its hold; where there was none at all, over the whole stage.
fn loads(run: &RunResult, index: usize) -> Vec<Load> {
    let Some(stage) = run.stages.get(index) else { return Vec::new() };
    let end = run.stages.get(index + 1).map_or(f64::INFINITY, |next| next.t_seconds);
    let within = |m: &&Moment| m.t_seconds > stage.t_seconds && m.t_seconds <= end;
    let doing = |what: &[&str]| -> Vec<Load> {
        let moments = run.series.iter().filter(within).filter(|m| what.contains(&m.doing.as_str()));
        moments.filter_map(Load::at).collect()
    };
    let mut loads = doing(&["load"]);
    if loads.is_empty() {
        loads = doing(&["establish", "verify"]);
    }
    if loads.is_empty() {
        loads = doing(&["hold"]);
    }
    if loads.is_empty() {
        loads.extend(whole(run, index));
    }
    loads
}

/// Over a whole stage, by the counters at its end and at the end of the one before.
fn whole(run: &RunResult, index: usize) -> Option<Load> {
    let earlier = run.stages.get(index.checked_sub(1)?)?;
    let stage = run.stages.get(index)?;
    let end =
        |s: &Stage| s.t_seconds + s.seconds + s.verify_seconds + s.idle.map_or(0.0, |idle| idle.seconds);
    let span = end(stage) - end(earlier);
    let cpus =
        |reading: fn(&Stage) -> Option<f64>| Some(((reading(stage)? - reading(earlier)?) / span).max(0.0));
    (span > 0.0).then_some(())?;
    Some(Load {
        host: cpus(|s| s.host.cpu_busy_seconds)?,
        target: cpus(|s| Some(s.target.as_ref()?.cpu_seconds))?,
        generator: cpus(|s| Some(s.generator.as_ref()?.cpu_seconds))?,
    })
}

fn busiest(run: &RunResult, index: usize) -> Option<Load> {
    loads(run, index).into_iter().max_by(|a, b| a.host.total_cmp(&b.host))
}

/// The first stage that missed its objective, not by the generator's fault and not for another reason, while
/// in at least half of the looks no CPU was left.
fn overloaded(run: &RunResult) -> Option<usize> {
    if server_nofile::met(run).is_some() || evidence::death(run).is_some() {
        return None;
    }
    let only_late =
        |stage: &Stage| stage.failed.iter().all(|(kind, count)| *count == 0 || TOO_LATE.contains(kind));
    let late = evidence::failed_stages(run).filter(|(_, stage)| stage.valid && only_late(stage));
    let full = |number: usize| {
        let loads = loads(run, number - 1);
        let full = loads.iter().filter(|load| load.is_full(run.host.cpus)).count();
        full > 0 && full * 2 >= loads.len()
    };
    late.map(|(number, _)| number).find(|number| full(*number))
}

/// What both sides used in the last quiet part.
fn idle(run: &RunResult) -> Option<Load> {
    let CpuUse { seconds, target_cpu_seconds, generator_cpu_seconds } =
        run.stages.iter().rev().find_map(|s| s.idle)?;
    let (target, generator) = (target_cpu_seconds? / seconds, generator_cpu_seconds? / seconds);
    (seconds > 0.0).then_some(Load { host: target + generator, target, generator })
}

/// Nanoseconds of CPU that a held connection takes each second, both ends; only where that is known to within a
/// factor of a few: a quiet second is short beside the kernel's ticks.
fn each(run: &RunResult) -> Option<Each> {
    let scaled = |e: Estimate| Estimate {
        value: e.value * NANOSECONDS,
        low: e.low.map(|x| x * NANOSECONDS),
        high: e.high.map(|x| x * NANOSECONDS),
        stages: e.stages,
    };
    let target = run.cost.target.cpu_seconds_per_second.per_connection?;
    let generator = run.cost.generator.cpu_seconds_per_second.per_connection;
    let generator = generator.filter(|_| share_a_host(run));
    let parts: Vec<Estimate> = [target].into_iter().chain(generator).map(scaled).collect();
    let each = Each::sum(&parts);
    let known = |(low, high): (f64, f64)| low > 0.0 && high <= low * KNOWN_WITHIN;
    each.low.zip(each.high).is_some_and(known).then_some(each)
}

/// Nanoseconds in words: "640 ns", "12 µs".
fn cpu(nanoseconds: f64) -> String {
    if nanoseconds < 1e3 { format!("{nanoseconds:.0} ns") } else { units::milliseconds(nanoseconds / 1e6) }
}

fn read(run: &RunResult, each: Option<Each>) -> Vec<String> {
    let mut out =
        vec![format!("{} may be used on this host", evidence::counted(run.host.cpus.into(), "CPU", "CPUs"))];
    let at = |number: usize| Some((number, busiest(run, number - 1)?));
    let said = overloaded(run).and_then(at).or_else(|| {
        let busiest = (1..=run.stages.len()).filter_map(at);
        busiest.max_by(|a, b| a.1.host.total_cmp(&b.1.host))
    });
    if let Some((number, load)) = said.filter(|_| run.settings.same_host) {
        out.push(format!(
            "stage {number}: up to {:.2} CPUs busy, {:.2} with the target, {:.2} with the generator",
            load.host, load.target, load.generator
        ));
    }
    if let Some(idle) = idle(run).filter(|_| run.settings.same_host) {
        out.push(format!(
            "with nothing but heartbeats: {:.3} CPUs for the target, {:.3} for the generator",
            idle.target, idle.generator
        ));
    }
    if let Some(each) = each {
        let beat = run.spec.heartbeat_seconds;
        let beat = beat.map_or(String::new(), |s| format!(", with a heartbeat every {}", units::seconds(s)));
        out.push(format!("{} of CPU a second for one more held connection{beat}", cpu(each.value)));
    }
    out
}

fn remedy(run: &RunResult, each: Option<Each>) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    // What they would need, as a multiple of what there is.
    let cpus = f64::from(run.host.cpus.max(1));
    let needed = each.map(|each| wanted as f64 * each.value / NANOSECONDS);
    let mut out = Vec::new();
    if let Some(beat) = run.spec.heartbeat_seconds {
        let longer = nice::up((beat * needed.map_or(2.0, |n| n / cpus).max(2.0)).ceil() as u64);
        out.push(format!(
            "# fewer heartbeats, here every {}; the clients' own interval must then follow:",
            units::seconds(beat)
        ));
        out.push(format!("plimsoll hold {} -c {wanted} --heartbeat {longer}s", run.target.url));
    }
    if let Some(needed) = needed {
        out.push(format!("# {} held connections take about {needed:.1} CPUs", units::count(wanted)));
    }
    if share_a_host(run) {
        out.push(
            "# run the generator on another machine: its share of the CPUs is then the target's".to_owned(),
        );
    }
    out.push("# find what uses the CPUs here:".to_owned());
    out.push("ps -eo pid,pcpu,comm --sort=-pcpu | head -n 15".to_owned());
    out
}

#[cfg(test)]
mod tests {
    use model::result::{CpuUse, Moment, Status};
    use model::{FailureKind, RunResult};

    use crate::testing::{self, finding};

    const ID: &str = "host.cpu";

    fn idle(run: &mut RunResult, target: f64, generator: f64) {
        for stage in &mut run.stages {
            let n = stage.ready as f64;
            stage.idle = Some(CpuUse {
                seconds: 2.0,
                target_cpu_seconds: Some(2.0 * target * n),
                generator_cpu_seconds: Some(2.0 * generator * n),
            });
        }
    }

    fn late(run: &mut RunResult) {
        let last = run.stages.last_mut().unwrap();
        last.passed = false;
        last.why_failed = Some("the slowest round trip took 1.70 s".into());
    }

    fn look(t_seconds: f64, doing: &str, target: f64, generator: f64) -> Moment {
        Moment {
            t_seconds,
            doing: doing.into(),
            host_cpus: Some(target + generator + 0.1),
            target_cpus: Some(target),
            generator_cpus: Some(generator),
            ..Moment::default()
        }
    }

    #[test]
    fn late_while_the_target_had_all_cpus_names_it() {
        let mut run = testing::run();
        testing::busy(&mut run, 10, 1.6, 0.3);
        assert_eq!(finding(run.clone(), ID).status, Status::Clear);
        late(&mut run);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Hit);
        assert!(found.evidence.iter().any(|e| e.starts_with("stage 10: up to 2.00 CPUs busy")), "{found:?}");
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
    }

    #[test]
    fn what_the_generator_used_or_what_broke_for_another_reason_is_not_it() {
        let mut ours = testing::run();
        late(&mut ours);
        testing::busy(&mut ours, 10, 0.6, 1.3);
        assert_eq!(finding(ours.clone(), ID).status, Status::Clear);
        // Nor if the generator ran too late to tell.
        testing::busy(&mut ours, 10, 1.6, 0.3);
        assert_eq!(finding(ours.clone(), ID).status, Status::Hit);
        ours.stages[9].generator_lag = Some(testing::latency(900.0));
        assert_eq!(finding(ours, ID).status, Status::Clear);
        let mut refused = testing::run();
        testing::busy(&mut refused, 10, 1.6, 0.3);
        testing::fail_last(&mut refused, FailureKind::ServerRefused, 40);
        assert_eq!(finding(refused, ID).status, Status::Clear);
        let mut starved = testing::broken_at(987, &testing::search_of_987(), FailureKind::Silent);
        testing::nofile(&mut starved, 994);
        testing::busy(&mut starved, 3, 1.6, 0.3);
        assert_eq!(finding(starved, ID).status, Status::Clear);
    }

    #[test]
    fn most_looks_must_have_found_no_cpu_left() {
        let mut run = testing::run();
        testing::fail_last(&mut run, FailureKind::Silent, 40);
        let from = run.stages[9].t_seconds;
        run.series = vec![look(from + 0.5, "establish", 1.7, 0.2)];
        assert_eq!(finding(run.clone(), ID).status, Status::Hit);
        // It was busy for a second, and then all was quiet: it hung.
        run.series.extend((1..9).map(|s| look(from + 0.5 + f64::from(s), "verify", 0.0, 0.1)));
        assert_eq!(finding(run.clone(), ID).status, Status::Clear);
        // More was busy than may be used here: how many CPUs there are is not known.
        run.series.push(look(from + 20.0, "verify", 11.0, 0.1));
        assert_eq!(finding(run, ID).status, Status::Unknown);
    }

    #[test]
    fn the_ceiling_comes_from_what_held_connections_cost_both_ends() {
        let mut run = testing::run();
        idle(&mut run, 6e-6, 2e-6);
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, Some(250_000)));
        assert!(found.summary.contains("takes 8 µs of CPU"), "{}", found.summary);
        let mut vague = run.clone();
        for (i, stage) in vague.stages.iter_mut().enumerate() {
            let idle = stage.idle.as_mut().unwrap();
            idle.target_cpu_seconds = idle.target_cpu_seconds.map(|s| s + (i % 2) as f64);
        }
        assert_eq!(finding(vague, ID).ceiling_connections, None);
        idle(&mut run, 170e-6, 20e-6);
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Near, Some(10_526)));
        // 12,000 x 190 µs are 2.28 CPUs of 2; at least twice the interval is named.
        assert!(found.remedy[1].ends_with("-c 12000 --heartbeat 20s"), "{:?}", found.remedy);
        run.spec.connections = 100_000;
        let found = finding(run, ID);
        // 120,000 are 22.8 CPUs: 11.4 times as many as there are.
        assert!(found.remedy[1].ends_with("-c 120000 --heartbeat 120s"), "{:?}", found.remedy);
        assert!(found.remedy[2].contains("about 22.8 CPUs"), "{:?}", found.remedy);
    }

    #[test]
    fn elsewhere_and_before_the_run_it_is_unknown() {
        let mut elsewhere = testing::run();
        testing::hide_target(&mut elsewhere);
        assert_eq!(finding(elsewhere, ID).status, Status::Unknown);
        assert_eq!(finding(testing::doctor(10_000), ID).status, Status::Unknown);
    }
}
