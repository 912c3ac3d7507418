//! Does a NATS server hold the connection, and still answer on it? (NATS client protocol, <https://docs.nats.io/reference/reference-protocols/nats-protocol>)

use model::{Failure, FailureKind, Scheme, Target};
use serde_json::{Map, Value};

use crate::Plan;
use crate::line::Language;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::quote::{against_protocol, login_refused, quote, turned_away};

/// INFO, PING, PONG, +OK and -ERR; its words may be written in either case.
const NATS: Language = Language { name: "the NATS message", starts: b"IiPp+-" };

const PING: &[u8] = b"PING\r\n";
const PONG: &[u8] = b"PONG\r\n";

/// Holds connections to NATS without a subscription, and asks with PING.
///
/// The server speaks first (INFO). What it thinks of our CONNECT it says only if it does not like it, so a PING goes
/// with it: with the PONG, the connection is ready.
#[derive(Debug)]
pub struct Nats {
    /// CONNECT and the first PING.
    connect: Vec<u8>,
    target: Target,
}

/// What one connection keeps: how far it is, and how many answers are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    due: u32,
    phase: Phase,
}

const _: () = assert!(size_of::<Slot>() <= 8);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// INFO is due.
    #[default]
    Greeting,
    /// The PONG to the first PING is due.
    LoggingIn,
    /// It is ready.
    Open,
}

impl Driver for Nats {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Nats,
        doc: "A client of NATS, with the user and password, or the token, of the URL.",
        heartbeat: "A PING; the PONG counts. The server's own PINGs are answered.",
        beats: Beats::Asked,
        operation: None,
    };

    fn new(plan: &Plan) -> Self {
        let target = plan.target.clone();
        let mut options = Map::new();
        for (name, value) in [("verbose", false), ("pedantic", false), ("tls_required", false)] {
            options.insert(name.to_owned(), Value::Bool(value));
        }
        // 1: the server may send INFO again when its cluster changes
        options.insert("protocol".to_owned(), Value::from(1));
        let password = target.password();
        let texts = match (target.user(), password) {
            (None, token) => [("auth_token", token), ("user", None)],
            (user, password) => [("pass", password), ("user", user)],
        };
        let ours = [("name", "plimsoll"), ("lang", "rust"), ("version", env!("CARGO_PKG_VERSION"))];
        for (name, text) in ours.map(|(name, text)| (name, Some(text))).into_iter().chain(texts) {
            if let Some(text) = text {
                options.insert(name.to_owned(), Value::from(text));
            }
        }
        let mut connect = format!("CONNECT {}\r\n", Value::Object(options)).into_bytes();
        connect.extend_from_slice(PING);
        Self { connect, target }
    }
}

impl Machine for Nats {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => {}
            Cue::Ask => {
                slot.due = slot.due.saturating_add(1);
                out.bytes.extend_from_slice(PING);
            }
            Cue::Operate => {}
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return NATS.each(bytes, |line| self.message(slot, line, out)),
        }
        Ok(0)
    }
}

impl Nats {
    fn message(&self, slot: &mut Slot, line: &[u8], out: &mut Out) -> Result<(), Failure> {
        let word = line.split(|&b| b == b' ' || b == b'\t').next().unwrap_or_default();
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        match slot.phase {
            _ if is(b"-ERR") => return Err(self.refusal(slot, line)),
            Phase::Greeting if is(b"INFO") => {
                wants_no_tls(line)?;
                out.bytes.extend_from_slice(&self.connect);
                out.facts.push(Fact::Upgraded);
                slot.phase = Phase::LoggingIn;
            }
            Phase::Greeting => return Err(NATS.not_spoken(line)),
            _ if is(b"INFO") || is(b"+OK") => {}
            _ if is(b"PING") => out.bytes.extend_from_slice(PONG),
            Phase::LoggingIn if is(b"PONG") => {
                if self.target.login.is_some() {
                    out.facts.push(Fact::LoggedIn);
                }
                out.facts.push(Fact::Ready);
                slot.phase = Phase::Open;
            }
            Phase::Open if is(b"PONG") && slot.due > 0 => {
                slot.due -= 1;
                out.facts.push(Fact::Answered);
            }
            _ => return Err(NATS.not_spoken(line)),
        }
        Ok(())
    }

    /// The words of -ERR are the only sign of its kind; the specification lists them.
    fn refusal(&self, slot: &Slot, line: &[u8]) -> Failure {
        let said = format!("the server said {}", quote(line, 200));
        let words = String::from_utf8_lossy(line).to_ascii_lowercase();
        let has = |part: &str| words.contains(part);
        if has("authorization") || has("authentication") {
            login_refused(said, &self.target)
        } else if has("connections exceeded") {
            turned_away(line)
        } else if slot.phase == Phase::Open && (has("shutdown") || has("stale") || has("slow consumer")) {
            Failure::new(FailureKind::Closed, said)
        } else {
            against_protocol(said)
        }
    }
}

/// A server that wants TLS would take CONNECT for a broken handshake and hang up without a word.
fn wants_no_tls(info: &[u8]) -> Result<(), Failure> {
    // as the server writes it; inside a string of this JSON the quotes would be escaped
    let mark = b"\"tls_required\":true";
    if info.windows(mark.len()).any(|part| part == mark) {
        return Err(Failure::new(
            FailureKind::ServerRefused,
            "the server asks for TLS after its INFO, which plimsoll does not speak; \
             let it listen without TLS for the test",
        ));
    }
    Ok(())
}
