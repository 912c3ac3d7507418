//! Hold: open a share of the connections, keep every one alive, and verify every one when told to.

mod desk;
mod load;
mod talk;

use std::collections::VecDeque;

use fleet::{Assignment, Link, Order, Report};
use model::{Failure, FailureKind, Spec};
use protocols::{Beats, Cue, Driver, Plan, WithDriver};
use reactor::Reactor;
use reactor::clock::{self, Nanos};
use reactor::pace::{Schedule, Walk};
use reactor::socket;
use rustix::io::Errno;

use super::{PULSE, REPORT_EVERY, current, say_sample};
use crate::caller::Caller;
use crate::{WorkerError, trust};
use desk::{Desk, Note};
use load::{Load, Window};
use talk::Talk;

/// Round trips of a verify pass that are under way at a time, over all workers: enough to keep both ends busy,
/// few enough that they measure the target and not each other.
const VERIFY_WINDOW: u64 = 4_096;
/// The same of one worker: what a turn of its loop takes in.
const VERIFY_WINDOW_EACH: u64 = 256;
/// A turn of the loop that took longer than this was the generator's own stall: only so much of it counts
/// against a connection's patience, as its answer may have waited here, unread.
const ATTENTION: Nanos = 100 * clock::MILLISECOND;
/// Connects between two looks at the sockets, so that answers never wait for long.
const CONNECT_BATCH: u32 = 32;
/// On loopback, a port in TIME-WAIT may be used again after a second (`net.ipv4.tcp_tw_reuse` is 2, its stamp is
/// in whole seconds).
const TIME_WAIT_REST: Nanos = 2_100 * clock::MILLISECOND;
/// A generator that hardly gets to run waits at most this many times the patience for the last answers.
const QUIET_FACTOR: u64 = 3;
/// Ticks of heartbeats that are sent between two looks at the sockets.
const BEAT_BATCH: u32 = 32;
/// Messages of a talk that are said between two looks at the sockets.
const SPEAK_BATCH: u32 = 64;
/// Operations of a sweep that are begun between two looks at the sockets.
const WORK_BATCH: u32 = 256;
/// Where messages are due closer to each other than this, several are said at a time: an answer is as late as that.
const SPEAK_EVERY: Nanos = clock::MILLISECOND / 4;

/// Carries out one assignment.
pub(crate) fn run(assignment: Assignment, link: &mut Link) -> Result<(), WorkerError> {
    let plan = Plan { worker: assignment.index, workers: assignment.workers, ..Plan::of(&assignment.spec) };
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
    Quieting {
        /// By the attentive clock.
        deadline: Nanos,
        /// By any clock: a generator that is not attentive at all ends too.
        at_latest: Nanos,
    },
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
    caller: Caller,
    /// After the first refused round, until when no port is asked for (0: none was refused yet).
    ports_rest_until: Nanos,
    doing: Doing,
    /// Connections still to be started.
    to_open: u64,
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
    /// When a message was said last, and when the unanswered ones were looked at last.
    spoke_at: Nanos,
    listened_at: Nanos,
    /// Where the verify pass goes on.
    cursor: u32,
}

