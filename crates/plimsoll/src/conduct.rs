//! How is a hold conducted? Stage by stage: open, verify, settle, look; then hold, verify once more, drain.

mod storm;
pub(crate) mod sweep;
mod talk;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use analysis::search::{Next, Search};
use fleet::{Crew, Event, Order, Report};
use model::observation::Observation;
use model::result::{CpuUse, Moment, Purpose, Stage};
use model::storm::{Round, Wave};
use model::sweep::{Loaded, SweepPoint};
use model::talk::{TalkResult, Talked};
use model::{FailureKind, Latencies, Sample, Spec, Tally, units};
use observe::{Eyes, Glance};
use reactor::clock::{self, Nanos};

use crate::progress::{Audience, Progress, stage_line};
use storm::QueueWatch;
use sweep::Measuring;

/// How often the probes look.
const LOOK_EVERY: Nanos = clock::SECOND;
/// The quiet part at the end of each stage, in which only heartbeats go on.
const SETTLE: Nanos = clock::SECOND;
/// A worker reports twice a second; one that says nothing for so long hangs.
const WORKER_SILENCE: Nanos = 20 * clock::SECOND;
/// A look that took longer is not repeated while clients work: it would be a part of what is measured.
const QUICK_LOOK: Nanos = 10 * clock::MILLISECOND;
/// A search starts with this many connections.
const SEARCH_START: u64 = 1_000;

/// What was seen of one run.
#[derive(Debug, Default)]
pub(crate) struct Conducted {
    pub(crate) stages: Vec<Stage>,
    /// Of a storm.
    pub(crate) rounds: Vec<Round>,
    /// Of a talk.
    pub(crate) talk: Option<TalkResult>,
    /// Of a sweep.
    pub(crate) points: Vec<SweepPoint>,
    pub(crate) series: Vec<Moment>,
    /// Everything that all workers counted.
    pub(crate) total: Sample,
    /// How each worker that ended early did.
    pub(crate) died: BTreeMap<u32, String>,
    pub(crate) before: Observation,
    pub(crate) after: Observation,
    /// Ready connections at the end of the hold.
    pub(crate) held: u64,
    /// The last verify pass.
    pub(crate) verified: u64,
    pub(crate) verify_seconds: f64,
    pub(crate) verify_latency: Latencies,
    pub(crate) establish_seconds: f64,
    pub(crate) interrupted: bool,
    pub(crate) seconds: f64,
}

/// Conducts the workers through one experiment.
pub(crate) struct Conductor<'a> {
    spec: &'a Spec,
    crew: Crew,
    workers: u32,
    eyes: &'a mut Eyes,
    audience: &'a mut dyn Audience,
    started: Nanos,
    /// Each worker's latest counters; those that died keep what they had, their connections counted as lost.
    latest: Vec<Sample>,
    alive: Vec<bool>,
    /// When each worker last said something, and when that was last looked at.
    heard: Vec<Nanos>,
    listened: Nanos,
    out: Conducted,
    stage: Window,
    moment: Window,
    doing: &'static str,
    wanted: u64,
    /// What was seen at the last moment of the series.
    looked: Observation,
    look_at: Nanos,
    /// How long the last whole look took.
    look_took: Nanos,
    /// When what is being done now will be over, where that is known.
    over_at: Option<Nanos>,
    /// What the workers saw of the wave under way.
    wave: Wave,
    /// What the workers saw of the talk.
    talked: Talked,
    /// The accept queues, while they are watched.
    queues: Option<QueueWatch>,
    /// What the workers saw of the work at one client count.
    loaded: Loaded,
    /// The measured part of it, while it is under way.
    measuring: Option<Measuring>,
}

/// Latencies and counters since some moment.
#[derive(Default)]
struct Window {
    since: Sample,
    seen: Sample,
    at: Nanos,
}

/// How waiting for the workers ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    Done,
    Stopped,
}

/// The user stopped the run.
struct Stopped;

