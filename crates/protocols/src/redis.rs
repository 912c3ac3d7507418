//! Does a Redis server hold the connection, and still answer on it? (RESP2, <https://redis.io/docs/latest/develop/reference/protocol-spec/>)

use model::{Failure, Scheme, Target};

use crate::Plan;
use crate::line::Language;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::quote::{against_protocol, login_refused, quote, turned_away};

const RESP: Language = Language { name: "the RESP answer", starts: b"+-" };

/// An inline command: one word, no array around it.
const PING: &[u8] = b"PING\r\n";

/// Holds connections to Redis, or to whatever speaks its protocol, and asks with PING.
///
/// A connection is ready when the server has answered on it: AUTH where the URL has a login, else a first PING. That
/// is when Redis says that it has as many clients as it takes, and never before.
#[derive(Debug)]
pub struct Redis {
    greeting: Vec<u8>,
    target: Target,
}

/// What one connection keeps: how many answers are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    due: u32,
    greeted: bool,
}

const _: () = assert!(size_of::<Slot>() <= 8);

impl Driver for Redis {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Redis,
        doc: "A client of Redis (RESP2), logged in with AUTH if the URL has a user or a password.",
        heartbeat: "A PING; the +PONG counts.",
        beats: Beats::Asked,
        operation: None,
    };

    fn new(plan: &Plan) -> Self {
        let target = plan.target.clone();
        let password = target.password().unwrap_or_default();
        let greeting = match target.user() {
            Some(user) => command(&["AUTH", user, password]),
            None if target.password().is_some() => command(&["AUTH", password]),
            None => PING.to_vec(),
        };
        Self { greeting, target }
    }
}

/// An array of bulk strings, in which a word may hold anything.
fn command(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len());
    for word in words {
        out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    out.into_bytes()
}

impl Machine for Redis {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => out.bytes.extend_from_slice(&self.greeting),
            Cue::Ask => {
                slot.due = slot.due.saturating_add(1);
                out.bytes.extend_from_slice(PING);
            }
            Cue::Operate => {}
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return RESP.each(bytes, |line| self.answer(slot, line, out)),
        }
        Ok(0)
    }
}

impl Redis {
    /// The greeting is asked for once and answered first; then as many answers come as there were asks.
    fn answer(&self, slot: &mut Slot, line: &[u8], out: &mut Out) -> Result<(), Failure> {
        if line.starts_with(b"-") {
            return Err(self.refusal(slot, line));
        }
        let login = self.target.login.is_some();
        match line {
            b"+OK" if !slot.greeted && login => out.facts.extend([Fact::LoggedIn, Fact::Ready]),
            b"+PONG" if !slot.greeted && !login => out.facts.extend([Fact::Upgraded, Fact::Ready]),
            b"+PONG" if slot.greeted && slot.due > 0 => {
                slot.due -= 1;
                out.facts.push(Fact::Answered);
            }
            _ => return Err(RESP.not_spoken(line)),
        }
        slot.greeted = true;
        Ok(())
    }

    /// An error's first word tells its kind; ERR, which is all the others, tells nothing.
    fn refusal(&self, slot: &Slot, line: &[u8]) -> Failure {
        let said = format!("the server answered {}", quote(line, 200));
        let code = line.split(|&b| b == b' ').next().unwrap_or_default();
        match code {
            b"-NOAUTH" | b"-WRONGPASS" | b"-NOPERM" => login_refused(said, &self.target),
            b"-ERR" if line.starts_with(b"-ERR max number of clients") => turned_away(line),
            // before it had users, Redis had no better word for a wrong password
            b"-ERR" if !slot.greeted && self.greeting != PING => login_refused(said, &self.target),
            b"-ERR" => against_protocol(said),
            // LOADING, MASTERDOWN, DENIED and the like: it is Redis, and it will not serve us
            _ => turned_away(line),
        }
    }
}
