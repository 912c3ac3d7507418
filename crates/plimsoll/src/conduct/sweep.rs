//! How is a sweep conducted? Count by count, the ways to the server in turns: connect, warm up, measure, look, drop.

use fleet::{Order, Report};
use model::observation::{Group, Observation, ServerView};
use model::result::{CpuUse, Purpose};
use model::sweep::{Loaded, SweepPoint};
use model::{SweepSpec, units};
use observe::Glance;
use reactor::clock::{self, Nanos};

use super::{Conducted, Conductor, SETTLE, Stopped, risen, used, used_between};

/// From the order until clients begin to work: every worker has it by then.
const LEAD: Nanos = 100 * clock::MILLISECOND;
/// What a server needs to let go of one client, beside a second for all: a process that ends.
const LET_GO: Nanos = clock::MILLISECOND;

/// The measured part under way, and what was seen at its ends and in its midst.
pub(super) struct Measuring {
    from: Nanos,
    until: Nanos,
    first: Option<(Nanos, Glance)>,
    servers: Option<Vec<ServerView>>,
    last: Option<(Nanos, Glance)>,
}

impl Measuring {
    /// When something is to be looked at next.
    pub(super) fn next(&self) -> Nanos {
        match (&self.first, &self.servers, &self.last) {
            (None, _, _) => self.from,
            (_, None, _) => self.middle(),
            (_, _, None) => self.until,
            _ => Nanos::MAX,
        }
    }

    fn middle(&self) -> Nanos {
        self.from.midpoint(self.until)
    }
}

/// Takes the ways to the server through all client counts, in turns; gives what was seen of each.
pub(crate) fn in_turns(mut ways: Vec<Conductor<'_>>) -> Vec<Conducted> {
    let ended = all_counts(&mut ways);
    ways.into_iter().map(|way| way.end(ended.is_err())).collect()
}