impl<'a> Conductor<'a> {
    pub(crate) fn new(
        spec: &'a Spec,
        crew: Crew,
        workers: u32,
        eyes: &'a mut Eyes,
        audience: &'a mut dyn Audience,
        before: Observation,
    ) -> Self {
        let now = clock::now();
        Self {
            spec,
            crew,
            workers,
            eyes,
            audience,
            started: now,
            latest: vec![Sample::default(); workers as usize],
            alive: vec![true; workers as usize],
            heard: vec![now; workers as usize],
            listened: now,
            looked: before.clone(),
            out: Conducted { before, ..Conducted::default() },
            stage: Window::default(),
            moment: Window { at: now, ..Window::default() },
            doing: "start",
            wanted: 0,
            look_at: now + LOOK_EVERY,
            look_took: 0,
            over_at: None,
            wave: Wave::default(),
            talked: Talked::default(),
            queues: None,
            loaded: Loaded::default(),
            measuring: None,
        }
    }

    /// Runs to the end, however it comes.
    pub(crate) fn run(mut self) -> Conducted {
        let ended = match self.spec.storm {
            Some(_) => self.storm(),
            None if self.spec.talk.is_some() => self.talk(),
            None if self.spec.until_it_breaks => self.search(),
            None => self.ramp(),
        };
        self.end(ended.is_err())
    }

    /// Ends a run, be it done or stopped.
    fn end(mut self, stopped: bool) -> Conducted {
        self.out.interrupted = stopped;
        if stopped {
            self.audience.say("stopping: the report follows; Ctrl-C again ends at once, without it");
        }
        self.finish();
        self.out.seconds = clock::to_seconds(clock::now() - self.started);
        self.audience.end();
        self.out
    }

    fn ramp(&mut self) -> Result<(), Stopped> {
        self.begin()?;
        let size = self.climb()?;
        if size > 0 {
            self.hold(size)?;
        }
        Ok(())
    }

    /// Opens stage by stage; gives the size that was reached, 0 if nothing stands.
    fn climb(&mut self) -> Result<u64, Stopped> {
        let mut best = 0;
        let mut size = 0;
        if self.first_connection()? {
            for next in self.spec.stage_sizes() {
                size = next;
                let (verified, passed) = self.stage(size, Purpose::Ramp)?;
                if !passed && verified <= best {
                    let text =
                        format!("nothing more is held beyond {}; no further stage", units::count(best));
                    self.audience.say(&text);
                    break;
                }
                best = best.max(verified);
            }
        }
        Ok(if best > 0 { size } else { 0 })
    }

    fn search(&mut self) -> Result<(), Stopped> {
        self.begin()?;
        if !self.first_connection()? {
            return Ok(());
        }
        let cap = self.spec.connections;
        let mut search = Search::new(cap, SEARCH_START.min(cap.div_ceil(4)));
        loop {
            match search.next() {
                Next::Try { connections, purpose } => {
                    let (verified, passed) = self.stage(connections, purpose)?;
                    search.report(connections, verified, passed);
                }
                Next::Confirm { connections } => {
                    self.open(connections)?;
                    let (verified, passed) = self.hold(connections)?;
                    search.report(connections, verified, passed);
                }
                Next::Finished { .. } => return Ok(()),
            }
        }
    }

    /// Waits until every worker has taken its assignment.
    fn begin(&mut self) -> Result<(), Stopped> {
        self.carry_out("start", None, |r| matches!(r, Report::Started).then_some(0)).map(|_| ())
    }

    /// One connection before all others: what fails for every one should be told at once. It is kept.
    fn first_connection(&mut self) -> Result<bool, Stopped> {
        self.stage = self.window();
        self.wanted = 1;
        self.open(1)?;
        let (verified, _) = self.verify()?;
        if verified == 1 {
            return Ok(true);
        }
        let stage = self.judged_stage(Purpose::Ramp, 1, (verified, 0.0), (0.0, None), None);
        self.out.stages.push(stage);
        Ok(false)
    }

    /// Opens up to a size, verifies each connection, and looks once all is quiet.
    fn stage(&mut self, size: u64, purpose: Purpose) -> Result<(u64, bool), Stopped> {
        self.stage = self.window();
        self.wanted = size;
        let first = self.eyes.glance();
        let began = clock::now();
        self.open(size)?;
        let seconds = clock::to_seconds(clock::now() - began);
        let establishing = used(began, &first, &self.eyes.glance());
        self.out.establish_seconds += seconds;
        let pass = self.verify()?;
        let idle = self.quiet_time("settle", SETTLE)?;
        let stage = self.judged_stage(purpose, size, pass, (seconds, Some(establishing)), Some(idle));
        let passed = stage.passed;
        self.audience.stage(stage.passed, &stage_line(&stage));
        self.out.stages.push(stage);
        Ok((pass.0, passed))
    }

