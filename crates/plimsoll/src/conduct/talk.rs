//! How is a talk conducted? All connect and are verified; a quiet moment; then all speak; a quiet moment again.

use fleet::{Order, Report};
use model::result::{CpuUse, Moment};
use model::talk::{Spell, TalkResult, Talked};
use model::units;
use reactor::clock::{self, Nanos};

use super::{Conductor, Stopped, used};

/// From the order to the first message: every worker has its schedule by then.
const LEAD: Nanos = 500 * clock::MILLISECOND;
/// How long both sides are looked at before all speak.
const BEFORE: Nanos = 3 * clock::SECOND;

impl Conductor<'_> {
    /// The barrier, the talk, and the hold after it.
    pub(super) fn talk(&mut self) -> Result<(), Stopped> {
        self.begin()?;
        let size = self.climb()?;
        if size == 0 {
            return Ok(());
        }
        let mut spells = Vec::new();
        let idle = self.quiet_time("before", BEFORE)?;
        spells.push(self.spell("before", "before", idle));

        // What is lost while they speak is lost by the stage that ends with the hold.
        self.stage = self.window();
        let instant = clock::now() + LEAD;
        let since = self.counters().counters;
        self.talked = Talked::default();
        let first = self.eyes.glance();
        let began = clock::now();
        let over = |r: &Report| matches!(r, Report::TalkOver(_)).then_some(0);
        let ended = self.carry_out("talk", Some(&Order::Talk { at: instant }), over);
        let busy = used(began, &first, &self.eyes.glance());
        spells.push(self.spell("during", "talk", busy));
        self.out.talk = Some(self.talked_so_far(instant, &since, spells));
        ended?;
        if let Some(talk) = &self.out.talk {
            let at = clock::to_seconds(clock::now() - self.started);
            self.audience.say(&line(at, talk));
        }

        self.hold_on(size)?;
        let idle = self.out.stages.last().and_then(|stage| stage.idle);
        let after = idle.map(|idle| self.spell("after", "hold", idle));
        if let Some(talk) = &mut self.out.talk {
            talk.spells.extend(after);
        }
        Ok(())
    }

    fn talked_so_far(&self, instant: Nanos, since: &model::Counters, spells: Vec<Spell>) -> TalkResult {
        let all = self.counters().counters;
        let Talked { clients, succeeded, due_seconds, answered_seconds } = self.talked;
        let seen = &self.out.total;
        TalkResult {
            t_seconds: clock::to_seconds(instant.saturating_sub(self.started)),
            clients,
            succeeded,
            messages: clients * self.spec.talk.map_or(0, |talk| u64::from(talk.messages)),
            sent: all.messages_sent - since.messages_sent,
            answered: all.messages_answered - since.messages_answered,
            ideal_seconds: due_seconds,
            seconds: (answered_seconds > 0.0).then_some(answered_seconds),
            schedule_lag: seen.message_lag.summary(),
            latency: seen.messages.summary(),
            late: seen.messages.longer_than_ms(self.spec.objective_seconds * 1e3),
            spells,
        }
    }

    /// What both sides needed while something was going on: CPU from its both ends, the most of all else that was seen.
    fn spell(&self, name: &str, doing: &str, cpu: CpuUse) -> Spell {
        let moments = || self.out.series.iter().filter(|m| m.doing == doing);
        let most = |of: fn(&Moment) -> Option<u64>| moments().filter_map(of).max();
        let cpus = |used: Option<f64>| used.filter(|_| cpu.seconds > 0.0).map(|used| used / cpu.seconds);
        Spell {
            name: name.to_owned(),
            seconds: cpu.seconds,
            target_cpus: cpus(cpu.target_cpu_seconds),
            generator_cpus: cpus(cpu.generator_cpu_seconds),
            target_user_bytes: most(|m| m.target_user_bytes),
            target_threads: most(|m| m.target_threads),
            generator_user_bytes: most(|m| m.generator_user_bytes),
        }
    }
}

/// What is to be said of a talk that is over.
fn line(t_seconds: f64, talk: &TalkResult) -> String {
    format!(
        "{t_seconds:>7.1} s  talk: {} of {} clients got every answer; {} of {} messages answered in {} (the schedule \
         has {})",
        units::count(talk.succeeded),
        units::count(talk.clients),
        units::count(talk.answered),
        units::count(talk.messages),
        talk.seconds.map_or("no time".to_owned(), units::seconds),
        units::seconds(talk.ideal_seconds)
    )
}
