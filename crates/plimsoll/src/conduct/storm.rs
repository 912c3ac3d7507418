//! How is a storm conducted? Round by round: an instant is named, all workers let their share come, what stands is
//! held a moment, and dropped at once.

use fleet::{Order, Report};
use model::observation::TcpCounters;
use model::result::Purpose;
use model::storm::{Round, RoundKind, RoundMoment, Wave};
use model::{Tally, units};
use reactor::clock::{self, Nanos};

use super::{Conductor, LOOK_EVERY, Stopped, used};

/// From the order to a round's instant: every worker has its share planned by then.
const LEAD: Nanos = 300 * clock::MILLISECOND;
/// How often the target's accept queues are looked at while connections come.
const QUEUE_EVERY: Nanos = 50 * clock::MILLISECOND;
/// From here on a connection is late: its SYN was sent again, or might have been.
const LATE_MS: f64 = 1_000.0;
/// Moments of a round that are kept: more could not be drawn.
const MOMENTS_KEPT: usize = 400;

/// The accept queues, watched while a round's connections come.
pub(super) struct QueueWatch {
    instant: Nanos,
    next: Nanos,
    seen: Vec<Queue>,
}

/// The accept queues at one moment: seconds after the instant, connections in the fullest, and what it holds.
type Queue = (f64, Option<(u64, u64)>);

impl QueueWatch {
    fn begin(instant: Nanos) -> Self {
        Self { instant, next: instant, seen: Vec::new() }
    }

    pub(super) fn next(&self) -> Nanos {
        self.next
    }
}

/// A round's instant, its end, and the kernel's counters at both.
struct Span {
    began: Nanos,
    instant: Nanos,
    over: Nanos,
    tcp: (TcpCounters, TcpCounters),
    queues: Vec<Queue>,
}

impl Conductor<'_> {
    /// All rounds of a storm.
    pub(super) fn storm(&mut self) -> Result<(), Stopped> {
        self.begin()?;
        // One before all others: what fails for every one should be told at once. It is not kept.
        self.stage = self.window();
        let (_, wave) = self.wave(RoundKind::Return, 1)?;
        if wave.verified.count() < 1 {
            let stage = self.judged_stage(Purpose::Ramp, 1, (0, 0.0), (0.0, None), None);
            self.out.stages.push(stage);
            return Ok(());
        }
        self.drop_all()?;
        let away = self.spec.storm.map_or(0.0, |storm| storm.away_seconds);
        for kind in RoundKind::ALL {
            self.quiet_time("away", clock::from_seconds(away))?;
            if !self.round(kind)? {
                self.audience.say("not one connection came; no further round");
                break;
            }
        }
        Ok(())
    }

    /// One round; false: it left nothing that could come back.
    fn round(&mut self, kind: RoundKind) -> Result<bool, Stopped> {
        let size = self.spec.connections;
        self.stage = self.window();
        self.wanted = size;
        let first = self.eyes.glance();
        let (span, wave) = self.wave(kind, size)?;
        let establishing = used(span.began, &first, &self.eyes.glance());
        let seconds = clock::to_seconds(span.over.saturating_sub(span.instant));
        self.out.establish_seconds += seconds;
        let mut round = self.rounded(kind, &span, &wave);
        let verified = round.ready;
        self.audience.say(&line(&round));
        let idle = self.quiet_time("hold", clock::from_seconds(self.spec.hold_seconds));
        round.held = self.ready();
        round.failed = self.failed_in_stage().count;
        self.out.rounds.push(round);
        let idle = idle?;
        let stage = self.judged_stage(
            Purpose::Ramp,
            size,
            (verified, 0.0),
            (seconds, Some(establishing)),
            Some(idle),
        );
        self.out.stages.push(stage);
        self.drop_all()?;
        Ok(verified > 0)
    }

    /// Lets so many come at an instant a little ahead, and waits until each has made a round trip or failed.
    fn wave(&mut self, kind: RoundKind, total: u64) -> Result<(Span, Wave), Stopped> {
        self.wave = Wave::default();
        let before = self.eyes.tcp();
        let began = clock::now();
        let instant = began + LEAD;
        // A look at all processes takes its time; while the first ones come, only the queues are looked at.
        self.look_at = self.look_at.max(instant + LOOK_EVERY);
        self.queues = Some(QueueWatch::begin(instant));
        let order = Order::Wave { total, kind, at: instant };
        let over = |r: &Report| matches!(r, Report::WaveOver(_)).then_some(0);
        self.carry_out("storm", Some(&order), over)?;
        let tcp = (before, self.eyes.tcp());
        let queues = self.queues.take().map(|watch| watch.seen).unwrap_or_default();
        let span = Span { began, instant, over: clock::now(), tcp, queues };
        Ok((span, std::mem::take(&mut self.wave)))
    }

    fn drop_all(&mut self) -> Result<(), Stopped> {
        let dropped = |r: &Report| matches!(r, Report::Dropped).then_some(0);
        self.carry_out("drop", Some(&Order::Drop), dropped).map(|_| ())
    }

    /// Looks at the accept queues if it is time to.
    pub(super) fn look_at_queues(&mut self) {
        let now = clock::now();
        let Some(watch) = self.queues.as_mut().filter(|watch| now >= watch.next) else { return };
        let queue = self.eyes.listener().map(|l| (l.queued, l.backlog));
        watch.seen.push((clock::to_seconds(now - watch.instant), queue));
        // A look that came late is not made up for.
        watch.next += QUEUE_EVERY * ((now - watch.next) / QUEUE_EVERY + 1);
    }

    fn failed_in_stage(&self) -> Tally {
        self.counters().counters.failed.since(&self.stage.since.counters.failed)
    }

    fn rounded(&self, kind: RoundKind, span: &Span, wave: &Wave) -> Round {
        let size = self.spec.connections;
        let over = clock::to_seconds(span.over.saturating_sub(span.instant));
        let seen = &span.queues;
        let rose = |of: fn(&TcpCounters) -> Option<u64>| {
            of(&span.tcp.0).zip(of(&span.tcp.1)).map(|(before, after)| after.saturating_sub(before))
        };
        Round {
            kind,
            connections: size,
            t_seconds: clock::to_seconds(span.instant - self.started),
            issued_seconds: wave.issued.summary().map(|l| l.max_ms / 1e3),
            attempts: wave.attempts,
            attempts_failed: wave.attempts_failed.count.clone(),
            ready: wave.ready_after.count(),
            failed: self.failed_in_stage().count,
            held: self.ready(),
            first_ready_seconds: wave.ready_after.summary().map(|l| l.min_ms / 1e3),
            half_ready_seconds: wave.reached_seconds(0.5, size),
            most_ready_seconds: wave.reached_seconds(0.99, size),
            all_ready_seconds: wave.reached_seconds(1.0, size),
            ready_latency: wave.ready.summary(),
            verified_latency: wave.verified.summary(),
            late: wave.ready.longer_than_ms(LATE_MS),
            syn_retransmits: rose(|t| t.syn_retransmits),
            listen_overflows: rose(|t| t.listen_overflows),
            listen_drops: rose(|t| t.listen_drops),
            queue_most: seen.iter().filter_map(|(_, queue)| queue.map(|q| q.0)).max(),
            backlog: seen.iter().find_map(|(_, queue)| queue.map(|q| q.1)),
            moments: moments(seen, over, wave),
        }
    }
}