    /// Holds what stands for the time asked for, and verifies every connection once more.
    fn hold(&mut self, size: u64) -> Result<(u64, bool), Stopped> {
        self.stage = self.window();
        self.hold_on(size)
    }

    /// The same as a part of the stage under way.
    fn hold_on(&mut self, size: u64) -> Result<(u64, bool), Stopped> {
        self.wanted = size;
        let idle = self.quiet_time("hold", clock::from_seconds(self.spec.hold_seconds));
        let held = self.ready();
        self.out.held = held;
        let idle = idle?;
        let pass = self.verify()?;
        let stage = self.judged_stage(Purpose::Confirm, size, pass, (0.0, None), Some(idle));
        let passed = stage.passed;
        self.audience.stage(stage.passed, &stage_line(&stage));
        self.out.stages.push(stage);
        Ok((pass.0, passed))
    }

    fn open(&mut self, total: u64) -> Result<(), Stopped> {
        let order = Order::Open { total };
        let opened = |r: &Report| matches!(r, Report::Opened).then_some(0);
        self.carry_out("establish", Some(&order), opened).map(|_| ())
    }

    /// A round trip on every connection: how many came back, and how long it took.
    fn verify(&mut self) -> Result<(u64, f64), Stopped> {
        self.out.verify_latency = Latencies::default();
        let began = clock::now();
        let verified = self.carry_out("verify", Some(&Order::Verify), |r| match r {
            Report::Verified { verified } => Some(*verified),
            _ => None,
        })?;
        let seconds = clock::to_seconds(clock::now() - began);
        self.out.verified = verified;
        self.out.verify_seconds = seconds;
        Ok((verified, seconds))
    }

    /// Lets time pass in which only heartbeats go on; gives what CPU each side used in it.
    fn quiet_time(&mut self, doing: &'static str, length: Nanos) -> Result<CpuUse, Stopped> {
        self.doing = doing;
        let first = self.eyes.glance();
        let began = clock::now();
        let end = began + length;
        self.over_at = Some(end);
        while clock::now() < end {
            if self.pass_time(end) == Waited::Stopped {
                return Err(Stopped);
            }
        }
        self.over_at = None;
        Ok(used(began, &first, &self.eyes.glance()))
    }

    /// Gives an order to every worker and waits for the report that concludes it from each one alive; adds up what
    /// these carry.
    fn carry_out(
        &mut self,
        doing: &'static str,
        order: Option<&Order>,
        concludes: impl Fn(&Report) -> Option<u64>,
    ) -> Result<u64, Stopped> {
        self.doing = doing;
        let mut unconcluded: BTreeSet<u32> = (0..self.workers).filter(|w| self.alive[*w as usize]).collect();
        if let Some(order) = order {
            unconcluded.iter().for_each(|w| self.crew.tell(*w, order));
        }
        let mut sum = 0;
        loop {
            unconcluded.retain(|w| self.alive[*w as usize]);
            if unconcluded.is_empty() {
                return Ok(sum);
            }
            let queues = self.queues.as_ref().map_or(Nanos::MAX, QueueWatch::next);
            let measuring = self.measuring.as_ref().map_or(Nanos::MAX, Measuring::next);
            let next = queues.min(measuring).min(self.look_at);
            let timeout = next.saturating_sub(clock::now()).max(clock::MILLISECOND);
            match self.crew.next(Duration::from_nanos(timeout)) {
                Some(Event::Report(w, report)) => {
                    if let Some(carried) = concludes(&report)
                        && unconcluded.remove(&w)
                    {
                        sum += carried;
                    }
                    self.take_report(w, report);
                }
                Some(Event::Gone(w, how)) => self.lost_worker(w, how),
                Some(Event::Stop) => return Err(Stopped),
                None => {}
            }
            self.look_at_queues();
            self.look_at_work();
            self.look_if_due();
            self.give_up_the_silent();
        }
    }

