//! Hold: open a share of the connections, keep every one alive, and verify every one when told to.

mod desk;

use std::collections::VecDeque;

use fleet::{Assignment, Link, Order, Report};
use model::{Failure, FailureKind, Spec};
use protocols::{Beats, Cue, Driver, Plan, WithDriver};
use reactor::Reactor;
use reactor::clock::{self, Nanos};
use reactor::pace::{Schedule, Walk};
use reactor::socket;
use reactor::tls::ClientTls;

use crate::sources::Sources;
use crate::{WorkerError, trust};
use desk::{Desk, Note};

/// The loop's own pulse: how late it comes is how much the generator is behind.
const PULSE: Nanos = 50 * clock::MILLISECOND;
/// How often counters and latencies are reported.
const REPORT_EVERY: Nanos = 500 * clock::MILLISECOND;
/// A turn of the loop that took longer than this was the generator's own stall: only so much of it counts
/// against a connection's patience, as its answer may have waited here, unread.
const ATTENTION: Nanos = 100 * clock::MILLISECOND;
/// Connects between two looks at the sockets, so that answers never wait for long.
const CONNECT_BATCH: u32 = 32;
/// On loopback, a port in TIME-WAIT may be used again after a second (`net.ipv4.tcp_tw_reuse` is 2, its stamp is
/// in whole seconds).
const TIME_WAIT_REST: Nanos = 2_100 * clock::MILLISECOND;
/// Ticks of heartbeats that are sent between two looks at the sockets.
const BEAT_BATCH: u32 = 32;
/// Round trips of a verify pass that are under way at a time, over all workers: enough to keep both ends busy,
/// few enough that they measure the target and not each other.
const VERIFY_WINDOW: u64 = 4_096;
/// The same of one worker: what a turn of its loop takes in.
const VERIFY_WINDOW_EACH: u64 = 256;

/// Carries out one assignment.
pub(crate) fn run(assignment: Assignment, link: &mut Link) -> Result<(), WorkerError> {
    let plan = Plan::of(&assignment.spec);
    let scheme = plan.target.scheme;
    protocols::with_driver(&plan, Start { assignment, link })
        .unwrap_or_else(|| Err(WorkerError::Setup(format!("no driver speaks {scheme}"))))
}

struct Start<'a> {
    assignment: Assignment,
    link: &'a mut Link,
}

impl WithDriver for Start<'_> {
    type Out = Result<(), WorkerError>;

    fn run<D: Driver>(self, driver: D) -> Self::Out {
        let mut hold = Hold::new(driver, self.assignment)?;
        hold.reactor.watch(self.link.descriptor()).map_err(|e| WorkerError::Setup(e.to_string()))?;
        self.link.say(&Report::Started)?;
        hold.obey(self.link)
    }
}

/// What the worker was last told and has not yet finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Opening,
    Verifying,
    Quieting { deadline: Nanos },
}

/// What a connection that is watched for a time-out must have done by then.
struct Due {
    index: u32,
    tenancy: u32,
    /// By the attentive clock.
    at: Nanos,
}

struct Hold<D: Driver> {
    reactor: Reactor<D, Note>,
    desk: Desk,
    assignment: Assignment,
    tls: Option<ClientTls>,
    sources: Sources,
    /// Set once a whole round of sources was refused, twice: no further attempt would find a port.
    ports_exhausted: bool,
    /// After the first refused round, until when no port is asked for (0: none was refused yet).
    ports_rest_until: Nanos,
    doing: Doing,
    /// Connections still to be started.
    to_open: u64,
    /// Which address of the target is next.
    next_address: usize,
    connects: Option<Schedule>,
    walk: Option<Walk>,
    pulse: Schedule,
    report_at: Nanos,
    patience: Nanos,
    /// The time that the loop has been attentive: the clock by which connections are given up.
    attentive: Nanos,
    began: Nanos,
    turned_at: Nanos,
    /// How long a connection may take to prove itself by hearing something, where it cannot be asked.
    hearing_patience: Nanos,
    establishing: VecDeque<Due>,
    asked: VecDeque<Due>,
    listening: VecDeque<Due>,
    /// Where the verify pass goes on.
    cursor: u32,
}

