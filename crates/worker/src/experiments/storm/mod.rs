//! Storm: connect a share of the connections at one instant, with no window, and verify each as soon as it is ready.

mod desk;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fleet::{Assignment, Link, Order, Report};
use model::storm::numbers;
use model::{Failure, FailureKind, RoundKind, StormSpec};
use protocols::{Cue, Driver, Plan, WithDriver};
use reactor::Reactor;
use reactor::clock::{self, Nanos};
use reactor::pace::Schedule;
use reactor::socket;
use rustix::io::Errno;

use super::{PULSE, REPORT_EVERY, current, say_sample};
use crate::caller::Caller;
use crate::{WorkerError, trust};
use desk::{Attempt, Backoff, Desk, Note};

/// Connects between two looks at the sockets: a millisecond or two of them, which is how exact a moment of becoming
/// ready is while they are made.
const CONNECT_BATCH: u32 = 128;
/// First round trips begun between two looks at the sockets.
const ASK_BATCH: u32 = 256;

/// Carries out one assignment.
pub(crate) fn run(assignment: Assignment, link: &mut Link) -> Result<(), WorkerError> {
    let plan = Plan::of(&assignment.spec);
    let scheme = plan.target.scheme;
    let storm = assignment.spec.storm.unwrap_or_default();
    protocols::with_driver(&plan, Start { assignment, storm, link })
        .unwrap_or_else(|| Err(WorkerError::Setup(format!("no driver speaks {scheme}"))))
}

struct Start<'a> {
    assignment: Assignment,
    storm: StormSpec,
    link: &'a mut Link,
}

impl WithDriver for Start<'_> {
    type Out = Result<(), WorkerError>;

    fn run<D: Driver>(self, driver: D) -> Self::Out {
        let mut storm = Storm::new(driver, self.assignment, self.storm)?;
        storm.reactor.watch(self.link.descriptor()).map_err(|e| WorkerError::Setup(e.to_string()))?;
        self.link.say(&Report::Started)?;
        storm.obey(self.link)
    }
}

/// By when a connection must have come a step further.
struct Due {
    index: u32,
    tenancy: u32,
    at: Nanos,
}

struct Storm<D: Driver> {
    reactor: Reactor<D, Note>,
    desk: Desk,
    assignment: Assignment,
    storm: StormSpec,
    caller: Caller,
    /// A wave is under way.
    in_wave: bool,
    /// Attempts still to be made, the earliest first.
    attempts: BinaryHeap<Reverse<Attempt>>,
    pulse: Schedule,
    report_at: Nanos,
    patience: Nanos,
    /// How long one attempt may take in this wave.
    attempt_patience: Nanos,
    establishing: VecDeque<Due>,
    asked: VecDeque<Due>,
}

impl<D: Driver> Storm<D> {
    fn new(driver: D, assignment: Assignment, storm: StormSpec) -> Result<Self, WorkerError> {
        let mut reactor = Reactor::new(driver, assignment.capacity as usize)
            .map_err(|e| WorkerError::Setup(e.to_string()))?;
        reactor.tls_on_request = trust::on_request(&assignment)?;
        let now = clock::now();
        let patience = clock::from_seconds(assignment.spec.patience_seconds);
        Ok(Self {
            reactor,
            desk: Desk::new(now ^ u64::from(assignment.index) << 48),
            storm,
            caller: Caller::new(&assignment, now)?,
            in_wave: false,
            attempts: BinaryHeap::new(),
            pulse: Schedule::new(now, PULSE as f64),
            report_at: now + REPORT_EVERY,
            patience,
            attempt_patience: patience,
            establishing: VecDeque::new(),
            asked: VecDeque::new(),
            assignment,
        })
    }

    fn obey(&mut self, link: &mut Link) -> Result<(), WorkerError> {
        loop {
            let now = clock::now();
            while let Some((_, due)) = self.pulse.take(now) {
                self.desk.sample.lag.record(now - due);
            }
            self.connect_what_is_due(now);
            self.ask_what_is_ready();
            self.time_out(clock::now());
            self.attempts.extend(self.desk.again.drain(..).map(Reverse));
            if self.in_wave && self.desk.unsettled == 0 {
                self.in_wave = false;
                say_sample(&self.reactor, &mut self.desk.sample, link)?;
                link.say(&Report::WaveOver(Box::new(std::mem::take(&mut self.desk.wave))))?;
            }
            if now >= self.report_at {
                say_sample(&self.reactor, &mut self.desk.sample, link)?;
                self.report_at = now + REPORT_EVERY;
            }
            let until = self.next_due();
            let order_waits = self
                .reactor
                .turn(Some(until), &mut self.desk)
                .map_err(|e| WorkerError::Setup(e.to_string()))?;
            if order_waits {
                link.read_more()?;
                while let Some(order) = link.next_order()? {
                    match order {
                        Order::Wave { total, kind, at } => self.begin_wave(total, kind, at),
                        Order::Drop => {
                            self.drop_all();
                            say_sample(&self.reactor, &mut self.desk.sample, link)?;
                            link.say(&Report::Dropped)?;
                        }
                        Order::Quiet => link.say(&Report::Quiet)?,
                        Order::Drain => {
                            self.drop_all();
                            say_sample(&self.reactor, &mut self.desk.sample, link)?;
                            link.say(&Report::Drained)?;
                            return Ok(());
                        }
                        Order::Start(_)
                        | Order::Open { .. }
                        | Order::Verify
                        | Order::Talk { .. }
                        | Order::Load { .. } => {
                            return Err(WorkerError::OutOfOrder(format!("{order:?}")));
                        }
                    }
                }
            }
        }
    }