    /// A worker that hangs says nothing. Time in which nobody listened to them is no worker's silence.
    fn give_up_the_silent(&mut self) {
        let now = clock::now();
        let turn = now - std::mem::replace(&mut self.listened, now);
        for w in 0..self.workers {
            let heard = &mut self.heard[w as usize];
            *heard += turn.saturating_sub(LOOK_EVERY);
            if self.alive[w as usize] && now.saturating_sub(*heard) > WORKER_SILENCE {
                let silence = units::seconds(clock::to_seconds(WORKER_SILENCE));
                self.lost_worker(w, format!("has said nothing for {silence}"));
            }
        }
    }

    fn pass_time(&mut self, end: Nanos) -> Waited {
        let until = self.look_at.min(end).saturating_sub(clock::now()).max(clock::MILLISECOND);
        match self.crew.next(Duration::from_nanos(until)) {
            Some(Event::Report(w, report)) => self.take_report(w, report),
            Some(Event::Gone(w, how)) => self.lost_worker(w, how),
            Some(Event::Stop) => return Waited::Stopped,
            None => {}
        }
        self.look_if_due();
        self.give_up_the_silent();
        Waited::Done
    }

    fn take_report(&mut self, worker: u32, report: Report) {
        if !self.alive[worker as usize] {
            return;
        }
        self.heard[worker as usize] = clock::now();
        match report {
            Report::Sample(sample) => {
                // Counters run from the worker's start and are kept as they are; latencies are added up over time.
                let mut sample = *sample;
                let latest = &mut self.latest[worker as usize];
                latest.counters = std::mem::take(&mut sample.counters);
                latest.cpu_seconds = std::mem::take(&mut sample.cpu_seconds);
                self.out.total.merge(&sample);
                self.stage.seen.merge(&sample);
                self.moment.seen.merge(&sample);
                self.out.verify_latency.merge(&sample.verify);
            }
            Report::Failed(why) => self.lost_worker(worker, why),
            // Its end is no loss any more.
            Report::Drained => self.alive[worker as usize] = false,
            Report::WaveOver(wave) => self.wave.merge(&wave),
            Report::TalkOver(talked) => self.talked.merge(&talked),
            Report::Loaded(loaded) => self.loaded.merge(&loaded),
            Report::Started | Report::Opened | Report::Verified { .. } | Report::Dropped | Report::Quiet => {}
        }
    }

    /// A worker is gone, and its share of the connections with it.
    fn lost_worker(&mut self, worker: u32, how: String) {
        let w = worker as usize;
        if !self.alive[w] {
            return;
        }
        self.alive[w] = false;
        let counters = &mut self.latest[w].counters;
        counters.failed.add_many(FailureKind::WorkerDied, counters.ready + counters.establishing);
        counters
            .failed
            .example
            .entry(FailureKind::WorkerDied)
            .or_insert_with(|| format!("worker {worker} {how}"));
        counters.ready = 0;
        counters.establishing = 0;
        self.audience.say(&format!("worker {worker} of the generator is lost: {how}"));
        self.out.died.insert(worker, how);
    }

    fn counters(&self) -> Sample {
        let mut all = Sample::default();
        for sample in &self.latest {
            all.counters.merge(&sample.counters);
            all.cpu_seconds += sample.cpu_seconds;
        }
        all
    }

    fn ready(&self) -> u64 {
        self.latest.iter().map(|s| s.counters.ready).sum()
    }

    fn window(&self) -> Window {
        Window { since: self.counters(), seen: Sample::default(), at: clock::now() }
    }

    fn judged_stage(
        &mut self,
        purpose: Purpose,
        size: u64,
        (verified, verify_seconds): (u64, f64),
        (seconds, establishing): (f64, Option<CpuUse>),
        idle: Option<CpuUse>,
    ) -> Stage {
        let seen = self.eyes.observe();
        let servers = self.eyes.servers();
        let now = self.counters().counters;
        let failed = now.failed.since(&self.stage.since.counters.failed);
        let latency = self.out.verify_latency.summary();
        let objective_ms = self.spec.objective_seconds * 1e3;
        let why_failed =
            why_failed(size, now.ready, verified, &failed, &self.out.verify_latency, objective_ms);
        Stage {
            purpose,
            connections: size,
            t_seconds: clock::to_seconds(self.stage.at - self.started.min(self.stage.at)),
            seconds,
            established: now.became_ready - self.stage.since.counters.became_ready,
            ready: now.ready,
            verified,
            failed: failed.count,
            verify_seconds,
            latency,
            ready_latency: self.stage.seen.phases[model::Phase::Ready as usize].summary(),
            generator_lag: self.stage.seen.lag.summary(),
            target: seen.target,
            generator: seen.generator,
            host: seen.host,
            tcp: seen.tcp,
            listener: seen.listener,
            target_host: seen.target_host,
            servers,
            establishing,
            idle,
            passed: why_failed.is_none(),
            why_failed,
            valid: true,
            why_invalid: None,
        }
    }