impl<D: Driver> Hold<D> {
    fn new(driver: D, assignment: Assignment) -> Result<Self, WorkerError> {
        let spec = &assignment.spec;
        let tls = if spec.target.scheme.is_tls() {
            Some(trust::client(&spec.target.host, assignment.ca_pem.as_deref(), spec.insecure)?)
        } else {
            None
        };
        let capacity = assignment.capacity as usize;
        let reactor = Reactor::new(driver, capacity).map_err(|e| WorkerError::Setup(e.to_string()))?;
        let now = clock::now();
        let interval = spec.heartbeat_seconds.map(clock::from_seconds);
        let walk =
            interval.map(|i| Walk::new(now, i, assignment.capacity, assignment.index, assignment.workers));
        let patience = clock::from_seconds(spec.patience_seconds);
        Ok(Self {
            reactor,
            desk: Desk::new(D::FACTS.beats == Beats::Arriving, interval, patience),
            tls,
            sources: Sources::new(assignment.sources.clone(), now >> 10),
            ports_exhausted: false,
            ports_rest_until: 0,
            doing: Doing::Nothing,
            to_open: 0,
            next_address: assignment.index as usize,
            connects: None,
            walk,
            pulse: Schedule::new(now, PULSE as f64),
            report_at: now + REPORT_EVERY,
            patience,
            attentive: 0,
            began: now,
            turned_at: now,
            hearing_patience: patience + interval.unwrap_or(0),
            establishing: VecDeque::new(),
            asked: VecDeque::new(),
            listening: VecDeque::new(),
            cursor: 0,
            assignment,
        })
    }

