//! What does a worker write down of each connection, and of all of them?

use model::{Failure, FailureKind, Phase, Sample};
use protocols::{Driver, Fact};
use reactor::clock::Nanos;
use reactor::{End, Owner};

use super::load::Load;
use super::talk::Talk;

/// What is known of one connection beside its protocol: 32 bytes, as a million of them are held.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// Until ready: when it was to be started. After: when it became ready.
    began: Nanos,
    /// When it was asked for a verification.
    asked_at: Nanos,
    /// Until ready: when the last phase ended. After: the intended time of the oldest heartbeat not yet
    /// answered, or, where heartbeats arrive of themselves, when the next is due (0: not known yet).
    mark: Nanos,
    /// Heartbeats sent and not yet answered.
    beats_out: u16,
    /// Of these, how many will be answered before the verification is.
    ahead: u16,
    state: State,
    proof: Proof,
    /// The server has said something: accepting is more than a matter of its kernel.
    heard: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Connecting,
    Opened,
    Ready,
}

/// How far a connection has come in the verify pass.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Nothing yet: a heartbeat will do, or it has to be asked.
    #[default]
    Owed,
    /// Asked, and not yet answered.
    Asked,
    /// It cannot be asked: whatever is heard will do.
    Listening,
    /// A round trip that began in the pass has come back.
    Given,
}

const _: () = assert!(size_of::<Note>() <= 32);

impl Note {
    pub(crate) fn begun(intended: Nanos) -> Self {
        Self { began: intended, ..Self::default() }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether a round trip has come back on it.
    fn has_answered(&self) -> bool {
        self.proof == Proof::Given || self.mark > 0
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.proof == Proof::Asked
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.proof == Proof::Listening
    }

    pub(crate) fn beats_out(&self) -> u16 {
        self.beats_out
    }

    pub(crate) fn oldest_beat(&self) -> Nanos {
        self.mark
    }

    /// What it means that this connection did not become ready in time.
    pub(crate) fn timed_out(&self) -> FailureKind {
        if self.state == State::Connecting { FailureKind::ConnectTimeout } else { FailureKind::ReadyTimeout }
    }

    /// Whether the oldest heartbeat has waited longer than the patience when the next is due.
    pub(crate) fn is_silent(&self, due: Nanos, patience: Nanos) -> bool {
        self.beats_out > 0 && due.saturating_sub(self.mark) > patience
    }

    pub(crate) fn beat(&mut self, due: Nanos) {
        if self.beats_out == 0 {
            self.mark = due;
        }
        self.beats_out = self.beats_out.saturating_add(1);
    }

    pub(crate) fn ask(&mut self, now: Nanos) {
        self.proof = Proof::Asked;
        self.ahead = self.beats_out;
        self.asked_at = now;
    }
}

/// A verify pass under way (or the pilot's round trip while opening).
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// When it began; `None`: none is under way.
    began: Option<Nanos>,
    /// Connections that have not yet proved themselves.
    pub(crate) owed: u64,
    /// Those of them that were asked.
    pub(crate) outstanding: u64,
    pub(crate) verified: u64,
    /// The connection asked last has no way to answer.
    pub(crate) cannot_ask: bool,
}

/// All that a worker writes down.
pub(crate) struct Desk {
    pub(crate) sample: Sample,
    pub(crate) pass: Pass,
    /// Heartbeats sent and not yet answered, over all connections.
    pub(crate) beats_out: u64,
    /// Ready connections of which only the target's kernel has said a word so far. Such a server can be outrun: its
    /// accept queue fills, and connections wait a second for their SYN to be sent again. One of them, the pilot,
    /// therefore makes a round trip before more are opened; its answer speaks for those before it.
    pub(crate) unconfirmed: u64,
    newest_unconfirmed: Option<u32>,
    pilot: Option<Pilot>,
    /// While the connections speak.
    pub(crate) talk: Option<Talk>,
    /// While they work.
    pub(crate) load: Option<Load>,
    arriving: bool,
    /// Only an operation verifies a connection; a heartbeat does not.
    by_operation: bool,
    interval: Option<Nanos>,
    patience: Nanos,
}

struct Pilot {
    index: u32,
    speaks_for: u64,
}

impl Desk {
    pub(crate) fn new(arriving: bool, by_operation: bool, interval: Option<Nanos>, patience: Nanos) -> Self {
        Self {
            sample: Sample::default(),
            pass: Pass::default(),
            beats_out: 0,
            unconfirmed: 0,
            newest_unconfirmed: None,
            pilot: None,
            talk: None,
            load: None,
            arriving,
            by_operation,
            interval,
            patience,
        }
    }

    /// Starts a verify pass, which speaks for every connection: [`Desk::owes_proof`] takes them in.
    pub(crate) fn begin_pass(&mut self, now: Nanos) {
        self.pass = Pass { began: Some(now), ..Pass::default() };
        self.unconfirmed = 0;
        self.newest_unconfirmed = None;
    }