    fn begin_wave(&mut self, total: u64, kind: RoundKind, at: Nanos) {
        let backoff =
            (kind == RoundKind::Jitter).then_some(Backoff { storm: self.storm, patience: self.patience });
        self.attempt_patience = match backoff {
            Some(_) => clock::from_seconds(self.storm.attempt_seconds).min(self.patience),
            None => self.patience,
        };
        self.desk.begin_wave(at, backoff);
        self.caller.ports_exhausted = false;
        let (index, workers) = (self.assignment.index, self.assignment.workers);
        for number in numbers(total, index, workers) {
            let due = match backoff {
                Some(_) => at + self.desk.jitter(0),
                None => at + clock::from_seconds(self.storm.due_seconds(kind, number, total)),
            };
            self.attempts.push(Reverse(Attempt { due, first_due: due, number: 0 }));
        }
        self.desk.unsettled = self.attempts.len() as u64;
        self.in_wave = true;
    }

    /// Makes the attempts whose time has come, as fast as `connect()` goes.
    fn connect_what_is_due(&mut self, now: Nanos) {
        for _ in 0..CONNECT_BATCH {
            match self.attempts.peek() {
                Some(Reverse(attempt)) if attempt.due <= now => {}
                _ => return,
            }
            if let Some(Reverse(attempt)) = self.attempts.pop() {
                self.connect(attempt);
            }
        }
    }

    fn connect(&mut self, attempt: Attempt) {
        let now = clock::now();
        self.desk.attempted(&attempt, now);
        match self.caller.connect(&mut self.reactor, || Note::begun(&attempt)) {
            Ok(index) => {
                let tenancy = self.reactor.tenancy(index);
                let at = (now + self.attempt_patience).min(attempt.first_due + self.patience);
                self.establishing.push_back(Due { index, tenancy, at });
            }
            Err(errno) => {
                self.caller.ports_exhausted |= errno == Errno::ADDRNOTAVAIL;
                self.desk.sample.counters.establishing -= 1;
                self.desk.attempt_failed(&attempt, &socket::failure(errno), now);
            }
        }
    }

    /// Lets those that became ready make their round trip; what is due to be connected goes first.
    fn ask_what_is_ready(&mut self) {
        let now = clock::now();
        if self.attempts.peek().is_some_and(|Reverse(attempt)| attempt.due <= now) {
            return;
        }
        for _ in 0..ASK_BATCH {
            let Some(index) = self.desk.to_ask.pop_front() else { return };
            if self.reactor.note(index).is_some_and(Note::begin_asking) {
                let tenancy = self.reactor.tenancy(index);
                self.asked.push_back(Due { index, tenancy, at: now + self.patience });
                self.reactor.cue(index, Cue::Ask, &mut self.desk, now);
            }
        }
    }

    fn time_out(&mut self, now: Nanos) {
        while let Some(due) = self.establishing.front() {
            let (index, tenancy, at) = (due.index, due.tenancy, due.at);
            let kind = current(&mut self.reactor, index, tenancy).and_then(|note| note.not_ready());
            if kind.is_some() && at > now {
                break;
            }
            self.establishing.pop_front();
            if let Some(kind) = kind {
                let failure = Failure::new(kind, "not ready in time");
                self.reactor.fail(index, failure, &mut self.desk, now);
            }
        }
        while let Some(due) = self.asked.front() {
            let (index, tenancy, at) = (due.index, due.tenancy, due.at);
            let waits = current(&mut self.reactor, index, tenancy).is_some_and(|note| note.is_asked());
            if waits && at > now {
                break;
            }
            self.asked.pop_front();
            if waits {
                let failure = Failure::new(FailureKind::Silent, "no answer to its first round trip");
                self.reactor.fail(index, failure, &mut self.desk, now);
            }
        }
    }

    fn next_due(&self) -> Nanos {
        let now = clock::now();
        if !self.desk.to_ask.is_empty() {
            return now;
        }
        let attempt = self.attempts.peek().map_or(Nanos::MAX, |Reverse(attempt)| attempt.due);
        self.pulse.due().min(self.report_at).min(attempt)
    }

    /// Drops all connections; what was under way is given up.
    fn drop_all(&mut self) {
        self.in_wave = false;
        self.attempts.clear();
        self.establishing.clear();
        self.asked.clear();
        self.desk.abandon();
        for index in 0..self.reactor.places() {
            self.reactor.abort(index, &mut self.desk, clock::now());
        }
    }
}
