//! What does a worker write down of each connection, and of all of them?

use model::{Failure, FailureKind, Phase, Sample};
use protocols::{Driver, Fact};
use reactor::clock::Nanos;
use reactor::{End, Owner};

/// What is known of one connection beside its protocol: 24 bytes, as a million of them are held.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// Until ready: when it was to be started. After: when it was asked for a verification.
    began: Nanos,
    /// Until ready: when the last phase ended. After: the intended time of the oldest heartbeat not yet
    /// answered, or, where heartbeats arrive of themselves, when the next is due (0: not known yet).
    mark: Nanos,
    /// Heartbeats sent and not yet answered.
    beats_out: u16,
    /// Of these, how many will be answered before the verification is.
    ahead: u16,
    state: State,
    asked: bool,
    listening: bool,
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

const _: () = assert!(size_of::<Note>() <= 24);

impl Note {
    pub(crate) fn begun(intended: Nanos) -> Self {
        Self { began: intended, ..Self::default() }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening
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
        self.asked = true;
        self.ahead = self.beats_out;
        self.began = now;
    }
}

/// A verify pass under way (or the pilot's round trip while opening).
#[derive(Debug, Default)]
pub(crate) struct Pass {
    pub(crate) outstanding: u64,
    pub(crate) listening: u64,
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
    arriving: bool,
    interval: Option<Nanos>,
    patience: Nanos,
}

struct Pilot {
    index: u32,
    speaks_for: u64,
}

impl Desk {
    pub(crate) fn new(arriving: bool, interval: Option<Nanos>, patience: Nanos) -> Self {
        Self {
            sample: Sample::default(),
            pass: Pass::default(),
            beats_out: 0,
            unconfirmed: 0,
            newest_unconfirmed: None,
            pilot: None,
            arriving,
            interval,
            patience,
        }
    }

    /// Counters as they are, and latencies taken out.
    pub(crate) fn take_sample(&mut self) -> Sample {
        let counters = self.sample.counters.clone();
        let cpu_seconds = self.sample.cpu_seconds;
        let taken = std::mem::take(&mut self.sample);
        self.sample.counters = counters.clone();
        Sample { counters, cpu_seconds, ..taken }
    }

    /// Starts a verify pass, which speaks for every connection.
    pub(crate) fn begin_pass(&mut self) {
        self.pass = Pass::default();
        self.unconfirmed = 0;
        self.newest_unconfirmed = None;
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

    fn became_ready(&mut self, index: u32, note: &mut Note, now: Nanos) {
        self.sample.phases[Phase::Ready as usize].record(now.saturating_sub(note.began));
        self.sample.counters.became_ready += 1;
        self.sample.counters.ready += 1;
        self.sample.counters.establishing -= 1;
        note.state = State::Ready;
        // Where heartbeats arrive, the first is due an interval from now at the latest.
        note.mark = if self.arriving { self.interval.map_or(0, |i| now + i) } else { 0 };
        if !note.heard {
            self.unconfirmed += 1;
            self.newest_unconfirmed = Some(index);
        }
        note.heard = false;
    }

    fn answered(&mut self, index: u32, note: &mut Note, now: Nanos) {
        if note.asked && note.ahead == 0 {
            note.asked = false;
            self.pass.outstanding -= 1;
            match &self.pilot {
                Some(pilot) if pilot.index == index => self.pilot_is_back(),
                _ => {
                    self.pass.verified += 1;
                    self.sample.verify.record(now.saturating_sub(note.began));
                }
            }
        } else if note.beats_out > 0 {
            self.sample.beats.record(now.saturating_sub(note.mark));
            self.sample.counters.beats_answered += 1;
            note.beats_out -= 1;
            self.beats_out -= 1;
            note.ahead = note.ahead.saturating_sub(1);
            note.mark += self.interval.unwrap_or(0);
        }
    }

    fn pilot_is_back(&mut self) {
        if let Some(pilot) = self.pilot.take() {
            self.unconfirmed = self.unconfirmed.saturating_sub(pilot.speaks_for);
        }
    }

    fn heard(&mut self, note: &mut Note, now: Nanos) {
        if note.listening {
            note.listening = false;
            self.pass.listening -= 1;
            self.pass.verified += 1;
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

    fn forget_round_trips(&mut self, index: u32, note: &Note) {
        let waiting = u64::from(note.beats_out);
        self.sample.counters.beats_missed += waiting;
        self.beats_out -= waiting;
        if note.asked {
            self.pass.outstanding -= 1;
            if self.pilot.as_ref().is_some_and(|p| p.index == index) {
                self.pilot_is_back();
            }
        }
        if note.listening {
            self.pass.listening -= 1;
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
        self.sample.phases[Phase::Tls as usize].record(now.saturating_sub(note.mark));
        note.mark = now;
        note.heard = true;
    }

    fn fact(&mut self, index: u32, note: &mut Note, fact: Fact, now: Nanos) {
        match fact {
            Fact::Upgraded => {
                self.sample.phases[Phase::Upgrade as usize].record(now.saturating_sub(note.mark));
                note.mark = now;
                note.heard = true;
            }
            Fact::Ready => self.became_ready(index, note, now),
            Fact::Answered => self.answered(index, note, now),
            Fact::Heard => self.heard(note, now),
            Fact::CannotAsk => {
                note.asked = false;
                note.listening = true;
                self.pass.outstanding -= 1;
                self.pass.listening += 1;
                self.pass.cannot_ask = true;
            }
            Fact::Done => {}
        }
    }

    fn ended(&mut self, index: u32, note: &mut Note, end: End, _now: Nanos) {
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
            End::PeerClosed => {
                let kind = if was_ready { FailureKind::Closed } else { FailureKind::ClosedEarly };
                counters.failed.add(&Failure::new(kind, ""));
            }
        }
        self.forget_round_trips(index, note);
    }
}