    /// Takes a connection into the pass.
    pub(crate) fn owes_proof(&mut self, note: &mut Note) {
        if note.is_ready() {
            note.proof = Proof::Owed;
            self.pass.owed += 1;
        }
    }

    /// Ends the pass.
    pub(crate) fn end_pass(&mut self) {
        self.pass.began = None;
    }

    /// Whether a connection must be asked: it has not proved itself, and no heartbeat is under way that will do it.
    pub(crate) fn must_be_asked(&self, note: &Note) -> bool {
        note.is_ready() && note.proof == Proof::Owed && !(note.beats_out > 0 && self.beat_is_proof(note))
    }

    /// Whether the answer to the oldest heartbeat under way is a round trip of the pass: it was due after it began.
    fn beat_is_proof(&self, note: &Note) -> bool {
        !self.by_operation && self.pass.began.is_some_and(|began| note.mark >= began)
    }

    fn proof_is_given(&mut self, note: &mut Note) {
        note.proof = Proof::Given;
        self.pass.owed -= 1;
        self.pass.verified += 1;
    }

    /// The connection that should make a round trip before more are opened, if enough wait for one.
    pub(crate) fn wants_pilot(&mut self, at: u64) -> Option<u32> {
        if self.pilot.is_some() || self.unconfirmed < at.max(1) {
            return None;
        }
        let index = self.newest_unconfirmed.take()?;
        self.pilot = Some(Pilot { index, speaks_for: self.unconfirmed });
        Some(index)
    }

    /// Whether a heartbeat is to be sent when one comes due. Where heartbeats arrive, none is; it is only seen
    /// whether they do.
    pub(crate) fn beat_is_due(&mut self, note: &mut Note, due: Nanos) -> bool {
        if !note.is_ready() {
            return false;
        }
        if !self.arriving {
            return true;
        }
        let interval = self.interval.unwrap_or(Nanos::MAX);
        while note.mark > 0 && due > note.mark.saturating_add(self.patience) {
            self.sample.counters.beats_sent += 1;
            self.sample.counters.beats_missed += 1;
            note.mark = note.mark.saturating_add(interval);
        }
        false
    }

    /// A step on the way to ready is done, by the server's own words.
    fn phase(&mut self, phase: Phase, note: &mut Note, now: Nanos) {
        self.sample.phases[phase as usize].record(now.saturating_sub(note.mark));
        note.mark = now;
        note.heard = true;
    }

    fn became_ready(&mut self, index: u32, note: &mut Note, now: Nanos) {
        self.sample.phases[Phase::Ready as usize].record(now.saturating_sub(note.began));
        self.sample.counters.became_ready += 1;
        self.sample.counters.ready += 1;
        self.sample.counters.establishing -= 1;
        note.state = State::Ready;
        note.began = now;
        // Where heartbeats arrive, the first is due an interval from now at the latest.
        note.mark = if self.arriving { self.interval.map_or(0, |i| now + i) } else { 0 };
        if !note.heard {
            self.unconfirmed += 1;
            self.newest_unconfirmed = Some(index);
        }
        note.heard = false;
    }

    fn answered(&mut self, index: u32, note: &mut Note, now: Nanos) {
        if note.proof == Proof::Asked && note.ahead == 0 && !self.by_operation {
            self.came_back(index, note, now);
        } else if note.beats_out > 0 {
            let latency = now.saturating_sub(note.mark);
            self.sample.beats.record(latency);
            if note.proof == Proof::Owed && self.beat_is_proof(note) {
                self.proof_is_given(note);
                self.sample.verify.record(latency);
            }
            self.sample.counters.beats_answered += 1;
            note.beats_out -= 1;
            self.beats_out -= 1;
            note.ahead = note.ahead.saturating_sub(1);
            note.mark += self.interval.unwrap_or(0);
        }
    }

    fn operated(&mut self, index: u32, note: &mut Note, now: Nanos) {
        if self.load.as_mut().is_some_and(|load| load.answered(index, now, &mut self.sample)) {
            if note.proof == Proof::Owed {
                note.proof = Proof::Given;
            }
            return;
        }
        let said = self.talk.as_mut().is_some_and(|talk| talk.answered(index, now, &mut self.sample));
        if !said && note.is_asked() {
            self.came_back(index, note, now);
        }
    }

    /// The round trip of a verification, or of the pilot, is done.
    fn came_back(&mut self, index: u32, note: &mut Note, now: Nanos) {
        self.pass.outstanding -= 1;
        match &self.pilot {
            Some(pilot) if pilot.index == index => {
                note.proof = Proof::Owed;
                self.pilot_is_back();
            }
            _ => {
                self.proof_is_given(note);
                self.sample.verify.record(now.saturating_sub(note.asked_at));
            }
        }
    }