    fn look_if_due(&mut self) {
        let now = clock::now();
        if now < self.look_at {
            return;
        }
        let seen = self.look();
        // On a crowded machine a look takes long; the workers must be listened to for at least as long.
        let looked = clock::now();
        self.look_at = looked + LOOK_EVERY.max(looked - now);
        let moment = self.moment_now(now, &seen);
        self.looked = seen;
        let all = self.counters();
        self.audience.moment(&Progress {
            moment: &moment,
            counters: &all.counters,
            requested: self.spec.connections,
            left_seconds: self.over_at.map(|at| clock::to_seconds(at.saturating_sub(now))),
            before: &self.out.before,
            seen: &self.looked,
            interrupted: self.out.interrupted,
        });
        self.out.series.push(moment);
        self.moment = Window { since: all, seen: Sample::default(), at: now };
    }

    /// All that can be seen; while clients work, only what is seen without disturbing them.
    fn look(&mut self) -> Observation {
        if self.measuring.is_some() && self.look_took > QUICK_LOOK {
            return self.glimpse();
        }
        let began = clock::now();
        let seen = self.eyes.observe();
        self.look_took = clock::now() - began;
        seen
    }

    fn moment_now(&self, now: Nanos, seen: &Observation) -> Moment {
        let all = self.counters().counters;
        let since = &self.moment.since.counters;
        let span = clock::to_seconds(now.saturating_sub(self.moment.at)).max(1e-3);
        let last = &self.looked;
        let beats = &self.moment.seen.beats;
        let messages = &self.moment.seen.messages;
        let cpus = |a: Option<f64>, b: Option<f64>| Some(((b? - a?) / span).max(0.0));
        let target = seen.target.as_ref();
        let generator = seen.generator.as_ref();
        let rose = |a: Option<u64>, b: Option<u64>| Some(b?.saturating_sub(a?));
        let kernel = seen.host.slab_bytes.zip(seen.host.socket_buffer_bytes).map(|(a, b)| a + b);
        Moment {
            t_seconds: clock::to_seconds(now - self.started),
            doing: self.doing.to_owned(),
            wanted: self.wanted,
            ready: all.ready,
            establishing: all.establishing,
            opened: all.opened.saturating_sub(since.opened),
            failed: all.failed.since(&since.failed).count,
            beats_answered: all.beats_answered.saturating_sub(since.beats_answered),
            beats_missed: all.beats_missed.saturating_sub(since.beats_missed),
            beat_p50_ms: (!beats.is_empty()).then(|| beats.quantile_ms(0.5)),
            beat_p99_ms: (!beats.is_empty()).then(|| beats.quantile_ms(0.99)),
            beat_max_ms: beats.summary().map(|s| s.max_ms),
            messages_sent: all.messages_sent.saturating_sub(since.messages_sent),
            messages_answered: all.messages_answered.saturating_sub(since.messages_answered),
            message_p50_ms: (!messages.is_empty()).then(|| messages.quantile_ms(0.5)),
            message_p99_ms: (!messages.is_empty()).then(|| messages.quantile_ms(0.99)),
            message_max_ms: messages.summary().map(|s| s.max_ms),
            verified: self.moment.seen.verify.count(),
            target_user_bytes: target.and_then(|g| g.user_bytes),
            target_cpus: cpus(last.target.as_ref().map(|g| g.cpu_seconds), target.map(|g| g.cpu_seconds)),
            generator_user_bytes: generator.and_then(|g| g.user_bytes),
            generator_cpus: cpus(
                last.generator.as_ref().map(|g| g.cpu_seconds),
                generator.map(|g| g.cpu_seconds),
            ),
            kernel_bytes: kernel,
            target_busiest_cpus: target.and_then(|g| g.busiest_thread_cpus),
            host_cpus: cpus(last.host.cpu_busy_seconds, seen.host.cpu_busy_seconds),
            accept_queue: seen.listener.as_ref().map(|l| l.queued),
            listen_overflows: rose(last.tcp.listen_overflows, seen.tcp.listen_overflows),
            syn_retransmits: rose(last.tcp.syn_retransmits, seen.tcp.syn_retransmits),
            target_most_descriptors: target.and_then(|g| g.most_descriptors),
            target_threads: target.map(|g| g.threads),
            generator_lag_ms: self.moment.seen.lag.summary().map(|l| l.max_ms),
        }
    }