fn all_counts(ways: &mut [Conductor<'_>]) -> Result<(), Stopped> {
    let Some(spec) = ways.first().and_then(|way| way.spec.sweep.clone()) else { return Ok(()) };
    let mut goes_on = Vec::new();
    for way in ways.iter_mut() {
        way.begin()?;
        goes_on.push(way.first_connection()?);
        way.let_go(1)?;
    }
    for (turn, clients) in spec.clients.iter().enumerate() {
        for again in 0..spec.repeat as usize {
            // Who comes first takes turns too.
            for place in 0..ways.len() {
                let index = (turn + again + place) % ways.len();
                if goes_on[index] {
                    goes_on[index] = ways[index].at_work(&spec, *clients)?;
                }
            }
        }
    }
    if spec.adaptive {
        for index in 0..ways.len() {
            while goes_on[index]
                && let Some(clients) = analysis::sweep::next_around_the_peak(&ways[index].out.points)
            {
                goes_on[index] = ways[index].at_work(&spec, clients)?;
            }
        }
    }
    Ok(())
}

impl Conductor<'_> {
    /// One client count, measured once; false: not all clients were served, and more will not be.
    fn at_work(&mut self, spec: &SweepSpec, clients: u64) -> Result<bool, Stopped> {
        self.stage = self.window();
        self.wanted = clients;
        let first = self.eyes.glance();
        let began = clock::now();
        self.open(clients)?;
        let connect_seconds = clock::to_seconds(clock::now() - began);
        let establishing = used(began, &first, &self.eyes.glance());
        self.out.establish_seconds += connect_seconds;
        let connected = self.ready();

        let at = clock::now() + LEAD;
        let from = at + clock::from_seconds(spec.warm_up_seconds);
        let until = from + clock::from_seconds(spec.measure_seconds);
        self.loaded = Loaded::default();
        self.measuring = Some(Measuring { from, until, first: None, servers: None, last: None });
        self.over_at = Some(until);
        let over = |r: &Report| matches!(r, Report::Loaded(_)).then_some(0);
        let worked = self.carry_out("load", Some(&Order::Load { at, from, until }), over);
        self.over_at = None;
        let measuring = self.measuring.take();
        let loaded = std::mem::take(&mut self.loaded);
        worked?;

        self.out.held = self.ready();
        self.out.verified = loaded.served;
        let served = (loaded.served, 0.0);
        let mut stage =
            self.judged_stage(Purpose::Ramp, clients, served, (connect_seconds, Some(establishing)), None);
        stage.latency = loaded.latency.summary();
        let all = stage.passed;
        let point = self.point(clients, connected, from, until, measuring, loaded);
        self.audience.stage(stage.passed, &line(&point, stage.why_failed.as_deref()));
        self.out.stages.push(stage);
        self.out.points.push(point);
        self.let_go(clients)?;
        Ok(all)
    }

    /// Drops all clients, and gives the server the time to let go of them.
    fn let_go(&mut self, clients: u64) -> Result<(), Stopped> {
        self.open(0)?;
        self.quiet_time("settle", SETTLE + clients * LET_GO).map(|_| ())
    }

    fn point(
        &self,
        clients: u64,
        connected: u64,
        from: Nanos,
        until: Nanos,
        measuring: Option<Measuring>,
        loaded: Loaded,
    ) -> SweepPoint {
        let measuring = measuring.and_then(|m| Some((m.first?, m.last?, m.servers.unwrap_or_default())));
        let (cpu, host_cpu_seconds, servers) = match measuring {
            Some(((began, first), (ended, last), servers)) => (
                used_between((began, &first), (ended, &last)),
                risen(first.host.cpu_busy_seconds, last.host.cpu_busy_seconds),
                servers,
            ),
            None => (CpuUse::default(), None, Vec::new()),
        };
        let open_loop = self.spec.sweep.as_ref().is_some_and(|sweep| sweep.rate_per_second.is_some());
        let failed = &self.counters().counters.failed;
        let new = failed.since(&self.stage.since.counters.failed);
        SweepPoint {
            stage: self.out.stages.len(),
            clients,
            // some may have been closed since they were ready
            connected: connected.min(loaded.clients),
            lost: loaded.lost,
            served: loaded.served,
            failed_example: new
                .count
                .keys()
                .filter_map(|kind| Some((*kind, failed.example.get(kind)?.clone())))
                .collect(),
            t_seconds: clock::to_seconds(from.saturating_sub(self.started)),
            seconds: clock::to_seconds(until - from),
            operations: loaded.slices.iter().sum(),
            slices: loaded.slices,
            latency: loaded.latency.summary(),
            late: loaded.latency.longer_than_ms(self.spec.objective_seconds * 1e3),
            due: open_loop.then_some(loaded.due),
            unmet: open_loop.then_some(loaded.unmet),
            cpu,
            host_cpu_seconds,
            servers,
        }
    }

    /// Looks at the ends of the measured part, and asks the servers in its midst, when it is time to.
    pub(super) fn look_at_work(&mut self) {
        let now = clock::now();
        let Some(measuring) = self.measuring.as_mut().filter(|m| now >= m.next()) else { return };
        if measuring.first.is_none() {
            measuring.first = Some((now, self.eyes.glance()));
        } else if measuring.servers.is_none() {
            measuring.servers = Some(self.eyes.servers());
        } else {
            measuring.last = Some((now, self.eyes.glance()));
        }
    }

    /// What can be seen without disturbing those who work: no memory.
    pub(super) fn glimpse(&mut self) -> Observation {
        let seen = self.eyes.glance();
        let group = |cpu_seconds: Option<f64>, last: Option<&Group>| {
            let last = last?;
            Some(Group {
                processes: last.processes,
                cpu_seconds: cpu_seconds?,
                threads: last.threads,
                ..Group::default()
            })
        };
        Observation {
            target: group(seen.target_cpu_seconds, self.looked.target.as_ref()),
            generator: group(seen.generator_cpu_seconds, self.looked.generator.as_ref()),
            host: seen.host,
            tcp: seen.tcp,
            listener: seen.listener,
            ..Observation::default()
        }
    }
}

/// What is to be said of a client count that was measured.
fn line(point: &SweepPoint, why_failed: Option<&str>) -> String {
    let mut text = format!(
        "{:>7.1} s  {} {}: {}/s",
        point.t_seconds + point.seconds,
        units::count(point.clients),
        if point.clients == 1 { "client" } else { "clients" },
        units::count(point.per_second().round() as u64)
    );
    if let Some(latency) = point.latency {
        let (p50, p99) = (units::milliseconds(latency.p50_ms), units::milliseconds(latency.p99_ms));
        text += &format!(", p50 {p50}, p99 {p99}");
    }
    if let Some(unmet) = point.unmet.filter(|unmet| *unmet > 0) {
        text += &format!("; {} were due and not begun", units::count(unmet));
    }
    if let Some(why) = why_failed {
        text += &format!("; {why}");
    }
    text
}