    fn obey(&mut self, link: &mut Link) -> Result<(), WorkerError> {
        loop {
            let now = clock::now();
            self.attentive += (now - self.turned_at).min(ATTENTION);
            self.turned_at = now;
            while let Some((_, due)) = self.pulse.take(now) {
                self.desk.sample.lag.record(now - due);
            }
            self.beat(now);
            self.open(now);
            self.verify(now);
            self.time_out(now);
            if self.concluded(now) {
                let verified = self.desk.pass.verified;
                self.say_sample(link)?;
                link.say(&match self.doing {
                    Doing::Verifying => Report::Verified { verified },
                    Doing::Quieting { .. } => Report::Quiet,
                    Doing::Opening | Doing::Nothing => Report::Opened,
                })?;
                self.doing = Doing::Nothing;
            }
            if now >= self.report_at {
                self.say_sample(link)?;
                self.report_at = now + REPORT_EVERY;
            }
            let until = self.next_due(now);
            let order_waits = self
                .reactor
                .turn(Some(until), &mut self.desk)
                .map_err(|e| WorkerError::Setup(e.to_string()))?;
            if order_waits {
                link.read_more()?;
                while let Some(order) = link.next_order()? {
                    if !self.take(order) {
                        self.drain();
                        self.say_sample(link)?;
                        link.say(&Report::Drained)?;
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes an order; false: it was the last one.
    fn take(&mut self, order: Order) -> bool {
        let now = clock::now();
        match order {
            Order::Start(_) => {}
            Order::Open { total } => {
                let share = Spec::share(total, self.assignment.index, self.assignment.workers);
                self.resize(share, now);
                self.doing = Doing::Opening;
            }
            Order::Verify => {
                self.desk.begin_pass();
                self.cursor = 0;
                self.doing = Doing::Verifying;
            }
            Order::Quiet => {
                self.walk = None;
                self.doing = Doing::Quieting { deadline: self.attentive + self.patience };
            }
            Order::Drain => return false,
        }
        true
    }

    fn resize(&mut self, share: u64, now: Nanos) {
        let held = self.desk.sample.counters.ready;
        self.to_open = share.saturating_sub(held);
        self.ports_exhausted = false;
        self.ports_rest_until = 0;
        if self.to_open > 0 {
            let workers = f64::from(self.assignment.workers.max(1));
            self.connects = self.assignment.spec.rate_per_second.map(|rate| {
                let gap = clock::SECOND as f64 * workers / rate;
                let phase = gap * f64::from(self.assignment.index) / workers;
                Schedule::new(now + phase as Nanos, gap)
            });
        }
        let mut surplus = held.saturating_sub(share);
        for index in (0..self.reactor.places()).rev() {
            if surplus == 0 {
                break;
            }
            if self.reactor.note(index).is_some_and(|n| n.is_ready()) {
                self.reactor.close(index, &mut self.desk, now);
                surplus -= 1;
            }
        }
    }

    /// Whether there is room for one more connection between `connect()` and the server's first word.
    fn has_room(&self) -> bool {
        let window = u64::from(self.assignment.window.max(1));
        let counters = &self.desk.sample.counters;
        counters.establishing < window && self.desk.unconfirmed < window
    }

    fn open(&mut self, now: Nanos) {
        // Asked for first: a full window is emptied by nothing but a pilot's return.
        if self.to_open > 0
            && let Some(index) = self.desk.wants_pilot(u64::from(self.assignment.window.max(1)) / 2)
        {
            self.ask(index, now);
        }
        for _ in 0..CONNECT_BATCH {
            if self.to_open == 0 || !self.has_room() || now < self.ports_rest_until {
                return;
            }
            let intended = match &mut self.connects {
                Some(schedule) => match schedule.take(now) {
                    Some((_, due)) => due,
                    None => return,
                },
                None => clock::now(),
            };
            self.to_open -= 1;
            self.connect(intended);
        }
    }

    fn connect(&mut self, intended: Nanos) {
        let address = self.assignment.addresses[self.next_address % self.assignment.addresses.len()];
        self.next_address += 1;
        self.desk.sample.counters.attempted += 1;
        // A port of ours may be taken (a TIME-WAIT, a stranger); the next one seldom is.
        let tries = if self.ports_exhausted { 1 } else { self.sources.round().max(1) };
        let mut error = rustix::io::Errno::ADDRNOTAVAIL;
        for _ in 0..tries {
            match self.reactor.connect(address, self.sources.next(), self.tls.as_ref(), Note::begun(intended))
            {
                Ok(index) => {
                    self.desk.sample.counters.establishing += 1;
                    let tenancy = self.reactor.tenancy(index);
                    self.establishing.push_back(Due { index, tenancy, at: self.attentive + self.patience });
                    return;
                }
                Err(errno) => {
                    error = errno;
                    if errno != rustix::io::Errno::ADDRNOTAVAIL {
                        break;
                    }
                }
            }
        }
        if error == rustix::io::Errno::ADDRNOTAVAIL {
            if self.ports_rest_until == 0 {
                // Perhaps another run has just ended: its ports can be used again soon.
                self.ports_rest_until = clock::now() + TIME_WAIT_REST;
                self.desk.sample.counters.attempted -= 1;
                self.to_open += 1;
                return;
            }
            self.ports_exhausted = true;
        }
        self.desk.sample.counters.failed.add(&socket::failure(error));
    }

    /// Asks one connection for a round trip that counts as a verification.
    fn ask(&mut self, index: u32, now: Nanos) {
        if let Some(note) = self.reactor.note(index) {
            note.ask(now);
            let tenancy = self.reactor.tenancy(index);
            self.desk.pass.outstanding += 1;
            self.asked.push_back(Due { index, tenancy, at: self.attentive + self.patience });
            self.reactor.cue(index, Cue::Ask, &mut self.desk, now);
            if self.desk.pass.cannot_ask {
                self.desk.pass.cannot_ask = false;
                let at = self.attentive + self.hearing_patience;
                self.listening.push_back(Due { index, tenancy, at });
            }
        }
    }

    fn verify(&mut self, now: Nanos) {
        if self.doing != Doing::Verifying {
            return;
        }
        let workers = u64::from(self.assignment.workers.max(1));
        let window = (VERIFY_WINDOW / workers).clamp(1, VERIFY_WINDOW_EACH);
        while self.desk.pass.outstanding < window && self.cursor < self.reactor.places() {
            let index = self.cursor;
            self.cursor += 1;
            if self.reactor.note(index).is_some_and(|n| n.is_ready()) {
                self.ask(index, clock::now().max(now));
            }
        }
    }

    fn beat(&mut self, now: Nanos) {
        let Some(walk) = &mut self.walk else { return };
        // Since the run began, the generator was not attentive for this long: none of it is a target's silence.
        let stalled = now.saturating_sub(self.began + self.attentive);
        // A generator that cannot keep up sends its beats late; it must not come to nothing else.
        for _ in 0..BEAT_BATCH {
            let Some((first, stride, due)) = walk.take(now) else { break };
            for index in (first..self.reactor.places()).step_by(stride) {
                let Some(note) = self.reactor.note(index) else { continue };
                if !self.desk.beat_is_due(note, due) {
                    continue;
                }
                if note.is_silent(due, self.patience + stalled) {
                    let waited = clock::to_seconds(due.saturating_sub(note.oldest_beat()));
                    let text = format!("no answer to a heartbeat for {waited:.1} s");
                    self.reactor.fail(index, Failure::new(FailureKind::Silent, text), &mut self.desk, now);
                    continue;
                }
                note.beat(due);
                self.desk.beats_out += 1;
                self.desk.sample.counters.beats_sent += 1;
                self.reactor.cue(index, Cue::Ask, &mut self.desk, now);
            }
        }
    }

    fn time_out(&mut self, now: Nanos) {
        let patience = clock::to_seconds(self.patience);
        while let Some(due) = self.establishing.front() {
            let (index, tenancy, at) = (due.index, due.tenancy, due.at);
            let kind = match current(&mut self.reactor, index, tenancy) {
                Some(note) if !note.is_ready() => note.timed_out(),
                _ => {
                    self.establishing.pop_front();
                    continue;
                }
            };
            if at > self.attentive {
                break;
            }
            self.establishing.pop_front();
            let failure = Failure::new(kind, format!("gave up after {patience:.1} s"));
            self.reactor.fail(index, failure, &mut self.desk, now);
        }
        for (queue, what) in [
            (&mut self.asked, "no answer to a verify round trip"),
            (&mut self.listening, "nothing was heard, and this server cannot be asked,"),
        ] {
            while let Some(due) = queue.front() {
                let (index, tenancy, at) = (due.index, due.tenancy, due.at);
                let still = match current(&mut self.reactor, index, tenancy) {
                    Some(note) if what.starts_with("no answer") => note.is_asked(),
                    Some(note) => note.is_listening(),
                    None => false,
                };
                if still && at > self.attentive {
                    break;
                }
                queue.pop_front();
                if still {
                    let failure = Failure::new(FailureKind::Silent, format!("{what} for {patience:.1} s"));
                    self.reactor.fail(index, failure, &mut self.desk, now);
                }
            }
        }
    }

    /// Whether what was last told is finished.
    fn concluded(&mut self, now: Nanos) -> bool {
        let pass = &self.desk.pass;
        match self.doing {
            Doing::Nothing => false,
            Doing::Opening => {
                self.to_open == 0 && self.desk.sample.counters.establishing == 0 && pass.outstanding == 0
            }
            Doing::Verifying => {
                self.cursor >= self.reactor.places() && pass.outstanding == 0 && pass.listening == 0
            }
            Doing::Quieting { deadline } => {
                if self.desk.beats_out == 0 {
                    return true;
                }
                if self.attentive < deadline {
                    return false;
                }
                for index in 0..self.reactor.places() {
                    if self.reactor.note(index).is_some_and(|n| n.beats_out() > 0) {
                        let text = "no answer to the last heartbeat".to_owned();
                        let failure = Failure::new(FailureKind::Silent, text);
                        self.reactor.fail(index, failure, &mut self.desk, now);
                    }
                }
                true
            }
        }
    }

    fn next_due(&self, now: Nanos) -> Nanos {
        let mut until = self.pulse.due().min(self.report_at);
        if let Some(walk) = &self.walk {
            until = until.min(walk.due());
        }
        if self.to_open > 0 && self.has_room() {
            until = until.min(self.connects.as_ref().map_or(now, Schedule::due).max(self.ports_rest_until));
        }
        until
    }

    fn say_sample(&mut self, link: &mut Link) -> Result<(), WorkerError> {
        self.desk.sample.counters.bytes_in = self.reactor.bytes_in;
        self.desk.sample.counters.bytes_out = self.reactor.bytes_out;
        self.desk.sample.cpu_seconds = clock::to_seconds(clock::cpu_used());
        let sample = self.desk.take_sample();
        Ok(link.say(&Report::Sample(Box::new(sample)))?)
    }

    fn drain(&mut self) {
        self.walk = None;
        for index in 0..self.reactor.places() {
            self.reactor.close(index, &mut self.desk, clock::now());
        }
    }
}

/// The note of a connection, if the place is still held by the same one.
fn current<D: Driver>(reactor: &mut Reactor<D, Note>, index: u32, tenancy: u32) -> Option<&mut Note> {
    if reactor.tenancy(index) == tenancy { reactor.note(index) } else { None }
}