    /// Lets the last answers come in, looks once more, and closes everything.
    fn finish(&mut self) {
        if self.out.held == 0 {
            self.out.held = self.ready();
        }
        let quiet = |r: &Report| matches!(r, Report::Quiet).then_some(0);
        let _ = self.carry_out("quiet", Some(&Order::Quiet), quiet);
        let all = self.counters();
        self.out.total.counters = all.counters;
        self.out.total.cpu_seconds = all.cpu_seconds;
        self.out.after = self.eyes.observe();
        self.out.after.servers = self.eyes.servers();
        // Whatever happens while draining is no finding about the target.
        let (total, died) = (self.out.total.clone(), self.out.died.clone());
        let drained = |r: &Report| matches!(r, Report::Drained).then_some(0);
        let _ = self.carry_out("drain", Some(&Order::Drain), drained);
        (self.out.total, self.out.died) = (total, died);
    }
}

/// What each side used from a glance until the one that was just taken.
fn used(began: Nanos, first: &Glance, last: &Glance) -> CpuUse {
    used_between((began, first), (clock::now(), last))
}

/// What each side used between two glances.
fn used_between((began, first): (Nanos, &Glance), (ended, last): (Nanos, &Glance)) -> CpuUse {
    CpuUse {
        seconds: clock::to_seconds(ended - began),
        target_cpu_seconds: risen(first.target_cpu_seconds, last.target_cpu_seconds),
        generator_cpu_seconds: risen(first.generator_cpu_seconds, last.generator_cpu_seconds),
    }
}

/// By how much a count of seconds rose; `None`: it could not be read.
fn risen(first: Option<f64>, last: Option<f64>) -> Option<f64> {
    Some((last? - first?).max(0.0))
}

fn why_failed(
    size: u64,
    ready: u64,
    verified: u64,
    failed: &Tally,
    latency: &Latencies,
    objective_ms: f64,
) -> Option<String> {
    let kinds: Vec<String> =
        failed.count.iter().map(|(kind, n)| format!("{} {}", units::count(*n), kind.says())).collect();
    if verified < size {
        let why = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
        return Some(format!("{} of {} were verified{why}", units::count(verified), units::count(size)));
    }
    if ready < size {
        let lost = units::count(size - ready);
        return Some(format!(
            "{lost} of {} were lost after they were verified: {}",
            units::count(size),
            kinds.join(", ")
        ));
    }
    let late = latency.longer_than_ms(objective_ms);
    let slowest = latency.summary().map_or(0.0, |s| s.max_ms);
    (late > 0 && slowest > objective_ms).then(|| {
        format!(
            "{} of {} round trips took longer than {} (the slowest {})",
            units::count(late),
            units::count(size),
            units::milliseconds(objective_ms),
            units::milliseconds(slowest)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_passes_only_if_each_connection_came_back_in_time() {
        let mut quick = Latencies::default();
        (0..10).for_each(|_| quick.record(2_000_000));
        let none = Tally::default();
        assert_eq!(why_failed(10, 10, 10, &none, &quick, 1_000.0), None);
        let mut lost = Tally::default();
        lost.add_many(FailureKind::Reset, 1);
        assert_eq!(
            why_failed(10, 9, 9, &lost, &quick, 1_000.0).unwrap(),
            "9 of 10 were verified: 1 were reset"
        );
        assert!(why_failed(10, 9, 10, &lost, &quick, 1_000.0).unwrap().contains("after they were verified"));
        assert!(why_failed(10, 10, 10, &none, &quick, 1.0).unwrap().contains("longer than 1.00 ms"));
    }
}
