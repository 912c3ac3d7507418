//! What does a worker write down of a wave, and which of its failures are tried again?

use std::collections::VecDeque;

use model::failure::Origin;
use model::storm::Wave;
use model::{Failure, FailureKind, Phase, Sample, StormSpec};
use protocols::{Driver, Fact};
use reactor::clock::{self, Nanos};
use reactor::{End, Owner};

use super::super::share;

/// One attempt to connect; the earliest is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt {
    /// Its intended time.
    pub(crate) due: Nanos,
    /// The intended time of this connection's first attempt: its user waits since then.
    pub(crate) first_due: Nanos,
    /// How many attempts there were before it.
    pub(crate) number: u32,
}

/// How failed attempts are made again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) storm: StormSpec,
    /// After this much, counted from the first attempt, none is made any more.
    pub(crate) patience: Nanos,
}

/// What is known of one connection beside its protocol.
#[derive(Debug, Default)]
pub(crate) struct Note {
    first_due: Nanos,
    /// When this attempt was to be made.
    began: Nanos,
    /// When the last phase ended; once ready: when it became so.
    mark: Nanos,
    number: u32,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Connecting,
    Opened,
    Ready,
    Asked,
    Verified,
}

const _: () = assert!(size_of::<Note>() <= 32);

impl Note {
    pub(crate) fn begun(attempt: &Attempt) -> Self {
        let Attempt { due, first_due, number } = *attempt;
        Self { first_due, began: due, mark: due, number, ..Self::default() }
    }

    /// What it means if this connection goes no further; `None`: it is ready.
    pub(crate) fn not_ready(&self) -> Option<FailureKind> {
        match self.state {
            State::Connecting => Some(FailureKind::ConnectTimeout),
            State::Opened => Some(FailureKind::ReadyTimeout),
            State::Ready | State::Asked | State::Verified => None,
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.state == State::Asked
    }

    /// Notes that its round trip begins; false: it is not one that should.
    pub(crate) fn begin_asking(&mut self) -> bool {
        let ready = self.state == State::Ready;
        if ready {
            self.state = State::Asked;
        }
        ready
    }
}

/// All that a worker writes down.
pub(crate) struct Desk {
    pub(crate) sample: Sample,
    pub(crate) wave: Wave,
    /// Connections of the wave that have neither made their round trip nor failed for good.
    pub(crate) unsettled: u64,
    /// Ready connections that have not yet been asked for a round trip.
    pub(crate) to_ask: VecDeque<u32>,
    /// Attempts to be made again.
    pub(crate) again: Vec<Attempt>,
    /// The wave's instant.
    instant: Nanos,
    backoff: Option<Backoff>,
    chance: u64,
}

impl Desk {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            sample: Sample::default(),
            wave: Wave::default(),
            unsettled: 0,
            to_ask: VecDeque::new(),
            again: Vec::new(),
            instant: 0,
            backoff: None,
            chance: seed,
        }
    }

    pub(crate) fn begin_wave(&mut self, instant: Nanos, backoff: Option<Backoff>) {
        self.abandon();
        self.instant = instant;
        self.backoff = backoff;
    }

    /// Gives up what was under way.
    pub(crate) fn abandon(&mut self) {
        self.wave = Wave::default();
        self.unsettled = 0;
        self.to_ask.clear();
        self.again.clear();
        self.backoff = None;
    }

    /// The random wait before attempt `number`: full jitter, anything from nothing to the most.
    pub(crate) fn jitter(&mut self, number: u32) -> Nanos {
        let Some(backoff) = self.backoff else { return 0 };
        self.chance = self.chance.wrapping_add(1);
        clock::from_seconds(share(self.chance) * backoff.storm.backoff_at_most(number))
    }

    /// Notes that `connect()` is called now.
    pub(crate) fn attempted(&mut self, attempt: &Attempt, now: Nanos) {
        self.wave.attempts += 1;
        self.wave.issued.record(now.saturating_sub(attempt.due));
        self.sample.counters.attempted += 1;
        self.sample.counters.establishing += 1;
    }

    /// An attempt has failed: it is made again where there is back-off, patience is left and the failure is not our own.
    pub(crate) fn attempt_failed(&mut self, attempt: &Attempt, failure: &Failure, now: Nanos) {
        self.wave.attempts_failed.add(failure);
        if failure.kind.origin() != Origin::Generator
            && let Some(backoff) = self.backoff
        {
            let number = attempt.number + 1;
            let due = now + self.jitter(number);
            if due < attempt.first_due + backoff.patience {
                return self.again.push(Attempt { due, first_due: attempt.first_due, number });
            }
        }
        self.sample.counters.failed.add(failure);
        self.unsettled = self.unsettled.saturating_sub(1);
    }

    /// The round trip has come back: only now does the connection count.
    fn proven(&mut self, note: &mut Note, now: Nanos) {
        note.state = State::Verified;
        self.wave.ready_after.record(note.mark.saturating_sub(self.instant));
        self.wave.ready.record(note.mark.saturating_sub(note.first_due));
        self.wave.verified_after.record(now.saturating_sub(self.instant));
        self.wave.verified.record(now.saturating_sub(note.first_due));
        self.unsettled = self.unsettled.saturating_sub(1);
    }

    fn phase(&mut self, phase: Phase, note: &mut Note, now: Nanos) {
        self.sample.phases[phase as usize].record(now.saturating_sub(note.mark));
        note.mark = now;
    }
}