/// The round over time, at the moments of the queue's readings; of several that fall together, the fullest queue.
fn moments(seen: &[Queue], over: f64, wave: &Wave) -> Vec<RoundMoment> {
    let by = |latencies: &model::Latencies, t: f64| latencies.count() - latencies.longer_than_ms(t * 1e3);
    let at = |t: f64, queued| RoundMoment {
        t_seconds: t,
        ready: by(&wave.ready_after, t),
        verified: by(&wave.verified_after, t),
        queued,
    };
    let each = seen.len().div_ceil(MOMENTS_KEPT).max(1);
    let joined = seen.chunks(each).filter_map(|chunk| {
        let fullest = chunk.iter().filter_map(|(_, queue)| queue.map(|q| q.0)).max();
        chunk.last().map(|(t, _)| at(*t, fullest))
    });
    let last = RoundMoment {
        ready: wave.ready_after.count(),
        verified: wave.verified_after.count(),
        ..at(over, None)
    };
    joined.chain([last]).collect()
}

/// What is to be said of a finished round.
fn line(round: &Round) -> String {
    let after = |seconds: Option<f64>| seconds.map_or("never".to_owned(), units::seconds);
    format!(
        "{:>7.1} s  {}: {} of {} ready, half after {}, all after {}; {} failed",
        round.t_seconds,
        round.kind.says(),
        units::count(round.ready),
        units::count(round.connections),
        after(round.half_ready_seconds),
        after(round.all_ready_seconds),
        units::count(round.failed_total())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_tell_how_many_were_ready_and_keep_the_fullest_queue() {
        let mut wave = Wave::default();
        for ms in [10, 20, 30, 1_500] {
            wave.ready_after.record(ms * clock::MILLISECOND);
            wave.verified_after.record((ms + 100) * clock::MILLISECOND);
        }
        let seen = [(0.0, Some((0, 128))), (0.025, Some((128, 128))), (0.5, None)];
        let told = moments(&seen, 1.6, &wave);
        let figures: Vec<_> = told.iter().map(|m| (m.ready, m.verified, m.queued)).collect();
        assert_eq!(figures, [(0, 0, Some(0)), (2, 0, Some(128)), (3, 3, None), (4, 4, None)]);
        assert_eq!(told[3].t_seconds, 1.6);

        let many: Vec<_> = (0..1_000).map(|i| (f64::from(i), Some((u64::from(i == 501), 128)))).collect();
        let told = moments(&many, 1_000.0, &wave);
        assert!(told.len() <= MOMENTS_KEPT + 1);
        assert!(told.iter().any(|m| m.queued == Some(1)), "no spike is lost");
    }
}