impl<D: Driver> Hold<D> {
    fn new(driver: D, assignment: Assignment) -> Result<Self, WorkerError> {
        let spec = &assignment.spec;
        let capacity = assignment.capacity as usize;
        let mut reactor = Reactor::new(driver, capacity).map_err(|e| WorkerError::Setup(e.to_string()))?;
        reactor.tls_on_request = trust::on_request(&assignment)?;
        let now = clock::now();
        let interval = spec.heartbeat_seconds.map(clock::from_seconds);
        let walk =
            interval.map(|i| Walk::new(now, i, assignment.capacity, assignment.index, assignment.workers));
        let patience = clock::from_seconds(spec.patience_seconds);
        Ok(Self {
            reactor,
            desk: Desk::new(D::FACTS.beats == Beats::Arriving, spec.operation.is_some(), interval, patience),
            caller: Caller::new(&assignment, now)?,
            ports_rest_until: 0,
            doing: Doing::Nothing,
            to_open: 0,
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
            spoke_at: 0,
            listened_at: 0,
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
            self.speak(now);
            self.work();
            self.listen(now);
            self.open(now);
            self.verify(now);
            self.time_out(now);
            if self.concluded(now) {
                let verified = self.desk.pass.verified;
                self.desk.end_pass();
                say_sample(&self.reactor, &mut self.desk.sample, link)?;
                link.say(&match self.doing {
                    Doing::Verifying => Report::Verified { verified },
                    Doing::Quieting { .. } => Report::Quiet,
                    Doing::Opening | Doing::Nothing => Report::Opened,
                })?;
                self.doing = Doing::Nothing;
            }
            if let Some(talked) = self.desk.talk.as_ref().and_then(Talk::over) {
                self.desk.talk = None;
                say_sample(&self.reactor, &mut self.desk.sample, link)?;
                link.say(&Report::TalkOver(Box::new(talked)))?;
            }
            if let Some(loaded) = self.desk.load.as_mut().and_then(|load| load.over(now)) {
                self.desk.load = None;
                say_sample(&self.reactor, &mut self.desk.sample, link)?;
                link.say(&Report::Loaded(Box::new(loaded)))?;
            }
            if now >= self.report_at {
                say_sample(&self.reactor, &mut self.desk.sample, link)?;
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
                        self.drain(link)?;
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
            Order::Start(_) | Order::Wave { .. } | Order::Drop => {}
            Order::Open { total } => {
                let share = Spec::share(total, self.assignment.index, self.assignment.workers);
                self.resize(share, now);
                self.doing = Doing::Opening;
            }
            Order::Verify => {
                self.desk.begin_pass(now);
                for index in 0..self.reactor.places() {
                    if let Some(note) = self.reactor.note(index) {
                        self.desk.owes_proof(note);
                    }
                }
                self.cursor = 0;
                self.doing = Doing::Verifying;
            }
            Order::Talk { at } => self.begin_talk(at),
            Order::Load { at, from, until } => self.begin_work(Window { at, from, until }),
            Order::Quiet => {
                self.walk = None;
                self.desk.talk = None;
                self.desk.load = None;
                self.doing = Doing::Quieting {
                    deadline: self.attentive + self.patience,
                    at_latest: now + QUIET_FACTOR * self.patience,
                };
            }
            Order::Drain => return false,
        }
        true
    }

    fn resize(&mut self, share: u64, now: Nanos) {
        let held = self.desk.sample.counters.ready;
        self.to_open = share.saturating_sub(held);
        self.caller.ports_exhausted = false;
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
        self.desk.sample.counters.attempted += 1;
        match self.caller.connect(&mut self.reactor, || Note::begun(intended)) {
            Ok(index) => {
                self.desk.sample.counters.establishing += 1;
                let tenancy = self.reactor.tenancy(index);
                self.establishing.push_back(Due { index, tenancy, at: self.attentive + self.patience });
            }
            Err(Errno::ADDRNOTAVAIL) if self.ports_rest_until == 0 => {
                // Perhaps another run has just ended: its ports can be used again soon.
                self.ports_rest_until = clock::now() + TIME_WAIT_REST;
                self.desk.sample.counters.attempted -= 1;
                self.to_open += 1;
            }
            Err(errno) => {
                self.caller.ports_exhausted |= errno == Errno::ADDRNOTAVAIL;
                self.desk.sample.counters.failed.add(&socket::failure(errno));
            }
        }
    }

    /// Asks one connection for a round trip that counts as a verification.
    fn ask(&mut self, index: u32, now: Nanos) {
        if let Some(note) = self.reactor.note(index) {
            note.ask(now);
            let tenancy = self.reactor.tenancy(index);
            self.desk.pass.outstanding += 1;
            self.asked.push_back(Due { index, tenancy, at: self.attentive + self.patience });
            let cue = if self.assignment.spec.operation.is_some() { Cue::Operate } else { Cue::Ask };
            self.reactor.cue(index, cue, &mut self.desk, now);
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
            if self.reactor.note(index).is_some_and(|n| self.desk.must_be_asked(n)) {
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

    /// The places of all connections that are ready.
    fn standing(&mut self) -> Vec<u32> {
        let all = 0..self.reactor.places();
        all.filter(|index| self.reactor.note(*index).is_some_and(|n| n.is_ready())).collect()
    }

    fn begin_talk(&mut self, at: Nanos) {
        let Some(spec) = self.assignment.spec.talk else { return };
        let standing = self.standing();
        let (index, workers) = (self.assignment.index, self.assignment.workers);
        self.desk.talk = Some(Talk::new(spec, at, &standing, index, workers));
        self.spoke_at = at;
        self.listened_at = at;
    }

    /// Says what is due.
    fn speak(&mut self, now: Nanos) {
        for _ in 0..SPEAK_BATCH {
            let Some(talk) = &mut self.desk.talk else { return };
            // An intended time is kept to the nanosecond; to look for the next one so often would be all that is done.
            let Some((index, due)) = talk.take(now) else { break };
            self.spoke_at = now;
            let sent = clock::now();
            self.desk.sample.message_lag.record(sent.saturating_sub(due));
            self.desk.sample.counters.messages_sent += 1;
            self.reactor.cue(index, Cue::Operate, &mut self.desk, sent);
        }
    }

    fn begin_work(&mut self, window: Window) {
        let standing = self.standing();
        let Some(spec) = &self.assignment.spec.sweep else { return };
        let (index, workers) = (self.assignment.index, self.assignment.workers);
        self.desk.load = Some(Load::new(spec, window, &standing, index, workers));
        self.listened_at = window.at;
    }

    /// Begins the operations that are due.
    fn work(&mut self) {
        // Answers have been read since the loop began to turn: the clock is read again for what they let begin.
        let now = clock::now();
        for _ in 0..WORK_BATCH {
            let Some(load) = &mut self.desk.load else { return };
            let Some((index, _)) = load.take(now) else { break };
            self.desk.sample.counters.messages_sent += 1;
            self.reactor.cue(index, Cue::Operate, &mut self.desk, now);
        }
    }

    /// Once a second, gives up those whose message or operation has had no answer for too long.
    fn listen(&mut self, now: Nanos) {
        if now < self.listened_at + clock::SECOND {
            return;
        }
        let patience = self.patience + now.saturating_sub(self.began + self.attentive);
        let (silent, to_what) = match (&self.desk.talk, &self.desk.load) {
            (Some(talk), _) => (talk.silent(now, patience), "a message"),
            (_, Some(load)) => (load.silent(now, patience), "an operation"),
            (None, None) => return,
        };
        self.listened_at = now;
        for (index, waited) in silent {
            let text = format!("no answer to {to_what} for {:.1} s", clock::to_seconds(waited));
            self.reactor.fail(index, Failure::new(FailureKind::Silent, text), &mut self.desk, now);
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
            Doing::Verifying => pass.owed == 0,
            Doing::Quieting { deadline, at_latest } => {
                if self.desk.beats_out == 0 {
                    return true;
                }
                if self.attentive < deadline && now < at_latest {
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
        if let Some(talk) = &self.desk.talk {
            until = until.min(talk.next_due().max(self.spoke_at + SPEAK_EVERY));
        }
        if let Some(load) = &self.desk.load {
            until = until.min(load.next_due(now));
        }
        if self.to_open > 0 && self.has_room() {
            until = until.min(self.connects.as_ref().map_or(now, Schedule::due).max(self.ports_rest_until));
        }
        until
    }

    /// Closes all connections. That takes a kernel seconds where a machine holds a million: it is told as it goes, so
    /// that nobody takes this worker for dead.
    fn drain(&mut self, link: &mut Link) -> Result<(), WorkerError> {
        self.walk = None;
        for index in 0..self.reactor.places() {
            let now = clock::now();
            self.reactor.close(index, &mut self.desk, now);
            if now >= self.report_at {
                say_sample(&self.reactor, &mut self.desk.sample, link)?;
                self.report_at = now + REPORT_EVERY;
            }
        }
        say_sample(&self.reactor, &mut self.desk.sample, link)
    }
}