impl<D: Driver> Owner<D, Note> for Desk {
    fn opened(&mut self, _index: u32, note: &mut Note, now: Nanos) {
        self.sample.counters.opened += 1;
        note.state = State::Opened;
        self.phase(Phase::Tcp, note, now);
    }

    fn secured(&mut self, _index: u32, note: &mut Note, now: Nanos) {
        self.phase(Phase::Tls, note, now);
    }

    fn fact(&mut self, index: u32, note: &mut Note, fact: Fact, now: Nanos) {
        match fact {
            Fact::Upgraded => self.phase(Phase::Upgrade, note, now),
            Fact::LoggedIn => self.phase(Phase::Auth, note, now),
            Fact::Ready => {
                self.sample.phases[Phase::Ready as usize].record(now.saturating_sub(note.began));
                self.sample.counters.became_ready += 1;
                self.sample.counters.ready += 1;
                self.sample.counters.establishing -= 1;
                note.state = State::Ready;
                note.mark = now;
                self.to_ask.push_back(index);
            }
            // Where a client cannot ask, it is ready by the server's own words: that was its round trip.
            Fact::CannotAsk => self.proven(note, note.mark),
            Fact::Answered if note.state == State::Asked => self.proven(note, now),
            Fact::Answered | Fact::Operated | Fact::Heard | Fact::StartTls | Fact::Done => {}
        }
    }

    fn ended(&mut self, _index: u32, note: &mut Note, end: End, now: Nanos) {
        let counters = &mut self.sample.counters;
        match note.state {
            State::Connecting | State::Opened => counters.establishing -= 1,
            State::Ready | State::Asked | State::Verified => counters.ready -= 1,
        }
        let held = note.state == State::Verified;
        let failure = match end {
            End::Done => {
                counters.dropped += 1;
                return;
            }
            End::Failed(failure) => failure,
            End::PeerClosed(words) if held => Failure::new(FailureKind::Closed, words),
            End::PeerClosed(words) => Failure::new(FailureKind::ClosedEarly, words),
        };
        if held {
            counters.failed.add(&failure);
        } else {
            let attempt = Attempt { due: now, first_due: note.first_due, number: note.number };
            self.attempt_failed(&attempt, &failure, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = clock::SECOND;

    fn desk(backoff: bool) -> Desk {
        let mut desk = Desk::new(7);
        let patience = 20 * SECOND;
        desk.begin_wave(100 * SECOND, backoff.then_some(Backoff { storm: StormSpec::default(), patience }));
        desk.unsettled = 1;
        desk
    }

    fn attempt(number: u32) -> Attempt {
        Attempt { due: 100 * SECOND, first_due: 100 * SECOND, number }
    }

    #[test]
    fn without_back_off_a_failure_is_final() {
        let mut desk = desk(false);
        desk.attempt_failed(&attempt(0), &Failure::new(FailureKind::Refused, ""), 101 * SECOND);
        assert_eq!((desk.unsettled, desk.again.len()), (0, 0));
        assert_eq!(desk.sample.counters.failed.of(FailureKind::Refused), 1);
    }

    #[test]
    fn with_back_off_a_failure_is_tried_again_while_patience_lasts() {
        let mut desk = desk(true);
        let refused = Failure::new(FailureKind::Refused, "");
        for number in 0..40 {
            desk.attempt_failed(&attempt(number), &refused, 101 * SECOND);
        }
        assert_eq!(desk.sample.counters.failed.total(), 0, "at most 10 s of the 20 s are waited");
        assert_eq!((desk.unsettled, desk.again.len()), (1, 40));
        let waits: Vec<Nanos> = desk.again.iter().map(|a| a.due - 101 * SECOND).collect();
        assert!(waits[0] <= SECOND / 5, "at most twice the base before the second attempt: {waits:?}");
        assert!(waits.iter().all(|w| *w <= 10 * SECOND));
        assert!(waits.iter().any(|w| *w > 6 * SECOND) && waits[8..].iter().any(|w| *w < 4 * SECOND));

        desk.attempt_failed(&attempt(9), &refused, 120 * SECOND);
        assert_eq!((desk.unsettled, desk.sample.counters.failed.total()), (0, 1));
        assert_eq!(desk.wave.attempts_failed.of(FailureKind::Refused), 41);
    }

    #[test]
    fn our_own_failures_are_not_tried_again() {
        let mut desk = desk(true);
        desk.attempt_failed(&attempt(0), &Failure::new(FailureKind::NoPorts, ""), 101 * SECOND);
        assert_eq!((desk.unsettled, desk.again.len()), (0, 0));
    }

    #[test]
    fn the_earliest_attempt_is_the_least() {
        let later = Attempt { due: 3, first_due: 1, number: 0 };
        assert!(Attempt { due: 2, first_due: 2, number: 9 } < later);
    }
}
