//! Does a Redis server hold the connection, and still answer on it? (RESP2, <https://redis.io/docs/latest/develop/reference/protocol-spec/>)

mod command;

use model::{Failure, Operation, Scheme, Target};

use crate::Plan;
use crate::line::Language;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::quote::{against_protocol, login_refused, quote, turned_away};
use crate::waiting::Waiting;

/// The answers to AUTH and PING.
const RESP: Language = Language { name: "the RESP answer", starts: b"+-" };
/// The answers that there are.
const ANY: Language = Language { name: "the RESP answer", starts: b"+-:$*" };

/// An inline command: one word, no array around it.
const PING: &[u8] = b"PING\r\n";

/// An operation without a text: every server has it, and nothing changes with it.
const ECHO: &[u8] = b"*2\r\n$4\r\nECHO\r\n$8\r\nplimsoll\r\n";

/// Holds connections to Redis, or to whatever speaks its protocol, and asks with PING.
///
/// A connection is ready when the server has answered on it: AUTH where the URL has a login, else a first PING. That
/// is when Redis says that it has as many clients as it takes, and never before.
#[derive(Debug)]
pub struct Redis {
    greeting: Vec<u8>,
    /// Its commands, one behind the other, and how many these are.
    operation: Vec<u8>,
    commands: u16,
    target: Target,
}

/// What one connection keeps: which answers are due, and how much of one is still to be passed over.
#[derive(Debug, Default)]
pub struct Slot {
    waiting: Waiting,
    /// Of a bulk string, with its line end.
    skip: u32,
    /// Of the answer to an operation, so many values: an array's are counted with those around it, so that no depth
    /// needs to be remembered.
    values: u32,
    /// Of the operation's commands, so many are answered.
    answered: u16,
    greeted: bool,
}

const _: () = assert!(size_of::<Slot>() <= 32);

impl Driver for Redis {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Redis,
        doc: "A client of Redis (RESP2), logged in with AUTH if the URL has a user or a password.",
        heartbeat: "A PING; the +PONG counts.",
        beats: Beats::Asked,
        operation: Some(
            "ECHO plimsoll, or the text as redis-cli reads commands (SET key \"a b\"), one a line, which are sent together; any answers count that are no error.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let target = plan.target.clone();
        let password = target.password().unwrap_or_default();
        let greeting = match target.user() {
            Some(user) => command::write(&["AUTH", user, password]),
            None if target.password().is_some() => command::write(&["AUTH", password]),
            None => PING.to_vec(),
        };
        let text = plan.operation.as_ref().and_then(|o| o.text.as_deref());
        let lines = command::lines(text.unwrap_or_default());
        let mut commands: Vec<Vec<u8>> =
            lines.filter_map(|line| command::read(line).ok()).map(|words| command::write(&words)).collect();
        if commands.is_empty() {
            commands.push(ECHO.to_vec());
        }
        Self { greeting, operation: commands.concat(), commands: commands.len() as u16, target }
    }

    fn check(operation: &Operation) -> Result<(), String> {
        operation.text.as_deref().map_or(Ok(()), command::check)
    }
}

impl Machine for Redis {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => out.bytes.extend_from_slice(&self.greeting),
            Cue::Ask => {
                slot.waiting.ask();
                out.bytes.extend_from_slice(PING);
            }
            Cue::Operate => {
                slot.waiting.operate();
                out.bytes.extend_from_slice(&self.operation);
            }
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return self.read(slot, bytes, out),
        }
        Ok(0)
    }
}

impl Redis {
    fn read(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            if slot.skip > 0 {
                let n = rest.len().min(slot.skip as usize);
                slot.skip -= n as u32;
                used += n;
            } else {
                let operates = slot.greeted && slot.waiting.is_operation();
                let Some((line, taken)) = if operates { ANY } else { RESP }.line(rest)? else { break };
                used += taken;
                if !operates {
                    self.answer(slot, line, out)?;
                    continue;
                }
                if line.starts_with(b"-") {
                    return Err(self.operation_refused(line));
                }
                slot.value(line)?;
            }
            if slot.skip == 0 && slot.values == 0 {
                slot.answered += 1;
                if slot.answered >= self.commands {
                    slot.answered = 0;
                    out.facts.extend(slot.waiting.answer());
                }
            }
        }
        Ok(used)
    }

    /// The greeting is asked for once and answered first; then as many answers come as there were asks.
    fn answer(&self, slot: &mut Slot, line: &[u8], out: &mut Out) -> Result<(), Failure> {
        if line.starts_with(b"-") {
            return Err(self.refusal(slot, line));
        }
        let login = self.target.login.is_some();
        match line {
            b"+OK" if !slot.greeted && login => out.facts.extend([Fact::LoggedIn, Fact::Ready]),
            b"+PONG" if !slot.greeted && !login => out.facts.extend([Fact::Upgraded, Fact::Ready]),
            b"+PONG" if slot.greeted && !slot.waiting.is_empty() => out.facts.extend(slot.waiting.answer()),
            _ => return Err(RESP.not_spoken(line)),
        }
        slot.greeted = true;
        Ok(())
    }

    /// The command was refused, not the connection, unless its user may not have it at all.
    fn operation_refused(&self, line: &[u8]) -> Failure {
        let said = format!("the operation was answered with {}", quote(line, 200));
        match line.split(|&b| b == b' ').next() {
            Some(b"-NOAUTH" | b"-NOPERM") => login_refused(said, &self.target),
            _ => against_protocol(said),
        }
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

impl Slot {
    /// Takes the line with which a value of the operation's answer begins; most are no longer than it.
    fn value(&mut self, line: &[u8]) -> Result<(), Failure> {
        let more = match line {
            [b'$' | b'*', b'-', b'1'] => 0,
            [b'$', digits @ ..] => {
                self.skip =
                    number(digits).and_then(|n| n.checked_add(2)).ok_or_else(|| ANY.not_spoken(line))?;
                0
            }
            [b'*', digits @ ..] => number(digits).ok_or_else(|| ANY.not_spoken(line))?,
            _ => 0,
        };
        // the value itself is the first of an answer, or was counted with its array
        self.values = self.values.saturating_sub(1).checked_add(more).ok_or_else(|| ANY.not_spoken(line))?;
        Ok(())
    }
}

/// A length: digits only, as Rust's own parser would take a sign.
fn number(digits: &[u8]) -> Option<u32> {
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