    fn pilot_is_back(&mut self) {
        if let Some(pilot) = self.pilot.take() {
            self.unconfirmed = self.unconfirmed.saturating_sub(pilot.speaks_for);
        }
    }

    fn heard(&mut self, note: &mut Note, now: Nanos) {
        if note.proof == Proof::Listening {
            self.proof_is_given(note);
        }
        let (true, Some(interval)) = (self.arriving, self.interval) else { return };
        if !note.heard {
            // The first tells when the server's schedule has its due times.
            note.heard = true;
            note.mark = now + interval;
        } else if now + interval / 2 >= note.mark {
            self.sample.beats.record(now.saturating_sub(note.mark));
            self.sample.counters.beats_sent += 1;
            self.sample.counters.beats_answered += 1;
            note.mark = note.mark.min(now) + interval;
        }
    }

    /// The target has closed or reset a ready connection.
    fn closed(&mut self, note: &Note, now: Nanos) {
        self.sample.closed_age.record(now.saturating_sub(note.began));
        // Where heartbeats are sent, the mark is when the next is due, or the oldest one was.
        let beat = if self.arriving || note.mark == 0 {
            0
        } else if note.beats_out > 0 {
            note.mark
        } else {
            note.mark.saturating_sub(self.interval.unwrap_or(0))
        };
        let spoke = beat.max(note.began).max(note.asked_at).min(now);
        self.sample.closed_quiet.record(now - spoke);
    }

    fn forget_round_trips(&mut self, index: u32, note: &Note, now: Nanos) {
        if let Some(load) = &mut self.load {
            load.lost(index, now);
        }
        if let Some(talk) = &mut self.talk {
            talk.lost(index);
        }
        let waiting = u64::from(note.beats_out);
        self.sample.counters.beats_missed += waiting;
        self.beats_out -= waiting;
        if self.pass.began.is_some() && note.is_ready() && note.proof != Proof::Given {
            self.pass.owed -= 1;
        }
        if note.proof == Proof::Asked {
            self.pass.outstanding -= 1;
            if self.pilot.as_ref().is_some_and(|p| p.index == index) {
                self.pilot_is_back();
            }
        }
        if self.newest_unconfirmed == Some(index) {
            self.newest_unconfirmed = None;
            self.unconfirmed = 0;
        }
    }
}

impl<D: Driver> Owner<D, Note> for Desk {
    fn opened(&mut self, _index: u32, note: &mut Note, now: Nanos) {
        self.sample.counters.opened += 1;
        self.sample.phases[Phase::Tcp as usize].record(now.saturating_sub(note.began));
        note.state = State::Opened;
        note.mark = now;
    }

    fn secured(&mut self, _index: u32, note: &mut Note, now: Nanos) {
        self.phase(Phase::Tls, note, now);
    }

    fn fact(&mut self, index: u32, note: &mut Note, fact: Fact, now: Nanos) {
        match fact {
            Fact::Upgraded => self.phase(Phase::Upgrade, note, now),
            Fact::LoggedIn => self.phase(Phase::Auth, note, now),
            Fact::Ready => self.became_ready(index, note, now),
            Fact::Answered => self.answered(index, note, now),
            Fact::Operated => self.operated(index, note, now),
            Fact::Heard => self.heard(note, now),
            Fact::CannotAsk => {
                note.proof = Proof::Listening;
                self.pass.outstanding -= 1;
                self.pass.cannot_ask = true;
            }
            Fact::StartTls | Fact::Done => {}
        }
    }

    fn ended(&mut self, index: u32, note: &mut Note, end: End, now: Nanos) {
        let theirs = match &end {
            End::PeerClosed(_) => true,
            End::Failed(failure) => matches!(failure.kind, FailureKind::Closed | FailureKind::Reset),
            End::Done => false,
        };
        if theirs && note.is_ready() {
            self.closed(note, now);
        }
        let counters = &mut self.sample.counters;
        let was_ready = note.is_ready();
        if was_ready {
            counters.ready -= 1;
        } else {
            counters.establishing -= 1;
        }
        match end {
            End::Done => counters.dropped += 1,
            End::Failed(failure) => counters.failed.add(&failure),
            End::PeerClosed(words) => {
                let answer = self.arriving || note.has_answered() || note.is_asked();
                let kind = match (was_ready, words.is_empty() || answer) {
                    // It stood, was told something instead of an answer, and that was all.
                    (true, false) => FailureKind::ServerRefused,
                    (true, true) => FailureKind::Closed,
                    (false, _) => FailureKind::ClosedEarly,
                };
                counters.failed.add(&Failure::new(kind, words));
            }
        }
        self.forget_round_trips(index, note, now);
    }
}
